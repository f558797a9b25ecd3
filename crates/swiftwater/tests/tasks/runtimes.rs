//! Runtimes that start and end.

use std::time::{Duration, Instant};

use swiftwater::tokio::{Association, Listener};

use crate::{HANGS_AFTER, on_runtimes, recv_whole};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn associations_outlive_their_runtime() {
    let (listener, client) = runtime().block_on(async {
        let listener = Listener::bind("127.0.0.1:0/udp:0").await.unwrap();
        let client = Association::connect(listener.address()).await.unwrap();
        (listener, client)
    });
    // The runtime has ended; the background thread serves the sockets.
    let listener = swiftwater::Listener::from(listener);
    let (server, _) = listener.accept().unwrap();
    server.send(b"still here").unwrap();
    let deadline = Instant::now() + HANGS_AFTER;
    while client.statistics().unwrap().messages_received == 0 {
        assert!(Instant::now() < deadline, "no message is received without a runtime");
        std::thread::yield_now();
    }
    runtime().block_on(async {
        assert_eq!(recv_whole(&client).await.unwrap(), b"still here");
        let server = Association::from(server);
        server.send(b"in another runtime").await.unwrap();
        assert_eq!(recv_whole(&client).await.unwrap(), b"in another runtime");
    });
}

#[test]
fn a_runtime_that_is_gone_does_not_stop_another() {
    let first = runtime();
    let (client, server) = first.block_on(crate::pair());
    let (exchange, exchanged) = tokio::sync::oneshot::channel();
    let mut exchange = Some(exchange);
    let second = std::thread::spawn({
        let (client, server) = (client.clone(), server.clone());
        move || {
            runtime().block_on(async {
                // Waits in this runtime while the other one polls, and continues when that has ended.
                let echo = tokio::spawn(async move {
                    while let Some(message) = recv_whole(&server).await {
                        server.send(&message).await.unwrap();
                    }
                });
                for i in 0..50u8 {
                    client.send(&[i]).await.unwrap();
                    assert_eq!(recv_whole(&client).await.unwrap(), [i]);
                    if i == 10 {
                        exchange.take().unwrap().send(()).unwrap();
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                drop(client);
                echo.await.unwrap();
            });
        }
    });
    first.block_on(async { tokio::time::timeout(HANGS_AFTER, exchanged).await.unwrap().unwrap() });
    drop((client, server));
    drop(first);
    second.join().unwrap();
}

#[test]
fn a_runtime_without_timers_leaves_it_to_the_background_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (client, server) = crate::pair().await;
        client.send(b"all the same").await.unwrap();
        assert_eq!(recv_whole(&server).await.unwrap(), b"all the same");
        client.close().await.unwrap();
    });
}

#[test]
fn ports_are_free_when_their_last_user_is_gone() {
    on_runtimes(|| async {
        let address = Listener::bind("127.0.0.1:0/udp:0").await.unwrap().address();
        for _ in 0..10 {
            let listener = Listener::bind(&address).await.unwrap();
            let client = Association::connect(&address).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            server.shutdown().await.unwrap();
            assert!(recv_whole(&client).await.is_none());
            client.close().await.unwrap();
            server.close().await.unwrap();
        }
    });
}
