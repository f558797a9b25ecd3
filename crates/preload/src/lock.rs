//! The lock for reading. It lies in the shared page, and holds among processes.
//!
//! Its word has the thread identifier of the holder, and the kernel is told of the lock as of a robust futex (set_robust_list(2)): when
//! the holder dies, the kernel marks the word and wakes a waiter. It does so in the holder's own PID namespace, so the lock holds
//! among namespaces, too: no waiter looks for the thread that the word names. Unlike a robust mutex of the C library it has no
//! pointers in shared memory that another process could bend: the kernel finds the lock by the one pointer of the thread's list that
//! is for a lock about to be taken or released ([`Pending`]).

use std::cell::{Cell, OnceCell};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};

use libc::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, c_int, c_long};

use crate::next::c_library;
use crate::system::{self, Errno, Result, SignalsBlocked, thread_id};

/// How long a call that must not block waits for the lock. Whoever reads holds it for some microseconds, so only a sharer that was
/// stopped, or does harm, makes it fail. To fail at once would cost an edge-triggered reader its edge.
const NONBLOCKING_LIMIT: Duration = Duration::from_millis(100);
/// How long `sctp_peeloff` waits, for which there is no time limit to set. Another may hold the lock as long as the daemon sorts
/// what lies in the carrier.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// The time is over. `EAGAIN` would say that nothing has come.
pub(crate) const TIMED_OUT: Errno = Errno(libc::ETIMEDOUT);

/// The error as programs are told it.
pub(crate) fn as_told(error: Errno) -> Errno {
    if error == TIMED_OUT { Errno(libc::EAGAIN) } else { error }
}

/// The lock, held.
pub(crate) struct Held<'a> {
    word: &'a AtomicU32,
    thread: u32,
    pending: Pending,
    /// The holder before has died in the middle of something.
    pub(crate) inherited: bool,
}

/// How long a call waits for sharers, all in all. Nothing is asked before it has to wait.
pub(crate) struct Patience {
    limit: Limit,
    deadline: OnceCell<Option<Instant>>,
}

enum Limit {
    Receive { fd: RawFd, flags: c_int },
    Send { fd: RawFd },
    Fixed(Duration),
}

impl Patience {
    /// Waits as a receive with these flags does: for `SO_RCVTIMEO` at most, and little where it must not block.
    pub(crate) fn of_receive(fd: RawFd, flags: c_int) -> Patience {
        Patience { limit: Limit::Receive { fd, flags }, deadline: OnceCell::new() }
    }

    /// Waits as a blocking send does: for `SO_SNDTIMEO` at most.
    pub(crate) fn of_send(fd: RawFd) -> Patience {
        Patience { limit: Limit::Send { fd }, deadline: OnceCell::new() }
    }

    /// Waits as a call does that never blocks.
    pub(crate) fn of_a_look() -> Patience {
        Patience { limit: Limit::Fixed(NONBLOCKING_LIMIT), deadline: OnceCell::new() }
    }

    /// Waits as a call does that asks the daemon.
    pub(crate) fn of_a_request() -> Patience {
        Patience { limit: Limit::Fixed(REQUEST_LIMIT), deadline: OnceCell::new() }
    }

    /// Returns the time that is left; `None` for no limit.
    fn left(&self) -> Option<Duration> {
        let deadline = self.deadline.get_or_init(|| Some(Instant::now() + self.limit()?));
        deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// Waits a little.
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
            Limit::Send { fd } => system::send_timeout(fd).and_then(duration),
            Limit::Receive { fd, flags } => {
                let waits = flags & libc::MSG_DONTWAIT == 0 && !system::is_nonblocking(fd);
                if waits { system::receive_timeout(fd).and_then(duration) } else { Some(NONBLOCKING_LIMIT) }
            }
        }
    }
}

/// Returns `None` for a time that is as good as no limit.
fn duration(time: libc::timespec) -> Option<Duration> {
    let limit = Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    Instant::now().checked_add(limit).map(|_| limit)
}

/// Takes the lock. Any sharer can write any word there: one that names a thread keeps the other sharers waiting, each for as long as
/// its call may.
///
/// # Errors
///
/// `EDEADLK`: this thread holds it, and what asks runs in a signal handler. `ETIMEDOUT`: the time is over, which programs are told
/// as `EAGAIN` ([`as_told`]). `EINTR`: a signal was handled meanwhile.
pub(crate) fn hold<'a>(word: &'a AtomicU32, patience: &Patience) -> Result<Held<'a>> {
    let thread = thread_id();
    let list = List::of_this_thread();
    if list.is_pending(word) {
        return Err(Errno(libc::EDEADLK));
    }
    let taken = |before, after| {
        let pending = list.announce(word);
        match word.compare_exchange(before, after, AcqRel, Relaxed) {
            Ok(_) => Some(Held { word, thread, pending, inherited: before & FUTEX_OWNER_DIED != 0 }),
            Err(_) => {
                pending.withdraw();
                None
            }
        }
    };
    match taken(0, thread) {
        Some(held) => Ok(held),
        // Others may wait, too: the one that releases it after this wakes one of them.
        None => wait(word, patience, |free| taken(free, thread | FUTEX_WAITERS)),
    }
}

