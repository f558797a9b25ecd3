//! Bounds the time of the daemon's thread that system calls on the sockets of programs take.
//!
//! A record that the daemon sends to a program, or takes from it, makes the kernel wake all that wait for the program's end,
//! on the daemon's thread. A program decides how many these are: entries of `epoll` instances, or processes to be signalled
//! (`O_ASYNC`), by the ten thousand. So the daemon measures these calls. After a call that took too long, it throttles the
//! socket: for many times as long the daemon takes no records from it, and sends it none.
//!
//! A process that shares a socket can make its calls slow, whatever its user. So the other sockets of the user go on, unless
//! several of them are slow, too: then the daemon throttles the user, with all its sockets and its requests.
//!
//! Only processor time counts, as a thread also seems slow while others have the processor. Reading that clock is a system
//! call, so a reading serves all calls that begin within [`READING_SERVES`].

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::system::lock::lock;

/// Maximum time of a call that throttles no socket.
const CALL_TIME_MAX: Duration = Duration::from_millis(1);
/// After a longer call the socket is throttled for this many times as long, and as many times longer as sockets of the user
/// are: a user takes no more than a 32nd of the thread's time by such calls.
const THROTTLE_FACTOR: u32 = 32;
/// Maximum time for which a socket or a user is throttled.
const THROTTLE_MAX: Duration = Duration::from_secs(10);
/// Maximum number of sockets of a user that are throttled while the others go on.
const THROTTLED_SOCKETS_MAX: usize = 3;
/// Time for which a reading of the thread's processor time serves. As much time of other work may hide a call.
const READING_SERVES: Duration = Duration::from_millis(1);

/// The time that calls on one socket take, or on all sockets of a user.
#[derive(Debug, Default)]
pub(crate) struct ThreadTime {
    /// The number of this socket and the time of its user; `None` if this is the time of a user.
    of_user: Option<(u64, Arc<ThreadTime>)>,
    is_throttled: AtomicBool,
    until: Mutex<Until>,
    clocks: Clocks,
}

/// The clocks that measure calls and throttling. Those of tests stand still unless the test advances them.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    now: fn() -> Instant,
    /// Returns the processor time that this thread has used.
    processor_time: fn() -> Duration,
}

impl Default for Clocks {
    fn default() -> Self {
        Clocks { now: Instant::now, processor_time }
    }
}

#[derive(Debug, Default)]
struct Until {
    own: Option<Instant>,
    /// The numbers of the user's throttled sockets, and when their throttling ends. Some may be closed.
    sockets: Vec<(u64, Instant)>,
    /// The number of the user's next socket.
    next: u64,
}

impl ThreadTime {
    /// Returns the time of a socket of a user.
    pub(crate) fn of_socket(user: &Arc<ThreadTime>) -> ThreadTime {
        let mut of_user = user.until();
        of_user.next += 1;
        let of_user = Some((of_user.next, Arc::clone(user)));
        ThreadTime { of_user, clocks: user.clocks, ..ThreadTime::default() }
    }

    /// Makes a system call on a socket that a program holds.
    pub(crate) fn measure<T>(&self, call: impl FnOnce() -> T) -> T {
        let (result, time) = self.clocks.measured(call);
        if time > CALL_TIME_MAX {
            self.count(time);
        }
        result
    }

    /// Counts the processor time of a call that took too long.
    fn count(&self, time: Duration) {
        let throttle = |sockets: usize| (time * THROTTLE_FACTOR * sockets as u32).min(THROTTLE_MAX);
        let Some((number, user)) = &self.of_user else { return self.throttle_for(throttle(1)) };
        let others = user.throttled_sockets(Some(*number));
        self.throttle_for(throttle(others + 1));
        if others < THROTTLED_SOCKETS_MAX {
            user.until().sockets.push((*number, self.now() + throttle(others + 1)));
        } else {
            user.throttle_for(throttle(others + 1));
        }
    }

    /// Throttles the socket or the user for this time, unless it is throttled for longer.
    pub(crate) fn throttle_for(&self, time: Duration) {
        let mut until = self.until();
        until.own = until.own.max(Some(self.now() + time));
        self.is_throttled.store(true, Relaxed);
    }

    /// Returns whether the socket or its user is throttled.
    pub(crate) fn is_throttled(&self) -> bool {
        self.throttle_end().is_some()
    }

