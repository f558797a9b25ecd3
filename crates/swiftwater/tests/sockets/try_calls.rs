//! Calls that do not wait, or only for a limited time.

use std::thread;
use std::time::Duration;

use swiftwater::internals::{self, SHORT_BYTES_MAX};
use swiftwater::{Lifetime, RecvError, SendError, SendInfo};

use crate::pair::{for_tasks, must_end, pair};

#[test]
fn nothing_there() {
    must_end(|| {
        let (client, server) = pair();
        assert_eq!(server.try_recv().unwrap_err(), RecvError::WouldBlock);
        assert_eq!(server.recv_timeout(Duration::from_millis(3)).unwrap_err(), RecvError::TimedOut);
        assert_eq!(server.recv_timeout(Duration::ZERO).unwrap_err(), RecvError::TimedOut);
        client.try_send(b"there", &SendInfo::default()).unwrap();
        let got = loop {
            match server.try_recv() {
                Err(RecvError::WouldBlock) => thread::yield_now(),
                other => break other.unwrap().unwrap(),
            }
        };
        assert_eq!(got.to_vec(), b"there");
        client.send(b"again").unwrap();
        assert_eq!(server.recv_timeout(Duration::MAX).unwrap().unwrap().to_vec(), b"again");
    });
}

#[test]
fn no_room() {
    must_end(|| {
        let (client, server) = pair();
        let mut taken = 0;
        loop {
            match client.try_send(&[7; 10_000], &SendInfo::default()) {
                Ok(()) => taken += 1,
                Err(SendError::WouldBlock) => break,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(taken >= 100, "{taken}");
        for _ in 0..taken {
            assert_eq!(server.recv().unwrap().unwrap().len(), 10_000);
        }
        while client.try_send(b"room again", &SendInfo::default()) == Err(SendError::WouldBlock) {
            thread::yield_now();
        }
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"room again");
    });
}

#[test]
fn the_end_is_no_reason_to_wait() {
    must_end(|| {
        let (client, server) = pair();
        client.shutdown().unwrap();
        assert!(server.recv().unwrap().is_none());
        assert!(server.try_recv().unwrap().is_none());
        assert!(server.recv_timeout(Duration::ZERO).unwrap().is_none());
    });
}

#[test]
fn a_message_reaches_the_thread_that_waits_while_another_sends() {
    must_end(|| {
        // One thread of the client sleeps on the sockets while the other takes in arrivals.
        let (client, server) = pair();
        let echo = thread::spawn(move || {
            while let Some(message) = server.recv().unwrap() {
                server.send_bytes(message.into_bytes(), &SendInfo::default()).unwrap();
            }
        });
        let reader = client.clone();
        let reading = thread::spawn(move || {
            for i in 0..5000u32 {
                assert_eq!(reader.recv().unwrap().unwrap().to_vec(), i.to_be_bytes());
            }
        });
        for i in 0..5000u32 {
            client.send(&i.to_be_bytes()).unwrap();
            if i % 100 == 0 {
                client.flush();
                thread::yield_now();
            }
        }
        reading.join().unwrap();
        client.close().unwrap();
        echo.join().unwrap();
    });
}

#[test]
fn a_send_that_finds_no_room_in_time_sends_nothing() {
    must_end(|| {
        let (client, server) = pair();
        let (info, timeout) = (SendInfo::default(), Duration::from_millis(20));
        let mut taken = 0;
        let refused = loop {
            match client.send_timeout(&[7; 10_000], &info, timeout) {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, SendError::TimedOut);
        for _ in 0..taken {
            assert_eq!(server.recv().unwrap().unwrap().to_vec(), [7; 10_000]);
        }
        client.send_timeout(b"room again", &info, Duration::MAX).unwrap();
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"room again");
    });
}

#[test]
fn a_sender_of_short_messages_takes_those_that_the_send_buffer_copies() {
    must_end(|| {
        let (client, server) = pair();
        let plain = SendInfo::default();
        let lasting = SendInfo { lifetime: Lifetime::from_ms(600_000), ..plain };
        let unknown = SendInfo { stream: 9_999, ..plain };
        let expected = [
            (SHORT_BYTES_MAX, plain, true),
            (SHORT_BYTES_MAX + 1, plain, false),
            (1, lasting, false),
            (1, unknown, false),
            (0, plain, false),
            (2, plain, true),
        ];
        internals::send_short_no_poll(&for_tasks(&client), |sender| {
            for (bytes, info, is_taken) in expected {
                assert_eq!(sender.send(&vec![7; bytes], &info), is_taken, "{bytes} bytes, {info:?}");
            }
        })
        .expect("it has no modules");
        client.flush();
        let lengths = [(); 2].map(|()| server.recv().unwrap().unwrap().len());
        assert_eq!(lengths, [SHORT_BYTES_MAX, 2]);
    });
}
