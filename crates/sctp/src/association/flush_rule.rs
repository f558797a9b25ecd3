//! The flush rule: when enough waits to be worth a transmission.
//!
//! All decisions that depend on what waits and what is outstanding are made here. The caller has the clock, and transmits
//! everything once a message has waited long enough.

use sctp_wire::chunk::DATA_HEADER_BYTES;

use super::{Association, State};
use crate::outbound::wire_bytes;
use crate::transmit::BatchLimits;

/// Size from which the SACK of a message that leaves alone may return at once (RFC 9260 §6.2).
const ACKED_AT_ONCE_BYTES: usize = 2048;

/// When a message is to leave, unless something else makes its association transmit before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWhen {
    /// When the flush rule says so.
    Rule,
    /// When the flush rule says so and its packet has no room for another of its size: the caller may have more messages, and
    /// flushes when it has none. Only messages of 2 KB or more, and those behind them, wait beyond the rule. The SACK of each may
    /// return at once; nothing would be outstanding then, and the rule would send each alone.
    PacketFull,
}

impl FlushWhen {
    /// Returns whether a message of `bytes` waits although the flush rule would send it.
    #[inline]
    pub(crate) fn waits_beyond_rule(self, bytes: usize) -> bool {
        self == FlushWhen::PacketFull && bytes >= ACKED_AT_ONCE_BYTES
    }
}

impl Association {
    /// Computes anew how much must wait to be worth a transmission of its own. [`Association::is_due`] needs that after any
    /// change but messages to send.
    #[inline]
    pub(crate) fn update_due(&mut self, limits: BatchLimits) {
        self.due_from_bytes = self.due_from_bytes(limits);
    }

    /// Returns whether enough waits to be worth a transmission of its own: control chunks or a SACK that is due,
    /// nothing outstanding, or a full batch or window (the flush rule).
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.outbound.pending_wire_bytes() >= self.due_from_bytes
    }

    /// Returns the number of waiting bytes that justify a transmission of its own. `usize::MAX`: no further message does.
    pub(super) fn due_from_bytes(&self, limits: BatchLimits) -> usize {
        if self.sends_control() || self.inbound.ack_due() {
            return 0;
        }
        if !self.may_carry_data() {
            return usize::MAX;
        }
        let path = &self.paths[self.next_data_path()];
        if !self.outbound.may_send(path) {
            // The first waiting message may change that; later ones do not.
            return if self.outbound.has_waiting() { usize::MAX } else { 1 };
        }
        let at_once = path.tail_loss_probe_is_due() || self.outbound.has_lost() || self.config.nodelay;
        if at_once || path.in_flight_bytes() == 0 {
            return 0;
        }
        if path.in_flight_bytes() <= path.mtu_bytes() {
            // That may be a single packet, whose SACK the peer delays (RFC 9260 §6.2): a batch is not worth that time.
            return path.mtu_bytes();
        }
        let paced = path.batch_bytes().unwrap_or(usize::MAX);
        let room = path.room_bytes().min(self.outbound.peer_window_bytes());
        let batch = limits.bytes_max.min(room).min(paced);
        batch.max(path.mtu_bytes())
    }

    /// Returns the number of waiting bytes from which messages of `bytes` are to leave.
    #[inline]
    pub(super) fn leaves_from_bytes(&self, bytes: usize, when: FlushWhen) -> usize {
        if when.waits_beyond_rule(bytes) { self.full_from_bytes(bytes) } else { self.due_from_bytes }
    }

    /// Returns the number of waiting bytes from which the association is due, and the last packet has no room for another message
    /// of `bytes`.
    fn full_from_bytes(&self, bytes: usize) -> usize {
        let packet_bytes = self.fragmentation_point_bytes() + DATA_HEADER_BYTES;
        let message_bytes = wire_bytes(bytes).min(packet_bytes);
        let full_bytes = packet_bytes - packet_bytes % message_bytes;
        let packets_before = self.due_from_bytes.saturating_sub(1) / full_bytes;
        let last_full_from_bytes = packet_bytes - message_bytes + 1;
        let full_from_bytes = packets_before.saturating_mul(full_bytes).saturating_add(last_full_from_bytes);
        full_from_bytes.max(self.due_from_bytes)
    }

    /// Returns whether nothing of what waits could leave now: only an event changes that. Something waits, and
    /// [`Association::update_due`] was called after the last event.
    #[inline]
    pub(crate) fn waits_for_event(&self) -> bool {
        self.due_from_bytes == usize::MAX
    }

    /// Returns whether anything could leave now, however little.
    pub(crate) fn sendable(&self) -> bool {
        self.sends_control()
            || self.inbound.ack_due()
            || (self.may_carry_data() && self.outbound.may_send(&self.paths[self.next_data_path()]))
    }

    /// Returns whether anything waits, now or for a window.
    pub(crate) fn has_waiting(&self) -> bool {
        self.outbound.has_waiting() || !self.control.is_empty() || !self.probe_answers.is_empty()
    }

    /// Returns whether something leaves that is neither data nor a SACK.
    fn sends_control(&self) -> bool {
        !self.control.is_empty() || !self.probe_answers.is_empty() || self.probes_mtu
    }

    /// Returns whether DATA may be sent in this state (RFC 9260 §6). In COOKIE-ECHOED it is sent only with the cookie (§5.1 C).
    pub(super) fn may_carry_data(&self) -> bool {
        match self.state {
            State::Established | State::ShutdownPending { .. } | State::ShutdownReceived { .. } => true,
            State::CookieEchoed { .. } => self.control.begins_with_cookie_echo(),
            _ => false,
        }
    }
}
