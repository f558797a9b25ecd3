//! Packets and their common header (RFC 9260 §3, §3.1).

use lab::packets::{header, kinds};
use sctp::SendInfo;
use sctp_wire::chunk::{Init, InitAck, ShutdownAck, ShutdownComplete};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{only_chunk, sends_chunk, sends_init};

rules! {
    in "3" {
        MUST_NOT "bundle INIT with any other chunk" => shown(an_init_travels_alone, Bundled);
        MUST_NOT "bundle INIT ACK with any other chunk" => shown(an_init_ack_travels_alone, Bundled);
        MUST_NOT "bundle SHUTDOWN COMPLETE with any other chunk" => shown(a_shutdown_complete_travels_alone, Bundled);
        MUST "send integers in network byte order" => shown(integers_are_in_network_byte_order, Ports, Value);
    }
    in "3.1" {
        MUST_NOT "use source port 0" => shown(a_packet_from_port_zero_is_not_answered, Talkative);
        MUST_NOT "use destination port 0" => shown(ports_are_those_of_the_association, Ports);
        MUST "set the verification tag to the Initiate Tag of the peer" => shown(packets_carry_the_tag_of_the_peer, Tag);
        MUST "send INIT with verification tag 0" => shown(an_init_has_tag_zero, Tag);
        MUST "copy the tag of a SHUTDOWN ACK into a SHUTDOWN COMPLETE with the T bit" => shown(a_reflected_shutdown_complete_copies_the_tag, Tag, Flags);
    }
}

pub(crate) fn an_init_travels_alone(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.app_sends(SendInfo::default(), &b"in a hurry"[..]);
    assert_eq!(kinds(&peer.hears()), [Init::KIND]);
    peer.expects_nothing();
}

pub(crate) fn an_init_ack_travels_alone(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    assert_eq!(kinds(&peer.hears()), [InitAck::KIND]);
    peer.expects_nothing();
}

fn a_shutdown_complete_travels_alone(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    // The endpoint would answer the heartbeat before it if the packet had room for more than SHUTDOWN COMPLETE.
    peer.sends()
        .chunk(|_, out| out.extend_from_slice(&[4, 0, 0, 12, 0, 1, 0, 8, 1, 2, 3, 4]))
        .chunk(|_, out| ShutdownAck.write(out))
        .go();
    assert_eq!(kinds(&peer.hears()), [ShutdownComplete::KIND]);
    peer.expects_nothing();
}

fn integers_are_in_network_byte_order(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo { stream: 2, ppid: 0x0102_0304, ..SendInfo::default() }, &b"abcd"[..]);
    let packet = peer.hears();
    assert_eq!(packet[..4], [0x13, 0x89, 0x13, 0x88], "ports 5001 and 5000");
    assert_eq!(packet[14..16], [0, 20], "length");
    assert_eq!(packet[16..20], peer.endpoint_tsn(0).0.to_be_bytes());
    assert_eq!(packet[20..28], [0, 2, 0, 0, 1, 2, 3, 4], "stream, sequence number and protocol");
}

fn a_packet_from_port_zero_is_not_answered(stage: &Stage) {
    let mut peer = stage.listening();
    for (source, destination) in [(0, 5001), (5000, 0)] {
        let packet = lab::packets::build(source, destination, 0, |out| peer.init().write(out));
        peer.sends_raw(peer.address, &packet);
        peer.expects_nothing();
    }
}

fn ports_are_those_of_the_association(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let header = header(&peer.hears());
    assert_eq!((header.source_port, header.destination_port), (5001, 5000));
}

pub(crate) fn packets_carry_the_tag_of_the_peer(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), &b"hello"[..]);
    assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
    peer.sends().data(0).go();
    assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
    peer.app_shuts_down();
    peer.sends().sack(0, &[]).go();
    assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
}

fn an_init_has_tag_zero(stage: &Stage) {
    let mut peer = stage.connecting();
    assert_eq!(header(&peer.hears()).verification_tag.0, 0);
}

pub(crate) fn a_reflected_shutdown_complete_copies_the_tag(stage: &Stage) {
    let mut peer = stage.listening();
    peer.endpoint_tag = 0x1234_5678;
    sends_chunk(&mut peer, ShutdownAck::KIND, 0, &[]);
    let packet = peer.hears();
    let complete = only_chunk(&packet);
    assert_eq!((complete.kind, complete.flags), (ShutdownComplete::KIND, 1));
    assert_eq!(header(&packet).verification_tag.0, 0x1234_5678);
}
