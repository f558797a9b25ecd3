//! Heartbeats probe an idle path and detect a silent peer (RFC 9260 §8.1 to §8.3).

use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, Event, PathChange, SendInfo};
use sctp_wire::chunk::{Abort, Heartbeat, HeartbeatAck};

use lab::packets::{build, has, kinds};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::{A, B, TwoHosts};

#[test]
fn an_idle_association_is_probed_every_interval() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish();
    let before = hosts.sent.len();
    hosts.run_for(Duration::from_secs(3600));
    let count = |kind, by| hosts.sent[before..].iter().filter(|s| s.by == by && has(&s.packet, kind)).count();
    // HB.interval 30 s plus RTO 1 s, give or take half of it.
    for node in [A, B] {
        let probes = count(Heartbeat::KIND, node);
        assert!((110..=125).contains(&probes), "{probes} in an hour");
        assert_eq!(count(HeartbeatAck::KIND, 1 - node), probes);
    }
    assert_eq!(hosts.statistics(A, a).paths[0].srtt, Some(hosts.statistics(A, a).paths[0].srtt.unwrap()));
    assert_eq!((hosts.closed(A), hosts.closed(B)), (None, None));
}

#[test]
fn a_heartbeat_measures_the_round_trip() {
    let mut hosts = TwoHosts::new(2);
    let (a, _) = hosts.establish();
    hosts.run_for(Duration::from_secs(60));
    let srtt = hosts.statistics(A, a).paths[0].srtt.unwrap();
    assert!((Duration::from_millis(20)..Duration::from_millis(21)).contains(&srtt), "{srtt:?}");
}

#[test]
fn a_busy_path_is_not_probed() {
    let mut hosts = TwoHosts::new(3);
    let (a, _) = hosts.establish();
    for _ in 0..200 {
        hosts.send(A, a, SendInfo::default(), &b"busy"[..]);
        hosts.run_for(Duration::from_secs(1));
    }
    assert!(!hosts.sent.iter().any(|s| s.by == A && has(&s.packet, Heartbeat::KIND)));
}

#[test]
fn without_an_interval_nothing_is_probed() {
    let mut hosts = TwoHosts::new(4);
    let config = AssociationConfig { heartbeat_interval: None, ..AssociationConfig::default() };
    hosts.establish_with(config.clone(), config);
    let before = hosts.sent.len();
    hosts.run_for(Duration::from_secs(3600));
    assert_eq!(hosts.sent.len(), before);
    assert_eq!(hosts.node(A).endpoint.poll_timeout(), None);
}

#[test]
fn a_peer_that_went_silent_is_noticed_while_idle() {
    let mut hosts = TwoHosts::new(5);
    let config = AssociationConfig { events: true, ..AssociationConfig::default() };
    hosts.establish_with(config.clone(), config);
    hosts.cut();
    hosts.run_until("both gave up", Duration::from_secs(2000), |hosts| {
        hosts.closed(A).is_some() && hosts.closed(B).is_some()
    });
    assert_eq!(hosts.closed(A), Some(CloseReason::Timeout));
    let inactive = hosts
        .app(A)
        .events
        .iter()
        .position(|e| matches!(e.event, Event::PathChanged { change: PathChange::Unreachable, .. }));
    assert!(inactive.is_some(), "the path is given up before the association");
    let probes = hosts.sent.iter().filter(|s| s.by == A && has(&s.packet, Heartbeat::KIND)).count();
    assert_eq!(probes, 11, "Association.Max.Retrans is 10");
    assert_eq!(hosts.node(A).endpoint.poll_timeout(), None);
}

#[test]
fn a_peer_that_went_silent_is_noticed_while_sending() {
    let mut hosts = TwoHosts::new(6);
    let (a, _) = hosts.establish();
    hosts.cut();
    let start = hosts.now();
    hosts.send(A, a, SendInfo::default(), &b"anybody?"[..]);
    hosts.run_until("A gave up", Duration::from_secs(2000), |hosts| hosts.closed(A).is_some());
    assert_eq!(hosts.closed(A), Some(CloseReason::Timeout));
    hosts.exchange();
    let last = hosts.sent.iter().rfind(|sent| sent.by == A).expect("something was sent");
    assert_eq!(kinds(&last.packet), [Abort::KIND], "the peer may be there after all");
    // Timeouts after 1, 2, 4, 8, 16, 32 and then 60 s each; heartbeats count, too.
    let took = hosts.now() - start;
    assert!((Duration::from_secs(100)..Duration::from_secs(400)).contains(&took), "{took:?}");
}

