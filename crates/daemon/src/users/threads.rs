//! Threads that do the work of users which may wait for a program, so that the daemon's thread does none of it.
//!
//! Each user has several queues of work, and each queue has threads of its own: work that is stuck delays the same queue,
//! and no other user. Threads are started on demand, and end when they have no more work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::system::journal::{Cause, log};
use crate::system::lock::lock;

/// Maximum number of threads of all users; `TasksMax` of the systemd unit leaves room for them. Further users wait until
/// another user's thread has no more work.
const THREADS_MAX: usize = 512;
/// Number of running threads from which a queue that has one gets no other. The rest is for queues without any, so that users
/// whose threads are stuck cannot take with eight threads each what others need to close a descriptor.
const RELIEF_THREADS_MAX: usize = THREADS_MAX / 2;
/// A thread without work exits after this time.
const THREAD_IDLE: Duration = Duration::from_secs(2);
/// Stack size of a thread, which makes single system calls.
const THREAD_STACK_BYTES: usize = 64 * 1024;
/// Interval for trying to start a thread if the host has none left.
const SPAWN_WAIT: Duration = Duration::from_millis(100);
/// Work that takes longer counts as stuck.
pub(super) const STUCK_AFTER: Duration = Duration::from_millis(500);

/// The threads of all users of a daemon.
pub(super) struct Threads {
    state: Mutex<State>,
}

struct State {
    /// Number of running threads.
    running: usize,
    stack_bytes: usize,
    /// Queues with work and without a thread.
    waiting: VecDeque<Arc<UserThreads>>,
}

impl State {
    /// Returns a queue for a thread that has finished its own work; `None` if the thread should exit.
    fn next_of_thread(&mut self) -> Option<Arc<UserThreads>> {
        let next = self.waiting.pop_front();
        match &next {
            Some(next) => next.queue().begin(),
            None => self.running -= 1,
        }
        next
    }
}

/// A queue of work of one user, and the threads that do it.
pub(super) struct UserThreads {
    all: Arc<Threads>,
    /// Maximum number of threads. One does all work; the next one begins when those that run take too long, if all users
    /// together have fewer than [`RELIEF_THREADS_MAX`].
    threads_max: usize,
    queue: Mutex<Queue>,
    /// Number of waiting pieces of work, plus those in progress. Changes while `queue` is locked.
    pending: AtomicUsize,
    /// Notifies the threads of new work.
    more: Condvar,
    /// Notifies tasks of finished work.
    less: Notify,
}

struct Queue {
    waiting: VecDeque<Work>,
    /// Number of running threads.
    threads: usize,
    /// Whether there is no thread, and the queue waits for one: others have all of them, or the host has none left.
    awaits_thread: bool,
    /// Whether a task starts further threads while those that run take too long.
    watched: bool,
    /// When work was last finished, the first was queued, or a thread was started.
    since: Instant,
}

type Work = Box<dyn FnOnce() + Send>;

impl Queue {
    /// Records that a thread begins to work for this queue.
    fn begin(&mut self) {
        self.threads += 1;
        self.awaits_thread = false;
        self.since = Instant::now();
    }
}

