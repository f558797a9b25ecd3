//! The calls for tasks over loopback.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cancel;
mod closed;
mod echo;
mod endpoint;
mod mixed;
mod modules;
mod runtimes;

use std::future::Future;
use std::time::Duration;

use swiftwater::StackOptions;
use swiftwater::tokio::{Association, Listener};

/// Time limit of a test, far longer than any takes.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Runs a test on one thread, and again on several.
fn on_runtimes<F: Future<Output = ()>>(test: impl Fn() -> F) {
    let mut one = tokio::runtime::Builder::new_current_thread();
    let mut several = tokio::runtime::Builder::new_multi_thread();
    for builder in [&mut one, several.worker_threads(3)] {
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(HANGS_AFTER, test()).await.expect("the test hangs") });
    }
}

async fn pair() -> (Association, Association) {
    pair_with(&StackOptions::default()).await
}

async fn pair_with(options: &StackOptions) -> (Association, Association) {
    let listener = Listener::bind_with("127.0.0.1:0/udp:0", options).await.unwrap();
    let client = Association::connect_with(listener.address(), options).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Returns the next message in one piece, however it was delivered.
async fn recv_whole(association: &Association) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let part = association.recv().await.unwrap()?;
        whole.extend_from_slice(&part.to_vec());
        if !part.info.more {
            return Some(whole);
        }
    }
}
