//! The locks of a socket for reading and for writing. They are in the sharers' page, and exclude threads and processes.
//!
//! The word of a lock holds the thread identifier of the holder, and the kernel treats the lock as a robust futex
//! (set_robust_list(2)): when the holder dies, the kernel marks the word and wakes a waiter. It does so in the holder's
//! own PID namespace, so the lock works across namespaces: no waiter looks up the thread that the word names. Unlike a
//! robust mutex of the C library, the lock has no pointers in shared memory that another process could bend: the kernel
//! finds the lock by the one pointer of the thread's list for a lock about to be taken or released ([`Pending`]).

use std::cell::{Cell, OnceCell};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};

use libc::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, c_int, c_long};

use crate::system::{self, Errno, Result, SignalsBlocked, thread_id};
use crate::system_call::system_call;

/// Longest wait of a call that must not block. Readers hold the lock for some microseconds, so only a stopped or malicious sharer
/// makes the call fail. To fail at once would cost an edge-triggered reader its edge.
const NONBLOCKING_LIMIT: Duration = Duration::from_millis(100);
/// Longest wait of `sctp_peeloff`, which has no time limit of its own. Another caller may hold the lock while the daemon sorts
/// the content of the pair.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Reason for which a call does not get a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// This thread holds the lock, and the call comes from a signal handler.
    HeldByThisThread,
    /// The call has waited for as long as it may.
    TimedOut,
    /// The call has waited, and a signal was handled meanwhile.
    Interrupted,
}

impl From<LockError> for Errno {
    /// Returns the error that the program sees.
    fn from(error: LockError) -> Errno {
        Errno(match error {
            LockError::HeldByThisThread => libc::EDEADLK,
            LockError::TimedOut => libc::EAGAIN,
            LockError::Interrupted => libc::EINTR,
        })
    }
}

/// The lock, held until this is dropped.
pub(crate) struct Held<'a> {
    word: &'a AtomicU32,
    thread: u32,
    pending: Pending,
    inherited: bool,
}

impl Held<'_> {
    /// Returns whether the previous holder died while it held the lock.
    pub(crate) fn was_inherited(&self) -> bool {
        self.inherited
    }
}

/// Time for which a call waits for sharers, in total. The limit is looked up only once the call has to wait.
pub(crate) struct Patience {
    limit: Limit,
    /// When the call began to wait, if it has.
    begun: Cell<Option<Instant>>,
    deadline: OnceCell<Option<Instant>>,
}

enum Limit {
    Receive { fd: RawFd, flags: c_int },
    Send { fd: RawFd, flags: c_int },
    Fixed(Duration),
}

impl Patience {
    /// Returns the patience of a receive with these flags: `SO_RCVTIMEO`, or little where the call must not block.
    pub(crate) fn of_receive(fd: RawFd, flags: c_int) -> Patience {
        Patience::with(Limit::Receive { fd, flags })
    }

    /// Returns the patience of a send with these flags: `SO_SNDTIMEO`, or little where the call must not block.
    pub(crate) fn of_send(fd: RawFd, flags: c_int) -> Patience {
        Patience::with(Limit::Send { fd, flags })
    }

    /// Returns the patience of a call that never blocks.
    pub(crate) fn of_a_look() -> Patience {
        Patience::with(Limit::Fixed(NONBLOCKING_LIMIT))
    }

    /// Returns the patience of a call that asks the daemon.
    pub(crate) fn of_a_request() -> Patience {
        Patience::with(Limit::Fixed(REQUEST_LIMIT))
    }

    fn with(limit: Limit) -> Patience {
        Patience { limit, begun: Cell::new(None), deadline: OnceCell::new() }
    }

    /// Notes that the call begins to wait. Returns whether it had waited before.
    pub(crate) fn begin(&self) -> bool {
        let begun = self.begun.get();
        self.begun.set(begun.or_else(|| Some(Instant::now())));
        begun.is_some()
    }

    /// Returns the remaining time; `None` for no limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        let begun = || self.begun.get().unwrap_or_else(Instant::now);
        let deadline = self.deadline.get_or_init(|| Some(begun() + self.limit()?));
        deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// Sleeps for `wait`, or for the remaining time if that is shorter.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal was handled.
    pub(crate) fn pause(&self, wait: Duration) -> Result<()> {
        SignalsBlocked::new().await_one(self.left().map_or(wait, |left| left.min(wait)))
    }

