//! Small datagrams: many in one system call, in order, also among batches.

use std::net::UdpSocket;

use crate::common::{Kept, address, bind, config, pattern, receive, receive_until, send, wait};
use links::{Link, UdpEncap, UdpEncapConfig};

/// Returns datagram `n`; each has its own content.
fn numbered(n: u8) -> Vec<u8> {
    vec![n; 60]
}

#[test]
fn many_small_datagrams_arrive_in_few_calls() {
    for ip in ["127.0.0.1", "::1"] {
        let mut link = bind(ip);
        let from = UdpSocket::bind((ip, 0)).unwrap();
        for n in 0..50 {
            from.send_to(&numbered(n), address(&link, ip)).unwrap();
        }
        wait(&link);
        let mut kept = Kept::default();
        assert!(!link.receive(&mut kept).unwrap());
        assert_eq!(kept.singles(), (0..50).map(numbered).collect::<Vec<_>>());
        assert!(kept.datagrams.iter().all(|one| one.remote == from.local_addr().unwrap()));
        assert!(kept.datagrams.iter().all(|one| one.local.to_string() == ip));
        // Two that were received one by one, and 48 in three calls.
        assert_eq!((link.stats().batches_received, link.stats().datagrams_received), (5, 50), "{ip}");
    }
}

#[test]
fn one_receive_takes_a_bounded_number_of_small_datagrams() {
    let mut link = bind("127.0.0.1");
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..200 {
        from.send_to(&numbered(n), address(&link, "127.0.0.1")).unwrap();
    }
    wait(&link);
    let mut kept = Kept::default();
    assert!(link.receive(&mut kept).unwrap(), "there is more");
    assert!((64..80).contains(&kept.singles().len()), "{}", kept.singles().len());
    receive_until(&mut link, &mut kept, |kept| kept.singles().len() == 200);
    assert_eq!(kept.singles(), (0..200).map(numbered).collect::<Vec<_>>());
}

#[test]
fn batches_among_small_datagrams_are_whole_and_in_order() {
    let (mut from, mut to) = (bind("127.0.0.1"), bind("127.0.0.1"));
    let small = UdpSocket::bind("127.0.0.1:0").unwrap();
    let remote = address(&to, "127.0.0.1");
    let mut expected = Vec::new();
    for n in 0..8u8 {
        for of_three in 0..3 {
            small.send_to(&numbered(3 * n + of_three), remote).unwrap();
            expected.push(numbered(3 * n + of_three));
        }
        // From a length that is copied out of its buffer to one that fills the buffer.
        let payload = pattern(3000 + 8000 * usize::from(n));
        send(&mut from, remote, 1452, &payload);
        expected.extend(payload.chunks(1452).map(<[u8]>::to_vec));
    }
    wait(&to);
    let mut kept = Kept::default();
    receive_until(&mut to, &mut kept, |kept| kept.singles().len() >= expected.len());
    assert!(kept.singles() == expected, "{} of {}", kept.singles().len(), expected.len());
    if from.batch_limits().segments_max > 1 {
        assert_eq!(kept.datagrams.iter().filter(|one| one.segment_bytes == 1452).count(), 8);
    }
}

#[test]
fn batches_alone_are_received_one_by_one_and_in_place() {
    let (mut from, mut to) = (bind("127.0.0.1"), bind("127.0.0.1"));
    if from.batch_limits().segments_max == 1 {
        println!("skipped: this kernel does not segment");
        return;
    }
    let remote = address(&to, "127.0.0.1");
    let mut kept = Kept::default();
    let before = to.stats().blocks_allocated;
    for _ in 0..100 {
        send(&mut from, remote, 1452, &pattern(60_000));
        receive_until(&mut to, &mut kept, |kept| !kept.datagrams.is_empty());
        kept = Kept::default();
    }
    let stats = to.stats();
    assert_eq!((stats.batches_received, stats.blocks_allocated - before), (100, 2));
}

#[test]
fn an_empty_datagram_among_small_ones_is_discarded() {
    let mut link = UdpEncap::bind(&UdpEncapConfig { offload: false, ..config("127.0.0.1") }).unwrap();
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..6 {
        from.send_to(&numbered(n), address(&link, "127.0.0.1")).unwrap();
        from.send_to(&[], address(&link, "127.0.0.1")).unwrap();
    }
    let mut kept = Kept::default();
    while link.stats().receive_discarded < 6 || kept.singles().len() < 6 {
        receive(&mut link, &mut kept);
    }
    assert_eq!(kept.singles(), (0..6).map(numbered).collect::<Vec<_>>());
    assert_eq!(link.stats().receive_discarded, 6);
}
