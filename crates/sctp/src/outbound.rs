//! What is to be sent and what is outstanding.
//!
//! Messages wait in `pending` without a TSN. Building a packet cuts them into chunks, gives TSNs and
//! moves them to `outstanding`, a ring indexed by TSN, where they stay until the cumulative TSN passes
//! them. All totals are counters that are kept on every change of state, so handling a SACK costs what
//! it changes and never what is outstanding.

use std::collections::VecDeque;

use bytes::Bytes;
use sctp_wire::chunk::{DATA_HEADER_BYTES, Data, DataFlags};
use sctp_wire::{Ppid, Ssn, StreamId, Tsn};
use smallvec::{SmallVec, smallvec};

use crate::config::{AssociationConfig, MESSAGE_OVERHEAD_BYTES};
use crate::congestion::{Acked, Signal};
use crate::error::SendError;
use crate::event::SendInfo;
use crate::path::{Path, PathState, SentPacket, after};
use crate::peer_window::PeerWindow;
use crate::range_set::RangeSet;
use crate::statistics::Statistics;
use crate::time::Time;
use crate::transmit::TransmitBuffer;
use crate::tsn;

/// Most chunks that may be outstanding. RFC 9260 §6.1 allows 2^16 - 1 ordered messages a stream in a window, and gap
/// blocks reach as far (§3.3.4).
const OUTSTANDING_CHUNKS_MAX: usize = u16::MAX as usize;

/// The end of a packet is filled with a part of the next message if at least this much of it fits.
const FRAGMENT_BYTES_MIN: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChunkState {
    InFlight,
    /// Reported by a gap block; the peer may still change its mind (RFC 9260 §6.2).
    GapAcked,
    /// To be sent again.
    Lost,
}

/// A message, or the part of one that one DATA chunk carries.
#[derive(Debug)]
struct Chunk {
    payload: Bytes,
    ppid: u32,
    /// Number of the packet that it was last sent in, on its path.
    packet: u32,
    stream: u16,
    ssn: u16,
    flags: DataFlags,
    state: ChunkState,
    path: u8,
    /// Whether the overhead of its message is charged to it: the last chunk of each send.
    charged: bool,
}

impl Chunk {
    #[inline]
    fn wire_bytes(&self) -> usize {
        wire_bytes(self.payload.len())
    }

    #[inline]
    fn buffered_bytes(&self) -> usize {
        self.payload.len() + if self.charged { MESSAGE_OVERHEAD_BYTES } else { 0 }
    }
}

#[inline]
fn wire_bytes(payload_bytes: usize) -> usize {
    DATA_HEADER_BYTES + payload_bytes.next_multiple_of(4)
}

/// A record that was begun with `more` and not ended.
#[derive(Debug, Clone, Copy)]
struct OpenRecord {
    stream: u16,
    ssn: u16,
    unordered: bool,
}

/// What a SACK (or SHUTDOWN, which reports no gaps) says. Gaps are first and last TSN as distances from
/// `cum_tsn`, as the peer gave them.
#[derive(Debug, Clone)]
pub(crate) struct Report<G> {
    pub(crate) cum_tsn: Tsn,
    pub(crate) window_bytes: usize,
    pub(crate) gaps: Option<G>,
}

/// What a SACK brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SackOutcome {
    /// Paths that had been given up and carried what was acknowledged.
    pub(crate) reactivated: SmallVec<[usize; 2]>,
    /// Something new was acknowledged, so the peer is alive.
    pub(crate) progress: bool,
    /// The send buffer fell to half or less while somebody waited for that.
    pub(crate) writable: bool,
}

