//! Detects spurious losses: reductions of the window because of packets that were not lost but merely late.
//!
//! Two signs show that: chunks declared lost arrive before they are retransmitted (as in F-RTO, RFC 5682), or the peer reports
//! that it received all retransmitted chunks twice (RFC 3708). Both count only for the chunks that the reduction declared lost,
//! and so only on their path: a network that duplicates packets, a tail loss probe, or another path that was too quick proves
//! nothing about a loss here.

use std::ops::Range;

use crate::packet_number::PacketNumber;
use crate::range_set::RangeSet;
use crate::trace::UndoReason;
use crate::tsn::{self, TsnRanges};

/// Chunks of a SACK that had been declared lost, by their TSNs (unwrapped).
#[derive(Debug, Default, Clone)]
pub(crate) struct LateArrivals {
    /// Chunks that arrived before they were retransmitted.
    pub(crate) arrived: TsnRanges,
    /// Whether T3 had declared some of those lost.
    pub(crate) after_timeout: bool,
    /// Chunks that the peer received twice, so that they were declared lost by mistake.
    pub(crate) duplicates: TsnRanges,
}

/// A reduction of the window that turned out to be spurious.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spurious {
    pub(crate) reason: UndoReason,
    /// If T3 was the cause: packets before this one were declared lost, and the rest of them is still in flight.
    pub(crate) timeout_before: Option<PacketNumber>,
}

/// The chunks that the last reduction of the window declared lost.
#[derive(Debug, Default)]
pub(crate) struct SpuriousLoss {
    /// TSNs (unwrapped) that were declared lost since the reduction and that have not yet turned out to have arrived. With none,
    /// the reduction stays, or was undone.
    lost: RangeSet,
    /// The packet before which T3 declared packets lost.
    timeout: Option<PacketNumber>,
}

impl SpuriousLoss {
    /// Begins to watch after the window was reduced because `lost` were declared lost. Without any, the reduction stays.
    pub(crate) fn begin(&mut self, lost: &[Range<u64>]) {
        self.end();
        self.add(lost);
    }

    /// Begins to watch after T3 reduced the window and declared packets before `next_packet` lost, with these TSNs.
    pub(crate) fn begin_timeout(&mut self, lost: &[Range<u64>], next_packet: PacketNumber) {
        self.begin(lost);
        self.timeout = Some(next_packet);
    }

    /// Adds chunks that were declared lost in the same recovery. The loss of a retransmission ends the watch: one duplicate
    /// does not tell which of three transmissions have arrived.
    #[inline]
    pub(crate) fn add_lost(&mut self, lost: &[Range<u64>]) {
        if !self.lost.is_empty() {
            self.add(lost);
        }
    }

    fn add(&mut self, lost: &[Range<u64>]) {
        let before = self.lost.count();
        for tsns in lost {
            self.lost.insert_range(tsns.clone(), |_| {});
        }
        if self.lost.count() < before + tsn::count(lost) {
            self.end();
        }
    }

    /// Returns the packet before which T3 declared packets lost, while that may turn out to be spurious.
    #[inline]
    fn timeout(&self) -> Option<PacketNumber> {
        self.timeout.filter(|_| !self.lost.is_empty())
    }

    /// Returns whether the last expiry of T3 declared `tsn` lost, last sent in this packet, and that may turn out to be spurious.
    /// Chunks that an earlier expiry declared lost prove nothing about the last one: they may have arrived before the path fell
    /// silent, and their SACKs were lost.
    #[inline]
    pub(crate) fn timeout_declared_lost(&self, tsn: u64, packet: PacketNumber) -> bool {
        self.timeout().is_some_and(|before| before.is_after(packet)) && self.lost.contains(tsn)
    }

    /// Returns whether the reduction declared `tsn` lost, and that may turn out to be spurious.
    #[inline]
    pub(crate) fn declared_lost(&self, tsn: u64) -> bool {
        self.lost.contains(tsn)
    }

    /// Evaluates late arrivals of chunks that had been declared lost. Returns how the loss turned out to be spurious, if it did.
    #[inline]
    pub(crate) fn on_late_arrivals(&mut self, late: LateArrivals) -> Option<Spurious> {
        let LateArrivals { arrived, after_timeout, duplicates } = late;
        let has_duplicates = !duplicates.is_empty();
        let all_arrived = self.on_arrived(arrived) || self.on_arrived(duplicates);
        let timeout_before = self.timeout().filter(|_| after_timeout);
        if timeout_before.is_none() && !all_arrived {
            return None;
        }
        let by_duplicates = timeout_before.is_none() && has_duplicates;
        let reason = if by_duplicates { UndoReason::Duplicates } else { UndoReason::Acknowledged };
        Some(Spurious { reason, timeout_before })
    }

