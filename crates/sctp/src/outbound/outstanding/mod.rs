//! DATA chunks that have a TSN and are not yet acknowledged cumulatively.
//!
//! The queue owns the state of each chunk and every total that follows from it. Its callers know TSNs, packets and paths; the
//! chunks themselves stay private. Each change reports the bytes that left or entered the flight of a path, so that the caller
//! can tell that path.

mod chunk;

use std::collections::VecDeque;
use std::ops::Range;

use crate::packet_number::after;
use crate::path::PacketTsns;
use crate::range_set::RangeSet;

use chunk::ChunkState;
pub(super) use chunk::{Chunk, wire_bytes};

/// A chunk that a SACK has just acknowledged for the first time.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckedChunk {
    pub(super) path_id: usize,
    /// The packet that last carried it.
    pub(super) packet: u32,
    pub(super) wire_bytes: usize,
    /// The chunk had been declared lost and was not yet retransmitted.
    pub(super) was_lost: bool,
}

/// Chunks of one path that left its flight, or came back to it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) chunks: u64,
    pub(super) wire_bytes: usize,
    pub(super) payload_bytes: usize,
}

impl Moved {
    #[inline]
    fn add(&mut self, chunk: &Chunk) {
        self.chunks += 1;
        self.wire_bytes += chunk.wire_bytes();
        self.payload_bytes += chunk.payload.len();
    }
}

#[derive(Debug)]
pub(super) struct Outstanding {
    /// Chunks with TSNs from `first` on.
    chunks: VecDeque<Chunk>,
    /// TSN of the first chunk (unwrapped); the TSN before it is the cumulative TSN acknowledged.
    first: u64,
    lost: RangeSet,
    /// Acknowledged by gap blocks.
    gap_acked: RangeSet,
    /// Number of these that the peer may renege on.
    renegable: u64,
    in_flight_payload_bytes: usize,
}

