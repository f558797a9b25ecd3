//! What is sent and received.

use bytes::Bytes;
use streams::{Chain, Kind};
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
        TransferInfo { association, stream: self.stream, ppid: self.ppid, flags, ..TransferInfo::default() }
    }
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
        match self.data.blocks() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.data.blocks().concat()
    }
}

pub(crate) fn from_block(message: streams::Message) -> Message {
    let info = match message.kind {
        Kind::Proto(Primitive::OptdataInd(info)) => info,
        _ => TransferInfo::default(),
    };
    Message { info: RecvInfo::new(message.data.len(), &info, !info.more()), data: message.data }
}

pub(crate) fn to_text(text: &Chain) -> String {
    String::from_utf8_lossy(&text.blocks().concat()).into_owned()
}

/// Names an association of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AssociationId(pub(crate) u32);

/// What an [`Endpoint`](crate::Endpoint) receives.
#[derive(Clone, Debug)]
pub enum Received {
    /// A message.
    Message(Message),
    /// Something happened to an association.
    Event(Event),
}

/// What happens to an association (RFC 6458 §6.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is up.
    Up,
    /// The peer has lost its memory and connected again (RFC 6458 SCTP_RESTART). The association goes on as a new one;
    /// the text says what is lost.
    Restarted(String),
    /// The peer sends no more.
    PeerShutdown,
    /// It is gone; `None` if both sides shut down, otherwise the reason.
    Down(Option<String>),
}
