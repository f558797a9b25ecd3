//! What a SACK says (RFC 9260 §6.2.1).

use sctp_wire::Tsn;
use smallvec::{SmallVec, smallvec};

use super::{Chunk, ChunkState, Outbound};
use crate::config::AssociationConfig;
use crate::congestion::{Acked, Coupling, RateSample, Signal};
use crate::packet_number::after;
use crate::path::{Path, couple};
use crate::statistics::Statistics;
use crate::time::Time;
use crate::trace::UndoReason;
use crate::tsn;

/// What a SACK (or SHUTDOWN, which reports no gaps) says. Gaps are first and last TSN as distances from
/// `cum_tsn`, as the peer gave them.
#[derive(Debug, Clone)]
pub(crate) struct Report<G, D> {
    /// Where it came from.
    pub(crate) path_id: usize,
    pub(crate) cum_tsn: Tsn,
    pub(crate) window_bytes: usize,
    pub(crate) gaps: Option<G>,
    /// Those that the peer does not take back.
    pub(crate) promised: Option<G>,
    pub(crate) duplicates: D,
}

/// What gap blocks report.
#[derive(Debug, Default, Clone, Copy)]
struct Reported {
    chunks: u64,
    /// The TSN after the last of them (unwrapped).
    end: u64,
}

/// What a SACK brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SackOutcome {
    /// Paths that carried what was acknowledged, and when, if it was sent for the first time: what was sent again may have
    /// arrived elsewhere.
    pub(crate) answered: SmallVec<[(usize, Option<Time>); 2]>,
    /// Something new was acknowledged, so the peer is alive.
    pub(crate) progress: bool,
    /// The send buffer fell to half or less while somebody waited for that.
    pub(crate) writable: bool,
}

/// What a SACK acknowledges on one path.
#[derive(Debug, Default, Clone)]
struct PathAcked {
    bytes: usize,
    /// The newest and the oldest packet that carried some of it.
    packets: Option<(u32, u32)>,
    in_flight_before_bytes: usize,
    /// Chunks that had been given up and were not sent again: they arrived late.
    late_chunks: u64,
    /// Some of those were given up by the timer.
    late_after_timeout: bool,
    /// The peer had something twice, and so many chunks of it could have been given up by mistake.
    duplicate: bool,
    duplicates: u64,
}

