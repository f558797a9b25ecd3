//! Echoed messages, on one association and on many.

use bytes::Bytes;
use swiftwater::tokio::{Association, Listener, Stack};
use swiftwater::{ConnectError, ListenerOptions, SendError, SendInfo, StackOptions};

use crate::{on_runtimes, pair, recv_whole};

async fn serve(association: Association) {
    while let Some(message) = recv_whole(&association).await {
        association.send_bytes(Bytes::from(message), &SendInfo::default()).await.unwrap();
    }
}

#[test]
fn messages_come_back() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        let server = tokio::spawn(serve(server));
        for bytes in [1, 64, 1452, 65_536, 1_000_000] {
            let message = vec![bytes as u8; bytes];
            client.send(&message).await.unwrap();
            assert!(recv_whole(&client).await.unwrap() == message);
        }
        let mut buffer = [0; 8];
        client.send_with(b"hello, world", &SendInfo::stream(3)).await.unwrap();
        let (bytes, info) = client.recv_into(&mut buffer).await.unwrap().unwrap();
        assert_eq!((bytes, info.more), (8, true));
        let (bytes, info) = client.recv_into(&mut buffer).await.unwrap().unwrap();
        assert_eq!((bytes, info.more), (4, false));
        client.close().await.unwrap();
        server.await.unwrap();
    });
}

#[test]
fn bulk_both_ways() {
    on_runtimes(|| async {
        const COUNT: usize = 2000;
        let (client, server) = pair().await;
        let send = |end: Association| async move {
            for i in 0..COUNT {
                end.send(&vec![i as u8; 3000]).await.unwrap();
            }
        };
        let recv = |end: Association| async move {
            for i in 0..COUNT {
                assert_eq!(recv_whole(&end).await.unwrap(), vec![i as u8; 3000]);
            }
        };
        let tasks = [
            tokio::spawn(send(client.clone())),
            tokio::spawn(send(server.clone())),
            tokio::spawn(recv(client.clone())),
            tokio::spawn(recv(server.clone())),
        ];
        for task in tasks {
            task.await.unwrap();
        }
        let (one, other) = tokio::join!(client.close(), server.close());
        one.unwrap();
        other.unwrap();
    });
}

#[test]
fn many_tasks_on_two_stacks() {
    on_runtimes(|| async {
        const TASKS: usize = 200;
        let options = StackOptions::default()
            .with_udp_port(0)
            .with_local_addresses(vec!["127.0.0.1".parse().unwrap()])
            .with_listener(ListenerOptions::default().with_backlog(TASKS as u32));
        let listener = Stack::bind(&options).unwrap().listen(7).unwrap();
        let address = listener.address();
        let server = tokio::spawn(async move {
            for _ in 0..TASKS {
                tokio::spawn(serve(listener.accept().await.unwrap().0));
            }
        });
        let clients = Stack::bind(&options).unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|t| {
                let (clients, address) = (clients.clone(), address.clone());
                tokio::spawn(async move {
                    let client = clients.connect(address).await.unwrap();
                    for i in 0..20u8 {
                        client.send(&[t as u8, i]).await.unwrap();
                        assert_eq!(client.recv().await.unwrap().unwrap().to_vec(), [t as u8, i]);
                    }
                    client.close().await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        server.await.unwrap();
    });
}

#[test]
fn the_end_reaches_every_task() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let server = server.clone();
                tokio::spawn(async move { server.recv().await.unwrap().is_none() })
            })
            .collect();
        client.shutdown().await.unwrap();
        assert_eq!(client.send(b"more").await, Err(SendError::Closed));
        for reader in readers {
            assert!(reader.await.unwrap());
        }
        server.close().await.unwrap();
        assert!(client.recv().await.unwrap().is_none());
    });
}

#[test]
fn errors_state_their_cause() {
    on_runtimes(|| async {
        let listener = Listener::bind("127.0.0.1:0/udp:0").await.unwrap();
        let address = listener.address();
        drop(listener);
        assert!(matches!(Association::connect(&address).await, Err(ConnectError::Refused)));
        assert!(matches!(Association::connect("no such host:1").await, Err(ConnectError::Address(_))));
        let (client, server) = pair().await;
        server.abort("no tea");
        let lost = client.recv().await.unwrap_err().to_string();
        assert!(lost.contains("no tea"), "{lost}");
    });
}

#[test]
fn the_last_handle_leaves_nothing_undelivered() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        for i in 0..300u32 {
            client.send(&vec![i as u8; 3000]).await.unwrap();
        }
        drop(client);
        for i in 0..300u32 {
            assert_eq!(recv_whole(&server).await.unwrap(), vec![i as u8; 3000]);
        }
        assert!(recv_whole(&server).await.is_none());
    });
}
