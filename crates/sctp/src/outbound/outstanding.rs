//! DATA chunks that have a TSN and are not yet acknowledged cumulatively.
//!
//! The queue owns the state of each run of chunks and every total that follows from it. Its callers know TSNs, packets and paths.
//! Each change updates the flight of the path at once (`run/in_flight`), and reports the chunks that it concerned.

use std::collections::VecDeque;
use std::ops::Range;

use sctp_message::PathId;
use smallvec::SmallVec;

use super::run::{InFlight, Run, RunState, Taken};
use crate::packet_number::PacketNumber;
use crate::partition_near::partition_near;
use crate::path::{Path, Paths};
use crate::range_set::RangeSet;
use crate::tsn::{self, TsnRanges};

/// Number of runs up to which each is split alone, which moves the runs behind or before it by one place. A pass over all runs
/// moves each of them once, however many are split.
const SINGLE_SPLITS_MAX: usize = 16;

/// Ranges of TSNs in rising order that a SACK changes: mostly one or two.
type Ranges = SmallVec<[Range<u64>; 4]>;

/// A run that a SACK has just acknowledged for the first time.
#[derive(Debug, Clone)]
pub(super) struct AckedRun {
    pub(super) path_id: PathId,
    /// The packet that last carried it.
    pub(super) packet: PacketNumber,
    pub(super) tsns: Range<u64>,
    pub(super) wire_bytes: usize,
    /// The run had been declared lost and was not yet retransmitted.
    pub(super) was_lost: bool,
}

/// Chunks of one path that were declared lost together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Nacked {
    pub(super) tsns: TsnRanges,
    pub(super) wire_bytes: usize,
}

impl Nacked {
    #[inline]
    fn add(&mut self, run: &Run) {
        tsn::append(&mut self.tsns, run.tsns());
        self.wire_bytes += run.wire_bytes();
    }
}

#[derive(Debug)]
pub(super) struct Outstanding {
    /// In the order of their TSNs, without a gap.
    runs: VecDeque<Run>,
    /// Index near which the last change was. The changes of a SACK ascend, so the next search begins there.
    near: usize,
    /// The first TSN that is not acknowledged cumulatively (unwrapped).
    first: u64,
    /// TSN of the next new chunk (unwrapped).
    next: u64,
    lost: RangeSet,
    /// Acknowledged by gap blocks.
    gap_acked: RangeSet,
    /// Number of these that the peer may renege on.
    renegable: u64,
    in_flight: InFlight,
}

impl Outstanding {
    pub(super) fn new(first: u64) -> Self {
        Outstanding {
            runs: VecDeque::new(),
            near: 0,
            first,
            next: first,
            lost: RangeSet::new(),
            gap_acked: RangeSet::new(),
            renegable: 0,
            in_flight: InFlight::default(),
        }
    }

    /// Returns the first TSN that is not acknowledged cumulatively.
    #[inline]
    pub(super) fn first_tsn(&self) -> u64 {
        self.first
    }

    /// Returns the TSN of the next new chunk.
    #[inline]
    pub(super) fn next_tsn(&self) -> u64 {
        self.next
    }

    #[inline]
    pub(super) fn chunks(&self) -> usize {
        (self.next - self.first) as usize
    }

    #[inline]
    pub(super) fn in_flight_payload_bytes(&self) -> usize {
        self.in_flight.payload_bytes()
    }

    #[inline]
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns the number of chunks that gap blocks have acknowledged.
    #[inline]
    pub(super) fn gap_acked(&self) -> u64 {
        self.gap_acked.count()
    }

    /// Returns whether the peer may renege on any chunk.
    #[inline]
    pub(super) fn is_renegable(&self) -> bool {
        self.renegable > 0
    }

    /// Returns whether a gap block had acknowledged the first chunk. A peer that does not include it in its cumulative TSN
    /// has reneged on it.
    pub(super) fn first_is_gap_acked(&self) -> bool {
        self.gap_acked.first() == Some(self.first)
    }

    /// Returns the path that last carried `tsn`.
    pub(super) fn path_of(&self, tsn: u64) -> Option<PathId> {
        self.runs.get(self.position(tsn)).filter(|run| run.first <= tsn).map(|run| run.path)
    }

    /// Returns path and packet number of the first chunk if that is in flight.
    pub(super) fn first_in_flight(&self) -> Option<(PathId, PacketNumber)> {
        let run = self.runs.front().filter(|run| run.state() == RunState::InFlight)?;
        Some((run.path, run.packet))
    }

