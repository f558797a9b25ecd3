//! Cancelled calls.

use std::time::Duration;

use swiftwater::tokio::{Association, Listener, Sender, Stack};
use swiftwater::{
    AcceptError, AssociationOptions, Event, Received, RecvError, SendError, SendInfo, StackOptions,
};
use tokio::time::timeout;

use crate::{on_runtimes, pair, pair_with, recv_whole};

const SOON: Duration = Duration::from_millis(5);
/// Time limit of a wait, far longer than any takes.
const HANGS_AFTER: Duration = Duration::from_secs(20);

#[test]
fn a_receive_that_is_given_up_loses_nothing() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        assert_eq!(server.try_recv().unwrap_err(), RecvError::WouldBlock);
        let sender = tokio::spawn(async move {
            for i in 0..200u8 {
                client.send(&[i]).await.unwrap();
                client.flush();
                if i % 10 == 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            client.close().await.unwrap();
        });
        let mut next = 0;
        while next < 200 {
            // Most attempts time out in the middle of an operation.
            if let Ok(message) = timeout(Duration::from_micros(300), server.recv()).await {
                assert_eq!(message.unwrap().unwrap().to_vec(), [next]);
                next += 1;
            }
        }
        assert!(server.recv().await.unwrap().is_none());
        sender.await.unwrap();
    });
}

#[test]
fn a_wait_for_the_next_that_is_given_up_loses_nothing() {
    on_runtimes(|| async {
        let options = AssociationOptions::default().with_events(true).into();
        let (client, server) = pair_with(&options).await;
        let sender = tokio::spawn(async move {
            for i in 0..50u8 {
                client.send(&[i]).await.unwrap();
                client.flush();
                if i % 10 == 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            client.close().await.unwrap();
        });
        let mut seen = Vec::new();
        loop {
            match timeout(Duration::from_micros(300), server.recv_any()).await {
                Ok(Ok(Some(Received::Message(message)))) => seen.push(i32::from(message.to_vec()[0])),
                Ok(Ok(Some(Received::Event(Event::Up)))) => seen.push(-1),
                Ok(Ok(Some(Received::Event(Event::PeerShutdown)))) => seen.push(-2),
                Ok(Ok(Some(Received::Event(Event::Down(None))))) => seen.push(-3),
                Ok(Ok(None)) => break,
                Err(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, [-1].into_iter().chain(0..50).chain([-2, -3]).collect::<Vec<_>>());
        sender.await.unwrap();
    });
}

#[test]
fn a_send_that_is_given_up_is_sent_whole_or_not_at_all() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        let mut sent = 0u32;
        let refused = loop {
            let message = vec![sent as u8; 50_000];
            if timeout(SOON, client.send(&message)).await.is_err()
                // On a busy machine there may be room by now.
                && let Err(refused) = client.try_send(&message, &SendInfo::default())
            {
                break refused;
            }
            sent += 1;
        };
        assert_eq!(refused, SendError::WouldBlock);
        let closing = tokio::spawn(client.close());
        for i in 0..sent {
            assert_eq!(recv_whole(&server).await.unwrap(), vec![i as u8; 50_000]);
        }
        assert!(recv_whole(&server).await.is_none());
        closing.await.unwrap().unwrap();
    });
}

#[test]
fn a_message_that_has_waited_long_enough_leaves_with_the_next() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        let mut sender = client.sender();
        sender.feed(b"first").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        sender.feed(b"next").await.unwrap();
        for message in [&b"first"[..], b"next"] {
            let received = timeout(HANGS_AFTER, server.recv()).await.expect("it was transmitted");
            assert_eq!(received.unwrap().unwrap().to_vec(), message);
        }
    });
}

#[test]
fn an_accept_that_is_given_up_leaves_the_association() {
    on_runtimes(|| async {
        let listener = Listener::bind("127.0.0.1:0/udp:0").await.unwrap();
        assert!(timeout(SOON, listener.accept()).await.is_err());
        assert_eq!(listener.try_accept().unwrap_err(), AcceptError::WouldBlock);
        let client = Association::connect(listener.address()).await.unwrap();
        client.send(b"hello").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.recv().await.unwrap().unwrap().to_vec(), b"hello");
    });
}

#[test]
fn a_connect_that_is_given_up_leaves_nothing() {
    on_runtimes(|| async {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let stack = Stack::bind(&StackOptions::default().with_udp_port(0)).unwrap();
        let address = format!("127.0.0.1:7/udp:{port}");
        assert!(timeout(SOON, stack.connect(address)).await.is_err());
        assert_eq!(stack.statistics().associations, 0);
    });
}

#[test]
fn a_close_that_is_given_up_goes_on() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        // Less than fits the buffers, since nothing is read yet.
        for _ in 0..40 {
            client.send(&[1; 20_000]).await.unwrap();
        }
        assert!(timeout(Duration::ZERO, client.close()).await.is_err());
        for _ in 0..40 {
            assert_eq!(recv_whole(&server).await.unwrap().len(), 20_000);
        }
        assert!(recv_whole(&server).await.is_none());
    });
}

/// The waker owns the only handle of a future that waits for the same stream: waking drops it.
#[test]
fn a_wake_up_may_drop_another_wait() {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Wake, Waker};

    struct Holds(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

    impl Wake for Holds {
        fn wake(self: Arc<Self>) {}
    }

    on_runtimes(|| async {
        let (client, server) = pair().await;
        let waiting = server.clone();
        let holds = Arc::new(Holds(Mutex::new(None)));
        let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let _ = waiting.recv().await;
        });
        let waker = Waker::from(Arc::clone(&holds));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *holds.0.lock().unwrap() = Some(future);
        drop((holds, waker));
        client.send(b"wakes and drops").await.unwrap();
        assert_eq!(recv_whole(&server).await.unwrap(), b"wakes and drops");
        client.close().await.unwrap();
    });
}

#[test]
fn senders_and_readers_that_are_given_up_lose_nothing() {
    on_runtimes(|| async {
        let options = AssociationOptions::default()
            .with_send_buffer_bytes(8 << 10)
            .with_send_buffer_bytes_max(0)
            .with_receive_buffer_bytes(8 << 10)
            .with_receive_buffer_bytes_max(0);
        let (client, server) = pair_with(&options.into()).await;
        let feeding = tokio::spawn(async move {
            let mut sender = client.sender();
            for i in 0..2000_u32 {
                // Attempts time out while the send buffer is full.
                let feed = async |sender: &mut Sender| {
                    timeout(Duration::from_micros(300), sender.feed(&i.to_be_bytes())).await
                };
                while feed(&mut sender).await.map(Result::unwrap).is_err() {}
            }
            while timeout(Duration::from_micros(300), sender.flush()).await.is_err() {}
            client.close().await.unwrap();
        });
        let mut reader = server.reader();
        let mut next = 0_u32;
        while next < 2000 {
            if let Ok(message) = timeout(Duration::from_micros(300), reader.recv()).await {
                assert_eq!(message.unwrap().unwrap().as_slice(), Some(&next.to_be_bytes()[..]));
                next += 1;
            }
        }
        assert!(reader.recv().await.unwrap().is_none());
        feeding.await.unwrap();
    });
}
