//! The receive window closes, opens again, and bounds memory (RFC 9260 §6.1 A, §6.2).

use std::time::Duration;

use bytes::Bytes;
use sctp::config::{OVERHEAD_FREE_BYTES, RECEIVED_OVERHEAD_BYTES};
use sctp::{AssociationConfig, SendInfo};
use sctp_wire::chunk::{CookieEcho, DataFlags, Init};

use lab::packets::{data_of, sack_of};
use lab::script::{self, Peer};
use lab::{A, B, Fate, Reading, TwoHosts};

const BUFFER_BYTES: usize = 64 << 10;
/// Charge of a message of 1,000 bytes: the overhead of few messages is free.
const TAKEN_BYTES: usize = 1000;
/// Limit of the held memory: overhead is not part of the window.
const HELD_BYTES_MAX: usize = 2 * BUFFER_BYTES + OVERHEAD_FREE_BYTES + 2 * 1472;

fn small_buffer() -> AssociationConfig {
    AssociationConfig { receive_buffer_bytes: BUFFER_BYTES, ..AssociationConfig::default() }
}

fn messages(count: usize, bytes: usize) -> impl Iterator<Item = (SendInfo, Bytes)> {
    (0..count).map(move |n| (SendInfo::default(), vec![n as u8; bytes].into()))
}

/// Returns the most that the receiver ever held, measured after every step.
fn held_max(hosts: &mut TwoHosts, b: sctp::AssociationId, time: Duration) -> u64 {
    let mut held = 0;
    let end = hosts.now() + time;
    while hosts.now() < end {
        hosts.run_for(Duration::from_millis(1));
        if let Some(statistics) = hosts.node(B).endpoint.statistics(b) {
            held = held.max(statistics.receive_buffered_bytes);
        }
    }
    held
}

#[test]
fn a_reader_that_stops_stops_the_sender_and_one_that_goes_on_starts_it() {
    for bytes in [1, 100, 1000, 5000] {
        let mut hosts = TwoHosts::new(bytes as u64);
        let (a, b) = hosts.establish_with(AssociationConfig::default(), small_buffer());
        hosts.app(B).set_reading(Reading::Never);
        let count = 4 * BUFFER_BYTES / bytes.max(32);
        hosts.send_all(A, a, messages(count, bytes));
        let held = held_max(&mut hosts, b, Duration::from_secs(3));
        assert!(held <= HELD_BYTES_MAX as u64, "{held} bytes held of messages of {bytes}");
        assert!(hosts.node(B).app.messages.len() < count, "all of {count} messages of {bytes}");
        let unread =
            hosts.node(B).app.unread_bytes() + RECEIVED_OVERHEAD_BYTES * hosts.node(B).app.messages.len();
        let held = hosts.statistics(B, b).receive_buffered_bytes as usize;
        // Half of a message of several packets may be there.
        assert!(held == unread || (bytes > 1472 && held > unread), "{held} {unread}");
        hosts.app(B).set_reading(Reading::AtOnce);
        let start = hosts.now();
        hosts.run_until("all arrived", Duration::from_secs(20), |hosts| {
            hosts.node(B).app.messages.len() == count
        });
        assert!(hosts.now() - start < Duration::from_secs(2), "the window update was enough, {bytes}");
        assert_eq!(hosts.statistics(B, b).receive_buffered_bytes, 0);
    }
}

#[test]
fn a_lost_window_update_is_made_good_by_a_probe() {
    let mut hosts = TwoHosts::new(2);
    let (a, _) = hosts.establish_with(AssociationConfig::default(), small_buffer());
    hosts.app(B).set_reading(Reading::Never);
    hosts.send_all(A, a, messages(200, 1000));
    hosts.run_for(Duration::from_secs(3));
    hosts.tap(B, |_| Fate::Drop);
    hosts.app(B).set_reading(Reading::AtOnce);
    hosts.run_for(Duration::from_millis(100));
    hosts.untap(B);
    hosts.run_until("all arrived", Duration::from_secs(60), |hosts| hosts.node(B).app.messages.len() == 200);
}