#[derive(Debug, Default, Clone)]
struct PathAcked {
    bytes: usize,
    newest_packet: Option<u32>,
    in_flight_before_bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Outbound {
    pending: VecDeque<Chunk>,
    /// Wire bytes of `pending` as if no message had to be cut.
    pending_wire_bytes: usize,
    /// Chunks with TSNs from `first` on.
    outstanding: VecDeque<Chunk>,
    /// TSN of the first outstanding chunk (unwrapped); the one before it is the cumulative TSN acknowledged.
    first: u64,
    lost: RangeSet,
    gap_acked: RangeSet,
    /// Payload of chunks in flight.
    in_flight_payload_bytes: usize,
    /// Payload and overhead of everything not yet acknowledged.
    buffered_bytes: usize,
    buffer_bytes: usize,
    message_bytes_max: usize,
    peer_window: PeerWindow,
    streams: u16,
    next_ssn: Vec<u16>,
    open_record: Option<OpenRecord>,
    writable_wanted: bool,
    /// No more is to come: what is sent now is waited for.
    closing: bool,
}

impl Outbound {
    pub(crate) fn new(initial: Tsn, config: &AssociationConfig) -> Self {
        Outbound {
            pending: VecDeque::new(),
            pending_wire_bytes: 0,
            outstanding: VecDeque::new(),
            first: tsn::start(initial),
            lost: RangeSet::new(),
            gap_acked: RangeSet::new(),
            in_flight_payload_bytes: 0,
            buffered_bytes: 0,
            buffer_bytes: config.send_buffer_bytes,
            message_bytes_max: config.message_bytes_max,
            peer_window: PeerWindow::closed(),
            streams: config.streams_out,
            next_ssn: Vec::new(),
            open_record: None,
            writable_wanted: false,
            closing: false,
        }
    }

    /// The user sends no more.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Takes what the peer said in its INIT or INIT ACK.
    pub(crate) fn set_peer(&mut self, window_bytes: usize, streams: u16) {
        self.peer_window.update(window_bytes, 0);
        self.streams = streams;
    }

    pub(crate) fn streams(&self) -> u16 {
        self.streams
    }

    pub(crate) fn peer_window_bytes(&self) -> usize {
        self.peer_window.bytes()
    }

    /// When a closed window is to be probed.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        self.peer_window.probe_at()
    }

    /// The time of [`Outbound::probe_at`] has come.
    pub(crate) fn probe_timer_expired(&mut self) {
        self.peer_window.probe_timer_expired();
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    pub(crate) fn in_flight_payload_bytes(&self) -> usize {
        self.in_flight_payload_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.outstanding.is_empty()
    }

    /// Whether anything waits to be sent, for the first time or again.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.pending.is_empty() || !self.lost.is_empty()
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    #[inline]
    pub(crate) fn pending_wire_bytes(&self) -> usize {
        self.pending_wire_bytes
    }

    /// Whether a message of `bytes` fits the buffer. A message longer than the buffer fits when it is empty.
    #[inline]
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let fits = self.buffered_bytes == 0
            || self.buffered_bytes + bytes + MESSAGE_OVERHEAD_BYTES <= self.buffer_bytes;
        self.writable_wanted |= !fits;
        fits
    }

    /// Whether a message like this can be sent at all.
    #[inline]
    pub(crate) fn check(&self, info: &SendInfo, bytes: usize) -> Result<(), SendError> {
        if info.stream >= self.streams {
            return Err(SendError::NoSuchStream { stream: info.stream, streams: self.streams });
        }
        if bytes > self.message_bytes_max {
            return Err(SendError::TooLong { bytes, limit_bytes: self.message_bytes_max });
        }
        if bytes == 0 {
            return Err(SendError::Empty);
        }
        match self.open_record {
            // The fragments of a record have consecutive TSNs (RFC 9260 §6.9), so nothing fits in between.
            Some(open) if open.stream != info.stream || open.unordered != info.unordered => {
                Err(SendError::RecordOpen { stream: open.stream })
            }
            _ => Ok(()),
        }
    }

    /// Queues one message, given as the blocks that it consists of.
    #[inline]
    pub(crate) fn send(
        &mut self,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), SendError> {
        self.check(info, bytes)?;
        let (mut beginning, ssn) = match self.open_record {
            None => (true, self.take_ssn(info)),
            Some(open) => (false, open.ssn),
        };
        self.open_record =
            info.more.then_some(OpenRecord { stream: info.stream, ssn, unordered: info.unordered });
        for payload in blocks {
            if payload.is_empty() {
                continue;
            }
            self.pending_wire_bytes += wire_bytes(payload.len());
            self.pending.push_back(Chunk {
                payload,
                ppid: info.ppid,
                packet: 0,
                stream: info.stream,
                ssn,
                flags: DataFlags { immediate: false, unordered: info.unordered, beginning, ending: false },
                state: ChunkState::InFlight,
                path: 0,
                charged: false,
            });
            beginning = false;
        }
        if let Some(last) = self.pending.back_mut() {
            last.flags.ending = !info.more;
            last.flags.immediate = info.immediate;
            last.charged = true;
        }
        self.buffered_bytes += bytes + MESSAGE_OVERHEAD_BYTES;
        Ok(())
    }

