//! INIT ACK (RFC 9260 §3.3.3).

use std::time::Duration;

use lab::packets::header;
use lab::script::Peer;
use sctp::{AssociationConfig, CloseReason, Event, SendInfo};
use sctp_wire::VerificationTag;
use sctp_wire::chunk::{Abort, CookieEcho, Init, InitAck};

use crate::rules::rules;
use crate::section_3_3_init::{tags_and_initial_tsns_differ, the_window_opens_again};
use crate::stage::Stage;
use crate::words::{
    INIT_FIXED_BYTES, Raw, chunks, half, only_chunk, parameter, parameter_kinds, parameters, sends_chunk,
    sends_init, sends_init_ack, sends_init_ack_like, sends_init_like, word,
};

rules! {
    in "3.3.3" {
        MUST_NOT "put a Host Name Address into an INIT ACK" => shown(an_init_ack_has_its_addresses_and_a_cookie, Value);
        MUST "answer an INIT ACK with a Host Name Address with ABORT" => shown(an_init_ack_with_a_host_name_is_aborted, Kind, Tag);
        SHOULD "send an INIT ACK with flags 0" => shown(an_init_ack_has_no_flags, Flags);
        SHOULD "ignore the flags of an INIT ACK" => shown(flags_of_an_init_ack_do_not_matter, Silent);
        MUST "put its Initiate Tag into the verification tag of every packet" => shown(every_packet_has_the_initiate_tag_of_the_init_ack, Tag);
        MUST_NOT "take the Initiate Tag 0" => shown(an_init_ack_has_a_tag, Value);
        MUST "destroy the TCB when the Initiate Tag of an INIT ACK is 0" => shown(an_init_ack_without_a_tag_ends_the_attempt, Deaf);
        SHOULD "answer it with an ABORT with the T bit" => shown_by(an_init_ack_without_a_tag_ends_the_attempt, Flags, Tag);
        SHOULD "discard it silently in other states" => shown(a_bad_init_ack_is_discarded_later, Talkative);
        MUST_NOT "advertise less than 1500 bytes in an INIT ACK" => shown(an_init_ack_advertises_at_least_1500_bytes, Value);
        MUST "discard an INIT ACK with an a_rwnd below 1500" => shown(an_init_ack_with_a_small_window_is_refused, Kind);
        SHOULD "answer it with ABORT and its Initiate Tag" => shown_by(an_init_ack_with_a_small_window_is_refused, Tag, Silent);
        MUST_NOT "let it change an association" => shown(an_init_ack_with_a_small_window_changes_nothing, Silent, Talkative);
        SHOULD_NOT "reduce the buffer during the life of an association" => shown_by(the_window_opens_again, Value);
        MUST_NOT "ask for 0 outbound streams, or more than the INIT allows" => shown(an_init_ack_asks_for_streams_that_there_are, Value);
        MUST "destroy the TCB when an INIT ACK has no outbound streams, and send ABORT" => shown(an_init_ack_without_outbound_streams_ends_the_attempt, Kind, Tag);
        SHOULD "discard an INIT ACK without outbound streams silently in other states" => shown_by(a_bad_init_ack_is_discarded_later, Talkative);
        MUST_NOT "allow 0 inbound streams" => shown_by(an_init_ack_asks_for_streams_that_there_are, Value);
        MUST "destroy the TCB when an INIT ACK allows no inbound streams, and send ABORT" => shown(an_init_ack_without_inbound_streams_ends_the_attempt, Kind, Tag);
        SHOULD "discard an INIT ACK without inbound streams silently in other states" => shown_by(a_bad_init_ack_is_discarded_later, Talkative);
        SHOULD "choose a random Initial TSN" => shown_by(tags_and_initial_tsns_differ, Value);
        MUST "be prepared for an INIT ACK of more than 1500 bytes" => shown(a_large_init_ack_is_taken, Silent, Value);
        SHOULD "answer an INIT ACK with all mandatory parameters with COOKIE ECHO" => shown(a_plain_init_ack_is_answered, Kind, Silent);
        MUST "take the source of an INIT ACK without addresses as the only destination" => shown(an_init_ack_without_addresses_has_one, Elsewhere);
    }
    in "3.3.3.1" {
        MUST_NOT "include a Host Name Address" => shown_by(an_init_ack_has_its_addresses_and_a_cookie, Value);
        MUST "place parameters after the fixed fields" => shown_by(an_init_ack_has_its_addresses_and_a_cookie, Value, Length);
    }
    in "3.3.2.1.4" {
        MUST "answer an INIT ACK with a Host Name Address with ABORT" => shown_by(an_init_ack_with_a_host_name_is_aborted, Kind, Tag);
    }
    in "3.3.3.1.1" {
        MUST "a cookie has all that is needed to create the association, and a MAC" => shown(a_cookie_is_all_that_it_takes, Value);
    }
    in "3.3.3.1.2" {
        SHOULD "report the parameters that say so, as they came" => shown(unrecognized_parameters_come_back_whole, Value);
    }
}

