//! Knowledge of a pair about the records in its queue.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

use crate::system::lock::lock;
use crate::users::budget::Charge;

/// The records that have come.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Whether records may be there although the runtime does not report it.
    are_hidden: AtomicBool,
    /// The time of the next inspection, if records have come that need one.
    inspection_due: Mutex<Option<Instant>>,
    /// Number of records that were received.
    received: AtomicU64,
    /// The memory of the records that the program has left when it closed its end, as the last inspection found it.
    left: Mutex<Option<Charge>>,
}

impl Arrivals {
    /// Returns whether records may be there although the runtime does not report it.
    pub(super) fn are_hidden(&self) -> bool {
        self.are_hidden.load(Relaxed)
    }

    /// Records that the runtime will not report the records any more that have come, and that they are inspected at `due`.
    pub(super) fn on_hidden(&self, due: Instant) {
        self.are_hidden.store(true, Relaxed);
        *lock(&self.inspection_due) = Some(due);
    }

    /// Returns when records that have come are inspected; `None` if all were.
    pub(super) fn inspection_due(&self) -> Option<Instant> {
        *lock(&self.inspection_due)
    }

    /// Records that all were inspected that the runtime has reported.
    pub(super) fn on_inspected(&self) {
        *lock(&self.inspection_due) = None;
    }

    /// Records that the queue was found empty.
    pub(super) fn on_empty(&self) {
        self.are_hidden.store(false, Relaxed);
    }

    /// Records that a record was received.
    pub(super) fn on_received(&self) {
        self.received.fetch_add(1, Relaxed);
        self.forget_left();
    }

    /// Records what `charge` takes for the memory of the records that the program has left. Returns false if it takes nothing.
    pub(super) fn on_left(&self, charge: impl FnOnce() -> Option<Charge>) -> bool {
        self.forget_left();
        let left = charge();
        let is_charged = left.is_some();
        *lock(&self.left) = left;
        is_charged
    }

    fn forget_left(&self) {
        *lock(&self.left) = None;
    }

    /// Returns the number of records that were received.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }
}