impl Outbound {
    /// Takes a SACK. An error names what the peer did wrong.
    pub(crate) fn handle_sack<G, D>(
        &mut self,
        now: Time,
        sack: Report<G, D>,
        paths: &mut [Path],
        config: &AssociationConfig,
        statistics: &mut Statistics,
    ) -> Result<SackOutcome, &'static str>
    where
        G: Iterator<Item = (u16, u16)> + Clone,
        D: Iterator<Item = Tsn>,
    {
        let cumulative = tsn::unwrap(self.first - 1, sack.cum_tsn);
        if cumulative + 1 < self.first {
            return Ok(SackOutcome::default());
        }
        let next = self.first + self.outstanding.len() as u64;
        if cumulative >= next {
            return Err("a SACK for data that was never sent");
        }
        if config.coupling != Coupling::None {
            couple(paths);
        }
        let mut acked: SmallVec<[PathAcked; 2]> = smallvec![PathAcked::default(); paths.len()];
        for (acked, path) in acked.iter_mut().zip(paths.iter()) {
            acked.in_flight_before_bytes = path.in_flight_bytes;
        }
        let advanced = cumulative + 1 > self.first;
        if advanced {
            self.acknowledge_to(cumulative, paths, &mut acked);
        }
        let promised = sack.promised.as_ref().map_or(Reported::default(), |gaps| {
            self.acknowledge_gaps(cumulative, next, gaps, ChunkState::Promised, paths, &mut acked)
        });
        if let Some(gaps) = &sack.gaps {
            let reported =
                self.acknowledge_gaps(cumulative, next, gaps, ChunkState::GapAcked, paths, &mut acked);
            let reported = Reported {
                chunks: reported.chunks + promised.chunks,
                end: if reported.chunks + promised.chunks == 0 {
                    next
                } else {
                    reported.end.max(promised.end)
                },
            };
            if self.takes_back(&mut paths[sack.path_id], cumulative, reported.chunks) {
                self.take_back(gaps, cumulative, reported.end, paths);
            }
        }
        for duplicate in sack.duplicates {
            let tsn = tsn::unwrap(self.first, duplicate);
            for (path, acked) in paths.iter().zip(acked.iter_mut()) {
                acked.duplicates += u64::from(tsn < next && path.doubt.concerns(tsn));
                acked.duplicate |= tsn < next;
            }
        }
        let in_flight = self.in_flight_payload_bytes;
        self.peer_window.update(sack.window_bytes, in_flight);
        if let Some(probe) = self.peer_window.judge_probe(self.first, sack.window_bytes, in_flight) {
            self.lose(probe, paths);
        }
        let mut outcome = SackOutcome::default();
        for (path_id, (path, acked)) in paths.iter_mut().zip(acked).enumerate() {
            if let Some((newest, _)) = acked.packets {
                let original = path.sent_packet(newest).filter(|packet| packet.first_transmission);
                outcome.answered.push((path_id, original.map(|packet| packet.sent_at)));
                outcome.progress = true;
            }
            // With several paths the cumulative TSN waits for the slowest: each goes by what arrives on it.
            let advanced = if self.multipath { acked.packets.is_some() } else { advanced };
            self.settle_path(now, path, path_id, &acked, advanced, config, statistics);
            path.begin_burst();
            // RFC 9260 §6.3.2 R2, R3 and R4.
            if path.in_flight_bytes == 0 {
                path.t3 = None;
                path.tail.cancel();
            } else if advanced || path.t3.is_none() {
                path.t3 = Some(now + path.rto.current());
            }
        }
        let idle = self.in_flight_payload_bytes == 0 && self.lost.is_empty();
        let rto = paths.iter().map(|path| path.rto.current()).min().unwrap_or(config.rto.initial);
        self.peer_window.watch(now, idle, rto, config.rto.max);
        self.tune_buffer(paths, config);
        outcome.writable = self.takes_writable();
        Ok(outcome)
    }

    /// What the SACK says about one path: its delay, its losses, its window.
    #[expect(clippy::too_many_arguments, reason = "a path is lent by its owner, piece by piece")]
    fn settle_path(
        &mut self,
        now: Time,
        path: &mut Path,
        path_id: usize,
        acked: &PathAcked,
        advanced: bool,
        config: &AssociationConfig,
        statistics: &mut Statistics,
    ) {
        self.undo_mistakes(now, path, path_id, acked, statistics);
        if acked.duplicate {
            path.tail.on_duplicate();
        }
        let Some((newest, oldest)) = acked.packets else { return };
        path.errors = 0;
        let (rtt, rate) = measure(now, path, newest, acked.bytes, config);
        if path.rack.newest().is_some_and(|before| after(before, oldest))
            && path.sent_packet(oldest).is_some_and(|packet| packet.first_transmission)
        {
            path.rack.note_reordering();
        }
        record_arrival(now, path, newest);
        path.note_arrival(newest, oldest);
        let flight = acked.in_flight_before_bytes;
        let lost_bytes = self.detect_loss(now, path, path_id, flight, statistics);
        if path.tail.on_acked(newest) && !path.in_recovery() {
            path.doubt.end();
            path.enter_recovery(now, Signal::Loss, flight, self.next_tsn());
        }
        path.leave_recovery(now);
        path.reduce(acked.bytes, advanced && lost_bytes == 0);
        let acked = Acked {
            bytes: acked.bytes,
            in_flight_before_bytes: flight,
            in_flight_bytes: path.in_flight_bytes,
            lost_bytes,
            cumulative: advanced,
            in_recovery: path.in_recovery(),
            window_limited: path.was_limited(newest),
            rtt,
            srtt: path.rto.srtt(),
            min_rtt: path.rack.min_rtt(),
            newest_packet: newest,
            next_packet: path.next_packet(),
            rate,
        };
        path.congestion.on_acked(now, &acked);
        path.plan_tail_probe(now, config);
    }

