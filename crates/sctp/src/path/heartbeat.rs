//! Heartbeats of a path: when the next one is due, and which ones are unanswered (RFC 9260 §8.3).

use std::time::Duration;

use smallvec::SmallVec;

use crate::time::Time;

/// Maximum number of remembered unanswered heartbeats. The oldest is dropped when another one is sent.
const UNANSWERED_MAX: usize = 8;

/// A heartbeat that was sent and not answered yet.
#[derive(Debug, Clone, Copy)]
struct Unanswered {
    nonce: u64,
    sent_at: Time,
}

#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    due_at: Option<Time>,
    /// Time when an unanswered heartbeat counts as an error.
    answer_by: Option<Time>,
    /// The unanswered heartbeats, the oldest first.
    unanswered: SmallVec<[Unanswered; UNANSWERED_MAX]>,
}

impl Heartbeat {
    /// Returns when the next heartbeat is due.
    #[inline]
    pub(super) fn due_at(&self) -> Option<Time> {
        self.due_at
    }

    pub(super) fn schedule(&mut self, at: Option<Time>) {
        self.due_at = at;
    }

    /// Returns when a heartbeat counts as not answered.
    #[inline]
    pub(super) fn answer_by(&self) -> Option<Time> {
        self.answer_by
    }

    /// Records that a heartbeat with this nonce is sent; none is due until the next one is scheduled.
    pub(super) fn on_sent(&mut self, now: Time, nonce: u64, rto: Duration) {
        if self.unanswered.len() == UNANSWERED_MAX {
            self.unanswered.remove(0);
        }
        self.unanswered.push(Unanswered { nonce, sent_at: now });
        self.answer_by.get_or_insert(now + rto);
        self.due_at = None;
    }

    /// Handles the answer to a heartbeat. Returns when the heartbeat was sent, if it was sent on this path. Earlier ones no
    /// longer count.
    pub(super) fn on_acked(&mut self, nonce: &[u8]) -> Option<Time> {
        let at = self.unanswered.iter().position(|heartbeat| heartbeat.nonce.to_be_bytes() == nonce)?;
        let sent_at = self.unanswered[at].sent_at;
        self.unanswered.drain(..=at);
        self.answer_by = None;
        Some(sent_at)
    }

    /// Returns whether any heartbeat may still be answered.
    pub(super) fn has_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Returns when the oldest heartbeat with an outstanding answer was sent.
    pub(super) fn awaited_since(&self) -> Option<Time> {
        self.answer_by.and(self.unanswered.first()).map(|heartbeat| heartbeat.sent_at)
    }

    /// Handles a heartbeat that was not answered within the RTO. Later ones may still be.
    pub(super) fn on_timeout(&mut self, now: Time, rto: Duration) {
        self.unanswered.retain(|heartbeat| heartbeat.sent_at + rto > now);
        self.answer_by = None;
    }

    /// Stops waiting for an answer, because the path has shown otherwise that it works. A late answer still counts.
    pub(super) fn stop_waiting(&mut self) {
        self.answer_by = None;
    }

    /// Stops probing: no heartbeat is due and no answer is awaited.
    pub(super) fn clear(&mut self) {
        *self = Heartbeat::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn an_answer_ends_the_wait_for_it_and_for_all_before() {
        let mut heartbeat = Heartbeat::default();
        (0..3).for_each(|n| heartbeat.on_sent(at(n * 100), n, RTO));
        assert_eq!((heartbeat.answer_by(), heartbeat.awaited_since()), (Some(at(1000)), Some(at(0))));
        assert_eq!(heartbeat.on_acked(&7u64.to_be_bytes()), None, "never sent");
        assert_eq!(heartbeat.on_acked(&1u64.to_be_bytes()), Some(at(100)));
        assert_eq!(heartbeat.answer_by(), None);
        assert!(heartbeat.has_unanswered());
        assert_eq!(heartbeat.on_acked(&0u64.to_be_bytes()), None, "it left before the one that was answered");
        assert_eq!(heartbeat.on_acked(&2u64.to_be_bytes()), Some(at(200)));
        assert!(!heartbeat.has_unanswered());
    }

    #[test]
    fn none_is_due_from_one_that_is_sent_until_the_next_is_scheduled() {
        let mut heartbeat = Heartbeat::default();
        assert_eq!((heartbeat.due_at(), heartbeat.awaited_since()), (None, None));
        heartbeat.schedule(Some(at(300)));
        assert_eq!(heartbeat.due_at(), Some(at(300)));
        heartbeat.on_sent(at(300), 0, RTO);
        assert_eq!((heartbeat.due_at(), heartbeat.awaited_since()), (None, Some(at(300))));
    }

    #[test]
    fn an_answer_that_is_no_longer_awaited_counts_unless_probing_has_stopped() {
        for has_stopped in [false, true] {
            let mut heartbeat = Heartbeat::default();
            heartbeat.on_sent(at(300), 7, RTO);
            heartbeat.schedule(Some(at(900)));
            if has_stopped {
                heartbeat.clear()
            } else {
                heartbeat.stop_waiting()
            }
            assert_eq!((heartbeat.answer_by(), heartbeat.awaited_since()), (None, None));
            assert_eq!(heartbeat.due_at(), (!has_stopped).then_some(at(900)));
            assert_eq!(heartbeat.on_acked(&7u64.to_be_bytes()), (!has_stopped).then_some(at(300)));
        }
    }

    #[test]
    fn a_timeout_forgets_what_is_older_than_the_rto() {
        let mut heartbeat = Heartbeat::default();
        heartbeat.on_sent(at(0), 0, RTO);
        heartbeat.on_sent(at(500), 1, RTO);
        heartbeat.on_timeout(at(1000), RTO);
        assert_eq!(heartbeat.answer_by(), None);
        assert_eq!(heartbeat.on_acked(&0u64.to_be_bytes()), None);
        assert_eq!(heartbeat.on_acked(&1u64.to_be_bytes()), Some(at(500)));
    }

    #[test]
    fn as_many_as_the_limit_are_remembered() {
        let mut heartbeat = Heartbeat::default();
        (0..=UNANSWERED_MAX as u64).for_each(|n| heartbeat.on_sent(at(n), n, RTO));
        assert_eq!(heartbeat.on_acked(&0u64.to_be_bytes()), None);
        assert_eq!(heartbeat.on_acked(&1u64.to_be_bytes()), Some(at(1)));
    }
}
