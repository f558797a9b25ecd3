//! Several messages in one call, and every way to read messages that arrived together.

use std::thread;
use std::time::Duration;

use swiftwater::modules::Counter;
use swiftwater::{Association, AssociationOptions, Reader, RecvError, SendError, SendInfo};

use crate::pair::{assert_pattern, must_end, pair, pair_with, pattern};

const MESSAGES: usize = 3000;

fn bytes_of(message: usize) -> usize {
    [1, 16, 40, 300, 1000, 5000][message / 50 % 6]
}

#[test]
fn all_arrive_in_order_through_small_buffers() {
    must_end(|| {
        let options = AssociationOptions::default()
            .with_send_buffer_bytes(8 << 10)
            .with_send_buffer_bytes_max(0)
            .with_receive_buffer_bytes(8 << 10)
            .with_receive_buffer_bytes_max(0);
        let (client, server) = pair_with(&options.into());
        thread::scope(|scope| {
            scope.spawn(move || {
                let messages: Vec<_> = (0..MESSAGES).map(|i| pattern(i, bytes_of(i))).collect();
                let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
                for batch in messages.chunks(700) {
                    client.send_many(batch, &SendInfo::default()).unwrap();
                }
                client.close().unwrap();
            });
            let (mut received, mut parts) = (Vec::new(), Vec::new());
            loop {
                let before = parts.len();
                let count = server.recv_many(&mut parts, 64).unwrap();
                assert_eq!(parts.len(), before + count);
                assert!(count <= 64);
                if count == 0 {
                    break;
                }
            }
            // A message larger than the buffer is delivered in parts.
            let mut message = Vec::new();
            for part in parts {
                message.extend_from_slice(&part.to_vec());
                if !part.info.more {
                    received.push(std::mem::take(&mut message));
                }
            }
            assert_eq!((received.len(), message.len()), (MESSAGES, 0));
            for (i, message) in received.iter().enumerate() {
                assert_pattern(i, bytes_of(i), message);
            }
            server.close().unwrap();
        });
    });
}

#[test]
fn messages_of_every_kind_keep_their_order_and_count_at_once() {
    must_end(|| {
        let (client, server) = pair();
        let mut sent = Vec::new();
        for i in 0..600 {
            let message = pattern(i, if i % 7 == 6 { 3000 } else { 1 + i % 40 });
            match i % 50 {
                10 => client.send_bytes(message.clone().into(), &SendInfo::default()).unwrap(),
                20 => client.send_many(&[&message], &SendInfo::default()).unwrap(),
                30 => client.stream().push(Box::new(Counter::default())).unwrap(),
                31..40 => {
                    client.send_with(&message, &SendInfo { context: 7, ..SendInfo::default() }).unwrap()
                }
                40 => drop(client.stream().pop().unwrap()),
                _ => client.send(&message).unwrap(),
            }
            if !matches!(i % 50, 30 | 40) {
                sent.push(message);
            }
            if i % 3 == 0 {
                let counted = client.statistics().unwrap().messages_sent;
                assert_eq!(counted, sent.len() as u64);
            }
        }
        client.shutdown().unwrap();
        for message in &sent {
            assert_eq!(&server.recv().unwrap().unwrap().to_vec(), message);
        }
        assert!(server.recv().unwrap().is_none());
    });
}

#[test]
fn a_message_that_cannot_be_sent_keeps_the_others_back() {
    must_end(|| {
        let (client, server) = pair();
        let refused = client.send_many(&[b"one", b"", b"three"], &SendInfo::default());
        assert_eq!(refused, Err(SendError::Empty));
        client.send_many(&[], &SendInfo::default()).unwrap();
        client.send(b"alone").unwrap();
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"alone");
    });
}

#[test]
fn messages_that_came_together_are_read_in_every_way() {
    must_end(|| {
        let (client, server) = pair();
        let messages: Vec<_> = (0..MESSAGES).map(|i| pattern(i, 10 + i % 20)).collect();
        let parts: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        client.send_many(&parts, &SendInfo::default()).unwrap();
        client.shutdown().unwrap();
        let (mut read, mut way) = (0, 0);
        let mut buffer = [0; 16];
        while read < MESSAGES {
            let expected = &messages[read];
            match way % 3 {
                0 => assert_eq!(&server.recv().unwrap().unwrap().to_vec(), expected),
                1 => {
                    let mut message = Vec::new();
                    loop {
                        let (bytes, info) = server.recv_into(&mut buffer).unwrap().unwrap();
                        message.extend_from_slice(&buffer[..bytes]);
                        if !info.more {
                            break;
                        }
                    }
                    assert_eq!(&message, expected);
                }
                _ => {
                    let mut several = Vec::new();
                    let received = server.recv_many(&mut several, 5).unwrap();
                    for (message, expected) in several.iter().zip(&messages[read..]) {
                        assert_eq!(&message.to_vec(), expected);
                    }
                    read += received - 1;
                }
            }
            (read, way) = (read + 1, way + 1);
        }
        assert!(server.recv().unwrap().is_none());
    });
}

