//! Heartbeats, signs of failure, and probes of the path MTU.

use std::time::Duration;

use super::Path;
use crate::config::AssociationConfig;
use crate::path_state::PathState;
use crate::time::Time;
use crate::trace::{Probe, Timer};

impl Path {
    /// Returns when the next heartbeat is due.
    #[inline]
    pub(crate) fn heartbeat_at(&self) -> Option<Time> {
        self.heartbeat.due_at()
    }

    pub(crate) fn schedule_heartbeat(&mut self, at: Option<Time>) {
        self.heartbeat.schedule(at);
    }

    /// Returns when the oldest heartbeat counts as not answered.
    #[inline]
    pub(crate) fn answer_by(&self) -> Option<Time> {
        self.heartbeat.answer_by()
    }

    /// Records that a heartbeat with this nonce is sent.
    pub(crate) fn on_heartbeat_sent(&mut self, now: Time, nonce: u64) {
        self.heartbeat.on_sent(now, nonce, self.rto.current());
        self.notes.probe(now, Probe::Heartbeat);
    }

    /// Handles a HEARTBEAT ACK with this nonce. Returns when the heartbeat was sent, if it was sent on this path.
    pub(crate) fn on_heartbeat_acked(
        &mut self,
        now: Time,
        nonce: &[u8],
        config: &AssociationConfig,
    ) -> Option<Time> {
        let sent_at = self.heartbeat.on_acked(nonce)?;
        if self.answers_without_delivering() {
            // T3 keeps its back-off.
            return Some(sent_at);
        }
        // An older heartbeat may have been queued until the path was back.
        if self.rto.srtt().is_none() || !self.heartbeat.has_unanswered() {
            self.rto.on_answer(now, sent_at, &config.rto);
        } else {
            self.rto.restore(&config.rto);
        }
        Some(sent_at)
    }

    /// Handles a heartbeat that was not answered within the RTO.
    pub(crate) fn on_heartbeat_timeout(&mut self, now: Time) {
        self.heartbeat.on_timeout(now, self.rto.current());
    }

    /// Stops probing the path.
    pub(crate) fn clear_heartbeats(&mut self) {
        self.heartbeat.clear();
    }

    /// Counts a heartbeat timeout as an error and doubles the RTO.
    pub(crate) fn back_off_heartbeat(&mut self, now: Time, config: &AssociationConfig) {
        self.note_timer(now, Timer::Heartbeat);
        self.rto.back_off(&config.rto);
    }

    /// Returns when the next frequent heartbeat is due while the path is suspected.
    pub(crate) fn next_frequent_heartbeat(&self, now: Time) -> Option<Time> {
        self.path_failure.next_probe(now, self.rto.srtt())
    }

    /// Returns whether the path has exceeded Path.Max.Retrans.
    pub(crate) fn retries_exceeded(&self) -> bool {
        self.errors > self.settings.retries_max
    }

    /// Returns whether the path has exceeded PotentiallyFailed.Max.Retrans (RFC 7829).
    pub(crate) fn potentially_failed_retries_exceeded(&self) -> bool {
        self.errors > self.settings.potentially_failed_retries_max
    }

    pub(crate) fn count_error(&mut self) {
        self.errors += 1;
    }

    pub(crate) fn clear_errors(&mut self) {
        self.errors = 0;
    }

    /// Returns when the path has been silent for too long: since the oldest unanswered packet, or since a heartbeat.
    #[inline]
    pub(crate) fn silent_at(&self, sack_delay: Duration) -> Option<Time> {
        let patience = self.path_failure.patience(self.rto.srtt()?, self.rto.unbounded());
        let data = self.flight.sack_due_at(self.first_unanswered(), sack_delay);
        let data = data.filter(|_| !self.flight.is_empty());
        let asked_at = [data, self.heartbeat.awaited_since()].into_iter().flatten().min();
        asked_at.map(|asked_at| asked_at + patience)
    }

    /// Returns the oldest packet that may be in flight and after which nothing has arrived.
    #[inline]
    pub(crate) fn first_unanswered(&self) -> u32 {
        self.flight.first_unanswered(self.rack.newest())
    }

    /// Records that every packet before `number` was answered.
    pub(crate) fn on_answered_before(&mut self, number: u32) {
        self.flight.on_answered_before(number);
    }

    /// Marks the path as silent. `has_data`: data waits for its answer. Returns whether it was not marked before.
    pub(crate) fn on_silence(&mut self, now: Time, has_data: bool) -> bool {
        let delivered_bytes = has_data.then(|| self.delivery.delivered_bytes());
        let news = self.path_failure.begin(now, delivered_bytes);
        self.counts.early_failovers += u64::from(news);
        news
    }

