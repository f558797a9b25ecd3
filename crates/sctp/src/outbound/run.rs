//! Consecutive DATA chunks that leave in one packet: the unit of the outstanding queue.
//!
//! A run keeps its chunks as they stand in the packet, so a retransmission sends the same bytes again. A packet arrives or
//! is lost as a whole, so a run has one state for all its chunks. It is split, by a walk along the headers of its chunks,
//! only where the peer reports that it has some of them and not others, or where a shorter packet takes no more.

mod in_flight;

use std::ops::{AddAssign, Range};

use bytes::{Buf, Bytes, BytesMut};
use sctp_message::{PathId, SendInfo};
use sctp_wire::chunk::{DATA_HEADER_BYTES, DataHeader};

use crate::config::MESSAGE_OVERHEAD_BYTES;
use crate::event::SendFailure;
use crate::packet_number::PacketNumber;
use crate::send_pool::BlockCharge;
use crate::transmit::TransmitBuffer;

pub(super) use in_flight::{InFlight, RunState, Status};

/// Consecutive DATA chunks. A run of several has whole messages only.
#[derive(Debug)]
pub(super) struct Run {
    /// TSN of the first chunk (unwrapped).
    pub(super) first: u64,
    pub(super) chunks: u32,
    /// Number of chunks, from the first on, that the send buffer charges the overhead of a message to.
    pub(super) charged: u32,
    pub(super) payload_bytes: usize,
    /// Header of the first chunk.
    pub(super) head: [u8; DATA_HEADER_BYTES],
    /// The bytes behind that header: the user data, and the other chunks. The padding of the last chunk may be missing.
    pub(super) body: Bytes,
    /// The charge for the block of short messages that the bytes lie in.
    pub(super) charge: Option<BlockCharge>,
    /// The charge for the owner's memory that the bytes lie in, as in `Message::owned_bytes`.
    pub(super) owned_bytes: u32,
    pub(super) context: u32,
    /// Number of the packet that last carried the run, on its path.
    pub(super) packet: PacketNumber,
    pub(super) path: PathId,
    pub(super) status: Status,
}

/// What a message or a run takes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// Its share of the send buffer.
    pub(super) buffered_bytes: usize,
    /// Its charge for the memory of owners, and for itself if it stands alone in the queue.
    pub(super) owned_bytes: usize,
}

impl AddAssign for Taken {
    #[inline]
    fn add_assign(&mut self, other: Taken) {
        self.buffered_bytes += other.buffered_bytes;
        self.owned_bytes += other.owned_bytes;
    }
}

impl Run {
    /// Returns the TSNs of the chunks.
    #[inline]
    pub(super) fn tsns(&self) -> Range<u64> {
        self.first..self.end()
    }

