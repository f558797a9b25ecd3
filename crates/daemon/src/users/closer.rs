//! Closes descriptors of programs without delaying other users.
//!
//! The owner of a descriptor decides how long its last close takes: a TCP socket waits for its peer (`SO_LINGER`), a
//! file of FUSE for its server, any socket for the holder of the lock of an epoll instance that watches it. So the
//! daemon's thread closes no descriptor of a program, and no socket of its own whose queue may contain such
//! descriptors. Separate threads close them, each for one user and one source: while one is stuck, requests of this
//! user fail, and no others.
//!
//! Further threads of a user do other work that may wait for what a program holds: they empty pages of closed sockets, check
//! rings, read long messages and take records out of carriers. A sharer of one socket can make such work wait, so another thread
//! goes on with the work for the user's other sockets.

mod job;
mod received;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

pub(crate) use self::job::Job;
pub(crate) use self::received::{End, ReceivedDescriptor, all_received, gone, receive};
use crate::system::journal::log;
use crate::system::lock::lock;
use crate::users::descriptor_numbers::{MESSAGE_DESCRIPTORS_MAX, Numbers, Taken};
use crate::users::thread_time::ThreadTime;

/// Maximum number of closing threads; `TasksMax` of the systemd unit leaves room for them. Further users wait until
/// another user's thread has no more work.
const THREADS_MAX: usize = 512;
/// A thread without work exits after this time.
const THREAD_IDLE: Duration = Duration::from_secs(2);
/// Stack size of a thread, which makes single system calls.
const THREAD_STACK_BYTES: usize = 64 * 1024;
/// Interval for trying to start a thread if the host has none left.
const SPAWN_WAIT: Duration = Duration::from_millis(100);
/// A close that takes longer counts as stuck.
const STUCK_AFTER: Duration = Duration::from_millis(500);
/// Time that a request waits for a closer that is stuck.
pub(crate) const STUCK_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of threads that work for one user: all but one may be stuck.
pub(crate) const WORKERS_MAX: usize = 8;
/// Maximum number of descriptors that wait to be closed for one user and source.
const PENDING_MAX: usize = 2 * MESSAGE_DESCRIPTORS_MAX;
/// Number of waiting descriptors beyond which the daemon's thread closes itself what certainly does not block.
const BEHIND_AFTER: usize = MESSAGE_DESCRIPTORS_MAX;
/// Maximum time that an answer waits until the descriptor of its request is closed.
const CLOSE_WAIT: Duration = Duration::from_millis(50);
/// Interval for rechecking whether descriptor numbers are free.
const NUMBERS_RECHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The source of descriptors. A program that was passed another user's socket may write into its carrier; separate
/// sources keep this from affecting that user's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Requests,
    Carriers,
    /// Work of the daemon that may wait for a program, without descriptors of programs.
    Work,
}

impl Source {
    pub(crate) const ALL: [Source; 3] = [Source::Requests, Source::Carriers, Source::Work];

    /// Returns the maximum number of threads. Descriptors are closed in order, by one.
    fn threads_max(self) -> usize {
        match self {
            Source::Requests | Source::Carriers => 1,
            Source::Work => WORKERS_MAX,
        }
    }
}

type Key = (u32, Source);

/// All closers of a daemon.
pub(crate) struct Closers {
    numbers: Arc<Numbers>,
    state: Mutex<State>,
}

struct State {
    closers: HashMap<Key, Weak<Closer>>,
    /// The times of users that have closers, or whose times are measured.
    times: HashMap<u32, Arc<ThreadTime>>,
    threads: usize,
    thread_stack_bytes: usize,
    /// Closers with work and without a thread.
    waiting: VecDeque<Arc<Closer>>,
}

impl State {
    fn time_of(&mut self, user: u32) -> Arc<ThreadTime> {
        self.times.retain(|_, time| Arc::strong_count(time) > 1 || !time.is_idle());
        Arc::clone(self.times.entry(user).or_default())
    }

