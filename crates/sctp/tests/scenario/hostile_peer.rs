//! A peer that lies about what it received, about gaps and about windows; and floods that must leave no state.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sctp::config::{OVERHEAD_FREE_BYTES, PEER_ADDRESSES_MAX, RECEIVED_OVERHEAD_BYTES, REPLIES_MAX};
use sctp::{AssociationConfig, CloseReason, Event, Scope, SendInfo, TransmitBuffer};
use sctp_wire::Packet;
use sctp_wire::chunk::{CookieEcho, DataFlags, Heartbeat, HeartbeatAck, InitAck, Shutdown};

use lab::packets::{build, kinds, write_data, write_sack};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};

const FRAGMENT: DataFlags = DataFlags { beginning: false, ending: false, immediate: false, unordered: false };

fn outstanding(seed: u8, count: u8) -> Peer {
    let mut peer = Peer::established(seed);
    for n in 0..count {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
        let _ = peer.hears();
    }
    peer
}

#[test]
fn a_sack_for_data_that_was_never_sent_ends_the_association() {
    // RFC 9260 §6.2.1 leaves it open; nothing that such a peer reports can be trusted.
    for beyond in [3, 4, 1000, i32::MAX - 10] {
        let mut peer = outstanding(1, 3);
        peer.sends().sack(beyond, &[]).go();
        peer.expects("ABORT");
        assert!(peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::ProtocolViolation { .. }))));
    }
}

#[test]
fn old_sacks_change_nothing() {
    let mut peer = outstanding(2, 3);
    peer.sends().sack(1, &[]).go();
    let before = peer.endpoint.statistics(peer.id).unwrap();
    for old in [0, -1, -2, -1000, i32::MIN + 10] {
        peer.sends().sack_with(old, 7, &[(2, 3)]).go();
    }
    peer.expects_nothing();
    let after = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!(
        (after.outstanding_bytes, after.peer_window_bytes),
        (before.outstanding_bytes, before.peer_window_bytes)
    );
}

#[test]
fn absurd_gap_blocks_are_harmless() {
    let blocks: [&[(u16, u16)]; 9] = [
        &[(0, 0)],
        &[(0, u16::MAX)],
        &[(u16::MAX, u16::MAX)],
        &[(5, 2)],
        &[(2, 3), (2, 3), (2, 3)],
        &[(2, 4), (3, 5), (1, 2)],
        &[(4, 4), (2, 2)],
        &[(1, 1)],
        &[(3, 60_000), (60_001, 65_535)],
    ];
    for (seed, gaps) in (10..).zip(blocks) {
        let mut peer = outstanding(seed, 5);
        peer.sends().sack(-1, gaps).go();
        // Every message still leaves the buffer, once.
        peer.sends().sack(4, &[]).go();
        let statistics = peer.endpoint.statistics(peer.id).unwrap();
        assert_eq!((statistics.outstanding_bytes, statistics.send_buffered_bytes), (0, 0), "{gaps:?}");
        assert!(statistics.paths[0].in_flight_bytes == 0);
        peer.app_sends(SendInfo::default(), &b"go on"[..]);
        assert!(!peer.hears().is_empty());
    }
}

#[test]
fn gap_blocks_in_every_combination_keep_the_books() {
    // The test compares the counters with a recount after every packet.
    for pattern in 0u32..1 << 8 {
        let mut peer = outstanding(30, 5);
        let range = |bits: u32| ((bits & 3) as u16 + 1, (bits >> 2 & 3) as u16 + 2);
        peer.sends().sack(-1, &[range(pattern), range(pattern >> 4)]).go();
        peer.sends().sack(0, &[range(pattern >> 2)]).go();
        peer.waits(Duration::from_secs(4));
        peer.sends().sack(1, &[range(pattern >> 4)]).go();
        peer.sends().sack(4, &[]).go();
        let statistics = peer.endpoint.statistics(peer.id).unwrap();
        assert_eq!((statistics.outstanding_bytes, statistics.send_buffered_bytes), (0, 0), "{pattern:x}");
    }
}

