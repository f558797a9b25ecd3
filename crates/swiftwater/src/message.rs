//! What is sent and received.

use std::time::Duration;

use bytes::Bytes;
use sctp::PathId;
use streams::{Chain, Control, Kind};
use tpi::{Primitive, TransferFlags, TransferInfo};

/// What travels with a message that is sent (RFC 6458 §5.3.4).
///
/// ```
/// use swiftwater::SendInfo;
///
/// let urgent = SendInfo { unordered: true, ..SendInfo::stream(3) };
/// assert_eq!((urgent.stream, urgent.more), (3, false));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendInfo {
    /// The stream. Messages of one stream arrive in order; streams do not wait for each other.
    pub stream: u16,
    /// Payload protocol identifier; passed through unseen.
    pub ppid: u32,
    /// Deliver it as soon as it arrives, whatever else is missing.
    pub unordered: bool,
    /// The record goes on with the next message: writes are put together as in a byte stream (`T_MORE`).
    pub more: bool,
    /// Ask the peer to acknowledge at once (RFC 7053).
    pub immediate: bool,
    /// Comes back with the message in [`Event::SendFailed`](crate::Event::SendFailed) if it cannot be delivered.
    pub context: u32,
    /// Discard the message if none of it was sent within this time (`sinfo_timetolive`), counted in milliseconds. What waits
    /// behind others is discarded when its turn comes. It does not hold for parts of a record. `None`: it is sent however long
    /// that takes.
    pub lifetime: Option<Duration>,
    /// The path that it takes when it is first sent, whatever path data goes ([`Association::path_to`](crate::SharedAssociation::path_to)):
    /// while that path does not answer, and where it has to be sent again, the message goes where data goes (`SCTP_ADDR_OVER`).
    /// What is sent behind it waits for it.
    pub path: Option<PathId>,
}

impl SendInfo {
    /// On this stream, otherwise as usual.
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

    /// What comes back with a message that was not delivered.
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

/// In milliseconds, of which a begun one counts.
fn whole_ms(lifetime: Duration) -> u32 {
    u32::try_from(lifetime.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1)
}

/// What travels with a message that is received (RFC 6458 §5.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvInfo {
    /// Bytes of this message, or of the part of it that the call returned.
    pub bytes: usize,
    /// The stream it came on.
    pub stream: u16,
    /// Its sequence number within the stream.
    pub ssn: u16,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// TSN of its first chunk.
    pub tsn: u32,
    /// The TSN up to which everything had arrived when the message was handed on (`rcv_cumtsn`).
    pub cumulative_tsn: u32,
    /// It was sent unordered.
    pub unordered: bool,
    /// The message ends here (`MSG_EOR`). False: the buffer was too small, or it is delivered in parts; the
    /// next call goes on.
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

/// A received message. Its bytes lie where the link put them.
///
/// Keeping one keeps the receive block that it lies in: [`Message::to_vec`] makes a copy that does not.
#[derive(Clone, Debug)]
pub struct Message {
    /// What came with it.
    pub info: RecvInfo,
    pub(crate) data: Chain,
}

impl Message {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The bytes in the blocks they arrived in, without a copy.
    pub fn blocks(&self) -> &[Bytes] {
        self.data.blocks()
    }

    /// The bytes in one block; copied if they arrived in several.
    pub fn into_bytes(self) -> Bytes {
        to_bytes(&self.data)
    }

    /// A copy of the bytes.
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

/// In one block; copied if there are several.
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