#[test]
fn a_path_that_comes_back_is_used_again_and_announced() {
    for by_data in [true, false] {
        let mut hosts = TwoHosts::new(7);
        let config =
            AssociationConfig { association_retries_max: 1000, events: true, ..AssociationConfig::default() };
        let (a, _) = hosts.establish_with(config.clone(), config);
        hosts.cut();
        if by_data {
            hosts.send(A, a, SendInfo::default(), &b"anybody?"[..]);
        }
        hosts.run_until("the path is inactive", Duration::from_secs(2000), |hosts| {
            hosts.node(A).app.saw(|e| matches!(e, Event::PathChanged { change: PathChange::Unreachable, .. }))
        });
        assert!(!hosts.statistics(A, a).paths[0].active);
        hosts.untap(A);
        hosts.untap(B);
        hosts.run_until("the path is active", Duration::from_secs(200), |hosts| {
            hosts.node(A).app.saw(|e| matches!(e, Event::PathChanged { change: PathChange::Available, .. }))
        });
        assert!(hosts.statistics(A, a).paths[0].active);
        hosts.send(A, a, SendInfo::default(), &b"hello again"[..]);
        hosts.run_until("it arrived", Duration::from_secs(100), |hosts| {
            hosts.node(B).app.messages.last().is_some_and(|m| m.bytes == b"hello again")
        });
    }
}

#[test]
fn a_heartbeat_is_answered_with_what_it_carried() {
    let mut peer = Peer::established(8);
    peer.sends().chunk(|_, out| Heartbeat { info: b"42 and some more" }.write(out)).go();
    let tag = peer.tag;
    let expected =
        build(ENDPOINT_PORT, PEER_PORT, tag, |out| HeartbeatAck { info: b"42 and some more" }.write(out));
    assert_eq!(peer.hears(), expected);
}

#[test]
fn a_heartbeat_before_the_answer_to_an_init_is_not_answered() {
    let mut peer = Peer::connecting(16, AssociationConfig::default());
    peer.takes_init();
    peer.sends().chunk(|_, out| Heartbeat { info: b"42" }.write(out)).go();
    peer.expects_nothing();
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.expects_nothing();
}

/// A peer may probe the path MTU with long HEARTBEATs.
#[test]
fn a_heartbeat_of_any_length_is_answered_beside_data() {
    for (seed, info_bytes) in [(12, 1_017), (13, 1_400), (14, 9_000), (15, 65_400)] {
        let mut peer = Peer::established(seed);
        let info = vec![0x42; info_bytes];
        let data = [bytes::Bytes::from_static(b"data")];
        peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 4, data).expect("there is room");
        peer.sends().chunk(|_, out| Heartbeat { info: &info }.write(out)).go();
        let answer = build(ENDPOINT_PORT, PEER_PORT, peer.tag, |out| HeartbeatAck { info: &info }.write(out));
        let mut heard = std::iter::from_fn(|| peer.hears_maybe());
        assert!(
            heard.any(|packet| packet.starts_with(&answer[..8]) && packet[12..].starts_with(&answer[12..]))
        );
    }
}

#[test]
fn an_answer_that_was_not_asked_for_changes_nothing() {
    let mut peer = Peer::established(9);
    let before = peer.endpoint.statistics(peer.id).unwrap();
    for info in [&b"12345678"[..], &[], &[0; 8], &[0; 100]] {
        peer.sends().chunk(|_, out| HeartbeatAck { info }.write(out)).go();
    }
    peer.expects_nothing();
    let mut after = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!(after.paths[0].packets_received, before.paths[0].packets_received + 4);
    after.paths[0].packets_received = before.paths[0].packets_received;
    assert_eq!(after.paths, before.paths);
}
