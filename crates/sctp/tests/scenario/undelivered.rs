//! Undelivered data: messages whose lifetime has ended, data that returns when an association is lost, and records whose end
//! will not arrive (RFC 6458 §5.3.2, §6.1.1, §6.1.4, §6.1.7, §6.1.11).

use std::time::Duration;

use bytes::Bytes;
use netsim::{Loss, PipeConfig};
use sctp::{Admission, AssociationConfig, CloseReason, Event, Lifetime, SendError, SendFailure, SendInfo};
use sctp_wire::chunk::{DataFlags, Shutdown};

use lab::packets::has;
use lab::script::Peer;
use lab::{A, B, PORT_A, PORT_B, Reading, TwoHosts, line};

const SOON: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(5000);
/// Neither side sends anything in that time that would need a retransmission.
const SECOND: Duration = Duration::from_secs(1);

fn wants_events() -> AssociationConfig {
    AssociationConfig { events: true, ..AssociationConfig::default() }
}

/// Returns two hosts that subscribe to events.
fn established(seed: u64) -> (TwoHosts, sctp::AssociationId, sctp::AssociationId) {
    let mut hosts = TwoHosts::new(seed);
    let (a, b) = hosts.establish_with(wants_events(), wants_events());
    (hosts, a, b)
}

fn numbered(n: u32) -> SendInfo {
    SendInfo { stream: (n % 3) as u16, ppid: 100 + n, context: n, ..SendInfo::default() }
}

fn failures(events: &[lab::AppEvent]) -> Vec<SendFailure> {
    let failed = events.iter().filter_map(|happened| match &happened.event {
        Event::SendFailed(failure) => Some(failure.clone()),
        _ => None,
    });
    failed.collect()
}

/// Returns the bytes of the undelivered pieces, joined.
fn whole(pieces: &[SendFailure]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.data.to_vec()).collect()
}

fn position(events: &[lab::AppEvent], what: impl Fn(&Event) -> bool) -> Option<usize> {
    events.iter().position(|happened| what(&happened.event))
}

#[test]
fn unacknowledged_data_returns_with_the_end() {
    let (mut hosts, a, b) = established(1);
    hosts.send(A, a, numbered(0), vec![0; 1000]);
    hosts.run_for(SECOND);
    hosts.cut();
    hosts.send_all(A, a, (1..100).map(|n| (numbered(n), vec![n as u8; 1000].into())));
    hosts.send(A, a, SendInfo { unordered: true, ..numbered(100) }, vec![100; 10]);
    hosts.run_until("A gave up", LONG, |hosts| hosts.closed(A).is_some());
    let events = &hosts.app(A).events;
    let failed = failures(events);
    let messages: Vec<_> = failed.chunk_by(|one, next| one.info == next.info).collect();
    assert_eq!(messages.len(), 100);
    for (n, pieces) in (1..).zip(messages) {
        let (bytes, unordered) = if n == 100 { (10, true) } else { (1000, false) };
        assert_eq!(pieces[0].info, SendInfo { unordered, ..numbered(n) });
        assert_eq!(whole(pieces), vec![n as u8; bytes]);
        assert!(pieces[0].beginning && pieces[pieces.len() - 1].ending);
        assert!(pieces.iter().all(|piece| piece.cause == 0));
    }
    let sent = failed.iter().take_while(|failure| failure.was_sent).count();
    assert!((1..99).contains(&sent), "{sent} left before the line was found dead");
    assert!(failed[sent..].iter().all(|failure| !failure.was_sent));
    let lost = position(events, |event| matches!(event, Event::Lost { reason: CloseReason::Timeout, .. }));
    assert_eq!(lost.map(|lost| lost + 1), position(events, |event| matches!(event, Event::SendFailed(_))));
    assert_eq!(events.last().unwrap().event, Event::Closed(CloseReason::Timeout));
    // B had sent nothing.
    hosts.run_until("B gave up", LONG, |hosts| hosts.closed(B).is_some());
    assert_eq!(failures(&hosts.app(B).events), []);
    let _ = b;
}

#[test]
fn an_abort_brings_it_back_with_the_cause_on_both_sides() {
    for by in [A, B] {
        let (mut hosts, a, b) = established(2);
        hosts.app(B).set_reading(Reading::Never);
        hosts.send_all(A, a, (0..3000).map(|n| (numbered(n), vec![n as u8; 1000].into())));
        hosts.run_for(SECOND);
        let id = if by == A { a } else { b };
        hosts.abort(by, id, b"enough");
        hosts.run_for(SECOND);
        let failed = failures(&hosts.app(A).events);
        assert!(!failed.is_empty());
        assert!(failed.iter().all(|failure| failure.cause == 12), "User-Initiated Abort");
        let came = hosts.app(B).messages.len() as u32;
        let first = failed[0].info.context;
        assert!(first <= came, "{first} came back, and {came} came");
        assert!((first..).zip(&failed).all(|(n, failure)| failure.info.context == n));
    }
}

