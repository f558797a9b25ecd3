//! Waiting for readiness and for the end.

use std::time::Duration;

use swiftwater::{CloseReason, LossKind, SendError, SendInfo};
use tokio::time::timeout;

use crate::{on_runtimes, pair};

const SOON: Duration = Duration::from_millis(5);

#[test]
fn the_end_is_told_while_messages_wait() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        client.send(b"unread").await.unwrap();
        server.readable().await.unwrap();
        assert!(timeout(SOON, server.closed()).await.is_err(), "messages do not end it");
        client.abort("enough");
        let CloseReason::Lost(loss) = server.closed().await else { panic!("it was aborted") };
        assert_eq!(loss.kind, LossKind::PeerAborted);
        assert_eq!(server.recv().await.unwrap().unwrap().to_vec(), b"unread");
        assert_eq!(server.closed().await, CloseReason::Lost(loss));
    });
}

#[test]
fn both_ends_are_told_of_an_orderly_end() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        let closing = tokio::spawn(client.clone().close());
        assert!(server.recv().await.unwrap().is_none());
        assert_eq!(server.closed().await, CloseReason::Shutdown);
        assert_eq!(client.closed().await, CloseReason::Shutdown);
        closing.await.unwrap().unwrap();
    });
}

#[test]
fn calls_do_not_block_after_readable_or_writable() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        assert!(timeout(SOON, server.readable()).await.is_err());
        let info = SendInfo::default();
        let mut sent = 0;
        loop {
            client.writable().await.unwrap();
            match client.try_send(&[7; 10_000], &info) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
            if timeout(SOON, client.writable()).await.is_err() {
                break;
            }
        }
        for _ in 0..sent {
            server.readable().await.unwrap();
            assert_eq!(server.try_recv().unwrap().unwrap().len(), 10_000);
        }
        client.writable().await.unwrap();
        client.try_send(b"room again", &info).unwrap();
    });
}