    #[inline]
    fn take_ssn(&mut self, info: &SendInfo) -> u16 {
        if info.unordered {
            return 0;
        }
        let at = usize::from(info.stream);
        if at >= self.next_ssn.len() {
            self.next_ssn.resize(at + 1, 0);
        }
        let ssn = self.next_ssn[at];
        self.next_ssn[at] = ssn.wrapping_add(1);
        ssn
    }

    /// Whether a packet with DATA may leave on `path` now (RFC 9260 §6.1 A to C).
    pub(crate) fn may_send(&self, path: &Path) -> bool {
        if let Some(tsn) = self.lost.first() {
            return path.may_retransmit(self.outstanding[(tsn - self.first) as usize].wire_bytes());
        }
        path.may_send_packet()
            && self.outstanding.len() < OUTSTANDING_CHUNKS_MAX
            && self.pending.front().is_some_and(|front| {
                let most = path.mtu_bytes - sctp_wire::packet::HEADER_BYTES - DATA_HEADER_BYTES;
                let idle = self.in_flight_payload_bytes == 0;
                self.peer_window.room(front.payload.len().min(most), idle) > 0
            })
    }

    /// Fills the packet being built up to `limit_bytes` with DATA chunks: first what was lost, then what is
    /// new. Says whether it put any.
    pub(crate) fn fill_packet(
        &mut self,
        now: Time,
        path: &mut Path,
        path_id: usize,
        limit_bytes: usize,
        buffer: &mut TransmitBuffer,
        statistics: &mut Statistics,
    ) -> bool {
        let number = path.next_packet();
        let before = path.in_flight_bytes;
        if before == 0 {
            path.adjust_idle(now);
        }
        let repeats_first = self.lost.first() == Some(self.first);
        let mut tsns: SmallVec<[std::ops::Range<u64>; 1]> = SmallVec::new();
        self.write_lost(path, path_id, number, limit_bytes, buffer, &mut tsns, statistics);
        let first_transmission = tsns.is_empty();
        if self.lost.is_empty() && (first_transmission || path.may_send_packet()) {
            let start = self.first + self.outstanding.len() as u64;
            self.write_new(path, path_id, number, limit_bytes, buffer);
            let end = self.first + self.outstanding.len() as u64;
            if start < end {
                statistics.data_chunks_sent += end - start;
                tsns.push(start..end);
            }
        }
        if path.in_flight_bytes == before {
            return false;
        }
        path.sent.push_back(SentPacket { sent_at: now, tsns, first_transmission });
        path.last_sent_at = now;
        path.retransmits_at_once &= first_transmission;
        // RFC 9260 §6.1: started if it does not run, started anew if the earliest chunk is sent again.
        if path.t3.is_none() || (repeats_first && !first_transmission) {
            path.t3 = Some(now + path.rto.current());
        }
        true
    }

    #[expect(clippy::too_many_arguments, reason = "the packet under construction is spread over its owners")]
    fn write_lost(
        &mut self,
        path: &mut Path,
        path_id: usize,
        number: u32,
        limit_bytes: usize,
        buffer: &mut TransmitBuffer,
        tsns: &mut SmallVec<[std::ops::Range<u64>; 1]>,
        statistics: &mut Statistics,
    ) {
        while let Some(tsn) = self.lost.first() {
            let chunk = &mut self.outstanding[(tsn - self.first) as usize];
            let wire = chunk.wire_bytes();
            let payload = chunk.payload.len();
            // A chunk longer than a packet (the MTU shrank) goes alone, and the network layer cuts it.
            let alone = buffer.is_first_packet() && buffer.packet_bytes() == sctp_wire::packet::HEADER_BYTES;
            if buffer.packet_bytes() + wire > limit_bytes && !alone {
                break;
            }
            self.lost.pop_first();
            chunk.state = ChunkState::InFlight;
            chunk.path = path_id as u8;
            chunk.packet = number;
            write_chunk(chunk, tsn, buffer);
            path.in_flight_bytes += wire;
            self.in_flight_payload_bytes += payload;
            self.peer_window.take_again(payload);
            statistics.data_chunks_retransmitted += 1;
            match tsns.last_mut() {
                Some(last) if last.end == tsn => last.end += 1,
                _ => tsns.push(tsn..tsn + 1),
            }
        }
    }