    /// Returns the run of the first lost chunk.
    #[inline]
    pub(super) fn first_lost(&self) -> Option<&Run> {
        self.runs.get(self.position(self.lost.first()?))
    }

    /// Returns the runs, in the order of their TSNs.
    pub(super) fn into_runs(self) -> VecDeque<Run> {
        self.runs
    }

    /// Returns whether anything that this packet carried is still in flight in it.
    #[inline]
    pub(super) fn is_in_flight(&self, path_id: PathId, packet: PacketNumber, tsns: &TsnRanges) -> bool {
        self.of_packet(tsns).any(|run| run.is_in(packet, path_id))
    }

    /// Returns the bytes of chunks that are still in flight in this packet.
    pub(super) fn packet_bytes(&self, path_id: PathId, packet: PacketNumber, tsns: &TsnRanges) -> usize {
        self.of_packet(tsns).filter(|run| run.is_in(packet, path_id)).map(Run::wire_bytes).sum()
    }

    /// Returns the oldest packet of a path with something in flight; `next_packet` if nothing is.
    pub(super) fn oldest_packet(&self, path_id: PathId, next_packet: PacketNumber) -> PacketNumber {
        let packets = self.runs.iter().filter(|run| run.is_on(path_id)).map(|run| run.packet);
        packets.fold(next_packet, |oldest, packet| if oldest.is_after(packet) { packet } else { oldest })
    }

    /// Returns the first run of these TSNs that is in flight in this packet.
    pub(super) fn first_in_packet(
        &self,
        tsns: Range<u64>,
        path_id: PathId,
        packet: PacketNumber,
    ) -> Option<&Run> {
        self.within(tsns).find(|run| run.is_in(packet, path_id))
    }

    /// Returns whether the first chunk is in flight in this packet.
    #[inline]
    pub(super) fn begins_in_packet(&self, path_id: PathId, packet: PacketNumber) -> bool {
        self.runs.front().is_some_and(|run| run.is_in(packet, path_id))
    }

    /// Appends a new run, which leaves in this packet.
    #[inline]
    pub(super) fn send(&mut self, mut run: Run, path: &mut Path, packet: PacketNumber) {
        (run.path, run.packet) = (path.id(), packet);
        self.in_flight.change(&mut run, RunState::InFlight, path);
        self.next = run.end();
        self.runs.push_back(run);
    }

    /// Retransmits the first lost chunks in this packet: as many of a run as take `room_bytes`, at least one. Returns them.
    #[inline]
    pub(super) fn retransmit(
        &mut self,
        room_bytes: usize,
        path: &mut Path,
        packet: PacketNumber,
    ) -> Option<&Run> {
        let at = self.position(self.lost.first()?);
        self.shorten(at, room_bytes);
        let run = self.runs.get_mut(at)?;
        (run.path, run.packet) = (path.id(), packet);
        self.in_flight.change(run, RunState::InFlight, path);
        self.lost.remove_range(run.tsns());
        Some(run)
    }

    /// Sends the run in flight that begins at `tsn` once more, in this packet of the same path: as many of its chunks as take
    /// `room_bytes`, at least one. Returns them.
    pub(super) fn repeat(&mut self, tsn: u64, room_bytes: usize, packet: PacketNumber) -> Option<&Run> {
        let at = self.position(tsn);
        self.shorten(at, room_bytes);
        let run = self.runs.get_mut(at)?;
        run.packet = packet;
        // A peer acknowledges a duplicate, or a chunk that fills a gap, at once without it.
        run.set_immediate();
        Some(run)
    }

    /// Acknowledges every TSN up to `cumulative`. Returns what this frees.
    #[inline]
    pub(super) fn ack_to(
        &mut self,
        cumulative: u64,
        paths: &mut Paths,
        mut acked: impl FnMut(AckedRun, &Path),
    ) -> Taken {
        self.first = cumulative + 1;
        let mut freed = Taken::default();
        while let Some(front) = self.runs.front_mut().filter(|run| run.first < self.first) {
            let rest = (front.end() > self.first).then(|| front.split_off(self.first));
            freed += front.taken();
            let path = &mut paths[front.path];
            let before = self.in_flight.change(front, RunState::Acked, path);
            if before == RunState::GapAcked {
                self.renegable -= u64::from(front.chunks);
            }
            report_acked(front, before, path, &mut acked);
            match rest {
                Some(rest) => *front = rest,
                None => {
                    self.runs.pop_front();
                    self.near = self.near.saturating_sub(1);
                }
            }
        }
        self.lost.remove_below(self.first);
        self.gap_acked.remove_below(self.first);
        freed
    }

