//! Messages of every size are echoed unchanged.

use std::thread;

use bytes::Bytes;
use swiftwater::{Association, Listener, SendInfo};

use crate::pair::{assert_pattern, listen, must_end, pair, pattern, recv_whole};

/// Sizes around every boundary on the way: padding, gathered payloads, packets, segments, blocks, batches.
const SIZES: [usize; 32] = [
    1, 2, 3, 4, 5, 15, 16, 63, 64, 65, 511, 512, 513, 1023, 1024, 1400, 1436, 1452, 1500, 4096, 9000, 16_384,
    32_767, 32_768, 65_300, 65_507, 65_535, 65_536, 65_537, 131_072, 524_288, 1_000_000,
];

fn serve(listener: Listener) {
    let (association, _) = listener.accept().unwrap();
    while let Some(message) = recv_whole(&association) {
        association.send_bytes(Bytes::from(message), &SendInfo::default()).unwrap();
    }
}

#[test]
fn messages_of_all_sizes_come_back() {
    must_end(|| {
        let listener = listen();
        let address = listener.address();
        let server = thread::spawn(move || serve(listener));
        let client = Association::connect(address).unwrap();
        for (i, bytes) in SIZES.into_iter().enumerate() {
            client.send(&pattern(i, bytes)).unwrap();
            assert_pattern(i, bytes, &recv_whole(&client).unwrap());
        }
        client.close().unwrap();
        server.join().unwrap();
    });
}

/// The server of the README.
#[test]
fn a_server_that_copies_more_returns_long_messages_as_they_came() {
    must_end(|| {
        let (client, association) = pair();
        let server = thread::spawn(move || {
            let mut parts = 0;
            while let Some(message) = association.recv().unwrap() {
                let info = SendInfo { more: message.info.more, ..SendInfo::default() };
                association.send_bytes(message.into_bytes(), &info).unwrap();
                parts += 1;
            }
            parts
        });
        for (i, bytes) in [2_000_000, 4, 600_000].into_iter().enumerate() {
            client.send(&pattern(i, bytes)).unwrap();
            assert_pattern(i, bytes, &recv_whole(&client).unwrap());
        }
        client.close().unwrap();
        assert!(server.join().unwrap() > 3, "long messages come in parts");
    });
}

#[test]
fn all_sizes_at_once() {
    must_end(|| {
        let (client, server) = pair();
        let sender = thread::spawn(move || {
            for (i, bytes) in SIZES.into_iter().enumerate() {
                client.send(&pattern(i, bytes)).unwrap();
            }
            client.close().unwrap();
        });
        for (i, bytes) in SIZES.into_iter().enumerate() {
            assert_pattern(i, bytes, &recv_whole(&server).unwrap());
        }
        assert!(recv_whole(&server).is_none());
        sender.join().unwrap();
    });
}

#[test]
fn a_small_buffer_goes_on_with_the_same_message() {
    must_end(|| {
        let (client, server) = pair();
        client.send(&pattern(0, 10_000)).unwrap();
        client.send(b"next").unwrap();
        let mut got = Vec::new();
        let mut buffer = [0; 777];
        loop {
            let (bytes, info) = server.recv_into(&mut buffer).unwrap().unwrap();
            got.extend_from_slice(&buffer[..bytes]);
            if !info.more {
                break;
            }
        }
        assert_pattern(0, 10_000, &got);
        let (bytes, info) = server.recv_into(&mut buffer).unwrap().unwrap();
        assert!(bytes == 4 && !info.more, "{bytes} {info:?}");
        assert_eq!(&buffer[..4], b"next");
    });
}

#[test]
fn the_rest_of_a_message_can_be_taken_whole() {
    must_end(|| {
        let (client, server) = pair();
        client.send(&pattern(0, 1000)).unwrap();
        let mut buffer = [0; 300];
        assert_eq!(server.recv_into(&mut buffer).unwrap().unwrap().0, 300);
        let rest = server.recv().unwrap().unwrap().to_vec();
        assert_eq!(rest, pattern(0, 1000)[300..]);
    });
}

#[test]
fn over_ipv6() {
    must_end(|| {
        let Ok(listener) = Listener::bind("[::1]:0/udp:0") else {
            eprintln!("skipped: this host has no IPv6");
            return;
        };
        let address = listener.address();
        assert!(address.to_string().starts_with("[::1]:"), "{address}");
        let server = thread::spawn(move || serve(listener));
        let client = Association::connect(address).unwrap();
        for (i, bytes) in [1, 1452, 100_000].into_iter().enumerate() {
            client.send(&pattern(i, bytes)).unwrap();
            assert_pattern(i, bytes, &recv_whole(&client).unwrap());
        }
        client.close().unwrap();
        server.join().unwrap();
    });
}

#[test]
fn through_a_listener_on_all_addresses() {
    must_end(|| {
        let listener = Listener::bind("0.0.0.0:0/udp:0").unwrap();
        let address = listener.address();
        let server = thread::spawn(move || serve(listener));
        let client = Association::connect(&address).unwrap();
        client.send(b"to whichever address").unwrap();
        assert_eq!(recv_whole(&client).unwrap(), b"to whichever address");
        client.close().unwrap();
        server.join().unwrap();
    });
}