    fn write_new(
        &mut self,
        path: &mut Path,
        path_id: usize,
        number: u32,
        limit_bytes: usize,
        buffer: &mut TransmitBuffer,
    ) {
        let before = self.in_flight_payload_bytes;
        let mut tsn = self.first + self.outstanding.len() as u64;
        let mut space = limit_bytes.saturating_sub(buffer.packet_bytes());
        while let Some(front) = self.pending.front_mut() {
            let whole = wire_bytes(front.payload.len());
            let fits = whole <= space;
            if !fits && space < DATA_HEADER_BYTES + FRAGMENT_BYTES_MIN {
                break;
            }
            let most = if fits { front.payload.len() } else { (space - DATA_HEADER_BYTES) & !3 };
            let payload = self.peer_window.room(most, self.in_flight_payload_bytes == 0);
            if payload == 0 || self.outstanding.len() >= OUTSTANDING_CHUNKS_MAX {
                break;
            }
            let cut = payload < front.payload.len();
            let mut chunk = if cut {
                let rest = wire_bytes(front.payload.len() - payload);
                self.pending_wire_bytes = self.pending_wire_bytes + rest - whole;
                let beginning = std::mem::replace(&mut front.flags.beginning, false);
                Chunk {
                    payload: front.payload.split_to(payload),
                    flags: DataFlags { beginning, ending: false, immediate: false, ..front.flags },
                    charged: false,
                    ..*front
                }
            } else {
                self.pending_wire_bytes -= whole;
                match self.pending.pop_front() {
                    Some(chunk) => chunk,
                    None => break,
                }
            };
            chunk.path = path_id as u8;
            chunk.packet = number;
            // RFC 7053 §4: the last chunk for now asks for its SACK if ours is not a lone request. In an open
            // record it also says that the reader need not wait for more.
            let tail = !cut && self.pending.is_empty();
            chunk.flags.immediate |= tail && (self.closing || before > 0 || !chunk.flags.ending);
            write_chunk(&chunk, tsn, buffer);
            let wire = chunk.wire_bytes();
            space -= wire;
            path.in_flight_bytes += wire;
            self.in_flight_payload_bytes += payload;
            self.peer_window.take(tsn, payload);
            tsn += 1;
            self.outstanding.push_back(chunk);
        }
    }

