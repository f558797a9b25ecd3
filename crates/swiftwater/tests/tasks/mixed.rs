//! Tasks and threads on the same sockets.

use swiftwater::tokio::Association;

use crate::{on_runtimes, pair, recv_whole};

#[test]
fn a_thread_and_a_task_share_an_association() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        let blocking = swiftwater::Association::from(server);
        let thread = std::thread::spawn(move || {
            while let Some(message) = blocking.recv().unwrap() {
                blocking.send_bytes(message.into_bytes(), &Default::default()).unwrap();
            }
        });
        for i in 0..500u32 {
            client.send(&i.to_be_bytes()).await.unwrap();
            assert_eq!(recv_whole(&client).await.unwrap(), i.to_be_bytes());
        }
        client.close().await.unwrap();
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    });
}

#[test]
fn a_blocking_call_on_the_only_thread_of_the_runtime_ends() {
    on_runtimes(|| async {
        let (client, server) = pair().await;
        let waiting = server.clone();
        // A task waits, so the task that polls exists; it cannot run while this thread blocks.
        let waits = tokio::spawn(async move { recv_whole(&waiting).await });
        tokio::task::yield_now().await;
        let blocking = swiftwater::Association::from(client.clone());
        let peer = swiftwater::Association::from(server.clone());
        blocking.send(b"for the task").unwrap();
        assert_eq!(waits.await.unwrap().unwrap(), b"for the task");
        peer.send(b"for the thread").unwrap();
        assert_eq!(blocking.recv().unwrap().unwrap().to_vec(), b"for the thread");
        let client = Association::from(blocking);
        client.send(b"and back").await.unwrap();
        assert_eq!(recv_whole(&server).await.unwrap(), b"and back");
    });
}
