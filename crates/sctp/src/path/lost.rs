//! Handles packets of a path that are declared lost, or turn out to be merely late.

use std::ops::Range;

use super::spurious_loss::{LateArrivals, Spurious};
use super::{Path, SentPacket, Verdict};
use crate::config::RtoConfig;
use crate::congestion::{LostPacket, Signal};
use crate::packet_number::PacketNumber;
use crate::time::Time;
use crate::trace::{LossReason, Timer, UndoReason};

/// A packet that is declared lost.
#[derive(Debug)]
pub(crate) struct PacketLoss<'a> {
    pub(crate) number: PacketNumber,
    pub(crate) packet: &'a SentPacket,
    pub(crate) reason: LossReason,
}

impl Path {
    /// Judges the oldest packet. Returns its number with the verdict.
    #[inline]
    pub(crate) fn judge_oldest(&self, now: Time) -> Option<(PacketNumber, Verdict)> {
        let (number, packet) = self.flight.oldest()?;
        let verdict =
            self.rack.judge(now, number, packet.sent_at, self.recovery.is_repairing(), self.rto.srtt());
        Some((number, verdict))
    }

    /// Sets the time when the oldest packet in flight counts as lost, if any may.
    #[inline]
    pub(crate) fn expect_oldest_by(&mut self, at: Option<Time>) {
        self.flight.set_loss_timer(at);
    }

    /// Removes the oldest packet.
    #[inline]
    pub(crate) fn pop_packet(&mut self) -> Option<(PacketNumber, SentPacket)> {
        self.flight.pop()
    }

    /// Removes all packets before `number`.
    pub(crate) fn forget_packets_before(&mut self, number: PacketNumber) {
        self.flight.forget_before(number);
    }

    /// Takes the contents of a packet that is retransmitted early.
    pub(crate) fn take_packet(&mut self, number: PacketNumber) -> Option<SentPacket> {
        self.flight.take_packet(number)
    }

    /// Handles the loss of chunks of `bytes` in a packet. `first_tsn` is the first outstanding TSN; `None` if other paths hold it
    /// back. Returns whether the loss reduces the window: RFC 9260 §7.2.4 reduces it once for all outstanding chunks, even if
    /// packets sent into the full queue right after the reduction are lost, too.
    pub(crate) fn on_packet_lost(
        &mut self,
        now: Time,
        loss: &PacketLoss<'_>,
        bytes: usize,
        first_tsn: Option<u64>,
    ) -> bool {
        let PacketLoss { number, packet, reason } = *loss;
        self.delivery.on_lost(bytes);
        let reduces = self.recovery.is_new_loss(number, first_tsn);
        let lost = LostPacket {
            bytes,
            number,
            sent_in_flight_bytes: packet.mark.in_flight_bytes,
            lost_bytes: self.delivery.lost_bytes() - packet.mark.lost_bytes,
            prior_delivered_bytes: packet.mark.delivered_bytes,
            app_limited: packet.mark.app_limited,
        };
        self.congestion.on_packet_lost(now, &lost);
        self.count_lost(now, number, bytes, reason);
        reduces
    }

    /// Counts a packet that was declared lost with `bytes` in flight.
    pub(crate) fn count_lost(&mut self, now: Time, number: PacketNumber, bytes: usize, reason: LossReason) {
        self.counts.packets_lost += 1;
        self.notes.lost(now, number, bytes, reason);
        if self.discovery.on_lost(number, bytes, reason) {
            self.set_mtu(self.discovery.size_bytes());
        }
    }

    /// Begins recovery after these TSNs were declared lost. `flight_bytes` was in flight before.
    pub(crate) fn on_loss(&mut self, now: Time, lost: &[Range<u64>], next_tsn: u64, flight_bytes: usize) {
        self.enter_recovery(now, Signal::Loss, flight_bytes, next_tsn, lost);
    }

    /// Adds TSNs that were declared lost in the same recovery.
    #[inline]
    pub(crate) fn on_more_loss(&mut self, lost: &[Range<u64>]) {
        self.recovery.on_more_lost(lost);
    }

