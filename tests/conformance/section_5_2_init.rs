//! INIT and INIT ACK that meet an existing association (RFC 9260 §5.2.1, §5.2.2, §5.2.3).

use std::net::SocketAddr;
use std::time::Duration;

use lab::packets::{header, kinds};
use lab::script::Peer;
use sctp::Event;
use sctp_wire::chunk::{Abort, CookieAck, CookieEcho, InitAck};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{
    INIT_FIXED_BYTES, Raw, causes, half, only_chunk, parameter, parameter_kinds, sends_chunk, sends_init,
    sends_init_ack, word,
};

rules! {
    in "5.2.1" {
        MUST "answer INIT in COOKIE-WAIT with INIT ACK and the parameters of one's own INIT" => shown(crossing_inits_are_answered_with_the_same_parameters, Value, Silent);
        MUST "follow the three rules about the address of that INIT ACK" => shown(a_crossing_init_is_answered_at_its_source, Elsewhere);
        MUST "1: an address that the upper layer gave" => shown(an_init_from_an_unknown_address_is_not_answered_there, Talkative);
        MUST "2: an address that the INIT reports" => shown_by(a_crossing_init_is_answered_at_its_source, Elsewhere);
        SHOULD "3: the source address of the INIT" => shown_by(a_crossing_init_is_answered_at_its_source, Elsewhere);
        MUST "answer INIT in COOKIE-ECHOED with INIT ACK and the parameters of one's own INIT" => shown(an_init_after_the_cookie_is_answered_with_the_same_parameters, Value, Silent);
        MUST "discard an INIT in COOKIE-ECHOED that adds an address" => shown(an_init_after_the_cookie_may_not_add_addresses, Talkative);
        SHOULD_NOT "let it change the association" => shown(an_init_with_another_address_leaves_the_handshake_alone, Silent, Deaf);
        SHOULD "answer it with ABORT" => shown(an_init_after_the_cookie_that_adds_addresses_is_aborted, Silent, Kind);
        SHOULD "list the added addresses in the ABORT" => shown(an_abort_after_the_cookie_lists_the_added_addresses, Value, Length);
        MUST "generate a State Cookie for that INIT ACK" => shown(a_crossing_init_gets_a_cookie, Value);
        MUST_NOT "change state, stop T1-init or destroy the TCB" => shown(a_crossing_init_stops_nothing, Silent, Talkative);
        MUST "fill in the Tie-Tags in COOKIE-ECHOED" => not_applicable("no packet depends on them: the cookie bears the association's own tag");
    }
    in "5.2.2" {
        MUST "answer an unexpected INIT with INIT ACK and a State Cookie" => shown(an_unexpected_init_gets_a_cookie, Silent, Value);
        MUST "check whether it adds addresses to the association" => shown(a_restart_may_not_add_addresses, Talkative);
        MUST "answer one that adds addresses with ABORT and its Initiate Tag" => shown(a_restart_that_adds_addresses_is_aborted, Kind, Tag);
        SHOULD "list the added addresses in the ABORT" => shown(the_abort_lists_the_added_addresses, Value, Length);
        MUST "copy the Tie-Tags into the cookie" => shown(the_cookie_of_an_unexpected_init_restarts_the_association, Silent, Value);
        MUST "the INIT ACK has the Initiate Tag of the INIT as its verification tag" => shown(the_answer_to_an_unexpected_init_has_its_tag, Tag);
        MUST "the INIT ACK has a new random Initiate Tag" => shown(an_unexpected_init_gets_a_new_tag, Value);
        SHOULD "the other parameters are those of the association" => shown(an_unexpected_init_gets_the_parameters_of_the_association, Value);
        MUST_NOT "change the association" => shown(an_unexpected_init_changes_nothing, Silent, Deaf);
        MUST "Tie-Tags are 0 when there is no association" => shown(a_cookie_from_before_the_association_restarts_nothing, Talkative);
    }
    in "5.2.3" {
        SHOULD "discard an INIT ACK in any state but COOKIE-WAIT" => shown(an_unexpected_init_ack_is_discarded, Talkative);
    }
}

/// Returns the fixed fields.
fn fixed(chunk: &Raw) -> Vec<u8> {
    chunk.value[..INIT_FIXED_BYTES].to_vec()
}

