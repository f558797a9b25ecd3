//! Handles SACKs (RFC 9260 §6.2.1).

use std::ops::Range;
use std::time::Duration;

use sctp_message::PathId;
use sctp_wire::Tsn;
use smallvec::SmallVec;

use super::outstanding::AckedRun;
use super::{Outbound, SendContext};
use crate::config::{AssociationConfig, DUPLICATES_MAX};
use crate::congestion::Coupling;
use crate::packet_number::PacketNumber;
use crate::path::{AckedPackets, LateArrivals, Path, Paths, couple};
use crate::time::Time;
use crate::tsn;

/// Time after a SACK that took chunks back in which further ones take back no more than the first chunk. A chunk is
/// acknowledged only once before it is taken back, so this bounds what a peer can make its gap blocks cost.
const RENEGE_INTERVAL: Duration = Duration::from_millis(100);

/// The contents of a SACK, or of a SHUTDOWN, which has no gaps. Gaps are first and last TSN as distances from `cum_tsn`, as
/// received.
#[derive(Debug, Clone)]
pub(crate) struct SackInfo<G, D> {
    /// The path on which it arrived.
    pub(crate) path_id: PathId,
    pub(crate) cum_tsn: Tsn,
    pub(crate) window_bytes: usize,
    pub(crate) gaps: Option<G>,
    /// Gaps on which the peer does not renege (NR-SACK).
    pub(crate) nr_gaps: Option<G>,
    pub(crate) duplicates: D,
}

/// TSNs that gap blocks acknowledge.
#[derive(Debug, Default, Clone, Copy)]
struct GapTotals {
    chunks: u64,
    /// The TSN after the last of them (unwrapped).
    end: u64,
}

/// Effects of a SACK.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SackOutcome {
    /// Paths that carried the acknowledged chunks, and the time of sending if that was the first transmission: a retransmission
    /// may have arrived elsewhere.
    pub(crate) answered: SmallVec<[(PathId, Option<Time>); 2]>,
    /// Something new was acknowledged, so the peer is alive.
    pub(crate) progress: bool,
    /// The cumulative TSN has advanced: a peer cannot take that back.
    pub(crate) advanced: bool,
    /// The send buffer fell to half or less while the user waited for room.
    pub(crate) writable: bool,
}

/// The part of a SACK's acknowledgement that concerns one path.
#[derive(Debug, Default, Clone)]
struct PathAcked {
    bytes: usize,
    /// The newest and the oldest packet that carried a part of them.
    packets: Option<(PacketNumber, PacketNumber)>,
    in_flight_before_bytes: usize,
    /// Whether the SACK came on this path.
    came_here: bool,
    late: LateArrivals,
}

type PathsAcked = SmallVec<[PathAcked; 2]>;

impl Outbound {
    /// Handles a SACK. An error describes the peer's violation.
    ///
    /// Each step needs the state that those before it have left. Coupled controllers get their shares of the rate as it was. The
    /// cumulative TSN and then the gaps credit each path with what has arrived; a peer that leaves out gaps has reneged, which
    /// only the rest shows. Duplicates and the peer's window are compared with what is in flight after that. Then each path
    /// measures, detects its losses and moves its window. The bytes then in flight decide whether to probe a closed
    /// window, and the windows about the size of the send buffer.
    pub(crate) fn handle_sack<G, D>(
        &mut self,
        cx: &mut SendContext<'_>,
        sack: SackInfo<G, D>,
        paths: &mut Paths,
    ) -> Result<SackOutcome, &'static str>
    where
        G: Iterator<Item = (u16, u16)> + Clone,
        D: Iterator<Item = Tsn>,
    {
        let first = self.outstanding.first_tsn();
        let cumulative = tsn::unwrap(first - 1, sack.cum_tsn);
        if cumulative + 1 < first {
            return Ok(SackOutcome::default());
        }
        if cumulative >= self.outstanding.next_tsn() {
            return Err("a SACK for data that was never sent");
        }
        if cx.config.coupling != Coupling::None {
            couple(paths);
        }
        let before = |path: &Path| PathAcked {
            in_flight_before_bytes: path.in_flight_bytes(),
            came_here: path.id() == sack.path_id,
            ..PathAcked::default()
        };
        let mut acked: PathsAcked = paths.iter().map(before).collect();
        let was_tight = self.peer_window.is_tight(self.outstanding.in_flight_payload_bytes());
        let advanced = cumulative + 1 > first;
        if advanced {
            let credit = |run, path: &Path| credit(run, path, &mut acked);
            let freed = self.outstanding.ack_to(cumulative, paths, credit);
            self.on_freed(freed);
        }
        self.acknowledge_gaps(cx.now, &sack, cumulative, paths, &mut acked);
        self.note_duplicates(sack.duplicates, paths, &mut acked);
        self.update_peer_window(sack.window_bytes, paths);
        if advanced && was_tight {
            self.note_refused_chunks(paths, &acked);
        }
        self.repeat_refused(sack.window_bytes, paths);
        let mut outcome = self.update_paths(cx, paths, acked, advanced);
        self.plan_window_probe(cx.now, paths, cx.config);
        self.tune_buffer(paths, cx.config);
        outcome.advanced = advanced;
        outcome.writable = self.take_writable();
        Ok(outcome)
    }