    /// Lets one packet be retransmitted whatever the congestion window is (RFC 9260 §7.2.4, 3).
    pub(crate) fn retransmit_at_once(&mut self) {
        self.recovery.retransmit_at_once();
    }

    /// Handles the peer's report of congestion marks from `tsn` on. Returns whether it reduced the window, which happens once for
    /// all outstanding chunks, as for a loss.
    pub(crate) fn on_congestion_marks(&mut self, now: Time, tsn: u64, next_tsn: u64) -> bool {
        let reduces = self.recovery.is_new_mark(tsn);
        if reduces {
            self.enter_recovery(now, Signal::Ecn, self.flight.bytes(), next_tsn, &[]);
        }
        reduces
    }

    /// Handles the loss of packets that are too long for the path, which does not indicate congestion.
    pub(crate) fn on_long_packets_lost(&mut self, bytes: usize) {
        self.delivery.on_lost(bytes);
        if bytes > 0 {
            self.recovery.retransmit_at_once();
        }
    }

    /// Handles the expiry of T3: all chunks in flight, `lost_bytes` in all, were declared lost. `congested`: the window is
    /// reduced. The RTO doubles.
    pub(crate) fn on_t3(
        &mut self,
        now: Time,
        lost: &[Range<u64>],
        lost_bytes: usize,
        congested: bool,
        limits: &RtoConfig,
    ) {
        self.rto.back_off(limits);
        self.flight.stop_timers();
        self.flight.on_silence();
        if congested {
            self.delivery.on_lost(lost_bytes);
            self.recovery.on_timeout(self.flight.next_packet(), lost);
            self.flight.forget_unanswered();
            self.congestion.on_timeout(now, lost_bytes);
            self.begin_burst();
        }
    }

    /// Counts an expiry of T3.
    pub(crate) fn count_t3(&mut self, now: Time) {
        self.counts.timeouts += 1;
        self.note_timer(now, Timer::T3Rtx);
    }

    /// Handles the move of all `chunks` in flight to another path. This does not indicate congestion, so the window stays.
    pub(crate) fn on_reassigned(&mut self, chunks: u64) {
        self.counts.data_chunks_rerouted += chunks;
        self.flight.forget_unanswered();
        self.flight.stop_timers();
    }

    /// Handles the move of `chunks` in one packet to another path.
    pub(crate) fn on_packet_reassigned(&mut self, chunks: u64) {
        self.counts.data_chunks_rerouted += chunks;
    }

    /// Forgets all packets and stops their timers if nothing is in flight.
    pub(crate) fn clear_if_empty(&mut self) {
        if self.flight.is_empty() {
            self.flight.forget_before(self.flight.next_packet());
            self.flight.stop_timers();
        }
    }

    /// Returns whether the last expiry of T3 declared `tsn` lost, last sent in this packet, and that may still turn out to be
    /// spurious.
    #[inline]
    pub(crate) fn timeout_declared_lost(&self, tsn: u64, packet: PacketNumber) -> bool {
        self.recovery.timeout_declared_lost(tsn, packet)
    }

    /// Returns whether the last reduction declared `tsn` lost, and that may still turn out to be spurious.
    #[inline]
    pub(crate) fn declared_lost(&self, tsn: u64) -> bool {
        self.recovery.declared_lost(tsn)
    }

    /// Evaluates late arrivals of chunks that had been declared lost. Returns how the loss turned out to be spurious, if it did.
    #[inline]
    pub(crate) fn on_late_arrivals(&mut self, late: LateArrivals) -> Option<Spurious> {
        if !late.arrived.is_empty() {
            self.rack.note_reordering();
        }
        if !late.duplicates.is_empty() {
            self.rack.widen(self.flight.next_packet());
        }
        self.recovery.on_late_arrivals(late)
    }

    /// Undoes the last reduction of the window.
    pub(crate) fn undo_reduction(&mut self, now: Time, reason: UndoReason) {
        self.counts.reductions_undone += 1;
        self.notes.undone(now, reason);
        self.recovery.undo(self.flight.first_packet());
        self.congestion.undo(now);
    }
}