#[test]
fn a_long_message_comes_back_in_pieces_that_make_it_whole() {
    let (mut hosts, a, _) = established(3);
    hosts.cut();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n / 7) as u8).collect();
    hosts.send(A, a, numbered(7), bytes.clone());
    hosts.run_until("A gave up", LONG, |hosts| hosts.closed(A).is_some());
    let failed = failures(&hosts.app(A).events);
    assert!(failed.len() > 2);
    assert!(failed.iter().all(|failure| failure.info == numbered(7)));
    let last = failed.len() - 1;
    for (at, failure) in failed.iter().enumerate() {
        assert_eq!((failure.beginning, failure.ending), (at == 0, at == last));
        assert!(failure.data.len() <= 1500, "not more than a packet carries");
        assert!(failure.was_sent || at > 2, "what had not left comes after what had");
    }
    assert_eq!(whole(&failed), bytes);
}

/// Number of messages that takes several steps to return.
const MANY: u32 = 1000;
const STEP: usize = 64;

/// Returns a peer that ends with many unacknowledged messages of the endpoint, by an ABORT of the user.
fn aborted_with_many(config: AssociationConfig) -> Peer {
    let mut peer = Peer::established_with(12, config);
    (0..MANY).for_each(|n| peer.app_sends(numbered(n), vec![n as u8; 100]));
    let (now, id) = (peer.now, peer.id);
    peer.endpoint.abort(now, id, b"enough", &mut peer.app);
    peer
}

#[test]
fn very_many_messages_return_in_steps_and_the_association_ends_after_the_last() {
    let mut peer = aborted_with_many(wants_events());
    let lost = peer.app.events.iter().position(|told| matches!(told.event, Event::Lost { .. }));
    assert_eq!(peer.app.events.len() - lost.expect("it is told at once") - 1, STEP);
    peer.collect_output();
    assert!(peer.is_heard(), "the peer gets the ABORT at once");
    let (id, now) = (peer.id, peer.now);
    assert!(matches!(peer.endpoint.admit(id, &numbered(0), 1), Admission::Fail(SendError::Closed)));
    let mut steps = 0;
    while peer.endpoint.association_count() > 0 {
        let before = peer.app.events.len();
        assert!(peer.endpoint.poll_timeout().is_some_and(|at| at <= now), "it need not wait");
        peer.endpoint.handle_timeout(now, &mut peer.app);
        assert!((1..=STEP + 1).contains(&(peer.app.events.len() - before)));
        steps += 1;
    }
    assert!(steps >= MANY as usize / STEP);
    let failed = failures(&peer.app.events);
    assert!(failed.iter().map(|failure| failure.info.context).eq(0..MANY));
    assert!(failed.iter().all(|failure| failure.cause == 12));
    assert_eq!(peer.app.events.last().expect("an end").event, Event::Closed(CloseReason::Aborted));
}

#[test]
fn without_a_subscription_no_message_returns_and_the_association_ends_at_once() {
    let mut peer = aborted_with_many(AssociationConfig { send_failed_events: false, ..wants_events() });
    assert_eq!(failures(&peer.app.events).len(), 0);
    assert_eq!(peer.app.events.last().expect("an end").event, Event::Closed(CloseReason::Aborted));
    let (now, told) = (peer.now, peer.app.events.len());
    // The memory is released behind it.
    assert_eq!(peer.endpoint.association_count(), 1);
    for _ in 0..MANY {
        peer.endpoint.handle_timeout(now, &mut peer.app);
    }
    assert_eq!((peer.endpoint.association_count(), peer.app.events.len()), (0, told));
}

#[test]
fn very_many_lifetimes_that_end_together_are_noticed_in_steps() {
    let mut peer = with_closed_window(13);
    let lifetime = Some(SECOND.into());
    (0..MANY).for_each(|n| peer.app_sends(SendInfo { lifetime, ..numbered(n) }, vec![0; 10]));
    let now = peer.now + SECOND;
    let mut steps = 0;
    while peer.endpoint.poll_timeout().is_some_and(|at| at <= now) {
        let before = failures(&peer.app.events).len();
        peer.endpoint.handle_timeout(now, &mut peer.app);
        assert!(failures(&peer.app.events).len() - before <= STEP);
        steps += 1;
    }
    assert!(steps >= MANY as usize / STEP);
    assert_eq!(failures(&peer.app.events).len(), MANY as usize);
}