    /// Records the packets that the SACK acknowledges in part, because the peer had no room for the rest.
    fn note_refused_chunks(&mut self, paths: &Paths, acked: &PathsAcked) {
        for (path, acked) in paths.iter().zip(acked) {
            if let Some((newest, _)) = acked.packets {
                self.note_refused(path.id(), newest);
            }
        }
    }

    /// Updates all paths. Returns those that have answered.
    fn update_paths(
        &mut self,
        cx: &mut SendContext<'_>,
        paths: &mut Paths,
        acked: PathsAcked,
        advanced: bool,
    ) -> SackOutcome {
        let mut outcome = SackOutcome::default();
        for (path, acked) in paths.iter_mut().zip(acked) {
            if let Some((newest, _)) = acked.packets {
                let original = path.sent_packet(newest).filter(|packet| packet.first_transmission);
                outcome.answered.push((path.id(), original.map(|packet| packet.sent_at)));
                outcome.progress = true;
            }
            // With several paths the cumulative TSN waits for the slowest path, so each path counts the chunks that arrive on it.
            let advanced = if self.multipath { acked.packets.is_some() } else { advanced };
            self.update_path(cx, path, acked, advanced);
            path.end_sack(cx.now, advanced);
        }
        outcome
    }

    /// Plans the probe of a window that the peer has closed.
    fn plan_window_probe(&mut self, now: Time, paths: &Paths, config: &AssociationConfig) {
        let in_flight_bytes = self.outstanding.in_flight_payload_bytes();
        let idle = in_flight_bytes == 0 && !self.outstanding.has_lost();
        let rto = paths.iter().map(|path| path.rto().current()).min().unwrap_or(config.rto.initial);
        self.peer_window.plan_probe(now, in_flight_bytes, idle, rto, config.rto.max);
    }

    /// Updates one path: undoes spurious reductions, measures, detects losses, and tells the congestion controller.
    fn update_path(
        &mut self,
        cx: &mut SendContext<'_>,
        path: &mut Path,
        mut acked: PathAcked,
        advanced: bool,
    ) {
        // Some chunks may have arrived before the path failed, and their SACKs were lost. The others are then retransmitted on
        // another path (RFC 9260 §6.4.1), and do not wait for this one.
        acked.late.after_timeout &= acked.came_here || path.takes_data();
        self.undo_spurious_loss(cx, path, acked.late);
        let Some((newest, oldest)) = acked.packets else { return };
        let in_flight_before_bytes = acked.in_flight_before_bytes;
        let acked = AckedPackets { newest, oldest, bytes: acked.bytes, in_flight_before_bytes, advanced };
        let sample = path.on_packets_acked(cx.now, &acked, cx.config);
        let lost_bytes = self.detect_loss(cx, path, in_flight_before_bytes);
        let (first_tsn, next_tsn) = (self.first_tsn_of_one_path(), self.outstanding.next_tsn());
        path.update_window(cx.now, &acked, sample, lost_bytes, first_tsn, next_tsn);
        path.plan_tail_loss_probe(cx.now, cx.config);
    }

    /// Applies the gap blocks of a SACK. Chunks that the peer had acknowledged and now leaves out are in flight again; a SACK
    /// soon after another that left some out returns only the first chunk, without which nothing would be in flight.
    fn acknowledge_gaps<G, D>(
        &mut self,
        now: Time,
        sack: &SackInfo<G, D>,
        cumulative: u64,
        paths: &mut Paths,
        acked: &mut PathsAcked,
    ) where
        G: Iterator<Item = (u16, u16)> + Clone,
    {
        let nr_totals = sack.nr_gaps.as_ref().map_or(GapTotals::default(), |gaps| {
            self.acknowledge(tsns(gaps, cumulative), false, paths, acked)
        });
        let Some(gaps) = &sack.gaps else { return };
        let totals = self.acknowledge(tsns(gaps, cumulative), true, paths, acked);
        let chunks = totals.chunks + nr_totals.chunks;
        let end = if chunks == 0 { self.outstanding.next_tsn() } else { totals.end.max(nr_totals.end) };
        if !self.detect_reneging(&mut paths[sack.path_id], cumulative, chunks) {
            return;
        }
        let gaps = tsns(gaps, cumulative);
        if self.reneged_at.is_some_and(|at| now < at + RENEGE_INTERVAL) {
            return self.outstanding.renege_first(gaps, paths);
        }
        self.reneged_at = Some(now);
        self.outstanding.renege(gaps, end, paths);
    }

    /// Acknowledges the TSNs of gap blocks.
    fn acknowledge(
        &mut self,
        gaps: impl Iterator<Item = Range<u64>> + Clone,
        renegable: bool,
        paths: &mut Paths,
        acked: &mut PathsAcked,
    ) -> GapTotals {
        let (first, next) = (self.outstanding.first_tsn(), self.outstanding.next_tsn());
        let sent = gaps
            .map(|gap| gap.start..gap.end.min(next))
            .filter(|tsns| tsns.start >= first && !tsns.is_empty());
        let mut totals = GapTotals::default();
        for tsns in sent.clone() {
            totals.chunks += tsns.end - tsns.start;
            totals.end = totals.end.max(tsns.end);
        }
        let credit = |run, path: &Path| credit(run, path, acked);
        let freed = self.outstanding.ack(sent, renegable, paths, credit);
        self.on_freed(freed);
        totals
    }