    /// Returns the TSN after the last.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.chunks)
    }

    #[inline]
    pub(super) fn state(&self) -> RunState {
        self.status.state()
    }

    /// Returns the length of the chunks with headers and padding.
    #[inline]
    pub(super) fn wire_bytes(&self) -> usize {
        wire_bytes(self.body.len())
    }

    /// Returns the length of the first chunk with header and padding.
    #[inline]
    pub(super) fn first_wire_bytes(&self) -> usize {
        DataHeader::read(&self.head).wire_bytes()
    }

    /// Returns the run's share of the send buffer.
    #[inline]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.payload_bytes + self.charged as usize * MESSAGE_OVERHEAD_BYTES
    }

    /// Returns whether the run is in flight in this packet of this path.
    #[inline]
    pub(super) fn is_in(&self, packet: PacketNumber, path: PathId) -> bool {
        self.is_on(path) && self.packet == packet
    }

    /// Returns whether the run is in flight on this path.
    #[inline]
    pub(super) fn is_on(&self, path: PathId) -> bool {
        self.state() == RunState::InFlight && self.path == path
    }

    /// Appends the chunks to a packet.
    #[inline]
    pub(super) fn write(&self, buffer: &mut TransmitBuffer) {
        buffer.out().extend_from_slice(&self.head);
        buffer.payload(&self.body, self.chunks == 1);
    }

    /// Returns everything that the run takes.
    #[inline]
    pub(super) fn taken(&self) -> Taken {
        Taken { buffered_bytes: self.buffered_bytes(), owned_bytes: self.owned_bytes as usize }
    }

    /// Frees the bytes before the cumulative TSN passes them. Returns what they took. The charge for memory that earlier
    /// fragments may keep stays.
    pub(super) fn free(&mut self) -> Taken {
        let mut freed = self.taken();
        if freed.owned_bytes == self.payload_bytes {
            self.owned_bytes = 0;
        } else {
            freed.owned_bytes = 0;
        }
        (self.payload_bytes, self.charged, self.body, self.charge) = (0, 0, Bytes::new(), None);
        freed
    }

    /// Splits off the chunks from `tsn` on, which lies inside.
    pub(super) fn split_off(&mut self, tsn: u64) -> Run {
        let chunks = (tsn - self.first) as u32;
        let mut kept_bytes = 0;
        let mut rest = Run {
            first: tsn,
            chunks: self.chunks - chunks,
            charged: self.charged.saturating_sub(chunks),
            payload_bytes: 0,
            body: Bytes::new(),
            charge: self.charge.clone(),
            owned_bytes: 0,
            ..*self
        };
        if self.state() != RunState::NrGapAcked {
            let kept = self.walk().take(chunks as usize);
            kept_bytes = kept.clone().map(|chunk| chunk.header.payload_bytes).sum();
            let end = kept.map(|chunk| chunk.end).last().unwrap_or_default();
            rest.body = self.body.split_off(end);
            rest.head = take_header(&mut rest.body);
            rest.payload_bytes = self.payload_bytes - kept_bytes;
        }
        self.payload_bytes = kept_bytes;
        (self.chunks, self.charged) = (chunks, self.charged - rest.charged);
        rest
    }

    /// Returns how many chunks from the first on fit into `room_bytes`.
    pub(super) fn chunks_within(&self, room_bytes: usize) -> u32 {
        if self.wire_bytes() <= room_bytes {
            return self.chunks;
        }
        self.walk().take_while(|chunk| DATA_HEADER_BYTES + chunk.end <= room_bytes).count() as u32
    }

    /// Lets the peer acknowledge the last chunk without delay, if a message ends there. In the middle of a record the I bit would
    /// say that its reader need not wait for more.
    pub(super) fn set_immediate(&mut self) {
        let Some(last) = self.walk().last() else { return };
        if !last.header.flags.ending || last.header.flags.immediate {
            return;
        }
        match last.start.checked_sub(DATA_HEADER_BYTES) {
            None => DataHeader::set_immediate(&mut self.head),
            Some(at) => {
                let mut body = BytesMut::from(std::mem::take(&mut self.body));
                if let Some(header) = body[at..].first_chunk_mut() {
                    DataHeader::set_immediate(header);
                }
                self.body = body.freeze();
            }
        }
    }

    /// Describes the chunks to the user as not delivered. The description omits the request for an immediate SACK.
    pub(super) fn failures(&self) -> impl Iterator<Item = SendFailure> {
        let context = self.context;
        self.walk().map(move |chunk| {
            let data = self.body.slice(chunk.payload());
            failure(chunk.header, context, data, true)
        })
    }

    /// Returns the chunks from the first on, by their headers.
    fn walk(&self) -> Walk<'_> {
        Walk::new(&self.head, &self.body)
    }
}

/// Describes a chunk, or a message that has not been cut into chunks, as not delivered.
pub(super) fn failure(header: DataHeader, context: u32, data: Bytes, was_sent: bool) -> SendFailure {
    let info = SendInfo {
        stream: header.stream.0,
        ppid: header.ppid.0,
        unordered: header.flags.unordered,
        context,
        ..SendInfo::default()
    };
    SendFailure {
        info,
        data,
        was_sent,
        beginning: header.flags.beginning,
        ending: header.flags.ending,
        cause: 0,
    }
}

/// Cuts the header of a chunk off the front of `bytes`.
#[inline]
pub(super) fn take_header(bytes: &mut Bytes) -> [u8; DATA_HEADER_BYTES] {
    let mut head = [0; DATA_HEADER_BYTES];
    bytes.copy_to_slice(&mut head);
    head
}

/// Returns the length of a DATA chunk with this much payload, with header and padding.
#[inline]
pub(crate) fn wire_bytes(payload_bytes: usize) -> usize {
    DATA_HEADER_BYTES + payload_bytes.next_multiple_of(4)
}

/// The place of a chunk behind the header of the first.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkAt {
    pub(super) header: DataHeader,
    /// Where the user data begins.
    start: usize,
    /// Where the next chunk begins.
    end: usize,
}

impl ChunkAt {
    /// Returns the place of the user data.
    #[inline]
    pub(super) fn payload(&self) -> Range<usize> {
        self.start..self.start + self.header.payload_bytes
    }
}

/// A walk along the headers of chunks that lie one behind the other.
#[derive(Debug, Clone)]
pub(super) struct Walk<'a> {
    header: Option<DataHeader>,
    start: usize,
    body: &'a [u8],
}

impl<'a> Walk<'a> {
    /// Begins at the chunk with header `head`. `body` follows that header.
    #[inline]
    pub(super) fn new(head: &[u8; DATA_HEADER_BYTES], body: &'a [u8]) -> Self {
        Walk { header: Some(DataHeader::read(head)), start: 0, body }
    }
}

