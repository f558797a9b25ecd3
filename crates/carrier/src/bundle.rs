//! Reading records that may hold several messages.
//!
//! The sharers' page contains the position up to which a record was read, and any sharer may write any number there. So
//! this code checks every number from the page, and its results stay within the record.

use crate::record::{Flags, HEADER_BYTES, Header};

/// Returns the offset and the header of each message in a record, up to the first bytes that are no message.
pub fn messages(record: &[u8]) -> impl Iterator<Item = (usize, Header)> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next;
        let header = Header::parse(record.get(at..)?)?;
        next += header.record_bytes();
        Some((at, header))
    })
}

/// Returns whether a message of the record begins at `at`.
pub fn begins_at(record: &[u8], at: usize) -> bool {
    messages(record).any(|(begin, _)| begin == at)
}

/// The unread rest of a message in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread<'a> {
    /// Header of the whole message.
    pub header: Header,
    /// Unread bytes of the message.
    pub rest: &'a [u8],
    /// Offset of the next message, or the end of the record if this is the last.
    pub next: usize,
}

impl<'a> Unread<'a> {
    /// Finds the message that begins at `at`, without the first `consumed` bytes.
    ///
    /// Returns `None` if no whole message begins there, or if it is shorter than `consumed`.
    pub fn of(bundle: &'a [u8], at: usize, consumed: usize) -> Option<Unread<'a>> {
        let rest = bundle.get(at..)?;
        let header = Header::parse(rest).filter(|header| !header.flags.contains(Flags::IN_MEMFD))?;
        let content = rest.get(HEADER_BYTES..header.record_bytes())?;
        Some(Unread { header, rest: content.get(consumed..)?, next: at + header.record_bytes() })
    }
}
