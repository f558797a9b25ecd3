//! Short messages in wire form.
//!
//! They are written as DATA chunks at once, one behind the other, and leave as they lie there. Only their TSN and their stream
//! sequence number are missing until then: how many chunks a longer message before them becomes is not known earlier.

use bytes::{Buf, Bytes, BytesMut};
use sctp_message::{PathId, SendInfo};
use sctp_wire::chunk::{Data, DataFlags, DataHeader};
use sctp_wire::{Ppid, Ssn, StreamId, Tsn};

use super::run::{Run, Status, Walk, failure, take_header};
#[cfg(feature = "testing")]
use crate::config::MESSAGE_OVERHEAD_BYTES;
use crate::event::SendFailure;
use crate::packet_number::PacketNumber;
use crate::send_pool::BlockCharge;
use crate::stream_table::StreamTable;
use crate::tsn;

/// The stream sequence numbers of the messages that are sent next.
#[derive(Debug, Default)]
pub(super) struct NextSsn(StreamTable<u16>);

impl NextSsn {
    /// Returns the most memory that the numbers of this many streams take.
    pub(super) fn bytes_max(streams: u16) -> usize {
        StreamTable::<u16>::bytes_max(streams)
    }

    /// Returns the stream sequence number for a chunk that is sent for the first time. A message that was discarded unsent leaves
    /// no gap. The fragments of a message are consecutive and share one number.
    #[inline]
    pub(super) fn take(&mut self, flags: DataFlags, stream: StreamId) -> Ssn {
        if flags.unordered {
            return Ssn(0);
        }
        let next = self.0.get_mut(stream.0);
        if flags.beginning {
            *next = next.wrapping_add(1);
        }
        Ssn(next.wrapping_sub(1))
    }
}

/// Limits of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunLimits {
    /// Room in the packet.
    pub(super) wire_bytes: usize,
    /// Room in the peer's window.
    pub(super) window_bytes: usize,
    /// Largest payload of a chunk.
    pub(super) payload_bytes_max: usize,
    pub(super) chunks: usize,
    /// The last message of all that wait asks for a SACK at once.
    pub(super) immediate: bool,
}

/// Facts about the chunks of a new run that their sender counts or acts on.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NewChunks {
    pub(super) unordered: u64,
    /// Messages whose first fragment is here, and not their last.
    pub(super) fragmented: u64,
    /// One of them asks for a SACK at once.
    pub(super) immediate: bool,
}

/// Short messages in wire form, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Short {
    pub(super) wire: BytesMut,
    /// The charge for the block that they lie in.
    pub(super) charge: Option<BlockCharge>,
    pub(super) messages: usize,
    pub(super) context: u32,
    pub(super) path: Option<PathId>,
}

impl Short {
    /// Appends a message. The caller has made room for it.
    #[inline]
    pub(super) fn push<B: AsRef<[u8]>>(
        &mut self,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = B>,
    ) {
        let flags = DataFlags { immediate: info.immediate, unordered: info.unordered, ..DataFlags::WHOLE };
        let header = Data::header_bytes(flags, Tsn(0), StreamId(info.stream), Ssn(0), Ppid(info.ppid), bytes);
        self.wire.extend_from_slice(&header);
        for block in blocks {
            self.wire.extend_from_slice(block.as_ref());
        }
        let padding = bytes.wrapping_neg() & 3;
        if padding > 0 {
            self.wire.extend_from_slice(&[0; 3][..padding]);
        }
        self.messages += 1;
    }

    /// Returns the header of the first message.
    #[inline]
    pub(super) fn first(&self) -> Option<DataHeader> {
        self.wire.first_chunk().map(DataHeader::read)
    }

    /// Numbers as many messages as fit, and cuts them off. `None` if not even one fits.
    #[inline]
    pub(super) fn take(
        &mut self,
        first: u64,
        limits: &RunLimits,
        ssn: &mut NextSsn,
    ) -> Option<(Run, NewChunks)> {
        let (mut last, mut at, mut chunks, mut payload_bytes) = (0, 0, 0, 0);
        let mut new = NewChunks::default();
        let wire = &mut self.wire[..];
        while chunks < limits.chunks
            && let Some(bytes) = wire.get_mut(at..).and_then(<[u8]>::first_chunk_mut)
        {
            let header = DataHeader::read(bytes);
            let end = at + header.wire_bytes();
            if end > limits.wire_bytes
                || header.payload_bytes > limits.payload_bytes_max
                || payload_bytes + header.payload_bytes > limits.window_bytes
            {
                break;
            }
            let number = tsn::wrap(first + chunks as u64);
            DataHeader::set_numbers(bytes, number, ssn.take(header.flags, header.stream));
            new.unordered += u64::from(header.flags.unordered);
            new.immediate |= header.flags.immediate;
            payload_bytes += header.payload_bytes;
            (last, at) = (at, end);
            chunks += 1;
        }
        if chunks == 0 {
            return None;
        }
        if limits.immediate
            && at == wire.len()
            && let Some(bytes) = wire[last..].first_chunk_mut()
        {
            DataHeader::set_immediate(bytes);
            new.immediate = true;
        }
        self.messages -= chunks;
        let mut body = self.wire.split_to(at).freeze();
        let head = take_header(&mut body);
        let run = Run {
            first,
            chunks: chunks as u32,
            charged: chunks as u32,
            payload_bytes,
            head,
            body,
            charge: self.charge.clone(),
            owned_bytes: 0,
            context: self.context,
            packet: PacketNumber::default(),
            path: PathId(0),
            status: Status::NEW,
        };
        Some((run, new))
    }

    /// Removes the first message and returns its header.
    pub(super) fn drop_first(&mut self) -> Option<DataHeader> {
        let header = self.first()?;
        self.wire.advance(header.wire_bytes());
        self.messages -= 1;
        Some(header)
    }

    /// Returns header and user data of each message.
    pub(super) fn iter(&self) -> impl Iterator<Item = (DataHeader, &[u8])> {
        let first = self.wire.split_first_chunk().into_iter();
        first.flat_map(|(head, body)| {
            Walk::new(head, body).map(|chunk| (chunk.header, &body[chunk.payload()]))
        })
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = SendFailure> {
        self.iter().map(|(header, data)| failure(header, self.context, Bytes::copy_from_slice(data), false))
    }

    #[cfg(feature = "testing")]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.iter().map(|(_, data)| data.len() + MESSAGE_OVERHEAD_BYTES).sum()
    }
}
