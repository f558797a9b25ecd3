//! The task that polls the sockets of a shard.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use crate::shard::{Inner, Shard, ShardOwner};
use crate::watch::{Sleeper, Watch};

/// Ensures that the sockets are polled while tasks wait: by a task of this runtime, or by the background thread if
/// there is no runtime.
pub(super) fn ensure(owner: &ShardOwner, inner: &mut Inner) {
    if inner.has_task() {
        return;
    }
    match Handle::try_current() {
        Ok(runtime) if !inner.has_task_failed() => {
            inner.on_task_started();
            let standing = Standing { shard: Arc::downgrade(owner.shard()), failed: false };
            runtime.spawn(drive(standing, Arc::clone(&owner.watch)));
        }
        _ => owner.arm_background(),
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
        inner.on_task_ended(self.failed || std::thread::panicking());
        shard.arm_background();
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
    while let Some(until) = begin_sleep(&standing.shard) {
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
fn begin_sleep(shard: &Weak<Shard>) -> Option<Option<Instant>> {
    let shard = shard.upgrade()?;
    let mut inner = shard.enter();
    inner.has_open_streams().then(|| shard.prepare_poll(&mut inner, Sleeper::Task))
}

/// Handles the cause of the wake-up. Returns false if the shard is gone.
fn resume(shard: &Weak<Shard>) -> bool {
    let Some(shard) = shard.upgrade() else { return false };
    let mut inner = shard.enter();
    shard.resume(&mut inner, Sleeper::Task);
    true
}

/// Sleeps until this time; for one in the past, until the other tasks have had their turn: work was put off for them.
async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(at) if at <= Instant::now() => tokio::task::yield_now().await,
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_that_was_put_off_waits_for_the_turn_of_the_other_tasks() {
        let long_ago = Instant::now() - Duration::from_secs(1);
        let mut sleep = pin!(sleep_until(Some(long_ago)));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Ready(()));
    }
}
