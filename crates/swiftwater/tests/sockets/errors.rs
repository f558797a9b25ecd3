//! Messages that are refused, with a sentence that says what to do.

use std::io;

use swiftwater::{AssociationOptions, SendError, SendInfo};

use crate::pair::{must_end, pair, pair_with};

#[test]
fn a_message_that_is_too_long() {
    must_end(|| {
        let (client, _server) = pair_with(
            &AssociationOptions { message_bytes_max: 1000, ..AssociationOptions::default() }.into(),
        );
        let refused = client.send(&[0; 1001]).unwrap_err();
        assert_eq!(refused, SendError::TooLong { bytes: 1001, limit_bytes: 1000 });
        assert!(refused.to_string().contains("message_bytes_max"), "{refused}");
        client.send(&[0; 1000]).unwrap();
    });
}

#[test]
fn a_message_without_a_byte() {
    must_end(|| {
        let (client, server) = pair();
        assert_eq!(client.send(b""), Err(SendError::Empty));
        assert_eq!(client.send_bytes(bytes::Bytes::new(), &SendInfo::default()), Err(SendError::Empty));
        client.send(b"x").unwrap();
        assert_eq!(server.recv().unwrap().unwrap().len(), 1);
    });
}

#[test]
fn a_stream_that_does_not_exist() {
    must_end(|| {
        let (client, _server) = pair();
        let refused = client.send_with(b"x", &SendInfo::stream(10)).unwrap_err();
        assert_eq!(refused, SendError::NoSuchStream { stream: 10, streams: 10 });
        assert!(refused.to_string().contains("streams_out"), "{refused}");
    });
}

#[test]
fn a_send_after_the_end() {
    must_end(|| {
        let (client, server) = pair();
        let clone = client.clone();
        server.abort("");
        assert!(client.recv().is_err());
        let refused = clone.send(b"x").unwrap_err();
        assert_eq!(refused, SendError::Closed);
        assert!(refused.to_string().contains("connect again"), "{refused}");
        assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::BrokenPipe);
        assert!(client.peer_address().is_none());
    });
}