    /// Acknowledges the TSNs of gap blocks, which are in rising order. The peer may renege on them if `renegable` is set;
    /// otherwise (NR-SACK) their bytes are freed. Returns what this frees. Only what no block has acknowledged before costs more
    /// than a comparison of ranges.
    #[inline]
    pub(super) fn ack(
        &mut self,
        gaps: impl Iterator<Item = Range<u64>>,
        renegable: bool,
        paths: &mut Paths,
        mut acked: impl FnMut(AckedRun, &Path),
    ) -> Taken {
        let state = if renegable { RunState::GapAcked } else { RunState::NrGapAcked };
        let mut new = Ranges::new();
        self.gap_acked.missing_in(gaps, |range| new.push(range));
        self.split_at_ends(&new);
        let mut freed = Taken::default();
        for range in &new {
            self.near = self.position(range.start);
            for run in self.runs.range_mut(self.near..).take_while(|run| run.first < range.end) {
                let path = &mut paths[run.path];
                let before = self.in_flight.change(run, state, path);
                report_acked(run, before, path, &mut acked);
                if renegable {
                    self.renegable += u64::from(run.chunks);
                } else {
                    freed += run.free();
                }
            }
        }
        self.gap_acked.insert_each(&new);
        if !self.lost.is_empty() {
            self.lost.remove_each(&new);
        }
        freed
    }

    /// Splits runs wherever one of these ranges, in rising order, begins or ends inside.
    fn split_at_ends(&mut self, ranges: &[Range<u64>]) {
        self.split_at_each(ranges.iter().flat_map(|range| [range.start, range.end]));
    }

    /// Splits runs wherever one of these TSNs, in rising order, lies inside. Many splits take one pass over the runs.
    fn split_at_each(&mut self, tsns: impl Iterator<Item = u64> + Clone) {
        let mut near = self.near;
        let runs = &self.runs;
        let is_inside = |tsn: &u64| {
            near = position_near(runs, *tsn, near);
            runs.get(near).is_some_and(|run| run.first < *tsn)
        };
        let inside = tsns.clone().filter(is_inside).take(SINGLE_SPLITS_MAX + 1);
        let inside: SmallVec<[u64; SINGLE_SPLITS_MAX + 1]> = inside.collect();
        if inside.len() <= SINGLE_SPLITS_MAX {
            return inside.into_iter().for_each(|tsn| self.split_at(tsn));
        }
        let at = self.position(inside[0]);
        let mut tsns = tsns.peekable();
        for mut run in self.runs.split_off(at) {
            while let Some(tsn) = tsns.next_if(|tsn| *tsn < run.end()) {
                if tsn > run.first {
                    let rest = run.split_off(tsn);
                    self.runs.push_back(std::mem::replace(&mut run, rest));
                }
            }
            self.runs.push_back(run);
        }
    }

    /// Returns to flight the TSNs before `end` that earlier gap blocks acknowledged, that `gaps` does not contain, and on
    /// which the peer may renege.
    pub(super) fn renege(&mut self, gaps: impl Iterator<Item = Range<u64>>, end: u64, paths: &mut Paths) {
        let mut missing = self.gap_acked.without(gaps);
        missing.retain_mut(|range| {
            range.end = range.end.min(end);
            !range.is_empty()
        });
        self.return_to_flight(&missing, paths);
    }

    /// Returns the first chunk to flight if the peer has reneged on it and not in `gaps`, as [`Outstanding::renege`] does.
    pub(super) fn renege_first(&mut self, mut gaps: impl Iterator<Item = Range<u64>>, paths: &mut Paths) {
        if self.first_is_gap_acked() && gaps.next().is_none_or(|gap| gap.start > self.first) {
            let first = self.first..self.first + 1;
            self.return_to_flight(std::slice::from_ref(&first), paths);
        }
    }

    fn return_to_flight(&mut self, tsns: &[Range<u64>], paths: &mut Paths) {
        self.split_at_ends(tsns);
        let mut removed = Ranges::new();
        for range in tsns {
            self.near = self.position(range.start);
            for run in self.runs.range_mut(self.near..).take_while(|run| run.first < range.end) {
                if run.state() == RunState::GapAcked {
                    self.renegable -= u64::from(run.chunks);
                    let path = &mut paths[run.path];
                    self.in_flight.change(run, RunState::InFlight, path);
                    tsn::append(&mut removed, run.tsns());
                }
            }
        }
        self.gap_acked.remove_each(&removed);
    }

