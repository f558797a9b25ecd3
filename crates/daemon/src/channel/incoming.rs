//! The records and events that a read of a carrier returns.

use bytes::Bytes;
use carrier::record::{Flags, HEADER_BYTES, Header};

use crate::system::quantum;

/// Size of a filler record: two or three fill a carrier so far that it does not poll writable.
pub(super) const FILLER_BYTES: usize = 32 * 1024;

/// A record or an event from the program.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message.
    Message(Header, Bytes),
    /// A record whose only purpose is to keep the carrier from polling writable.
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

    /// Returns the number of bytes of the record in the carrier.
    pub(crate) fn record_bytes(&self) -> u64 {
        match self {
            Incoming::Message(header, _) if header.flags.contains(Flags::IN_MEMFD) => HEADER_BYTES as u64,
            Incoming::Message(_, content) => (HEADER_BYTES + content.len()) as u64,
            Incoming::Filler => (HEADER_BYTES + FILLER_BYTES) as u64,
            Incoming::Empty | Incoming::End | Incoming::Unread | Incoming::Malformed => 0,
        }
    }
}
