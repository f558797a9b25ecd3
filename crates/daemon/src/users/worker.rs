//! Work of the daemon that may wait for what a program holds, such as the lock of an inode or of a socket's queue. It
//! empties pages of closed sockets, checks rings, reads long messages and takes records out of pairs. A sharer of one
//! socket can make such work wait, so another thread continues the work for the user's other sockets.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::system::lock::lock;
use crate::users::threads::UserThreads;

/// Maximum number of threads that work for one user: all but one may be stuck.
pub(crate) const WORKERS_MAX: usize = 8;

/// The threads of one user that work for its sockets.
#[derive(Clone)]
pub(crate) struct Worker {
    threads: Arc<UserThreads>,
}

impl Worker {
    /// Works on these threads, [`WORKERS_MAX`] at most.
    pub(super) fn on(threads: Arc<UserThreads>) -> Worker {
        Worker { threads }
    }

    /// Runs `work` on a thread.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.threads.run(work);
    }
}

/// Work on a thread of a user whose result several tasks may wait for. A thread that is stuck finishes it late or never.
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
    /// Begins work on a thread of `worker`.
    pub(crate) fn begin(worker: &Worker, work: impl FnOnce() -> T + Send + 'static) -> Arc<Job<T>> {
        let state = Mutex::new(State::UnderWay);
        let job = Arc::new(Job { state, done: Notify::new() });
        let running = Arc::clone(&job);
        worker.run(move || {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{WAIT_MAX, soon};
    use crate::users::threads::Threads;

    #[tokio::test(flavor = "local")]
    async fn work_goes_on_beside_work_that_is_stuck() {
        let worker = Worker::on(UserThreads::new(&Threads::new(), WORKERS_MAX));
        let (begin, begun) = std::sync::mpsc::channel();
        let stick = || {
            let (begin, (end_it, ends)) = (begin.clone(), std::sync::mpsc::channel::<()>());
            worker.run(move || {
                begin.send(()).unwrap_or_default();
                ends.recv().unwrap_or_default();
            });
            end_it
        };
        let mut stuck = vec![stick()];
        let job = Job::begin(&worker, || 7);
        soon(job.done()).await;
        assert_eq!(job.take(), Some(7));
        // As many threads as a user may have, and no more.
        stuck.extend((0..WORKERS_MAX).map(|_| stick()));
        let job = Job::begin(&worker, || 8);
        for _ in 0..2 * WORKERS_MAX {
            worker.threads.pretend_late();
            worker.run(|| ());
        }
        for _ in 0..WORKERS_MAX {
            begun.recv_timeout(WAIT_MAX).expect("each thread begins a piece of work that is stuck");
        }
        assert_eq!((worker.threads.threads(), job.take()), (WORKERS_MAX, None));
        assert!(begun.try_recv().is_err(), "no further thread");
        drop(stuck);
        soon(job.done()).await;
        assert_eq!(job.take(), Some(8));
    }
}
