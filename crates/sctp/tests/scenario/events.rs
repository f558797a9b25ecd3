//! Events that need no reaction of the user (RFC 6458 §6.1), for users who subscribe to them.

use std::time::Duration;

use bytes::Bytes;
use sctp::{AssociationConfig, Event, PathChange, PathReason, SendInfo};
use sctp_wire::cause::{Causes, OutOfResource};
use sctp_wire::chunk::Error;

use lab::script::{Peer, plain};
use lab::{A, B, Fate, PORT_A, PORT_B, Reading, TwoHosts};

const SOON: Duration = Duration::from_secs(60);

fn wants_events() -> AssociationConfig {
    AssociationConfig { events: true, ..AssociationConfig::default() }
}

fn count(hosts: &TwoHosts, node: usize, what: &Event) -> usize {
    hosts.node(node).app.events.iter().filter(|happened| happened.event == *what).count()
}

#[test]
fn a_sender_hears_when_all_is_acknowledged() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish_with(wants_events(), wants_events());
    assert_eq!(count(&hosts, A, &Event::SenderDry), 0, "nothing was sent");
    // The network drops its end once.
    let mut number = 0;
    hosts.tap(A, move |_| {
        number += 1;
        if number == 9 { Fate::Drop } else { Fate::Pass }
    });
    hosts.send(A, a, SendInfo::default(), vec![1; 12_000]);
    let last = hosts.app(A).events.len();
    while hosts.statistics(A, a).send_buffered_bytes > 0 {
        assert_eq!(hosts.app(A).events.len(), last);
        hosts.run_for(Duration::from_millis(1));
    }
    assert_eq!(hosts.app(A).events.last().unwrap().event, Event::SenderDry);
    hosts.run_for(SOON);
    hosts.send(A, a, SendInfo::default(), vec![2; 10]);
    hosts.run_for(SOON);
    assert_eq!((count(&hosts, A, &Event::SenderDry), count(&hosts, B, &Event::SenderDry)), (2, 0));
}

#[test]
fn a_sender_that_does_not_care_does_not_hear_of_it() {
    let mut hosts = TwoHosts::new(1);
    let quiet = AssociationConfig { sender_dry_events: false, ..wants_events() };
    let (a, _) = hosts.establish_with(quiet, wants_events());
    let before = hosts.app(A).events.len();
    hosts.send(A, a, SendInfo::default(), vec![1; 12_000]);
    hosts.run_for(SOON);
    assert_eq!(hosts.app(A).events.len(), before);
}

#[test]
fn users_without_subscriptions_get_no_events() {
    let mut hosts = TwoHosts::new(2);
    let (a, _) = hosts.establish();
    hosts.send(A, a, SendInfo::default(), vec![1; 10]);
    hosts.run_for(SOON);
    hosts.cut();
    hosts.run_until("A gave up", Duration::from_secs(2000), |hosts| hosts.closed(A).is_some());
    let events: Vec<_> = hosts.app(A).events.iter().map(|happened| &happened.event).collect();
    assert!(
        matches!(events[..], [Event::Connected { .. }, Event::Lost { .. }, Event::Closed(_)]),
        "{events:?}"
    );
}

#[test]
fn the_way_of_a_path_is_told_with_its_reasons() {
    let mut hosts = TwoHosts::new(3);
    let config = AssociationConfig { association_retries_max: 1000, ..wants_events() };
    let (a, _) = hosts.establish_with(config.clone(), config);
    hosts.cut();
    hosts.send(A, a, SendInfo::default(), &b"anybody?"[..]);
    hosts.run_for(Duration::from_secs(300));
    hosts.untap(A);
    hosts.untap(B);
    hosts.run_for(Duration::from_secs(200));
    let changes: Vec<_> = hosts
        .app(A)
        .events
        .iter()
        .filter_map(|happened| match happened.event {
            Event::PathChanged { change, reason, .. } => Some((change, reason)),
            _ => None,
        })
        .collect();
    let [down, (PathChange::Available, PathReason::Acknowledged | PathReason::Heartbeat)] = changes[..]
    else {
        panic!("{changes:?}")
    };
    assert_eq!(down, (PathChange::Unreachable, PathReason::Unanswered));
}

#[test]
fn a_new_primary_path_is_told() {
    let mut peer = Peer::established(4);
    let remote = peer.address;
    peer.endpoint.set_primary(peer.now, peer.id, remote.ip(), &mut peer.app).unwrap();
    let (change, reason) = (PathChange::MadePrimary, PathReason::Requested);
    assert!(peer.app.saw(|event| *event == Event::PathChanged { remote, change, reason }));
}

