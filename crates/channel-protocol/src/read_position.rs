//! How far the sharers have read the record at the front of the pair.
//!
//! The record stays in the pair until its last message was read, so readers note in the sharers' page where the next one
//! continues. The holder of the read lock reads and changes this; it may die between any two stores, so each change makes
//! its last store the one that counts.
//!
//! ```
//! use swiftwater_channel_protocol::read_position::{Front, ReadPosition};
//! use swiftwater_channel_protocol::record::{Header, Kind};
//!
//! let position = ReadPosition::default();
//! assert_eq!(position.load(), Front::Fresh);
//! let header = Header { bytes: 100, ..Header::new(Kind::Data) };
//! position.on_message_begun(&header, 60);
//! assert_eq!(position.load(), Front::Message { header, consumed: 60 });
//! position.on_record_removed();
//! assert_eq!(position.load(), Front::Fresh);
//! ```

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::bundle::Unread;
use crate::record::{Extent, HEADER_BYTES, Header};

/// The position, in a page that any sharer may fill with any numbers. Zeros are a record that no reader has begun.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ReadPosition {
    /// Number of bytes that were read of the next message.
    consumed: AtomicU32,
    /// Length of the bundle at the front; 0 if no reader has begun one there.
    bundle_bytes: AtomicU32,
    /// Offset of the next message's header in the bundle.
    next: AtomicU32,
    /// Offset of the bundle in the receive ring.
    bundle_offset: AtomicU32,
    /// The header of the first message in the record that a reader has begun.
    first: [AtomicU32; HEADER_BYTES / 4],
}

/// The record at the front of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// No reader has begun it.
    Fresh,
    /// A reader has begun its one message.
    Message {
        /// Header of the message.
        header: Header,
        /// Number of bytes that were read.
        consumed: u32,
    },
    /// A reader has begun the bundle that it announces.
    Bundle(InBundle),
}

impl Front {
    /// Returns the number of bytes that were read of the next message.
    pub fn consumed(self) -> u32 {
        match self {
            Front::Fresh => 0,
            Front::Message { consumed, .. } | Front::Bundle(InBundle { consumed, .. }) => consumed,
        }
    }
}

/// A position in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InBundle {
    /// Where the bundle lies.
    pub extent: Extent,
    /// Offset of the next message's header.
    pub next: u32,
    /// Number of bytes that were read of the next message.
    pub consumed: u32,
}

impl InBundle {
    /// Returns the rest of the next message in these bytes of the bundle; `None` if a sharer has noted another position than a
    /// reader does.
    #[inline]
    pub fn unread(self, bundle: &[u8]) -> Option<Unread<'_>> {
        Unread::of(bundle, self.next as usize, self.consumed as usize)
    }
}

impl ReadPosition {
    /// Returns what the readers have noted.
    #[inline]
    pub fn load(&self) -> Front {
        let (consumed, bytes) = (self.consumed.load(Relaxed), self.bundle_bytes.load(Relaxed));
        if bytes > 0 {
            let extent = Extent { offset: self.bundle_offset.load(Relaxed), bytes };
            return Front::Bundle(InBundle { extent, next: self.next.load(Relaxed), consumed });
        }
        match self.first().filter(|_| consumed > 0) {
            Some(header) => Front::Message { header, consumed },
            None => Front::Fresh,
        }
    }

    /// Returns whether a reader has begun a bundle. Without the read lock this is a guess.
    #[inline]
    pub fn is_in_bundle(&self) -> bool {
        self.bundle_bytes.load(Relaxed) > 0
    }

    /// Returns the header of the first message in the record that a reader has begun.
    pub fn first(&self) -> Option<Header> {
        let words = self.first.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
        Header::parse(words.as_flattened())
    }

    /// Notes that a reader has begun the one message of a record, which stays in the pair.
    pub fn on_message_begun(&self, header: &Header, consumed: u32) {
        self.set_first(header);
        self.consumed.store(consumed, Relaxed);
    }

    /// Notes that a reader has begun the bundle at the front. `first` is the header of its first message; `consumed` bytes of
    /// that message were read.
    pub fn on_bundle_begun(&self, extent: Extent, first: &Header, consumed: u32) {
        self.set_first(first);
        self.consumed.store(consumed, Relaxed);
        self.next.store(0, Relaxed);
        self.bundle_offset.store(extent.offset, Relaxed);
        self.bundle_bytes.store(extent.bytes, Relaxed);
    }

    /// Notes how many bytes of the next message were read, which is longer.
    #[inline]
    pub fn on_part_read(&self, consumed: u32) {
        self.consumed.store(consumed, Relaxed);
    }

    /// Notes that a message of a bundle was read, and that another one follows at this offset.
    #[inline]
    pub fn on_bundled_message_read(&self, next: u32) {
        // In this order: a part of a message may be read twice, but none is skipped.
        self.consumed.store(0, Relaxed);
        self.next.store(next, Relaxed);
    }

