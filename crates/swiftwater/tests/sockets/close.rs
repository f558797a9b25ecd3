//! How associations end.

use std::thread;

use swiftwater::{AssociationOptions, Received, RecvError, SendError, SendInfo};

use crate::pair::{assert_pattern, must_end, pair, pair_with, pattern, recv_whole};

#[test]
fn closing_waits_until_everything_has_arrived() {
    must_end(|| {
        let (client, server) = pair();
        let reader = thread::spawn(move || {
            let mut count = 0;
            while recv_whole(&server).is_some() {
                count += 1;
            }
            count
        });
        for i in 0..500 {
            client.send(&pattern(i, 3000)).unwrap();
        }
        client.close().unwrap();
        assert_eq!(reader.join().unwrap(), 500);
    });
}

#[test]
fn a_reader_that_has_kept_its_window_closed_opens_it_when_it_leaves() {
    must_end(|| {
        let (client, server) = pair_with(
            &AssociationOptions {
                events: true,
                receive_buffer_bytes: 16 << 10,
                receive_buffer_bytes_max: 0,
                ..AssociationOptions::default()
            }
            .into(),
        );
        for i in 0..200 {
            client.send(&pattern(i, 1000)).unwrap();
        }
        server.hold_window_from(0);
        let mut kept_bytes = 0;
        while kept_bytes < 15 << 10 {
            if let Some(Received::Message(message)) = server.next().unwrap() {
                kept_bytes += message.window_bytes();
            }
        }
        drop(server);
        // All that the window has held back leaves before the association ends.
        client.close().unwrap();
    });
}

#[test]
fn the_last_handle_leaves_nothing_undelivered() {
    must_end(|| {
        for _ in 0..20 {
            let (client, server) = pair();
            for i in 0..200 {
                client.send(&pattern(i, 3000)).unwrap();
            }
            drop(client);
            for i in 0..200 {
                assert_pattern(i, 3000, &recv_whole(&server).unwrap());
            }
            assert!(recv_whole(&server).is_none());
        }
    });
}

#[test]
fn what_a_dropped_end_has_not_read_stops_nobody() {
    must_end(|| {
        let (client, server) = pair();
        // More than the window holds: the server waits for room.
        let sender = thread::spawn(move || {
            for i in 0..1000 {
                if server.send(&pattern(i, 3000)).is_err() {
                    break;
                }
            }
            let got = recv_whole(&server);
            server.close().unwrap();
            got
        });
        while client.statistics().messages_received < 100 {
            thread::yield_now();
        }
        client.send(b"my last word").unwrap();
        drop(client);
        assert_eq!(sender.join().unwrap().unwrap(), b"my last word");
    });
}

#[test]
fn reading_goes_on_after_a_shutdown() {
    must_end(|| {
        let (client, server) = pair();
        client.send(b"question").unwrap();
        server.send(b"early").unwrap();
        assert_eq!(recv_whole(&client).unwrap(), b"early");
        client.shutdown().unwrap();
        assert_eq!(client.send(b"more"), Err(SendError::Closed));
        assert_eq!(recv_whole(&server).unwrap(), b"question");
        assert!(server.recv().unwrap().is_none());
        assert!(server.recv().unwrap().is_none(), "the end stays the end");
        assert!(client.recv().unwrap().is_none());
        server.close().unwrap();
        client.close().unwrap();
    });
}

#[test]
fn both_may_close_at_once() {
    must_end(|| {
        for _ in 0..50 {
            let (client, server) = pair();
            let other = thread::spawn(move || server.close());
            client.close().unwrap();
            other.join().unwrap().unwrap();
        }
    });
}

#[test]
fn the_reason_of_an_abort_arrives() {
    must_end(|| {
        let (client, server) = pair();
        client.send(b"before").unwrap();
        assert_eq!(recv_whole(&server).unwrap(), b"before");
        client.abort("the disk is full");
        let lost = server.recv().unwrap_err();
        assert!(lost.to_string().contains("the disk is full"), "{lost}");
        assert_eq!(server.recv().unwrap_err(), lost, "the reason stays");
        assert_eq!(server.send(b"x"), Err(SendError::Closed));
        assert!(matches!(server.close(), Err(RecvError::Lost(_))));
    });
}

#[test]
fn an_abort_wakes_whoever_waits_on_a_clone() {
    must_end(|| {
        for _ in 0..20 {
            let (client, _server) = pair();
            let reader = client.clone();
            let reading = thread::spawn(move || reader.recv());
            let writer = client.clone();
            let writing = thread::spawn(move || {
                loop {
                    if let Err(error) = writer.send(&[0; 50_000]) {
                        return error;
                    }
                }
            });
            while client.statistics().messages_sent == 0 {
                thread::yield_now();
            }
            client.abort("enough");
            assert!(matches!(reading.join().unwrap(), Err(RecvError::Lost(_))));
            assert_eq!(writing.join().unwrap(), SendError::Closed);
        }
    });
}

#[test]
fn a_record_in_progress_goes_out_before_the_end() {
    must_end(|| {
        let (client, server) = pair();
        let more = SendInfo { more: true, ..SendInfo::default() };
        for _ in 0..100_000 {
            client.send_with(b"twenty bytes of text", &more).unwrap();
            if client.statistics().send_buffered_bytes > 500_000 {
                break;
            }
        }
        let reader = thread::spawn(move || {
            let mut bytes = 0;
            while let Some(part) = server.recv().unwrap() {
                bytes += part.len();
            }
            bytes
        });
        let sent = client.statistics().bytes_sent;
        client.close().unwrap();
        assert!(reader.join().unwrap() as u64 >= sent);
    });
}
