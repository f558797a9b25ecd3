//! The background thread: it sees to the sockets while no thread of the user does.
//!
//! It is armed once per lapse, when a thread leaves the perimeter with nobody polling. For as long as
//! threads come and go it only looks every millisecond whether they still do; when they have stopped it
//! polls the sockets itself, until a thread needs them again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Duration;
use std::{io, panic};

use crate::shard::{Poller, Shard};

/// How long nobody must have done anything before the background thread takes over.
const LAPSE: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(crate) struct Background {
    thread: OnceLock<Thread>,
    armed: AtomicBool,
}

impl Background {
    pub(crate) fn start(&self, shard: &Arc<Shard>) -> io::Result<()> {
        let weak = Arc::downgrade(shard);
        let handle = thread::Builder::new().name("swiftwater".into()).spawn(move || run(&weak))?;
        let _ = self.thread.set(handle.thread().clone());
        Ok(())
    }

    /// The perimeter was left with nobody polling.
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

    fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    fn disarm(&self) {
        self.armed.store(false, Ordering::Release);
    }
}

fn run(shard: &Weak<Shard>) {
    loop {
        match shard.upgrade() {
            None => return,
            Some(shard) if shard.background().is_armed() => {
                // A fault in one procedure must not end the thread that serves all.
                let _ = panic::catch_unwind(panic::AssertUnwindSafe(|| serve(&shard)));
                continue;
            }
            Some(_) => {}
        }
        thread::park();
    }
}

/// One lapse: from being armed until somebody else polls or nothing is left to do.
fn serve(shard: &Arc<Shard>) {
    loop {
        let seen = shard.enter().activity;
        thread::sleep(LAPSE);
        let mut inner = shard.enter();
        if matches!(inner.poller, Poller::Leader | Poller::Tasks) {
            // Whoever leaves next arms again.
            shard.background().disarm();
            if inner.unsent_is_old() {
                inner.flush(true);
            }
            return;
        }
        if inner.activity != seen {
            // Threads come and go. What a quiet one has left unsent does not wait for it to come back.
            if inner.unsent_is_old() {
                inner.flush(true);
                inner.take_arrivals();
            }
            continue;
        }
        inner.flush(true);
        if inner.is_idle() {
            shard.background().disarm();
            return;
        }
        inner.poller = Poller::Background;
        let (mut inner, _) = shard.lead(inner, None);
        if inner.poller == Poller::Background {
            inner.poller = Poller::None;
        }
    }
}
