//! Messages that are delivered together.

use std::ops::Range;

use bytes::Bytes;
use sctp_message::RecvInfo;
use sctp_wire::chunk::{DATA_HEADER_BYTES, DataHeader};

/// Whole ordered messages of one stream that arrived in one packet, one behind the other: their DATA chunks as
/// received.
///
/// A reader that takes the messages one by one finds each with [`RunMessage::first`], which costs neither a queue entry
/// nor a reference for each message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRun {
    /// The DATA chunks.
    pub bytes: Bytes,
    /// Number of messages.
    pub messages: usize,
    /// Bytes of their user data.
    pub payload_bytes: usize,
    /// Charge to the receive buffer beyond the user data, released with the last message
    /// ([`Endpoint::consumed`](crate::Endpoint::consumed)).
    pub charges: usize,
}

impl ReceivedRun {
    /// Returns the messages one by one, each with its share of [`ReceivedRun::charges`].
    pub fn messages(&self) -> impl Iterator<Item = (RecvInfo, Bytes, usize)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let RunMessage { info, payload, wire_bytes } = RunMessage::first(&self.bytes[at..])?;
            let payload = self.bytes.slice(at + payload.start..at + payload.end);
            at += wire_bytes;
            let charges = if at == self.bytes.len() { self.charges } else { 0 };
            Some((info, payload, charges))
        })
    }
}

/// The message at the front of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMessage {
    /// Description of the message.
    pub info: RecvInfo,
    /// Range of its user data.
    pub payload: Range<usize>,
    /// Offset of the next message.
    pub wire_bytes: usize,
}

impl RunMessage {
    /// Reads the first message of the rest of a run; `None` if the rest is empty.
    #[inline]
    pub fn first(bytes: &[u8]) -> Option<RunMessage> {
        let front = bytes.first_chunk()?;
        let header = DataHeader::read(front);
        let (tsn, ssn) = DataHeader::numbers(front);
        let payload = DATA_HEADER_BYTES..DATA_HEADER_BYTES + header.payload_bytes;
        // Every chunk of a run was parsed when it came. The padding of the last may be missing.
        if payload.is_empty() || payload.end > bytes.len() {
            return None;
        }
        Some(RunMessage {
            info: RecvInfo {
                stream: header.stream.0,
                ssn: ssn.0,
                ppid: header.ppid.0,
                tsn: tsn.0,
                // The messages of a run arrived in order, and no earlier message was missing.
                cumulative_tsn: tsn.0,
                unordered: false,
                more: false,
            },
            payload,
            wire_bytes: header.wire_bytes().min(bytes.len()),
        })
    }
}
