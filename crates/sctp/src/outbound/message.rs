//! Messages that wait as blocks: those that are not short, parts of records, and those with a lifetime.

use bytes::Bytes;
use sctp_message::{PathId, SendInfo};
use sctp_wire::chunk::{DATA_HEADER_BYTES, Data, DataFlags, DataHeader};
use sctp_wire::{Ppid, Ssn, StreamId};

use super::run::{Run, Status, Taken, failure, wire_bytes};
use super::short::Short;
use crate::config::MESSAGE_OVERHEAD_BYTES;
use crate::event::SendFailure;
use crate::packet_number::PacketNumber;
use crate::send_pool::BlockCharge;
use crate::tsn;

/// A message whose bytes lie in a block, or what is left of it when fragments have been sent.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) payload: Bytes,
    pub(super) flags: DataFlags,
    pub(super) stream: StreamId,
    pub(super) ppid: Ppid,
    pub(super) context: u32,
    pub(super) path: Option<PathId>,
    /// Whether the send buffer charges the overhead of the message here: to the last part of each send.
    pub(super) charged: bool,
    /// The charge for the block of short messages that the bytes lie in.
    pub(super) charge: Option<BlockCharge>,
    /// The charge for the owner's memory that the bytes lie in, or for the message itself. The last fragment has that of all,
    /// until the cumulative TSN passes it.
    pub(super) owned_bytes: u32,
}

impl Message {
    /// Takes the first of short messages out of the others.
    pub(super) fn take_first(short: &mut Short) -> Option<Self> {
        let header = short.first()?;
        let mut payload = short.wire.split_to(header.wire_bytes()).freeze().split_off(DATA_HEADER_BYTES);
        payload.truncate(header.payload_bytes);
        short.messages -= 1;
        let DataHeader { flags, stream, ppid, .. } = header;
        Some(Message {
            payload,
            flags,
            stream,
            ppid,
            context: short.context,
            path: short.path,
            charged: true,
            charge: short.charge.clone(),
            owned_bytes: 0,
        })
    }

    #[inline]
    pub(super) fn new(payload: Bytes, info: &SendInfo, beginning: bool) -> Self {
        let owned_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        Message {
            payload,
            flags: DataFlags { immediate: false, unordered: info.unordered, beginning, ending: false },
            stream: StreamId(info.stream),
            ppid: Ppid(info.ppid),
            context: info.context,
            path: info.path,
            charged: false,
            charge: None,
            owned_bytes,
        }
    }

    /// Marks the end of a send.
    #[inline]
    pub(super) fn end(&mut self, info: &SendInfo) {
        (self.flags.ending, self.flags.immediate) = (!info.more, info.immediate);
        self.charged = true;
    }

    #[inline]
    pub(super) fn wire_bytes(&self) -> usize {
        wire_bytes(self.payload.len())
    }

    /// Returns everything that the message takes.
    #[inline]
    pub(super) fn taken(&self) -> Taken {
        let overhead_bytes = if self.charged { MESSAGE_OVERHEAD_BYTES } else { 0 };
        let buffered_bytes = self.payload.len() + overhead_bytes;
        Taken { buffered_bytes, owned_bytes: self.owned_bytes as usize }
    }

    /// Splits off the first `payload_bytes` as a fragment of their own.
    #[inline]
    pub(super) fn split_front(&mut self, payload_bytes: usize) -> Message {
        let flags = DataFlags { ending: false, immediate: false, ..self.flags };
        self.flags.beginning = false;
        let (payload, charge) = (self.payload.split_to(payload_bytes), self.charge.clone());
        Message { payload, flags, charged: false, charge, owned_bytes: 0, ..*self }
    }

    /// Makes the message the only chunk of a run.
    #[inline]
    pub(super) fn into_run(self, first: u64, ssn: Ssn) -> Run {
        let bytes = self.payload.len();
        Run {
            first,
            chunks: 1,
            charged: u32::from(self.charged),
            payload_bytes: bytes,
            head: Data::header_bytes(self.flags, tsn::wrap(first), self.stream, ssn, self.ppid, bytes),
            body: self.payload,
            charge: self.charge,
            owned_bytes: self.owned_bytes,
            context: self.context,
            packet: PacketNumber::default(),
            path: PathId(0),
            status: Status::NEW,
        }
    }

    pub(super) fn failure(&self) -> SendFailure {
        let Message { flags, stream, ppid, .. } = *self;
        let header = DataHeader { flags, stream, ppid, payload_bytes: self.payload.len() };
        failure(header, self.context, self.payload.clone(), false)
    }
}
