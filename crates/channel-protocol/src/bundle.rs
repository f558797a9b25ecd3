//! Reading bundles: several messages one after the other.
//!
//! The sharers' page contains the position up to which a bundle was read, and any sharer may write any number there. So
//! this code checks every number from the page, and its results stay within the bundle.

use crate::record::{Flags, HEADER_BYTES, Header, Kind, Sequence};

/// Returns the header of the record that says where a bundle lies: its offset in the ring, and its length.
pub fn header(offset: usize, bytes: usize) -> Header {
    let sequence = Sequence::bundle_at(offset as u32);
    Header { sequence, bytes: bytes as u32, ..Header::new(Kind::Bundle) }
}

/// Returns the offset and the header of each message in a record or a bundle, up to the first bytes that are no message.
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
        let is_here =
            |header: &Header| header.kind != Kind::Bundle && !header.flags.contains(Flags::IN_MEMFD);
        let header = Header::parse(rest).filter(is_here)?;
        let content = rest.get(HEADER_BYTES..header.record_bytes())?;
        Some(Unread { header, rest: content.get(consumed..)?, next: at + header.record_bytes() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BUNDLE_BYTES_MAX, Extent};
    use crate::status_page::RING_BYTES;

    #[test]
    fn a_message_whose_content_is_elsewhere_is_none_of_a_bundle() {
        let here = Header { bytes: 3, ..Header::new(Kind::Data) };
        let bundle_of = |header: Header| [&header.encode()[..], b"abcdef"].concat();
        let bundle = bundle_of(here);
        let unread = Unread::of(&bundle, 0, 1).expect("a message");
        assert_eq!((unread.header, unread.rest, unread.next), (here, &b"bc"[..], HEADER_BYTES + 3));
        for (at, consumed) in [(0, 4), (1, 0), (bundle.len(), 0), (usize::MAX, 0), (0, usize::MAX)] {
            assert_eq!(Unread::of(&bundle, at, consumed), None, "{at}, {consumed}");
        }
        assert_eq!(Unread::of(&bundle[..HEADER_BYTES + 2], 0, 0), None, "it is not whole");
        for header in [header(0, 3), Header { flags: Flags::IN_MEMFD, ..here }] {
            assert_eq!(Header::parse(&header.encode()), Some(header), "a record of another kind");
            assert_eq!(Unread::of(&bundle_of(header), 0, 0), None, "{header:?}");
        }
    }

    #[test]
    fn a_bundle_lies_in_the_ring() {
        let (ring, longest) = (RING_BYTES as u32, BUNDLE_BYTES_MAX as u32);
        let range = |offset, bytes| Extent { offset, bytes }.range();
        assert_eq!(range(ring - 100, 100), Some(RING_BYTES - 100..RING_BYTES));
        assert_eq!(range(0, longest), Some(0..BUNDLE_BYTES_MAX));
        for (offset, bytes) in [(ring - 100, 101), (ring, 1), (0, longest + 1), (u32::MAX, 1), (1, u32::MAX)]
        {
            assert_eq!(range(offset, bytes), None, "{offset}, {bytes}");
        }
        assert_eq!(header(64, 100).bundle().and_then(Extent::range), Some(64..164));
        assert_eq!(Header::new(Kind::Data).bundle(), None);
    }
}
