//! INIT (RFC 9260 §3.3.2).

use std::net::{IpAddr, Ipv4Addr};

use lab::packets::{header, kinds};
use lab::script::{Peer, plain};
use sctp::{AssociationConfig, SendInfo};
use sctp_wire::chunk::{Abort, Init, InitAck};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{
    connects, half, only_chunk, padded_parameter_kinds, padded_parameters, parameter, parameter_kinds,
    sends_chunk, sends_init, sends_init_like, word,
};

rules! {
    in "3.3.2" {
        MUST "include each parameter only once in an INIT" => shown(an_init_has_its_addresses_and_nothing_else, Value);
        MUST_NOT "put a Host Name Address into an INIT" => shown_by(an_init_has_its_addresses_and_nothing_else, Value);
        MUST "answer an INIT with a Host Name Address with ABORT" => shown(an_init_with_a_host_name_is_aborted, Kind, Silent);
        SHOULD "answer an INIT with all mandatory parameters with INIT ACK" => shown(a_plain_init_is_answered, Kind, Silent);
        SHOULD "send an INIT with flags 0" => shown(an_init_has_no_flags, Flags);
        SHOULD "ignore the flags of an INIT" => shown(flags_of_an_init_do_not_matter, Silent);
        MUST "put the Initiate Tag into the verification tag of every packet" => shown(every_packet_has_the_initiate_tag_of_the_init, Tag);
        MUST "drop an INIT with Initiate Tag 0 silently" => shown(an_init_without_a_tag_is_not_answered, Talkative);
        MUST_NOT "advertise less than 1500 bytes in an INIT" => shown(an_init_advertises_at_least_1500_bytes, Value);
        MUST "discard an INIT with an a_rwnd below 1500" => shown(an_init_with_a_small_window_is_refused, Kind);
        SHOULD "answer it with ABORT and the Initiate Tag" => shown_by(an_init_with_a_small_window_is_refused, Tag, Silent);
        MUST_NOT "let it change an existing association" => shown(a_bad_init_changes_no_association, Silent, Deaf);
        SHOULD_NOT "reduce the buffer during the life of an association" => shown(the_window_opens_again, Value);
        MUST_NOT "ask for 0 outbound streams" => shown(an_init_asks_for_streams, Value);
        MUST "discard an INIT with 0 outbound streams, and answer with ABORT" => shown(an_init_without_outbound_streams_is_refused, Kind, Tag);
        MUST_NOT "allow 0 inbound streams" => shown_by(an_init_asks_for_streams, Value);
        MUST "discard an INIT with 0 inbound streams, and answer with ABORT" => shown(an_init_without_inbound_streams_is_refused, Kind, Tag);
        SHOULD "choose a random Initial TSN" => shown(tags_and_initial_tsns_differ, Value);
    }
    in "3.3.2.1" {
        MUST "place parameters after the fixed fields" => shown(the_parameters_come_last, Value, Length);
    }
    in "3.3.2.1.2" {
        MUST_NOT "send an IPv4-mapped IPv6 address" => shown(a_mapped_address_is_listed_as_ipv4, Value);
        SHOULD "send an IPv4 Address parameter instead" => shown_by(a_mapped_address_is_listed_as_ipv4, Value);
        MUST "take the source of an INIT without addresses as the only destination" => shown(an_init_without_addresses_has_one, Elsewhere, Deaf);
    }
    in "3.3.2.1.4" {
        MUST_NOT "send a Host Name Address" => shown_by(an_init_has_its_addresses_and_nothing_else, Value);
        MUST "answer an INIT with one with ABORT" => shown_by(an_init_with_a_host_name_is_aborted, Kind, Silent);
        MUST "count the null terminator of a host name" => not_applicable("no host names are sent");
    }
    in "3.3.2.1.5" {
        MUST_NOT "send the Host Name Address in Supported Address Types" => shown_by(an_init_has_its_addresses_and_nothing_else, Value);
        MUST "ignore the Host Name Address in Supported Address Types" => shown(a_supported_host_name_is_ignored, Silent, Kind);
    }
}

fn an_init_has_its_addresses_and_nothing_else(stage: &Stage) {
    let addresses = ["10.0.0.1", "10.0.1.1", "fd00::1"].map(|a| a.parse().expect("an address"));
    let mut peer = connects(stage, &addresses, plain());
    let init = only_chunk(&peer.hears());
    assert_eq!((init.kind, padded_parameter_kinds(&init)), (Init::KIND, vec![5, 5, 6]));
}

pub(crate) fn an_init_with_a_host_name_is_aborted(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &parameter(11, b"peer.example\0"));
    let packet = peer.hears();
    assert_eq!(kinds(&packet), [Abort::KIND]);
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
}

fn a_plain_init_is_answered(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    assert_eq!(only_chunk(&peer.hears()).kind, InitAck::KIND);
    // The least permitted value of each field.
    sends_init_like(&mut peer, |init| Init { a_rwnd: 1500, outbound_streams: 1, inbound_streams: 1, ..init });
    assert_eq!(only_chunk(&peer.hears()).kind, InitAck::KIND);
}

fn an_init_has_no_flags(stage: &Stage) {
    assert_eq!(only_chunk(&stage.connecting().hears()).flags, 0);
}

fn flags_of_an_init_do_not_matter(stage: &Stage) {
    let mut peer = stage.listening();
    peer.sends()
        .tag(0)
        .chunk(|p, out| {
            p.init().write(out);
            out[1] = 0xff;
        })
        .go();
    assert_eq!(only_chunk(&peer.hears()).kind, InitAck::KIND);
}

