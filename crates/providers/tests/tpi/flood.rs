//! Floods from the network: streams of one provider connect to each other meanwhile (TPI 2.0, T_CONN_REQ to T_CONN_CON), and the
//! answers leave time for other work.

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
fn answers_that_take_long_wait_for_their_turns() {
    const STRANGERS: u8 = 100;
    let (mut rig, answers) = Rig::with_strangers(STRANGERS);
    let sent = || answers.lock().unwrap().clone();
    while rig.executive.has_arrivals() || sent().is_empty() {
        rig.step();
        rig.flush();
    }
    while sent().iter().sum::<usize>() < usize::from(STRANGERS) {
        let calls = sent().len();
        assert!(rig.executive.deadline().is_some_and(|at| at <= rig.now), "the rest is due: {:?}", sent());
        rig.flush();
        assert_eq!(sent().len(), calls + 1, "one slow call uses up the time of a turn");
    }
    assert!(sent().iter().all(|answers| *answers <= 16), "{:?}", sent());
    assert_eq!(rig.executive.deadline(), None);
}