    fn limit(&self) -> Option<Duration> {
        match self.limit {
            Limit::Fixed(limit) => Some(limit),
            Limit::Send { fd, flags } if system::waits(fd, flags) => {
                system::send_timeout(fd).and_then(duration)
            }
            Limit::Receive { fd, flags } if system::waits(fd, flags) => {
                system::receive_timeout(fd).and_then(duration)
            }
            Limit::Send { .. } | Limit::Receive { .. } => Some(NONBLOCKING_LIMIT),
        }
    }
}

/// Returns `None` for a time that amounts to no limit.
fn duration(time: libc::timespec) -> Option<Duration> {
    let limit = Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    Instant::now().checked_add(limit).map(|_| limit)
}

/// Takes the lock. A sharer can write any word into the page: one that names a thread makes the other sharers wait, each for as
/// long as its call may.
pub(crate) fn hold<'a>(word: &'a AtomicU32, patience: &Patience) -> Result<Held<'a>, LockError> {
    let thread = thread_id();
    let list = List::of_this_thread();
    // A thread that only waits for the lock has announced it, too.
    if list.is_pending(word) && word.load(Relaxed) & FUTEX_TID_MASK == thread {
        return Err(LockError::HeldByThisThread);
    }
    // Announced also while this thread waits: if it dies after it was woken, the kernel wakes the next waiter.
    let pending = list.announce(word);
    let taken = match word.compare_exchange(0, thread, AcqRel, Relaxed) {
        Ok(before) => Ok(before),
        // Others may wait, too: the release that follows this wakes one of them.
        Err(_) => wait(word, thread | FUTEX_WAITERS, patience),
    };
    #[cfg(test)]
    tests::HOLDS.set(tests::HOLDS.get() + 1);
    match taken {
        Ok(before) => Ok(Held { word, thread, pending, inherited: before & FUTEX_OWNER_DIED != 0 }),
        Err(error) => {
            pending.withdraw();
            Err(error)
        }
    }
}