    /// Removes chunks that turn out to have arrived. Returns whether no other one is left, which makes the loss spurious.
    #[inline]
    fn on_arrived(&mut self, mut tsns: TsnRanges) -> bool {
        if tsns.is_empty() || self.lost.is_empty() {
            return false;
        }
        tsns.sort_unstable_by_key(|range| range.start);
        self.lost.remove_each(&tsns);
        self.lost.is_empty()
    }

    /// Stops watching.
    pub(crate) fn end(&mut self) {
        *self = SpuriousLoss::default();
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "what was lost is a list of ranges, here of one")]
mod tests {
    use super::*;

    fn arrived(tsns: Range<u64>) -> LateArrivals {
        LateArrivals { arrived: [tsns].into_iter().collect(), ..LateArrivals::default() }
    }

    fn duplicates(tsns: &[u64]) -> LateArrivals {
        let duplicates = tsns.iter().map(|tsn| *tsn..tsn + 1).collect();
        LateArrivals { duplicates, ..LateArrivals::default() }
    }

    fn reason(spurious: Option<Spurious>) -> Option<UndoReason> {
        spurious.map(|spurious| spurious.reason)
    }

    #[test]
    fn everything_that_was_declared_lost_must_have_arrived() {
        let mut loss = SpuriousLoss::default();
        assert!(loss.on_late_arrivals(arrived(0..1000)).is_none(), "nothing was declared lost");
        loss.begin(&[100..102, 105..106]);
        loss.add_lost(&[108..109]);
        assert!(loss.declared_lost(105) && !loss.declared_lost(104));
        assert!(loss.on_late_arrivals(arrived(100..105)).is_none());
        assert_eq!(reason(loss.on_late_arrivals(arrived(105..109))), Some(UndoReason::Acknowledged));
        assert!(loss.on_late_arrivals(arrived(105..109)).is_none(), "only once");
    }

    #[test]
    fn duplicates_of_other_chunks_prove_nothing() {
        let mut loss = SpuriousLoss::default();
        loss.begin(&[100..102]);
        assert!(loss.on_late_arrivals(duplicates(&[102, 99, 103])).is_none());
        assert!(loss.on_late_arrivals(duplicates(&[101, 101])).is_none(), "a chunk counts once");
        assert_eq!(reason(loss.on_late_arrivals(duplicates(&[100]))), Some(UndoReason::Duplicates));
        loss.begin(&[100..102]);
        let late = LateArrivals { arrived: [101..102].into_iter().collect(), ..duplicates(&[100]) };
        assert_eq!(reason(loss.on_late_arrivals(late)), Some(UndoReason::Duplicates));
    }

    #[test]
    fn a_reduction_stays_if_a_retransmission_was_lost_or_no_chunk() {
        let mut loss = SpuriousLoss::default();
        loss.begin(&[100..101, 103..104]);
        loss.add_lost(&[103..104]);
        assert!(loss.on_late_arrivals(duplicates(&[100, 103])).is_none());
        loss.add_lost(&[105..106]);
        assert!(loss.on_late_arrivals(arrived(105..106)).is_none(), "it is no longer watched");
        loss.begin(&[]);
        loss.add_lost(&[107..108]);
        assert!(loss.on_late_arrivals(arrived(107..108)).is_none());
    }

    #[test]
    fn a_timeout_is_watched_until_it_is_decided() {
        let mut loss = SpuriousLoss::default();
        loss.begin_timeout(&[5..15], PacketNumber::new(42));
        assert!(
            loss.timeout_declared_lost(7, PacketNumber::new(41))
                && !loss.timeout_declared_lost(7, PacketNumber::new(42))
        );
        assert!(!loss.timeout_declared_lost(4, PacketNumber::new(41)), "an earlier timeout did");
        let late = LateArrivals { after_timeout: true, ..arrived(7..8) };
        let spurious = loss.on_late_arrivals(late).expect("a chunk that was not sent again has arrived");
        assert_eq!(
            (spurious.reason, spurious.timeout_before),
            (UndoReason::Acknowledged, Some(PacketNumber::new(42)))
        );
        loss.end();
        assert!(!loss.timeout_declared_lost(8, PacketNumber::new(41)));
    }
}