/// Waits for the lock. `take` is given the word that says that nobody holds it.
#[cold]
fn wait<'a>(
    word: &AtomicU32,
    patience: &Patience,
    take: impl Fn(u32) -> Option<Held<'a>>,
) -> Result<Held<'a>> {
    loop {
        let found = word.load(Relaxed);
        if found & FUTEX_TID_MASK == 0 {
            match take(found) {
                Some(held) => return Ok(held),
                None => continue,
            }
        }
        // The mark is there before this gives up: a wake-up that came to this waiter may have been meant for the next.
        let marked = found | FUTEX_WAITERS;
        if found != marked && word.compare_exchange(found, marked, AcqRel, Relaxed).is_err() {
            continue;
        }
        let left = patience.left();
        if left == Some(Duration::ZERO) {
            return Err(TIMED_OUT);
        }
        // Otherwise it was released, the word has changed, or the time is over: all that is seen above.
        if let Err(Errno(libc::EINTR)) = futex(word, libc::FUTEX_WAIT, marked, left) {
            return Err(Errno(libc::EINTR));
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let (mine, contended) = (self.thread, self.thread | FUTEX_WAITERS);
        // A sharer may have written something else there, which stays.
        if self.word.compare_exchange(mine, 0, AcqRel, Relaxed).is_err()
            && self.word.compare_exchange(contended, 0, AcqRel, Relaxed).is_ok()
        {
            // Should it fail, nobody waits.
            let _ = futex(self.word, libc::FUTEX_WAKE, 1, None);
        }
        self.pending.withdraw();
    }
}

