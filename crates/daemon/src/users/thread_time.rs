//! Bounds the time of the daemon's thread that system calls on the sockets of one user take.
//!
//! A record that the daemon sends to a program, or takes from it, makes the kernel wake all that wait for the program's end, on the daemon's
//! thread. A program decides how many these are: entries of `epoll` instances, or processes to be signalled (`O_ASYNC`), by
//! the ten thousand. So the daemon measures these calls. After a call that took too long, the user rests: for many times as long
//! the daemon takes no records from its programs, sends them none, and reads no requests of them.
//!
//! What counts is processor time, as a thread also seems slow while others have the processor. That clock is not read for nothing: only
//! once a call has seemed slow.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Maximum time of a call after which a user does not rest.
const CALL_TIME_MAX: Duration = Duration::from_millis(1);
/// The rest after a longer call is this many times as long: a user takes no more than a 32nd of the thread's time by such calls.
const REST_FACTOR: u32 = 32;
/// Maximum rest.
const REST_MAX: Duration = Duration::from_secs(10);
/// Time that processor time is measured after a call that seemed slow, and after a rest.
const MEASURED_FOR: Duration = Duration::from_secs(5);

/// The time that calls on the sockets of one user take.
#[derive(Debug, Default)]
pub(crate) struct ThreadTime {
    /// Whether processor time is measured.
    is_measured: AtomicBool,
    rests: AtomicBool,
    until: Mutex<Until>,
}

#[derive(Debug, Default)]
struct Until {
    measured: Option<Instant>,
    rests: Option<Instant>,
}

impl ThreadTime {
    /// Makes a system call on a socket that a program of the user holds.
    pub(crate) fn measure<T>(&self, call: impl FnOnce() -> T) -> T {
        if self.is_measured.load(Relaxed) {
            let before = processor_time();
            let result = call();
            self.count(processor_time().saturating_sub(before));
            return result;
        }
        let began = Instant::now();
        let result = call();
        if began.elapsed() > CALL_TIME_MAX {
            self.until().measured = Some(Instant::now() + MEASURED_FOR);
            self.is_measured.store(true, Relaxed);
        }
        result
    }

    /// Counts the processor time of a call.
    fn count(&self, time: Duration) {
        if time > CALL_TIME_MAX {
            self.rest_for((time * REST_FACTOR).min(REST_MAX));
        } else if self.until().measured.is_none_or(|until| until < Instant::now()) {
            self.is_measured.store(false, Relaxed);
        }
    }

    /// Begins a rest, unless a longer one has begun.
    pub(crate) fn rest_for(&self, time: Duration) {
        let (mut until, rests) = (self.until(), Instant::now() + time);
        until.rests = until.rests.max(Some(rests));
        until.measured = until.measured.max(Some(rests + MEASURED_FOR));
        self.rests.store(true, Relaxed);
        self.is_measured.store(true, Relaxed);
    }

    /// Returns whether the user rests.
    pub(crate) fn rests(&self) -> bool {
        self.rests.load(Relaxed) && self.end_of_rest().is_some()
    }

    /// Waits until the user does not rest.
    pub(crate) async fn rested(&self) {
        while let Some(until) = self.rests.load(Relaxed).then(|| self.end_of_rest()).flatten() {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// Returns whether nothing is lost if this is forgotten.
    pub(crate) fn is_idle(&self) -> bool {
        let now = Instant::now();
        self.until().measured.is_none_or(|until| until < now)
    }

    fn end_of_rest(&self) -> Option<Instant> {
        let mut until = self.until();
        until.rests = until.rests.filter(|until| *until > Instant::now());
        self.rests.store(until.rests.is_some(), Relaxed);
        until.rests
    }

    fn until(&self) -> MutexGuard<'_, Until> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the processor time that this thread has used.
fn processor_time() -> Duration {
    // Linux has had this clock since 2.6.12.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the processor for so long.
    fn work(time: Duration) {
        let before = processor_time();
        while processor_time() < before + time {
            std::hint::spin_loop();
        }
    }

    const LONG: Duration = Duration::from_millis(3);

    #[tokio::test(flavor = "local")]
    async fn a_user_rests_after_a_call_that_uses_the_processor_for_long() {
        let time = ThreadTime::default();
        assert_eq!(time.measure(|| 7), 7);
        time.measure(|| work(LONG));
        assert!(!time.rests() && !time.is_idle(), "only the next one is measured");
        let began = Instant::now();
        time.measure(|| work(LONG));
        assert!(time.rests());
        time.rested().await;
        assert!(!time.rests() && began.elapsed() >= LONG * REST_FACTOR);
        time.measure(|| work(LONG));
        assert!(time.rests(), "it is measured after a rest, too");
    }

    #[test]
    fn a_thread_that_waits_for_the_processor_is_not_slow() {
        let time = ThreadTime::default();
        (0..2).for_each(|_| time.measure(|| std::thread::sleep(10 * CALL_TIME_MAX)));
        assert!(!time.rests() && time.is_measured.load(Relaxed));
        time.until().measured = Some(Instant::now());
        while time.is_measured.load(Relaxed) {
            time.measure(|| ());
        }
        assert!(time.is_idle());
    }

    #[test]
    fn a_rest_has_an_end_however_long_the_call_was() {
        let time = ThreadTime::default();
        time.count(Duration::from_secs(3600));
        let end = time.end_of_rest().expect("it rests");
        assert!(end <= Instant::now() + REST_MAX);
        time.until().rests = Some(Instant::now());
        assert!(!time.rests());
    }
}