#[test]
fn a_flood_of_inits_leaves_no_state_and_a_bounded_number_of_answers() {
    let mut peer = Peer::new(40, AssociationConfig::default());
    for n in 0..100_000u32 {
        let from = SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 1024 + (n >> 16) as u16));
        let packet = build(1 + (n % 60_000) as u16, ENDPOINT_PORT, 0, |out| peer.init().write(out));
        peer.endpoint.handle_datagram(peer.now, from, None, &packet, &mut peer.app);
    }
    assert_eq!(peer.endpoint.association_count(), 0);
    assert_eq!(peer.endpoint.poll_timeout(), None);
    let mut answers = 0;
    let mut buffer = TransmitBuffer::new();
    while peer.endpoint.poll_transmit(peer.now, Scope::All, &mut buffer).is_some() {
        answers += 1;
    }
    assert_eq!(answers, REPLIES_MAX);
    let statistics = peer.endpoint.endpoint_statistics();
    assert!(statistics.answers_withheld > 50_000, "{}", statistics.answers_withheld);
    assert_eq!(statistics.replies_dropped + statistics.answers_withheld, 100_000 - REPLIES_MAX as u64);
    // An honest peer is still served.
    peer.waits(Duration::from_millis(1));
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    peer.takes_init_ack();
}

#[test]
fn a_flood_of_heartbeats_is_answered_in_bounded_memory() {
    let mut peer = Peer::established(41);
    for _ in 0..10_000 {
        let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            Heartbeat { info: &[7; 1000] }.write(out);
        });
        peer.endpoint.handle_datagram(peer.now, peer.address, None, &packet, &mut peer.app);
    }
    peer.collect_output();
    let mut answers = 0;
    while let Some(packet) = peer.hears_maybe() {
        assert!(packet.len() <= 1472);
        answers += 1;
    }
    assert!((1..=sctp::config::CONTROL_CHUNKS_MAX).contains(&answers), "{answers}");
}

#[test]
fn a_flood_of_long_heartbeats_is_answered_in_bounded_memory() {
    let mut peer = Peer::established(42);
    for bytes in std::iter::repeat_n([100, 20_000, 65_000], 100).flatten() {
        let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            Heartbeat { info: &vec![7; bytes] }.write(out);
        });
        peer.endpoint.handle_datagram(peer.now, peer.address, None, &packet, &mut peer.app);
    }
    peer.collect_output();
    let answers: Vec<_> = std::iter::from_fn(|| peer.hears_maybe()).collect();
    let bytes: usize = answers.iter().map(|packet| packet.len()).sum();
    assert!((60_000..=66_000).contains(&bytes), "{bytes}");
    let answered: usize = answers.iter().map(|packet| kinds(packet).len()).sum();
    let dropped = peer.endpoint.statistics(peer.id).unwrap().control_chunks_dropped;
    assert_eq!(answered as u64 + dropped, 300);
}

#[test]
fn probes_of_other_addresses_displace_no_answer_to_a_stranger() {
    let mut peer = Peer::established(43);
    let local = |last| Some(IpAddr::from([192, 0, 2, last]));
    let probes = |peer: &mut Peer, local: Option<IpAddr>, number: u8| {
        let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            Heartbeat { info: &[number; 8] }.write(out);
        });
        peer.endpoint.handle_datagram(peer.now, peer.address, local, &packet, &mut peer.app);
    };
    // The path uses this one from now on.
    probes(&mut peer, local(1), 0);
    for number in 0..REPLIES_MAX as u32 * 4 {
        probes(&mut peer, local(2 + (number % 2) as u8), number as u8);
    }
    let stranger = SocketAddr::from(([10, 1, 0, 1], 9899));
    let init = build(7, ENDPOINT_PORT, 0, |out| peer.init().write(out));
    peer.endpoint.handle_datagram(peer.now, stranger, local(1), &init, &mut peer.app);
    let mut buffer = TransmitBuffer::new();
    let mut sent = Vec::new();
    while let Some(transmit) = peer.endpoint.poll_transmit(peer.now, Scope::Due, &mut buffer) {
        let packet = buffer.to_vec();
        let first = Packet::parse(&packet).expect("a packet").chunks().next();
        sent.push((transmit.remote, transmit.local, first.expect("a chunk").expect("whole").kind));
    }
    let answers = |to: SocketAddr, from, kind| sent.iter().filter(|sent| **sent == (to, from, kind)).count();
    assert_eq!(answers(stranger, local(1), InitAck::KIND), 1, "{sent:?}");
    for last in [1, 2, 3] {
        assert_eq!(answers(peer.address, local(last), HeartbeatAck::KIND), 1, "{sent:?}");
    }
    assert_eq!(peer.endpoint.endpoint_statistics().replies_dropped, 0);
}