#[test]
fn a_reader_that_never_reads_does_not_end_the_association() {
    // RFC 9260 §6.1 A: probes that the peer answers are no errors.
    let mut hosts = TwoHosts::new(3);
    let (a, _) = hosts.establish_with(AssociationConfig::default(), small_buffer());
    hosts.app(B).set_reading(Reading::Never);
    hosts.send_all(A, a, messages(200, 1000));
    hosts.run_for(Duration::from_secs(3600));
    assert_eq!((hosts.closed(A), hosts.closed(B)), (None, None));
    hosts.app(B).set_reading(Reading::AtOnce);
    hosts.run_until("all arrived", Duration::from_secs(120), |hosts| hosts.node(B).app.messages.len() == 200);
}

#[test]
fn probes_of_a_closed_window_come_ever_more_rarely() {
    let mut hosts = TwoHosts::new(4);
    let (a, _) = hosts.establish_with(AssociationConfig::default(), small_buffer());
    hosts.app(B).set_reading(Reading::Never);
    hosts.send_all(A, a, messages(200, 1000));
    hosts.run_for(Duration::from_secs(2));
    let before = hosts.sent.len();
    hosts.run_for(Duration::from_secs(120));
    let probes = hosts.sent[before..].iter().filter(|s| !data_of(&s.packet).is_empty()).count();
    assert!((1..10).contains(&probes), "{probes} probes in two minutes\n{}", hosts.log());
}

#[test]
fn a_slow_reader_gets_everything_in_bounded_memory() {
    let mut hosts = TwoHosts::new(5);
    let (a, b) = hosts.establish_with(AssociationConfig::default(), small_buffer());
    hosts.app(B).set_reading(Reading::Every(Duration::from_millis(2)));
    hosts.send_all(A, a, messages(2000, 500));
    let held = held_max(&mut hosts, b, Duration::from_secs(5));
    assert!(held <= HELD_BYTES_MAX as u64, "{held}");
    assert_eq!(hosts.node(B).app.messages.len(), 2000);
    assert_eq!(hosts.app(B).unread_bytes(), 0);
    assert_eq!(hosts.statistics(A, a).timeouts, 0);
}

#[test]
fn the_window_counts_what_is_not_read() {
    let mut peer = Peer::established_with(6, small_buffer());
    peer.app.set_reading(Reading::Never);
    let first = {
        peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, &[1; 1000]).go();
        sack_of(&peer.hears()).unwrap().a_rwnd as usize
    };
    assert_eq!(first, BUFFER_BYTES - TAKEN_BYTES);
}

#[test]
fn room_that_is_not_worth_a_packet_is_not_advertised() {
    // RFC 9260 §6.2: the receiver's half of silly window avoidance.
    let mut peer = Peer::established_with(10, small_buffer());
    peer.app.set_reading(Reading::Never);
    let mut next = 0;
    let mut sends = |peer: &mut Peer| {
        let at_once = DataFlags { immediate: true, ..DataFlags::WHOLE };
        peer.sends().data_with(at_once, next, 0, next as u16, &[1; 1000]).go();
        next += 1;
        sack_of(&peer.hears()).unwrap().a_rwnd as usize
    };
    let mut window = sends(&mut peer);
    while window >= 2000 {
        let now = sends(&mut peer);
        assert_eq!(now, window - TAKEN_BYTES);
        window = now;
    }
    // The reader takes one message, and another arrives: the window does not grow.
    let id = peer.id;
    peer.endpoint.consumed(id, 1000, 1);
    assert_eq!(sends(&mut peer), window - 1000, "the edge of the window stays where it was");
    // When the reader has taken a packet's worth, the window grows.
    peer.endpoint.consumed(id, 1000, 1);
    peer.endpoint.consumed(id, 1000, 1);
    assert_eq!(sends(&mut peer), window + TAKEN_BYTES);
}

#[test]
fn a_sender_does_not_go_beyond_the_window() {
    let mut peer = Peer::established(7);
    peer.sends().sack_with(-1, 250, &[]).go();
    for n in 0..5 {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
    }
    peer.expects("DATA 0");
    peer.expects("DATA 1");
    peer.expects_nothing();
    peer.sends().sack_with(0, 250, &[]).go();
    peer.expects("DATA 2");
    peer.expects_nothing();
    peer.sends().sack_with(2, 1000, &[]).go();
    peer.expects("DATA 3, DATA 4");
}