    /// Notes a SACK on the path that it came on. Returns whether the peer has reneged: the SACK, which acknowledges `chunks`
    /// beyond the cumulative TSN, leaves out what an earlier one acknowledged. SACKs overtake each other on different paths, so
    /// an old one may acknowledge less; on one path that is rare. A peer that had acknowledged the first outstanding chunk
    /// has reneged in any case.
    fn detect_reneging(&mut self, path: &mut Path, cumulative: u64, chunks: u64) -> bool {
        let total = cumulative + chunks;
        let before = path.on_sack(total);
        let may_be_old = self.multipath && total >= before && !self.outstanding.first_is_gap_acked();
        self.outstanding.is_renegable() && self.outstanding.gap_acked() > chunks && !may_be_old
    }

    /// Credits each duplicate to the path that declared it lost; at most as many as this implementation reports. If two paths
    /// did, it does not tell which of them was wrong.
    fn note_duplicates(
        &self,
        duplicates: impl Iterator<Item = Tsn>,
        paths: &mut Paths,
        acked: &mut PathsAcked,
    ) {
        let first = self.outstanding.first_tsn();
        for duplicate in duplicates.take(DUPLICATES_MAX) {
            let tsn = tsn::unwrap(first, duplicate);
            paths.iter_mut().for_each(|path| path.on_duplicate(tsn));
            let mut lost_on = paths.iter().filter(|path| path.declared_lost(tsn)).map(Path::id);
            if let (Some(path_id), None) = (lost_on.next(), lost_on.next()) {
                tsn::append(&mut acked[path_id.index()].late.duplicates, tsn..tsn + 1);
            }
        }
    }

    /// Updates the peer's window. A chunk that probed a closed window and was dropped leaves again at once.
    fn update_peer_window(&mut self, window_bytes: usize, paths: &mut Paths) {
        let in_flight_bytes = self.outstanding.in_flight_payload_bytes();
        self.peer_window.on_advertised(window_bytes);
        let first = self.outstanding.first_tsn();
        if let Some(probe) = self.peer_window.probe_to_repeat(first, window_bytes, in_flight_bytes) {
            self.outstanding.nack(probe, paths);
        }
    }

    /// Undoes a reduction of the window if the chunks declared lost have arrived after all.
    fn undo_spurious_loss(&mut self, cx: &mut SendContext<'_>, path: &mut Path, late: LateArrivals) {
        let Some(spurious) = path.on_late_arrivals(late) else { return };
        if let Some(before) = spurious.timeout_before {
            // RFC 5682 §3.1. The loss of packets that are forgotten would not be noticed before T3, so their chunks stay lost.
            let packets = path.first_packet()..before;
            self.outstanding.restore(path, packets);
        }
        cx.statistics.reductions_undone += 1;
        path.undo_reduction(cx.now, spurious.reason);
    }

    /// Grows the send buffer to at least two windows, so that the user can refill one while the other is in flight.
    fn tune_buffer(&mut self, paths: &Paths, config: &AssociationConfig) {
        if self.buffer_bytes < config.send_buffer_tuned_bytes {
            let windows: usize =
                paths.iter().map(Path::controller_window_bytes).fold(0, usize::saturating_add);
            // Overhead counts, too, so two windows may be too little: all chunks have left, and the user waits for room.
            let starved = self.writable_wanted && self.pending.is_empty();
            let least = if starved { self.buffer_bytes } else { 0 };
            let wanted = windows.max(least).saturating_mul(2).min(config.send_buffer_tuned_bytes);
            self.buffer_bytes = self.buffer_bytes.max(wanted);
        }
    }
}

/// Returns the TSNs (unwrapped) of gap blocks.
fn tsns<G: Iterator<Item = (u16, u16)> + Clone>(
    gaps: &G,
    cumulative: u64,
) -> impl Iterator<Item = Range<u64>> + Clone + use<G> {
    gaps.clone().map(move |(start, end)| cumulative + u64::from(start)..cumulative + u64::from(end) + 1)
}

/// Credits a newly acknowledged run to its path.
#[inline]
fn credit(run: AckedRun, path: &Path, acked: &mut PathsAcked) {
    let acked = &mut acked[run.path_id.index()];
    acked.bytes += run.wire_bytes;
    if run.was_lost {
        acked.late.after_timeout |= path.timeout_declared_lost(run.tsns.start, run.packet);
        tsn::append(&mut acked.late.arrived, run.tsns);
    }
    match &mut acked.packets {
        None => acked.packets = Some((run.packet, run.packet)),
        Some((newest, oldest)) => {
            if run.packet.is_after(*newest) {
                *newest = run.packet;
            } else if oldest.is_after(run.packet) {
                *oldest = run.packet;
            }
        }
    }
}