    /// Waits until neither the socket nor its user is throttled.
    pub(crate) async fn unthrottled(&self) {
        while let Some(until) = self.throttle_end() {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// Returns whether nothing is lost if this is forgotten.
    pub(crate) fn is_idle(&self) -> bool {
        self.throttle_end().is_none() && self.throttled_sockets(None) == 0
    }

    /// Returns how many sockets of this user are throttled, and forgets one of them.
    fn throttled_sockets(&self, forgotten: Option<u64>) -> usize {
        let (mut until, now) = (self.until(), self.now());
        until.sockets.retain(|(number, until)| *until > now && Some(*number) != forgotten);
        until.sockets.len()
    }

    fn throttle_end(&self) -> Option<Instant> {
        let of_user = self.of_user.as_ref().and_then(|(_, user)| user.own_throttle_end());
        self.own_throttle_end().max(of_user)
    }

    fn own_throttle_end(&self) -> Option<Instant> {
        if !self.is_throttled.load(Relaxed) {
            return None;
        }
        let mut until = self.until();
        until.own = until.own.filter(|until| *until > self.now());
        self.is_throttled.store(until.own.is_some(), Relaxed);
        until.own
    }

    fn until(&self) -> MutexGuard<'_, Until> {
        lock(&self.until)
    }

    fn now(&self) -> Instant {
        (self.clocks.now)()
    }
}

thread_local! {
    /// A reading of the thread's processor time, and when that was.
    static READING: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

impl Clocks {
    /// Makes a call, and returns how much processor time it took, if it seemed to take long. The work between the reading and
    /// the call does not count, so the result may be too small by [`READING_SERVES`].
    fn measured<T>(&self, call: impl FnOnce() -> T) -> (T, Duration) {
        let began = (self.now)();
        let serves = |(at, _): &(Instant, Duration)| began.duration_since(*at) <= READING_SERVES;
        let (at, before) = READING.get().filter(serves).unwrap_or_else(|| {
            let reading = (began, (self.processor_time)());
            READING.set(Some(reading));
            reading
        });
        let result = call();
        if (self.now)().duration_since(began) <= CALL_TIME_MAX {
            return (result, Duration::ZERO);
        }
        let used = (self.processor_time)().saturating_sub(before);
        (result, used.saturating_sub(began.duration_since(at)))
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

    thread_local! {
        static NOW: Cell<Instant> = Cell::new(Instant::now());
        static PROCESSOR_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    const CLOCKS: Clocks = Clocks { now: || NOW.get(), processor_time: || PROCESSOR_TIME.get() };
    const LONG: Duration = Duration::from_millis(3);

    /// Returns the time of a user by clocks that [`wait`] and [`work`] advance.
    fn user() -> Arc<ThreadTime> {
        Arc::new(ThreadTime { clocks: CLOCKS, ..ThreadTime::default() })
    }

    /// Waits for so long without the processor.
    fn wait(time: Duration) {
        NOW.set(NOW.get() + time);
    }

    /// Uses the processor for so long.
    fn work(time: Duration) {
        wait(time);
        PROCESSOR_TIME.set(PROCESSOR_TIME.get() + time);
    }

    #[test]
    fn a_socket_is_throttled_after_the_first_call_that_uses_the_processor_for_long() {
        let user = user();
        let (slow, other) = (ThreadTime::of_socket(&user), ThreadTime::of_socket(&user));
        assert_eq!(slow.measure(|| 7), 7);
        slow.measure(|| work(CALL_TIME_MAX));
        assert!(!slow.is_throttled());
        slow.measure(|| work(LONG));
        assert!(
            slow.is_throttled() && !other.is_throttled() && !user.is_throttled(),
            "the user has other sockets"
        );
        assert!(!user.is_idle(), "it is remembered even if the socket is closed");
        wait(LONG * THROTTLE_FACTOR - Duration::from_nanos(1));
        assert!(slow.is_throttled());
        wait(Duration::from_nanos(1));
        assert!(!slow.is_throttled() && user.is_idle());
        for _ in 0..THROTTLED_SOCKETS_MAX + 2 {
            slow.measure(|| work(LONG));
        }
        assert!(slow.is_throttled() && !other.is_throttled(), "it is one socket, however often");
    }

    #[test]
    fn a_user_is_throttled_if_several_sockets_are_and_these_for_longer() {
        let user = user();
        let sockets = [(); THROTTLED_SOCKETS_MAX + 2].map(|()| ThreadTime::of_socket(&user));
        for (number, socket) in sockets.iter().take(THROTTLED_SOCKETS_MAX).enumerate() {
            socket.count(LONG);
            let end = NOW.get() + LONG * THROTTLE_FACTOR * (number as u32 + 1);
            assert_eq!(socket.own_throttle_end(), Some(end));
        }
        let last = &sockets[THROTTLED_SOCKETS_MAX + 1];
        assert!(!user.is_throttled() && !last.is_throttled());
        sockets[THROTTLED_SOCKETS_MAX].count(LONG);
        assert!(user.is_throttled() && last.is_throttled(), "with all its sockets");
        assert!(!ThreadTime::of_socket(&self::user()).is_throttled());
    }

    #[test]
    fn a_slow_call_of_a_user_itself_makes_it_rest() {
        let user = user();
        user.count(LONG);
        assert!(user.is_throttled() && ThreadTime::of_socket(&user).is_throttled());
    }

    #[test]
    fn a_thread_that_waits_for_the_processor_is_not_slow() {
        let time = user();
        (0..2).for_each(|_| time.measure(|| wait(10 * CALL_TIME_MAX)));
        assert!(!time.is_throttled() && time.is_idle());
    }

    #[test]
    fn work_before_a_call_does_not_count() {
        assert_eq!(CLOCKS.measured(|| work(LONG)).1, LONG);
        assert_eq!(CLOCKS.measured(|| ()).1, Duration::ZERO);
        work(READING_SERVES);
        assert_eq!(CLOCKS.measured(|| wait(LONG)).1, Duration::ZERO, "by the reading before the work");
        work(LONG);
        assert_eq!(CLOCKS.measured(|| wait(LONG)).1, Duration::ZERO, "by a reading of its own");
    }

    #[test]
    fn throttling_has_an_end_however_long_the_call_was() {
        let time = user();
        time.count(Duration::from_secs(3600));
        assert_eq!(time.throttle_end(), Some(NOW.get() + THROTTLE_MAX));
        wait(THROTTLE_MAX);
        assert!(!time.is_throttled());
    }

    #[tokio::test(flavor = "local")]
    async fn a_task_waits_for_the_end_of_both_rests() {
        let user = Arc::default();
        let time = ThreadTime::of_socket(&user);
        time.throttle_for(Duration::from_millis(1));
        user.throttle_for(Duration::from_millis(2));
        time.unthrottled().await;
        assert!(!time.is_throttled() && !user.is_throttled());
    }
}
