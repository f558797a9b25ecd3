use std::net::SocketAddr;

use super::acked::Sample;
use super::*;
use crate::congestion::Signal;

fn found_a_loss() -> Path {
    let remote = SocketAddr::from(([192, 0, 2, 1], 9899));
    let hints = PathHints { mtu_bytes: 1472, ..PathHints::default() };
    let mut path = Path::new(remote, None, hints, &AssociationConfig::default());
    path.flight.enter(60 * 1460);
    path.enter_recovery(Time::ZERO, Signal::Loss, 64 * 1460, 1, &[]);
    path
}

#[test]
fn one_packet_leaves_when_a_loss_is_found_though_it_is_not_quite_full() {
    let mut path = found_a_loss();
    assert!(path.may_send_packet());
    path.flight.enter(1440);
    assert!(!path.may_send_packet(), "a second one would find the queue full that has just lost one");
}

#[test]
fn another_leaves_for_what_is_delivered_then() {
    let mut path = found_a_loss();
    path.update_prr(1460, true);
    assert_eq!(path.room_bytes(), 1460, "a packet of 1472 bytes holds that much in chunks");
}

#[test]
fn a_local_address_that_no_packet_has_reached_is_not_kept() {
    let remote = SocketAddr::from(([192, 0, 2, 1], 9899));
    let [configured, reached, other] = [1, 2, 3].map(|n| Some(IpAddr::from([198, 51, 100, n])));
    let mut path = Path::new(remote, configured, PathHints::default(), &AssociationConfig::default());
    path.confirm();
    assert!(path.on_received(Time::ZERO, reached, false));
    assert_eq!(path.local(), reached);
    assert!(!path.on_received(Time::ZERO + LOCAL_ADDRESS_KEPT, other, false));
    assert_eq!(path.local(), reached);
}

#[test]
fn the_window_limited_no_packet_however_many_have_left_since_it_did() {
    let remote = SocketAddr::from(([192, 0, 2, 1], 9899));
    let mut path = Path::new(remote, None, PathHints::default(), &AssociationConfig::default());
    for newest in (1..8).map(|n| PacketNumber::new(n << 29)) {
        let acked =
            AckedPackets { newest, oldest: newest, bytes: 0, in_flight_before_bytes: 0, advanced: true };
        path.update_window(Time::ZERO, &acked, Sample::default(), 0, None, 1);
        assert!(!path.was_limited(newest), "{newest:?}");
    }
}
