//! The timer of a chunk that is sent until it is answered: T1 and T2.

use std::time::Duration;

use crate::time::Time;

#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    at: Time,
    attempts: u32,
    rto: Duration,
}

impl Retry {
    /// Returns the timer of a chunk that leaves now for the first time.
    pub(super) fn start(now: Time, rto: Duration) -> Self {
        Retry { at: now + rto, attempts: 0, rto }
    }

    /// Returns the timer of a chunk that leaves now, after others whose attempts count as well.
    pub(super) fn start_after(now: Time, rto: Duration, attempts: u32) -> Self {
        Retry { attempts, ..Retry::start(now, rto) }
    }

    /// Returns when the timer expires.
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// Returns how often the timer has expired.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(super) fn rto(&self) -> Duration {
        self.rto
    }

    /// Returns the time since the chunk last left.
    pub(super) fn elapsed(&self, now: Time) -> Duration {
        self.rto.saturating_sub(self.at.saturating_since(now))
    }

    /// Counts an expiry. Returns how often the timer has expired by now.
    pub(super) fn expire(&mut self) -> u32 {
        self.attempts += 1;
        self.attempts
    }

    /// Starts the timer again with twice the timeout, for a chunk that leaves once more.
    pub(super) fn back_off(&mut self, now: Time, rto_max: Duration) {
        self.rto = (self.rto * 2).min(rto_max);
        self.restart(now);
    }

    /// Starts the timer again with the same timeout.
    pub(super) fn restart(&mut self, now: Time) {
        self.at = now + self.rto;
    }
}