#[test]
fn probes_of_so_many_other_addresses_are_answered() {
    let mut peer = Peer::established(44);
    let ways = PEER_ADDRESSES_MAX as u8 + 4;
    // The path uses the first one.
    for last in 1..=1 + ways {
        let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            Heartbeat { info: &[last] }.write(out);
        });
        let local = Some(IpAddr::from([192, 0, 2, last]));
        peer.endpoint.handle_datagram(peer.now, peer.address, local, &packet, &mut peer.app);
    }
    peer.collect_output();
    assert_eq!(std::iter::from_fn(|| peer.hears_maybe()).count(), 1 + PEER_ADDRESSES_MAX);
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().control_chunks_dropped, 4);
}

#[test]
fn data_that_comes_to_another_local_address_is_taken_with_a_probe_and_without() {
    let mut peer = Peer::established(45);
    let first = peer.init().initial_tsn.0;
    let mut sends = |last, number: Option<u32>, probes: bool| {
        let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            if probes {
                Heartbeat { info: &[last] }.write(out);
            }
            if let Some(number) = number {
                write_data(DataFlags::WHOLE, first.wrapping_add(number), 0, number as u16, &[last], out);
            }
        });
        let local = Some(IpAddr::from([192, 0, 2, last]));
        peer.endpoint.handle_datagram(peer.now, peer.address, local, &packet, &mut peer.app);
    };
    // The path uses this address.
    sends(1, None, true);
    sends(2, Some(0), false);
    sends(3, Some(1), true);
    peer.collect_output();
    assert_eq!(peer.app.contents(), [[2], [3]]);
}

/// Sends as much as it can of something that never becomes a message; the held data stays within the window.
fn is_bounded(
    seed: u8,
    flags: impl Fn(u32) -> DataFlags,
    number: impl Fn(u32) -> u32,
    ssn: impl Fn(u32) -> u16,
) {
    const BUFFER_BYTES: usize = 100_000;
    let config = AssociationConfig {
        receive_buffer_bytes: BUFFER_BYTES,
        partial_delivery_bytes: usize::MAX,
        ..AssociationConfig::default()
    };
    let mut peer = Peer::established_with(seed, config);
    peer.app.set_reading(lab::Reading::Never);
    for n in 0..2000 {
        peer.sends().data_with(flags(n), number(n), 0, ssn(n), &[0; 500]).go();
        while peer.hears_maybe().is_some() {}
        let Some(statistics) = peer.endpoint.statistics(peer.id) else { return };
        let held = statistics.receive_buffered_bytes as usize;
        assert!(
            held <= 2 * BUFFER_BYTES + OVERHEAD_FREE_BYTES + 500 + RECEIVED_OVERHEAD_BYTES,
            "{held} after {n}"
        );
    }
}

#[test]
fn endless_fragments_are_bounded_by_the_window() {
    let unordered = DataFlags { unordered: true, ..FRAGMENT };
    let begin = |n: u32| DataFlags { beginning: n == 0, ..FRAGMENT };
    // One endless message; one that never begins; many that never end; unordered ones; with gaps between.
    is_bounded(50, begin, |n| n, |_| 0);
    is_bounded(51, |_| FRAGMENT, |n| n + 1, |_| 0);
    is_bounded(52, |_| DataFlags { beginning: true, ..FRAGMENT }, |n| 2 * n + 1, |n| n as u16);
    is_bounded(53, |_| unordered, |n| n + 1, |_| 0);
    is_bounded(54, |_| DataFlags { ending: true, ..unordered }, |n| 2 * n + 1, |_| 0);
    // Whole messages that wait for ever for their turn.
    is_bounded(55, |_| DataFlags::WHOLE, |n| n, |n| n as u16 + 1);
    is_bounded(56, |_| DataFlags::WHOLE, |n| n, |_| 77);
    is_bounded(57, |_| DataFlags::WHOLE, |n| n + 1, |n| n as u16);
}

#[test]
fn gaps_without_end_are_bounded_in_number() {
    let config = AssociationConfig { receive_buffer_bytes: 64 << 20, ..AssociationConfig::default() };
    let mut peer = Peer::established_with(60, config);
    for n in (1..40_000).step_by(2) {
        peer.sends().data_with(DataFlags { unordered: true, ..DataFlags::WHOLE }, n, 0, 0, &[0]).go();
        while peer.hears_maybe().is_some() {}
    }
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!(statistics.data_chunks_received as usize, sctp::config::GAP_RANGES_MAX);
    assert_eq!(statistics.data_chunks_dropped as usize, 20_000 - sctp::config::GAP_RANGES_MAX);
}

