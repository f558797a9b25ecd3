//! Modules on the stream of a live association, with readers that are tasks.

use swiftwater::modules::BufMod;
use swiftwater::{CloseReason, SendError};

use crate::{on_runtimes, pair, recv_whole};

/// After the end of the association no packet comes that would make the module send on.
#[test]
fn messages_held_by_a_module_are_read_after_the_peer_has_closed() {
    on_runtimes(|| async {
        const MESSAGES: usize = 250;
        let (client, server) = pair().await;
        server.stream().push(Box::new(BufMod::default())).unwrap();
        for _ in 0..MESSAGES {
            client.send(&[7; 1000]).await.unwrap();
        }
        client.close().await.unwrap();
        // More than the head takes: the rest is with the module.
        assert_eq!(server.closed().await, CloseReason::Shutdown);
        assert!(matches!(server.send(b"late").await, Err(SendError::Closed)));
        for _ in 0..MESSAGES {
            assert_eq!(recv_whole(&server).await.expect("a message").len(), 1000);
        }
        assert_eq!(recv_whole(&server).await, None);
    });
}
