//! Receive buffers that hold little more than a packet, and messages that are shorter than the overhead of keeping them.

use std::time::Duration;

use sctp::config::{OVERHEAD_FREE_BYTES, RECEIVED_OVERHEAD_BYTES};
use sctp::{AssociationConfig, PathHints, SendInfo};
use sctp_wire::Packet;
use sctp_wire::chunk::{CookieEcho, DATA_HEADER_BYTES, DataFlags, Init, NrSack};
use sctp_wire::packet::HEADER_BYTES;
use sctp_wire::parameter::{Parameters, SupportedExtensions};

use lab::script::{Peer, plain};
use lab::{A, B, Reading, TwoHosts};

const MESSAGE_BYTES: usize = 4;
const MESSAGES: usize = 5000;
/// Messages of 4 bytes in an Ethernet packet, each behind a header of 16.
const PACKET_MESSAGES: usize = 1472 / 20;
const RTT: Duration = Duration::from_millis(20);

fn with_buffer(bytes: usize) -> AssociationConfig {
    AssociationConfig {
        receive_buffer_bytes: bytes,
        receive_buffer_tuned_bytes: 0,
        ..AssociationConfig::default()
    }
}

#[test]
fn a_small_buffer_takes_a_packet_of_short_messages_in_a_round_trip() {
    for mtu_bytes in [1472, 65_000] {
        for buffer_bytes in [1024, 1500, 1700, 2048, 2304, 4096, 16_384] {
            let mut hosts = TwoHosts::new(buffer_bytes as u64);
            for node in [A, B] {
                hosts.app(node).hints = PathHints { mtu_bytes, ..PathHints::default() };
            }
            let (a, b) = hosts.establish_with(AssociationConfig::default(), with_buffer(buffer_bytes));
            let start = hosts.now();
            hosts.send_all(A, a, (0..MESSAGES).map(|_| (SendInfo::default(), vec![7; MESSAGE_BYTES].into())));
            hosts.run_until("all arrived", Duration::from_secs(600), |hosts| {
                hosts.node(B).app.messages.len() == MESSAGES
            });
            let rounds = (hosts.now() - start).as_millis() / RTT.as_millis();
            let rounds_max = 10 + MESSAGES / PACKET_MESSAGES;
            let (sent, received) = (hosts.statistics(A, a), hosts.statistics(B, b));
            let case = format!("{buffer_bytes} bytes of buffer, packets of {mtu_bytes}");
            assert_eq!(sent.timeouts, 0, "{case}");
            assert!(rounds as usize <= rounds_max, "{rounds} round trips for {rounds_max}, {case}");
            // All messages that fit the window with free overhead are kept.
            if buffer_bytes / MESSAGE_BYTES * RECEIVED_OVERHEAD_BYTES <= OVERHEAD_FREE_BYTES {
                assert_eq!(received.data_chunks_dropped, 0, "{case}");
            }
        }
    }
}

#[test]
fn a_slow_reader_of_short_messages_costs_no_timeout() {
    for buffer_bytes in [1024, 2304] {
        let mut hosts = TwoHosts::new(buffer_bytes as u64);
        let (a, b) = hosts.establish_with(AssociationConfig::default(), with_buffer(buffer_bytes));
        hosts.app(B).set_reading(Reading::Every(Duration::from_micros(300)));
        hosts.send_all(A, a, (0..MESSAGES).map(|_| (SendInfo::default(), vec![7; MESSAGE_BYTES].into())));
        hosts.run_until("all arrived", Duration::from_secs(60), |hosts| {
            hosts.node(B).app.messages.len() == MESSAGES
        });
        assert_eq!((hosts.statistics(A, a).timeouts, hosts.statistics(B, b).data_chunks_dropped), (0, 0));
    }
}

#[test]
fn data_that_the_peer_dropped_is_sent_again_before_new_data() {
    let mut peer = Peer::connected(3);
    peer.sends().sack_with(-1, 300, &[]).go();
    for n in 0..4 {
        let message = [vec![n; 100].into()];
        peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 100, message).expect("there is room");
    }
    peer.collect_output();
    peer.expects("DATA 0, DATA 1, DATA 2");
    // The packet has arrived, and two of its chunks were dropped. There is still no room for them.
    peer.sends().sack_with(0, 100, &[]).go();
    peer.expects_nothing();
    peer.sends().sack_with(0, 300, &[]).go();
    peer.expects("DATA 1, DATA 2, DATA 3");
    peer.sends().sack_with(3, 300, &[]).go();
    peer.expects_nothing();
    let statistics = peer.endpoint.statistics(peer.id).expect("it is there");
    assert_eq!((statistics.timeouts, statistics.fast_recoveries), (0, 0));
}

const BUFFER_BYTES: usize = 10_000;

