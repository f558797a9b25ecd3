//! The task that polls the sockets of a shard.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use crate::shard::{Hold, Inner, Shard};
use crate::waiting::Poller;
use crate::watch::{Sleeper, Watch};

/// Ensures that the sockets are polled while tasks wait: by a task of this runtime, or by the background thread if
/// there is no runtime.
pub(super) fn ensure(hold: &Hold, inner: &mut Inner) {
    if inner.has_task {
        return;
    }
    match Handle::try_current() {
        Ok(runtime) if !inner.task_failed => {
            inner.has_task = true;
            if inner.poller != Poller::Leader {
                inner.waiting.kick(Sleeper::Background);
                inner.poller = Poller::Task;
            }
            let standing = Standing { shard: Arc::downgrade(hold.shard()), failed: false };
            runtime.spawn(drive(standing, Arc::clone(&hold.watch)));
        }
        _ => hold.background().arm(),
    }
}

/// Registers the task as a poller. However the task ends, even with its runtime, dropping this hands over to the
/// background thread.
struct Standing {
    shard: Weak<Shard>,
    /// Whether the runtime failed to report readiness of the sockets.
    failed: bool,
}

impl Drop for Standing {
    fn drop(&mut self) {
        let Some(shard) = self.shard.upgrade() else { return };
        let mut inner = shard.enter();
        inner.has_task = false;
        // The next task would fail, too, for example in a runtime without timers.
        inner.task_failed |= self.failed || std::thread::panicking();
        inner.wake_up(Sleeper::Task);
        if inner.poller == Poller::Task {
            inner.poller = Poller::None;
        }
        shard.background().arm();
    }
}

/// The watch, in the form in which tokio registers it.
struct Readable(Arc<Watch>);

impl AsRawFd for Readable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Polls the sockets for the tasks. Holds the shard only while it examines it, so the shard can be dropped while the
/// task sleeps.
async fn drive(mut standing: Standing, watch: Arc<Watch>) {
    #[expect(
        deprecated,
        reason = "its unsafe successor asks for what `Watch` keeps: one descriptor as long as it lives"
    )]
    let registered = AsyncFd::with_interest(Readable(Arc::clone(&watch)), Interest::READABLE);
    let Ok(sockets) = registered else {
        standing.failed = true;
        return;
    };
    while let Some(until) = fall_asleep(&standing.shard) {
        tokio::select! {
            ready = sockets.readable() => match ready {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is shutting down.
                Err(_) => return,
            },
            () = watch.task.notified() => {}
            () = sleep_until(until) => {}
        }
        // Readiness is edge-triggered, so earlier arrivals must all be taken.
        while resume(&standing.shard) && watch.is_ready() {
            tokio::task::yield_now().await;
        }
    }
}

/// Returns how long to sleep; `None` if no stream is open.
fn fall_asleep(shard: &Weak<Shard>) -> Option<Option<Instant>> {
    let shard = shard.upgrade()?;
    let mut inner = shard.enter();
    (inner.open_streams > 0).then(|| shard.stand_by(&mut inner, Sleeper::Task))
}

/// Handles the cause of the wake-up. Returns false if the shard is gone.
fn resume(shard: &Weak<Shard>) -> bool {
    let Some(shard) = shard.upgrade() else { return false };
    let mut inner = shard.enter();
    shard.resume(&mut inner, Sleeper::Task);
    true
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