/// Waits until no thread holds the lock, and takes it with the word `taken`. Returns the word before.
#[cold]
fn wait(word: &AtomicU32, taken: u32, patience: &Patience) -> Result<u32, LockError> {
    loop {
        let found = word.load(Relaxed);
        if found & FUTEX_TID_MASK == 0 {
            match word.compare_exchange(found, taken, AcqRel, Relaxed) {
                Ok(before) => return Ok(before),
                Err(_) => continue,
            }
        }
        // The mark is set before this waiter gives up: a wake-up that reached it may have been meant for the next.
        let marked = found | FUTEX_WAITERS;
        if found != marked && word.compare_exchange(found, marked, AcqRel, Relaxed).is_err() {
            continue;
        }
        let left = patience.left();
        if left == Some(Duration::ZERO) {
            return Err(LockError::TimedOut);
        }
        // In all other cases the lock was released, the word has changed, or the time is over; the loop sees each of these.
        if let Err(Errno(libc::EINTR)) = futex(word, libc::FUTEX_WAIT, marked, left) {
            return Err(LockError::Interrupted);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let (mine, contended) = (self.thread, self.thread | FUTEX_WAITERS);
        // If a sharer has written another word meanwhile, that word stays.
        if self.word.compare_exchange(mine, 0, AcqRel, Relaxed).is_err()
            // The mark stays: if the woken thread dies, the release by the next holder wakes another one.
            && self.word.compare_exchange(contended, FUTEX_WAITERS, AcqRel, Relaxed).is_ok()
            && futex(self.word, libc::FUTEX_WAKE, 1, None) == Ok(0)
        {
            // No thread waits. This fails if another one has taken the lock, whose release finds that out again.
            let _ = self.word.compare_exchange(FUTEX_WAITERS, 0, AcqRel, Relaxed);
        }
        self.pending.withdraw();
    }
}

/// The lock that this thread had announced at some moment.
#[derive(Clone, Copy)]
pub(crate) struct Mark(usize);

/// Returns the mark of this moment, for [`abandon_since`].
pub(crate) fn mark() -> Mark {
    Mark(List::of_this_thread().pending())
}

/// Releases the lock that this thread has taken since then in frames that no longer exist, because a signal handler
/// has jumped out of them (siglongjmp(3)). Does what the kernel does for a dead holder: the next one finds the page
/// as a dead holder leaves it.
///
/// # Safety
///
/// The page of such a lock is still mapped.
pub(crate) unsafe fn abandon_since(mark: Mark) {
    let list = List::of_this_thread();
    let pending = list.pending();
    if pending == mark.0 || pending == 0 {
        return;
    }
    let Some(word) = list.word(pending) else { return };
    // SAFETY: the caller guarantees it.
    let word = unsafe { &*word };
    let mine = thread_id();
    // A thread announces a lock before it takes it, so the lock may be another's.
    if word.compare_exchange(mine, FUTEX_OWNER_DIED, AcqRel, Relaxed).is_err()
        && word
            .compare_exchange(mine | FUTEX_WAITERS, FUTEX_OWNER_DIED | FUTEX_WAITERS, AcqRel, Relaxed)
            .is_ok()
    {
        // The call fails only if no thread waits.
        let _ = futex(word, libc::FUTEX_WAKE, 1, None);
    }
    if word.load(Relaxed) == FUTEX_WAITERS {
        // This thread may have been woken to take it.
        let _ = futex(word, libc::FUTEX_WAKE, 1, None);
    }
    Pending { list, before: mark.0 }.withdraw();
}

/// Makes the system call `FUTEX_WAIT` while the word is `value`, or `FUTEX_WAKE` of `value` waiters. Returns the number of
/// threads woken.
fn futex(word: &AtomicU32, operation: c_int, value: u32, within: Option<Duration>) -> Result<c_long> {
    let within = within.map(system::timespec);
    let within: *const libc::timespec = within.as_ref().map_or(ptr::null(), |within| within);
    // SAFETY: the word and the time outlive the call.
    match unsafe { system_call!(libc::SYS_futex, word.as_ptr(), operation, value, within) } {
        woken @ 0.. => Ok(woken),
        _ => Err(Errno::last()),
    }
}

/// `struct robust_list_head`: a thread's robust futexes, a list that the C library keeps.
#[repr(C)]
struct ListHead {
    first: *mut libc::c_void,
    /// Offset of a futex from its entry in the list.
    futex_offset: c_long,
    /// Entry of a futex that is about to be taken or released. The kernel looks at it, too, when the thread ends.
    pending: AtomicUsize,
}

thread_local! {
    static LIST: Cell<Option<List>> = const { Cell::new(None) };
}

/// Forgets what is cached of the thread: a child of `vfork` has the memory of its parent's thread, but is another thread.
pub(crate) fn forget_thread() {
    LIST.set(None);
    system::forget_thread_id();
}

/// The list of this thread; null if the kernel has none, so that it reports no deaths.
#[derive(Clone, Copy)]
struct List(*const ListHead);

impl List {
    fn of_this_thread() -> List {
        LIST.with(|known| {
            known.get().unwrap_or_else(|| {
                let (mut head, mut bytes): (*const ListHead, usize) = (ptr::null(), 0);
                // SAFETY: both destinations are writable.
                let found =
                    unsafe { system_call!(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut bytes) };
                let list = List(if found == 0 { head } else { ptr::null() });
                known.set(Some(list));
                list
            })
        })
    }

    /// Returns the entry that a lock would have in the list.
    fn entry(head: &ListHead, word: &AtomicU32) -> usize {
        ptr::from_ref(word).expose_provenance().wrapping_sub(head.futex_offset.cast_unsigned() as usize)
    }

    fn is_pending(self, word: &AtomicU32) -> bool {
        // SAFETY: the C library keeps the list for the lifetime of the thread.
        unsafe { self.0.as_ref() }.is_some_and(|head| head.pending.load(Relaxed) == List::entry(head, word))
    }

    /// Returns the entry that is announced; 0 for none.
    fn pending(self) -> usize {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.map_or(0, |head| head.pending.load(Relaxed))
    }

    /// Returns the word of the lock whose entry this is.
    fn word(self, entry: usize) -> Option<*const AtomicU32> {
        // SAFETY: as above.
        let head = unsafe { self.0.as_ref() }?;
        let address = entry.wrapping_add(head.futex_offset.cast_unsigned() as usize);
        Some(ptr::with_exposed_provenance(address))
    }

    /// Announces a lock to the kernel.
    fn announce(self, word: &AtomicU32) -> Pending {
        // SAFETY: as above.
        let before =
            unsafe { self.0.as_ref() }.map(|head| head.pending.swap(List::entry(head, word), AcqRel));
        Pending { list: self, before: before.unwrap_or(0) }
    }
}

/// A lock that the kernel releases if this thread dies.
struct Pending {
    list: List,
    /// Entry announced before: the lock that this thread held when a signal interrupted it.
    before: usize,
}

impl Pending {
    fn withdraw(&self) {
        // SAFETY: as above.
        if let Some(head) = unsafe { self.list.0.as_ref() } {
            head.pending.store(self.before, Relaxed);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    thread_local! {
        /// Number of times that this thread has taken a lock, or has tried to.
        pub(crate) static HOLDS: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn one_holds_it_at_a_time() {
        let (word, mut count) = (AtomicU32::new(0), 0_u64);
        let counter = std::sync::atomic::AtomicPtr::new(&raw mut count);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _held = hold(&word, &Patience::of_a_request()).expect("no deadlock");
                        // SAFETY: the holder of the lock is alone.
                        unsafe { *counter.load(Relaxed) += 1 };
                    }
                });
            }
        });
        assert_eq!((count, word.load(Relaxed)), (40_000, 0));
    }

    #[test]
    fn the_lock_of_a_dead_thread_is_inherited() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(hold(&word, &Patience::of_a_request()).expect("it is free")));
        });
        let held = hold(&word, &Patience::of_a_request()).expect("it is inherited");
        assert!(held.inherited);
        drop(held);
        assert!(!hold(&word, &Patience::of_a_request()).expect("it is free").inherited);
    }

    /// Waits until this thread of the process sleeps in a system call.
    pub(crate) fn until_in(call: c_long, thread: u32) {
        let (file, call) = (format!("/proc/self/task/{thread}/syscall"), format!("{call} "));
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.starts_with(&call)) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_waiter_that_dies_after_it_was_woken_leaves_the_others_a_wake_up() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let held = hold(&word, &Patience::of_a_look()).expect("it is free");
            let contended = thread_id() | FUTEX_WAITERS;
            word.store(contended, Relaxed);
            // They do not take the lock when they are woken, as if they were killed.
            let waiters = [(); 2].map(|()| {
                let (tell, told) = std::sync::mpsc::channel();
                let word = &word;
                let waiter = scope.spawn(move || {
                    tell.send(thread_id()).expect("the test waits for it");
                    futex(word, libc::FUTEX_WAIT, contended, Some(Duration::from_secs(20)))
                });
                until_in(libc::SYS_futex, told.recv().expect("the waiter tells"));
                waiter
            });
            drop(held);
            drop(hold(&word, &Patience::of_a_look()).expect("nobody holds it"));
            for waiter in waiters {
                assert_eq!(waiter.join().expect("it ends"), Ok(0), "woken");
            }
        });
        drop(hold(&word, &Patience::of_a_look()).expect("nobody holds it"));
        assert_eq!(word.load(Relaxed), 0, "nobody waits");
    }

    /// Calls `f` with the identifier of a thread that lives meanwhile.
    fn with_live_thread(f: impl FnOnce(u32)) {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).expect("the test waits for it");
            // The thread lives until the sender is dropped.
            let _ = ended.recv();
        });
        f(told.recv().expect("the thread tells"));
        drop(end);
        thread.join().expect("it ends");
    }

    #[test]
    fn the_word_of_a_thread_that_does_not_hold_it_ends_the_wait_with_the_time() {
        with_live_thread(|thread| {
            for waiters in [0, FUTEX_WAITERS] {
                let word = AtomicU32::new(thread | waiters);
                let held = hold(&word, &Patience::of_a_look());
                assert_eq!(held.map(drop), Err(LockError::TimedOut));
            }
        });
    }

    #[test]
    fn a_lock_whose_frames_were_left_is_inherited() {
        let (outer, inner) = (AtomicU32::new(0), AtomicU32::new(0));
        let before = mark();
        std::mem::forget(hold(&outer, &Patience::of_a_look()).expect("it is free"));
        let between = mark();
        std::mem::forget(hold(&inner, &Patience::of_a_look()).expect("it is free"));
        for (since, word) in [(between, &inner), (before, &outer)] {
            assert!(hold(word, &Patience::of_a_look()).is_err(), "it is held");
            // SAFETY: both words live.
            unsafe { abandon_since(since) };
            let held = hold(word, &Patience::of_a_look()).expect("it was left");
            assert!(held.inherited);
        }
        // SAFETY: as above.
        unsafe { abandon_since(before) };
        assert_eq!((outer.load(Relaxed), inner.load(Relaxed)), (0, 0));
    }

    #[test]
    fn a_lock_that_is_held_since_before_is_not_left() {
        let word = AtomicU32::new(0);
        let held = hold(&word, &Patience::of_a_look()).expect("it is free");
        // SAFETY: the word lives.
        unsafe { abandon_since(mark()) };
        assert_eq!(hold(&word, &Patience::of_a_look()).map(drop), Err(LockError::HeldByThisThread));
        drop(held);
    }

    #[test]
    fn one_patience_is_for_all_waits_of_a_call() {
        with_live_thread(|thread| {
            let (word, patience) = (AtomicU32::new(thread), Patience::of_a_look());
            assert_eq!(hold(&word, &patience).map(drop), Err(LockError::TimedOut));
            assert_eq!(patience.left(), Some(Duration::ZERO));
        });
    }

    #[test]
    fn a_handler_that_interrupts_the_holder_does_not_wait_for_it() {
        let word = AtomicU32::new(0);
        let (other, held) = (AtomicU32::new(0), hold(&word, &Patience::of_a_request()).expect("it is free"));
        // A thread may hold another lock meanwhile.
        drop(hold(&other, &Patience::of_a_look()).expect("it is free"));
        let again = hold(&word, &Patience::of_a_request());
        assert_eq!(again.map(drop), Err(LockError::HeldByThisThread));
        drop(held);
        assert!(!hold(&word, &Patience::of_a_look()).expect("it is free").inherited);
    }

    /// In another PID namespace, the holder may have the same identifier as the waiter.
    #[test]
    fn a_word_that_names_this_thread_is_that_of_another() {
        let word = AtomicU32::new(thread_id());
        assert_eq!(hold(&word, &Patience::of_a_look()).map(drop), Err(LockError::TimedOut));
    }

    #[test]
    fn a_call_waits_as_long_as_its_descriptor_says() {
        use std::os::fd::AsRawFd;
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let fd = socket.as_raw_fd();
        let of_receive = |flags| Patience::of_receive(fd, flags).limit();
        assert_eq!((of_receive(0), Patience::of_send(fd, 0).limit()), (None, None));
        let (to_read, to_write) = (Duration::from_secs(3), Duration::from_secs(4));
        socket.set_read_timeout(Some(to_read)).expect("it is open");
        socket.set_write_timeout(Some(to_write)).expect("it is open");
        assert_eq!((of_receive(0), of_receive(libc::MSG_PEEK)), (Some(to_read), Some(to_read)));
        assert_eq!(Patience::of_send(fd, 0).limit(), Some(to_write));
        assert_eq!(Patience::of_send(fd, libc::MSG_DONTWAIT).limit(), Some(NONBLOCKING_LIMIT));
        assert_eq!(of_receive(libc::MSG_DONTWAIT | libc::MSG_PEEK), Some(NONBLOCKING_LIMIT));
        socket.set_nonblocking(true).expect("it is open");
        assert_eq!(of_receive(0), Some(NONBLOCKING_LIMIT));
    }

    #[test]
    fn a_time_that_is_over_is_told_as_that_of_a_socket() {
        assert_eq!(Errno::from(LockError::TimedOut), Errno(libc::EAGAIN));
        assert_eq!(Errno::from(LockError::Interrupted), Errno(libc::EINTR));
    }

    extern "C" fn ignore(_signal: c_int) {}

    #[test]
    fn a_signal_ends_the_wait() {
        // SAFETY: the handler does nothing, and an all-zero sigaction has no flags.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as extern "C" fn(c_int) as libc::sighandler_t;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        }
        with_live_thread(|thread| {
            let word = AtomicU32::new(thread);
            // SAFETY: the call takes no argument.
            let waiting = unsafe { libc::pthread_self() };
            let done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // Signals repeat, so one comes at every stage of the wait.
                    while !done.load(Relaxed) {
                        // SAFETY: the thread lives until `done` is set.
                        unsafe { libc::pthread_kill(waiting, libc::SIGUSR1) };
                        std::thread::sleep(Duration::from_millis(7));
                    }
                });
                let held = hold(&word, &Patience::of_a_request());
                done.store(true, Relaxed);
                assert_eq!(held.map(drop), Err(LockError::Interrupted));
            });
        });
    }
}
