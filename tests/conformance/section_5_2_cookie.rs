//! COOKIE ECHO, COOKIE ACK and stale cookies that meet an existing association (RFC 9260 §5.2.4, §5.2.5, §5.2.6).

use std::time::Duration;

use lab::packets::{data_of, header, kinds};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{AssociationConfig, Event, SendInfo};
use sctp_wire::chunk::{CookieAck, CookieEcho, Error, Init, Shutdown, ShutdownAck};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{
    causes, chunks, only_chunk, padded_parameters, parameter, sends_chunk, sends_init, sends_init_ack, word,
};

rules! {
    in "5.2.4" {
        SHOULD "discard an expired cookie whose tags are not those of the association" => shown(an_expired_cookie_restarts_nothing, Kind, Talkative);
        MUST "answer it with ERROR and the cause Stale Cookie" => shown_by(an_expired_cookie_restarts_nothing, Value, Silent);
        RULE "an expired cookie with both tags right is valid" => shown(an_expired_cookie_of_the_association_is_acknowledged, Silent, Kind);
        SHOULD "discard a cookie silently that is not in table 12" => shown(other_cookies_are_discarded, Talkative);
        SHOULD "A: tell the upper layer of a restart, not of a lost association" => shown(a_restart_is_told, Deaf);
        MUST "A: reset the congestion control parameters" => shown(a_restart_begins_with_the_initial_window, Twice, Talkative);
        MUST_NOT "A: set up a new association in SHUTDOWN-ACK-SENT" => shown(no_restart_while_shutting_down, Silent, Kind, Value);
        SHOULD "B: stay in or enter ESTABLISHED" => shown(crossing_inits_make_one_association, Silent, Kind);
        MUST "B: take the peer's tag from the cookie, stop T1, send COOKIE ACK" => shown_by(crossing_inits_make_one_association, Tag, Talkative);
        SHOULD "C: discard the cookie silently" => shown(a_late_cookie_is_discarded, Talkative);
        SHOULD_NOT "C: change states, or stop timers" => shown_by(a_late_cookie_is_discarded, Silent, Deaf);
        SHOULD "D: enter ESTABLISHED from COOKIE-ECHOED" => shown(a_cookie_with_both_tags_ends_the_handshake, Silent, Deaf);
        SHOULD "D: stop T1-cookie and send COOKIE ACK" => shown_by(a_cookie_with_both_tags_ends_the_handshake, Talkative, Kind);
    }
    in "5.2.5" {
        SHOULD "discard a COOKIE ACK silently in any state but COOKIE-ECHOED" => shown(an_unexpected_cookie_ack_is_discarded, Talkative);
    }
    in "5.2.6" {
        SHOULD "look whether an association is being set up when a cookie is stale" => shown(a_stale_cookie_is_an_error_during_the_handshake, Deaf, Talkative);
        SHOULD "discard the ERROR silently in any state but COOKIE-ECHOED" => shown(a_stale_cookie_is_nothing_later, Talkative, Silent);
        SHOULD "extend the cookie life by the measured RTT and at most 1 s" => shown(a_stale_cookie_is_tried_again_with_a_longer_life, Silent, Value);
    }
}

/// The peer has forgotten the association, and asks for another.
fn restarts(peer: &mut Peer) -> Vec<u8> {
    peer.tag ^= 0x0100;
    sends_init(peer, &[]);
    peer.takes_init_ack()
}

