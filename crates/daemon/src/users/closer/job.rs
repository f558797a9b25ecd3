//! Work on a thread of a user whose result several tasks may wait for.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::Closer;
use crate::system::lock::lock;

/// Work that a thread of a user does. A thread that is stuck finishes it late or never.
pub(crate) struct Job<T> {
    state: Mutex<State<T>>,
    done: Notify,
}

enum State<T> {
    UnderWay,
    Done(T),
    /// The result was taken.
    Taken,
}

impl<T: Send + 'static> Job<T> {
    /// Begins work on the thread of `closer`.
    pub(crate) fn begin(closer: &Arc<Closer>, work: impl FnOnce() -> T + Send + 'static) -> Arc<Job<T>> {
        let state = Mutex::new(State::UnderWay);
        let job = Arc::new(Job { state, done: Notify::new() });
        let running = Arc::clone(&job);
        closer.run(move || {
            let result = work();
            *running.state() = State::Done(result);
            running.done.notify_waiters();
        });
        job
    }

    /// Returns the result, if it is there and was not taken.
    pub(crate) fn take(&self) -> Option<T> {
        let mut state = self.state();
        if !matches!(*state, State::Done(_)) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(result) => Some(result),
            State::UnderWay | State::Taken => None,
        }
    }

    /// Waits until the work is done.
    pub(crate) async fn done(&self) {
        let mut done = pin!(self.done.notified());
        // The thread may finish between the look and the wait.
        done.as_mut().enable();
        if matches!(*self.state(), State::UnderWay) {
            done.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}
