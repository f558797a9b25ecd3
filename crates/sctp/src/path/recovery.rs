//! Loss recovery of a path: the episode after a loss, the limit for sending in it, and whether the loss was spurious.

use super::prr::Prr;
use super::spurious_loss::SpuriousLoss;
use crate::packet_number::after;

#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Losses of packets before this one belong to a reduction of the window that has happened.
    until_packet: u32,
    /// The fast recovery exit point: losses while chunks before this TSN (unwrapped) are outstanding belong to that reduction,
    /// too.
    exit_tsn: u64,
    /// Whether the losses of the last reduction are still being repaired.
    active: bool,
    /// Whether the episode began with an expiry of T3, and nothing has shown since that the path works.
    follows_timeout: bool,
    /// Limits sending during the episode.
    prr: Option<Prr>,
    spurious_loss: SpuriousLoss,
    /// Whether one packet may be retransmitted whatever the congestion window is, because a loss was just detected (RFC 9260
    /// §7.2.4, 3).
    retransmit_at_once: bool,
}

impl Recovery {
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Returns whether chunks that T3 declared lost are being repaired, and nothing has shown that the path works.
    pub(super) fn follows_timeout(&self) -> bool {
        self.active && self.follows_timeout
    }

    /// Returns the limit of the bytes in flight while a loss is repaired.
    #[inline]
    pub(super) fn window_bytes(&self) -> Option<usize> {
        self.prr.as_ref().map(Prr::window_bytes)
    }

    #[inline]
    pub(super) fn retransmits_at_once(&self) -> bool {
        self.retransmit_at_once
    }

    /// Returns whether the loss of `packet` belongs to no window that was reduced already. `first_tsn` is the first
    /// outstanding TSN; `None` if other paths hold it back, since it then says nothing of this one.
    pub(super) fn is_new_loss(&self, packet: u32, first_tsn: Option<u64>) -> bool {
        !after(self.until_packet, packet) && first_tsn.is_none_or(|first| first >= self.exit_tsn)
    }

    /// Returns whether congestion that the peer reports for `tsn` belongs to no window that was reduced already.
    pub(super) fn is_new_mark(&self, tsn: u64) -> bool {
        !self.active && tsn >= self.exit_tsn
    }

    /// Begins an episode. Packets before `next_packet` and chunks before `next_tsn` belong to it.
    pub(super) fn enter(&mut self, next_packet: u32, next_tsn: u64, prr: Option<Prr>) {
        (self.until_packet, self.exit_tsn) = (next_packet, next_tsn);
        (self.active, self.follows_timeout) = (true, false);
        if prr.is_some() {
            self.prr = prr;
        }
    }

    /// Handles the expiry of T3: everything before `next_packet` is retransmitted in slow start.
    pub(super) fn on_timeout(&mut self, next_packet: u32) {
        self.until_packet = next_packet;
        (self.active, self.follows_timeout, self.prr) = (true, true, None);
    }

    /// Records that the path has answered a heartbeat sent after T3 had expired.
    pub(super) fn on_path_answered(&mut self) {
        self.follows_timeout = false;
    }

    /// Ends the episode if a packet that was sent in it has arrived; `newest` is the newest packet that was acknowledged.
    /// Returns whether it has ended now.
    #[inline]
    pub(super) fn on_arrival(&mut self, newest: Option<u32>) -> bool {
        let ended = self.active && newest.is_some_and(|newest| !after(self.until_packet, newest));
        if ended {
            (self.active, self.prr) = (false, None);
        }
        ended
    }

    /// Ends the episode, because the loss was spurious.
    pub(super) fn undo(&mut self) {
        self.exit_tsn = 0;
        (self.active, self.prr) = (false, None);
        self.retransmit_at_once = false;
        self.spurious_loss.end();
    }

    /// Resets the recovery, because the congestion control of the path begins again.
    pub(super) fn reset(&mut self) {
        (self.prr, self.spurious_loss) = (None, SpuriousLoss::default());
    }

    #[inline]
    pub(super) fn prr_mut(&mut self) -> Option<&mut Prr> {
        self.prr.as_mut()
    }

    /// Lets one packet be retransmitted whatever the congestion window is.
    pub(super) fn retransmit_at_once(&mut self) {
        self.retransmit_at_once = true;
    }

    /// Counts a sent packet of `bytes`.
    #[inline]
    pub(super) fn on_sent(&mut self, bytes: usize, first_transmission: bool) {
        if let Some(prr) = &mut self.prr {
            prr.on_sent(bytes);
        }
        self.retransmit_at_once &= first_transmission;
    }

    #[inline]
    pub(super) fn spurious_loss(&self) -> &SpuriousLoss {
        &self.spurious_loss
    }

    #[inline]
    pub(super) fn spurious_loss_mut(&mut self) -> &mut SpuriousLoss {
        &mut self.spurious_loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_episode_ends_when_a_packet_that_left_in_it_arrives() {
        let mut recovery = Recovery::default();
        recovery.enter(10, 500, None);
        assert!(!recovery.on_arrival(Some(9)) && recovery.is_active());
        assert!(recovery.on_arrival(Some(10)) && !recovery.is_active());
        assert!(!recovery.on_arrival(Some(11)), "it has ended before");
    }

    #[test]
    fn a_window_is_reduced_once() {
        let mut recovery = Recovery::default();
        recovery.enter(10, 500, None);
        assert!(!recovery.is_new_loss(9, Some(500)), "the packet left before");
        assert!(!recovery.is_new_loss(10, Some(499)), "a chunk of that window is outstanding");
        assert!(recovery.is_new_loss(10, Some(500)) && recovery.is_new_loss(10, None));
        assert!(!recovery.is_new_mark(500), "that window is still being repaired");
        recovery.on_arrival(Some(10));
        assert!(recovery.is_new_mark(500) && !recovery.is_new_mark(499));
    }
}