#[test]
fn a_closed_window_is_probed_after_one_timeout() {
    // RFC 9260 §6.1 A.
    let mut peer = Peer::established(8);
    peer.sends().sack_with(-1, 0, &[]).go();
    peer.app_sends(SendInfo::default(), vec![0; 100]);
    peer.app_sends(SendInfo::default(), vec![1; 100]);
    peer.expects_nothing();
    peer.waits(Duration::from_millis(999));
    peer.expects_nothing();
    peer.waits(Duration::from_millis(1));
    peer.expects("DATA 0");
    // The peer has no room for it yet.
    for ms in [1000, 2000, 4000] {
        peer.sends().sack_with(-1, 0, &[]).go();
        peer.waits(Duration::from_millis(ms - 1));
        peer.expects_nothing();
        peer.waits(Duration::from_millis(1));
        peer.expects("DATA 0");
    }
    // The peer has room, and the probe is sent again without waiting for its timer.
    peer.sends().sack_with(-1, 0, &[]).go();
    peer.sends().sack_with(-1, 1000, &[]).go();
    peer.expects("DATA 0, DATA 1");
}

#[test]
fn a_probe_that_the_peer_has_refused_is_repeated_by_t3_alone() {
    let round_trip = Duration::from_millis(20);
    for is_refused in [true, false] {
        let mut peer =
            Peer::established_with(11, AssociationConfig { tail_loss_probes: true, ..script::plain() });
        // Tail loss probes need a measured round trip.
        peer.app_sends(SendInfo::default(), vec![0; 100]);
        peer.expects("DATA 0");
        peer.waits(round_trip);
        peer.sends().sack_with(0, 0, &[]).go();
        peer.app_sends(SendInfo::default(), vec![1; 100]);
        peer.waits(Duration::from_millis(1000));
        peer.expects("DATA 1");
        if !is_refused {
            peer.waits(Duration::from_millis(999));
            peer.expects("DATA 1");
            continue;
        }
        for ms in [1000, 2000, 4000] {
            peer.waits(round_trip);
            peer.sends().sack_with(0, 0, &[]).go();
            peer.waits(Duration::from_millis(ms - 1) - round_trip);
            peer.expects_nothing();
            peer.waits(Duration::from_millis(1));
            peer.expects("DATA 1");
        }
        // The window opens.
        peer.sends().sack_with(0, 0, &[]).go();
        peer.sends().sack_with(0, 1000, &[]).go();
        peer.expects("DATA 1");
    }
}

#[test]
fn a_peer_that_drops_what_its_window_allowed_and_closes_it_is_not_given_up() {
    // RFC 9260 §6.1 A: the peer answers each retransmission, so it is there. Association.Max.Retrans is 10.
    const EXPIRIES: usize = 14;
    for answers in [true, false] {
        let mut peer = Peer::established(15);
        for n in 0..3 {
            peer.app_sends(SendInfo::default(), vec![n; 100]);
            peer.expects(&format!("DATA {n}"));
        }
        peer.sends().sack_with(-1, 0, &[]).go();
        let mut retransmissions = 0;
        for _ in 0..EXPIRIES {
            peer.waits(Duration::from_secs(60));
            while let Some(packet) = peer.hears_maybe() {
                retransmissions += usize::from(!data_of(&packet).is_empty());
            }
            if answers {
                peer.sends().sack_with(-1, 0, &[]).go();
            }
        }
        assert_eq!(peer.endpoint.statistics(peer.id).is_some(), answers, "{retransmissions} retransmissions");
        if answers {
            assert!(retransmissions >= EXPIRIES, "{retransmissions} retransmissions");
            peer.sends().sack_with(-1, 1000, &[]).go();
            peer.expects("DATA 0");
            peer.sends().sack_with(0, 1000, &[]).go();
            peer.expects("DATA 1, DATA 2");
        }
    }
}