/// Reads messages to the end, each in one piece.
fn read_all(reader: &mut Reader) -> Vec<Vec<u8>> {
    let (mut messages, mut message) = (Vec::new(), Vec::new());
    while let Some(part) = reader.recv().unwrap() {
        message.extend(part.blocks().flatten());
        assert_eq!(part.to_vec().len(), part.len());
        if !part.info.more {
            messages.push(std::mem::take(&mut message));
        }
    }
    assert!(message.is_empty());
    messages
}

fn assert_all(messages: &[Vec<u8>]) {
    assert_eq!(messages.len(), MESSAGES);
    messages.iter().enumerate().for_each(|(i, message)| assert_pattern(i, bytes_of(i), message));
}

/// Feeds messages of all lengths, some with a lifetime or their own stream; shuts down.
fn feed_all(client: &Association) {
    let mut sender = client.sender();
    for i in 0..MESSAGES {
        let lifetime = (i % 97 == 0).then(|| Duration::from_secs(600).into());
        sender.feed_with(&pattern(i, bytes_of(i)), &SendInfo { lifetime, ..SendInfo::default() }).unwrap();
    }
    drop(sender);
    client.shutdown().unwrap();
}

#[test]
fn fed_messages_arrive_in_order_through_buffers_of_any_size() {
    must_end(|| {
        for buffer_bytes in [8 << 10, 1 << 20] {
            let options = AssociationOptions::default()
                .with_send_buffer_bytes(buffer_bytes)
                .with_send_buffer_bytes_max(0)
                .with_receive_buffer_bytes(buffer_bytes)
                .with_receive_buffer_bytes_max(0);
            let (client, server) = pair_with(&options.into());
            thread::scope(|scope| {
                scope.spawn(|| feed_all(&client));
                assert_all(&read_all(&mut server.reader()));
            });
        }
    });
}

#[test]
fn modules_see_each_message_of_senders_and_readers() {
    must_end(|| {
        let (client, server) = pair();
        let counters = [&client, &server].map(|end| {
            let counter = Counter::new();
            let counts = counter.counts();
            end.stream().push(Box::new(counter)).unwrap();
            counts
        });
        thread::scope(|scope| {
            scope.spawn(|| feed_all(&client));
            assert_all(&read_all(&mut server.reader()));
        });
        let bytes: usize = (0..MESSAGES).map(bytes_of).sum();
        // The shutdown is a message as well.
        assert_eq!(
            (counters[0].messages_down(), counters[0].bytes_down()),
            (MESSAGES as u64 + 1, bytes as u64)
        );
        assert!(counters[1].bytes_up() >= bytes as u64);
    });
}

#[test]
fn a_fed_message_that_has_waited_long_enough_leaves_with_the_next() {
    must_end(|| {
        let (client, server) = pair();
        let mut sender = client.sender();
        sender.feed(b"first").unwrap();
        thread::sleep(Duration::from_millis(1));
        sender.feed(b"next").unwrap();
        let mut reader = server.reader();
        for message in [&b"first"[..], b"next"] {
            assert_eq!(reader.recv().unwrap().unwrap().as_slice(), Some(message));
        }
    });
}

#[test]
fn a_sender_says_at_once_what_cannot_be_sent() {
    must_end(|| {
        let (client, server) = pair();
        let mut sender = client.sender();
        sender.feed(b"good").unwrap();
        assert_eq!(sender.feed(b""), Err(SendError::Empty));
        let wrong = SendInfo { stream: 1000, ..SendInfo::default() };
        assert!(matches!(sender.feed_with(b"x", &wrong), Err(SendError::NoSuchStream { stream: 1000, .. })));
        sender.flush().unwrap();
        assert_eq!(server.reader().recv().unwrap().unwrap().as_slice(), Some(&b"good"[..]));
        client.abort("enough");
        let fed = sender.feed(b"late").and_then(|()| sender.flush());
        assert_eq!(fed, Err(SendError::Closed));
        assert_eq!(sender.flush(), Ok(()), "what could not be sent is gone");
    });
}

#[test]
fn a_reader_waits_only_where_it_may() {
    must_end(|| {
        let (client, server) = pair();
        let mut reader = server.reader();
        assert!(matches!(reader.try_recv(), Err(RecvError::WouldBlock)));
        client.send_many(&[b"one", b"two"], &SendInfo::default()).unwrap();
        client.flush();
        assert_eq!(reader.recv().unwrap().unwrap().to_vec(), b"one");
        client.shutdown().unwrap();
        assert_eq!(reader.recv().unwrap().unwrap().to_vec(), b"two");
        assert!(reader.recv().unwrap().is_none() && reader.recv().unwrap().is_none());
    });
}

#[test]
fn a_reader_reports_the_loss_of_its_association_after_the_messages() {
    must_end(|| {
        let (client, server) = pair();
        let mut reader = server.reader();
        client.send(b"one").unwrap();
        assert_eq!(reader.recv().unwrap().unwrap().to_vec(), b"one");
        client.abort("enough");
        assert!(matches!(reader.recv(), Err(RecvError::Lost(_))));
    });
}
