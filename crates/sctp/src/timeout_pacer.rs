//! Paces the timers of several associations whose expiry sends a packet.
//!
//! With the shortest timeouts, a thousand associations send a million heartbeats or retransmissions a second. Nothing else
//! limits these: other packets follow messages or packets that arrive. So associations that share a pacer together have so
//! many of these expiries in a time; further ones wait for their place. No other timer waits, such as that of a delayed SACK.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::time::Time;

/// Maximum time that a timer waits for its place.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Paces the timers of all associations that share it: retransmission timers, heartbeats, and probes of a closed window. Copies
/// stand for the same pacer.
///
/// ```
/// # use std::time::Duration;
/// let pacer = sctp::TimeoutPacer::new(Duration::from_micros(125), 64);
/// let config = sctp::AssociationConfig { timeout_pacer: Some(pacer), ..Default::default() };
/// assert_eq!(config.clone(), config);
/// ```
#[derive(Clone, Debug)]
pub struct TimeoutPacer(Arc<Places>);

#[derive(Debug)]
struct Places {
    interval: Duration,
    burst: u32,
    /// The next free place, in nanoseconds of [`Time`].
    next: AtomicU64,
}

impl TimeoutPacer {
    /// Returns a pacer that lets one timer expire in each interval, and `burst` at once after a pause.
    pub fn new(interval: Duration, burst: u32) -> Self {
        TimeoutPacer(Arc::new(Places { interval, burst, next: AtomicU64::new(0) }))
    }

    /// Takes the next place. Returns its time, which is not before `now`.
    pub(crate) fn take(&self, now: Time) -> Time {
        let Places { interval, burst, next } = &*self.0;
        let paused = now.as_nanos().saturating_sub((*interval * burst.saturating_sub(1)).as_nanos() as u64);
        let place = next.load(Relaxed).max(paused);
        let last = now + WAIT_MAX;
        if place > last.as_nanos() {
            return last;
        }
        next.store(place + interval.as_nanos() as u64, Relaxed);
        Time::from_nanos(place).max(now)
    }
}

impl PartialEq for TimeoutPacer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TimeoutPacer {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn some_expire_at_once_and_the_others_one_after_the_other() {
        let pacer = TimeoutPacer::new(MS, 3);
        let now = Time::ZERO + 100 * MS;
        let places: Vec<Time> = (0..6).map(|_| pacer.clone().take(now)).collect();
        assert_eq!(places, [0, 0, 0, 1, 2, 3].map(|after| now + after * MS));
        assert_eq!(pacer.take(now + 3 * MS), now + 4 * MS, "places that are taken stay");
        assert_eq!([(); 4].map(|()| pacer.take(now + 50 * MS)), [50, 50, 50, 51].map(|at| now + at * MS));
    }

    #[test]
    fn none_waits_longer_than_a_second() {
        let pacer = TimeoutPacer::new(100 * MS, 1);
        let last = (0..100).fold(None, |_, _| Some(pacer.take(Time::ZERO)));
        assert_eq!(last, Some(Time::ZERO + WAIT_MAX));
        assert_eq!(pacer.take(Time::ZERO + WAIT_MAX), Time::ZERO + WAIT_MAX + 100 * MS);
    }
}