impl Iterator for Walk<'_> {
    type Item = ChunkAt;

    #[inline]
    fn next(&mut self) -> Option<ChunkAt> {
        let header = self.header?;
        let chunk =
            ChunkAt { header, start: self.start, end: self.start + header.payload_bytes.next_multiple_of(4) };
        let next = self.body.get(chunk.end..).and_then(<[u8]>::first_chunk);
        self.header = next.map(DataHeader::read);
        self.start = chunk.end + DATA_HEADER_BYTES;
        Some(chunk)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use sctp_wire::chunk::{Data, DataFlags};
    use sctp_wire::{Ppid, Ssn, StreamId, Tsn};

    use super::*;

    /// Returns whole messages of these lengths as one run from TSN 100 on; each byte is the number of its message.
    pub(in crate::outbound) fn run_of(lengths: &[usize]) -> Run {
        let mut wire = Vec::new();
        for (n, bytes) in lengths.iter().enumerate() {
            let payload = vec![n as u8; *bytes];
            let (tsn, ssn) = (Tsn(100 + n as u32), Ssn(n as u16));
            let chunk = Data {
                flags: DataFlags::WHOLE,
                tsn,
                stream: StreamId(3),
                ssn,
                ppid: Ppid(7),
                payload: &payload,
            };
            chunk.write(&mut wire);
        }
        let mut body = Bytes::from(wire);
        let head = take_header(&mut body);
        Run {
            first: 100,
            chunks: lengths.len() as u32,
            charged: lengths.len() as u32,
            payload_bytes: lengths.iter().sum(),
            head,
            body,
            charge: None,
            owned_bytes: 0,
            context: 5,
            packet: PacketNumber::default(),
            path: PathId(0),
            status: Status::NEW,
        }
    }

    fn written(runs: &[&Run]) -> Vec<u8> {
        let mut buffer = TransmitBuffer::new();
        runs.iter().for_each(|run| run.write(&mut buffer));
        buffer.end_packet(crate::Checksum::None);
        buffer.to_vec()
    }

    #[test]
    fn both_parts_of_a_run_have_the_bytes_and_the_totals_of_the_whole() {
        let lengths = [1, 4, 7, 1, 300, 2];
        let whole = written(&[&run_of(&lengths)]);
        for at in 1..lengths.len() {
            let mut front = run_of(&lengths);
            let rest = front.split_off(100 + at as u64);
            assert_eq!(written(&[&front, &rest]), whole, "split at {at}");
            assert_eq!(front.tsns(), 100..100 + at as u64);
            assert_eq!(rest.tsns(), 100 + at as u64..106);
            assert_eq!(front.payload_bytes, lengths[..at].iter().sum::<usize>());
            assert_eq!(rest.payload_bytes, lengths[at..].iter().sum::<usize>());
            assert_eq!((front.charged as usize, rest.charged as usize), (at, lengths.len() - at));
        }
    }

    #[test]
    fn a_freed_run_splits_without_its_bytes() {
        let mut front = run_of(&[1, 2, 3]);
        front.status = Status::freed();
        assert_eq!(front.free().buffered_bytes, 6 + 3 * MESSAGE_OVERHEAD_BYTES);
        let rest = front.split_off(101);
        assert_eq!((front.tsns(), rest.tsns()), (100..101, 101..103));
        assert_eq!(front.buffered_bytes() + rest.buffered_bytes(), 0);
    }

    #[test]
    fn as_many_chunks_as_fit_are_counted_with_headers_and_padding() {
        let run = run_of(&[1, 5, 8]);
        // 20, 24 and 24 bytes.
        for (room_bytes, chunks) in [(0, 0), (19, 0), (20, 1), (43, 1), (44, 2), (67, 2), (68, 3), (999, 3)] {
            assert_eq!(run.chunks_within(room_bytes), chunks, "{room_bytes} bytes");
        }
    }

    #[test]
    fn only_the_last_chunk_asks_for_its_sack() {
        for lengths in [&[9][..], &[9, 1, 6]] {
            let mut run = run_of(lengths);
            let before = written(&[&run]);
            run.set_immediate();
            let after = written(&[&run]);
            let changed: Vec<_> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
            let last = before.len() - wire_bytes(lengths[lengths.len() - 1]);
            assert_eq!(changed, [last + 1]);
            assert_eq!(after[last + 1], before[last + 1] | 0x08);
        }
    }

    #[test]
    fn undelivered_data_returns_message_by_message() {
        let failures: Vec<_> = run_of(&[2, 3]).failures().collect();
        assert_eq!(failures.len(), 2);
        for (n, failure) in failures.iter().enumerate() {
            assert_eq!(failure.data, vec![n as u8; 2 + n]);
            assert_eq!((failure.info.stream, failure.info.ppid, failure.info.context), (3, 7, 5));
            assert!(failure.was_sent && failure.beginning && failure.ending);
        }
    }
}
