//! ABORT ends an association at once, with a reason (RFC 9260 §9.1).

use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, Event, SendInfo};
use sctp_wire::chunk::{Abort, DataFlags, HeartbeatAck};
use sctp_wire::packet::HEADER_BYTES;

use lab::packets::{has, kinds};
use lab::script::{Peer, Say};
use lab::{A, B, TwoHosts};

#[test]
fn the_reason_reaches_the_other_side_whoever_aborts() {
    for side in [A, B] {
        let mut hosts = TwoHosts::new(1);
        let (a, b) = hosts.establish();
        hosts.send_all(A, a, (0..500).map(|n| (SendInfo::default(), vec![n as u8; 1000].into())));
        hosts.run_for(Duration::from_millis(30));
        let before = hosts.sent.len();
        hosts.abort(side, [a, b][side], "enough, thank you".as_bytes());
        hosts.run_until("both are closed", Duration::from_secs(1), |hosts| {
            hosts.closed(A).is_some() && hosts.closed(B).is_some()
        });
        assert_eq!(hosts.closed(side), Some(CloseReason::Aborted));
        assert_eq!(
            hosts.closed(1 - side),
            Some(CloseReason::PeerAborted { cause: Some(12), text: "enough, thank you".to_owned() })
        );
        hosts.run_for(Duration::from_secs(100));
        // Data on the way finds no association, and the answer reflects its tag.
        let aborts = hosts.sent[before..].iter().filter(|s| has(&s.packet, Abort::KIND));
        assert_eq!(aborts.filter(|s| s.packet[HEADER_BYTES + 1] & 1 == 0).count(), 1);
        for node in [A, B] {
            assert_eq!(hosts.node(node).endpoint.association_count(), 0);
            assert_eq!(hosts.node(node).endpoint.poll_timeout(), None, "no timer outlives its association");
        }
    }
}

#[test]
fn unsent_data_is_discarded() {
    let mut hosts = TwoHosts::new(2);
    let (a, _) = hosts.establish();
    hosts.send_all(A, a, (0..500).map(|n| (SendInfo::default(), vec![n as u8; 1000].into())));
    hosts.abort(A, a, b"");
    hosts.run_for(Duration::from_secs(1));
    assert!(hosts.app(B).messages.len() < 100);
    assert_eq!(hosts.closed(B), Some(CloseReason::PeerAborted { cause: Some(12), text: String::new() }));
}

#[test]
fn an_abort_before_the_association_is_up_says_nothing_or_little() {
    let mut hosts = TwoHosts::new(3);
    hosts.cut();
    let a = hosts.connect(A, (1, 2), sctp::AssociationConfig::default());
    hosts.abort(A, a, b"changed my mind");
    assert_eq!(hosts.closed(A), Some(CloseReason::Aborted));
    hosts.run_for(Duration::from_secs(100));
    assert!(hosts.sent.iter().all(|s| !has(&s.packet, Abort::KIND)));
}

#[test]
fn an_abort_is_never_answered() {
    let mut peer = Peer::established(4);
    let tag = peer.endpoint_tag;
    peer.sends()
        .chunk(|_, out| sctp_wire::chunk::Heartbeat { info: b"are you there" }.write(out))
        .chunk(|_, out| Abort { reflected_tag: false, causes: Default::default() }.write(out))
        .go();
    peer.expects_nothing();
    assert!(peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::PeerAborted { .. }))));
    // The next packet is out of the blue.
    peer.sends()
        .tag(tag)
        .chunk(|_, out| Abort { reflected_tag: false, causes: Default::default() }.write(out))
        .go();
    peer.expects_nothing();
}

#[test]
fn a_violation_ends_the_association_with_the_cause_that_is_sent() {
    type Violation = fn(Say<'_>) -> Say<'_>;
    // RFC 9260 §6.2: DATA without data. §6.2.1: a SACK for data that was never sent.
    let violations: [(Violation, u16); 2] =
        [(|say| say.data_with(DataFlags::WHOLE, 0, 0, 0, b""), 9), (|say| say.sack(1000, &[]), 13)];
    for (violate, sent) in violations {
        let config =
            AssociationConfig { events: true, send_failed_events: true, ..AssociationConfig::default() };
        let mut peer = Peer::established_with(7, config);
        peer.app_sends(SendInfo::default(), vec![1]);
        peer.expects("DATA 0");
        violate(peer.sends()).go();
        let packet = peer.hears();
        assert_eq!(kinds(&packet), [Abort::KIND]);
        assert_eq!(packet[HEADER_BYTES + 4..][..2], sent.to_be_bytes());
        assert!(peer.app.saw(|e| matches!(e, Event::Lost { reason, .. } if reason.cause() == sent)));
        assert!(peer.app.saw(|e| matches!(e, Event::SendFailed(failure) if failure.cause == sent)));
        assert!(peer.app.saw(|e| matches!(e, Event::Closed(reason) if reason.cause() == sent)));
    }
}

#[test]
fn a_reason_of_any_bytes_passes_unchanged_and_is_made_readable() {
    let mut hosts = TwoHosts::new(5);
    let (a, _) = hosts.establish();
    let reason = [0xff, b'o', 0x07, b'k', b'\n', 0];
    hosts.abort(A, a, &reason);
    hosts.run_for(Duration::from_secs(1));
    let information = [&[0, 12, 0, 10][..], &reason].concat();
    let abort = hosts.sent.iter().find(|sent| has(&sent.packet, Abort::KIND)).expect("it was sent");
    assert_eq!(abort.packet[HEADER_BYTES + 4..][..10], information);
    let lost = |e: &Event| matches!(e, Event::Lost { information: told, .. } if *told == information);
    assert!(hosts.app(B).saw(lost), "without optional events, too");
    assert_eq!(
        hosts.closed(B),
        Some(CloseReason::PeerAborted { cause: Some(12), text: "\u{fffd}ok".to_owned() })
    );
}

#[test]
fn a_reason_without_end_is_cut() {
    let mut hosts = TwoHosts::new(6);
    let (a, _) = hosts.establish();
    hosts.abort(A, a, &[b'x'; 60_000]);
    hosts.run_for(Duration::from_secs(1));
    let Some(CloseReason::PeerAborted { text, .. }) = hosts.closed(B) else {
        panic!("{:?}", hosts.closed(B))
    };
    assert!((1..=256).contains(&text.len()));
    assert!(hosts.sent.iter().all(|s| s.packet.len() <= 1472));
}

#[test]
fn no_control_chunk_is_left_over_for_the_dead() {
    let mut hosts = TwoHosts::new(7);
    let (a, _) = hosts.establish();
    hosts.abort(A, a, b"bye");
    let last = hosts.sent.last().unwrap();
    assert_eq!(kinds(&last.packet), [Abort::KIND]);
    assert_eq!(last.packet[HEADER_BYTES + 1] & 1, 0);
    assert!(!has(&last.packet, HeartbeatAck::KIND));
}
