//! Heartbeats, and probes of the path MTU.

use super::Path;
use crate::config::AssociationConfig;
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

    /// Records that a heartbeat timeout counts as an error, and doubles the RTO. [`Path::on_unanswered`] counts the error.
    pub(crate) fn on_heartbeat_error(&mut self, now: Time, config: &AssociationConfig) {
        self.note_timer(now, Timer::Heartbeat);
        self.rto.back_off(&config.rto);
    }

    /// Returns when the next frequent heartbeat is due while the path is suspected.
    pub(crate) fn next_frequent_heartbeat(&self, now: Time) -> Option<Time> {
        self.silence.next_probe(now, self.rto.srtt())
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
