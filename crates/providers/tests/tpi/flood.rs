//! Streams of one provider that connect to each other (TPI 2.0, T_CONN_REQ to T_CONN_CON) while the network floods it.

use crate::rig::{PORT, Rig};
use tpi::Primitive;

/// Number of packets of the setup of an association (RFC 9260 §5.1).
const SETUP_PACKETS: usize = 4;

#[test]
fn packets_between_own_streams_do_not_wait_behind_a_flood() {
    let mut rig = Rig::flooded(50);
    rig.step();
    let listener = rig.bound(PORT, 5);
    let client = rig.connecting();
    for _ in 0..SETUP_PACKETS {
        rig.flush();
        rig.step();
    }
    rig.indication(listener);
    assert!(
        matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))),
        "one receive a packet suffices"
    );
}