/// Returns a peer that has connected to an endpoint with this buffer. It supports NR-SACKs if the endpoint's settings do.
fn with_nr_sack(seed: u8, config: AssociationConfig) -> Peer {
    let config =
        AssociationConfig { receive_buffer_bytes: BUFFER_BYTES, receive_buffer_tuned_bytes: 0, ..config };
    let mut peer = Peer::new(seed, config);
    let mut extensions = Vec::new();
    SupportedExtensions { chunk_kinds: &[NrSack::KIND] }.write(&mut extensions);
    peer.sends()
        .tag(0)
        .chunk(|p, out| Init { parameters: Parameters::new(&extensions), ..p.init() }.write(out))
        .go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer
}

/// Returns a peer that ignores the window: unread messages, a gap, and data beyond it, until the endpoint takes no more.
fn full(seed: u8, config: AssociationConfig) -> Peer {
    let mut peer = with_nr_sack(seed, config);
    peer.app.set_reading(Reading::Never);
    // Half a message beyond the gap, and whole ones.
    let middle = DataFlags { beginning: false, ending: false, ..DataFlags::WHOLE };
    for n in 1..=14 {
        let flags = if n == 14 { middle } else { DataFlags::WHOLE };
        peer.sends().data_with(flags, n + 8, 0, (n + 8) as u16, &[n as u8; 1000]).go();
    }
    for n in 0..8 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[1; 1000]).go();
    }
    while peer.hears_maybe().is_some() {}
    peer
}

#[test]
fn data_that_fills_a_gap_takes_the_room_of_the_highest_behind_it() {
    // RFC 9260 §6.2 permits dropping chunks that gap blocks have reported.
    let mut peer = full(1, plain());
    peer.sends().data_with(DataFlags::WHOLE, 8, 0, 8, &[1; 1000]).go();
    let sack = lab::packets::sack_of(&peer.hears()).expect("a SACK");
    assert_eq!(sack.gaps, [], "nothing beyond a gap is left");
    let first = peer.app.messages[0].info.tsn;
    let held = sack.cum_tsn.wrapping_sub(first) + 1;
    assert!((9..20).contains(&held), "{held} messages are in order, the highest were dropped");
    // They are sent again when there is room.
    peer.app.set_reading(Reading::AtOnce);
    peer.app.read(&mut peer.endpoint);
    for n in held..22 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[1; 1000]).go();
    }
    assert_eq!(peer.app.messages.len(), 22);
}

#[test]
fn non_renegable_data_stays_though_the_data_in_the_gap_finds_no_room() {
    let mut peer = full(2, AssociationConfig { nr_sack: true, ..plain() });
    peer.sends().data_with(DataFlags::WHOLE, 8, 0, 8, &[1; 1000]).go();
    let packet = peer.hears();
    let parsed = Packet::parse(&packet).expect("a packet");
    let raw = parsed.chunks().flatten().find(|raw| raw.kind == NrSack::KIND).expect("an NR-SACK");
    let sack = NrSack::parse(&raw).expect("an NR-SACK");
    // The endpoint holds twice the buffer: 14 chunks beyond the gap, and 6 before it.
    assert_eq!(sack.cum_tsn.0, peer.app.messages[5].info.tsn);
    assert_eq!(sack.nr_gap_blocks().collect::<Vec<_>>(), [(4, 17)]);
    // The peer keeps no copy of non-renegable chunks: with the data in the gap, everything is there.
    peer.app.set_reading(Reading::AtOnce);
    peer.app.read(&mut peer.endpoint);
    for n in 6..9 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[1; 1000]).go();
    }
    assert_eq!(peer.app.messages.len(), 22);
}

#[test]
fn a_message_longer_than_both_buffers_waits_for_no_delayed_sack() {
    for (message_bytes, round_trips) in [(3000, 1), (5000, 2), (20_000, 6)] {
        let config =
            AssociationConfig { send_buffer_bytes: 4096, send_buffer_tuned_bytes: 0, ..with_buffer(4096) };
        let mut hosts = TwoHosts::new(1);
        for node in [A, B] {
            hosts.app(node).hints = PathHints { mtu_bytes: 65_000, ..PathHints::default() };
        }
        let (a, _) = hosts.establish_with(config.clone(), config);
        let start = hosts.now();
        hosts.send_all(A, a, (0..50).map(|_| (SendInfo::default(), vec![7; message_bytes].into())));
        hosts.run_until("all arrived", Duration::from_secs(600), |hosts| {
            received_bytes(hosts) == 50 * message_bytes
        });
        let rounds = (hosts.now() - start).as_millis() / RTT.as_millis();
        assert!(rounds <= 50 * round_trips + 5, "{rounds} round trips for messages of {message_bytes} bytes");
    }
}

/// Returns the number of bytes that B's application has received.
fn received_bytes(hosts: &TwoHosts) -> usize {
    hosts.node(B).app.messages.iter().map(|message| message.bytes.len()).sum()
}