impl Outstanding {
    pub(super) fn new(first: u64) -> Self {
        Outstanding {
            chunks: VecDeque::new(),
            first,
            lost: RangeSet::new(),
            gap_acked: RangeSet::new(),
            renegable: 0,
            in_flight_payload_bytes: 0,
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
        self.first + self.chunks.len() as u64
    }

    #[inline]
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    #[inline]
    pub(super) fn in_flight_payload_bytes(&self) -> usize {
        self.in_flight_payload_bytes
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
    pub(super) fn path_of(&self, tsn: u64) -> Option<usize> {
        self.get(tsn).map(|chunk| chunk.path.into())
    }

    /// Returns path and packet number of the first chunk if that is in flight.
    pub(super) fn first_in_flight(&self) -> Option<(usize, u32)> {
        let chunk = self.chunks.front().filter(|chunk| chunk.state == ChunkState::InFlight)?;
        Some((chunk.path.into(), chunk.packet))
    }

    /// Returns the first lost chunk and its TSN.
    #[inline]
    pub(super) fn first_lost(&self) -> Option<(u64, &Chunk)> {
        let tsn = self.lost.first()?;
        Some((tsn, self.get(tsn)?))
    }

    /// Returns the chunks that the peer may not have received, in the order of their TSNs.
    pub(super) fn undelivered(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().filter(|chunk| chunk.state != ChunkState::NrGapAcked)
    }

    /// Returns whether anything that this packet carried is still in flight in it.
    #[inline]
    pub(super) fn is_in_flight(&self, path_id: usize, packet: u32, tsns: &PacketTsns) -> bool {
        self.of_packet(tsns).any(|tsn| self.at(tsn).is_in(packet, path_id))
    }

    /// Returns the bytes of chunks that are still in flight in this packet.
    pub(super) fn packet_bytes(&self, path_id: usize, packet: u32, tsns: &PacketTsns) -> usize {
        let chunks = self.of_packet(tsns).map(|tsn| self.at(tsn));
        chunks.filter(|chunk| chunk.is_in(packet, path_id)).map(Chunk::wire_bytes).sum()
    }

    /// Returns the oldest packet of a path with something in flight; `next_packet` if nothing is.
    pub(super) fn oldest_packet(&self, path_id: usize, next_packet: u32) -> u32 {
        let packets = self.chunks.iter().filter(|chunk| chunk.is_on(path_id)).map(|chunk| chunk.packet);
        packets.fold(next_packet, |oldest, packet| if after(oldest, packet) { packet } else { oldest })
    }

    /// Returns the chunk with this TSN if it is in flight in this packet.
    #[inline]
    pub(super) fn in_packet(&self, tsn: u64, path_id: usize, packet: u32) -> Option<&Chunk> {
        self.get(tsn).filter(|chunk| chunk.is_in(packet, path_id))
    }

    /// Returns the number of leading chunks that are in flight in this packet.
    #[inline]
    pub(super) fn leading_in_packet(&self, path_id: usize, packet: u32) -> u64 {
        self.chunks.iter().take_while(|chunk| chunk.is_in(packet, path_id)).count() as u64
    }

    /// Appends a new chunk that leaves in this packet.
    #[inline]
    pub(super) fn send(&mut self, mut chunk: Chunk, path_id: usize, packet: u32) {
        (chunk.path, chunk.packet) = (path_id as u8, packet);
        self.in_flight_payload_bytes += chunk.payload.len();
        self.chunks.push_back(chunk);
    }

    /// Retransmits the first lost chunk in this packet. Returns it and its TSN.
    #[inline]
    pub(super) fn retransmit(&mut self, path_id: usize, packet: u32) -> Option<(u64, &Chunk)> {
        let tsn = self.lost.pop_first()?;
        let chunk = self.chunks.get_mut((tsn - self.first) as usize)?;
        (chunk.state, chunk.path, chunk.packet) = (ChunkState::InFlight, path_id as u8, packet);
        self.in_flight_payload_bytes += chunk.payload.len();
        Some((tsn, chunk))
    }

    /// Sends a chunk in flight once more, in this packet of the same path, and returns it.
    pub(super) fn repeat(&mut self, tsn: u64, packet: u32) -> &Chunk {
        let chunk = &mut self.chunks[(tsn - self.first) as usize];
        chunk.packet = packet;
        // In the middle of a record the I bit says that the reader need not wait for more. A peer acknowledges a duplicate, or a
        // chunk that fills a gap, at once without it.
        chunk.flags.immediate |= chunk.flags.ending;
        chunk
    }

    /// Acknowledges every TSN up to `cumulative`. Returns the bytes that this frees in the send buffer.
    #[inline]
    pub(super) fn ack_to(&mut self, cumulative: u64, mut acked: impl FnMut(AckedChunk)) -> usize {
        let count = (cumulative + 1 - self.first) as usize;
        let mut freed_bytes = 0;
        for chunk in self.chunks.drain(..count) {
            freed_bytes += chunk.buffered_bytes();
            if chunk.state == ChunkState::GapAcked {
                self.renegable -= 1;
            }
            report_acked(&chunk, &mut self.in_flight_payload_bytes, &mut acked);
        }
        self.first = cumulative + 1;
        self.lost.remove_below(self.first);
        self.gap_acked.remove_below(self.first);
        freed_bytes
    }

    /// Acknowledges the TSNs of a gap block. The peer may renege on them if `renegable` is set; otherwise (NR-SACK) their payload
    /// is freed. Returns the bytes that this frees in the send buffer.
    #[inline]
    pub(super) fn ack(
        &mut self,
        tsns: Range<u64>,
        renegable: bool,
        mut acked: impl FnMut(AckedChunk),
    ) -> usize {
        let Outstanding {
            chunks,
            first,
            lost,
            gap_acked,
            in_flight_payload_bytes,
            renegable: renegable_chunks,
        } = self;
        let mut freed_bytes = 0;
        gap_acked.insert_range(tsns, |new| {
            for tsn in new.clone() {
                let chunk = &mut chunks[(tsn - *first) as usize];
                report_acked(chunk, in_flight_payload_bytes, &mut acked);
                if renegable {
                    chunk.state = ChunkState::GapAcked;
                    *renegable_chunks += 1;
                } else {
                    chunk.state = ChunkState::NrGapAcked;
                    freed_bytes += chunk.free();
                }
            }
            lost.remove_range(new);
        });
        freed_bytes
    }

    /// Returns the TSNs that earlier gap blocks acknowledged and `gaps` does not contain.
    pub(super) fn missing_from(&self, gaps: impl Iterator<Item = Range<u64>>) -> RangeSet {
        let mut missing = self.gap_acked.clone();
        gaps.for_each(|gap| missing.remove_range(gap));
        missing
    }

    /// Returns to flight those of these TSNs on which the peer may renege. Calls `returned` with path and wire bytes of
    /// each.
    pub(super) fn renege(&mut self, tsns: Range<u64>, mut returned: impl FnMut(usize, usize)) {
        for tsn in tsns {
            let chunk = &mut self.chunks[(tsn - self.first) as usize];
            if chunk.state == ChunkState::GapAcked {
                chunk.state = ChunkState::InFlight;
                self.renegable -= 1;
                self.in_flight_payload_bytes += chunk.payload.len();
                self.gap_acked.remove_range(tsn..tsn + 1);
                returned(chunk.path.into(), chunk.wire_bytes());
            }
        }
    }

    /// Declares one chunk lost if it is in flight. Returns its path and the bytes that left the flight.
    pub(super) fn nack(&mut self, tsn: u64) -> Option<(usize, Moved)> {
        let path_id = self.get(tsn).filter(|chunk| chunk.state == ChunkState::InFlight)?.path;
        let mut moved = Moved::default();
        self.lose(tsn, &mut moved);
        Some((path_id.into(), moved))
    }

    /// Declares the chunks still in flight in this packet lost.
    #[inline]
    pub(super) fn nack_packet(&mut self, path_id: usize, packet: u32, tsns: &PacketTsns) -> Moved {
        let (mut moved, first) = (Moved::default(), self.first);
        for tsn in tsns.iter().flat_map(|range| range.start.max(first)..range.end) {
            if self.at(tsn).is_in(packet, path_id) {
                self.lose(tsn, &mut moved);
            }
        }
        moved
    }

    /// Declares all chunks in flight on a path lost.
    pub(super) fn nack_path(&mut self, path_id: usize) -> Moved {
        let mut moved = Moved::default();
        for at in 0..self.chunks.len() {
            if self.chunks[at].is_on(path_id) {
                self.lose(self.first + at as u64, &mut moved);
            }
        }
        moved
    }

    /// Returns to flight the chunks of a path that a timeout declared lost and that were last sent before packet `before`.
    pub(super) fn restore(&mut self, path_id: usize, before: u32) -> Moved {
        let mut moved = Moved::default();
        let lost: Vec<_> = self.lost.iter().collect();
        for tsn in lost.into_iter().flatten() {
            let chunk = &mut self.chunks[(tsn - self.first) as usize];
            if usize::from(chunk.path) == path_id && after(before, chunk.packet) {
                chunk.state = ChunkState::InFlight;
                self.lost.remove_range(tsn..tsn + 1);
                moved.add(chunk);
            }
        }
        self.in_flight_payload_bytes += moved.payload_bytes;
        moved
    }

    /// Moves a chunk in flight to the list of lost chunks.
    #[inline]
    fn lose(&mut self, tsn: u64, moved: &mut Moved) {
        let chunk = &mut self.chunks[(tsn - self.first) as usize];
        chunk.state = ChunkState::Lost;
        self.in_flight_payload_bytes -= chunk.payload.len();
        self.lost.insert(tsn);
        moved.add(chunk);
    }

    #[inline]
    fn get(&self, tsn: u64) -> Option<&Chunk> {
        self.chunks.get(usize::try_from(tsn.checked_sub(self.first)?).ok()?)
    }

    #[inline]
    fn at(&self, tsn: u64) -> &Chunk {
        &self.chunks[(tsn - self.first) as usize]
    }

    /// Returns those of a packet's TSNs that are still outstanding.
    #[inline]
    fn of_packet<'a>(&self, tsns: &'a PacketTsns) -> impl Iterator<Item = u64> + use<'a> {
        let first = self.first;
        tsns.iter().flat_map(move |range| range.start.max(first)..range.end)
    }

