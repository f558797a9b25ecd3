//! Heartbeats: an idle path is probed, a silent peer is noticed (RFC 9260 §8.1 to §8.3).

use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, Event, PathChange, SendInfo};
use sctp_wire::chunk::{Abort, Heartbeat, HeartbeatAck};

use lab::packets::{build, has, kinds};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::{A, B, Lab};

#[test]
fn an_idle_association_is_probed_every_interval() {
    let mut lab = Lab::new(1);
    let (a, _) = lab.establish();
    let before = lab.sent.len();
    lab.run_for(Duration::from_secs(3600));
    let count = |kind, by| lab.sent[before..].iter().filter(|s| s.by == by && has(&s.packet, kind)).count();
    // HB.interval 30 s plus RTO 1 s, give or take half of it.
    for node in [A, B] {
        let probes = count(Heartbeat::KIND, node);
        assert!((110..=125).contains(&probes), "{probes} in an hour");
        assert_eq!(count(HeartbeatAck::KIND, 1 - node), probes);
    }
    assert_eq!(lab.statistics(A, a).paths[0].srtt, Some(lab.statistics(A, a).paths[0].srtt.unwrap()));
    assert_eq!((lab.closed(A), lab.closed(B)), (None, None));
}

#[test]
fn a_heartbeat_measures_the_round_trip() {
    let mut lab = Lab::new(2);
    let (a, _) = lab.establish();
    lab.run_for(Duration::from_secs(60));
    let srtt = lab.statistics(A, a).paths[0].srtt.unwrap();
    assert!((Duration::from_millis(20)..Duration::from_millis(21)).contains(&srtt), "{srtt:?}");
}

#[test]
fn a_busy_path_is_not_probed() {
    let mut lab = Lab::new(3);
    let (a, _) = lab.establish();
    for _ in 0..200 {
        lab.send(A, a, SendInfo::default(), &b"busy"[..]);
        lab.run_for(Duration::from_secs(1));
    }
    assert!(!lab.sent.iter().any(|s| s.by == A && has(&s.packet, Heartbeat::KIND)));
}

#[test]
fn without_an_interval_nothing_is_probed() {
    let mut lab = Lab::new(4);
    let config = AssociationConfig { heartbeat_interval: None, ..AssociationConfig::default() };
    lab.establish_with(config.clone(), config);
    let before = lab.sent.len();
    lab.run_for(Duration::from_secs(3600));
    assert_eq!(lab.sent.len(), before);
    assert_eq!(lab.node(A).endpoint.poll_timeout(), None);
}

#[test]
fn a_peer_that_went_silent_is_noticed_while_idle() {
    let mut lab = Lab::new(5);
    let config = AssociationConfig { events: true, ..AssociationConfig::default() };
    lab.establish_with(config.clone(), config);
    lab.cut();
    lab.run_until("both gave up", Duration::from_secs(2000), |lab| {
        lab.closed(A).is_some() && lab.closed(B).is_some()
    });
    assert_eq!(lab.closed(A), Some(CloseReason::Timeout));
    let inactive = lab
        .app(A)
        .events
        .iter()
        .position(|e| matches!(e.event, Event::PathChanged { change: PathChange::Unreachable, .. }));
    assert!(inactive.is_some(), "the path is given up before the association");
    let probes = lab.sent.iter().filter(|s| s.by == A && has(&s.packet, Heartbeat::KIND)).count();
    assert_eq!(probes, 11, "Association.Max.Retrans is 10");
    assert_eq!(lab.node(A).endpoint.poll_timeout(), None);
}

#[test]
fn a_peer_that_went_silent_is_noticed_while_sending() {
    let mut lab = Lab::new(6);
    let (a, _) = lab.establish();
    lab.cut();
    let start = lab.now();
    lab.send(A, a, SendInfo::default(), &b"anybody?"[..]);
    lab.run_until("A gave up", Duration::from_secs(2000), |lab| lab.closed(A).is_some());
    assert_eq!(lab.closed(A), Some(CloseReason::Timeout));
    lab.pump();
    let last = lab.sent.iter().rfind(|sent| sent.by == A).expect("something was sent");
    assert_eq!(kinds(&last.packet), [Abort::KIND], "the peer may be there after all");
    // 1, 2, 4, 8, 16, 32 and then 60 s each; heartbeats count, too.
    let took = lab.now() - start;
    assert!((Duration::from_secs(100)..Duration::from_secs(400)).contains(&took), "{took:?}");
}

#[test]
fn a_path_that_comes_back_is_used_again_and_announced() {
    for by_data in [true, false] {
        let mut lab = Lab::new(7);
        let config =
            AssociationConfig { association_retries_max: 1000, events: true, ..AssociationConfig::default() };
        let (a, _) = lab.establish_with(config.clone(), config);
        lab.cut();
        if by_data {
            lab.send(A, a, SendInfo::default(), &b"anybody?"[..]);
        }
        lab.run_until("the path is inactive", Duration::from_secs(2000), |lab| {
            lab.node(A).app.saw(|e| matches!(e, Event::PathChanged { change: PathChange::Unreachable, .. }))
        });
        assert!(!lab.statistics(A, a).paths[0].active);
        lab.untap(A);
        lab.untap(B);
        lab.run_until("the path is active", Duration::from_secs(200), |lab| {
            lab.node(A).app.saw(|e| matches!(e, Event::PathChanged { change: PathChange::Available, .. }))
        });
        assert!(lab.statistics(A, a).paths[0].active);
        lab.send(A, a, SendInfo::default(), &b"hello again"[..]);
        lab.run_until("it arrived", Duration::from_secs(100), |lab| {
            lab.node(B).app.messages.last().is_some_and(|m| m.bytes == b"hello again")
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