impl Threads {
    pub(super) fn new() -> Arc<Threads> {
        let state = State { running: 0, stack_bytes: THREAD_STACK_BYTES, waiting: VecDeque::new() };
        Arc::new(Threads { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl UserThreads {
    pub(super) fn new(all: &Arc<Threads>, threads_max: usize) -> Arc<UserThreads> {
        let (waiting, since) = (VecDeque::new(), Instant::now());
        let queue = Queue { waiting, threads: 0, awaits_thread: false, watched: false, since };
        let (queue, pending) = (Mutex::new(queue), AtomicUsize::new(0));
        let (more, less) = (Condvar::new(), Notify::new());
        Arc::new(UserThreads { all: Arc::clone(all), threads_max, queue, pending, more, less })
    }

    /// Runs `work` on a thread, after all work that was queued before has at least begun.
    pub(super) fn run(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        {
            let mut queue = self.queue();
            if self.pending.fetch_add(1, Relaxed) == 0 {
                queue.since = Instant::now();
            }
            queue.waiting.push_back(Box::new(work));
            // Without a runtime the process is about to exit.
            if self.threads_max > 1
                && !queue.watched
                && let Ok(runtime) = Handle::try_current()
            {
                queue.watched = true;
                runtime.spawn(Arc::clone(self).watch());
            }
            if queue.threads > 0 && !self.may_relieve(&queue) {
                self.more.notify_one();
                return;
            }
        }
        self.start(&mut self.all.state());
    }

    /// Returns the number of pieces of work that wait or are in progress.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Relaxed)
    }

    /// Returns whether the threads take too long for a piece of work. A queue without a thread, because those of other
    /// users are stuck, is not late.
    pub(super) fn is_late(&self) -> bool {
        self.is_queue_late(&self.queue())
    }

    fn is_queue_late(&self, queue: &Queue) -> bool {
        self.pending() > 0 && queue.threads > 0 && queue.since.elapsed() > STUCK_AFTER
    }

    /// Waits until a piece of work that is unfinished now is finished.
    pub(super) fn finished(&self) -> Notified<'_> {
        self.less.notified()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn may_relieve(&self, queue: &Queue) -> bool {
        queue.threads < self.threads_max && self.is_queue_late(queue)
    }

    /// Starts a thread, if one is needed. If there are too many, a queue without any waits for another thread; if the host
    /// has none left, the queue also tries again.
    fn start(self: &Arc<Self>, state: &mut State) {
        let mut queue = self.queue();
        if queue.threads > 0 && !self.may_relieve(&queue) {
            return;
        }
        let running_max = if queue.threads > 0 { RELIEF_THREADS_MAX } else { THREADS_MAX };
        let may_start = state.running < running_max;
        if may_start && self.spawn(state.stack_bytes) {
            queue.begin();
            state.running += 1;
            state.waiting.retain(|waiting| !Arc::ptr_eq(waiting, self));
        } else if queue.threads == 0 && !queue.awaits_thread {
            queue.awaits_thread = true;
            state.waiting.push_back(Arc::clone(self));
            // Without a runtime the process is about to exit, which ends all work.
            if may_start && let Ok(runtime) = Handle::try_current() {
                runtime.spawn(Arc::clone(self).start_later());
            }
        }
    }

    /// Starts further threads for what waits behind work that takes too long, until there is no more work.
    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(STUCK_AFTER).await;
            {
                let mut queue = self.queue();
                if self.pending() == 0 {
                    queue.watched = false;
                    return;
                }
                if !self.may_relieve(&queue) {
                    continue;
                }
            }
            self.start(&mut self.all.state());
        }
    }

    /// Tries to start the thread until it succeeds.
    async fn start_later(self: Arc<Self>) {
        while self.queue().awaits_thread {
            tokio::time::sleep(SPAWN_WAIT).await;
            self.start(&mut self.all.state());
        }
    }

    fn spawn(self: &Arc<Self>, stack_bytes: usize) -> bool {
        let queue = Arc::clone(self);
        let thread = std::thread::Builder::new().name("user work".into()).stack_size(stack_bytes);
        let spawned = thread.spawn(move || UserThreads::serve(queue));
        if let Err(error) = &spawned {
            log(
                Cause::Daemon,
                format_args!("cannot start a thread for work that may wait for a program: {error}"),
            );
        }
        spawned.is_ok()
    }

    /// Runs a thread: does the work of one queue, then of queues without a thread.
    fn serve(mut queue: Arc<UserThreads>) {
        loop {
            queue.run_queue();
            let next = queue.all.state().next_of_thread();
            match next {
                Some(next) => queue = next,
                None => return,
            }
        }
    }

    /// Does all queued work, and new work until none has arrived for [`THREAD_IDLE`].
    fn run_queue(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(work) = queue.waiting.pop_front() {
                drop(queue);
                work();
                queue = self.queue();
                self.pending.fetch_sub(1, Relaxed);
                queue.since = Instant::now();
                self.less.notify_waiters();
                continue;
            }
            let waited = self.more.wait_timeout(queue, THREAD_IDLE);
            let (again, wait) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            if wait.timed_out() && queue.waiting.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
impl Threads {
    /// Makes all threads look as if others had them, so that the work of a queue without one only waits.
    pub(super) fn pretend_none_is_left(&self) {
        self.state().running = THREADS_MAX;
    }
}

#[cfg(test)]
impl UserThreads {
    /// Makes the threads look as if they had finished nothing for a long time.
    pub(super) fn pretend_late(&self) {
        let long_ago = Instant::now().checked_sub(2 * STUCK_AFTER);
        self.queue().since = long_ago.expect("the host is up for longer");
    }

    pub(super) fn threads(&self) -> usize {
        self.queue().threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{WAIT_MAX, soon, until};

    fn nothing() {}

    #[test]
    fn the_unit_leaves_room_for_all_threads() {
        let unit = include_str!("../../../../packaging/systemd/swiftwater.service");
        let tasks = unit.lines().find_map(|line| line.strip_prefix("TasksMax=")).expect("it has a limit");
        assert!(tasks.parse::<usize>().expect("a number") > THREADS_MAX + 1);
    }

    #[test]
    fn a_user_whom_others_leave_no_thread_is_not_late() {
        let all = Threads::new();
        // Simulates that closes of other users are stuck.
        all.state().running = THREADS_MAX;
        let one = UserThreads::new(&all, 1);
        one.run(nothing);
        one.pretend_late();
        assert_eq!((one.is_late(), one.pending(), one.threads()), (false, 1, 0));
        // From here on, the thread that exists counts.
        all.state().running -= 1;
        one.start(&mut all.state());
        assert!(!one.is_late());
    }

    /// Waits until a queue has no more work.
    async fn until_idle(queue: &UserThreads) {
        until("its work is done", || queue.pending() == 0).await;
    }

    #[tokio::test(flavor = "local")]
    async fn a_thread_without_work_is_not_late() {
        let all = Threads::new();
        let worker = UserThreads::new(&all, 8);
        worker.run(nothing);
        until_idle(&worker).await;
        worker.pretend_late();
        assert!(!worker.is_late(), "it has nothing to do");
        // New work begins after a pause, and is late only when it takes long itself.
        let (end_it, ends) = std::sync::mpsc::channel::<()>();
        worker.run(move || ends.recv().unwrap_or_default());
        assert_eq!((worker.is_late(), worker.threads()), (false, 1));
        worker.pretend_late();
        assert!(worker.is_late());
        drop(end_it);
    }

    #[tokio::test(flavor = "local")]
    async fn work_that_is_finished_is_told_and_begins_the_time_of_the_next() {
        let all = Threads::new();
        let worker = UserThreads::new(&all, 1);
        let [(end_first, first), (end_second, second)] = [(); 2].map(|()| std::sync::mpsc::channel::<()>());
        worker.run(move || first.recv().unwrap_or_default());
        worker.run(move || second.recv().unwrap_or_default());
        worker.pretend_late();
        assert!(worker.is_late());
        let finished = worker.finished();
        drop(end_first);
        soon(finished).await;
        assert_eq!((worker.pending(), worker.is_late()), (1, false));
        drop(end_second);
    }

    #[tokio::test(flavor = "local")]
    async fn a_queue_whose_thread_has_ended_gets_another() {
        let all = Threads::new();
        let worker = UserThreads::new(&all, 1);
        for _ in 0..2 {
            let (done, is_done) = tokio::sync::oneshot::channel();
            worker.run(move || done.send(()).expect("the test waits"));
            soon(is_done).await.expect("a thread does the work");
            until("its thread has ended", || worker.threads() == 0 && all.state().running == 0).await;
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_queue_of_several_threads_has_one_watcher_and_a_queue_of_one_has_none() {
        let all = Threads::new();
        for (threads_max, is_watched) in [(1, false), (2, true)] {
            let queue = UserThreads::new(&all, threads_max);
            let (end_it, ends) = std::sync::mpsc::channel::<()>();
            queue.run(move || ends.recv().unwrap_or_default());
            let references = Arc::strong_count(&queue);
            (0..3).for_each(|_| queue.run(nothing));
            assert_eq!((queue.queue().watched, Arc::strong_count(&queue)), (is_watched, references));
            drop(end_it);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn threads_that_relieve_others_leave_a_part_to_queues_without_any() {
        let all = Threads::new();
        let worker = UserThreads::new(&all, 8);
        let (end_it, ends) = std::sync::mpsc::channel::<()>();
        worker.run(move || ends.recv().unwrap_or_default());
        // Simulates that workers of many users are stuck.
        all.state().running = RELIEF_THREADS_MAX;
        worker.pretend_late();
        worker.run(nothing);
        assert_eq!((worker.threads(), worker.pending()), (1, 2));
        assert!(all.state().waiting.is_empty(), "only a queue without a thread waits for one");
        let closer = UserThreads::new(&all, 1);
        closer.run(nothing);
        assert_eq!((closer.threads(), all.state().running), (1, RELIEF_THREADS_MAX + 1));
        all.state().running = RELIEF_THREADS_MAX - 1;
        worker.pretend_late();
        worker.run(nothing);
        assert_eq!(worker.threads(), 2);
        drop(end_it);
    }

    /// No host has this much memory.
    const ABSURD_STACK_BYTES: usize = 1 << 60;

    #[tokio::test(flavor = "local")]
    async fn a_thread_that_cannot_be_started_is_started_later() {
        let all = Threads::new();
        all.state().stack_bytes = ABSURD_STACK_BYTES;
        let one = UserThreads::new(&all, 1);
        let (done, is_done) = tokio::sync::oneshot::channel();
        one.run(move || done.send(()).expect("the test waits"));
        let threads = || {
            let state = all.state();
            (state.running, state.waiting.len())
        };
        one.run(nothing);
        assert_eq!((threads(), one.pending()), ((0, 1), 2), "it waits once");
        all.state().stack_bytes = THREAD_STACK_BYTES;
        soon(is_done).await.expect("a later thread does the work");
        assert_eq!((threads(), one.queue().awaits_thread), ((1, 0), false));
    }

    #[test]
    fn a_thread_with_nothing_to_do_goes_on_with_the_work_of_another_user() {
        let all = Threads::new();
        let (one, other) = (UserThreads::new(&all, 1), UserThreads::new(&all, 1));
        one.run(nothing);
        all.state().stack_bytes = ABSURD_STACK_BYTES;
        let (done, is_done) = std::sync::mpsc::channel();
        other.run(move || done.send(()).expect("the test waits"));
        is_done.recv_timeout(WAIT_MAX).expect("the thread of the first user does the work of the other");
        assert_eq!(all.state().running, 1);
    }
}
