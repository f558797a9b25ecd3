//! Messages longer than a packet (RFC 9260 §6.9).

use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, Event, PathHints, SendInfo};
use sctp_wire::chunk::DataFlags;

use lab::packets::data_of;
use lab::script::Peer;
use lab::{A, B, Fate, TwoHosts};

const BEGINNING: DataFlags = DataFlags { beginning: true, ending: false, immediate: false, unordered: false };
const MIDDLE: DataFlags = DataFlags { beginning: false, ..BEGINNING };
const ENDING: DataFlags = DataFlags { ending: true, ..MIDDLE };

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * 31 + n / 251) as u8).collect()
}

fn round_trip(mtu_bytes: usize, sizes: &[usize], loss_every: usize) {
    let mut hosts = TwoHosts::new(mtu_bytes as u64);
    let hints = PathHints { mtu_bytes, ..PathHints::default() };
    for node in [A, B] {
        hosts.app(node).hints = hints;
    }
    let (a, _) = hosts.establish();
    let mut number = 0;
    hosts.tap(A, move |_| {
        number += 1;
        if loss_every > 0 && number % loss_every == 0 { Fate::Drop } else { Fate::Pass }
    });
    for &bytes in sizes {
        hosts.send(A, a, SendInfo::default(), pattern(bytes));
    }
    hosts.run_until("all arrived", Duration::from_secs(300), |hosts| {
        hosts.node(B).app.messages.iter().filter(|m| !m.info.more).count() == sizes.len()
    });
    let whole = hosts.app(B).records();
    assert_eq!(whole.len(), sizes.len());
    for (message, &bytes) in whole.iter().zip(sizes) {
        assert!(*message == pattern(bytes), "{} bytes came of {bytes}", message.len());
    }
    assert!(hosts.sent.iter().all(|s| s.packet.len() <= mtu_bytes));
}

/// Sizes around every border: one byte, a full packet, a full chunk, and up to a megabyte.
fn sizes(mtu_bytes: usize) -> Vec<usize> {
    let full = mtu_bytes - 28;
    let mut sizes = vec![1, 2, 3, 4, 5, 63, 64, 65];
    for n in [1, 2, 3] {
        sizes.extend([n * full - 4, n * full - 1, n * full, n * full + 1, n * full + 4]);
    }
    sizes.extend([65_535, 65_536, 100_000, 1 << 20]);
    sizes
}

#[test]
fn every_size_arrives_in_ethernet_packets() {
    round_trip(1472, &sizes(1472), 0);
}

#[test]
fn every_size_arrives_in_loopback_packets() {
    round_trip(65_504, &sizes(65_504), 0);
}

#[test]
fn every_size_arrives_in_small_packets() {
    round_trip(548, &sizes(548), 0);
}

#[test]
fn every_size_arrives_though_packets_are_lost() {
    round_trip(1472, &sizes(1472), 13);
    round_trip(65_504, &sizes(65_504), 5);
}

#[test]
fn a_full_packet_is_not_cut() {
    let mut hosts = TwoHosts::new(5);
    let (a, _) = hosts.establish();
    hosts.send(A, a, SendInfo::default(), pattern(1472 - 28));
    hosts.run_for(Duration::from_secs(1));
    let chunks: Vec<_> = hosts.sent.iter().flat_map(|s| data_of(&s.packet)).collect();
    assert_eq!(chunks.len(), 1);
    assert!(chunks[0].flags.beginning && chunks[0].flags.ending);
}

#[test]
fn fragments_in_any_order_make_the_message() {
    for (seed, order) in (6..).zip([[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2], [0, 3, 2, 1]]) {
        let mut peer = Peer::established(seed);
        for n in order {
            let flags = [BEGINNING, MIDDLE, MIDDLE, ENDING][n];
            peer.sends().data_with(flags, n as u32, 0, 0, &[b"abcd"[n]]).go();
        }
        assert_eq!(peer.app.contents(), [b"abcd"], "{order:?}");
    }
}

#[test]
fn a_whole_message_comes_out_though_something_before_it_is_missing() {
    let mut peer = Peer::established(12);
    let unordered = |flags| DataFlags { unordered: true, ..flags };
    peer.sends().data_with(unordered(BEGINNING), 1, 0, 0, b"a").go();
    peer.sends().data_with(unordered(ENDING), 2, 0, 0, b"b").go();
    assert_eq!(peer.app.contents(), [b"ab"]);
}

/// Chunks that fit no message end the association, and the endpoint tells the peer.
fn is_violation(seed: u8, chunks: &[(DataFlags, u16, u16)]) {
    let mut peer = Peer::established(seed);
    for (n, &(flags, stream, ssn)) in (0..).zip(chunks) {
        peer.sends().data_with(flags, n, stream, ssn, b"x").go();
    }
    assert!(
        peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::ProtocolViolation { .. }))),
        "{chunks:?} {:?}",
        peer.app.events
    );
    assert_eq!(peer.endpoint.association_count(), 0);
}

#[test]
fn fragments_that_do_not_fit_end_the_association() {
    is_violation(13, &[(MIDDLE, 0, 0)]);
    is_violation(14, &[(ENDING, 0, 0)]);
    is_violation(15, &[(BEGINNING, 0, 0), (BEGINNING, 0, 1)]);
    is_violation(16, &[(BEGINNING, 0, 0), (DataFlags::WHOLE, 0, 1)]);
    is_violation(17, &[(BEGINNING, 0, 0), (ENDING, 1, 0)]);
    is_violation(18, &[(BEGINNING, 0, 0), (ENDING, 0, 1)]);
}

#[test]
fn a_message_longer_than_both_buffers_passes() {
    let mut hosts = TwoHosts::new(19);
    let config = AssociationConfig {
        send_buffer_bytes: 20_000,
        receive_buffer_bytes: 20_000,
        ..AssociationConfig::default()
    };
    let (a, _) = hosts.establish_with(config.clone(), config);
    hosts.send(A, a, SendInfo::default(), pattern(300_000));
    hosts.run_until("it arrived", Duration::from_secs(60), |hosts| {
        hosts.node(B).app.messages.last().is_some_and(|m| !m.info.more)
    });
    assert_eq!(hosts.app(B).contents().concat(), pattern(300_000));
}
