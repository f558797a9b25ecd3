//! A message, or the part of one that one DATA chunk carries.

use bytes::Bytes;
use sctp_message::SendInfo;
use sctp_wire::chunk::{DATA_HEADER_BYTES, DataFlags};

use crate::config::MESSAGE_OVERHEAD_BYTES;
use crate::event::SendFailure;

/// Path of a chunk that names none: it takes the primary path.
const ANY_PATH: u8 = u8::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChunkState {
    /// Sent, or not yet sent.
    InFlight,
    /// A gap block acknowledged the chunk. The peer may still renege (RFC 9260 §6.2).
    GapAcked,
    /// A non-renegable gap block (NR-SACK) acknowledged the chunk, so its payload is freed.
    NrGapAcked,
    /// Waits to be retransmitted.
    Lost,
}

/// Content of one DATA chunk. Before it is first sent, it may hold a whole message that is fragmented later.
#[derive(Debug)]
pub(in crate::outbound) struct Chunk {
    pub(in crate::outbound) payload: Bytes,
    pub(in crate::outbound) ppid: u32,
    context: u32,
    /// Number of the packet that last carried the chunk, on its path.
    pub(super) packet: u32,
    pub(in crate::outbound) stream: u16,
    pub(in crate::outbound) ssn: u16,
    pub(in crate::outbound) flags: DataFlags,
    pub(super) state: ChunkState,
    /// The path that last carried the chunk. Before it is sent, the path that the message names, or [`ANY_PATH`].
    pub(super) path: u8,
    /// Whether the send buffer charges the overhead of the message to this chunk: the last one of each send.
    pub(in crate::outbound) charged: bool,
}

impl Chunk {
    /// Makes a chunk that waits to be sent on `path`.
    #[inline]
    pub(in crate::outbound) fn new(payload: Bytes, info: &SendInfo, beginning: bool) -> Self {
        Chunk {
            payload,
            ppid: info.ppid,
            context: info.context,
            packet: 0,
            stream: info.stream,
            ssn: 0,
            flags: DataFlags { immediate: false, unordered: info.unordered, beginning, ending: false },
            state: ChunkState::InFlight,
            path: info.path.map_or(ANY_PATH, |path| path.0),
            charged: false,
        }
    }

    /// Splits off the first `payload_bytes` as a fragment of their own.
    #[inline]
    pub(in crate::outbound) fn split_front(&mut self, payload_bytes: usize) -> Chunk {
        let beginning = std::mem::replace(&mut self.flags.beginning, false);
        Chunk {
            payload: self.payload.split_to(payload_bytes),
            flags: DataFlags { beginning, ending: false, immediate: false, ..self.flags },
            charged: false,
            ..*self
        }
    }

    /// Returns the path that the message names.
    #[inline]
    pub(in crate::outbound) fn named_path(&self) -> Option<usize> {
        (self.path != ANY_PATH).then_some(self.path.into())
    }

    #[inline]
    pub(in crate::outbound) fn wire_bytes(&self) -> usize {
        wire_bytes(self.payload.len())
    }

    /// Returns the chunk's share of the send buffer.
    #[inline]
    pub(in crate::outbound) fn buffered_bytes(&self) -> usize {
        self.payload.len() + if self.charged { MESSAGE_OVERHEAD_BYTES } else { 0 }
    }

    /// Returns whether the chunk is in flight in this packet of this path.
    #[inline]
    pub(super) fn is_in(&self, packet: u32, path_id: usize) -> bool {
        self.state == ChunkState::InFlight && self.packet == packet && usize::from(self.path) == path_id
    }

    /// Returns whether the chunk is in flight on this path.
    #[inline]
    pub(super) fn is_on(&self, path_id: usize) -> bool {
        self.state == ChunkState::InFlight && usize::from(self.path) == path_id
    }

    /// Frees the payload. Returns its share of the send buffer.
    pub(super) fn free(&mut self) -> usize {
        let bytes = self.buffered_bytes();
        (self.payload, self.charged) = (Bytes::new(), false);
        bytes
    }

    /// Describes the chunk to the user as not delivered. The description omits the request for an immediate SACK.
    pub(in crate::outbound) fn failure(&self, was_sent: bool) -> SendFailure {
        let info = SendInfo {
            stream: self.stream,
            ppid: self.ppid,
            unordered: self.flags.unordered,
            context: self.context,
            ..SendInfo::default()
        };
        SendFailure {
            info,
            data: self.payload.clone(),
            was_sent,
            beginning: self.flags.beginning,
            ending: self.flags.ending,
            cause: 0,
        }
    }
}

/// Returns the length of a DATA chunk with this much payload, with header and padding.
#[inline]
pub(in crate::outbound) fn wire_bytes(payload_bytes: usize) -> usize {
    DATA_HEADER_BYTES + payload_bytes.next_multiple_of(4)
}
