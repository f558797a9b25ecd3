//! Messages, sent and received.

use bytes::Bytes;
use links::BLOCK_BYTES;
use sctp::RecvInfo;
use streams::{Chain, Control, Kind};
use tpi::Primitive;

/// Messages shorter than this are copied out of their receive block by [`Message::into_bytes`].
const KEPT_BYTES_MIN: usize = BLOCK_BYTES / 8;

/// A received message, or a part of a long one ([`RecvInfo::more`]). Its bytes are slices of the blocks in which they were
/// received.
///
/// A stored message keeps its receive blocks in memory, and so do clones of [`Message::blocks`]: 256 KiB for a single byte, or
/// the whole message of a sender on the same stack, which has [`hairpin`](crate::StackOptions::hairpin). The bytes of
/// [`Message::into_bytes`] and [`Message::to_vec`] do not.
#[derive(Clone, Debug)]
pub struct Message {
    /// The stream, payload protocol identifier and sequence numbers of the message.
    pub info: RecvInfo,
    pub(crate) data: Chain,
}

impl Message {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Returns whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns the bytes in the blocks in which they arrived, without a copy.
    pub fn blocks(&self) -> &[Bytes] {
        self.data.blocks()
    }

    /// Returns the bytes in one block; copies them if they arrived in several, or are shorter than 32 KiB. So they keep at most
    /// eight times their length in memory, also where they wait to be sent. A part of a message from the same stack, which has
    /// [`hairpin`](crate::StackOptions::hairpin), may keep the block that its sender gave for the whole message.
    pub fn into_bytes(self) -> Bytes {
        match self.data.blocks() {
            [one] if one.len() < KEPT_BYTES_MIN => Bytes::copy_from_slice(one),
            _ => to_bytes(&self.data),
        }
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.data.blocks().concat()
    }
}

pub(crate) fn from_block(message: streams::Message) -> Message {
    let info = match message.kind {
        Kind::Proto(Control::Tpi(Primitive::OptdataInd { info, .. })) => info,
        _ => RecvInfo::default(),
    };
    Message { info, data: message.data }
}

pub(crate) fn window_bytes(data: &Chain) -> usize {
    data.len()
}

/// Returns the bytes in one block; copies them if they are in several.
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