    /// Notes that the record at the front was removed.
    #[inline]
    pub fn on_record_removed(&self) {
        self.consumed.store(0, Relaxed);
        self.bundle_bytes.store(0, Relaxed);
    }

    /// Notes that the bundle at the front lies elsewhere in the ring: the daemon has taken it out and put it back.
    pub fn on_bundle_moved(&self, extent: Extent) {
        self.bundle_offset.store(extent.offset, Relaxed);
    }

    /// Notes that the record at the front is no longer the bundle that a reader has begun. The next message keeps its part.
    pub fn on_bundle_dissolved(&self) {
        self.bundle_bytes.store(0, Relaxed);
    }

    /// Stores any numbers, as a hostile sharer may.
    #[doc(hidden)]
    pub fn overwrite(&self, InBundle { extent, next, consumed }: InBundle) {
        self.consumed.store(consumed, Relaxed);
        self.bundle_bytes.store(extent.bytes, Relaxed);
        self.bundle_offset.store(extent.offset, Relaxed);
        self.next.store(next, Relaxed);
    }

    fn set_first(&self, header: &Header) {
        let bytes = header.encode();
        for (word, bytes) in self.first.iter().zip(bytes.as_chunks().0) {
            word.store(u32::from_ne_bytes(*bytes), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;

    fn header() -> Header {
        let address = "192.0.2.1:7".parse().expect("an address");
        Header { stream: 3, bytes: 9, address: Some(address), ..Header::new(Kind::Data) }
    }

    #[test]
    fn a_message_is_begun_read_on_and_removed() {
        let position = ReadPosition::default();
        assert_eq!((position.load(), position.first()), (Front::Fresh, None));
        position.on_message_begun(&header(), 4);
        assert_eq!(position.load(), Front::Message { header: header(), consumed: 4 });
        position.on_part_read(6);
        assert_eq!((position.load().consumed(), position.first()), (6, Some(header())));
        position.on_record_removed();
        assert_eq!(position.load(), Front::Fresh);
    }

    #[test]
    fn a_bundle_is_read_message_by_message() {
        let position = ReadPosition::default();
        let extent = Extent { offset: 64, bytes: 200 };
        let front = |next, consumed| Front::Bundle(InBundle { extent, next, consumed });
        position.on_bundle_begun(extent, &header(), 0);
        assert!(position.is_in_bundle());
        assert_eq!(position.load(), front(0, 0));
        position.on_part_read(5);
        assert_eq!(position.load(), front(0, 5));
        position.on_bundled_message_read(73);
        assert_eq!((position.load(), position.first()), (front(73, 0), Some(header())));
        position.on_record_removed();
        assert_eq!(position.load(), Front::Fresh);
    }

    /// The peel-off of an association takes the bundle apart, and puts the rest of it back.
    #[test]
    fn a_part_of_a_message_survives_its_bundle() {
        let position = ReadPosition::default();
        let (extent, moved) = (Extent { offset: 64, bytes: 200 }, Extent { offset: 512, bytes: 200 });
        position.on_bundle_begun(extent, &header(), 0);
        position.on_part_read(5);
        position.on_bundle_moved(moved);
        assert_eq!(position.load(), Front::Bundle(InBundle { extent: moved, next: 0, consumed: 5 }));
        position.on_bundle_dissolved();
        assert_eq!(position.load(), Front::Message { header: header(), consumed: 5 });
        assert!(!position.is_in_bundle());
        position.on_bundle_begun(extent, &header(), 5);
        assert_eq!(position.load(), Front::Bundle(InBundle { extent, next: 0, consumed: 5 }));
    }

    #[test]
    fn a_position_that_no_reader_notes_is_found() {
        let record = [&Header { bytes: 3, ..Header::new(Kind::Data) }.encode()[..], b"one"].concat();
        let unread = |next, consumed| {
            let extent = Extent { offset: 0, bytes: record.len() as u32 };
            InBundle { extent, next, consumed }.unread(&record).map(|unread| unread.rest.to_vec())
        };
        assert_eq!(unread(0, 1), Some(b"ne".to_vec()));
        assert_eq!((unread(0, 4), unread(1, 0), unread(u32::MAX, 0)), (None, None, None));
    }

    /// The record at the front may be another one than that about which a sharer has noted something.
    #[test]
    fn a_bundle_begins_at_its_front_whatever_was_noted_before() {
        let position = ReadPosition::default();
        let (extent, earlier) = (Extent { offset: 64, bytes: 200 }, Extent { offset: 512, bytes: 100 });
        let noted = InBundle { extent: earlier, next: 73, consumed: 9 };
        position.overwrite(noted);
        assert_eq!(position.load(), Front::Bundle(noted));
        position.on_bundle_begun(extent, &header(), 4);
        assert_eq!(position.load(), Front::Bundle(InBundle { extent, next: 0, consumed: 4 }));
    }
}