    fn acknowledge_to(&mut self, cumulative: u64, paths: &mut [Path], acked: &mut [PathAcked]) {
        let count = (cumulative + 1 - self.first) as usize;
        for chunk in self.outstanding.drain(..count) {
            self.buffered_bytes -= chunk.buffered_bytes();
            match chunk.state {
                ChunkState::InFlight => self.in_flight_payload_bytes -= chunk.payload.len(),
                ChunkState::GapAcked => self.renegable -= 1,
                ChunkState::Promised | ChunkState::Lost => {}
            }
            credit(&chunk, paths, acked);
        }
        self.first = cumulative + 1;
        self.lost.remove_below(self.first);
        self.gap_acked.remove_below(self.first);
    }

    /// `state`: what chunks are from now on.
    fn acknowledge_gaps<G: Iterator<Item = (u16, u16)> + Clone>(
        &mut self,
        cumulative: u64,
        next: u64,
        gaps: &G,
        state: ChunkState,
        paths: &mut [Path],
        acked: &mut [PathAcked],
    ) -> Reported {
        let mut reported = Reported::default();
        for (start, end) in gaps.clone() {
            let range = cumulative + u64::from(start)..(cumulative + u64::from(end) + 1).min(next);
            if range.start <= cumulative || range.is_empty() {
                continue;
            }
            reported.chunks += range.end - range.start;
            reported.end = reported.end.max(range.end);
            let (first, outstanding) = (self.first, &mut self.outstanding);
            let (lost, in_flight) = (&mut self.lost, &mut self.in_flight_payload_bytes);
            let (renegable, buffered) = (&mut self.renegable, &mut self.buffered_bytes);
            self.gap_acked.insert_range(range, |new| {
                for tsn in new.clone() {
                    let chunk = &mut outstanding[(tsn - first) as usize];
                    credit(chunk, paths, acked);
                    if chunk.state == ChunkState::InFlight {
                        *in_flight -= chunk.payload.len();
                    }
                    chunk.state = state;
                    if state == ChunkState::Promised {
                        *buffered -= chunk.forget();
                    } else {
                        *renegable += 1;
                    }
                }
                lost.remove_range(new);
            });
        }
        reported
    }

    /// Whether the peer no longer reports what it had reported, in a SACK that came on `path` and says that so many chunks
    /// have arrived beyond the cumulative TSN. SACKs overtake each other on different paths, so an old one may say less; it
    /// is not older than the one before it on the same path. If the chunk after the cumulative TSN had been reported, it
    /// is gone whatever else holds.
    fn takes_back(&mut self, path: &mut Path, cumulative: u64, chunks: u64) -> bool {
        let total = cumulative + chunks;
        let before = std::mem::replace(&mut path.reported, total);
        let may_be_old = self.multipath && total >= before && self.gap_acked.first() != Some(self.first);
        self.renegable > 0 && self.gap_acked.count() > chunks && !may_be_old
    }

    /// The peer no longer reports what it had reported: it dropped those chunks, or this SACK is an old
    /// one. They count as in flight again, and the timer decides (RFC 9260 §6.2.1 D iv).
    fn take_back<G: Iterator<Item = (u16, u16)> + Clone>(
        &mut self,
        gaps: &G,
        cumulative: u64,
        reported_end: u64,
        paths: &mut [Path],
    ) {
        let mut missing = self.gap_acked.clone();
        for (start, end) in gaps.clone() {
            missing.remove_range(cumulative + u64::from(start)..cumulative + u64::from(end) + 1);
        }
        for range in missing.iter() {
            let range = range.start..range.end.min(reported_end);
            for tsn in range {
                let chunk = &mut self.outstanding[(tsn - self.first) as usize];
                if chunk.state == ChunkState::GapAcked {
                    chunk.state = ChunkState::InFlight;
                    self.renegable -= 1;
                    self.in_flight_payload_bytes += chunk.payload.len();
                    paths[usize::from(chunk.path)].in_flight_bytes += chunk.wire_bytes();
                    self.gap_acked.remove_range(tsn..tsn + 1);
                }
            }
        }
    }