fn every_packet_has_the_initiate_tag_of_the_init(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let packet = peer.hears();
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), &b"data"[..]);
    assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
    sends_chunk(&mut peer, 4, 0, &parameter(1, b"beat"));
    assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
}

fn an_init_without_a_tag_is_not_answered(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init_like(&mut peer, |init| Init { initiate_tag: sctp_wire::VerificationTag(0), ..init });
    peer.expects_nothing();
}

fn an_init_advertises_at_least_1500_bytes(stage: &Stage) {
    let config = AssociationConfig { receive_buffer_bytes: 100, ..AssociationConfig::default() };
    let init = only_chunk(&stage.connecting_with(config).hears());
    assert!(word(&init.value, 4) >= 1500);
}

/// The listening endpoint refuses this INIT and keeps no state.
fn refuses(stage: &Stage, change: fn(Init<'_>) -> Init<'_>) {
    let mut peer = stage.listening();
    sends_init_like(&mut peer, change);
    let packet = peer.hears();
    let abort = only_chunk(&packet);
    assert_eq!((abort.kind, abort.flags & 1), (Abort::KIND, 0));
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn an_init_with_a_small_window_is_refused(stage: &Stage) {
    refuses(stage, |init| Init { a_rwnd: 1499, ..init });
}

fn an_init_without_outbound_streams_is_refused(stage: &Stage) {
    refuses(stage, |init| Init { outbound_streams: 0, ..init });
}

fn an_init_without_inbound_streams_is_refused(stage: &Stage) {
    refuses(stage, |init| Init { inbound_streams: 0, ..init });
}

fn a_bad_init_changes_no_association(stage: &Stage) {
    let changes: [fn(Init<'_>) -> Init<'_>; 3] = [
        |init| Init { a_rwnd: 1499, ..init },
        |init| Init { outbound_streams: 0, ..init },
        |init| Init { inbound_streams: 0, ..init },
    ];
    let mut peer = stage.established();
    for (number, change) in (0..).zip(changes) {
        sends_init_like(&mut peer, change);
        peer.expects("ABORT");
        peer.sends().data(number).go();
        peer.expects(&format!("SACK {number}"));
    }
    assert_eq!(peer.app.messages.len(), 3);
}

pub(crate) fn the_window_opens_again(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let window = word(&only_chunk(&peer.hears()).value, 4);
    let mut peer = stage.established();
    for number in 0..3 {
        peer.sends().data(number).go();
        // The message that was just delivered is still being read.
        let now = word(&only_chunk(&peer.hears()).value, 4);
        assert!(window - now <= 1500, "{window} bytes at first, {now} bytes when all is read");
    }
}

fn an_init_asks_for_streams(stage: &Stage) {
    let config = AssociationConfig { streams_out: 0, streams_in_max: 0, ..AssociationConfig::default() };
    let init = only_chunk(&stage.connecting_with(config).hears());
    assert!(half(&init.value, 8) >= 1 && half(&init.value, 10) >= 1);
}

pub(crate) fn tags_and_initial_tsns_differ(stage: &Stage) {
    let mut seen = Vec::new();
    for seed in 1..5 {
        let mut peer = stage.play(Peer::connecting(seed, AssociationConfig::default()));
        let init = only_chunk(&peer.hears());
        seen.extend([0, 2, 12, 14].map(|at| half(&init.value, at)));
    }
    // These seeds draw no half of a number that is all zeros or all ones.
    assert!(seen.iter().all(|half| !matches!(half, 0 | 0xffff)), "{seen:x?}");
    let drawn = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), drawn);
}

fn the_parameters_come_last(stage: &Stage) {
    let addresses = ["10.0.0.1", "10.0.1.1"].map(|a| a.parse().expect("an address"));
    let mut peer = connects(stage, &addresses, plain());
    let init = only_chunk(&peer.hears());
    assert_eq!((half(&init.value, 8), half(&init.value, 10)), (10, 65535), "streams");
    let found = padded_parameters(&init);
    // And that it has no IPv6.
    assert_eq!(found, [(5, vec![10, 0, 0, 1]), (5, vec![10, 0, 1, 1]), (12, vec![0, 5])]);
}

fn a_mapped_address_is_listed_as_ipv4(stage: &Stage) {
    let addresses: [IpAddr; 2] = [
        IpAddr::V6(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped()),
        IpAddr::V6(Ipv4Addr::new(10, 0, 1, 1).to_ipv6_mapped()),
    ];
    let mut peer = connects(stage, &addresses, plain());
    let init = only_chunk(&peer.hears());
    let found = padded_parameters(&init);
    // And that it has no IPv6.
    assert_eq!(found, [(5, vec![10, 0, 0, 1]), (5, vec![10, 0, 1, 1]), (12, vec![0, 5])]);
}

pub(crate) fn an_init_without_addresses_has_one(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let (to, _) = peer.hears_on();
    assert_eq!(to, peer.address);
    let mut peer = stage.established();
    assert_eq!(peer.endpoint.peer_addresses(peer.id).expect("it is up").0, [peer.address]);
    peer.sends().data(0).go();
    assert_eq!(peer.hears_on().0, peer.address);
}

fn a_supported_host_name_is_ignored(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &parameter(12, &[0, 11, 0, 5]));
    let init_ack = only_chunk(&peer.hears());
    assert_eq!((init_ack.kind, parameter_kinds(&init_ack)), (InitAck::KIND, vec![7]));
}
