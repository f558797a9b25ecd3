//! Busy polling for the next message of a program, while that pays.
//!
//! In a dialogue between two programs a message reaches the daemon every few microseconds, and each would wake it. Waking costs
//! more than relaying a message, so the daemon polls for a moment before it sleeps, as long as polling finds messages.

use std::cell::Cell;
use std::time::{Duration, Instant};

use swiftwater::internals::BusyPoll;
use tokio::sync::Notify;
use tokio::task;

/// Keeps the daemon's thread, the only one that has this, awake for a moment after each record.
#[derive(Default)]
pub(crate) struct BusyPolling {
    /// Number of records received from programs.
    records: Cell<u64>,
    /// The polling task sleeps until the next record.
    asleep: Cell<bool>,
    /// The runtime is kept from sleeping.
    polls: Cell<bool>,
    called: Notify,
}

impl BusyPolling {
    /// Counts a record from a program, and wakes the polling task if it sleeps.
    pub(crate) fn record_came(&self) {
        self.records_came(1);
    }

    /// Counts records from a program, and wakes the polling task if it sleeps.
    pub(crate) fn records_came(&self, count: usize) {
        self.records.set(self.records.get() + count as u64);
        if self.asleep.get() {
            self.asleep.set(false);
            self.called.notify_one();
        }
    }

    /// Returns the number of records received from programs.
    pub(crate) fn records(&self) -> u64 {
        self.records.get()
    }

    /// Waits until `is_there`, for as long as the daemon polls for the next message of any program.
    pub(crate) async fn poll_for(&self, is_there: impl Fn() -> bool) {
        while !is_there() && self.polls.get() {
            task::yield_now().await;
        }
    }

    /// Keeps the runtime from sleeping for about `moment` after each record, as long as that pays.
    pub(crate) async fn keep(&self, moment: Duration) {
        let mut busy_poll = BusyPoll::default();
        loop {
            self.asleep.set(true);
            self.called.notified().await;
            if busy_poll.should_poll() {
                self.polls.set(true);
                self.look(&mut busy_poll, moment).await;
                self.polls.set(false);
            }
        }
    }

    /// Polls until no record has arrived for long enough.
    async fn look(&self, busy_poll: &mut BusyPoll, moment: Duration) {
        let (mut seen, mut since) = (self.records.get(), Instant::now());
        while since.elapsed() < busy_poll.limit(moment) {
            // The runtime polls its descriptors before it resumes this task.
            task::yield_now().await;
            let records = self.records.get();
            if records != seen {
                busy_poll.on_success();
                (seen, since) = (records, Instant::now());
            }
        }
        busy_poll.on_failure();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::testing::until;

    #[tokio::test(flavor = "local")]
    async fn it_sleeps_once_nothing_comes_and_is_woken_by_the_next() {
        let busy_polling = Rc::new(BusyPolling::default());
        let keeper = tokio::task::spawn_local({
            let busy_polling = Rc::clone(&busy_polling);
            async move { busy_polling.keep(Duration::from_micros(50)).await }
        });
        let falls_asleep = || until("it falls asleep", || busy_polling.asleep.get());
        for _ in 0..3 {
            falls_asleep().await;
            busy_polling.record_came();
            assert!(!busy_polling.asleep.get());
        }
        falls_asleep().await;
        keeper.abort();
    }
}