/// Returns an endpoint in COOKIE-WAIT, and its INIT.
fn cookie_wait(stage: &Stage) -> (Peer, Raw) {
    let mut peer = stage.connecting();
    let init = only_chunk(&peer.hears());
    peer.endpoint_tag = word(&init.value, 0);
    (peer, init)
}

/// Returns an endpoint in COOKIE-ECHOED, and its INIT.
fn cookie_echoed(stage: &Stage) -> (Peer, Raw) {
    let (mut peer, init) = cookie_wait(stage);
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
    (peer, init)
}

/// Returns another address of the peer, as a parameter.
fn another_address() -> Vec<u8> {
    parameter(5, &[10, 0, 7, 7])
}

fn crossing_inits_are_answered_with_the_same_parameters(stage: &Stage) {
    let (mut peer, init) = cookie_wait(stage);
    for _ in 0..2 {
        sends_init(&mut peer, &[]);
        let init_ack = only_chunk(&peer.hears());
        assert_eq!((init_ack.kind, fixed(&init_ack)), (InitAck::KIND, fixed(&init)));
    }
}

fn a_crossing_init_is_answered_at_its_source(stage: &Stage) {
    let (mut peer, _) = cookie_wait(stage);
    sends_init(&mut peer, &another_address());
    let (to, packet) = peer.hears_on();
    assert_eq!((to, kinds(&packet)), (peer.address, vec![InitAck::KIND]));
    peer.expects_nothing();
}

fn an_init_from_an_unknown_address_is_not_answered_there(stage: &Stage) {
    let (mut peer, _) = cookie_wait(stage);
    peer.address = SocketAddr::from(([10, 0, 7, 7], 9899));
    sends_init(&mut peer, &parameter(5, &[10, 0, 0, 9]));
    while let Some((to, packet)) = peer.hears_on_maybe() {
        assert!(to != peer.address || kinds(&packet) != [InitAck::KIND]);
    }
}

fn gets_no_init_ack(peer: &mut Peer) {
    while let Some(packet) = peer.hears_maybe() {
        assert_ne!(kinds(&packet), [InitAck::KIND]);
    }
}

fn an_init_after_the_cookie_is_answered_with_the_same_parameters(stage: &Stage) {
    let (mut peer, init) = cookie_echoed(stage);
    sends_init(&mut peer, &[]);
    let init_ack = only_chunk(&peer.hears());
    assert_eq!((init_ack.kind, fixed(&init_ack)), (InitAck::KIND, fixed(&init)));
}

fn an_init_after_the_cookie_may_not_add_addresses(stage: &Stage) {
    let (mut peer, _) = cookie_echoed(stage);
    sends_init(&mut peer, &another_address());
    gets_no_init_ack(&mut peer);
}

fn an_init_with_another_address_leaves_the_handshake_alone(stage: &Stage) {
    let (mut peer, _) = cookie_echoed(stage);
    sends_init(&mut peer, &another_address());
    while peer.hears_maybe().is_some() {}
    peer.waits(Duration::from_secs(1));
    peer.expects("COOKIE ECHO");
    sends_chunk(&mut peer, CookieAck::KIND, 0, &[]);
    assert!(peer.app.saw(|event| matches!(event, Event::Connected { .. })));
}

/// The peer sends an INIT that adds an address, and this ABORT comes back.
fn is_aborted(peer: &mut Peer) -> Raw {
    peer.tag ^= 0x0100;
    sends_init(peer, &another_address());
    let packet = peer.hears();
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
    let abort = only_chunk(&packet);
    assert_eq!((abort.kind, abort.flags & 1), (Abort::KIND, 0));
    abort
}

fn an_init_after_the_cookie_that_adds_addresses_is_aborted(stage: &Stage) {
    is_aborted(&mut cookie_echoed(stage).0);
}

fn an_abort_after_the_cookie_lists_the_added_addresses(stage: &Stage) {
    let abort = is_aborted(&mut cookie_echoed(stage).0);
    assert_eq!(causes(&abort), [(11, another_address())], "Restart of an Association with New Addresses");
}

fn a_crossing_init_gets_a_cookie(stage: &Stage) {
    let (mut peer, _) = cookie_wait(stage);
    sends_init(&mut peer, &[]);
    assert_eq!(parameter_kinds(&only_chunk(&peer.hears())), [7]);
}