#[test]
fn a_long_message_to_a_reader_that_begins_late_takes_a_window_in_a_round_trip() {
    const WINDOWS: usize = 50;
    for mtu_bytes in [1472, 65_000] {
        for buffer_bytes in [1500, 2304, 4096, 8192] {
            let mut hosts = TwoHosts::new(buffer_bytes as u64);
            for node in [A, B] {
                hosts.app(node).hints = PathHints { mtu_bytes, ..PathHints::default() };
            }
            let (a, _) = hosts.establish_with(AssociationConfig::default(), with_buffer(buffer_bytes));
            hosts.app(B).set_reading(Reading::Never);
            let message_bytes = WINDOWS * buffer_bytes;
            hosts.send_all(A, a, [(SendInfo::default(), vec![7; message_bytes].into())]);
            // Probes fill twice the buffer, and further ones are dropped.
            hosts.run_for(Duration::from_secs(100));
            let (start, timeouts) = (hosts.now(), hosts.statistics(A, a).timeouts);
            hosts.app(B).set_reading(Reading::AtOnce);
            hosts.run_until("all arrived", Duration::from_secs(600), |hosts| {
                received_bytes(hosts) == message_bytes
            });
            let rounds = (hosts.now() - start).as_millis() / RTT.as_millis();
            let case = format!("{buffer_bytes} bytes of buffer, packets of {mtu_bytes}");
            assert!(
                rounds as usize <= WINDOWS * 3 / 2 + 5,
                "{rounds} round trips for {WINDOWS} windows, {case}"
            );
            assert_eq!(hosts.statistics(A, a).timeouts, timeouts, "{case}");
        }
    }
}

#[test]
fn messages_about_as_long_as_the_buffer_take_a_window_in_a_round_trip() {
    const WINDOWS: usize = 50;
    for mtu_bytes in [1472, 65_000] {
        for buffer_bytes in [1500, 2048, 4096] {
            for reading in [Reading::AtOnce, Reading::Every(Duration::from_micros(50))] {
                let mut hosts = TwoHosts::new(buffer_bytes as u64);
                for node in [A, B] {
                    hosts.app(node).hints = PathHints { mtu_bytes, ..PathHints::default() };
                }
                let (a, _) = hosts.establish_with(AssociationConfig::default(), with_buffer(buffer_bytes));
                hosts.app(B).set_reading(reading);
                let lengths = (0..WINDOWS).map(|n| buffer_bytes * 3 / 4 + n * 487 % (buffer_bytes / 2));
                let total: usize = lengths.clone().sum();
                let start = hosts.now();
                hosts.send_all(A, a, lengths.map(|bytes| (SendInfo::default(), vec![7; bytes].into())));
                hosts.run_until("all arrived", Duration::from_secs(600), |hosts| {
                    received_bytes(hosts) == total
                });
                let rounds = (hosts.now() - start).as_millis() / RTT.as_millis();
                let case = format!("{buffer_bytes} bytes of buffer, packets of {mtu_bytes}, {reading:?}");
                let windows = total.div_ceil(buffer_bytes);
                assert!(rounds as usize <= windows * 2 + 5, "{rounds} round trips for {windows}, {case}");
            }
        }
    }
}

#[test]
fn a_chunk_longer_than_the_window_does_not_wait_for_the_sack_of_a_short_message() {
    let mut peer = Peer::new(4, plain());
    peer.sends().tag(0).chunk(|p, out| Init { a_rwnd: 1500, ..p.init() }.write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    for (bytes, expected) in [(100, "DATA 0"), (1440, "DATA 1")] {
        let message = [vec![7; bytes].into()];
        peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), bytes, message).expect("there is room");
        peer.collect_output();
        peer.expects(expected);
    }
    peer.sends().sack_with(1, 1500, &[]).go();
    peer.expects("DATA 2");
}

#[test]
fn window_left_beside_half_a_message_is_used_without_a_probe() {
    const CHUNK_BYTES: usize = 8000;
    const UNREAD_BYTES: usize = 100;
    let mut hosts = TwoHosts::new(1);
    for node in [A, B] {
        let mtu_bytes = HEADER_BYTES + DATA_HEADER_BYTES + CHUNK_BYTES;
        hosts.app(node).hints = PathHints { mtu_bytes, ..PathHints::default() };
    }
    // The first chunk takes less than half of the buffer, so it is not delivered, and less than half remains open.
    let (a, b) = hosts.establish_with(AssociationConfig::default(), with_buffer(2 * CHUNK_BYTES + 40));
    hosts.app(B).set_reading(Reading::Never);
    for bytes in [UNREAD_BYTES, 2 * CHUNK_BYTES] {
        hosts.send_all(A, a, [(SendInfo::default(), vec![7; bytes].into())]);
    }
    hosts.run_for(RTT * 10);
    let held = hosts.statistics(B, b).receive_buffered_bytes as usize;
    assert!(held > UNREAD_BYTES + CHUNK_BYTES * 3 / 2, "{held} bytes held");
}
