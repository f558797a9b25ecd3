//! Loss recovery of a path: the episode after a loss, the limit for sending in it, and whether the loss was spurious.

use std::ops::Range;

use super::prr::Prr;
use super::spurious_loss::{LateArrivals, Spurious, SpuriousLoss};
use crate::packet_number::PacketNumber;

/// The episode after a reduction of the window.
#[derive(Debug, Default)]
enum Phase {
    /// No loss is being repaired, and the window may grow.
    #[default]
    Open,
    /// A loss or a mark has reduced the window, and no packet that left afterwards has arrived. PRR limits sending, unless the
    /// controller does so itself.
    Repairing { prr: Option<Prr> },
    /// The loss is repaired, and the exit point is not reached.
    BeforeExit,
    /// T3 has declared everything in flight lost, and no packet that left afterwards has arrived. T3 ends Fast Recovery, so this
    /// phase has no exit point. `answered`: the path has since answered a heartbeat.
    TimedOut { answered: bool },
}

#[derive(Debug, Default)]
pub(crate) struct Recovery {
    phase: Phase,
    /// Losses of packets before this one belong to a reduction of the window that has happened.
    until_packet: PacketNumber,
    /// The fast recovery exit point: losses while chunks before this TSN (unwrapped) are outstanding belong to that reduction,
    /// too.
    exit_tsn: u64,
    spurious_loss: SpuriousLoss,
    /// Whether one packet may be retransmitted whatever the congestion window is, because a loss was just detected (RFC 9260
    /// §7.2.4, 3).
    retransmit_at_once: bool,
}

impl Recovery {
    /// Returns whether a loss is being repaired.
    #[inline]
    pub(super) fn is_repairing(&self) -> bool {
        matches!(self.phase, Phase::Repairing { .. } | Phase::TimedOut { .. })
    }

    /// Returns whether the window stays as it is. It may grow again when no loss is being repaired, and everything that was
    /// outstanding when the window was reduced has arrived (RFC 9260 §7.2.1, §7.2.4).
    #[inline]
    pub(super) fn holds_window(&self) -> bool {
        !matches!(self.phase, Phase::Open)
    }

    /// Returns whether chunks that T3 declared lost are being repaired, and nothing has shown that the path works.
    pub(super) fn follows_timeout(&self) -> bool {
        matches!(self.phase, Phase::TimedOut { answered: false })
    }

    /// Returns the limit of the bytes in flight while a loss is repaired.
    #[inline]
    pub(super) fn window_bytes(&self) -> Option<usize> {
        match &self.phase {
            Phase::Repairing { prr } => prr.as_ref().map(Prr::window_bytes),
            _ => None,
        }
    }

