//! The lock for reading. It lies in the shared page, and holds among processes.
//!
//! It is a priority-inheriting futex: its word is the thread identifier of the holder, so the kernel passes it on when the
//! holder dies, and says so. Unlike a robust mutex of the C library it has no pointers in shared memory that another
//! process could bend.

use std::cell::OnceCell;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use libc::c_int;

use crate::next::c_library;
use crate::system::{self, Errno, Result, SignalsBlocked, thread_id};

/// How long a call that must not block waits for the lock. Whoever reads holds it for some microseconds, so only a sharer that was
/// stopped, or does harm, makes it fail. To fail at once would cost an edge-triggered reader its edge.
const NONBLOCKING_LIMIT: Duration = Duration::from_millis(100);
/// How long `sctp_peeloff` waits, for which there is no time limit to set. Another may hold the lock as long as the daemon sorts
/// what lies in the carrier.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// How long the kernel is asked to pass the lock on before signals are looked for, too.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// Afterwards, in turns: how long for the lock, and how long for a signal.
const LOCK_WAIT: Duration = Duration::from_millis(1);
const SIGNAL_WAIT: Duration = Duration::from_millis(5);

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

/// Takes the lock. Any sharer can write any word there: one that names no thread counts as that of a dead holder, and one that
/// names a thread which does not hold it keeps the sharers waiting, each for as long as its call may.
///
/// # Errors
///
/// `EDEADLK`: this thread holds it, and what asks runs in a signal handler. `ETIMEDOUT`: the time is over, which programs are told as `EAGAIN` ([`as_told`]). `EINTR`: a signal was
/// handled meanwhile.
pub(crate) fn hold<'a>(word: &'a AtomicU32, patience: &Patience) -> Result<Held<'a>> {
    let thread = thread_id();
    let mut inherited = false;
    if word.compare_exchange(0, thread, Acquire, Relaxed).is_err() {
        inherited = wait(word, thread, patience)?;
    }
    Ok(Held { word, thread, inherited })
}

/// Waits for the lock. Returns whether the holder before has died.
#[cold]
fn wait(word: &AtomicU32, thread: u32, patience: &Patience) -> Result<bool> {
    let within = |wait: Duration| patience.left().map_or(wait, |left| left.min(wait));
    if let Some(inherited) = take(word, thread, within(FIRST_WAIT))? {
        return Ok(inherited);
    }
    // The kernel restarts that wait after each signal. So signals are kept for the moments in between.
    let signals = SignalsBlocked::new();
    loop {
        if patience.is_over() {
            return Err(TIMED_OUT);
        }
        signals.await_one(within(SIGNAL_WAIT))?;
        if let Some(inherited) = take(word, thread, within(LOCK_WAIT))? {
            return Ok(inherited);
        }
    }
}

/// Takes the lock if that can be done in time. Returns whether the holder before has died.
fn take(word: &AtomicU32, thread: u32, within: Duration) -> Result<Option<bool>> {
    match lock(word, within) {
        Ok(()) => {
            let died = word.fetch_and(!libc::FUTEX_OWNER_DIED, AcqRel) & libc::FUTEX_OWNER_DIED != 0;
            return Ok(Some(died));
        }
        Err(Errno(libc::EDEADLK)) => return Err(Errno(libc::EDEADLK)),
        // The holder has died while nobody waited, or the word names a thread of the kernel, which never held it.
        Err(Errno(libc::ESRCH | libc::EPERM)) => {
            let dead = word.load(Relaxed);
            let free = dead & libc::FUTEX_TID_MASK == 0;
            let mine = thread | dead & libc::FUTEX_WAITERS;
            if !free && word.compare_exchange(dead, mine, AcqRel, Relaxed).is_ok() {
                return Ok(Some(true));
            }
        }
        Err(_) => {}
    }
    Ok(word.compare_exchange(0, thread, Acquire, Relaxed).is_ok().then_some(false))
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.word.compare_exchange(self.thread, 0, Release, Relaxed).is_err() {
            // Somebody waits, or a sharer has written something else there, which the kernel refuses.
            let _ = futex(self.word, libc::FUTEX_UNLOCK_PI, None);
        }
    }
}

/// Waits in the kernel, which lends the holder this thread's priority.
fn lock(word: &AtomicU32, within: Duration) -> Result<()> {
    let until = |clock| Some(system::time_after(clock, within));
    match futex(word, libc::FUTEX_LOCK_PI2, until(libc::CLOCK_MONOTONIC)) {
        // Before Linux 5.14 there is only the clock that somebody may set.
        Err(Errno(libc::ENOSYS)) => futex(word, libc::FUTEX_LOCK_PI, until(libc::CLOCK_REALTIME)),
        result => result,
    }
}

fn futex(word: &AtomicU32, operation: c_int, until: Option<libc::timespec>) -> Result<()> {
    let until: *const libc::timespec = until.as_ref().map_or(std::ptr::null(), |until| until);
    // SAFETY: the word and the time live as long as the call.
    match unsafe { c_library::syscall()(libc::SYS_futex, word.as_ptr(), operation, 0, until) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
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
            for waiters in [0, libc::FUTEX_WAITERS] {
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
    fn a_word_that_no_thread_can_have_written_is_no_holder() {
        // The second thread of every Linux is one of the kernel; the other number is beyond all that there may be.
        for nobody in [2, libc::FUTEX_TID_MASK] {
            let word = AtomicU32::new(nobody);
            let held = hold(&word, &Patience::of_a_look()).expect("nobody holds it");
            assert!(held.inherited);
        }
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
