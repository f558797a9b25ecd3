//! Writes that form an endless record.

use std::thread;

use swiftwater::{Association, Bytes, RecvError, SendError, SendInfo};

use crate::pair::{assert_pattern, must_end, pair, pattern};

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
fn short_parts_that_lie_in_blocks_are_joined() {
    must_end(|| {
        let (client, server) = pair();
        let block: Bytes = (0..10_000).map(byte).collect();
        for i in 0..block.len() {
            client.send_bytes(block.slice(i..i + 1), &MORE).unwrap();
        }
        read_bytes(&server, block.len());
        let head = client.stream().describe().unwrap().head;
        assert_eq!((head.messages_written, head.bytes_written), (10_000, 10_000));
        assert!(head.messages_coalesced > 0, "{head:?}");
        assert!(server.statistics().unwrap().data_chunks_received < 10_000);
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

/// Returns the lengths of the parts of a record, of very different sizes and numbers.
fn part_lengths(record: usize) -> Vec<usize> {
    let parts = [1, 2, 40, 300][record % 4];
    (0..parts)
        .map(|part| [1, 16, 3, 200, 5000][(part * 7 + record) % if parts > 99 { 4 } else { 5 }])
        .collect()
}

/// Returns the stream and the content of a record.
fn record_of(record: usize) -> (u16, Vec<u8>) {
    let bytes = part_lengths(record).iter().sum();
    ((record % 3) as u16, pattern(record, bytes))
}

#[test]
fn records_of_many_parts_arrive_whole_between_messages_of_all_streams() {
    const RECORDS: usize = 400;
    must_end(|| {
        let (client, server) = pair();
        let writer = thread::spawn(move || {
            for record in 0..RECORDS {
                let (stream, content) = record_of(record);
                let lengths = part_lengths(record);
                let mut rest = &content[..];
                for (part, bytes) in lengths.iter().enumerate() {
                    let more = part + 1 < lengths.len();
                    let (now, later) = rest.split_at(*bytes);
                    rest = later;
                    let info = SendInfo { more, ..SendInfo::stream(stream) };
                    match part % 50 {
                        20 => assert_eq!(client.try_recv().unwrap_err(), RecvError::WouldBlock),
                        30 => client.flush(),
                        _ => {}
                    }
                    while let Err(error) = client.try_send(now, &info) {
                        assert_eq!(error, SendError::WouldBlock);
                        thread::yield_now();
                    }
                }
            }
            client.close().unwrap();
        });
        let mut next = [0, 1, 2];
        let mut whole = Vec::new();
        while let Some(part) = server.recv().unwrap() {
            whole.extend_from_slice(&part.to_vec());
            if !part.info.more {
                let record = &mut next[usize::from(part.info.stream)];
                let (stream, content) = record_of(*record);
                assert_eq!(part.info.stream, stream, "record {record}");
                assert_pattern(*record, content.len(), &whole);
                *record += 3;
                whole.clear();
            }
        }
        assert!(next.iter().all(|record| *record >= RECORDS), "{next:?}");
        writer.join().unwrap();
    });
}