fn an_init_ack_has_its_addresses_and_a_cookie(stage: &Stage) {
    let mut peer = stage.listening();
    let addresses = ["10.0.0.1", "fd00::1"].map(|a| a.parse().expect("an address"));
    peer.endpoint.set_local_addresses(addresses.to_vec());
    sends_init(&mut peer, &[]);
    let init_ack = only_chunk(&peer.hears());
    assert_eq!((half(&init_ack.value, 8), half(&init_ack.value, 10)), (10, 65535), "streams");
    assert_eq!((init_ack.kind, parameter_kinds(&init_ack)), (InitAck::KIND, vec![5, 6, 7]));
}

/// The endpoint gives up on this INIT ACK, and reports why.
fn ends_the_attempt(stage: &Stage, more: &[u8], change: fn(Init<'_>) -> Init<'_>) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack_like(&mut peer, more, change);
    let packet = peer.hears();
    let abort = only_chunk(&packet);
    assert_eq!((abort.kind, abort.flags & 1), (Abort::KIND, 0));
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
    assert!(is_over(&peer));
}

fn is_over(peer: &Peer) -> bool {
    let closed = |event: &Event| matches!(event, Event::Closed(CloseReason::ProtocolViolation { .. }));
    peer.endpoint.association_count() == 0 && peer.app.saw(closed)
}

fn an_init_ack_with_a_host_name_is_aborted(stage: &Stage) {
    ends_the_attempt(stage, &parameter(11, b"peer.example\0"), |init| init);
}

fn an_init_ack_without_outbound_streams_ends_the_attempt(stage: &Stage) {
    ends_the_attempt(stage, &[], |init| Init { outbound_streams: 0, ..init });
}

fn an_init_ack_without_inbound_streams_ends_the_attempt(stage: &Stage) {
    ends_the_attempt(stage, &[], |init| Init { inbound_streams: 0, ..init });
}

/// Returns the INIT ACK that the endpoint sends with these settings.
fn init_ack_with(stage: &Stage, config: AssociationConfig) -> Raw {
    let mut peer = stage.listening_with(config);
    sends_init_like(&mut peer, |init| Init { inbound_streams: 7, ..init });
    only_chunk(&peer.hears())
}

fn an_init_ack_has_no_flags(stage: &Stage) {
    assert_eq!(init_ack_with(stage, AssociationConfig::default()).flags, 0);
}

fn flags_of_an_init_ack_do_not_matter(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    peer.sends().init_ack(b"cookie").chunk(|_, out| out[1] = 0xff).go();
    peer.expects("COOKIE ECHO");
}

fn every_packet_has_the_initiate_tag_of_the_init_ack(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
    sends_chunk(&mut peer, 11, 0, &[]);
    peer.app_sends(SendInfo::default(), &b"data"[..]);
    assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
}

fn an_init_ack_has_a_tag(stage: &Stage) {
    let init_ack = init_ack_with(stage, AssociationConfig::default());
    // This seed gives neither half of the tag as zero.
    assert!(half(&init_ack.value, 0) != 0 && half(&init_ack.value, 2) != 0);
}

fn an_init_ack_without_a_tag_ends_the_attempt(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack_like(&mut peer, &[], |init| Init { initiate_tag: VerificationTag(0), ..init });
    let packet = peer.hears();
    let abort = only_chunk(&packet);
    assert_eq!((abort.kind, abort.flags & 1), (Abort::KIND, 1));
    assert_eq!(header(&packet).verification_tag.0, peer.endpoint_tag, "the tag is reflected");
    assert!(is_over(&peer));
}

