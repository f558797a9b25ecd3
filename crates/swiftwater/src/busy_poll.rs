//! Busy polling: polls for arrivals for a moment before sleeping, where that pays.
//!
//! Waking a sleeping thread costs more than a request and its answer. A waiting thread first polls the sockets for up
//! to [`StackOptions::busy_poll`](crate::StackOptions::busy_poll), but only while most of these polls have found
//! something: a dialogue needs no wake-ups, and a long wait wastes almost no processor time.

#![cfg_attr(not(feature = "internals"), allow(unreachable_pub, reason = "only `internals` shows the type"))]

use std::time::Duration;

/// Waits without a busy poll after one that failed: the first number, and the limit.
const SKIPPED_WAITS_MIN: u32 = 64;
const SKIPPED_WAITS_MAX: u32 = 4096;
/// Maximum number of failures that earlier successes make up for.
const CREDIT_MAX: u32 = 4;

/// Records whether busy polling has paid lately. A program with an event loop of its own can use it where it waits for
/// more than associations.
///
/// ```
/// use swiftwater::internals::BusyPoll;
///
/// let mut busy_poll = BusyPoll::default();
/// assert!(busy_poll.should_poll());
/// // Polls for up to `busy_poll.limit(StackOptions::default().busy_poll)`, and finds something.
/// busy_poll.on_success();
/// // The next two busy polls find nothing.
/// busy_poll.on_failure();
/// assert!(busy_poll.should_poll(), "an earlier poll has paid");
/// busy_poll.on_failure();
/// assert!(!busy_poll.should_poll(), "not for a while");
/// ```
#[derive(Debug)]
pub struct BusyPoll {
    credit: u32,
    skip: u32,
    next_skip: u32,
}

impl Default for BusyPoll {
    fn default() -> Self {
        BusyPoll { credit: 0, skip: 0, next_skip: SKIPPED_WAITS_MIN }
    }
}

impl BusyPoll {
    /// Returns how long a busy poll may take, given the configured duration. The first polls may take longer, because
    /// the first answers come from a peer whose thread had to be woken.
    pub fn limit(&self, configured: Duration) -> Duration {
        configured * if self.credit < CREDIT_MAX { 2 } else { 1 }
    }

    /// Returns whether the wait that begins now should start with a busy poll.
    pub fn should_poll(&mut self) -> bool {
        let worth_it = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        worth_it
    }

    #[cfg(test)]
    pub(crate) fn credit(&self) -> u32 {
        self.credit
    }

    /// Records a busy poll that found something.
    pub fn on_success(&mut self) {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
        self.next_skip = SKIPPED_WAITS_MIN;
    }

    /// Records a busy poll that found nothing.
    pub fn on_failure(&mut self) {
        if self.credit > 0 {
            self.credit -= 1;
            return;
        }
        self.skip = self.next_skip;
        self.next_skip = (2 * self.next_skip).min(SKIPPED_WAITS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_that_does_not_pay_becomes_rare() {
        let mut busy = BusyPoll::default();
        let looks = (0..10_000)
            .filter(|_| {
                busy.should_poll() && {
                    busy.on_failure();
                    true
                }
            })
            .count();
        assert!(looks < 12, "{looks} failed polls");
    }

    #[test]
    fn polling_that_pays_continues_despite_a_few_failures() {
        let mut busy = BusyPoll::default();
        for _ in 0..10 {
            assert!(busy.should_poll());
            busy.on_success();
        }
        for _ in 0..CREDIT_MAX {
            busy.on_failure();
            assert!(busy.should_poll());
        }
        busy.on_failure();
        assert!(!busy.should_poll());
    }
}
