//! Batches: one call where the kernel segments, the same datagrams where it does not.

use std::net::UdpSocket;

use crate::common::{Kept, bind, config, pattern, receive_until, send};
use links::{Link, UdpEncap, UdpEncapConfig};

fn plain(ip: &str) -> UdpEncap {
    UdpEncap::bind(&UdpEncapConfig { offload: false, ..config(ip) }).unwrap()
}

/// Sends one batch and returns what arrived.
fn batch(from: &mut UdpEncap, to: &mut UdpEncap, segment_bytes: usize, payload: &[u8]) -> Kept {
    let remote = to.local_addresses()[0];
    send(from, remote, segment_bytes, payload);
    let mut kept = Kept::default();
    let datagrams = payload.len().div_ceil(segment_bytes);
    receive_until(to, &mut kept, |kept| kept.singles().len() >= datagrams);
    let expected: Vec<_> = payload.chunks(segment_bytes).map(<[u8]>::to_vec).collect();
    assert!(kept.singles() == expected, "{} datagrams of {segment_bytes} bytes", expected.len());
    kept
}

#[test]
fn a_full_batch_arrives_whole() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut from, mut to) = (bind(ip), bind(ip));
        if from.batch_limits().segments_max == 1 {
            println!("skipped: this kernel does not segment");
            return;
        }
        let limit_bytes = from.batch_limits().bytes_max;
        for payload_bytes in [limit_bytes, limit_bytes - limit_bytes % 1452, 1453, 2904] {
            let kept = batch(&mut from, &mut to, 1452, &pattern(payload_bytes));
            assert_eq!(kept.datagrams.len(), 1, "{payload_bytes} bytes");
            assert_eq!(kept.datagrams[0].segment_bytes, 1452);
        }
        assert_eq!(from.stats().batches_sent, 4);
        assert_eq!(to.stats().batches_received, 4);
        assert_eq!(from.stats().datagrams_sent, to.stats().datagrams_received);
    }
}

#[test]
fn the_most_segments_go_in_one_batch() {
    let (mut from, mut to) = (bind("127.0.0.1"), bind("127.0.0.1"));
    let limits = from.batch_limits();
    assert!([1, 64, 128].contains(&limits.segments_max));
    batch(&mut from, &mut to, 100, &pattern(100 * limits.segments_max));
    assert_eq!(from.stats().batches_sent, 1);
    assert_eq!(from.batch_limits(), limits);
}

#[test]
fn more_segments_than_a_batch_takes_are_sent_all_the_same() {
    let (mut from, mut to) = (bind("127.0.0.1"), bind("127.0.0.1"));
    batch(&mut from, &mut to, 10, &pattern(10 * 200 + 3));
    batch(&mut from, &mut to, 1400, &pattern(70_000));
}

#[test]
fn without_offload_the_same_datagrams_arrive() {
    let (mut from, mut to) = (plain("127.0.0.1"), plain("127.0.0.1"));
    assert_eq!(from.batch_limits().segments_max, 1);
    let kept = batch(&mut from, &mut to, 1452, &pattern(20_000));
    assert_eq!(kept.datagrams.len(), 14);
    assert_eq!(from.stats().batches_sent, 14);
}

#[test]
fn a_batch_reaches_a_receiver_without_offload() {
    let (mut from, mut to) = (bind("127.0.0.1"), plain("127.0.0.1"));
    let kept = batch(&mut from, &mut to, 1452, &pattern(20_000));
    assert_eq!(kept.datagrams.len(), 14);
}

#[test]
fn a_datagram_as_large_as_loopback_carries() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut from, mut to) = (bind(ip), bind(ip));
        let largest = from.path_info(to.local_addresses()[0]).mtu_bytes;
        assert_eq!(batch(&mut from, &mut to, largest, &pattern(largest)).datagrams.len(), 1);
        assert_eq!(batch(&mut from, &mut to, 65_000, &pattern(65_000)).datagrams.len(), 1);
    }
}

#[test]
fn an_ordinary_socket_receives_a_batch_as_single_datagrams() {
    let mut from = bind("127.0.0.1");
    let to = UdpSocket::bind("127.0.0.1:0").unwrap();
    send(&mut from, to.local_addr().unwrap(), 1452, &pattern(3000));
    let mut buffer = [0; 4096];
    let sizes: Vec<_> = (0..3).map(|_| to.recv(&mut buffer).unwrap()).collect();
    assert_eq!(sizes, [1452, 1452, 96]);
}

#[test]
fn memory_stays_bounded_whatever_is_received() {
    let (mut from, mut to) = (bind("127.0.0.1"), bind("127.0.0.1"));
    let remote = to.local_addresses()[0];
    let payload = pattern(60_000);
    for _ in 0..500 {
        send(&mut from, remote, 1452, &payload);
        let mut kept = Kept::default();
        receive_until(&mut to, &mut kept, |kept| kept.singles().len() >= 60_000usize.div_ceil(1452));
    }
    let stats = to.stats();
    assert!(stats.blocks_allocated <= 3, "{stats:?}");
    assert!(stats.blocks_reused > 100, "{stats:?}");
}

#[test]
fn a_receive_has_a_limit_and_says_that_there_is_more() {
    let (mut from, mut to) = (plain("127.0.0.1"), plain("127.0.0.1"));
    let remote = to.local_addresses()[0];
    for number in 0..100u8 {
        send(&mut from, remote, 1, &[number]);
    }
    let mut kept = Kept::default();
    assert!(to.receive(&mut kept).unwrap());
    assert!(kept.datagrams.len() < 100);
    receive_until(&mut to, &mut kept, |kept| kept.datagrams.len() == 100);
    assert_eq!(kept.singles().concat(), (0..100).collect::<Vec<u8>>());
}
