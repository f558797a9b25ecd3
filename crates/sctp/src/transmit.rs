//! Output of the core to a link: batches of packets, gathered from blocks.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use bytes::Bytes;
use sctp_wire::checksum::Digest;
use sctp_wire::packet;

use crate::config::Checksum;

/// Payloads of at least this length are referred to; shorter ones are copied behind their header.
pub(crate) const GATHER_BYTES_MIN: usize = 2048;

/// Maximum size of a message that is copied to the others that wait, because nothing else keeps its bytes.
pub(crate) const COPIED_BYTES_MAX: usize = 8 * 1024;

/// Limits of the link for one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum number of packets.
    pub segments_max: usize,
    /// Maximum number of bytes of all packets together.
    pub bytes_max: usize,
}

/// Selects the associations that may transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Associations with a full batch or window, with nothing outstanding, or with control chunks.
    Due,
    /// All associations with anything to send.
    All,
}

/// A batch of packets for one destination. Each packet has `segment_bytes`; only the last may be shorter. The
/// [`TransmitBuffer`] contains the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination; the port is the peer's UDP encapsulation port.
    pub remote: SocketAddr,
    /// The local address to send from; `None` if the link may choose.
    pub local: Option<IpAddr>,
    /// Whether routers may mark the packets instead of dropping them (ECT(0), RFC 3168).
    pub ecn_capable: bool,
    /// The differentiated services codepoint, 0 to 63.
    pub dscp: u8,
    /// Whether routers may fragment the packets. Otherwise a packet that exceeds the path MTU is lost (DF bit), which
    /// path MTU discovery detects (RFC 8899).
    pub may_fragment: bool,
    /// Whether the destination has answered lately: a confirmed address whose path is not potentially failed (RFC 7829). The
    /// system may keep packets to other destinations for seconds, as Linux does for a neighbour that does not answer ARP, so a
    /// link sends these without keeping others waiting.
    pub is_answering: bool,
    /// Length of each packet but the last.
    pub segment_bytes: usize,
    /// Length of all packets together.
    pub total_bytes: usize,
}

/// A piece of a batch, in order.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A range of [`TransmitBuffer::inline`].
    Inline(Range<usize>),
    /// A block that the batch refers to.
    Shared(Bytes),
}

/// Memory of a batch, reused for each batch.
#[derive(Debug, Default)]
pub struct TransmitBuffer {
    inline: Vec<u8>,
    pieces: Vec<Piece>,
    /// End of the inline bytes that `pieces` covers.
    covered: usize,
    total_bytes: usize,
    packet: PacketMark,
    /// Whether packets get their checksums by [`TransmitBuffer::write_checksums`], and not when they end.
    defers_checksums: bool,
    /// A block that the batch refers to has several chunks.
    refers_to_runs: bool,
    /// The packets whose checksums are missing.
    unsummed: Vec<PacketMark>,
}

/// Returns the length of the padding behind user data.
#[inline]
pub(crate) fn padding_bytes(payload: &[u8]) -> usize {
    payload.len().wrapping_neg() & 3
}

/// Offset of the packet that is being built.
#[derive(Debug, Default, Clone, Copy)]
struct PacketMark {
    inline_start: usize,
    piece_start: usize,
    total_start: usize,
}

impl TransmitBuffer {
    /// Returns an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty buffer in which packets have no checksum before [`TransmitBuffer::write_checksums`]. A packet that
    /// returns to its endpoint in memory needs none ([`Arrival::in_memory`](crate::Arrival::in_memory)).
    pub fn deferring_checksums() -> Self {
        TransmitBuffer { defers_checksums: true, ..Self::default() }
    }

    /// Writes the checksums that are missing (RFC 9260 §6.8).
    pub fn write_checksums(&mut self) {
        let mut unsummed = std::mem::take(&mut self.unsummed);
        let mut end = self.pieces.len();
        for mark in unsummed.drain(..).rev() {
            self.write_checksum(mark, end);
            end = mark.piece_start;
        }
        // The list keeps its memory for the next batch.
        self.unsummed = unsummed;
    }

    /// Returns the bytes that [`Piece::Inline`] refers to.
    pub fn inline(&self) -> &[u8] {
        &self.inline
    }

