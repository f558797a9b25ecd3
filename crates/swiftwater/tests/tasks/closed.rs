//! Waiting for readiness and for the end.

use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use swiftwater::tokio::Stack;
use swiftwater::{CloseReason, LossKind, SendError, SendInfo, StackOptions, internals};
use tokio::time::timeout;

use crate::{on_runtimes, pair};

const PATIENCE: Duration = Duration::from_secs(10);
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
fn a_shutdown_of_the_peer_is_told_while_messages_wait() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        client.send(b"unread").await.unwrap();
        server.readable().await.unwrap();
        let mut peer_shutdown = pin!(internals::peer_shutdown(&server));
        assert!(is_pending(peer_shutdown.as_mut()), "messages do not end it");
        client.shutdown().await.unwrap();
        peer_shutdown.await;
        assert_eq!(server.recv().await.unwrap().unwrap().to_vec(), b"unread");
    });
}

#[test]
fn an_end_without_a_shutdown_is_told_to_those_who_wait_for_one() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        let mut peer_shutdown = pin!(internals::peer_shutdown(&server));
        assert!(is_pending(peer_shutdown.as_mut()));
        client.abort("enough");
        peer_shutdown.await;
    });
}

fn is_pending(future: Pin<&mut impl Future<Output = ()>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
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

#[test]
fn other_tasks_run_while_a_stack_is_closed() {
    on_runtimes(|| async {
        let options =
            StackOptions::default().with_udp_port(0).with_local_addresses([Ipv4Addr::LOCALHOST.into()]);
        let [own, peers] = [(); 2].map(|()| Stack::bind(&options).unwrap());
        let listener = peers.listen(7).unwrap();
        let client = own.connect(listener.address()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let mut sent = 0;
        while timeout(SOON, client.send(&[7; 100_000])).await.is_ok() {
            sent += 1;
        }
        // The close is complete only when the other task has read everything, on the same thread.
        let reading = async {
            let mut received = 0;
            while let Some(message) = server.recv().await.unwrap() {
                received += usize::from(!message.info.more);
            }
            received
        };
        let (closed, received) = tokio::join!(own.close(PATIENCE, "the service was stopped"), reading);
        assert!(closed);
        assert_eq!((received, own.association_count()), (sent, 0));
    });
}

#[test]
fn a_peer_that_reads_nothing_is_aborted_when_the_wait_is_over() {
    on_runtimes(|| async {
        let options =
            StackOptions::default().with_udp_port(0).with_local_addresses([Ipv4Addr::LOCALHOST.into()]);
        let [own, peers] = [(); 2].map(|()| Stack::bind(&options).unwrap());
        let listener = peers.listen(7).unwrap();
        let client = own.connect(listener.address()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        while timeout(SOON, client.send(&[7; 100_000])).await.is_ok() {}
        assert!(!own.close(SOON, "the service was stopped").await);
        assert_eq!(own.association_count(), 0);
        let CloseReason::Lost(loss) = server.closed().await else { panic!("it was aborted") };
        assert!(loss.text.contains("the service was stopped"), "{loss}");
    });
}
