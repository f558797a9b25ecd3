//! Writes that form an endless record.

use std::thread;

use swiftwater::{Association, SendInfo};

use crate::pair::{must_end, pair};

const MORE: SendInfo = SendInfo {
    stream: 0,
    ppid: 0,
    unordered: false,
    more: true,
    immediate: false,
    context: 0,
    lifetime: None,
    path: None,
};

fn byte(i: usize) -> u8 {
    (i.wrapping_mul(7) ^ (i >> 9)) as u8
}

/// Reads `total` bytes and checks each; no record ends among them.
fn read_bytes(association: &Association, total: usize) {
    let mut buffer = vec![0; 100_000];
    let mut at = 0;
    while at < total {
        let (bytes, info) = association.recv_into(&mut buffer).unwrap().expect("more bytes");
        for got in &buffer[..bytes] {
            assert_eq!(*got, byte(at), "byte {at}");
            at += 1;
        }
        assert!(info.more);
    }
    assert_eq!(at, total);
}

#[test]
fn every_byte_arrives_in_its_place() {
    must_end(|| {
        for write_bytes in [1usize, 17, 1000, 40_000] {
            let total = (write_bytes * 100_000).min(4 << 20) / write_bytes * write_bytes;
            let (client, server) = pair();
            let writer = thread::spawn(move || {
                let mut written = 0;
                while written < total {
                    let chunk: Vec<u8> = (written..written + write_bytes).map(byte).collect();
                    client.send_with(&chunk, &MORE).unwrap();
                    written += write_bytes;
                }
                // Nothing ends the record: a blocking call hands over the held bytes.
                assert!(client.recv().unwrap().is_none());
            });
            read_bytes(&server, total);
            server.close().unwrap();
            writer.join().unwrap();
        }
    });
}

#[test]
fn the_last_bytes_do_not_wait_for_more() {
    must_end(|| {
        let (client, server) = pair();
        for i in 0..1000 {
            client.send_with(&[byte(i)], &MORE).unwrap();
        }
        // The writer does not call again.
        read_bytes(&server, 1000);
        drop(client);
    });
}

#[test]
fn a_dropped_writer_leaves_every_byte() {
    must_end(|| {
        let (client, server) = pair();
        let total = 3 << 20;
        let reader = thread::spawn(move || {
            read_bytes(&server, total);
            assert!(server.recv().unwrap().is_none());
        });
        for i in 0..total / 64 {
            let chunk: Vec<u8> = (i * 64..i * 64 + 64).map(byte).collect();
            client.send_with(&chunk, &MORE).unwrap();
        }
        drop(client);
        reader.join().unwrap();
    });
}

#[test]
fn a_write_without_more_ends_the_record() {
    must_end(|| {
        let (client, server) = pair();
        for _ in 0..3 {
            client.send_with(b"begin, ", &MORE).unwrap();
            client.send_with(b"go on, ", &MORE).unwrap();
            client.send(b"end").unwrap();
        }
        for _ in 0..3 {
            assert_eq!(crate::pair::recv_whole(&server).unwrap(), b"begin, go on, end");
        }
    });
}