/// Restarts A, which sends to B over a line that works again, until B has heard of it.
fn restart_of_a(hosts: &mut TwoHosts) {
    hosts.run_for(Duration::from_millis(50));
    hosts.reboot(A);
    hosts.untap(A);
    hosts.untap(B);
    hosts.connect(A, (PORT_A, PORT_B), wants_events());
    hosts.run_until("B heard of it", SOON, |hosts| {
        hosts.node(B).app.saw(|event| matches!(event, Event::Restarted(_)))
    });
}

#[test]
fn after_a_restart_very_many_messages_return_in_steps_and_the_next_restart_waits_for_them() {
    let (mut hosts, a, b) = established(14);
    hosts.cut();
    hosts.send_all(B, b, (0..MANY).map(|n| (numbered(n), vec![n as u8; 40].into())));
    assert!(hosts.all_admitted(B));
    restart_of_a(&mut hosts);
    hosts.run_for(SECOND);
    let events = &hosts.app(B).events;
    let returned: Vec<u32> = failures(events).iter().map(|failure| failure.info.context).collect();
    assert_eq!(returned, (0..MANY).collect::<Vec<_>>());
    let restarted = position(events, |event| matches!(event, Event::Restarted(_))).expect("it did");
    assert!(failures(&events[..restarted]).len() <= STEP);
    let _ = a;
}

#[test]
fn data_that_a_restarted_peer_will_never_acknowledge_returns() {
    let (mut hosts, a, b) = established(4);
    hosts.cut();
    hosts.send(B, b, numbered(1), &b"lost"[..]);
    restart_of_a(&mut hosts);
    let events = &hosts.app(B).events;
    let failed = failures(events);
    assert_eq!(failed.iter().map(|failure| failure.data.to_vec()).collect::<Vec<_>>(), [b"lost"]);
    let told = position(events, |event| matches!(event, Event::SendFailed(_)));
    assert!(told < position(events, |event| matches!(event, Event::Restarted(_))));
    let _ = a;
}

/// Data that one side has sent either arrives at the other or returns, with any fault of the line or the association.
#[test]
fn nothing_that_is_sent_is_neither_delivered_nor_reported() {
    // The sender counts non-renegable data as acknowledged, although it does not arrive if the association is lost.
    let settings = AssociationConfig { nr_sack: false, ..wants_events() };
    let message = |n: u32| {
        let mut bytes = n.to_be_bytes().to_vec();
        bytes.resize(4 + (n as usize * 997) % 9000, n as u8);
        Bytes::from(bytes)
    };
    let mut kinds = [0; 3];
    for seed in 0..40 {
        let config = PipeConfig { loss: Loss::Random { probability: 0.05 }, ..line() };
        let mut hosts = TwoHosts::with_line(seed, &config);
        let (a, b) = hosts.establish_with(settings.clone(), settings.clone());
        let lifetime = |n: u32| (n % 5 == 2).then(|| Duration::from_millis(u64::from(n) * 10).into());
        let info = |n: u32| SendInfo { unordered: n % 7 == 6, lifetime: lifetime(n), ..numbered(n) };
        hosts.send_all(A, a, (0..200).map(|n| (info(n), message(n))));
        assert!(hosts.all_admitted(A));
        // The way in which it ends, and the time.
        hosts.run_for(Duration::from_millis(100 + 40 * seed));
        match seed % 4 {
            0 => hosts.cut(),
            1 => hosts.abort(A, a, b""),
            2 => hosts.abort(B, b, b""),
            _ => hosts.shutdown(A, a),
        }
        hosts.run_until("both are closed", Duration::from_secs(100_000), |hosts| {
            [A, B].iter().all(|&n| hosts.node(n).endpoint.association_count() == 0)
        });
        let failed = failures(&hosts.app(A).events);
        let came: Vec<Vec<u8>> = hosts.app(B).records();
        for n in 0..200 {
            let pieces = failed.iter().filter(|failure| failure.info.context == n);
            let unsent: usize = pieces.clone().filter(|p| !p.was_sent).map(|p| p.data.len()).sum();
            let delivered = came.iter().any(|bytes| *bytes == message(n));
            let discarded = unsent == message(n).len();
            assert!(delivered || pieces.count() > 0, "message {n} of seed {seed} vanished");
            assert!(!(delivered && discarded), "message {n} of seed {seed} was discarded and came");
            kinds[if delivered { 0 } else { 1 + usize::from(discarded) }] += 1;
        }
    }
    assert!(kinds.iter().all(|count| *count > 50), "each way is taken: {kinds:?}");
}