    /// What was given up has arrived after all.
    fn undo_mistakes(
        &mut self,
        now: Time,
        path: &mut Path,
        path_id: usize,
        acked: &PathAcked,
        statistics: &mut Statistics,
    ) {
        if acked.late_chunks > 0 {
            path.rack.note_reordering();
        }
        if acked.duplicates > 0 {
            path.rack.widen(path.next_packet());
        }
        let all_arrived = path.doubt.clear(acked.late_chunks + acked.duplicates);
        let mut reason = UndoReason::Acknowledged;
        if let Some(given_up_before) = path.doubt.timeout()
            && acked.late_after_timeout
        {
            self.undo_timeout(path, path_id, given_up_before);
        } else if !all_arrived {
            return;
        } else if acked.duplicates > 0 {
            reason = UndoReason::Duplicates;
        }
        statistics.reductions_undone += 1;
        path.note_undone(now, reason);
        path.undo_reduction(now);
    }

    /// The buffer holds at least two windows, so that the application can refill one while the other is on its way.
    fn tune_buffer(&mut self, paths: &[Path], config: &AssociationConfig) {
        if self.buffer_bytes < config.send_buffer_tuned_bytes {
            let windows: usize =
                paths.iter().map(|path| path.congestion.cwnd_bytes()).fold(0, usize::saturating_add);
            // Overhead counts, too, so two windows may be too little: all has left, and the application waits for room.
            let starved = self.writable_wanted && self.pending.is_empty();
            let least = if starved { self.buffer_bytes } else { 0 };
            let wanted = windows.max(least).saturating_mul(2).min(config.send_buffer_tuned_bytes);
            self.buffer_bytes = self.buffer_bytes.max(wanted);
        }
    }
}

/// Books one chunk as newly acknowledged on its path.
#[inline]
fn credit(chunk: &Chunk, paths: &mut [Path], acked: &mut [PathAcked]) {
    if matches!(chunk.state, ChunkState::GapAcked | ChunkState::Promised) {
        return;
    }
    let wire = chunk.wire_bytes();
    let path_id = usize::from(chunk.path);
    let acked = &mut acked[path_id];
    acked.bytes += wire;
    if chunk.state == ChunkState::InFlight {
        paths[path_id].in_flight_bytes -= wire;
    } else {
        // It was given up and has not been sent again.
        acked.late_chunks += 1;
        acked.late_after_timeout |= paths[path_id]
            .doubt
            .timeout()
            .is_some_and(|given_up_before| after(given_up_before, chunk.packet));
    }
    match &mut acked.packets {
        None => acked.packets = Some((chunk.packet, chunk.packet)),
        Some((newest, oldest)) => {
            if after(chunk.packet, *newest) {
                *newest = chunk.packet;
            } else if after(*oldest, chunk.packet) {
                *oldest = chunk.packet;
            }
        }
    }
}

/// Round-trip time and delivery rate that the newest packet shows. Of a packet in which something was sent twice the
/// round trip is not certain (RFC 9260 §6.3.1 C5).
fn measure(
    now: Time,
    path: &mut Path,
    newest: u32,
    bytes: usize,
    config: &AssociationConfig,
) -> (Option<std::time::Duration>, Option<RateSample>) {
    path.delivery.on_acked(now, bytes);
    let Some(sent) = path.sent_packet(newest) else { return (None, None) };
    let (sent_at, mark) = (sent.sent_at, sent.mark);
    let rtt = sent.first_transmission.then(|| now.saturating_since(sent_at));
    if let Some(rtt) = rtt {
        path.rto.on_answer(now, sent_at, &config.rto);
        path.rack.measure(now, rtt);
    }
    let rate = path.delivery.sample(&mark, sent_at, path.rack.min_rtt());
    (rtt, rate)
}

/// Tells the loss detection of the newest packet.
fn record_arrival(now: Time, path: &mut Path, newest: u32) {
    if let Some(sent) = path.sent_packet(newest) {
        let (rtt, again) = (now.saturating_since(sent.sent_at), !sent.first_transmission);
        path.rack.on_acked(newest, rtt, again);
    }
}
