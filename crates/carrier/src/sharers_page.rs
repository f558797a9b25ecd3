//! The page in which all sharers of a descriptor agree among themselves, also after `fork` and `exec`.
//!
//! The daemon creates its memfd and hands it to each sharer, but never maps it: a program may write anything there, or
//! take its memory away at any time. A thread of the daemon that may wait for programs reads [`ReadSoFar`].
//!
//! Each sharer may write anything anywhere in the page. That harms only the sharers of this socket:
//!
//! | a hostile value of | does |
//! |---|---|
//! | `lock` | keeps a reader as long as its time limit says; the daemon looks 100 times in 100 ms whether a reader is done |
//! | `long_taken` | long messages are emptied before they are read, or after the socket is closed |
//! | `data_taken` | the peer may send into a small receive buffer sooner or later; a close becomes an abort, or vice versa |
//! | `consumed`, `bundle_*`, the front header | a reader gets other bytes of its own carrier, an empty message or `EPROTO` |
//! | `errors_taken` | an error is told again, or not at all |
//! | `write_lock` | keeps a sender as long as its time limit says |
//! | `send_buffer` | the descriptor polls writable sooner or later |
//! | `ring`, `rings`, `sleep_ended` | messages of other sharers wait, until one sends in another way |
//! | `readers_waiting` | a reader sleeps on although a message is there, or wakes for messages that another takes |
//! | `records_sent` | messages of other sharers come in another order |
//! | `sent` | a blocking send asks the daemon for room every few milliseconds; the daemon counts for itself |

use std::mem::offset_of;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::record::{HEADER_BYTES, Header};
use crate::status_page::{ENTRIES, Entry, StatusPage};

/// Size of the memfd. The system provides memory only for the part that is written.
pub const SHARERS_BYTES: usize = 12 * 1024;

/// The layout. A fresh page is zero.
#[derive(Debug)]
#[repr(C)]
pub struct SharersPage {
    /// The read lock. The thread identifier of the holder, in a futex that the kernel marks when the holder dies.
    pub lock: AtomicU32,
    /// Number of messages that were read to their end, modulo 2^32, without notifications. The daemon uses it to tell whether
    /// anything was unread when the program ended, and how much.
    pub data_taken: AtomicU32,
    /// Number of records with a memfd that were read to their end, modulo 2^32, notifications included. The daemon empties these
    /// memfds.
    pub long_taken: AtomicU32,
    /// Not zero: a sharer has shut down reading.
    pub shut_reading: AtomicU32,
    /// Not zero: a sharer has shut down writing.
    pub shut_writing: AtomicU32,
    /// Number of bytes that were read of the message at the front of the carrier, which is still there.
    pub consumed: AtomicU32,
    /// Length of the bundle at the front of the carrier; 0 if there is none with messages already read.
    pub bundle_bytes: AtomicU32,
    /// Offset of the next message's header in the bundle.
    pub bundle_at: AtomicU32,
    /// Offset of the bundle in the receive ring.
    pub bundle_place: AtomicU32,
    /// The header of the first message in the record or the bundle that a reader has begun.
    header: [AtomicU32; HEADER_BYTES / 4],
    /// Number of the last error that a sharer has taken.
    pub errors_taken: AtomicU32,
    /// The write lock, of the same kind as `lock`: its holder puts a message into the ring.
    pub write_lock: AtomicU32,
    /// Size of the carrier's send buffer to restore, halved; 0 while the buffer has that size.
    pub send_buffer: AtomicU32,
    /// Number of the ring that a sharer has announced last. Others send records.
    pub ring: AtomicU32,
    /// Number of rings that were announced.
    pub rings: AtomicU32,
    /// The last sleep of the daemon that a writer has ended.
    pub sleep_ended: AtomicU32,
    /// Number of calls that wait for a message. A sharer that dies in such a call stays counted.
    pub readers_waiting: AtomicU32,
    /// Number of messages that were sent as records of the carrier and not through a ring, modulo 2^32.
    records_sent: AtomicU32,
    sent: [SentBytes; ENTRIES],
}

/// Number of bytes that were sent to an association of a one-to-many socket, modulo 2^32, and in the upper half the association:
/// an [`Entry`] may pass to another association while a sharer sends.
///
/// The sharers count the bytes that they send, the daemon those that it has passed on: the difference waits, and there is room
/// while it is less than [`ROOM_BYTES`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct SentBytes(AtomicU64);

/// Number of bytes for an association of a one-to-many socket that may wait in the daemon.
pub const ROOM_BYTES: u32 = 256 * 1024;

