//! The records and events that a read of a pair returns.

use bytes::Bytes;
use channel_protocol::record::Header;

use crate::users::quantum;

/// Size of a filler record: two or three fill a pair so far that it does not poll writable.
pub(super) const FILLER_BYTES: usize = 32 * 1024;

/// A record or an event from the program.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message.
    Message(Header, Bytes),
    /// A record whose only purpose is to keep the pair from polling writable.
    Filler,
    /// An empty record, which is easily mistaken for the end. A program writes it past the shim.
    Empty,
    /// The program has shut down sending.
    End,
    /// The program has closed its end with unread records. This is reported once, and records that the program has sent may
    /// follow.
    Unread,
    /// The program has sent a malformed record.
    Malformed,
}

impl Incoming {
    /// Returns the weight of the record in the turn of a task.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Incoming::Message(_, content) => quantum::weight(content.len()),
            Incoming::Filler | Incoming::Empty | Incoming::End | Incoming::Unread | Incoming::Malformed => 1,
        }
    }
}
