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

#[test]
fn the_link_knows_the_port_of_a_listener_before_the_answer_to_its_user() {
    let (mut rig, told) = Rig::flooded_and_told(50);
    for _ in 0..300 {
        rig.step();
    }
    let ports = || told.lock().unwrap().clone();
    assert_eq!(ports(), Some(vec![]), "the rubbish is a flood");
    // No packet comes between the answers and the looks.
    for port in [PORT, PORT + 1] {
        rig.bound(port, 5);
        assert!(ports().is_some_and(|ports| ports.contains(&port)), "{port} of {:?}", ports());
    }
}
