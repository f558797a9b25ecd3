//! Detects spurious losses: reductions of the window because of packets that were not lost but merely late.
//!
//! Two signs show that: chunks declared lost arrive before they are retransmitted (as in F-RTO, RFC 5682), or the peer reports
//! that it received all retransmitted chunks twice (RFC 3708).

use crate::packet_number::after;
use crate::trace::UndoReason;

/// Chunks of a SACK that had been declared lost.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LateArrivals {
    /// Chunks that arrived before they were retransmitted.
    pub(crate) chunks: u64,
    /// Whether T3 had declared some of those lost.
    pub(crate) after_timeout: bool,
    /// Chunks that the peer received twice, so that they may have been declared lost by mistake.
    pub(crate) duplicates: u64,
}

/// A reduction of the window that turned out to be spurious.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spurious {
    pub(crate) reason: UndoReason,
    /// If T3 was the cause: packets before this one were declared lost, and the rest of them is still in flight.
    pub(crate) timeout_before: Option<u32>,
}

/// Packets that the last reduction of the window declared lost.
#[derive(Debug, Default)]
pub(crate) struct SpuriousLoss {
    /// Chunks that were declared lost since the reduction and that have not yet turned out to have arrived.
    open: u64,
    /// The first TSN that belongs to it (unwrapped).
    from_tsn: u64,
    /// The packet before which T3 declared packets lost.
    timeout: Option<u32>,
    active: bool,
}

impl SpuriousLoss {
    /// Begins to watch after a loss reduced the window. `first_tsn` is the first outstanding TSN, `chunks` were declared
    /// lost.
    pub(crate) fn begin(&mut self, first_tsn: u64, chunks: u64) {
        *self = SpuriousLoss { open: chunks, from_tsn: first_tsn, timeout: None, active: true };
    }

    /// Begins to watch after T3 reduced the window and declared packets before `next_packet` lost.
    pub(crate) fn begin_timeout(&mut self, first_tsn: u64, chunks: u64, next_packet: u32) {
        *self = SpuriousLoss { open: chunks, from_tsn: first_tsn, timeout: Some(next_packet), active: true };
    }

    /// Adds chunks that were declared lost in the same recovery.
    #[inline]
    pub(crate) fn add(&mut self, chunks: u64) {
        self.open += chunks;
    }

    /// Returns the packet before which T3 declared packets lost, while that may turn out to be spurious.
    #[inline]
    fn timeout(&self) -> Option<u32> {
        self.timeout.filter(|_| self.active)
    }

    /// Returns whether T3 declared this packet lost and that may turn out to be spurious.
    #[inline]
    pub(crate) fn timeout_declared_lost(&self, packet: u32) -> bool {
        self.timeout().is_some_and(|before| after(before, packet))
    }

    /// Returns whether a duplicate of `tsn` concerns the reduction.
    #[inline]
    pub(crate) fn concerns(&self, tsn: u64) -> bool {
        self.active && tsn >= self.from_tsn
    }

    /// Evaluates late arrivals of chunks that had been declared lost. Returns how the loss turned out to be spurious, if it did.
    #[inline]
    pub(crate) fn on_late_arrivals(&mut self, late: LateArrivals) -> Option<Spurious> {
        let all_arrived = self.on_arrived(late.chunks + late.duplicates);
        let timeout_before = self.timeout().filter(|_| late.after_timeout);
        if timeout_before.is_none() && !all_arrived {
            return None;
        }
        let by_duplicates = timeout_before.is_none() && late.duplicates > 0;
        let reason = if by_duplicates { UndoReason::Duplicates } else { UndoReason::Acknowledged };
        Some(Spurious { reason, timeout_before })
    }

    /// Counts chunks declared lost that turn out to have arrived. Returns whether all of them have, which makes the loss
    /// spurious.
    #[inline]
    fn on_arrived(&mut self, chunks: u64) -> bool {
        if !self.active || chunks == 0 {
            return false;
        }
        self.open = self.open.saturating_sub(chunks);
        if self.open > 0 {
            return false;
        }
        self.active = false;
        true
    }

    /// Stops watching.
    pub(crate) fn end(&mut self) {
        self.active = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_was_declared_lost_must_have_arrived() {
        let mut loss = SpuriousLoss::default();
        assert!(!loss.on_arrived(1));
        loss.begin(100, 2);
        loss.add(1);
        assert!(loss.concerns(100) && !loss.concerns(99));
        assert!(!loss.on_arrived(2));
        assert!(loss.on_arrived(1));
        assert!(!loss.on_arrived(1), "only once");
    }

    #[test]
    fn a_timeout_is_watched_until_it_is_decided() {
        let mut loss = SpuriousLoss::default();
        loss.begin_timeout(5, 10, 42);
        assert_eq!(loss.timeout(), Some(42));
        assert!(loss.timeout_declared_lost(41) && !loss.timeout_declared_lost(42));
        loss.end();
        assert_eq!(loss.timeout(), None);
    }
}
