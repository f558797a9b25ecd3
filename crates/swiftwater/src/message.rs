//! Messages, sent and received.

use std::time::Duration;

use bytes::Bytes;
use sctp::PathId;
use streams::{Chain, Control, Kind};
use tpi::{Primitive, TransferFlags, TransferInfo};

/// Says how a message is sent (`struct sctp_sndinfo`, RFC 6458 §5.3.4).
///
/// ```
/// use swiftwater::SendInfo;
///
/// let urgent = SendInfo { unordered: true, ..SendInfo::stream(3) };
/// assert_eq!((urgent.stream, urgent.more), (3, false));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendInfo {
    /// The stream (`snd_sid`), less than the association's `streams_out`. Messages of one stream arrive in order; streams do not
    /// wait for each other. Default: 0.
    pub stream: u16,
    /// Payload protocol identifier (`snd_ppid`, RFC 9260 §3.3.1), which SCTP passes through. Default: 0.
    pub ppid: u32,
    /// Deliver the message as soon as it arrives, whatever is missing before it (`SCTP_UNORDERED`).
    pub unordered: bool,
    /// The record goes on with the next send: sends are put together as in a byte stream (`T_MORE`).
    pub more: bool,
    /// Ask the peer to acknowledge at once (I bit, RFC 7053; `SCTP_SACK_IMMEDIATELY`).
    pub immediate: bool,
    /// A number that comes back with the message in [`Event::SendFailed`](crate::Event::SendFailed) if it cannot be delivered
    /// (`snd_context`).
    pub context: u32,
    /// Discard the message if none of it was sent within this time (`sinfo_timetolive`), rounded up to milliseconds. A message
    /// that waits behind others is discarded when its turn comes. Parts of a record are never discarded. Default (`None`): no
    /// limit.
    pub lifetime: Option<Duration>,
    /// The path of the first transmission, in place of the primary path ([`Association::path_to`](crate::SharedAssociation::path_to)):
    /// while that path does not answer, and for retransmissions, the message goes where other data goes (`SCTP_ADDR_OVER`).
    /// Messages that are sent after it wait for it. Default: none.
    pub path: Option<PathId>,
}

impl SendInfo {
    /// Returns the defaults on this stream.
    pub fn stream(stream: u16) -> Self {
        SendInfo { stream, ..SendInfo::default() }
    }

    #[inline]
    pub(crate) fn transfer(&self, association: u32) -> TransferInfo {
        let mut flags = TransferFlags::NONE;
        if self.unordered {
            flags |= TransferFlags::UNORDERED;
        }
        if self.more {
            flags |= TransferFlags::MORE;
        }
        if self.immediate {
            flags |= TransferFlags::IMMEDIATE;
        }
        TransferInfo {
            association,
            stream: self.stream,
            ppid: self.ppid,
            context: self.context,
            by_direction: self.lifetime.map_or(0, whole_ms),
            flags,
            ..TransferInfo::default()
        }
        .with_path(self.path.map(|path| path.0))
    }

    /// Returns what [`Event::SendFailed`](crate::Event::SendFailed) tells of a message that was not delivered.
    pub(crate) fn returned(info: &TransferInfo) -> Self {
        SendInfo {
            stream: info.stream,
            ppid: info.ppid,
            unordered: info.flags.contains(TransferFlags::UNORDERED),
            context: info.context,
            ..SendInfo::default()
        }
    }
}

/// Returns the time in milliseconds, rounded up.
fn whole_ms(lifetime: Duration) -> u32 {
    u32::try_from(lifetime.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1)
}

/// Describes a message that was received (`struct sctp_rcvinfo`, RFC 6458 §5.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvInfo {
    /// Length in bytes of this message, or of the part of it that the call returned.
    pub bytes: usize,
    /// The stream that it came on (`rcv_sid`).
    pub stream: u16,
    /// Its stream sequence number (`rcv_ssn`).
    pub ssn: u16,
    /// Payload protocol identifier (`rcv_ppid`).
    pub ppid: u32,
    /// TSN of its first DATA chunk (`rcv_tsn`).
    pub tsn: u32,
    /// The cumulative TSN when the message was delivered (`rcv_cumtsn`).
    pub cumulative_tsn: u32,
    /// Whether it was sent unordered (`SCTP_UNORDERED`).
    pub unordered: bool,
    /// Whether the message ends here (`MSG_EOR`). Otherwise the buffer was too small, or the message is delivered in parts: the
    /// next call continues it.
    pub end_of_record: bool,
}

impl RecvInfo {
    #[inline]
    pub(crate) fn new(bytes: usize, info: &TransferInfo, end_of_record: bool) -> Self {
        RecvInfo {
            bytes,
            stream: info.stream,
            ssn: info.ssn,
            ppid: info.ppid,
            tsn: info.tsn,
            cumulative_tsn: info.cumulative_tsn(),
            unordered: info.flags.contains(TransferFlags::UNORDERED),
            end_of_record,
        }
    }
}

/// A received message. Its bytes lie in the blocks that they were received in.
///
/// A message that is kept keeps its receive blocks in memory; a copy by [`Message::to_vec`] does not.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its stream, payload protocol identifier and length.
    pub info: RecvInfo,
    pub(crate) data: Chain,
}

impl Message {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Returns whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns the bytes in the blocks that they arrived in, without a copy.
    pub fn blocks(&self) -> &[Bytes] {
        self.data.blocks()
    }

    /// Returns the bytes in one block; copies them if they arrived in several.
    pub fn into_bytes(self) -> Bytes {
        to_bytes(&self.data)
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.data.blocks().concat()
    }
}

pub(crate) fn from_block(message: streams::Message) -> Message {
    let info = match message.kind {
        Kind::Proto(Control::Tpi(Primitive::OptdataInd(info))) => info,
        _ => TransferInfo::default(),
    };
    Message { info: RecvInfo::new(message.data.len(), &info, !info.more()), data: message.data }
}

pub(crate) fn window_bytes(data: &Chain) -> usize {
    data.len()
}

/// Returns the bytes in one block; copies them if they lie in several.
pub(crate) fn to_bytes(data: &Chain) -> Bytes {
    match data.blocks() {
        [] => Bytes::new(),
        [one] => one.clone(),
        many => many.concat().into(),
    }
}

pub(crate) fn to_text(text: &Chain) -> String {
    String::from_utf8_lossy(&text.blocks().concat()).into_owned()
}

/// Names an association of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AssociationId(pub(crate) u32);