    /// Returns a closer for a thread that has finished its own work; `None` if the thread should exit.
    fn next_of_thread(&mut self) -> Option<Arc<Closer>> {
        let next = self.waiting.pop_front();
        match &next {
            Some(next) => next.work().begin(),
            None => self.threads -= 1,
        }
        next
    }
}

/// Closes the descriptors from one user and source.
pub(crate) struct Closer {
    all: Arc<Closers>,
    key: Key,
    /// The time that calls on sockets of the user take.
    time: Arc<ThreadTime>,
    work: Mutex<Work>,
    /// Notifies the thread of new work.
    more: Condvar,
    /// Notifies tasks of finished work.
    less: Notify,
}

struct Work {
    queue: VecDeque<Load>,
    /// Number of queued items, plus those in progress.
    pending: usize,
    /// Number of running threads.
    threads: usize,
    /// Whether the closer has no thread and waits for one: other closers have all of them, or the host has none left.
    awaits_thread: bool,
    /// Whether a task starts further threads while those that run take too long.
    watched: bool,
    /// When the last item was finished, the first was queued, or a thread was started.
    since: Instant,
}

impl Work {
    /// Records that a thread begins to work for this closer.
    fn begin(&mut self) {
        self.threads += 1;
        self.awaits_thread = false;
        self.since = Instant::now();
    }

    /// Returns whether the threads take too long for an item.
    fn is_late(&self) -> bool {
        self.pending > 0 && self.threads > 0 && self.since.elapsed() > STUCK_AFTER
    }
}

struct Load {
    item: Item,
    closed: Option<oneshot::Sender<()>>,
}

enum Item {
    Descriptor(OwnedFd, Taken),
    /// Other work that may wait for a lock that a program holds, or take long.
    Work(Box<dyn FnOnce() + Send>),
}

impl Item {
    fn handle(self) {
        match self {
            Item::Descriptor(descriptor, number) => {
                drop(descriptor);
                drop(number);
            }
            Item::Work(work) => work(),
        }
    }
}

impl Closers {
    pub(crate) fn new(numbers: Arc<Numbers>) -> Arc<Closers> {
        let state = State {
            closers: HashMap::new(),
            times: HashMap::new(),
            threads: 0,
            thread_stack_bytes: THREAD_STACK_BYTES,
            waiting: VecDeque::new(),
        };
        Arc::new(Closers { numbers, state: Mutex::new(state) })
    }

    /// Returns the closer for a user and source.
    pub(crate) fn of(self: &Arc<Self>, user: u32, source: Source) -> Arc<Closer> {
        let mut state = self.state();
        let known = state.closers.get(&(user, source)).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let time = state.time_of(user);
            let closer = Arc::new(Closer::new(Arc::clone(self), (user, source), time));
            state.closers.insert((user, source), Arc::downgrade(&closer));
            closer
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Closer {
    fn new(all: Arc<Closers>, key: Key, time: Arc<ThreadTime>) -> Closer {
        let (queue, since) = (VecDeque::new(), Instant::now());
        let work = Work { queue, pending: 0, threads: 0, awaits_thread: false, watched: false, since };
        Closer { all, key, time, work: Mutex::new(work), more: Condvar::new(), less: Notify::new() }
    }

    /// Takes ownership of a descriptor that a program may hold, too.
    pub(crate) fn take_over(self: &Arc<Self>, descriptor: OwnedFd) -> ReceivedDescriptor {
        let number = self.all.numbers.count(1);
        ReceivedDescriptor::new(descriptor, number, Arc::clone(self))
    }

    /// Takes ownership of a connection on which the user sends a request.
    pub(crate) fn guard_connection(self: &Arc<Self>, socket: OwnedFd) -> End {
        End::new(self.take_over(socket), Arc::clone(&self.time))
    }

    /// Takes ownership of the daemon's end of a carrier, whose other end programs share.
    pub(crate) fn guard_carrier(self: &Arc<Self>, socket: OwnedFd) -> End {
        End::new(self.take_over(socket), Arc::new(ThreadTime::of_socket(&self.time)))
    }

    /// Returns the time that calls on connections and sockets of the user take.
    pub(crate) fn time(&self) -> &ThreadTime {
        &self.time
    }

    /// Counts the number of a descriptor of the daemon.
    pub(crate) fn number(&self) -> Taken {
        self.numbers(1)
    }

    /// Counts the numbers of so many descriptors of the daemon.
    pub(crate) fn numbers(&self, count: usize) -> Taken {
        self.all.numbers.count(count)
    }

    /// Returns the threads of the same user for work that may wait for a program.
    pub(crate) fn worker(&self) -> Arc<Closer> {
        self.all.of(self.key.0, Source::Work)
    }

    /// Starts another thread, if there may be one more and those that run take too long.
    fn relieve(self: &Arc<Self>) {
        if self.may_relieve(&self.work()) {
            self.start(&mut self.all.state());
        }
    }

    fn may_relieve(&self, work: &Work) -> bool {
        work.threads < self.key.1.threads_max() && work.is_late()
    }

    /// Runs `work` on the closing thread. The work may wait for a lock that a program holds, such as that of an inode
    /// or of a socket's queue.
    pub(crate) fn run(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        self.push(Load { item: Item::Work(Box::new(work)), closed: None });
    }

    /// Returns whether a message with descriptors may be received.
    pub(crate) fn has_room(&self) -> bool {
        self.all.numbers.has(0) && self.work().pending <= PENDING_MAX
    }

    /// Waits until a message with descriptors may be received.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            let less = self.less.notified();
            // Numbers that other closers free send no notification to this one.
            let _ = timeout(NUMBERS_RECHECK_INTERVAL, less).await;
        }
    }