fn an_expired_cookie_restarts_nothing(stage: &Stage) {
    let mut peer = stage.established();
    let (tag, endpoint_tag) = (peer.tag, peer.endpoint_tag);
    let cookie = restarts(&mut peer);
    // A heartbeat would come after 30 s.
    peer.waits(Duration::from_secs(28));
    peer.expects_nothing();
    peer.now = peer.now + Duration::from_secs(33);
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    let packet = peer.hears();
    let error = only_chunk(&packet);
    assert_eq!((error.kind, causes(&error)[0].0), (Error::KIND, 3));
    (peer.tag, peer.endpoint_tag) = (tag, endpoint_tag);
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

fn an_expired_cookie_of_the_association_is_acknowledged(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    peer.now = peer.now + Duration::from_secs(61);
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
}

fn other_cookies_are_discarded(stage: &Stage) {
    // Neither tag matches, and the cookie has no tie-tags.
    let mut peer = stage.listening();
    let early = restarts(&mut peer);
    let early_tag = peer.endpoint_tag;
    peer.tag ^= 0x0100;
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    let tag = peer.endpoint_tag;
    peer.endpoint_tag = early_tag;
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &early);
    peer.expects_nothing();
    // The peer's tag matches, and the cookie has tie-tags.
    peer.endpoint_tag = tag;
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects_nothing();
    assert!(!peer.app.saw(|event| matches!(event, Event::Closed(_))));
}

fn a_restart_is_told(stage: &Stage) {
    let mut peer = stage.established();
    let cookie = restarts(&mut peer);
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    assert!(peer.app.saw(|event| matches!(event, Event::Restarted { .. })));
    assert!(!peer.app.saw(|event| matches!(event, Event::Closed(_))));
}

/// Returns how many packets with DATA leave when much data waits.
fn window_packets(peer: &mut Peer) -> usize {
    peer.app_sends(SendInfo::default(), vec![0; 60_000]);
    let mut packets = 0;
    while let Some(packet) = peer.hears_maybe() {
        packets += usize::from(!data_of(&packet).is_empty());
    }
    packets
}

fn a_restart_begins_with_the_initial_window(stage: &Stage) {
    let mut peer = stage.established();
    let initial = window_packets(&mut peer);
    let mut acknowledged = 0;
    for _ in 0..3 {
        acknowledged += window_grows(&mut peer, acknowledged, initial);
    }
    let cookie = restarts(&mut peer);
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events.last().expect("it was accepted").id;
    assert_eq!(window_packets(&mut peer), initial);
}

/// The peer acknowledges all DATA. Returns the number of newly acknowledged chunks.
fn window_grows(peer: &mut Peer, acknowledged: i32, outstanding: usize) -> i32 {
    let more = outstanding as i32;
    peer.sends().sack(acknowledged + more - 1, &[]).go();
    while peer.hears_maybe().is_some() {}
    more
}

fn no_restart_while_shutting_down(stage: &Stage) {
    let mut peer = stage.established();
    let (tag, cum_tsn) = (peer.endpoint_tag, peer.endpoint_tsn(-1));
    let cookie = restarts(&mut peer);
    let restarted = (peer.tag, peer.endpoint_tag);
    (peer.tag, peer.endpoint_tag) = (peer.tag ^ 0x0100, tag);
    sends_chunk(&mut peer, Shutdown::KIND, 0, &cum_tsn.0.to_be_bytes());
    peer.expects("SHUTDOWN ACK");
    (peer.tag, peer.endpoint_tag) = restarted;
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    let mut answers = Vec::new();
    while let Some(packet) = peer.hears_maybe() {
        answers.extend(chunks(&packet));
    }
    assert!(answers.iter().any(|chunk| chunk.kind == ShutdownAck::KIND), "{answers:?}");
    let error = answers.iter().find(|chunk| chunk.kind == Error::KIND).expect("an ERROR");
    assert_eq!(causes(error)[0].0, 10, "Cookie Received While Shutting Down");
    assert!(!peer.app.saw(|event| matches!(event, Event::Restarted { .. })));
}