    /// Returns the pieces of the batch in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns whether the receiver may keep a block that the batch refers to, if the packet returns to its endpoint in memory
    /// ([`Arrival::shared`](crate::Arrival::shared)). It may if the block is the user data of one DATA chunk, and longer than
    /// messages that the send buffer copies into a block with others, which a receiver would keep with it.
    pub fn may_share(&self, block: &Bytes) -> bool {
        !self.refers_to_runs && block.len() > COPIED_BYTES_MAX
    }

    /// Returns the batch in one piece, for links that cannot gather and for tests.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.total_bytes);
        for piece in &self.pieces {
            match piece {
                Piece::Inline(range) => out.extend_from_slice(&self.inline[range.clone()]),
                Piece::Shared(bytes) => out.extend_from_slice(bytes),
            }
        }
        out
    }

    pub(crate) fn clear(&mut self) {
        self.inline.clear();
        self.pieces.clear();
        self.unsummed.clear();
        self.covered = 0;
        self.total_bytes = 0;
        self.refers_to_runs = false;
    }

    /// Returns the length of the batch so far.
    pub(crate) fn total_bytes(&self) -> usize {
        self.total_bytes + (self.inline.len() - self.covered)
    }

    /// Starts a packet; the caller writes the common header next.
    pub(crate) fn begin_packet(&mut self) {
        self.cover();
        self.packet = PacketMark {
            inline_start: self.inline.len(),
            piece_start: self.pieces.len(),
            total_start: self.total_bytes,
        };
    }

    /// Returns whether the packet being built is the first of the batch, which sets the length of the others.
    #[inline]
    pub(crate) fn is_first_packet(&self) -> bool {
        self.packet.total_start == 0
    }

    /// Returns the length of the packet that is being built.
    #[inline]
    pub(crate) fn packet_bytes(&self) -> usize {
        self.total_bytes() - self.packet.total_start
    }

    /// Returns the buffer to which chunk headers and short payloads are appended.
    #[inline]
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.inline
    }

    /// Appends a payload and its padding. `is_single`: it is the user data of one chunk; otherwise further chunks follow in it.
    #[inline]
    pub(crate) fn payload(&mut self, payload: &Bytes, is_single: bool) {
        if payload.len() < GATHER_BYTES_MIN {
            self.inline.extend_from_slice(payload);
        } else {
            self.cover();
            self.refers_to_runs |= !is_single;
            self.total_bytes += payload.len();
            self.pieces.push(Piece::Shared(payload.clone()));
        }
        self.inline.extend_from_slice(&[0; 3][..padding_bytes(payload)]);
    }

    /// Ends the packet and writes its checksum (RFC 9260 §6.8), unless the buffer defers that.
    pub(crate) fn end_packet(&mut self, checksum: Checksum) {
        self.cover();
        match checksum {
            Checksum::None => {}
            Checksum::Crc32c if self.defers_checksums => self.unsummed.push(self.packet),
            Checksum::Crc32c => self.write_checksum(self.packet, self.pieces.len()),
        }
    }

    /// Writes the checksum of a packet whose last piece is in front of `piece_end`.
    fn write_checksum(&mut self, packet: PacketMark, piece_end: usize) {
        let mut digest = Digest::new();
        for piece in &self.pieces[packet.piece_start..piece_end] {
            match piece {
                Piece::Inline(range) => digest.update(&self.inline[range.clone()]),
                Piece::Shared(bytes) => digest.update(bytes),
            }
        }
        packet::store_checksum(&mut self.inline[packet.inline_start..], digest.finalize());
    }

    /// Returns the pieces of the last finished packet in order.
    pub(crate) fn last_packet(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces[self.packet.piece_start..].iter().map(|piece| match piece {
            Piece::Inline(range) => &self.inline[range.clone()],
            Piece::Shared(bytes) => &bytes[..],
        })
    }

    /// Discards the packet that is being built.
    pub(crate) fn drop_packet(&mut self) {
        self.inline.truncate(self.packet.inline_start);
        self.pieces.truncate(self.packet.piece_start);
        self.covered = self.packet.inline_start;
        self.total_bytes = self.packet.total_start;
    }

    /// Makes the inline bytes written since the last piece a piece. Packets do not share a piece, so that a checksum covers whole
    /// pieces.
    fn cover(&mut self) {
        if self.covered < self.inline.len() {
            self.total_bytes += self.inline.len() - self.covered;
            self.pieces.push(Piece::Inline(self.covered..self.inline.len()));
            self.covered = self.inline.len();
        }
    }
}