    /// Returns whether the closer is stuck: an item has taken too long, or too many wait. A closer without a thread,
    /// because those of other users are stuck, is not: its descriptors wait as long as there is room for them.
    pub(crate) fn is_stuck(&self) -> bool {
        let work = self.work();
        work.pending > PENDING_MAX || work.is_late()
    }

    /// Returns whether more waits than the thread is going to close soon.
    pub(super) fn is_behind(&self) -> bool {
        self.is_stuck() || self.work().pending > BEHIND_AFTER
    }

    /// Waits until the closer is no longer stuck. Returns false if it still is after [`STUCK_WAIT`]. On a busy host, a closer looks
    /// stuck while its thread waits for the processor.
    pub(crate) async fn goes_on(&self) -> bool {
        let goes_on = async {
            loop {
                let less = self.less.notified();
                if !self.is_stuck() {
                    return;
                }
                less.await;
            }
        };
        timeout(STUCK_WAIT, goes_on).await.is_ok()
    }

    /// Waits for a limited time until the closer has no work.
    pub(crate) async fn drained(&self) {
        let drained = async {
            loop {
                let less = self.less.notified();
                if self.work().pending == 0 {
                    return;
                }
                less.await;
            }
        };
        // A stuck close harms only this user.
        let _ = timeout(CLOSE_WAIT, drained).await;
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }

    fn push(self: &Arc<Self>, load: Load) {
        {
            let mut work = self.work();
            if work.pending == 0 {
                work.since = Instant::now();
            }
            work.pending += 1;
            work.queue.push_back(load);
            // Without a runtime the process is about to exit.
            if self.key.1.threads_max() > 1
                && !work.watched
                && let Ok(runtime) = Handle::try_current()
            {
                work.watched = true;
                runtime.spawn(Arc::clone(self).watch());
            }
            if work.threads > 0 && !self.may_relieve(&work) {
                self.more.notify_one();
                return;
            }
        }
        self.start(&mut self.all.state());
    }

    /// Starts a thread, if one is needed. If there are too many, a closer without any waits for another thread; if the host has none
    /// left, the closer also tries again.
    fn start(self: &Arc<Self>, state: &mut State) {
        let mut work = self.work();
        if work.threads > 0 && !self.may_relieve(&work) {
            return;
        }
        let may_start = state.threads < THREADS_MAX;
        if may_start && self.spawn(state.thread_stack_bytes) {
            work.begin();
            state.threads += 1;
            state.waiting.retain(|waiting| !Arc::ptr_eq(waiting, self));
        } else if work.threads == 0 && !work.awaits_thread {
            work.awaits_thread = true;
            state.waiting.push_back(Arc::clone(self));
            // Without a runtime the process is about to exit, which closes the descriptors.
            if may_start && let Ok(runtime) = Handle::try_current() {
                runtime.spawn(Arc::clone(self).start_later());
            }
        }
    }