impl SentBytes {
    /// Counts a message to the association of an entry as sent if there is room, and the entry still belongs to the association.
    pub fn reserve(&self, entry: &Entry, association: u32, bytes: u32) -> bool {
        let claim = |sent: u32| {
            let waiting = sent.wrapping_sub(entry.passed_on.load(Acquire));
            (waiting < ROOM_BYTES).then(|| sent.wrapping_add(bytes))
        };
        self.count(entry, association, claim)
    }

    /// Takes all room of an association to which nothing was sent. Returns false if something was.
    pub fn close_unused(&self, entry: &Entry, association: u32) -> bool {
        self.count(entry, association, |sent| (sent == 0).then_some(ROOM_BYTES))
    }

    /// Undoes the reservation for a message that was not sent.
    pub fn unreserve(&self, entry: &Entry, association: u32, bytes: u32) {
        // If the association has left the entry, there is nothing to undo.
        self.count(entry, association, |sent| Some(sent.wrapping_sub(bytes)));
    }

    /// Changes the number of bytes sent to an association. Returns whether the entry belongs to it and `new` returned a number.
    fn count(&self, entry: &Entry, association: u32, new: impl Fn(u32) -> Option<u32>) -> bool {
        let change = |sent: u64| {
            // Loaded after the number: a sharer that counts for a later association has found that association in the entry.
            let is_its_own = entry.association.load(Acquire) == association;
            let sent = if sent >> 32 == u64::from(association) { sent as u32 } else { 0 };
            is_its_own.then(|| new(sent)).flatten().map(|bytes| sent_to(association, bytes))
        };
        self.0.fetch_update(AcqRel, Acquire, change).is_ok()
    }
}

/// Returns a value of [`SentBytes`].
fn sent_to(association: u32, bytes: u32) -> u64 {
    u64::from(association) << 32 | u64::from(bytes)
}

/// How far the sharers have read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadSoFar {
    /// A sharer reads at this moment.
    pub is_being_read: bool,
    /// Number of messages read.
    pub data_taken: u32,
    /// Number of records with a memfd that were read.
    pub long_taken: u32,
}

impl ReadSoFar {
    /// Number of bytes at the beginning of the page that [`ReadSoFar::parse`] takes.
    pub const BYTES: usize = offset_of!(SharersPage, long_taken) + 4;

    /// Reads the beginning of a page.
    pub fn parse(bytes: &[u8; ReadSoFar::BYTES]) -> ReadSoFar {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        ReadSoFar {
            is_being_read: word(offset_of!(SharersPage, lock)) != 0,
            data_taken: word(offset_of!(SharersPage, data_taken)),
            long_taken: word(offset_of!(SharersPage, long_taken)),
        }
    }
}

impl SharersPage {
    /// Offset of the number of messages read.
    pub const DATA_TAKEN_AT: u64 = offset_of!(SharersPage, data_taken) as u64;

    /// Takes the pending error of a socket: an errno, or zero.
    pub fn take_error(&self, status: &StatusPage) -> i32 {
        let errors = status.errors.load(Acquire);
        let error = status.error.load(Acquire);
        if self.errors_taken.swap(errors, AcqRel) == errors { 0 } else { error }
    }

    /// Returns the pending error of a socket, and leaves it pending.
    pub fn pending_error(&self, status: &StatusPage) -> i32 {
        let errors = status.errors.load(Acquire);
        if self.errors_taken.load(Acquire) == errors { 0 } else { status.error.load(Acquire) }
    }

    /// Returns the number of messages that were sent as records. The header of each message to the daemon has the number
    /// of the time at which its send began: a message in a ring comes after the records with smaller numbers that are in
    /// front in the carrier, and before a record with the same or a greater one. A sharer that dies before it counts its
    /// record changes no order.
    pub fn records_sent(&self) -> u32 {
        self.records_sent.load(Acquire)
    }

    /// Counts a message that was sent as a record. Later messages in a ring come after it.
    pub fn count_record(&self) {
        self.records_sent.fetch_add(1, AcqRel);
    }

    /// Returns the number of bytes sent to the association of each entry.
    pub fn sent(&self) -> &[SentBytes; ENTRIES] {
        &self.sent
    }

    /// Returns the header of the first message in the record or the bundle that a reader has begun and that is still there.
    pub fn front(&self) -> Option<Header> {
        let words = self.header.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
        Header::parse(words.as_flattened())
    }

    /// Notes the header of the first message in a record or a bundle that is being read and stays.
    pub fn set_front(&self, header: &Header) {
        let bytes = header.encode();
        for (word, bytes) in self.header.iter().zip(bytes.as_chunks().0) {
            word.store(u32::from_ne_bytes(*bytes), Relaxed);
        }
    }
}

