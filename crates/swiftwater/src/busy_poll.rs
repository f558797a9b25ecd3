//! Busy polling: polls for arrivals for a moment before sleeping, where that pays.
//!
//! Waking a sleeping thread costs more than a request and its answer. A waiting thread first polls the sockets for up
//! to [`StackOptions::busy_poll`](crate::StackOptions::busy_poll), but only while most of these polls have found
//! something: a dialogue needs no wake-ups, and a long wait wastes almost no processor time.

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
/// assert!(busy_poll.is_worth_it());
/// // Polls for up to `StackOptions::busy_poll` times `busy_poll.patience()`, and finds something.
/// busy_poll.paid();
/// // The next two busy polls find nothing.
/// busy_poll.was_in_vain();
/// assert!(busy_poll.is_worth_it(), "an earlier poll has paid");
/// busy_poll.was_in_vain();
/// assert!(!busy_poll.is_worth_it(), "not for a while");
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
    /// Returns how many times the configured duration a busy poll may take. The first polls may take longer, because
    /// the first answers come from a peer whose thread had to be woken.
    pub fn patience(&self) -> u32 {
        if self.credit < CREDIT_MAX { 2 } else { 1 }
    }

    /// Returns whether the wait that begins now should start with a busy poll.
    pub fn is_worth_it(&mut self) -> bool {
        let worth_it = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        worth_it
    }

    #[cfg(test)]
    pub(crate) fn credit(&self) -> u32 {
        self.credit
    }

    /// Records a busy poll that found something.
    pub fn paid(&mut self) {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
        self.next_skip = SKIPPED_WAITS_MIN;
    }

    /// Records a busy poll that found nothing.
    pub fn was_in_vain(&mut self) {
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
    fn what_does_not_pay_becomes_rare() {
        let mut busy = BusyPoll::default();
        let looks = (0..10_000)
            .filter(|_| {
                busy.is_worth_it() && {
                    busy.was_in_vain();
                    true
                }
            })
            .count();
        assert!(looks < 12, "{looks} failed polls");
    }

    #[test]
    fn what_pays_goes_on_in_spite_of_a_few_failures() {
        let mut busy = BusyPoll::default();
        for _ in 0..10 {
            assert!(busy.is_worth_it());
            busy.paid();
        }
        for _ in 0..CREDIT_MAX {
            busy.was_in_vain();
            assert!(busy.is_worth_it());
        }
        busy.was_in_vain();
        assert!(!busy.is_worth_it());
    }
}
