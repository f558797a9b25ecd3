//! Times of an association that belong to no state and no path.

use std::time::Duration;

use crate::time::Time;
use crate::timeout_pacer::TimeoutPacer;

#[derive(Debug, Default)]
pub(super) struct TimerState {
    /// The place that the pacer of timeouts has given to the timers, while they wait for it.
    paced_until: Option<Time>,
    /// Time when the next unconfirmed path may be probed.
    next_verification: Time,
    /// Time when data was last received, or the association came up.
    last_data_at: Time,
}

impl TimerState {
    /// Returns when a timer is handled that expires `at` and waits for its place.
    #[inline]
    pub(super) fn place_of(&self, at: Time) -> Time {
        at.max(self.paced_until.unwrap_or(at))
    }

    /// Takes the place of `pacer` for a timer that has expired. Returns whether the timer must wait for it.
    pub(super) fn waits_for(&mut self, pacer: &TimeoutPacer, expired_at: Time, now: Time) -> bool {
        let place = match self.paced_until {
            // A place that was over before this timer expired belonged to another one, which was stopped.
            Some(place) if expired_at <= place => place,
            _ => pacer.take(now),
        };
        self.paced_until = (place > now).then_some(place);
        self.paced_until.is_some()
    }

    /// Returns when an unconfirmed path may be probed, at least `spacing` before the next one (HB.Max.Burst, RFC 9260 §5.4).
    pub(super) fn take_verification(&mut self, now: Time, spacing: Duration) -> Time {
        let at = now.max(self.next_verification);
        self.next_verification = at + spacing;
        at
    }

    /// Handles received data, or that the association is up.
    #[inline]
    pub(super) fn on_data(&mut self, now: Time) {
        self.last_data_at = now;
    }

    #[inline]
    pub(super) fn last_data_at(&self) -> Time {
        self.last_data_at
    }
}
