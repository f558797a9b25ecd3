//! Messages, sent and received.

use bytes::Bytes;
use sctp::RecvInfo;
use streams::{Chain, Control, Kind};
use tpi::Primitive;

/// A received message, or a part of a long one ([`RecvInfo::more`]). Its bytes are slices of the blocks in which they were
/// received.
///
/// A stored message keeps its receive blocks in memory; a copy by [`Message::to_vec`] does not.
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