    #[inline]
    fn prr_mut(&mut self) -> Option<&mut Prr> {
        match &mut self.phase {
            Phase::Repairing { prr } => prr.as_mut(),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn retransmits_at_once(&self) -> bool {
        self.retransmit_at_once
    }

    /// Returns whether the loss of `packet` belongs to no window that was reduced already. `first_tsn` is the first
    /// outstanding TSN; `None` if other paths hold it back, since it then says nothing of this one.
    pub(super) fn is_new_loss(&self, packet: PacketNumber, first_tsn: Option<u64>) -> bool {
        !self.until_packet.is_after(packet) && first_tsn.is_none_or(|first| first >= self.exit_tsn)
    }

    /// Returns whether congestion that the peer reports for `tsn` belongs to no window that was reduced already.
    pub(super) fn is_new_mark(&self, tsn: u64) -> bool {
        !self.is_repairing() && tsn >= self.exit_tsn
    }

    /// Begins an episode. Packets before `next_packet` and chunks before `next_tsn` belong to it. `lost` are the TSNs that were
    /// declared lost; without any, the reduction of the window cannot turn out to be spurious.
    pub(super) fn enter(
        &mut self,
        next_packet: PacketNumber,
        next_tsn: u64,
        lost: &[Range<u64>],
        prr: Option<Prr>,
    ) {
        self.spurious_loss.begin(lost);
        (self.until_packet, self.exit_tsn) = (next_packet, next_tsn);
        self.phase = Phase::Repairing { prr };
    }

    /// Handles more chunks that were declared lost in the same episode.
    #[inline]
    pub(super) fn on_more_lost(&mut self, lost: &[Range<u64>]) {
        self.spurious_loss.add_lost(lost);
    }

    /// Handles the expiry of T3: everything before `next_packet` was declared lost and is retransmitted in slow start.
    pub(super) fn on_timeout(&mut self, next_packet: PacketNumber, lost: &[Range<u64>]) {
        self.spurious_loss.begin_timeout(lost, next_packet);
        self.until_packet = next_packet;
        self.phase = Phase::TimedOut { answered: false };
    }

    /// Records that the path has answered a heartbeat sent after T3 had expired.
    pub(super) fn on_path_answered(&mut self) {
        if let Phase::TimedOut { answered } = &mut self.phase {
            *answered = true;
        }
    }

    /// Ends the repair if a packet that was sent in it has arrived; `newest` is the newest packet that was acknowledged.
    /// `first_tsn` is the first outstanding TSN, as in [`Recovery::is_new_loss`]. Returns whether the repair has ended now.
    #[inline]
    pub(super) fn on_arrival(&mut self, newest: Option<PacketNumber>, first_tsn: Option<u64>) -> bool {
        let is_repaired = newest.is_some_and(|newest| !self.until_packet.is_after(newest));
        let before_exit = first_tsn.is_some_and(|first| first < self.exit_tsn);
        let ended = self.is_repairing() && is_repaired;
        match self.phase {
            Phase::Repairing { .. } if ended && before_exit => self.phase = Phase::BeforeExit,
            Phase::Repairing { .. } | Phase::TimedOut { .. } if ended => self.phase = Phase::Open,
            Phase::BeforeExit if !before_exit => self.phase = Phase::Open,
            _ => {}
        }
        if let Some(newest) = newest {
            self.until_packet.follow(newest);
        }
        ended
    }

    /// Ends the episode, because the loss was spurious. The next loss reduces the window, even if the packet has left before the
    /// reduction that is undone; `oldest` is the oldest packet that may be lost.
    pub(super) fn undo(&mut self, oldest: PacketNumber) {
        (self.phase, self.until_packet, self.exit_tsn) = (Phase::Open, oldest, 0);
        self.retransmit_at_once = false;
        self.spurious_loss.end();
    }

    /// Ends the episode, because the congestion control of the path begins again. Losses of packets before `next_packet`, which
    /// have left already, do not count for it. What T3 has declared lost is still repaired: a path that was silent may be so.
    pub(super) fn reset(&mut self, next_packet: PacketNumber) {
        if !matches!(self.phase, Phase::TimedOut { .. }) {
            self.phase = Phase::Open;
        }
        (self.until_packet, self.exit_tsn) = (next_packet, 0);
        self.spurious_loss.end();
    }

    /// Updates the limit for sending after a SACK, as [`Prr::on_acked`] describes.
    #[inline]
    pub(super) fn on_acked(
        &mut self,
        delivered_bytes: usize,
        in_flight_bytes: usize,
        ssthresh_bytes: usize,
        progress: bool,
        pmdcs_bytes: usize,
    ) {
        if let Some(prr) = self.prr_mut() {
            prr.on_acked(delivered_bytes, in_flight_bytes, ssthresh_bytes, progress, pmdcs_bytes);
        }
    }

    /// Evaluates late arrivals of chunks that had been declared lost. Returns how the loss turned out to be spurious, if it did.
    #[inline]
    pub(super) fn on_late_arrivals(&mut self, late: LateArrivals) -> Option<Spurious> {
        self.spurious_loss.on_late_arrivals(late)
    }

    /// Returns whether the last expiry of T3 declared `tsn` lost, last sent in this packet, and that may still turn out to be
    /// spurious.
    #[inline]
    pub(super) fn timeout_declared_lost(&self, tsn: u64, packet: PacketNumber) -> bool {
        self.spurious_loss.timeout_declared_lost(tsn, packet)
    }

    /// Returns whether the last reduction declared `tsn` lost, and that may still turn out to be spurious.
    #[inline]
    pub(super) fn declared_lost(&self, tsn: u64) -> bool {
        self.spurious_loss.declared_lost(tsn)
    }

    /// Lets one packet be retransmitted whatever the congestion window is.
    pub(super) fn retransmit_at_once(&mut self) {
        self.retransmit_at_once = true;
    }

    /// Counts a sent packet of `bytes`.
    #[inline]
    pub(super) fn on_sent(&mut self, bytes: usize, first_transmission: bool) {
        if let Some(prr) = self.prr_mut() {
            prr.on_sent(bytes);
        }
        self.retransmit_at_once &= first_transmission;
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "what was lost is a list of ranges, here of one")]
mod tests {
    use super::*;

    fn packet(number: u32) -> PacketNumber {
        PacketNumber::new(number)
    }

    #[test]
    fn a_repair_ends_when_a_packet_that_left_in_it_arrives() {
        let mut recovery = Recovery::default();
        recovery.enter(packet(10), 500, &[], None);
        assert!(!recovery.on_arrival(Some(packet(9)), Some(400)) && recovery.is_repairing());
        assert!(recovery.on_arrival(Some(packet(10)), Some(400)) && !recovery.is_repairing());
        assert!(!recovery.on_arrival(Some(packet(11)), Some(400)), "it has ended before");
    }

    #[test]
    fn the_window_stays_until_the_exit_point() {
        let mut recovery = Recovery::default();
        assert!(!recovery.holds_window());
        recovery.enter(packet(10), 500, &[], None);
        recovery.on_arrival(Some(packet(10)), Some(499));
        assert!(recovery.holds_window(), "a chunk of that window is outstanding");
        recovery.on_arrival(Some(packet(11)), Some(500));
        assert!(!recovery.holds_window());
        recovery.on_arrival(Some(packet(12)), Some(499));
        assert!(!recovery.holds_window(), "a chunk that was taken back is no loss");

        // Other paths say nothing of this one.
        recovery.enter(packet(20), 600, &[], None);
        recovery.on_arrival(Some(packet(19)), None);
        assert!(recovery.holds_window());
        recovery.on_arrival(Some(packet(20)), None);
        assert!(!recovery.holds_window());
    }

    #[test]
    fn slow_start_follows_a_timeout_before_the_exit_point() {
        let mut recovery = Recovery::default();
        recovery.enter(packet(10), 500, &[], None);
        recovery.on_timeout(packet(20), &[400..500]);
        recovery.on_arrival(Some(packet(20)), Some(401));
        assert!(!recovery.holds_window());
    }

    #[test]
    fn a_window_is_reduced_once() {
        let mut recovery = Recovery::default();
        recovery.enter(packet(10), 500, &[], None);
        assert!(!recovery.is_new_loss(packet(9), Some(500)), "the packet left before");
        assert!(!recovery.is_new_loss(packet(10), Some(499)), "a chunk of that window is outstanding");
        assert!(recovery.is_new_loss(packet(10), Some(500)) && recovery.is_new_loss(packet(10), None));
        assert!(!recovery.is_new_mark(500), "that window is still being repaired");
        recovery.on_arrival(Some(packet(10)), Some(500));
        assert!(recovery.is_new_mark(500) && !recovery.is_new_mark(499));
    }

    #[test]
    fn a_loss_is_new_however_many_packets_have_left_since_the_last() {
        let mut recovery = Recovery::default();
        recovery.enter(packet(1), 500, &[], None);
        let mut newest = packet(1);
        for _ in 0..10 {
            recovery.on_arrival(Some(newest), None);
            newest = newest.plus(1 << 29);
            assert!(recovery.is_new_loss(newest, None), "{newest:?}");
        }
    }

    #[test]
    fn a_loss_after_an_undone_reduction_reduces_the_window() {
        let mut recovery = Recovery::default();
        recovery.enter(packet(10), 500, &[400..401], None);
        recovery.undo(packet(7));
        assert!(!recovery.holds_window());
        assert!(recovery.is_new_loss(packet(7), Some(400)), "the packet has left before the reduction");
    }

    #[test]
    fn a_path_that_answers_after_a_timeout_repairs_its_losses_but_is_not_silent() {
        let mut recovery = Recovery::default();
        recovery.on_path_answered();
        assert!(!recovery.is_repairing());
        recovery.on_timeout(packet(20), &[400..500]);
        assert!(recovery.follows_timeout());
        recovery.on_path_answered();
        assert!(recovery.is_repairing() && !recovery.follows_timeout());
        recovery.on_arrival(Some(packet(20)), None);
        assert!(!recovery.is_repairing());
    }

    #[test]
    fn a_new_controller_begins_without_the_losses_of_the_one_before() {
        let mut recovery = Recovery::default();
        recovery.enter(packet(10), 500, &[400..401], None);
        recovery.reset(packet(20));
        assert!(!recovery.is_repairing() && !recovery.holds_window() && !recovery.declared_lost(400));
        assert!(
            !recovery.is_new_loss(packet(9), None) && !recovery.is_new_loss(packet(19), None),
            "the packet left before"
        );
        assert!(
            recovery.is_new_loss(packet(20), Some(400)),
            "the exit point was that of the controller before"
        );
        recovery.on_timeout(packet(30), &[400..500]);
        recovery.reset(packet(30));
        assert!(recovery.follows_timeout(), "nothing has shown that the path works");
    }
}