#[test]
fn a_window_update_repeats_the_refused_probe_of_a_message_longer_than_the_window() {
    const WINDOW_BYTES: u32 = 8192;
    let mut peer = Peer::new(12, script::plain());
    peer.app.hints.mtu_bytes = 65_000;
    peer.sends().tag(0).chunk(|p, out| Init { a_rwnd: WINDOW_BYTES, ..p.init() }.write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer.app_sends(SendInfo::default(), vec![1; 60_000]);
    peer.expects("DATA 0");
    peer.sends().sack_with(0, 0, &[]).go();
    // The peer has no room for the probe, nor for its retransmission by T3.
    for ms in [1000, 1000, 2000] {
        peer.expects_nothing();
        peer.waits(Duration::from_millis(ms));
        let probe = peer.hears();
        let [data] = data_of(&probe).try_into().expect("one chunk");
        assert_eq!(data.tsn, peer.endpoint_tsn(1).0);
        // A window is announced from a quarter of the buffer on.
        assert!(data.payload.len() <= WINDOW_BYTES as usize / 4, "{} bytes", data.payload.len());
        peer.sends().sack_with(0, 0, &[]).go();
    }
    peer.sends().sack_with(0, WINDOW_BYTES / 4, &[]).go();
    peer.expects("DATA 1");
    peer.sends().sack_with(1, WINDOW_BYTES, &[]).go();
    peer.expects("DATA 2");
}

#[test]
fn half_a_message_in_the_buffer_does_not_hold_window_updates_back() {
    let config =
        AssociationConfig { receive_buffer_bytes: 2000, receive_buffer_tuned_bytes: 0, ..script::plain() };
    let mut peer = Peer::established_with(13, config);
    // The application reads the message, but not the beginning of the next one, which is too short to be delivered.
    let beginning = DataFlags { ending: false, ..DataFlags::WHOLE };
    peer.sends()
        .data_with(DataFlags::WHOLE, 0, 0, 0, &[1; 700])
        .data_with(beginning, 1, 0, 1, &[2; 900])
        .go();
    assert_eq!(sack_of(&peer.hears()).expect("a SACK").a_rwnd, 1100);
}

#[test]
fn a_packet_that_leaves_little_of_the_window_is_acknowledged_at_once() {
    const SMALL_BUFFER_BYTES: usize = 4096;
    let config = AssociationConfig {
        receive_buffer_bytes: SMALL_BUFFER_BYTES,
        receive_buffer_tuned_bytes: 0,
        ..script::plain()
    };
    for (left_bytes, at_once) in [(SMALL_BUFFER_BYTES / 2, false), (SMALL_BUFFER_BYTES / 2 - 4, true)] {
        let mut peer = Peer::established_with(14, config.clone());
        // The first packets of an association are acknowledged at once in any case.
        let mut window_bytes = 0;
        for n in 0..8 {
            peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[1; 4]).go();
            window_bytes = sack_of(&peer.hears()).expect("a SACK").a_rwnd as usize;
        }
        peer.app.set_reading(Reading::Never);
        peer.sends().data_with(DataFlags::WHOLE, 8, 0, 8, &vec![1; window_bytes - left_bytes]).go();
        assert_eq!(peer.hears_maybe().is_some(), at_once, "{left_bytes} bytes left");
    }
}

#[test]
fn a_small_buffer_keeps_a_window_of_short_messages() {
    const SMALL_BUFFER_BYTES: usize = 4608;
    const MESSAGE_BYTES: usize = 4;
    let config = AssociationConfig {
        receive_buffer_bytes: SMALL_BUFFER_BYTES,
        receive_buffer_tuned_bytes: 0,
        ..script::plain()
    };
    let mut peer = Peer::established_with(16, config);
    peer.app.set_reading(Reading::Never);
    let count = (SMALL_BUFFER_BYTES / MESSAGE_BYTES) as u32;
    // The peer sends all that the first window allows before it hears of a narrower one.
    for n in 0..count {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[1; MESSAGE_BYTES]).go();
    }
    peer.waits(Duration::from_secs(1));
    let dropped = peer.endpoint.statistics(peer.id).expect("it is open").data_chunks_dropped;
    assert_eq!(dropped, 0);
}

#[test]
fn an_opened_window_ends_the_wait_for_a_probe() {
    let mut peer = Peer::established(9);
    peer.sends().sack_with(-1, 0, &[]).go();
    peer.app_sends(SendInfo::default(), vec![0; 100]);
    peer.waits(Duration::from_millis(500));
    peer.sends().sack_with(-1, 1000, &[]).go();
    peer.expects("DATA 0");
}
