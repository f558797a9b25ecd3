//! Retransmission of lost packets: by gap reports, by T3, and again if the retransmission is lost (RFC 9260 §6.3, §7.2.4).

use std::time::Duration;

use bytes::Bytes;
use sctp::{AssociationConfig, SendInfo};
use sctp_wire::chunk::SackBuilder;

use lab::packets::data_of;
use lab::script::{Peer, plain};
use lab::{A, B, Fate, TwoHosts};

const LONG: Duration = Duration::from_secs(60);

fn message(n: u32) -> Bytes {
    let mut bytes = n.to_be_bytes().to_vec();
    bytes.resize(1000, n as u8);
    bytes.into()
}

fn sends(hosts: &mut TwoHosts, count: u32) -> sctp::AssociationId {
    let (a, _) = hosts.establish();
    hosts.send_all(A, a, (0..count).map(|n| (SendInfo::default(), message(n))));
    a
}

fn all_arrive(hosts: &mut TwoHosts, count: u32) {
    hosts.run_until("all arrived", LONG, |hosts| hosts.node(B).app.messages.len() == count as usize);
    assert!((0..count).zip(&hosts.app(B).messages).all(|(n, m)| m.bytes == message(n)));
}

/// Drops the transmissions of one message that `lost` selects, counted from 0.
fn lose(number: u32, lost: &'static [u32]) -> impl FnMut(&Bytes) -> Fate + Send + 'static {
    let mut seen = 0;
    move |packet| {
        if data_of(packet).iter().any(|d| d.payload.starts_with(&number.to_be_bytes())) {
            seen += 1;
            if lost.contains(&(seen - 1)) {
                return Fate::Drop;
            }
        }
        Fate::Pass
    }
}

#[test]
fn one_lost_packet_is_repaired_without_a_timeout() {
    let mut hosts = TwoHosts::new(1);
    hosts.tap(A, lose(50, &[0]));
    let a = sends(&mut hosts, 200);
    all_arrive(&mut hosts, 200);
    let statistics = hosts.statistics(A, a);
    assert_eq!((statistics.timeouts, statistics.fast_recoveries), (0, 1));
    assert!(statistics.data_chunks_retransmitted <= 2, "{statistics:?}");
}

#[test]
fn a_lost_retransmission_is_repaired_without_a_timeout() {
    let mut hosts = TwoHosts::new(2);
    hosts.tap(A, lose(50, &[0, 1]));
    let a = sends(&mut hosts, 400);
    all_arrive(&mut hosts, 400);
    let statistics = hosts.statistics(A, a);
    assert_eq!(statistics.timeouts, 0, "{}", hosts.log());
}

/// Round-trip time of the line.
const RTT: Duration = Duration::from_millis(20);

#[test]
fn the_lost_end_of_a_burst_is_there_within_three_round_trips() {
    let mut hosts = TwoHosts::new(3);
    hosts.tap(A, lose(7, &[0]));
    let (a, _) = hosts.establish();
    hosts.send_all(A, a, (0..4).map(|n| (SendInfo::default(), message(n))));
    all_arrive(&mut hosts, 4);
    hosts.run_for(Duration::from_secs(1));
    let start = hosts.now();
    hosts.send_all(A, a, (4..8).map(|n| (SendInfo::default(), message(n))));
    all_arrive(&mut hosts, 8);
    assert!(hosts.now() - start < 3 * RTT, "{:?}", hosts.now() - start);
    let statistics = hosts.statistics(A, a);
    assert_eq!((statistics.timeouts, statistics.tail_probes), (0, 1));
}

#[test]
fn a_probe_that_is_lost_is_followed_by_others_and_then_by_a_heartbeat() {
    let mut hosts = TwoHosts::new(3);
    hosts.tap(A, lose(1, &[0, 1, 2, 3]));
    let (a, _) = hosts.establish();
    for n in 0..2 {
        hosts.send(A, a, SendInfo::default(), message(n));
        hosts.run_for(Duration::from_millis(500));
    }
    all_arrive(&mut hosts, 2);
    // The answer to the heartbeat causes another probe.
    let statistics = hosts.statistics(A, a);
    assert_eq!((statistics.timeouts, statistics.tail_probes, statistics.paths[0].early_failovers), (0, 4, 1));
}

#[test]
fn a_retransmission_by_timer_that_is_lost_comes_after_twice_the_time() {
    let mut hosts = TwoHosts::new(4);
    hosts.tap(A, lose(0, &[0, 1, 2]));
    let (a, _) = hosts.establish_with(plain(), plain());
    hosts.send(A, a, SendInfo::default(), message(0));
    all_arrive(&mut hosts, 1);
    assert_eq!(hosts.statistics(A, a).timeouts, 3);
    let times: Vec<_> = hosts.sent.iter().filter(|s| !data_of(&s.packet).is_empty()).map(|s| s.at).collect();
    let steps: Vec<_> = times.windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(steps, [1, 2, 4].map(Duration::from_secs));
}

#[test]
fn everything_lost_is_repaired_after_a_timeout_from_one_packet_up() {
    let mut hosts = TwoHosts::new(5);
    let config = AssociationConfig { early_failover: false, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(config.clone(), config);
    // The whole first window is lost.
    hosts.tap(A, |_| Fate::Drop);
    hosts.send_all(A, a, (0..100).map(|n| (SendInfo::default(), message(n))));
    hosts.run_for(Duration::from_millis(500));
    let first = hosts.sent.len();
    hosts.untap(A);
    hosts.run_until("T3 expired", LONG, |hosts| hosts.sent.len() > first);
    assert_eq!(hosts.sent.len() - first, 1, "the window is one packet (RFC 9260 §7.2.3)");
    all_arrive(&mut hosts, 100);
    assert_eq!(hosts.statistics(A, a).timeouts, 1);
}

#[test]
fn a_line_that_was_cut_for_a_while_goes_on() {
    let mut hosts = TwoHosts::new(6);
    let (a, _) = hosts.establish();
    hosts.send_all(A, a, (0..3000).map(|n| (SendInfo::default(), message(n))));
    hosts.run_for(Duration::from_millis(60));
    hosts.cut();
    hosts.run_for(Duration::from_secs(4));
    hosts.untap(A);
    hosts.untap(B);
    all_arrive(&mut hosts, 3000);
}

#[test]
fn lost_sacks_are_made_good_by_later_ones() {
    let mut hosts = TwoHosts::new(7);
    let mut number = 0;
    hosts.tap(B, move |_| {
        number += 1;
        if number > 2 && number % 3 != 0 { Fate::Drop } else { Fate::Pass }
    });
    let a = sends(&mut hosts, 500);
    all_arrive(&mut hosts, 500);
    hosts.run_for(Duration::from_secs(3));
    assert_eq!(hosts.statistics(A, a).outstanding_bytes, 0);
    assert!(hosts.statistics(A, a).data_chunks_retransmitted < 10);
}

#[test]
fn a_packet_overtaken_by_two_costs_nothing() {
    let mut hosts = TwoHosts::new(8);
    let mut number = 0;
    hosts.tap(A, move |_| {
        number += 1;
        if number % 20 == 19 { Fate::Behind(2) } else { Fate::Pass }
    });
    let a = sends(&mut hosts, 500);
    all_arrive(&mut hosts, 500);
    assert_eq!(hosts.statistics(A, a).data_chunks_retransmitted, 0);
}

/// Sends single chunks, each in a packet of its own.
fn outstanding(seed: u8, count: u8) -> Peer {
    let mut peer = Peer::established(seed);
    for n in 0..count {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
        peer.expects(&format!("DATA {n}"));
    }
    peer
}

#[test]
fn three_packets_beyond_make_a_chunk_lost() {
    let mut peer = outstanding(9, 5);
    peer.sends().sack(-1, &[(2, 2)]).go();
    peer.sends().sack(-1, &[(2, 3)]).go();
    peer.expects_nothing();
    peer.sends().sack(-1, &[(2, 4)]).go();
    peer.expects("DATA 0");
    peer.sends().sack(-1, &[(2, 5)]).go();
    peer.expects_nothing();
    peer.sends().sack(4, &[]).go();
    peer.waits(Duration::from_secs(5));
    peer.expects_nothing();
}

#[test]
fn a_fast_retransmission_ignores_the_congestion_window_for_one_packet() {
    // RFC 9260 §7.2.4, 3.
    let mut peer = Peer::established(10);
    for n in 0..12 {
        peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 1400, [vec![n; 1400].into()]).unwrap();
    }
    peer.collect_output();
    for n in 0..4 {
        assert_eq!(data_of(&peer.hears())[0].payload[0], n);
    }
    peer.expects_nothing();
    // Four packets in flight fill the window; the peer reports three beyond the first.
    peer.sends().sack(-1, &[(2, 4)]).go();
    peer.expects("DATA 0");
}

#[test]
fn a_retransmission_of_the_first_chunk_restarts_the_timer() {
    // RFC 9260 §6.1: when the earliest outstanding chunk is sent again.
    let mut peer = outstanding(11, 4);
    peer.waits(Duration::from_millis(300));
    peer.sends().sack(-1, &[(2, 4)]).go();
    peer.expects("DATA 0");
    peer.waits(Duration::from_millis(900));
    while peer.hears_maybe().is_some() {}
    peer.waits(Duration::from_millis(200));
    peer.expects("DATA 0");
}

#[test]
fn a_lost_chunk_comes_again_though_the_window_is_full() {
    // RFC 9260 §6.2.1 C: chunks marked for retransmission take no window.
    let mut peer = Peer::established(12);
    peer.sends().sack_with(-1, 500, &[]).go();
    for n in 0..5 {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
        peer.expects(&format!("DATA {n}"));
    }
    peer.app_sends(SendInfo::default(), vec![5; 100]);
    peer.expects_nothing();
    peer.sends().sack_with(-1, 100, &[(2, 5)]).go();
    peer.expects("DATA 0");
}

#[test]
fn a_timeout_sends_the_earliest_chunks_in_one_packet() {
    let mut peer = outstanding(13, 5);
    peer.waits(Duration::from_secs(1));
    peer.expects("DATA 0, DATA 1, DATA 2, DATA 3, DATA 4");
    peer.waits(Duration::from_millis(1999));
    peer.expects_nothing();
    peer.waits(Duration::from_millis(1));
    peer.expects("DATA 0, DATA 1, DATA 2, DATA 3, DATA 4");
}

#[test]
fn t3_retransmissions_get_no_tail_loss_probe_although_an_earlier_packet_arrives() {
    // RFC 8985 §7.2. The SACK of an earlier packet otherwise permits probes.
    let mut peer = Peer::established_with(14, AssociationConfig { tail_loss_probes: true, ..plain() });
    peer.app_sends(SendInfo::default(), vec![0; 100]);
    peer.expects("DATA 0");
    peer.waits(Duration::from_millis(100));
    peer.sends().sack(0, &[]).go();
    for n in 1..3 {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
        peer.expects(&format!("DATA {n}"));
    }
    peer.sends().sack(0, &[(2, 2)]).go();
    let timeouts = |peer: &Peer| peer.endpoint.statistics(peer.id).expect("it is up").timeouts;
    while timeouts(&peer) == 0 {
        peer.waits(Duration::from_millis(10));
        while let Some(packet) = peer.hears_maybe() {
            assert_eq!(data_of(&packet)[0].payload[0], 1);
        }
    }
    // The peer has dropped chunk 2 and receives the packet that carried it again.
    peer.sends().sack(0, &[]).go();
    peer.sends().sack(0, &[(2, 2)]).go();
    peer.waits(Duration::from_millis(1900));
    peer.expects_nothing();
    peer.waits(Duration::from_millis(100));
    peer.expects("DATA 1");
}

#[test]
fn the_window_grows_again_while_what_an_outage_lost_is_repaired() {
    let mut hosts = TwoHosts::new(12);
    let (a, _) = hosts.establish();
    hosts.send_all(A, a, (0..400).map(|n| (SendInfo::default(), message(n))));
    hosts.run_until("it flows", LONG, |hosts| hosts.node(B).app.messages.len() > 20);
    hosts.tap(A, |_| Fate::Drop);
    hosts.run_until("a timeout", LONG, |hosts| hosts.statistics(A, a).timeouts == 2);
    hosts.untap(A);
    let start = hosts.now();
    all_arrive(&mut hosts, 400);
    // One packet leaves at a time until the first SACK, and the peer delays that.
    let took = hosts.now() - start;
    assert!(took < Duration::from_millis(5500), "{took:?} {:?}", hosts.statistics(A, a));
}

fn cwnd(peer: &Peer) -> usize {
    peer.endpoint.statistics(peer.id).unwrap().paths[0].cwnd_bytes
}

/// Maximum number of rounds of 40 messages in which a window of twenty packets must be reached.
const ROUNDS_MAX: usize = 20;

/// The peer answers after a moment; its window has grown to twenty packets, and three of one chunk each are in flight. Returns
/// the number of the first of those.
fn three_packets(seed: u8) -> (Peer, i32) {
    let mut peer = Peer::established(seed);
    let mut sent = 0;
    for round in 0.. {
        let cwnd_bytes = cwnd(&peer);
        if cwnd_bytes >= 20 * 1500 {
            break;
        }
        assert!(round < ROUNDS_MAX, "the window no longer grows: {cwnd_bytes} bytes");
        for _ in 0..40 {
            peer.app_sends(SendInfo::default(), vec![0; 1400]);
        }
        for step in 0.. {
            peer.waits(Duration::from_millis(20));
            let packets = std::iter::from_fn(|| peer.hears_maybe());
            let chunks: usize = packets.map(|packet| data_of(&packet).len()).sum();
            if chunks == 0 {
                break;
            }
            assert!(step < 40 * ROUNDS_MAX, "more chunks than messages: {sent}");
            sent += chunks as i32;
            peer.sends().sack(sent - 1, &[]).go();
        }
    }
    for _ in 0..3 {
        peer.app_sends(SendInfo::default(), vec![0; 1400]);
    }
    while peer.hears_maybe().is_some() {}
    (peer, sent)
}

#[test]
fn a_timeout_that_was_too_quick_is_taken_back() {
    // RFC 5682: chunks that were not sent again have arrived, so nothing was lost.
    let (mut peer, first) = three_packets(14);
    let before = cwnd(&peer);
    peer.waits(Duration::from_secs(1));
    peer.expects(&format!("DATA {first}"));
    assert!(cwnd(&peer) < before);
    peer.waits(Duration::from_millis(1));
    peer.sends().sack(first + 1, &[]).go();
    assert!(cwnd(&peer) >= before);
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().reductions_undone, 1);
    // The rest is on its way.
    peer.expects_nothing();
}

#[test]
fn a_loss_that_was_a_delay_is_taken_back() {
    // RFC 3708: the peer received the retransmitted chunks twice. Duplicates of others are the work of the network.
    for (duplicate, undone) in [(0, 1), (1, 0)] {
        let (mut peer, first) = three_packets(15);
        let before = cwnd(&peer);
        for _ in 0..2 {
            peer.app_sends(SendInfo::default(), vec![0; 1400]);
        }
        while peer.hears_maybe().is_some() {}
        peer.waits(Duration::from_millis(20));
        peer.sends().sack(first - 1, &[(2, 5)]).go();
        peer.expects(&format!("DATA {first}"));
        assert!(cwnd(&peer) < before);
        let (cum_tsn, duplicate) = (peer.endpoint_tsn(first + 4), peer.endpoint_tsn(first + duplicate));
        let sack = SackBuilder { cum_tsn, a_rwnd: 100_000, gap_blocks: &[], duplicates: &[duplicate] };
        peer.sends().chunk(|_, out| sack.write(out)).go();
        assert_eq!(cwnd(&peer) >= before, undone == 1);
        assert_eq!(peer.endpoint.statistics(peer.id).unwrap().reductions_undone, undone);
    }
}