    /// Compares every total with a recount; for tests.
    #[cfg(feature = "testing")]
    pub(super) fn assert_totals(&self, in_flight_bytes: impl Iterator<Item = usize>) {
        let in_flight = |c: &&Chunk| c.state == ChunkState::InFlight;
        let payload: usize = self.chunks.iter().filter(in_flight).map(|c| c.payload.len()).sum();
        assert_eq!(payload, self.in_flight_payload_bytes);
        for (path_id, bytes) in in_flight_bytes.enumerate() {
            let chunks = self.chunks.iter().filter(|c| c.is_on(path_id));
            assert_eq!(chunks.map(Chunk::wire_bytes).sum::<usize>(), bytes);
        }
        let count = |state| self.chunks.iter().filter(|c| c.state == state).count() as u64;
        assert_eq!(count(ChunkState::Lost), self.lost.count());
        assert_eq!(count(ChunkState::GapAcked), self.renegable);
        assert_eq!(count(ChunkState::GapAcked) + count(ChunkState::NrGapAcked), self.gap_acked.count());
    }

    /// Returns the space that all chunks take in the send buffer; for tests.
    #[cfg(feature = "testing")]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.chunks.iter().map(Chunk::buffered_bytes).sum()
    }
}

/// Reports a chunk as acknowledged, unless a gap block did so before, and takes it out of flight.
#[inline]
fn report_acked(chunk: &Chunk, in_flight_payload_bytes: &mut usize, acked: &mut impl FnMut(AckedChunk)) {
    let was_lost = match chunk.state {
        ChunkState::InFlight => {
            *in_flight_payload_bytes -= chunk.payload.len();
            false
        }
        ChunkState::Lost => true,
        ChunkState::GapAcked | ChunkState::NrGapAcked => return,
    };
    let (path_id, packet) = (chunk.path.into(), chunk.packet);
    acked(AckedChunk { path_id, packet, wire_bytes: chunk.wire_bytes(), was_lost });
}
