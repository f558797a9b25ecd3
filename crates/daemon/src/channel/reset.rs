//! The report of the kernel that a program has closed its end of a pair and left records unread (`ECONNRESET`).
//!
//! The kernel reports that once, before it delivers what the program has sent. Only the sharers' page says whether messages were
//! among the unread records, so the page is read before others hear of it.

use std::sync::{Mutex, MutexGuard};

use crate::system::lock::lock;

/// The state of the report.
#[derive(Default)]
pub(super) struct Reset(Mutex<State>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    /// A send has reported it.
    FoundBySend,
    /// A read has reported it, or the end was read after a send has. The sharers' page is yet to be read.
    Reported,
    /// The sharers' page was read.
    Learned,
}

impl Reset {
    /// Records that a send has failed with `ECONNRESET`.
    pub(super) fn on_send_reset(&self) {
        let mut state = self.state();
        if *state == State::None {
            *state = State::FoundBySend;
        }
    }

    /// Records that a read has failed with `ECONNRESET`.
    pub(super) fn on_read_reset(&self) {
        *self.state() = State::Reported;
    }

    /// Records that the last record of the program was read. Returns whether a send has found a reset before.
    pub(super) fn on_end(&self) -> bool {
        let mut state = self.state();
        let is_found = *state == State::FoundBySend;
        if is_found {
            *state = State::Reported;
        }
        is_found
    }

    /// Records that the sharers' page was read since the report, or that the report must be repeated.
    pub(super) fn on_learned(&self) {
        *self.state() = State::Learned;
    }

    /// Records that the sharers' page could not be read in time: the relay does not report the reset, because
    /// it may concern no message.
    pub(super) fn on_unknown(&self) {
        *self.state() = State::None;
    }

    /// Returns whether the sharers' page must be read before the next record is taken.
    pub(super) fn awaits_page(&self) -> bool {
        *self.state() == State::Reported
    }

    /// Returns whether others must hear of the reset now; returns true once.
    pub(super) fn take(&self) -> bool {
        let mut state = self.state();
        let is_due = *state == State::Learned;
        if is_due {
            *state = State::None;
        }
        is_due
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_told_once_and_only_after_the_page_was_read() {
        let reset = Reset::default();
        assert!(!reset.on_end() && !reset.take(), "nothing was left unread");
        reset.on_send_reset();
        assert!(!reset.awaits_page(), "what the program has sent comes first");
        assert!(reset.on_end() && reset.awaits_page() && !reset.take());
        reset.on_send_reset();
        assert!(reset.awaits_page(), "a later send changes nothing");
        reset.on_learned();
        assert!(!reset.awaits_page() && reset.take() && !reset.take());
        reset.on_read_reset();
        assert!(reset.awaits_page());
    }
}
