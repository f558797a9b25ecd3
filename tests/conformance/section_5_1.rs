//! Setting up an association: the handshake (RFC 9260 §5, §5.1, §5.1.4, §5.1.6).

use std::net::SocketAddr;
use std::time::Duration;

use lab::packets::{data_of, header, kinds};
use lab::script::Peer;
use sctp::{AssociationConfig, SendInfo};
use sctp_wire::VerificationTag;
use sctp_wire::chunk::{Abort, CookieAck, CookieEcho, Init, InitAck};

use crate::rules::rules;
use crate::section_3_1::{an_init_ack_travels_alone, an_init_travels_alone};
use crate::section_3_3_control::the_cookie_ack_comes_first;
use crate::section_3_3_init::tags_and_initial_tsns_differ;
use crate::section_4::{cookie_echo_is_repeated, init_is_repeated};
use crate::stage::Stage;
use crate::words::{
    INIT_FIXED_BYTES, causes, connects_to, only_chunk, parameter, parameter_kinds, sends_chunk, sends_init,
    sends_init_ack, sends_init_ack_like, sends_init_like, word,
};

rules! {
    in "5" {
        MUST "complete the handshake before the first data is sent" => shown(data_waits_for_the_handshake, Kind, Talkative);
    }
    in "5.1" {
        MUST "A puts its verification tag into the Initiate Tag of the INIT" => shown(the_tags_of_the_handshake_are_used, Value);
        SHOULD "Tag_A is a random number from 1 up" => shown_by(tags_and_initial_tsns_differ, Value);
        MUST "send INIT ACK to the source address of the INIT" => shown(an_init_ack_goes_where_the_init_came_from, Elsewhere);
        MUST "Z uses Tag_A as verification tag and gives its own" => shown(an_init_ack_has_both_tags, Tag, Value);
        MUST "send a State Cookie with the INIT ACK" => shown(an_init_ack_has_a_cookie, Value, Length);
        MUST_NOT "keep any state after an INIT ACK" => shown(an_init_leaves_nothing_behind, Silent, Value);
        MUST "COOKIE ECHO is the first chunk of its packet, and nothing else follows before COOKIE ACK" => shown(nothing_follows_the_cookie_until_it_is_acknowledged, Talkative, Kind);
        MUST "COOKIE ACK is the first chunk of its packet" => shown_by(the_cookie_ack_comes_first, Order);
        MUST_NOT "bundle INIT or INIT ACK with any other chunk" => shown_by(an_init_travels_alone, Bundled);
        MUST "they are the only chunks in their packets" => shown_by(an_init_ack_travels_alone, Bundled);
        MUST "send INIT ACK to the address from which the INIT came" => shown_by(an_init_ack_goes_where_the_init_came_from, Elsewhere);
        SHOULD "T1 follows the rules of §6.3" => shown_by(init_is_repeated, Talkative, Silent);
        SHOULD "have a T1 for each address of the peer" => deviates(one_init_after_the_other_tries_all_addresses, Elsewhere, Silent; "one T1, and each INIT goes to the next address");
        SHOULD "retransmit INIT to all addresses of the peer" => deviates_by(one_init_after_the_other_tries_all_addresses, Elsewhere, Silent; "one after the other");
        SHOULD "retransmit COOKIE ECHO to all addresses of the peer" => shown(cookie_echoes_try_all_addresses, Kind, Silent);
        SHOULD "answer INIT or INIT ACK with ABORT if parameters are missing or invalid" => shown(an_association_that_is_refused_is_aborted, Kind, Silent);
        SHOULD "name the cause of such an ABORT" => shown_by(an_association_that_is_refused_is_aborted, Value, Length);
        MUST "such an ABORT has the Initiate Tag as its verification tag" => shown_by(an_association_that_is_refused_is_aborted, Tag);
        MUST "acknowledge the first DATA at once" => shown(the_first_data_is_acknowledged_at_once, Late, Silent);
        SHOULD "acknowledge later DATA as §6.2 says" => shown(later_data_is_acknowledged_by_and_by, Talkative, Silent);
        MUST "set the Cumulative TSN Ack Point to the Initial TSN minus one" => shown(the_ack_point_is_before_the_initial_tsn, Talkative, Kind);
    }
    in "5.1.4" {
        MUST "send COOKIE ECHO with the cookie at once" => shown(the_cookie_is_echoed_at_once, Late, Value);
        MUST "start T1-cookie after the COOKIE ECHO" => shown_by(cookie_echo_is_repeated, Silent);
        MUST "retransmit the COOKIE ECHO when it expires, and restart it" => shown_by(cookie_echo_is_repeated, Silent, Kind);
    }
    in "5.1.6" {
        MUST "retransmit INIT with the timer values of §6.3" => shown_by(init_is_repeated, Talkative, Silent);
    }
}