    /// Declares one chunk lost if it is in flight.
    pub(super) fn nack(&mut self, tsn: u64, paths: &mut Paths) {
        if tsn < self.first {
            return;
        }
        self.split_at(tsn);
        self.split_at(tsn + 1);
        let at = self.position(tsn);
        if let Some(run) = self.runs.get(at).filter(|run| run.state() == RunState::InFlight) {
            let path = &mut paths[run.path];
            self.lose(at, path, &mut Nacked::default());
        }
    }

    /// Declares the chunks still in flight in this packet lost.
    #[inline]
    pub(super) fn nack_packet(&mut self, path: &mut Path, packet: PacketNumber, tsns: &TsnRanges) -> Nacked {
        let mut nacked = Nacked::default();
        for range in tsns {
            self.near = self.position(range.start);
            for at in self.near..self.runs.len() {
                if self.runs[at].first >= range.end {
                    break;
                }
                if self.runs[at].is_in(packet, path.id()) {
                    self.lose(at, path, &mut nacked);
                }
            }
        }
        nacked
    }

    /// Declares the chunks in front of all others lost that are in flight in this packet.
    pub(super) fn nack_leading(&mut self, path: &mut Path, packet: PacketNumber) {
        for at in 0..self.runs.len() {
            if !self.runs[at].is_in(packet, path.id()) {
                break;
            }
            self.lose(at, path, &mut Nacked::default());
        }
    }

    /// Declares all chunks in flight on a path lost.
    pub(super) fn nack_path(&mut self, path: &mut Path) -> Nacked {
        let mut nacked = Nacked::default();
        for at in 0..self.runs.len() {
            if self.runs[at].is_on(path.id()) {
                self.lose(at, path, &mut nacked);
            }
        }
        nacked
    }

    /// Returns to flight the chunks of a path that a timeout declared lost and that were last sent in one of these packets.
    pub(super) fn restore(&mut self, path: &mut Path, packets: Range<PacketNumber>) {
        let id = path.id();
        let is_among = |packet| !packets.start.is_after(packet) && packets.end.is_after(packet);
        let lost = self.runs.iter_mut().filter(|run| run.state() == RunState::Lost);
        for run in lost.filter(|run| run.path == id && is_among(run.packet)) {
            self.in_flight.change(run, RunState::InFlight, path);
            self.lost.remove_range(run.tsns());
        }
    }

    /// Moves a run in flight to those that are lost.
    #[inline]
    fn lose(&mut self, at: usize, path: &mut Path, nacked: &mut Nacked) {
        let run = &mut self.runs[at];
        self.in_flight.change(run, RunState::Lost, path);
        self.lost.insert_range(run.tsns(), |_| {});
        nacked.add(run);
    }

    /// Splits the run in which `tsn` lies, unless it begins there.
    fn split_at(&mut self, tsn: u64) {
        self.near = self.position(tsn);
        if let Some(run) = self.runs.get_mut(self.near).filter(|run| run.first < tsn) {
            let rest = run.split_off(tsn);
            self.runs.insert(self.near + 1, rest);
        }
    }

    /// Splits off what takes more than `room_bytes`. One chunk stays in any case.
    #[inline]
    fn shorten(&mut self, at: usize, room_bytes: usize) {
        let Some(run) = self.runs.get(at) else { return };
        let fitting = run.chunks_within(room_bytes).max(1);
        if fitting < run.chunks {
            self.split_at(run.first + u64::from(fitting));
        }
    }

    /// Returns the index of the run in which `tsn` lies, or of the first behind it.
    #[inline]
    fn position(&self, tsn: u64) -> usize {
        position_near(&self.runs, tsn, self.near)
    }

    /// Returns the runs that lie within these TSNs at least in part.
    fn within(&self, tsns: Range<u64>) -> impl Iterator<Item = &Run> {
        let from = self.position(tsns.start);
        self.runs.range(from..).take_while(move |run| run.first < tsns.end)
    }

    /// Returns those of a packet's runs that are still outstanding.
    #[inline]
    fn of_packet(&self, tsns: &TsnRanges) -> impl Iterator<Item = &Run> {
        tsns.iter().flat_map(|range| self.within(range.clone()))
    }