    /// Takes a SACK (RFC 9260 §6.2.1). An error names what the peer did wrong.
    pub(crate) fn handle_sack<G: Iterator<Item = (u16, u16)> + Clone>(
        &mut self,
        now: Time,
        sack: &Report<G>,
        paths: &mut [Path],
        config: &AssociationConfig,
        statistics: &mut Statistics,
    ) -> Result<SackOutcome, &'static str> {
        let cumulative = tsn::unwrap(self.first - 1, sack.cum_tsn);
        if cumulative + 1 < self.first {
            return Ok(SackOutcome::default());
        }
        let next = self.first + self.outstanding.len() as u64;
        if cumulative >= next {
            return Err("a SACK for data that was never sent");
        }
        let mut acked: SmallVec<[PathAcked; 2]> = smallvec![PathAcked::default(); paths.len()];
        for (acked, path) in acked.iter_mut().zip(paths.iter()) {
            acked.in_flight_before_bytes = path.in_flight_bytes;
        }
        let advanced = cumulative + 1 > self.first;
        if advanced {
            self.acknowledge_to(cumulative, paths, &mut acked);
        }
        if let Some(gaps) = &sack.gaps {
            self.acknowledge_gaps(cumulative, next, gaps, paths, &mut acked);
        }
        let in_flight = self.in_flight_payload_bytes;
        self.peer_window.update(sack.window_bytes, in_flight);
        if let Some(probe) = self.peer_window.judge_probe(self.first, sack.window_bytes, in_flight) {
            self.lose(probe, paths);
        }
        let mut outcome = SackOutcome::default();
        for (path_id, (path, acked)) in paths.iter_mut().zip(acked).enumerate() {
            if let Some(newest) = acked.newest_packet {
                outcome.progress = true;
                measure(now, path, newest, config);
                path.record_acked_packet(newest);
                path.errors = 0;
                // RFC 9260 §8.2.
                if path.state == PathState::Inactive {
                    path.state = PathState::Active;
                    outcome.reactivated.push(path_id);
                }
                self.detect_loss(now, path, path_id, statistics);
                let before = acked.in_flight_before_bytes;
                let acked = Acked {
                    bytes: acked.bytes,
                    in_flight_before_bytes: before,
                    in_flight_bytes: path.in_flight_bytes,
                    lost_bytes: 0,
                    cumulative: advanced,
                    in_recovery: path.in_recovery(),
                    window_limited: before + path.mtu_bytes > path.congestion.cwnd_bytes(),
                    rtt: None,
                    srtt: path.rto.srtt(),
                    min_rtt: None,
                    newest_packet: newest,
                    next_packet: path.next_packet(),
                    rate: None,
                };
                path.congestion.on_acked(now, &acked);
            }
            // RFC 9260 §6.3.2 R2, R3 and R4.
            if path.in_flight_bytes == 0 {
                path.t3 = None;
            } else if advanced || path.t3.is_none() {
                path.t3 = Some(now + path.rto.current());
            }
        }
        let idle = self.in_flight_payload_bytes == 0 && self.lost.is_empty();
        let rto = paths.iter().map(|path| path.rto.current()).min().unwrap_or(config.rto.initial);
        self.peer_window.watch(now, idle, rto, config.rto.max);
        if self.writable_wanted && self.buffered_bytes <= self.buffer_bytes / 2 {
            self.writable_wanted = false;
            outcome.writable = true;
        }
        Ok(outcome)
    }

    fn acknowledge_to(&mut self, cumulative: u64, paths: &mut [Path], acked: &mut [PathAcked]) {
        let count = (cumulative + 1 - self.first) as usize;
        for chunk in self.outstanding.drain(..count) {
            self.buffered_bytes -= chunk.buffered_bytes();
            if chunk.state == ChunkState::InFlight {
                self.in_flight_payload_bytes -= chunk.payload.len();
            }
            credit(&chunk, paths, acked);
        }
        self.first = cumulative + 1;
        self.lost.remove_below(self.first);
        self.gap_acked.remove_below(self.first);
    }

    fn acknowledge_gaps<G: Iterator<Item = (u16, u16)> + Clone>(
        &mut self,
        cumulative: u64,
        next: u64,
        gaps: &G,
        paths: &mut [Path],
        acked: &mut [PathAcked],
    ) {
        let mut reported = 0;
        let mut reported_end = 0;
        for (start, end) in gaps.clone() {
            let range = cumulative + u64::from(start)..(cumulative + u64::from(end) + 1).min(next);
            if range.start <= cumulative || range.is_empty() {
                continue;
            }
            reported += range.end - range.start;
            reported_end = reported_end.max(range.end);
            let (first, outstanding) = (self.first, &mut self.outstanding);
            let (lost, in_flight) = (&mut self.lost, &mut self.in_flight_payload_bytes);
            self.gap_acked.insert_range(range, |new| {
                for tsn in new.clone() {
                    let chunk = &mut outstanding[(tsn - first) as usize];
                    credit(chunk, paths, acked);
                    if chunk.state == ChunkState::InFlight {
                        *in_flight -= chunk.payload.len();
                    }
                    chunk.state = ChunkState::GapAcked;
                }
                lost.remove_range(new);
            });
        }
        if reported == 0 {
            // A peer that reports nothing at all has not merely run out of space.
            reported_end = next;
        }
        if self.gap_acked.count() > reported {
            self.take_back(gaps, cumulative, reported_end, paths);
        }
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
            for tsn in range.clone() {
                let chunk = &mut self.outstanding[(tsn - self.first) as usize];
                chunk.state = ChunkState::InFlight;
                self.in_flight_payload_bytes += chunk.payload.len();
                paths[usize::from(chunk.path)].in_flight_bytes += chunk.wire_bytes();
            }
            self.gap_acked.remove_range(range);
        }
    }

    /// Packets far enough behind the newest acknowledged one are lost (RFC 9260 §7.2.4).
    fn detect_loss(&mut self, now: Time, path: &mut Path, path_id: usize, statistics: &mut Statistics) {
        let mut reduce = false;
        while let Some((number, packet)) = path.pop_settled() {
            let mut lost = false;
            for range in packet.tsns {
                for tsn in range.start.max(self.first)..range.end {
                    let chunk = &mut self.outstanding[(tsn - self.first) as usize];
                    if chunk.state == ChunkState::InFlight
                        && chunk.packet == number
                        && usize::from(chunk.path) == path_id
                    {
                        chunk.state = ChunkState::Lost;
                        path.in_flight_bytes -= chunk.wire_bytes();
                        self.in_flight_payload_bytes -= chunk.payload.len();
                        self.peer_window.give_back(chunk.payload.len());
                        self.lost.insert(tsn);
                        lost = true;
                    }
                }
            }
            reduce |= lost && !after(path.recovery_until, number);
        }
        if reduce {
            statistics.fast_recoveries += 1;
            path.recovery_until = path.next_packet();
            path.retransmits_at_once = true;
            path.congestion.on_congestion(now, Signal::Loss, path.in_flight_bytes);
        }
    }

    /// A single chunk in flight is to be sent again.
    fn lose(&mut self, tsn: u64, paths: &mut [Path]) {
        let Some(chunk) = self.outstanding.get_mut((tsn - self.first) as usize) else { return };
        if chunk.state == ChunkState::InFlight {
            chunk.state = ChunkState::Lost;
            paths[usize::from(chunk.path)].in_flight_bytes -= chunk.wire_bytes();
            self.in_flight_payload_bytes -= chunk.payload.len();
            self.peer_window.give_back(chunk.payload.len());
            self.lost.insert(tsn);
        }
    }

    /// T3-rtx expired on a path: all that is in flight on it is to be sent again (RFC 9260 §6.3.3). Says whether
    /// that is a sign of trouble, and not merely a window that the peer keeps closed.
    pub(crate) fn handle_timeout(&mut self, now: Time, path: &mut Path, path_id: usize) -> bool {
        for (i, chunk) in self.outstanding.iter_mut().enumerate() {
            if chunk.state == ChunkState::InFlight && usize::from(chunk.path) == path_id {
                chunk.state = ChunkState::Lost;
                self.in_flight_payload_bytes -= chunk.payload.len();
                self.peer_window.give_back(chunk.payload.len());
                self.lost.insert(self.first + i as u64);
            }
        }
        path.in_flight_bytes = 0;
        path.forget_sent();
        path.t3 = None;
        // RFC 9260 §6.1 A: probes of a closed window do not touch the congestion window.
        let trouble = !self.peer_window.take_refused();
        if trouble {
            path.congestion.on_timeout(now, path.in_flight_bytes);
        }
        trouble
    }

    /// Checks the counters against a recount; for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn assert_counters(&self, paths: &[Path]) {
        let in_flight = |c: &&Chunk| c.state == ChunkState::InFlight;
        let payload: usize = self.outstanding.iter().filter(in_flight).map(|c| c.payload.len()).sum();
        assert_eq!(payload, self.in_flight_payload_bytes);
        for (id, path) in paths.iter().enumerate() {
            let wire: usize = self
                .outstanding
                .iter()
                .filter(in_flight)
                .filter(|c| usize::from(c.path) == id)
                .map(Chunk::wire_bytes)
                .sum();
            assert_eq!(wire, path.in_flight_bytes);
        }
        let count = |state| self.outstanding.iter().filter(|c| c.state == state).count() as u64;
        assert_eq!(count(ChunkState::Lost), self.lost.count());
        assert_eq!(count(ChunkState::GapAcked), self.gap_acked.count());
        let buffered: usize = self.outstanding.iter().chain(&self.pending).map(Chunk::buffered_bytes).sum();
        assert_eq!(buffered, self.buffered_bytes);
        assert_eq!(self.pending.iter().map(Chunk::wire_bytes).sum::<usize>(), self.pending_wire_bytes);
    }
}