fn a_crossing_init_stops_nothing(stage: &Stage) {
    let (mut peer, _) = cookie_wait(stage);
    peer.waits(Duration::from_millis(600));
    sends_init(&mut peer, &[]);
    peer.expects("INIT ACK");
    peer.waits(Duration::from_millis(399));
    peer.expects_nothing();
    peer.waits(Duration::from_millis(1));
    peer.expects("INIT");
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
}

fn an_unexpected_init_gets_a_cookie(stage: &Stage) {
    let mut peer = stage.established();
    sends_init(&mut peer, &[]);
    let init_ack = only_chunk(&peer.hears());
    assert_eq!((init_ack.kind, parameter_kinds(&init_ack)), (InitAck::KIND, vec![7]));
}

fn a_restart_may_not_add_addresses(stage: &Stage) {
    let mut peer = stage.established();
    sends_init(&mut peer, &another_address());
    gets_no_init_ack(&mut peer);
}

fn a_restart_that_adds_addresses_is_aborted(stage: &Stage) {
    is_aborted(&mut stage.established());
}

fn the_abort_lists_the_added_addresses(stage: &Stage) {
    let abort = is_aborted(&mut stage.established());
    assert_eq!(causes(&abort), [(11, another_address())], "Restart of an Association with New Addresses");
}

fn the_cookie_of_an_unexpected_init_restarts_the_association(stage: &Stage) {
    let mut peer = stage.established();
    peer.tag ^= 0x0100;
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    let packet = peer.hears();
    assert_eq!((kinds(&packet), header(&packet).verification_tag.0), (vec![CookieAck::KIND], peer.tag));
    assert_eq!(peer.endpoint.association_count(), 1);
}

fn the_answer_to_an_unexpected_init_has_its_tag(stage: &Stage) {
    let mut peer = stage.established();
    peer.tag ^= 0x0100;
    sends_init(&mut peer, &[]);
    assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
}

fn an_unexpected_init_gets_a_new_tag(stage: &Stage) {
    let mut peer = stage.established();
    let mut tags = vec![peer.endpoint_tag];
    for _ in 0..3 {
        sends_init(&mut peer, &[]);
        let init_ack = only_chunk(&peer.hears());
        // Neither half of the values that these seeds draw is zero.
        assert!(half(&init_ack.value, 0) != 0 && half(&init_ack.value, 2) != 0);
        tags.push(word(&init_ack.value, 0));
    }
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 4);
}

fn an_unexpected_init_gets_the_parameters_of_the_association(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let first = only_chunk(&peer.hears());
    let mut peer = stage.established();
    sends_init(&mut peer, &[]);
    let second = only_chunk(&peer.hears());
    assert_eq!(second.value[4..12], first.value[4..12], "window and streams");
}

fn an_unexpected_init_changes_nothing(stage: &Stage) {
    let mut peer = stage.established();
    let (tag, endpoint_tag) = (peer.tag, peer.endpoint_tag);
    for number in 0..3 {
        peer.tag += 1;
        sends_init(&mut peer, &[]);
        peer.hears();
        (peer.tag, peer.endpoint_tag) = (tag, endpoint_tag);
        peer.sends().data(number).go();
        peer.expects(&format!("SACK {number}"));
    }
    assert!(!peer.app.saw(|event| matches!(event, Event::Closed(_))));
}

fn a_cookie_from_before_the_association_restarts_nothing(stage: &Stage) {
    let mut peer = stage.listening();
    let tag = peer.tag;
    peer.tag = tag ^ 0x0100;
    sends_init(&mut peer, &[]);
    let early = (peer.takes_init_ack(), peer.endpoint_tag);
    peer.tag = tag;
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    peer.endpoint_tag = early.1;
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &early.0);
    peer.expects_nothing();
    assert!(!peer.app.saw(|event| matches!(event, Event::Restarted { .. })));
}

fn an_unexpected_init_ack_is_discarded(stage: &Stage) {
    for mut peer in [stage.connected(), stage.established(), cookie_echoed(stage).0] {
        sends_init_ack(&mut peer, &[]);
        peer.expects_nothing();
        assert_eq!(peer.endpoint.association_count(), 1);
    }
}
