//! The background thread: serves the sockets while no thread of the program does.
//!
//! The thread is armed when the shard is created, and when another thread leaves the perimeter while nothing polls the sockets,
//! or with a message unsent. As long as threads come and go, the background thread only checks for their activity once a
//! millisecond. When they have stopped, it polls the sockets itself, until a thread needs them again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{io, mem};

use super::Shard;
use super::poller::Poller;
use crate::watch::{Sleeper, Watch};

/// Time without activity of other threads after which the background thread takes over.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The thread, and the shard that it keeps.
#[derive(Default)]
pub(super) struct Background {
    thread: OnceLock<Thread>,
    armed: AtomicBool,
    /// The shard itself, while it has work left and no handle.
    kept: Mutex<Option<Arc<Shard>>>,
}

/// Action of the thread before it examines the shard again.
enum Next {
    /// Sleep until armed.
    Park,
    /// Sleep for [`RECHECK_INTERVAL`]; contains the shard's activity counter so far.
    Recheck(u64),
    /// Poll the sockets, until the given time if there is one.
    Poll(Option<Instant>),
}

impl Background {
    pub(super) fn start(&self, shard: &Arc<Shard>) -> io::Result<()> {
        let (weak, watch) = (Arc::downgrade(shard), Arc::clone(&shard.watch));
        let handle = thread::Builder::new().name("swiftwater".into()).spawn(move || run(&weak, &watch))?;
        let _ = self.thread.set(handle.thread().clone());
        Ok(())
    }

    /// Arms the thread: nothing polls the sockets, or a message is unsent.
    #[inline]
    pub(super) fn arm(&self) {
        if !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Ends the sleep of the thread, which exits if its shard is gone.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Keeps the shard until it has nothing left to do.
    pub(super) fn keep(&self, shard: Arc<Shard>) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(shard);
    }

    fn release(&self) -> Option<Arc<Shard>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs the thread. It holds the shard only while it examines it, so the shard can be dropped while the thread sleeps.
fn run(shard: &Weak<Shard>, watch: &Watch) {
    let mut next = Next::Park;
    loop {
        let woken = match mem::replace(&mut next, Next::Park) {
            Next::Park => {
                thread::park();
                Woken::Armed
            }
            Next::Recheck(seen) => {
                thread::sleep(RECHECK_INTERVAL);
                Woken::ToRecheck(seen)
            }
            Next::Poll(until) => {
                watch.wait_as_background(until);
                Woken::AfterPoll
            }
        };
        let Some(shard) = shard.upgrade() else { return };
        // A panic in one procedure must not end the thread that serves all associations.
        next = catch_unwind(AssertUnwindSafe(|| serve(&shard, woken))).unwrap_or(Next::Recheck(0));
    }
}

/// Reason for which the sleep of the thread ended.
enum Woken {
    Armed,
    ToRecheck(u64),
    AfterPoll,
}

/// Serves the sockets, if nothing else does. Returns how to sleep until the next call.
fn serve(shard: &Arc<Shard>, woken: Woken) -> Next {
    let background = &shard.background;
    let mut inner = shard.enter();
    let seen = match woken {
        Woken::Armed if !background.armed.load(Ordering::Acquire) => return Next::Park,
        // The arming thread usually comes back before the interval is over.
        Woken::Armed => return Next::Recheck(inner.activity),
        Woken::ToRecheck(seen) => Some(seen),
        Woken::AfterPoll => {
            shard.resume(&mut inner, Sleeper::Background);
            inner.poller.on_background_ended();
            None
        }
    };
    if inner.is_unsent_old() {
        // A thread that stays away must not delay its unsent messages.
        inner.flush(true);
        inner.take_arrivals();
    }
    if inner.is_idle()
        && let Some(kept) = background.release()
    {
        background.armed.store(false, Ordering::Release);
        inner.dispose();
        drop(inner);
        drop(kept);
        return Next::Park;
    }
    // A shard without streams still answers strangers, who would wait otherwise (RFC 9260 §8.4).
    let others_poll = match inner.poller.current() {
        Poller::Leader => true,
        Poller::Task => inner.open_streams > 0,
        Poller::None | Poller::Background => false,
    };
    if others_poll && !inner.has_unsent() {
        // The next thread that leaves the perimeter arms this one again.
        background.armed.store(false, Ordering::Release);
        return Next::Park;
    }
    if others_poll || seen != Some(inner.activity) {
        return Next::Recheck(inner.activity);
    }
    inner.flush(true);
    inner.poller.on_background_began();
    Next::Poll(shard.prepare_poll(&mut inner, Sleeper::Background))
}
