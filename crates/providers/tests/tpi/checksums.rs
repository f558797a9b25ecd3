//! Packets have a checksum (RFC 9260 §6.8) unless they return to the provider in memory.

use sctp_wire::Packet;
use tpi::Primitive;

use crate::rig::{PORT, Rig};

/// Sends a message; returns whether its packet has the right checksum, or none.
fn is_summed(rig: &mut Rig) -> bool {
    let (client, server) = rig.connected();
    rig.exchange_until_idle();
    rig.put_with(client, &Primitive::DataReq { more: false }, b"a message");
    rig.flush();
    let waiting = rig.waiting();
    let [packet] = &waiting[..] else { panic!("{} packets", waiting.len()) };
    let packet = Packet::parse(packet).expect("a packet");
    let is_summed = packet.checksum_ok();
    assert!(is_summed || packet.checksum_field() == 0, "a wrong one");
    rig.exchange_until_idle();
    let (_, message) = rig.take(server).expect("it arrives");
    assert_eq!(message, b"a message");
    is_summed
}

#[test]
fn packets_for_a_network_have_checksums() {
    assert!(is_summed(&mut Rig::new()));
}

#[test]
fn packets_that_return_in_memory_have_none_and_arrive() {
    let mut rig = Rig::in_memory();
    assert!(!is_summed(&mut rig));
    assert_eq!(rig.statistics().checksum_errors, 0);
}

#[test]
fn packets_from_a_network_are_dropped_without_checksums() {
    let mut rig = Rig::in_memory_untold();
    let listener = rig.bound(PORT, 5);
    rig.connecting();
    rig.exchange_until_idle();
    assert!(rig.take(listener).is_none(), "the INIT was dropped");
    assert_eq!(rig.statistics().checksum_errors, 1);
}
