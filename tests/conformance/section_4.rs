//! The states of an association (RFC 9260 §4).

use std::time::Duration;

use lab::script::Peer;
use sctp::{AssociationConfig, CloseReason, Event, SendError, SendInfo};
use sctp_wire::chunk::{CookieEcho, Error, Init};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{causes, only_chunk, sends_chunk, sends_init, sends_init_ack, sends_shutdown};

rules! {
    in "4" {
        MUST "discard a packet with an invalid cookie silently" => shown(an_invalid_cookie_is_not_answered, Talkative);
        MUST "answer an expired cookie with ERROR" => shown(an_expired_cookie_is_answered_with_error, Silent, Kind, Value);
        MUST "retransmit INIT and restart T1-init when it expires" => shown(init_is_repeated, Silent, Kind);
        MUST "repeat INIT up to Max.Init.Retransmits times" => shown_by(init_is_repeated, Silent, Talkative);
        MUST "then give up and report it" => shown(a_connect_without_an_answer_is_given_up, Deaf, Talkative);
        MUST "retransmit COOKIE ECHO and restart T1-cookie when it expires" => shown(cookie_echo_is_repeated, Silent, Kind);
        MUST "repeat COOKIE ECHO up to Max.Init.Retransmits times" => shown_by(cookie_echo_is_repeated, Silent, Talkative);
        MUST "then give up on the cookie and report it" => shown_by(a_connect_without_an_answer_is_given_up, Deaf, Talkative);
        MUST "acknowledge DATA without delay in SHUTDOWN-SENT" => shown(data_after_shutdown_is_acknowledged_at_once, Late, Silent);
        MUST_NOT "accept new messages in SHUTDOWN-RECEIVED" => shown(nothing_is_sent_once_the_peer_shuts_down, Deaf);
        MUST "send what is queued in SHUTDOWN-RECEIVED, and then leave this state" => shown(queued_data_is_sent_before_shutdown_ack, Silent, Kind, Talkative);
        MUST_NOT "accept new messages in SHUTDOWN-ACK-SENT" => shown(nothing_is_sent_after_shutdown_ack, Deaf);
    }
}

fn an_invalid_cookie_is_not_answered(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let mut cookie = peer.takes_init_ack();
    *cookie.last_mut().expect("a cookie has bytes") ^= 1;
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn an_expired_cookie_is_answered_with_error(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    peer.waits(Duration::from_secs(61));
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    let error = only_chunk(&peer.hears());
    assert_eq!((error.kind, causes(&error)[0].0), (Error::KIND, 3), "Stale Cookie");
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn three_tries() -> AssociationConfig {
    AssociationConfig { init_retries_max: 3, ..AssociationConfig::default() }
}

/// Checks that the packet is repeated 1, 2 and 4 seconds after the one before it.
fn is_repeated_three_times(peer: &mut Peer, chunk: &str) {
    for seconds in [1, 2, 4] {
        peer.waits(Duration::from_millis(seconds * 1000 - 1));
        peer.expects_nothing();
        peer.waits(Duration::from_millis(1));
        peer.expects(chunk);
    }
    peer.waits(Duration::from_secs(100));
    peer.expects_nothing();
}

pub(crate) fn init_is_repeated(stage: &Stage) {
    let mut peer = stage.connecting_with(three_tries());
    peer.expects("INIT");
    is_repeated_three_times(&mut peer, "INIT");
}

pub(crate) fn cookie_echo_is_repeated(stage: &Stage) {
    let mut peer = stage.connecting_with(three_tries());
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
    is_repeated_three_times(&mut peer, "COOKIE ECHO");
}

fn a_connect_without_an_answer_is_given_up(stage: &Stage) {
    let mut peer = stage.connecting_with(three_tries());
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    peer.waits(Duration::from_millis(14_999));
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.waits(Duration::from_millis(1));
    assert!(
        peer.app.saw(|event| *event == Event::Closed(CloseReason::NoAnswer)),
        "after 1, 2, 4 and 8 seconds"
    );
    for _ in 0..4 {
        peer.expects("COOKIE ECHO");
    }
    peer.expects_nothing();
    let mut peer = stage.connecting_with(three_tries());
    assert_eq!(only_chunk(&peer.hears()).kind, Init::KIND);
    peer.waits(Duration::from_secs(15));
    assert!(peer.app.saw(|event| *event == Event::Closed(CloseReason::NoAnswer)));
}

fn data_after_shutdown_is_acknowledged_at_once(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    for number in 0..4 {
        peer.sends().data(number).go();
        peer.expects(&format!("SHUTDOWN {number}, SACK {number}"));
    }
}

fn nothing_is_sent_once_the_peer_shuts_down(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), &b"outstanding"[..]);
    peer.expects("DATA 0");
    sends_shutdown(&mut peer, -1);
    let more = peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 4, [b"more"[..].into()]);
    assert_eq!(more, Err(SendError::PeerShutdown));
}

fn queued_data_is_sent_before_shutdown_ack(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), &b"outstanding"[..]);
    peer.expects("DATA 0");
    // Held back while the other message is outstanding.
    peer.endpoint
        .send(peer.now, peer.id, &SendInfo::default(), 6, [b"queued"[..].into()])
        .expect("it is taken");
    sends_shutdown(&mut peer, -1);
    peer.expects("DATA 1");
    peer.expects_nothing();
    sends_shutdown(&mut peer, 0);
    peer.expects_nothing();
    // The second message is lost and sent again.
    peer.waits(Duration::from_secs(2));
    peer.expects("DATA 1");
    while peer.hears_maybe().is_some() {}
    sends_shutdown(&mut peer, 1);
    peer.expects("SHUTDOWN ACK");
    peer.expects_nothing();
}

fn nothing_is_sent_after_shutdown_ack(stage: &Stage) {
    let mut peer = stage.established();
    sends_shutdown(&mut peer, -1);
    peer.expects("SHUTDOWN ACK");
    let more = peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 4, [b"more"[..].into()]);
    assert_eq!(more, Err(SendError::PeerShutdown));
}