    /// Compares every total with a recount; for tests.
    #[cfg(feature = "testing")]
    pub(super) fn assert_totals(&self, paths: &Paths) {
        let mut next = self.first;
        for run in &self.runs {
            assert_eq!(run.first, next);
            next = run.end();
        }
        assert_eq!(next, self.next);
        let in_flight = |run: &&Run| run.state() == RunState::InFlight;
        let payload: usize = self.runs.iter().filter(in_flight).map(|run| run.payload_bytes).sum();
        assert_eq!(payload, self.in_flight.payload_bytes());
        for path in paths {
            let runs = self.runs.iter().filter(|run| run.is_on(path.id()));
            assert_eq!(runs.map(Run::wire_bytes).sum::<usize>(), path.in_flight_bytes());
        }
        let count = |state| -> u64 {
            self.runs.iter().filter(|run| run.state() == state).map(|run| u64::from(run.chunks)).sum()
        };
        assert_eq!(count(RunState::Lost), self.lost.count());
        assert_eq!(count(RunState::GapAcked), self.renegable);
        assert_eq!(count(RunState::GapAcked) + count(RunState::NrGapAcked), self.gap_acked.count());
    }

    /// Returns what all chunks take; for tests.
    #[cfg(feature = "testing")]
    pub(super) fn taken(&self) -> Taken {
        let mut taken = Taken::default();
        self.runs.iter().for_each(|run| taken += run.taken());
        taken
    }
}

/// Returns the index of the run in which `tsn` lies, or of the first behind it, searched for from the index `near` on.
#[inline]
fn position_near(runs: &VecDeque<Run>, tsn: u64, near: usize) -> usize {
    partition_near(runs.len(), near, |at| runs[at].end() <= tsn)
}