/// `FUTEX_WAIT` while the word is `value`, or `FUTEX_WAKE` of so many.
fn futex(word: &AtomicU32, operation: c_int, value: u32, within: Option<Duration>) -> Result<()> {
    let within = within.map(system::timespec);
    let within: *const libc::timespec = within.as_ref().map_or(ptr::null(), |within| within);
    // SAFETY: the word and the time live as long as the call.
    match unsafe { c_library::syscall()(libc::SYS_futex, word.as_ptr(), operation, value, within) } {
        0.. => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// `struct robust_list_head`: the robust futexes of a thread, which the C library keeps for it.
#[repr(C)]
struct ListHead {
    first: *mut libc::c_void,
    /// Where a futex is, as seen from its entry in the list.
    futex_offset: c_long,
    /// The entry of a futex that is about to be taken or released. The kernel looks there, too, when the thread ends.
    pending: AtomicUsize,
}

thread_local! {
    static LIST: Cell<Option<List>> = const { Cell::new(None) };
}

/// Forgets what is known of the thread: a child of `vfork` has the memory of its parent's thread, and is another.
pub(crate) fn forget_thread() {
    LIST.set(None);
    system::forget_thread_id();
}

/// The list of this thread. Null: the kernel knows of none, and of no death.
#[derive(Clone, Copy)]
struct List(*const ListHead);

impl List {
    fn of_this_thread() -> List {
        LIST.with(|known| {
            known.get().unwrap_or_else(|| {
                let (mut head, mut bytes): (*const ListHead, usize) = (ptr::null(), 0);
                // SAFETY: both places may be written.
                let found = unsafe {
                    c_library::syscall()(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut bytes)
                };
                let list = List(if found == 0 { head } else { ptr::null() });
                known.set(Some(list));
                list
            })
        })
    }

    /// The entry that a lock would have in the list.
    fn entry(head: &ListHead, word: &AtomicU32) -> usize {
        ptr::from_ref(word).addr().wrapping_sub(head.futex_offset.cast_unsigned() as usize)
    }

    fn is_pending(self, word: &AtomicU32) -> bool {
        // SAFETY: the C library keeps it as long as the thread lives.
        unsafe { self.0.as_ref() }.is_some_and(|head| head.pending.load(Relaxed) == List::entry(head, word))
    }

    /// Tells the kernel of a lock.
    fn announce(self, word: &AtomicU32) -> Pending {
        // SAFETY: as above.
        let before =
            unsafe { self.0.as_ref() }.map(|head| head.pending.swap(List::entry(head, word), AcqRel));
        Pending { list: self, before: before.unwrap_or(0) }
    }
}

/// A lock that the kernel releases should this thread die.
struct Pending {
    list: List,
    /// What was announced before: one that this thread holds where it was interrupted by a signal.
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
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_at_a_time() {
        let (word, mut count) = (AtomicU32::new(0), 0_u64);
        let place = std::sync::atomic::AtomicPtr::new(&raw mut count);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _held = hold(&word, &Patience::of_a_request()).expect("no deadlock");
                        // SAFETY: whoever holds the lock is alone.
                        unsafe { *place.load(Relaxed) += 1 };
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

    /// Calls `f` with the identifier of a thread that lives meanwhile.
    fn with_live_thread(f: impl FnOnce(u32)) {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).expect("somebody asks");
            // It lives until the other side is dropped.
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
                assert_eq!(held.map(drop), Err(TIMED_OUT));
            }
        });
    }

    #[test]
    fn one_patience_is_for_all_waits_of_a_call() {
        with_live_thread(|thread| {
            let (word, patience) = (AtomicU32::new(thread), Patience::of_a_look());
            assert_eq!(hold(&word, &patience).map(drop), Err(TIMED_OUT));
            assert_eq!(patience.left(), Some(Duration::ZERO));
        });
    }

    #[test]
    fn what_interrupts_the_holder_does_not_wait_for_it() {
        let word = AtomicU32::new(0);
        let (other, held) = (AtomicU32::new(0), hold(&word, &Patience::of_a_request()).expect("it is free"));
        // It may hold another meanwhile.
        drop(hold(&other, &Patience::of_a_look()).expect("it is free"));
        let again = hold(&word, &Patience::of_a_request());
        assert_eq!(again.map(drop), Err(Errno(libc::EDEADLK)));
        drop(held);
        assert!(!hold(&word, &Patience::of_a_look()).expect("it is free").inherited);
    }

    /// In another PID namespace the holder may have the identifier of the one that waits.
    #[test]
    fn a_word_that_names_this_thread_is_that_of_another() {
        let word = AtomicU32::new(thread_id());
        assert_eq!(hold(&word, &Patience::of_a_look()).map(drop), Err(TIMED_OUT));
    }

    #[test]
    fn a_call_waits_as_long_as_its_descriptor_says() {
        use std::os::fd::AsRawFd;
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let fd = ours.as_raw_fd();
        let of_receive = |flags| Patience::of_receive(fd, flags).limit();
        assert_eq!((of_receive(0), Patience::of_send(fd).limit()), (None, None));
        let (to_read, to_write) = (Duration::from_secs(3), Duration::from_secs(4));
        ours.set_read_timeout(Some(to_read)).expect("it is ours");
        ours.set_write_timeout(Some(to_write)).expect("it is ours");
        assert_eq!((of_receive(0), of_receive(libc::MSG_PEEK)), (Some(to_read), Some(to_read)));
        assert_eq!(Patience::of_send(fd).limit(), Some(to_write));
        assert_eq!(of_receive(libc::MSG_DONTWAIT | libc::MSG_PEEK), Some(NONBLOCKING_LIMIT));
        ours.set_nonblocking(true).expect("it is ours");
        assert_eq!(of_receive(0), Some(NONBLOCKING_LIMIT));
    }

    #[test]
    fn a_time_that_is_over_is_told_as_that_of_a_socket() {
        assert_eq!(as_told(TIMED_OUT), Errno(libc::EAGAIN));
        assert_eq!(as_told(Errno(libc::EINTR)), Errno(libc::EINTR));
    }

    extern "C" fn ignore(_signal: c_int) {}

    #[test]
    fn a_signal_ends_the_wait() {
        // SAFETY: the handler does nothing, and a sigaction of zeros has no flags.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as extern "C" fn(c_int) as libc::sighandler_t;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        }
        with_live_thread(|thread| {
            let word = AtomicU32::new(thread);
            // SAFETY: it takes nothing.
            let waiting = unsafe { libc::pthread_self() };
            let done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // Sent again and again: whatever moment of the wait a signal comes in.
                    while !done.load(Relaxed) {
                        // SAFETY: the thread lives until it has said that it is done.
                        unsafe { libc::pthread_kill(waiting, libc::SIGUSR1) };
                        std::thread::sleep(Duration::from_millis(7));
                    }
                });
                let held = hold(&word, &Patience::of_a_request());
                done.store(true, Relaxed);
                assert_eq!(held.map(drop), Err(Errno(libc::EINTR)));
            });
        });
    }
}
