//! Several messages in one call, and every way to read messages that arrived together.

use std::thread;

use swiftwater::{AssociationOptions, SendError, SendInfo};

use crate::pair::{assert_pattern, must_end, pair, pair_with, pattern};

const MESSAGES: usize = 3000;

fn bytes_of(message: usize) -> usize {
    [1, 16, 40, 300, 1000, 5000][message / 50 % 6]
}

#[test]
fn all_arrive_in_order_through_small_buffers() {
    must_end(|| {
        let options = AssociationOptions {
            send_buffer_bytes: 8 << 10,
            send_buffer_bytes_max: 0,
            receive_buffer_bytes: 8 << 10,
            receive_buffer_bytes_max: 0,
            ..AssociationOptions::default()
        };
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