fn a_bad_init_ack_is_discarded_later(stage: &Stage) {
    let changes: [fn(Init<'_>) -> Init<'_>; 4] = [
        |init| Init { initiate_tag: VerificationTag(0), ..init },
        |init| Init { outbound_streams: 0, ..init },
        |init| Init { inbound_streams: 0, ..init },
        |init| Init { a_rwnd: 0, ..init },
    ];
    let mut echoed = stage.connecting();
    echoed.takes_init();
    sends_init_ack(&mut echoed, &[]);
    echoed.expects("COOKIE ECHO");
    for mut peer in [echoed, stage.connected()] {
        for change in changes {
            sends_init_ack_like(&mut peer, &[], change);
            peer.expects_nothing();
        }
        assert_eq!(peer.endpoint.association_count(), 1);
    }
}

fn an_init_ack_advertises_at_least_1500_bytes(stage: &Stage) {
    let config = AssociationConfig { receive_buffer_bytes: 100, ..AssociationConfig::default() };
    assert!(word(&init_ack_with(stage, config).value, 4) >= 1500);
}

fn an_init_ack_with_a_small_window_is_refused(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack_like(&mut peer, &[], |init| Init { a_rwnd: 1499, ..init });
    let packet = peer.hears();
    let abort = only_chunk(&packet);
    assert_eq!((abort.kind, abort.flags & 1), (Abort::KIND, 0));
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
    peer.expects_nothing();
}

fn an_init_ack_with_a_small_window_changes_nothing(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack_like(&mut peer, &[], |init| Init { a_rwnd: 1499, ..init });
    peer.expects("ABORT");
    peer.waits(Duration::from_millis(1100));
    peer.expects("INIT");
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
    peer.expects_nothing();
}

fn an_init_ack_asks_for_streams_that_there_are(stage: &Stage) {
    let none = AssociationConfig { streams_out: 0, streams_in_max: 0, ..AssociationConfig::default() };
    let init_ack = init_ack_with(stage, none);
    assert_eq!((half(&init_ack.value, 8), half(&init_ack.value, 10)), (1, 1));
    let many = AssociationConfig { streams_out: 1000, ..AssociationConfig::default() };
    let init_ack = init_ack_with(stage, many);
    assert_eq!(half(&init_ack.value, 8), 7, "no more than the INIT allows");
}

fn a_large_init_ack_is_taken(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    let cookie: Vec<u8> = (0..1400).map(|i| i as u8).collect();
    let more: Vec<u8> = (0..100).flat_map(|i| parameter(5, &[10, 1, 1, i])).collect();
    peer.sends().init_ack(&cookie).chunk(|_, out| lengthen(out, &more)).go();
    let echo = chunks(&peer.hears()).remove(0);
    assert!(echo.kind == CookieEcho::KIND && echo.value == cookie, "the whole cookie");
}

/// Adds parameters to the only chunk.
fn lengthen(chunk: &mut Vec<u8>, more: &[u8]) {
    chunk.extend_from_slice(more);
    let length = (chunk.len() as u16).to_be_bytes();
    chunk[2..4].copy_from_slice(&length);
}

fn a_plain_init_ack_is_answered(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    // The least permitted value of each field.
    sends_init_ack_like(&mut peer, &[], |init| Init {
        a_rwnd: 1500,
        outbound_streams: 1,
        inbound_streams: 1,
        ..init
    });
    assert_eq!(only_chunk(&peer.hears()).kind, CookieEcho::KIND);
}

fn an_init_ack_without_addresses_has_one(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    let (to, _) = peer.hears_on();
    assert_eq!(to, peer.address);
    assert_eq!(peer.endpoint.peer_addresses(peer.id).expect("it is there").0, [peer.address]);
}

fn a_cookie_is_all_that_it_takes(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    assert_eq!(peer.endpoint.association_count(), 0, "nothing was kept");
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    peer.expects("COOKIE ACK, SACK 0");
    // With one bit changed the MAC does not fit.
    let mut forged = stage.listening();
    sends_init(&mut forged, &[]);
    let mut cookie = forged.takes_init_ack();
    cookie[10] ^= 1;
    forged.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    forged.expects_nothing();
}

fn unrecognized_parameters_come_back_whole(stage: &Stage) {
    let mut peer = stage.listening();
    let unknown = [parameter(0xc001, b"some"), parameter(0x8002, b"skip"), parameter(0xc003, b"more")];
    sends_init(&mut peer, &unknown.concat());
    let init_ack = only_chunk(&peer.hears());
    let found = parameters(&init_ack.value[INIT_FIXED_BYTES..]);
    let [a, _, b] = unknown;
    assert_eq!(found[1..], [(8, a), (8, b)]);
}