fn crossing_inits_make_one_association(stage: &Stage) {
    // The peer's tag is not known yet, or was another one.
    for echoed in [false, true] {
        let mut peer = stage.connecting();
        peer.takes_init();
        if echoed {
            sends_init_ack(&mut peer, &[]);
            peer.expects("COOKIE ECHO");
        }
        let cookie = restarts(&mut peer);
        sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
        let packet = peer.hears();
        assert_eq!((kinds(&packet), header(&packet).verification_tag.0), (vec![CookieAck::KIND], peer.tag));
        assert!(peer.app.saw(|event| matches!(event, Event::Connected { .. })));
        assert_eq!(peer.endpoint.association_count(), 1);
        peer.waits(Duration::from_secs(10));
        peer.expects_nothing();
        peer.app_sends(SendInfo::default(), &b"up"[..]);
        assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
    }
}

fn a_late_cookie_is_discarded(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let late = (peer.takes_init_ack(), peer.endpoint_tag);
    let config = AssociationConfig::default().into();
    let connect =
        peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, &[peer.address], config, &peer.app);
    assert!(connect.is_ok());
    peer.collect_output();
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
    let tag = std::mem::replace(&mut peer.endpoint_tag, late.1);
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &late.0);
    peer.expects_nothing();
    peer.endpoint_tag = tag;
    peer.waits(Duration::from_secs(1));
    peer.expects("COOKIE ECHO");
    sends_chunk(&mut peer, CookieAck::KIND, 0, &[]);
    assert!(peer.app.saw(|event| matches!(event, Event::Connected { .. })));
}

fn a_cookie_with_both_tags_ends_the_handshake(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    assert!(peer.app.saw(|event| matches!(event, Event::Connected { .. })));
    peer.waits(Duration::from_secs(10));
    peer.expects_nothing();
}

fn an_unexpected_cookie_ack_is_discarded(stage: &Stage) {
    let mut waiting = stage.connecting();
    waiting.takes_init();
    for mut peer in [waiting, stage.established()] {
        sends_chunk(&mut peer, CookieAck::KIND, 0, &[]);
        peer.expects_nothing();
        assert!(!peer.app.saw(|event| matches!(event, Event::Connected { .. } | Event::Closed(_))));
    }
}

/// Reports to the endpoint in COOKIE-ECHOED that its cookie is stale by 2.5 ms.
fn told_of_a_stale_cookie(stage: &Stage) -> Peer {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
    peer.waits(Duration::from_millis(100));
    sends_chunk(&mut peer, Error::KIND, 0, &parameter(3, &2500_u32.to_be_bytes()));
    peer
}

fn a_stale_cookie_is_an_error_during_the_handshake(stage: &Stage) {
    let mut peer = told_of_a_stale_cookie(stage);
    // The endpoint gives up, or begins anew; it does not send the cookie again.
    while let Some(packet) = peer.hears_maybe() {
        assert_eq!(kinds(&packet), [Init::KIND]);
    }
    peer.waits(Duration::from_secs(1));
    assert!(peer.hears_maybe().is_none_or(|packet| kinds(&packet) == [Init::KIND]));
}

fn a_stale_cookie_is_nothing_later(stage: &Stage) {
    let mut waiting = stage.connecting();
    waiting.takes_init();
    for mut peer in [waiting, stage.established()] {
        sends_chunk(&mut peer, Error::KIND, 0, &parameter(3, &2500_u32.to_be_bytes()));
        peer.expects_nothing();
        assert_eq!(peer.endpoint.association_count(), 1);
    }
    let mut peer = stage.established();
    sends_chunk(&mut peer, Error::KIND, 0, &parameter(3, &2500_u32.to_be_bytes()));
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

fn a_stale_cookie_is_tried_again_with_a_longer_life(stage: &Stage) {
    let mut peer = told_of_a_stale_cookie(stage);
    let init = only_chunk(&peer.hears());
    let found = padded_parameters(&init);
    let [(9, extension)] = found.as_slice() else { panic!("a Cookie Preservative alone, not {found:?}") };
    assert_eq!((init.kind, extension.len()), (Init::KIND, 4));
    let extension_ms = word(extension, 0);
    assert!(
        (100..=1100).contains(&extension_ms),
        "the round trip took 100 ms, but it asks for {extension_ms}"
    );
}