/// Reports a run as acknowledged, unless a gap block did so before.
#[inline]
fn report_acked(run: &Run, before: RunState, path: &Path, acked: &mut impl FnMut(AckedRun, &Path)) {
    if matches!(before, RunState::GapAcked | RunState::NrGapAcked) {
        return;
    }
    let run = AckedRun {
        path_id: run.path,
        packet: run.packet,
        tsns: run.tsns(),
        wire_bytes: run.wire_bytes(),
        was_lost: before == RunState::Lost,
    };
    acked(run, path);
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sctp_message::SendInfo;
    use sctp_wire::Ssn;
    use sctp_wire::chunk::DataHeader;

    use super::super::message::Message;
    use super::super::run::tests::run_of;
    use super::*;
    use crate::config::AssociationConfig;
    use crate::path_hints::PathHints;

    const FIRST: PathId = PathId(0);
    const SECOND: PathId = PathId(1);

    fn two_paths() -> Paths {
        let remote = SocketAddr::from(([192, 0, 2, 1], 9899));
        let path = || Path::new(remote, None, PathHints::default(), &AssociationConfig::default());
        Paths::new(vec![path(), path()])
    }

    /// Returns ten runs of ten chunks of one byte, with TSNs from 100 on, each in a packet of its own on the first of two paths.
    fn ten_runs() -> (Outstanding, Paths) {
        let (mut outstanding, mut paths) = (Outstanding::new(100), two_paths());
        for packet in 0..10 {
            let run = Run { first: 100 + 10 * u64::from(packet), ..run_of(&[1; 10]) };
            outstanding.send(run, &mut paths[FIRST], PacketNumber::new(packet));
        }
        (outstanding, paths)
    }

    /// Returns the payload in flight, and the bytes in flight on each path.
    fn in_flight(outstanding: &Outstanding, paths: &Paths) -> (usize, usize, usize) {
        let bytes = |id: PathId| paths[id].in_flight_bytes();
        (outstanding.in_flight_payload_bytes(), bytes(FIRST), bytes(SECOND))
    }

    fn starts(outstanding: &Outstanding) -> Vec<u64> {
        outstanding.runs.iter().map(|run| run.first).collect()
    }

    #[test]
    fn runs_are_split_where_gap_blocks_begin_and_end_and_nowhere_else() {
        for edges in [
            vec![],
            vec![100, 110, 200],
            vec![103],
            vec![111, 112, 115, 120, 125, 199],
            (100..140).collect(),
            (100..200).collect(),
            // Where one block ends and the next begins.
            (90..150).flat_map(|tsn| [tsn, tsn]).collect(),
            // Before the first and behind the last.
            vec![50, 155, 250],
        ] {
            let (mut at_once, paths) = ten_runs();
            at_once.split_at_each(edges.iter().copied());
            let (mut one_by_one, _) = ten_runs();
            edges.into_iter().for_each(|edge| one_by_one.split_at(edge));
            assert_eq!(starts(&at_once), starts(&one_by_one));
            #[cfg(feature = "testing")]
            at_once.assert_totals(&paths);
        }
    }

    #[test]
    fn a_gap_block_inside_a_run_acknowledges_its_chunks_alone() {
        let (mut outstanding, mut paths) = ten_runs();
        let mut acked = Vec::new();
        outstanding.ack(std::iter::once(113..117), true, &mut paths, |run, _| {
            acked.push((run.packet, run.tsns, run.wire_bytes));
        });
        assert_eq!(acked, [(PacketNumber::new(1), 113..117, 80)]);
        let nacked = outstanding.nack_packet(
            &mut paths[FIRST],
            PacketNumber::new(1),
            &std::iter::once(110..120).collect(),
        );
        assert_eq!((&nacked.tsns[..], nacked.wire_bytes), (&[110..113, 117..120][..], 120));
        assert_eq!(in_flight(&outstanding, &paths), (90, 90 * 20, 0));
        assert_eq!(outstanding.first_lost().map(Run::tsns), Some(110..113));
    }

    #[test]
    fn the_cumulative_tsn_may_end_inside_a_run() {
        let (mut outstanding, mut paths) = ten_runs();
        let mut chunks = 0;
        outstanding.ack_to(114, &mut paths, |run, _| chunks += run.tsns.end - run.tsns.start);
        assert_eq!((chunks, outstanding.first_tsn(), outstanding.chunks()), (15, 115, 85));
        assert_eq!(in_flight(&outstanding, &paths), (85, 85 * 20, 0));
        assert_eq!(outstanding.runs[0].tsns(), 115..120);
    }

    /// Returns the TSNs of a packet.
    fn packet_of(tsns: Range<u64>) -> TsnRanges {
        std::iter::once(tsns).collect()
    }

    fn ack_gap(outstanding: &mut Outstanding, paths: &mut Paths, gap: Range<u64>, renegable: bool) {
        outstanding.ack(std::iter::once(gap), renegable, paths, |_, _| {});
        #[cfg(feature = "testing")]
        outstanding.assert_totals(paths);
    }

    #[test]
    fn chunks_are_found_by_their_tsn_and_by_the_packet_that_last_carried_them() {
        let (mut outstanding, mut paths) = ten_runs();
        let number = PacketNumber::new;
        assert_eq!(
            [99, 100, 199, 200].map(|tsn| outstanding.path_of(tsn)),
            [None, Some(FIRST), Some(FIRST), None]
        );
        let found = |outstanding: &Outstanding, tsns, path, packet| {
            outstanding.first_in_packet(tsns, path, number(packet)).map(Run::tsns)
        };
        assert_eq!(found(&outstanding, 100..200, FIRST, 3), Some(130..140));
        assert_eq!(found(&outstanding, 100..200, SECOND, 3), None);
        assert_eq!(found(&outstanding, 100..130, FIRST, 3), None);
        assert_eq!(outstanding.first_in_flight(), Some((FIRST, number(0))));
        assert!(outstanding.begins_in_packet(FIRST, number(0)));
        assert!(!outstanding.begins_in_packet(FIRST, number(1)));
        assert_eq!(outstanding.packet_bytes(FIRST, number(1), &packet_of(100..130)), 10 * 20);
        assert_eq!(outstanding.oldest_packet(FIRST, number(10)), number(0));

        outstanding.nack_packet(&mut paths[FIRST], number(0), &packet_of(100..110));
        assert_eq!(outstanding.first_in_flight(), None);
        assert!(!outstanding.begins_in_packet(FIRST, number(0)));
        assert_eq!(found(&outstanding, 100..110, FIRST, 0), None);
        outstanding.retransmit(1000, &mut paths[FIRST], number(10));
        assert_eq!(outstanding.oldest_packet(FIRST, number(11)), number(1));
        assert_eq!(outstanding.oldest_packet(SECOND, number(4)), number(4), "nothing is in flight there");
        // It is in flight in another packet by now.
        let again = outstanding.nack_packet(&mut paths[FIRST], number(0), &packet_of(100..110));
        assert_eq!(again, Nacked::default());
    }

    #[test]
    fn what_is_sent_once_more_fits_its_packet_and_asks_for_a_sack() {
        let (mut outstanding, _paths) = ten_runs();
        let is_immediate = |run: &Run| DataHeader::read(&run.head).flags.immediate;
        let number = PacketNumber::new(10);
        let run = outstanding.repeat(110, 50, number).expect("it is in flight");
        assert_eq!((run.tsns(), run.packet, is_immediate(run)), (110..112, number, false));
        let run = outstanding.repeat(120, 20, number).expect("it is in flight");
        assert_eq!((run.tsns(), run.packet, is_immediate(run)), (120..121, number, true));
    }

    #[test]
    fn a_chunk_is_reported_as_acknowledged_once_and_is_no_longer_lost() {
        for renegable in [true, false] {
            let (mut outstanding, mut paths) = ten_runs();
            outstanding.nack_path(&mut paths[FIRST]);
            ack_gap(&mut outstanding, &mut paths, 100..110, renegable);
            assert_eq!(outstanding.first_lost().map(Run::tsns), Some(110..120));
            let mut reported = Vec::new();
            outstanding.ack_to(119, &mut paths, |run, _| reported.push((run.tsns, run.was_lost)));
            assert_eq!(reported, [(110..120, true)], "{renegable}");
        }
    }

    #[test]
    fn only_what_a_gap_block_has_acknowledged_for_now_can_be_taken_back() {
        let (mut outstanding, mut paths) = ten_runs();
        assert!(!outstanding.is_renegable());
        ack_gap(&mut outstanding, &mut paths, 150..160, false);
        assert!(!outstanding.is_renegable());
        outstanding.renege(std::iter::empty(), 200, &mut paths);
        assert_eq!((outstanding.gap_acked(), in_flight(&outstanding, &paths).0), (10, 90));
        for gap in [110..120, 130..140, 170..180] {
            ack_gap(&mut outstanding, &mut paths, gap, true);
        }
        assert!(outstanding.is_renegable());
        // The block at 130 is still reported, and nothing is known of what lies behind 165.
        let before = starts(&outstanding);
        outstanding.renege(std::iter::once(130..140), 165, &mut paths);
        assert_eq!((outstanding.gap_acked(), in_flight(&outstanding, &paths).0), (30, 70));
        assert_eq!(starts(&outstanding), before);
        outstanding.renege(std::iter::empty(), 200, &mut paths);
        assert_eq!((outstanding.gap_acked(), outstanding.is_renegable()), (10, false));
        #[cfg(feature = "testing")]
        outstanding.assert_totals(&paths);
    }

    #[test]
    fn the_first_chunk_is_taken_back_if_no_gap_block_reports_it() {
        let in_flight_after = |acked: Range<u64>, gap: Option<Range<u64>>| {
            let (mut outstanding, mut paths) = ten_runs();
            ack_gap(&mut outstanding, &mut paths, acked, true);
            let is_first = outstanding.first_is_gap_acked();
            outstanding.renege_first(gap.into_iter(), &mut paths);
            (is_first, in_flight(&outstanding, &paths).0, starts(&outstanding)[1])
        };
        assert_eq!(in_flight_after(100..110, None), (true, 91, 101));
        assert_eq!(in_flight_after(100..110, Some(101..110)), (true, 91, 101));
        assert_eq!(in_flight_after(100..110, Some(100..110)), (true, 90, 110));
        assert_eq!(in_flight_after(110..120, None), (false, 90, 110));
    }

    #[test]
    fn only_the_named_chunk_is_declared_lost_and_only_in_flight() {
        let (mut outstanding, mut paths) = ten_runs();
        for tsn in [99, 200] {
            outstanding.nack(tsn, &mut paths);
        }
        ack_gap(&mut outstanding, &mut paths, 105..106, true);
        outstanding.nack(105, &mut paths);
        assert!(!outstanding.has_lost());
        outstanding.nack(103, &mut paths);
        assert_eq!(outstanding.first_lost().map(Run::tsns), Some(103..104));
        assert_eq!(in_flight(&outstanding, &paths).0, 98);
        outstanding.nack(100, &mut paths);
        assert_eq!(outstanding.first_lost().map(Run::tsns), Some(100..101));
    }

    #[test]
    fn the_chunks_in_front_are_declared_lost_with_their_packet_alone() {
        let (mut outstanding, mut paths) = ten_runs();
        outstanding.nack_leading(&mut paths[FIRST], PacketNumber::new(1));
        assert!(!outstanding.has_lost(), "others are in front of that packet");
        outstanding.nack_leading(&mut paths[FIRST], PacketNumber::new(0));
        assert_eq!(in_flight(&outstanding, &paths).0, 90);
    }

    #[test]
    fn a_path_gets_back_what_it_lost_in_these_packets_and_no_other_path_did() {
        let (mut outstanding, mut paths) = ten_runs();
        outstanding.nack_packet(&mut paths[FIRST], PacketNumber::new(0), &packet_of(100..110));
        outstanding.retransmit(1000, &mut paths[SECOND], PacketNumber::new(4));
        outstanding.nack_path(&mut paths[SECOND]);
        outstanding.nack_path(&mut paths[FIRST]);
        outstanding.restore(&mut paths[FIRST], PacketNumber::new(4)..PacketNumber::new(6));
        assert_eq!(in_flight(&outstanding, &paths), (20, 20 * 20, 0));
        assert_eq!(outstanding.first_in_flight(), None, "the second path has lost the first run");
        #[cfg(feature = "testing")]
        outstanding.assert_totals(&paths);
    }

    /// Returns an owned message of 3,000 bytes as three runs, with TSNs from 100 on.
    fn three_fragments() -> (Outstanding, Paths) {
        let (mut outstanding, mut paths) = (Outstanding::new(100), two_paths());
        let mut rest = Message::new(vec![7; 3000].into(), &SendInfo::default(), true);
        rest.end(&SendInfo::default());
        let fragments = [rest.split_front(1000), rest.split_front(1000), rest];
        for (tsn, fragment) in (100..).zip(fragments) {
            outstanding.send(fragment.into_run(tsn, Ssn(0)), &mut paths[FIRST], PacketNumber::new(0));
        }
        (outstanding, paths)
    }

    #[test]
    fn owned_memory_is_charged_until_no_fragment_refers_to_it() {
        let nr_acked = |tsn: u64| {
            let (mut outstanding, mut paths) = three_fragments();
            let freed = outstanding.ack(std::iter::once(tsn..tsn + 1), false, &mut paths, |_, _| {});
            assert!(freed.buffered_bytes >= 1000);
            let owned = [tsn, 101, 102].map(|to| match to {
                101.. => outstanding.ack_to(to, &mut paths, |_, _| {}).owned_bytes,
                _ => 0,
            });
            (freed.owned_bytes, owned)
        };
        assert_eq!(nr_acked(100), (0, [0, 0, 3000]));
        assert_eq!(nr_acked(101), (0, [0, 0, 3000]));
        assert_eq!(nr_acked(102).0, 0, "the others keep it");
        let (mut outstanding, mut paths) = (Outstanding::new(100), two_paths());
        let mut whole = Message::new(vec![7; 1000].into(), &SendInfo::default(), true);
        whole.end(&SendInfo::default());
        outstanding.send(whole.into_run(100, Ssn(0)), &mut paths[FIRST], PacketNumber::new(0));
        let freed = outstanding.ack(std::iter::once(100..101), false, &mut paths, |_, _| {});
        assert_eq!(freed.owned_bytes, 1000, "nothing else keeps it");
        assert_eq!(outstanding.ack_to(100, &mut paths, |_, _| {}), Taken::default());
    }

    #[test]
    fn a_retransmission_takes_what_fits_the_packet() {
        let (mut outstanding, mut paths) = ten_runs();
        outstanding.nack_path(&mut paths[FIRST]);
        assert_eq!(in_flight(&outstanding, &paths), (0, 0, 0));
        let again = outstanding
            .retransmit(50, &mut paths[SECOND], PacketNumber::new(7))
            .map(|run| (run.tsns(), run.path, run.packet));
        assert_eq!(again, Some((100..102, SECOND, PacketNumber::new(7))));
        assert_eq!(outstanding.first_lost().map(Run::tsns), Some(102..110));
        // A chunk that is longer than the packet goes alone.
        assert_eq!(
            outstanding.retransmit(5, &mut paths[SECOND], PacketNumber::new(8)).map(Run::tsns),
            Some(102..103)
        );
        assert_eq!(in_flight(&outstanding, &paths), (3, 0, 60));
    }

    #[test]
    fn what_the_peer_takes_back_and_what_was_not_lost_is_in_flight_again() {
        let (mut outstanding, mut paths) = ten_runs();
        outstanding.ack(std::iter::once(150..170), true, &mut paths, |_, _| {});
        assert_eq!(in_flight(&outstanding, &paths), (80, 80 * 20, 0));
        outstanding.renege(std::iter::empty(), 160, &mut paths);
        assert_eq!(in_flight(&outstanding, &paths), (90, 90 * 20, 0));
        outstanding.nack(103, &mut paths);
        outstanding.nack_leading(&mut paths[FIRST], PacketNumber::new(0));
        assert_eq!(in_flight(&outstanding, &paths), (86, 86 * 20, 0));
        outstanding.restore(&mut paths[FIRST], PacketNumber::new(1)..PacketNumber::new(2));
        assert_eq!(in_flight(&outstanding, &paths), (86, 86 * 20, 0), "they left in packet 0");
        outstanding.restore(&mut paths[FIRST], PacketNumber::new(0)..PacketNumber::new(1));
        assert_eq!(in_flight(&outstanding, &paths), (90, 90 * 20, 0));
    }
}