fn data_waits_for_the_handshake(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.app_sends(SendInfo::default(), &b"patience"[..]);
    let packet = peer.hears();
    assert_eq!(kinds(&packet), [Init::KIND]);
    peer.expects_nothing();
    // From here on the data may leave with the COOKIE ECHO, and must have left when the COOKIE ACK is there.
    let mut peer = stage.connecting();
    peer.app_sends(SendInfo::default(), &b"patience"[..]);
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    let mut sent = vec![peer.hears()];
    sends_chunk(&mut peer, CookieAck::KIND, 0, &[]);
    sent.extend(peer.hears_maybe());
    let data: Vec<_> = sent.iter().flat_map(|packet| data_of(packet)).collect();
    assert_eq!(data.len(), 1, "{data:?}");
}

fn the_tags_of_the_handshake_are_used(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    peer.endpoint_tag ^= 1;
    sends_init_ack(&mut peer, &[]);
    peer.expects_nothing();
    peer.endpoint_tag ^= 1;
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
}

pub(crate) fn an_init_ack_goes_where_the_init_came_from(stage: &Stage) {
    let mut peer = stage.listening();
    peer.address = SocketAddr::from(([10, 0, 7, 7], 7777));
    // Another address in the INIT does not change that.
    sends_init(&mut peer, &crate::words::parameter(5, &[10, 0, 8, 8]));
    let (to, packet) = peer.hears_on();
    assert_eq!((to, kinds(&packet)), (peer.address, vec![InitAck::KIND]));
}

fn an_init_ack_has_both_tags(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let packet = peer.hears();
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
    let init_ack = only_chunk(&packet);
    peer.endpoint_tag = word(&init_ack.value, 0);
    let cookie = &init_ack.value[INIT_FIXED_BYTES + 4..];
    sends_chunk(&mut peer, CookieEcho::KIND, 0, cookie);
    peer.expects("COOKIE ACK");
}

fn an_init_ack_has_a_cookie(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let init_ack = only_chunk(&peer.hears());
    assert_eq!((init_ack.kind, parameter_kinds(&init_ack)), (InitAck::KIND, vec![7]));
}

fn an_init_leaves_nothing_behind(stage: &Stage) {
    let mut peer = stage.listening();
    let mut cookies = Vec::new();
    for tag in 1..=50 {
        sends_init_like(&mut peer, |init| Init { initiate_tag: VerificationTag(tag), ..init });
        cookies.push((tag, peer.takes_init_ack(), peer.endpoint_tag));
    }
    assert_eq!(peer.endpoint.association_count(), 0);
    assert_eq!(peer.endpoint.poll_timeout(), None, "no timer runs");
    let (tag, cookie, endpoint_tag) = cookies.swap_remove(17);
    (peer.tag, peer.endpoint_tag) = (tag, endpoint_tag);
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    let packet = peer.hears();
    assert_eq!((kinds(&packet), header(&packet).verification_tag.0), (vec![CookieAck::KIND], tag));
}