/// Books one chunk as newly acknowledged on its path.
#[inline]
fn credit(chunk: &Chunk, paths: &mut [Path], acked: &mut [PathAcked]) {
    if chunk.state == ChunkState::GapAcked {
        return;
    }
    let wire = chunk.wire_bytes();
    let path_id = usize::from(chunk.path);
    if chunk.state == ChunkState::InFlight {
        paths[path_id].in_flight_bytes -= wire;
    }
    let acked = &mut acked[path_id];
    acked.bytes += wire;
    if acked.newest_packet.is_none_or(|newest| after(chunk.packet, newest)) {
        acked.newest_packet = Some(chunk.packet);
    }
}

/// A round-trip time from a packet of which nothing was sent twice (RFC 9260 §6.3.1 C5).
fn measure(now: Time, path: &mut Path, packet: u32, config: &AssociationConfig) {
    if let Some(sent) = path.sent_packet(packet)
        && sent.first_transmission
    {
        let rtt = now.saturating_since(sent.sent_at);
        path.rto.measure(rtt, &config.rto);
    }
}

#[inline]
fn write_chunk(chunk: &Chunk, tsn: u64, buffer: &mut TransmitBuffer) {
    Data::write_header(
        chunk.flags,
        tsn::wrap(tsn),
        StreamId(chunk.stream),
        Ssn(chunk.ssn),
        Ppid(chunk.ppid),
        chunk.payload.len(),
        buffer.out(),
    );
    buffer.payload(&chunk.payload);
}
