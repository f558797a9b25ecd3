//! Messages that will not be delivered, on their way back to the user.

use std::collections::VecDeque;

use crate::outbound::Undelivered;
use crate::time::Time;

/// Messages that were discarded, or that the peer has not acknowledged when the association ended or restarted.
#[derive(Debug)]
pub(super) struct Returning {
    pub(super) messages: Undelivered,
    /// The cause to report; without it the messages are released without a report.
    pub(super) cause: Option<u16>,
}

/// The messages in their order. They return step by step.
#[derive(Debug, Default)]
pub(super) struct Returns {
    queue: VecDeque<Returning>,
    /// Time of the last step.
    last_at: Time,
}

impl Returns {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether messages wait that will be reported.
    pub(super) fn has_reports(&self) -> bool {
        self.queue.iter().any(|returning| returning.cause.is_some())
    }

    pub(super) fn push(&mut self, returning: Returning) {
        self.queue.push_back(returning);
    }

    /// Returns when the next step is due.
    #[inline]
    pub(super) fn next_at(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(self.last_at)
    }

    /// Returns when messages that expire `at` may be discarded: after those that were discarded before, and not twice in a call,
    /// so that timers of others come first.
    #[inline]
    pub(super) fn discards_at(&self, at: Time) -> Option<Time> {
        self.queue.is_empty().then(|| at.max(self.last_at))
    }

    /// Begins a step that discards messages.
    pub(super) fn on_discard(&mut self, now: Time) {
        self.last_at = now;
    }

    /// Begins a step with the messages in front.
    pub(super) fn begin(&mut self, now: Time) -> Option<Returning> {
        let returning = self.queue.pop_front()?;
        self.last_at = now;
        Some(returning)
    }

    /// Puts back the messages that a step has left.
    pub(super) fn put_back(&mut self, returning: Returning) {
        self.queue.push_front(returning);
    }
}