#[test]
fn reported_causes_reach_the_user_up_to_a_limit() {
    let mut peer = Peer::established(5);
    // A cause of an unknown kind, with 600 bytes.
    let mut cause = vec![0x99, 0x01, 0x02, 0x5c];
    cause.resize(604, 7);
    peer.sends().chunk(|_, out| Error { causes: Causes::new(&cause) }.write(out)).go();
    let information = Bytes::from(vec![7; 512]);
    assert!(
        peer.app
            .saw(|event| *event == Event::RemoteError { cause: 0x9901, information: information.clone() })
    );
}

#[test]
fn unread_events_are_bounded() {
    // Of each packet at most 32 causes are reported.
    for (in_packet, reported) in [(1, 1), (100, 32)] {
        let config =
            AssociationConfig { receive_buffer_bytes: 10_000, receive_buffer_tuned_bytes: 0, ..plain() };
        let mut peer = Peer::established_with(6, config);
        peer.app.set_reading(Reading::Never);
        let mut causes = Vec::new();
        (0..in_packet).for_each(|_| OutOfResource.write(&mut causes));
        let told = |peer: &Peer| peer.app.events.len() - 1;
        for _ in 0..1000 {
            peer.sends().chunk(|_, out| Error { causes: Causes::new(&causes) }.write(out)).go();
        }
        // Each event counts for a byte and its overhead of 96, up to twice the buffer.
        assert_eq!(told(&peer), 20_000 / 97 + 1);
        let statistics = peer.endpoint.statistics(peer.id).unwrap();
        assert_eq!(statistics.events_dropped, 1000 * reported - told(&peer) as u64);
        // The user has read one, so there is room for one.
        peer.app.read_one(&mut peer.endpoint);
        for _ in 0..2 {
            peer.sends().chunk(|_, out| Error { causes: Causes::new(&causes) }.write(out)).go();
        }
        assert_eq!(told(&peer), 20_000 / 97 + 2);
    }
}

#[test]
fn the_peers_adaptation_indication_is_an_event_once_established() {
    let says = |adaptation_indication| AssociationConfig { adaptation_indication, ..wants_events() };
    let mut hosts = TwoHosts::new(7);
    hosts.establish_with(says(7), says(0x8000_0009));
    let told: Vec<Vec<Event>> = [A, B]
        .map(|node| hosts.app(node).events.iter().map(|happened| happened.event.clone()).collect())
        .to_vec();
    assert!(matches!(told[A][..], [Event::Connected { .. }, Event::AdaptationIndication(0x8000_0009)]));
    assert!(matches!(told[B][..], [Event::Accepted { .. }, Event::AdaptationIndication(7)]));
    // A restarted peer may give another value.
    hosts.reboot(A);
    hosts.connect(A, (PORT_A, PORT_B), says(8));
    hosts.run_for(SOON);
    let told = &hosts.app(B).events[2..4];
    assert!(matches!(told[0].event, Event::Restarted(_)));
    assert_eq!(told[1].event, Event::AdaptationIndication(8));
}

#[test]
fn no_adaptation_indication_is_sent_without_a_setting() {
    let mut hosts = TwoHosts::new(8);
    hosts.establish_with(wants_events(), wants_events());
    let said = Event::AdaptationIndication(0);
    assert_eq!((count(&hosts, A, &said), count(&hosts, B, &said)), (0, 0));
    let parameter = [0xc0, 0x06, 0x00, 0x08];
    assert!(!hosts.sent.iter().any(|sent| sent.packet.windows(4).any(|bytes| bytes == parameter)));
}

#[test]
fn events_before_the_association_is_up_take_room_too() {
    let mut hosts = TwoHosts::new(9);
    hosts.app(A).set_reading(Reading::Never);
    hosts.listen(wants_events());
    let a = hosts.connect(A, (PORT_A, PORT_B), wants_events());
    let address = hosts.statistics(A, a).paths[0].remote.ip();
    let now = hosts.now();
    let node = hosts.node_mut(A);
    node.endpoint.set_primary(now, a, address, &mut node.app).unwrap();
    assert_eq!(hosts.statistics(A, a).receive_buffered_bytes, 1 + 96);
    hosts.run_until("A is up", SOON, |hosts| hosts.is_up(A));
    assert_eq!(hosts.statistics(A, a).receive_buffered_bytes, 1 + 96);
    let node = hosts.node_mut(A);
    node.app.read_one(&mut node.endpoint);
    assert_eq!(hosts.statistics(A, a).receive_buffered_bytes, 0);
}
