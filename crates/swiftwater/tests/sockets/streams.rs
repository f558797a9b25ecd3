//! Streams, order, and the properties of messages.

use swiftwater::{AssociationOptions, SendError, SendInfo};

use crate::pair::{must_end, pair, pair_with};

#[test]
fn the_properties_of_a_message_arrive_with_it() {
    must_end(|| {
        let (client, server) = pair();
        for stream in 0..10 {
            let info = SendInfo {
                stream,
                ppid: 0xdead_0000 + u32::from(stream),
                unordered: stream % 3 == 0,
                ..SendInfo::default()
            };
            client.send_with(&[stream as u8; 5], &info).unwrap();
        }
        let mut seen = Vec::new();
        for _ in 0..10 {
            let message = server.recv().unwrap().unwrap();
            let info = message.info;
            assert_eq!(message.to_vec(), [info.stream as u8; 5]);
            assert_eq!(info.ppid, 0xdead_0000 + u32::from(info.stream));
            assert_eq!(info.unordered, info.stream % 3 == 0);
            assert!(!info.more);
            seen.push(info.stream);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn each_stream_keeps_its_order() {
    must_end(|| {
        let options = AssociationOptions::default().with_streams_out(64).into();
        let (client, server) = pair_with(&options);
        assert_eq!(client.streams_out(), 64);
        for i in 0..6400u32 {
            let stream = (i * 7 % 64) as u16;
            client.send_with(&i.to_be_bytes(), &SendInfo::stream(stream)).unwrap();
        }
        let mut last = [None; 64];
        for _ in 0..6400 {
            let message = server.recv().unwrap().unwrap();
            let number = u32::from_be_bytes(message.to_vec().try_into().unwrap());
            let last = &mut last[usize::from(message.info.stream)];
            assert!(last.is_none_or(|last| last < number));
            assert_eq!(message.info.ssn, last.map_or(0, |_| message.info.ssn));
            *last = Some(number);
        }
    });
}

#[test]
fn the_peer_limits_the_streams() {
    must_end(|| {
        let listener = crate::pair::listen_with(&AssociationOptions::default().with_streams_in_max(3).into());
        let client = swiftwater::Association::connect(listener.address()).unwrap();
        assert_eq!(client.streams_out(), 3);
        client.send_with(b"last", &SendInfo::stream(2)).unwrap();
        let refused = client.send_with(b"too far", &SendInfo::stream(3)).unwrap_err();
        assert_eq!(refused, SendError::NoSuchStream { stream: 3, streams: 3 });
        assert!(refused.to_string().contains("streams 0 to 2"), "{refused}");
        assert_eq!(listener.accept().unwrap().0.recv().unwrap().unwrap().to_vec(), b"last");
    });
}

#[test]
fn a_record_that_is_open_on_another_stream_is_not_torn() {
    must_end(|| {
        let (client, server) = pair();
        let more = SendInfo { more: true, ..SendInfo::default() };
        // Twice, since the first part of a record leaves at once.
        client.send_with(b"one ", &more).unwrap();
        client.send_with(b"record ", &more).unwrap();
        let torn = client.send_with(b"in between", &SendInfo::stream(1));
        assert_eq!(torn, Err(SendError::RecordOpen { stream: 0 }));
        client.send(b"whole").unwrap();
        client.send_with(b"after it", &SendInfo::stream(1)).unwrap();
        let mut record = Vec::new();
        loop {
            let part = server.recv().unwrap().unwrap();
            assert_eq!(part.info.stream, 0);
            record.extend_from_slice(&part.to_vec());
            if !part.info.more {
                break;
            }
        }
        assert_eq!(record, b"one record whole");
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"after it");
    });
}
