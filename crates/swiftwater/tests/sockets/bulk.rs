//! Bulk data in both directions.

use std::thread;

use swiftwater::{Association, AssociationOptions, SendInfo, StackOptions};

use crate::pair::{assert_pattern, must_end, pair, pair_with, pattern, recv_whole};

const MESSAGES: usize = 3000;

fn bytes_of(message: usize) -> usize {
    [1, 64, 1000, 1452, 3000, 20_000][message % 6]
}

fn send_all(association: &Association) {
    for i in 0..MESSAGES {
        association.send(&pattern(i, bytes_of(i))).unwrap();
    }
}

fn recv_all(association: &Association) {
    for i in 0..MESSAGES {
        assert_pattern(i, bytes_of(i), &recv_whole(association).unwrap());
    }
}

/// Sends with one thread and receives with another at each end.
pub(crate) fn exchange((client, server): (Association, Association)) {
    thread::scope(|scope| {
        for end in [&client, &server] {
            scope.spawn(move || send_all(end));
            scope.spawn(move || recv_all(end));
        }
    });
    thread::scope(|scope| {
        scope.spawn(move || client.close().unwrap());
        scope.spawn(move || server.close().unwrap());
    });
}

#[test]
fn both_ways_at_the_same_time() {
    must_end(|| exchange(pair()));
}

#[test]
fn both_ways_through_small_buffers() {
    must_end(|| {
        let options = AssociationOptions::default()
            .with_send_buffer_bytes(8 << 10)
            .with_receive_buffer_bytes(8 << 10)
            .with_partial_delivery_bytes(2 << 10)
            .into();
        exchange(pair_with(&options));
    });
}

#[test]
fn both_ways_in_packets_of_ethernet() {
    must_end(|| exchange(pair_with(&StackOptions::default().with_mtu_bytes(1500))));
}

#[test]
fn one_thread_at_each_end_sends_and_then_reads() {
    must_end(|| {
        // Both ends have less to send than the buffers hold, so neither depends on the other reading first.
        let (client, server) = pair();
        let other = thread::spawn(move || {
            for i in 0..200 {
                server.send(&pattern(i, 2000)).unwrap();
            }
            for i in 0..200 {
                assert_pattern(i, 2000, &recv_whole(&server).unwrap());
            }
        });
        for i in 0..200 {
            client.send(&pattern(i, 2000)).unwrap();
        }
        for i in 0..200 {
            assert_pattern(i, 2000, &recv_whole(&client).unwrap());
        }
        other.join().unwrap();
    });
}

#[test]
fn a_reader_that_comes_late_finds_everything() {
    must_end(|| {
        let (client, server) = pair();
        let sender = thread::spawn(move || {
            for i in 0..2000 {
                client.send_with(&pattern(i, 3000), &SendInfo::default()).unwrap();
            }
            client.close().unwrap();
        });
        // The window is full by now, or soon: a sender waits.
        while server.statistics().unwrap().messages_received < 100 {
            thread::yield_now();
        }
        for i in 0..2000 {
            assert_pattern(i, 3000, &recv_whole(&server).unwrap());
        }
        assert!(server.recv().unwrap().is_none());
        sender.join().unwrap();
    });
}
