//! Staying awake for a moment after a message has come, where that pays.
//!
//! In a dialogue between two programs the daemon has a message every few microseconds, and would be woken for each. Waking costs
//! more than handing a message on; so it looks again and again for a moment, as long as that finds something.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use swiftwater::internals::BusyPoll;
use tokio::sync::Notify;
use tokio::task;

/// What keeps the daemon awake.
#[derive(Default)]
pub(crate) struct BusyPolling {
    /// Records that have come from programs.
    records: AtomicU64,
    /// The polling task sleeps until the next record.
    asleep: AtomicBool,
    called: Notify,
}

impl BusyPolling {
    /// Counts a record from a program, and wakes the polling task if it sleeps.
    pub(crate) fn record_came(&self) {
        self.records.fetch_add(1, Relaxed);
        if self.asleep.load(Relaxed) {
            self.asleep.store(false, Relaxed);
            self.called.notify_one();
        }
    }

    /// Returns how many records have come from programs.
    pub(crate) fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }

    /// Keeps the runtime from sleeping, each time for about a `moment` after the last record, as long as that pays.
    pub(crate) async fn keep(&self, moment: Duration) {
        let mut busy_poll = BusyPoll::default();
        loop {
            self.asleep.store(true, Relaxed);
            self.called.notified().await;
            if busy_poll.is_worth_it() {
                self.look(&mut busy_poll, moment).await;
            }
        }
    }

    /// Looks until nothing has come for long enough.
    async fn look(&self, busy_poll: &mut BusyPoll, moment: Duration) {
        let (mut seen, mut since) = (self.records.load(Relaxed), Instant::now());
        while since.elapsed() < moment * busy_poll.patience() {
            // The runtime looks at its descriptors before it comes back.
            task::yield_now().await;
            let records = self.records.load(Relaxed);
            if records != seen {
                busy_poll.paid();
                (seen, since) = (records, Instant::now());
            }
        }
        busy_poll.was_in_vain();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(flavor = "local")]
    async fn it_sleeps_once_nothing_comes_and_is_woken_by_the_next() {
        let busy_polling = Arc::new(BusyPolling::default());
        let keeper = tokio::task::spawn_local({
            let busy_polling = Arc::clone(&busy_polling);
            async move { busy_polling.keep(Duration::from_micros(50)).await }
        });
        let falls_asleep = || async {
            while !busy_polling.asleep.load(Relaxed) {
                task::yield_now().await;
            }
        };
        for _ in 0..3 {
            falls_asleep().await;
            busy_polling.record_came();
            assert!(!busy_polling.asleep.load(Relaxed));
        }
        falls_asleep().await;
        keeper.abort();
    }
}