#[test]
fn a_message_that_is_not_sent_in_its_lifetime_is_discarded_and_leaves_no_gap() {
    for events in [true, false] {
        let mut hosts = TwoHosts::new(6);
        let config = AssociationConfig { events, ..AssociationConfig::default() };
        let (a, _) = hosts.establish_with(config.clone(), config);
        hosts.cut();
        // More than leaves at once, then one message with a lifetime of a second between two without a lifetime.
        hosts.send(A, a, SendInfo::default(), vec![1; 50_000]);
        let lifetime = Some(SECOND.into());
        hosts.send(A, a, SendInfo { context: 5, lifetime, ..SendInfo::default() }, &b"too late"[..]);
        hosts.send(A, a, SendInfo { stream: 1, ..SendInfo::default() }, &b"on another stream"[..]);
        hosts.send(A, a, SendInfo::default(), &b"last"[..]);
        hosts.run_for(2 * SECOND);
        hosts.untap(A);
        hosts.untap(B);
        hosts.run_until("all came", SOON, |hosts| hosts.node(B).app.messages.len() == 3);
        let came: Vec<_> = hosts.app(B).messages.iter().map(|m| (m.info.stream, m.info.ssn)).collect();
        assert_eq!(came, [(0, 0), (1, 0), (0, 1)]);
        assert_eq!(hosts.app(B).contents()[2], b"last");
        hosts.run_for(SOON);
        let statistics = hosts.statistics(A, a);
        assert_eq!((statistics.messages_expired, statistics.send_buffered_bytes), (1, 0));
        let failed = failures(&hosts.app(A).events);
        assert_eq!(failed.len(), usize::from(events));
        if let Some(failure) = failed.first() {
            assert_eq!((&failure.data[..], failure.info.context), (&b"too late"[..], 5));
            assert_eq!((failure.was_sent, failure.beginning, failure.ending), (false, true, true));
        }
    }
}

/// Returns a peer with a closed window, which an outstanding message of the endpoint probes.
fn with_closed_window(seed: u8) -> Peer {
    let mut peer = Peer::established(seed);
    peer.app_sends(SendInfo::default(), vec![0; 10]);
    peer.hears();
    peer.sends().sack_with(0, 0, &[]).go();
    peer.app_sends(SendInfo::default(), vec![0; 10]);
    while !peer.is_heard() {
        peer.waits(Duration::from_millis(100));
    }
    peer.hears();
    peer
}

#[test]
fn a_lifetime_ends_when_it_ends_and_not_before() {
    let mut peer = with_closed_window(1);
    let expires_at = Some(peer.now + Duration::from_millis(300));
    let lifetime = Some(Duration::from_millis(300).into());
    peer.app_sends(SendInfo { lifetime, ..SendInfo::default() }, &b"in vain"[..]);
    assert!(peer.endpoint.poll_timeout() <= expires_at);
    let events = peer.app.events.len();
    peer.waits(Duration::from_millis(299));
    assert_eq!(peer.app.events.len(), events);
    peer.waits(Duration::from_millis(1));
    let told = &peer.app.events[events].event;
    assert!(matches!(told, Event::SendFailed(failure) if failure.data[..] == b"in vain"[..]));
}

#[test]
fn messages_without_a_lifetime_have_no_timer() {
    let deadline = |lifetime: Option<Lifetime>| {
        let mut peer = with_closed_window(2);
        peer.app_sends(SendInfo { lifetime, ..SendInfo::default() }, &b"x"[..]);
        peer.endpoint.poll_timeout().unwrap() - peer.now
    };
    assert_eq!(deadline(Lifetime::from_ms(1)), Duration::from_millis(1));
    assert!(deadline(None) > Duration::from_millis(1));
}

#[test]
fn messages_begun_before_their_lifetime_ends_are_sent_to_their_end() {
    let (mut hosts, a, _) = established(7);
    hosts.cut();
    let lifetime = Some(SECOND.into());
    hosts.send(A, a, SendInfo { lifetime, ..SendInfo::default() }, vec![7; 100_000]);
    hosts.run_for(3 * SECOND);
    hosts.untap(A);
    hosts.untap(B);
    hosts.run_until("it came", SOON, |hosts| hosts.node(B).app.messages.len() == 1);
    assert_eq!(failures(&hosts.app(A).events), []);
}