impl Default for SharersPage {
    /// Returns a page of zeros.
    fn default() -> SharersPage {
        SharersPage {
            lock: AtomicU32::default(),
            data_taken: AtomicU32::default(),
            long_taken: AtomicU32::default(),
            shut_reading: AtomicU32::default(),
            shut_writing: AtomicU32::default(),
            consumed: AtomicU32::default(),
            bundle_bytes: AtomicU32::default(),
            bundle_at: AtomicU32::default(),
            bundle_place: AtomicU32::default(),
            header: Default::default(),
            errors_taken: AtomicU32::default(),
            write_lock: AtomicU32::default(),
            send_buffer: AtomicU32::default(),
            ring: AtomicU32::default(),
            rings: AtomicU32::default(),
            sleep_ended: AtomicU32::default(),
            readers_waiting: AtomicU32::default(),
            records_sent: AtomicU32::default(),
            sent: std::array::from_fn(|_| SentBytes::default()),
        }
    }
}

const _: () = assert!(size_of::<SharersPage>() <= SHARERS_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;

    fn entry_of(association: u32) -> Entry {
        let entry = Entry::default();
        entry.association.store(association, Relaxed);
        entry
    }

    #[test]
    fn room_is_reserved_up_to_the_limit_and_given_back() {
        assert_eq!(ROOM_BYTES, 262_144);
        // The counters wrap.
        for before in [0, u32::MAX - 10] {
            let (entry, sent) = (entry_of(7), SentBytes::default());
            sent.0.store(sent_to(7, before), Relaxed);
            entry.passed_on.store(before, Relaxed);
            let reserve = |bytes| sent.reserve(&entry, 7, bytes);
            assert!(reserve(ROOM_BYTES - 1) && reserve(1), "one byte was left");
            assert!(!reserve(1), "nothing is left");
            sent.unreserve(&entry, 7, 1);
            assert!(reserve(1));
            entry.passed_on.store(before.wrapping_add(ROOM_BYTES), Relaxed);
            assert!(reserve(ROOM_BYTES));
            assert_eq!(sent.0.load(Relaxed), sent_to(7, before.wrapping_add(2 * ROOM_BYTES)));
        }
    }

    /// A sharer may have found the entry, or even reserved room, before the entry passed to another association.
    #[test]
    fn messages_to_one_association_take_no_room_of_the_next_in_its_entry() {
        let (entry, sent) = (entry_of(7), SentBytes::default());
        assert!(sent.reserve(&entry, 7, 100));
        entry.association.store(8, Relaxed);
        assert!(!sent.reserve(&entry, 7, 100));
        assert!(sent.reserve(&entry, 8, 100));
        assert!(!sent.reserve(&entry, 7, 100));
        sent.unreserve(&entry, 7, 100);
        assert_eq!(sent.0.load(Relaxed), sent_to(8, 100));
        entry.association.store(0, Relaxed);
        assert!(!sent.reserve(&entry, 8, 100));
    }

    #[test]
    fn an_error_is_taken_once() {
        let (page, status) = (SharersPage::default(), StatusPage::default());
        assert_eq!((page.pending_error(&status), page.take_error(&status)), (0, 0));
        for errors in [1, 2] {
            status.error.store(104, Relaxed);
            status.errors.store(errors, Relaxed);
            assert_eq!(page.pending_error(&status), 104);
            assert_eq!((page.take_error(&status), page.take_error(&status)), (104, 0));
            assert_eq!(page.pending_error(&status), 0);
        }
    }

    #[test]
    fn the_front_is_what_was_noted() {
        let page = SharersPage::default();
        assert_eq!(page.front(), None);
        let address = "192.0.2.1:7".parse().expect("an address");
        let header = Header { stream: 3, bytes: 9, address: Some(address), ..Header::new(Kind::Data) };
        page.set_front(&header);
        assert_eq!(page.front(), Some(header));
    }

    #[test]
    fn the_beginning_says_how_far_the_sharers_have_read() {
        let words = [7_u32, 1, 2].map(u32::to_ne_bytes);
        let bytes = words.as_flattened().try_into().expect("three words");
        let expected = ReadSoFar { is_being_read: true, data_taken: 1, long_taken: 2 };
        assert_eq!(ReadSoFar::parse(bytes), expected);
        assert_eq!(ReadSoFar::parse(&[0; ReadSoFar::BYTES]), ReadSoFar::default());
        assert_eq!(offset_of!(SharersPage, lock), 0);
    }
}