    /// Starts further threads for what waits behind work that takes too long, until there is no more work.
    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(STUCK_AFTER).await;
            let mut work = self.work();
            if work.pending == 0 {
                work.watched = false;
                return;
            }
            drop(work);
            self.relieve();
        }
    }

    /// Tries to start the thread until it succeeds.
    async fn start_later(self: Arc<Self>) {
        while self.work().awaits_thread {
            tokio::time::sleep(SPAWN_WAIT).await;
            self.start(&mut self.all.state());
        }
    }

    fn spawn(self: &Arc<Self>, stack_bytes: usize) -> bool {
        let closer = Arc::clone(self);
        let thread = std::thread::Builder::new().name("closer".into()).stack_size(stack_bytes);
        let spawned = thread.spawn(move || Closer::serve(closer));
        if let Err(error) = &spawned {
            log(format_args!("cannot start a thread that closes descriptors of programs: {error}"));
        }
        spawned.is_ok()
    }

    /// Runs a thread: does the work of one closer, then of closers without a thread.
    fn serve(mut closer: Arc<Closer>) {
        loop {
            closer.run_queue();
            let all = Arc::clone(&closer.all);
            let next = all.state().next_of_thread();
            match next {
                // Dropping the last reference to a closer takes the lock, which is not held here.
                Some(next) => closer = next,
                None => return,
            }
        }
    }

    /// Handles all queued work, and new work until none has arrived for [`THREAD_IDLE`].
    fn run_queue(&self) {
        let mut work = self.work();
        loop {
            if let Some(Load { item, closed }) = work.queue.pop_front() {
                drop(work);
                item.handle();
                work = self.work();
                work.pending -= 1;
                work.since = Instant::now();
                self.less.notify_waiters();
                // The waiting task may have been cancelled.
                let _ = closed.map(|closed| closed.send(()));
                continue;
            }
            let waited = self.more.wait_timeout(work, THREAD_IDLE);
            let (again, wait) = waited.unwrap_or_else(PoisonError::into_inner);
            work = again;
            if wait.timed_out() && work.queue.is_empty() {
                work.threads -= 1;
                return;
            }
        }
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        let mut state = self.all.state();
        // A new closer with this key may exist since the last reference to this one was dropped.
        if state.closers.get(&self.key).is_some_and(|known| known.strong_count() == 0) {
            state.closers.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
        sendmsg, socketpair, sockopt,
    };

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    /// Returns a socket whose close waits for its peer, and the peer.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (program_end, _) = listener.accept().expect("a connection");
        sockopt::set_socket_linger(&client, Some(Duration::from_secs(1000))).expect("a socket");
        client.set_nonblocking(true).expect("a socket");
        let full = loop {
            if let Err(error) = client.write(&[0; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        (client.into(), program_end)
    }

    #[test]
    fn the_unit_leaves_room_for_all_threads() {
        let unit = include_str!("../../../../packaging/systemd/swiftwater.service");
        let tasks = unit.lines().find_map(|line| line.strip_prefix("TasksMax=")).expect("it has a limit");
        assert!(tasks.parse::<usize>().expect("a number") > THREADS_MAX + 1);
    }

    #[tokio::test(flavor = "local")]
    async fn one_that_is_stuck_keeps_no_other_user_waiting() {
        let closers = Closers::new(Numbers::with_max(1 << 16));
        let (one, other) = (closers.of(1, Source::Requests), closers.of(2, Source::Requests));
        let (descriptor, peer) = lingering();
        drop(one.take_over(descriptor));
        while !one.is_stuck() {
            tokio::time::sleep(STUCK_AFTER / 10).await;
        }
        drop(other.take_over(pair().0));
        // The thread may have to wait for a processor.
        while other.work().pending > 0 {
            tokio::time::sleep(STUCK_AFTER / 10).await;
        }
        assert!(!other.is_stuck() && one.is_stuck());
        let same_user = closers.of(1, Source::Carriers);
        assert!(!same_user.is_stuck(), "another source");
        // The reset of the connection ends the close.
        drop(peer);
        while one.work().pending > 0 {
            tokio::time::sleep(STUCK_AFTER / 10).await;
        }
        assert!(!one.is_stuck());
    }

    #[tokio::test(flavor = "local")]
    async fn work_goes_on_beside_work_that_is_stuck() {
        let worker = Closers::new(Numbers::with_max(1 << 16)).of(1, Source::Work);
        let stick = || {
            let (end_it, ends) = std::sync::mpsc::channel::<()>();
            worker.run(move || ends.recv().unwrap_or_default());
            end_it
        };
        let mut stuck = vec![stick()];
        let job = Job::begin(&worker, || 7);
        job.done().await;
        assert_eq!(job.take(), Some(7));
        // As many threads as a user may have, and no more.
        stuck.extend((0..WORKERS_MAX).map(|_| stick()));
        let job = Job::begin(&worker, || 8);
        for _ in 0..2 * WORKERS_MAX {
            worker.work().since =
                Instant::now().checked_sub(2 * STUCK_AFTER).expect("the host is up for longer");
            worker.relieve();
            // A new thread begins with the next item.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!((worker.work().threads, job.take()), (WORKERS_MAX, None));
        drop(stuck);
        job.done().await;
        assert_eq!(job.take(), Some(8));
    }

    #[test]
    fn a_user_whom_others_leave_no_thread_is_not_stuck() {
        let closers = Closers::new(Numbers::with_max(1 << 16));
        // Simulates that closes of other users are stuck.
        closers.state().threads = THREADS_MAX;
        let one = closers.of(1, Source::Requests);
        drop(one.take_over(pair().0));
        let long_ago = Instant::now().checked_sub(2 * STUCK_AFTER).expect("the host is up for longer");
        one.work().since = long_ago;
        assert!(!one.is_stuck() && one.has_room());
        // From here on, the thread that exists counts.
        closers.state().threads -= 1;
        one.start(&mut closers.state());
        assert!(!one.is_stuck());
    }

    /// No host has this much memory.
    const ABSURD_STACK_BYTES: usize = 1 << 60;

    #[tokio::test(flavor = "local")]
    async fn a_thread_that_cannot_be_started_is_started_later() {
        let closers = Closers::new(Numbers::with_max(1 << 16));
        closers.state().thread_stack_bytes = ABSURD_STACK_BYTES;
        let one = closers.of(1, Source::Requests);
        drop(one.take_over(pair().0));
        let threads = || {
            let state = closers.state();
            (state.threads, state.waiting.len())
        };
        assert_eq!((threads(), one.work().pending), ((0, 1), 1));
        closers.state().thread_stack_bytes = THREAD_STACK_BYTES;
        while one.work().pending > 0 {
            tokio::time::sleep(SPAWN_WAIT).await;
        }
        assert_eq!(threads(), (1, 0));
    }

    #[test]
    fn a_thread_with_nothing_to_do_goes_on_with_the_work_of_another_user() {
        let closers = Closers::new(Numbers::with_max(1 << 16));
        let (one, other) = (closers.of(1, Source::Requests), closers.of(2, Source::Requests));
        drop(one.take_over(pair().0));
        closers.state().thread_stack_bytes = ABSURD_STACK_BYTES;
        drop(other.take_over(pair().0));
        while other.work().pending > 0 {
            std::thread::sleep(STUCK_AFTER / 10);
        }
        assert_eq!(closers.state().threads, 1);
    }

    #[tokio::test(flavor = "local")]
    async fn a_user_has_room_for_so_much() {
        let closers = Closers::new(Numbers::with_max(1 << 16));
        let one = closers.of(1, Source::Requests);
        let (descriptor, peer) = lingering();
        drop(one.take_over(descriptor));
        let (copied, _) = pair();
        for _ in 0..PENDING_MAX {
            assert!(one.has_room());
            drop(one.take_over(copied.try_clone().expect("a copy")));
        }
        assert!(!one.has_room() && one.is_stuck());
        // The reset of the connection ends the close.
        drop(peer);
        one.room().await;
        assert!(one.has_room());
    }

    /// Puts a record into a socket that is connected, with a descriptor or without.
    fn put(socket: &OwnedFd, content: &[u8], has_descriptor: bool) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [socket.as_fd()];
        if has_descriptor {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let record = [std::io::IoSlice::new(content)];
        sendmsg(socket, &record, &mut control, SendFlags::NOSIGNAL).expect("there is room");
    }

    #[tokio::test(flavor = "local")]
    async fn unread_records_without_descriptors_cost_a_user_who_is_stuck_no_number() {
        let closers = Closers::new(Numbers::with_max(1 << 16));
        let one = closers.of(1, Source::Requests);
        let (descriptor, peer) = lingering();
        drop(one.take_over(descriptor));
        while !one.is_stuck() {
            tokio::time::sleep(STUCK_AFTER / 10).await;
        }
        let drop_one_with = |records: &[(&[u8], bool)]| {
            let (client, program_end) = pair();
            records.iter().for_each(|(content, has_descriptor)| put(&program_end, content, *has_descriptor));
            drop(program_end);
            drop(one.guard_connection(client));
        };
        drop_one_with(&[(b"a request", false), (b"", false), (b"and more", false), (b"", false)]);
        assert_eq!(one.work().pending, 1, "only what is stuck");
        drop_one_with(&[(b"", false), (b"a request", false), (b"", true), (b"more", false)]);
        assert_eq!(one.work().pending, 2, "the thread closes a descriptor, and whatever is with it");
        drop(peer);
    }

    #[test]
    fn the_connections_of_a_user_who_rests_are_closed_by_the_thread() {
        let one = Closers::new(Numbers::with_max(1 << 16)).of(1, Source::Requests);
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        one.run(move || goes_on.recv().unwrap_or_default());
        drop(one.guard_connection(pair().0));
        assert_eq!(one.work().pending, 1, "an empty one is closed at once");
        one.time().rest_for(THREAD_IDLE);
        drop(one.guard_connection(pair().0));
        assert_eq!(one.work().pending, 2);
        drop(go_on);
    }

    #[test]
    fn an_end_with_descriptors_in_its_queue_is_not_finished() {
        let closer = Closers::new(Numbers::with_max(1 << 16)).of(1, Source::Requests);
        let (client, program_end) = pair();
        assert!(closer.guard_connection(client).is_finished(), "the queue is empty");
        assert!(send(&program_end, b"late", SendFlags::NOSIGNAL).is_err(), "no further input");

        for content in [&b""[..], b"some"] {
            let (client, program_end) = pair();
            // A message without bytes looks like the end of the stream.
            send(&program_end, b"", SendFlags::NOSIGNAL).expect("there is room");
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [program_end.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            let record = [std::io::IoSlice::new(content)];
            sendmsg(&program_end, &record, &mut control, SendFlags::NOSIGNAL).expect("there is room");
            assert!(!closer.guard_connection(client).is_finished());
        }
    }

    #[test]
    fn all_descriptors_of_a_message_are_received() {
        let closer = Closers::new(Numbers::with_max(1 << 16)).of(1, Source::Requests);
        let (client, program_end) = pair();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [program_end.as_fd(); MESSAGE_DESCRIPTORS_MAX];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&program_end, &[std::io::IoSlice::new(b"all")], &mut control, SendFlags::NOSIGNAL)
            .expect("room");
        let (bytes, came) = receive(&client, &mut [0; 8], (&closer, closer.time())).expect("a message");
        assert_eq!((bytes, came.len()), (3, MESSAGE_DESCRIPTORS_MAX));
    }
}
