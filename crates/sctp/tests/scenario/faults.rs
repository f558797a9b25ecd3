//! A panic while a packet is handled.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use lab::packets::{build, write_data};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{AssociationId, CloseReason, Event, Host, PathHints, Payload, RecvInfo};
use sctp_wire::chunk::DataFlags;

struct PanickingHost;

impl Host for PanickingHost {
    fn message(&mut self, _: AssociationId, _: &RecvInfo, _: Payload) {
        resume_unwind(Box::new("a fault"));
    }

    fn event(&mut self, _: AssociationId, _: Event) {}

    fn path_hints(&self, _: SocketAddr) -> PathHints {
        PathHints::default()
    }
}

#[test]
fn the_association_whose_packet_caused_a_panic_is_known() {
    let mut peer = Peer::established(1);
    peer.sends().data(0).go();
    assert_eq!(peer.endpoint.take_in_progress(), None);
    while peer.hears_maybe().is_some() {}
    let tsn = peer.init().initial_tsn.0.wrapping_add(1);
    let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
        write_data(DataFlags::WHOLE, tsn, 0, 1, b"?", out);
    });
    let handle = || {
        peer.endpoint.handle_datagram(peer.now, peer.address, None, &packet, &mut PanickingHost);
    };
    catch_unwind(AssertUnwindSafe(handle)).expect_err("it panics");
    assert_eq!(peer.endpoint.take_in_progress(), Some(peer.id));
    peer.endpoint.abandon(peer.id, &mut peer.app);
    peer.collect_output();
    peer.expects("ABORT");
    assert!(peer.app.saw(|event| *event == Event::Closed(CloseReason::Fault)));
    assert_eq!(peer.endpoint.association_count(), 0);
}

#[test]
fn a_panic_after_a_packet_is_not_that_of_its_association() {
    let mut peer = Peer::established(2);
    let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
        write_data(DataFlags::WHOLE, peer.init().initial_tsn.0, 0, 0, b"?", out);
    });
    peer.endpoint.handle_datagram(peer.now, peer.address, None, &packet, &mut peer.app);
    assert_eq!(peer.endpoint.take_in_progress(), None);
}
