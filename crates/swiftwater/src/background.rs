//! The background thread: it sees to the sockets while no thread of the user does.
//!
//! It is armed once per lapse, when a thread leaves the perimeter with nobody polling, or with a message
//! unsent. For as long as threads come and go it only looks every millisecond whether they still do; when
//! they have stopped it polls the sockets itself, until a thread needs them again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{io, mem};

use crate::shard::Shard;
use crate::waiting::Poller;
use crate::watch::{Sleeper, Watch};

/// How long nobody must have done anything before the background thread takes over.
const LAPSE: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(crate) struct Background {
    thread: OnceLock<Thread>,
    armed: AtomicBool,
    /// The shard itself while it has something left to do that nobody waits for.
    kept: Mutex<Option<Arc<Shard>>>,
}

/// The thread's activity until its next look.
enum Next {
    /// Nothing, until it is armed.
    Park,
    /// Lets a lapse go by; the shard's activity so far.
    Lapse(u64),
    /// Polls the sockets.
    Poll(Option<Instant>),
}

impl Background {
    pub(crate) fn start(&self, shard: &Arc<Shard>) -> io::Result<()> {
        let (weak, watch) = (Arc::downgrade(shard), Arc::clone(&shard.watch));
        let handle = thread::Builder::new().name("swiftwater".into()).spawn(move || run(&weak, &watch))?;
        let _ = self.thread.set(handle.thread().clone());
        Ok(())
    }

    /// The perimeter was left with nobody polling, or with a message unsent.
    #[inline]
    pub(crate) fn arm(&self) {
        if !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Ends the sleep of the thread; it leaves if its shard is gone.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Keeps the shard until it has nothing left to do.
    pub(crate) fn keep(&self, shard: Arc<Shard>) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(shard);
    }

    fn release(&self) -> Option<Arc<Shard>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The shard is held only during a look, so that it can go while this thread sleeps.
fn run(shard: &Weak<Shard>, watch: &Watch) {
    let mut next = Next::Park;
    loop {
        let now = match mem::replace(&mut next, Next::Park) {
            Next::Park => {
                thread::park();
                Look::Armed
            }
            Next::Lapse(seen) => {
                thread::sleep(LAPSE);
                Look::AfterLapse(seen)
            }
            Next::Poll(until) => {
                watch.stand_by(until);
                Look::AfterPoll
            }
        };
        let Some(shard) = shard.upgrade() else { return };
        // A fault in one procedure must not end the thread that serves all.
        next = catch_unwind(AssertUnwindSafe(|| look(&shard, now))).unwrap_or(Next::Lapse(0));
    }
}

enum Look {
    Armed,
    AfterLapse(u64),
    AfterPoll,
}

fn look(shard: &Arc<Shard>, look: Look) -> Next {
    let background = shard.background();
    let mut inner = shard.enter();
    let seen = match look {
        Look::Armed if !background.armed.load(Ordering::Acquire) => return Next::Park,
        // Whoever armed us is probably back before the lapse is over.
        Look::Armed => return Next::Lapse(inner.activity),
        Look::AfterLapse(seen) => Some(seen),
        Look::AfterPoll => {
            shard.resume(&mut inner, Sleeper::Background);
            if inner.poller == Poller::Background {
                inner.poller = if inner.has_task { Poller::Task } else { Poller::None };
            }
            None
        }
    };
    if inner.unsent_is_old() {
        // Messages that a quiet thread has left unsent do not wait for it to come back.
        inner.flush(true);
        inner.take_arrivals();
    }
    if inner.is_idle() {
        background.armed.store(false, Ordering::Release);
        if let Some(kept) = background.release() {
            inner.dispose();
            drop(inner);
            drop(kept);
        }
        return Next::Park;
    }
    let others_poll = match inner.poller {
        Poller::Leader => true,
        Poller::Task => inner.open_streams > 0,
        Poller::None | Poller::Background => false,
    };
    if others_poll && !inner.has_unsent() {
        // Whoever leaves next arms again.
        background.armed.store(false, Ordering::Release);
        return Next::Park;
    }
    if others_poll || seen != Some(inner.activity) {
        return Next::Lapse(inner.activity);
    }
    inner.flush(true);
    inner.poller = Poller::Background;
    Next::Poll(shard.stand_by(&mut inner, Sleeper::Background))
}
