//! The ways in which associations end.

use std::thread;

use swiftwater::{CloseReason, LossKind, RecvError, SendError, SendInfo};

use crate::pair::{assert_pattern, must_end, pair, pattern, recv_whole};

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
fn unread_data_of_a_dropped_end_blocks_nobody() {
    must_end(|| {
        let (client, server) = pair();
        // More than fits the window: the server waits for room.
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
        while client.statistics().unwrap().messages_received < 100 {
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
            while client.statistics().unwrap().messages_sent == 0 {
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
            if client.statistics().unwrap().send_buffered_bytes > 500_000 {
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
        let sent = client.statistics().unwrap().bytes_sent;
        client.close().unwrap();
        assert!(reader.join().unwrap() as u64 >= sent);
    });
}

#[test]
fn the_reason_of_the_end_is_known_before_all_is_read() {
    must_end(|| {
        let (client, server) = pair();
        client.send(b"unread").unwrap();
        assert_eq!(server.close_reason(), None);
        client.abort("enough");
        while server.close_reason().is_none() {
            thread::yield_now();
        }
        let Some(CloseReason::Lost(loss)) = server.close_reason() else { panic!("it was aborted") };
        assert_eq!(loss.kind, LossKind::PeerAborted);
        assert!(loss.text.contains("enough"), "{loss}");
        assert_eq!(recv_whole(&server).unwrap(), b"unread");
        assert_eq!(server.recv().unwrap_err(), RecvError::Lost(loss.clone()));
        assert_eq!(server.close_reason(), Some(CloseReason::Lost(loss)));
    });
}

#[test]
fn an_orderly_end_has_a_reason_too() {
    must_end(|| {
        let (client, server) = pair();
        let peer = server.peer_addr();
        client.shutdown().unwrap();
        let clone = server.clone();
        server.close().unwrap();
        assert_eq!(clone.close_reason(), Some(CloseReason::Shutdown));
        assert_eq!((clone.peer_addr(), clone.local_addr()), (peer, None));
        assert!(clone.statistics().is_none());
    });
}

#[test]
fn an_abort_does_not_wait_for_room() {
    must_end(|| {
        let (client, server) = pair();
        while client.try_send(&[7; 10_000], &SendInfo::default()).is_ok() {}
        client.abort("the buffer is full");
        loop {
            match server.recv() {
                Ok(message) => assert!(message.is_some()),
                Err(error) => break assert!(error.to_string().contains("the buffer is full"), "{error}"),
            }
        }
    });
}