    /// Returns whether data is in flight on a path that has answered before without delivering data afterwards.
    pub(crate) fn answers_without_delivering(&self) -> bool {
        self.path_failure.answers_without_delivering() && self.flight.t3().is_some()
    }

    /// Returns whether data avoids the path although it has answered a heartbeat.
    pub(crate) fn is_held(&self, now: Time) -> bool {
        self.path_failure.holds(now)
    }

    /// Handles an answer to a packet sent at `asked_at`: the path is active from now on. Returns its previous state.
    pub(crate) fn on_answer(&mut self, now: Time, asked_at: Time) -> PathState {
        self.errors = 0;
        self.counts.early_failovers_spurious += u64::from(self.path_failure.end(now, asked_at));
        let before = std::mem::replace(&mut self.state, PathState::Active);
        if !matches!(before, PathState::Unconfirmed | PathState::Active) {
            self.rto.mark_stale(now);
            self.heartbeat.stop_waiting();
            self.discovery.on_silence_ended();
        }
        before
    }

    /// Resumes sending on a path that has just answered a packet sent at `asked_at`: probes the tail of the flight at once,
    /// unless it was sent later than that. The answer to this packet shows the other losses.
    pub(crate) fn resume(&mut self, now: Time, asked_at: Time, config: &AssociationConfig) {
        self.flight.on_silence_ended(now + self.rto.current());
        self.recovery.on_path_answered();
        self.plan_tail_loss_probe(now, config);
        if !self.flight.is_empty() && self.flight.last_sent_at() < asked_at {
            self.flight.probe_at_once();
        }
    }

    /// Checks after unanswered packets were declared lost whether the path may no longer support their length.
    pub(crate) fn check_black_hole(&mut self) {
        let was_long = self.flight.packets().any(|(_, packet)| packet.long);
        if was_long && self.discovery.on_silence() {
            self.set_mtu(self.discovery.size_bytes());
        }
    }

    /// Sets the maximum packet length.
    pub(super) fn set_mtu(&mut self, mtu_bytes: usize) {
        if mtu_bytes != self.mtu_bytes {
            self.mtu_bytes = mtu_bytes;
            self.congestion.set_mtu(super::chunks_bytes(mtu_bytes));
        }
    }

    /// Handles a full packet that was sent: longer packets would be useful. Returns whether a probe of the MTU is due.
    #[inline]
    pub(crate) fn on_full_packet(&mut self, now: Time) -> bool {
        self.discovery.on_full_packet(now);
        self.discovery.is_due()
    }

    #[inline]
    pub(crate) fn mtu_probe_is_due(&self) -> bool {
        self.discovery.is_due()
    }

    /// Postpones a probe of the MTU that cannot be sent now.
    pub(crate) fn put_off_mtu_probe(&mut self) {
        self.discovery.put_off();
    }

    /// Takes the due probe of the MTU, which is sent with this nonce. Returns its length; `None` if nothing remains to be probed.
    pub(crate) fn take_mtu_probe(&mut self, now: Time, nonce: u64) -> Option<usize> {
        self.discovery.take_probe(now, nonce, self.flight.next_packet(), self.rto.current())
    }

    /// Handles a HEARTBEAT ACK. Returns when the HEARTBEAT was sent, if it was a probe of the MTU.
    pub(crate) fn on_mtu_probe_acked(&mut self, now: Time, info: &[u8]) -> Option<Time> {
        let sent_at = self.discovery.on_answer(now, info)?;
        self.set_mtu(self.discovery.size_bytes());
        Some(sent_at)
    }

    /// Handles a router's report that it forwards packets of at most `mtu_bytes`. Returns whether packets are shorter from now
    /// on; `None` if the report changes nothing.
    pub(crate) fn on_packet_too_big(&mut self, now: Time, mtu_bytes: usize) -> Option<bool> {
        if !self.discovery.on_too_big(now, mtu_bytes) {
            return None;
        }
        let shorter = self.discovery.size_bytes() < self.mtu_bytes;
        if shorter {
            self.set_mtu(self.discovery.size_bytes());
        }
        Some(shorter)
    }

    /// Returns whether routers may fragment a packet of this length.
    #[inline]
    pub(crate) fn may_fragment(&self, bytes: usize) -> bool {
        self.discovery.may_fragment(bytes)
    }
}