fn nothing_follows_the_cookie_until_it_is_acknowledged(stage: &Stage) {
    let mut peer = stage.connecting();
    for _ in 0..20 {
        peer.app_sends(SendInfo::default(), vec![0; 1000]);
    }
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    assert_eq!(kinds(&peer.hears())[0], CookieEcho::KIND);
    peer.waits(Duration::from_millis(900));
    peer.expects_nothing();
    sends_chunk(&mut peer, CookieAck::KIND, 0, &[]);
    assert!(!data_of(&peer.hears()).is_empty());
}

/// The endpoint connects to a peer that has these two addresses.
fn two_addresses(stage: &Stage) -> (Peer, [SocketAddr; 2]) {
    let addresses = [SocketAddr::from(([10, 0, 0, 9], 9899)), SocketAddr::from(([10, 0, 1, 9], 9899))];
    (connects_to(stage, &addresses, AssociationConfig::default()), addresses)
}

fn one_init_after_the_other_tries_all_addresses(stage: &Stage) {
    let (mut peer, addresses) = two_addresses(stage);
    for (seconds, address) in [(1, addresses[0]), (2, addresses[1]), (4, addresses[0])] {
        let (to, packet) = peer.hears_on();
        assert_eq!((to, kinds(&packet)), (address, vec![Init::KIND]));
        peer.expects_nothing();
        peer.waits(Duration::from_secs(seconds));
    }
}

fn cookie_echoes_try_all_addresses(stage: &Stage) {
    let (mut peer, _) = two_addresses(stage);
    peer.takes_init();
    // Both belong to the peer, as the INIT ACK states.
    sends_init_ack(&mut peer, &parameter(5, &[10, 0, 1, 9]));
    let (first, _) = peer.hears_on();
    peer.waits(Duration::from_secs(1));
    let (second, packet) = peer.hears_on();
    assert_eq!(kinds(&packet)[0], CookieEcho::KIND);
    assert_ne!(first, second);
}

fn an_association_that_is_refused_is_aborted(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init_like(&mut peer, |init| Init { outbound_streams: 0, ..init });
    let packet = peer.hears();
    let abort = only_chunk(&packet);
    assert_eq!((abort.kind, causes(&abort)), (Abort::KIND, vec![(7, vec![])]), "Invalid Mandatory Parameter");
    assert_eq!(header(&packet).verification_tag.0, peer.tag);

    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack_like(&mut peer, &[], |init| Init {
        parameters: sctp_wire::parameter::Parameters::new(&[]),
        ..init
    });
    let packet = peer.hears();
    let abort = only_chunk(&packet);
    let missing = vec![(2, vec![0, 0, 0, 1, 0, 7])];
    assert_eq!(
        (abort.kind, causes(&abort)),
        (Abort::KIND, missing),
        "Missing Mandatory Parameter: the cookie"
    );
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
}

fn the_first_data_is_acknowledged_at_once(stage: &Stage) {
    let mut peer = stage.established();
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

pub(crate) fn later_data_is_acknowledged_by_and_by(stage: &Stage) {
    let mut peer = stage.established();
    // The first packets are all acknowledged at once.
    for number in 0..10 {
        peer.sends().data(number).go();
        peer.waits(Duration::from_millis(200));
        peer.expects(&format!("SACK {number}"));
    }
    peer.sends().data(10).go();
    peer.expects_nothing();
    peer.sends().data(11).go();
    peer.expects("SACK 11");
    peer.sends().data(12).go();
    peer.expects_nothing();
    peer.waits(Duration::from_millis(200));
    peer.expects("SACK 12");
}

fn the_ack_point_is_before_the_initial_tsn(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), &b"first"[..]);
    peer.expects("DATA 0");
    // This acknowledges nothing, and is not out of range.
    peer.sends().sack(-1, &[]).go();
    peer.expects_nothing();
    peer.sends().sack(0, &[]).go();
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
}

fn the_cookie_is_echoed_at_once(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    let echo = only_chunk(&peer.hears());
    assert_eq!((echo.kind, echo.value), (CookieEcho::KIND, b"cookie".to_vec()));
}