#[test]
fn data_beyond_the_reach_of_gap_blocks_is_dropped() {
    let mut peer = Peer::established(76);
    let beyond = u32::from(u16::MAX);
    // DATA 0 is missing, so a gap block counts from -1.
    for (number, dropped) in [(beyond, 1), (beyond - 1, 1), (beyond, 2)] {
        peer.sends().data(number).go();
        let statistics = peer.endpoint.statistics(peer.id).unwrap();
        assert_eq!(statistics.data_chunks_dropped, dropped, "{number}");
    }
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().data_chunks_received, 1);
}

#[test]
fn a_packet_full_of_sacks_or_errors_is_one_packet() {
    let mut peer = outstanding(61, 5);
    let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
        for n in 0..80 {
            write_sack(peer.endpoint_tsn(-1).0, n, &[(2, 2)], out);
        }
        for _ in 0..80 {
            // An unknown chunk that asks for a report.
            out.extend_from_slice(&[0xc1, 0, 0, 4]);
        }
    });
    let from = peer.address;
    peer.sends_raw(from, &packet);
    let mut bytes = 0;
    while let Some(packet) = peer.hears_maybe() {
        bytes += packet.len();
    }
    assert!(bytes < packet.len(), "{bytes} bytes for {}", packet.len());
}

#[test]
fn a_second_sack_in_a_packet_is_not_looked_at() {
    let mut peer = outstanding(70, 5);
    peer.sends().sack(1, &[]).sack(4, &[]).go();
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!((statistics.outstanding_bytes, statistics.chunks_discarded), (300, 1));
    peer.sends().sack(4, &[]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 0);
}

#[test]
fn gap_blocks_out_of_order_are_not_looked_at() {
    // RFC 9260 §6.7: from the lowest to the highest.
    let mut peer = outstanding(71, 5);
    peer.sends().sack(-1, &[(4, 4), (2, 2), (3, 5), (5, 5)]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 300);
    // A block that ends before it begins sets the order back by nothing.
    let mut peer = outstanding(75, 5);
    peer.sends().sack(-1, &[(4, 4), (5, 1), (2, 2)]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 400);
}

#[test]
fn a_sack_as_long_as_a_packet_can_be_is_read_to_its_limit() {
    let mut peer = outstanding(72, 5);
    let gaps: Vec<(u16, u16)> = (1..16_000).map(|n| (4 * n, 4 * n)).collect();
    peer.sends().sack(-1, &gaps).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 400);
    peer.sends().sack(4, &[]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 0);
}

#[test]
fn a_packet_full_of_shutdowns_has_one_answer() {
    let mut peer = Peer::established(73);
    let mut say = peer.sends();
    for _ in 0..1000 {
        say = say.chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out));
    }
    say.go();
    peer.expects("SHUTDOWN ACK");
    peer.expects_nothing();
}

#[test]
fn a_cookie_that_is_longer_than_ours_can_be_is_none() {
    let mut peer = Peer::new(74, AssociationConfig::default());
    peer.sends().tag(1).chunk(|_, out| CookieEcho { cookie: &[0; 60_000] }.write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 1);
}

#[test]
fn chunk_lengths_that_lie_end_the_packet() {
    let mut peer = Peer::established(62);
    let tails = [&[0u8, 3, 0, 3][..], &[0, 3, 0, 0], &[0, 3, 0xff, 0xff, 1, 2, 3, 4]];
    for (number, tail) in (0..).zip(tails) {
        peer.sends().data(number).chunk(|_, out| out.extend_from_slice(tail)).data(number + 1).go();
        // Chunks before the bad one are valid, chunks after it cannot be found.
        assert_eq!(peer.app.messages.len(), number as usize + 1);
    }
    assert_eq!(peer.endpoint.association_count(), 1);
}

#[test]
fn data_of_no_bytes_ends_the_association() {
    // RFC 9260 §6.2.
    let mut peer = Peer::established(63);
    peer.sends().chunk(|_, out| write_data(DataFlags::WHOLE, 1, 0, 0, b"", out)).go();
    peer.expects("ABORT");
    assert_eq!(peer.endpoint.association_count(), 0);
}