#[test]
fn a_lifetime_may_end_before_the_association_is_up() {
    let mut hosts = TwoHosts::new(8);
    hosts.cut();
    hosts.listen(wants_events());
    let a = hosts.connect(A, (PORT_A, PORT_B), wants_events());
    let lifetime = Some(SECOND.into());
    hosts.send(A, a, SendInfo { lifetime, ..SendInfo::default() }, &b"hello?"[..]);
    hosts.run_for(SECOND);
    let failed = failures(&hosts.app(A).events);
    assert_eq!((failed.len(), failed[0].was_sent), (1, false));
    hosts.untap(A);
    hosts.untap(B);
    hosts.run_until("A is up", SOON, |hosts| hosts.is_up(A));
    hosts.run_for(SOON);
    assert!(hosts.app(B).messages.is_empty());
}

#[test]
fn discarded_messages_make_room_and_let_a_shutdown_end() {
    let mut peer = with_closed_window(3);
    let lifetime = Some(SECOND.into());
    // The outstanding data arrives after all; the window stays closed.
    peer.sends().sack_with(1, 0, &[]).go();
    let info = SendInfo { lifetime, ..SendInfo::default() };
    let mut sent = 0;
    while !matches!(peer.endpoint.admit(peer.id, &info, 100_000), Admission::Full) {
        peer.app_sends(info, vec![1; 100_000]);
        sent += 1;
    }
    peer.app_shuts_down();
    peer.waits(Duration::from_millis(999));
    let writable = |peer: &Peer| peer.app.saw(|event| *event == Event::Writable);
    assert!(!writable(&peer) && !peer.is_heard());
    peer.waits(Duration::from_millis(1));
    assert!(writable(&peer));
    let failed = failures(&peer.app.events);
    assert_eq!(failed.iter().filter(|failure| failure.beginning).count(), sent);
    assert!(has(&peer.hears(), Shutdown::KIND));
}

#[test]
fn where_there_is_no_room_to_say_so_a_message_is_sent_late() {
    let config = AssociationConfig {
        receive_buffer_bytes: 2000,
        receive_buffer_tuned_bytes: 0,
        ..AssociationConfig::default()
    };
    let mut peer = Peer::established_with(9, config);
    peer.app.set_reading(Reading::Never);
    peer.app_sends(SendInfo::default(), vec![0; 10]);
    peer.hears();
    peer.sends().sack_with(0, 0, &[]).go();
    for n in 0..9 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[1; 500]).go();
    }
    while peer.hears_maybe().is_some() {}
    // The first one probes the window.
    for n in 1..=2 {
        let lifetime = Some(Duration::from_millis(10).into());
        peer.app_sends(SendInfo { lifetime, context: n, ..SendInfo::default() }, vec![n as u8; 10]);
    }
    peer.waits(Duration::from_millis(20));
    assert_eq!(failures(&peer.app.events), []);
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().messages_expired, 0);
}

#[test]
fn the_reader_of_an_unfinished_record_hears_that_it_has_no_end() {
    let part = SendInfo { stream: 4, more: true, ..SendInfo::default() };
    let aborted = |stream, ssn| Event::PartialDeliveryAborted { stream, ssn };
    for end in ["abort", "shutdown", "restart"] {
        let (mut hosts, a, b) = established(10);
        hosts.send(A, a, SendInfo { stream: 4, ..SendInfo::default() }, &b"whole"[..]);
        hosts.send(A, a, part, &b"begun"[..]);
        hosts.run_for(SECOND);
        assert!(hosts.app(B).messages.last().unwrap().info.more);
        match end {
            "abort" => hosts.abort(A, a, b""),
            "shutdown" => hosts.shutdown(A, a),
            _ => {
                hosts.reboot(A);
                hosts.connect(A, (PORT_A, PORT_B), wants_events());
            }
        }
        hosts.run_for(SECOND);
        let events = &hosts.app(B).events;
        let told = position(events, |event| *event == aborted(4, 1)).expect(end);
        let next = &events[told + 1].event;
        assert!(
            matches!(next, Event::Lost { .. } | Event::PeerShutdown | Event::Restarted(_)),
            "{end}: {next:?}"
        );
        let again = events.iter().filter(|happened| happened.event == aborted(4, 1)).count();
        assert_eq!(again, 1, "{end}");
        let _ = b;
    }
}
