//! The page in which all sharers of a descriptor agree among themselves, also after `fork` and `exec`.
//!
//! The daemon creates its memfd and hands it to each sharer, but never maps it: a program may write anything there, or
//! take its memory away at any time. A thread of the daemon that may wait for programs reads [`ReadSoFar`].
//!
//! Each sharer may write anything anywhere in the page. That harms only the sharers of this socket:
//!
//! | a hostile value of | does |
//! |---|---|
//! | `read_lock` | keeps a reader as long as its time limit says; the daemon looks 100 times in 100 ms whether a reader is done |
//! | `long_taken` | long messages are emptied before they are read, or after the socket is closed |
//! | `data_taken` | the peer may send into a small receive buffer sooner or later; a close becomes an abort, or vice versa |
//! | `position` | a reader gets other bytes of its own pair, an empty message or `EPROTO` |
//! | `errors_taken` | an error is reported again, or not at all |
//! | `write_lock` | keeps a sender as long as its time limit says, and, with `sleep_to_end`, each receive 100 ms |
//! | `send_buffer` | the descriptor polls writable sooner or later |
//! | `ring`, `rings`, `sleep_ended` | messages of other sharers wait, until one sends in another way |
//! | `sleep_to_end` | a sharer sends a needless wake record, or messages wait as for `sleep_ended` |
//! | `readers_waiting` | a reader continues to sleep although a message has come, or wakes for messages that another takes |
//! | `records_sent` | messages of other sharers come in another order |
//! | `sent` | a blocking send asks the daemon for room every few milliseconds; the daemon counts for itself |

use std::mem::offset_of;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::assoc_id::AssocId;
use crate::read_position::ReadPosition;
use crate::record::{Flags, Header, Kind};
use crate::status_page::{ENTRIES, Entry, StatusPage};

/// Size of the memfd. The system provides memory only for the part that is written.
pub const SHARERS_BYTES: usize = 12 * 1024;

/// The layout. A fresh page is zero.
///
/// The read lock guards `position`, and the write lock guards `sending`. Sharers change everything else without a lock.
#[derive(Debug)]
#[repr(C)]
pub struct SharersPage {
    /// The read lock. The thread identifier of the holder, in a futex that the kernel marks when the holder dies.
    read_lock: AtomicU32,
    /// Number of messages that were read to their end, modulo 2^32, without notifications. The daemon uses it to tell whether
    /// anything was unread when the program ended, and how much.
    data_taken: AtomicU32,
    /// Number of records with a memfd that were read to their end, modulo 2^32, notifications included. The daemon empties these
    /// memfds.
    long_taken: AtomicU32,
    /// Not zero: a sharer has shut down reading.
    shut_reading: AtomicU32,
    /// Not zero: a sharer has shut down writing.
    shut_writing: AtomicU32,
    /// How far the record at the front of the pair was read.
    position: ReadPosition,
    /// Number of the last error that a sharer has taken.
    errors_taken: AtomicU32,
    /// The write lock, of the same kind as `read_lock`: its holder puts a message into the ring.
    write_lock: AtomicU32,
    /// The ring and the send buffer.
    sending: Sending,
    /// Number of calls that wait for a message. A sharer that dies in such a call stays counted.
    readers_waiting: AtomicU32,
    /// Number of messages that were sent as records of the pair and not through a ring, modulo 2^32.
    records_sent: AtomicU32,
    sent: [SentBytes; ENTRIES],
}

/// The ring through which the sharers send, and the pair's send buffer, for the holder of the write lock.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Sending {
    /// Size of the pair's send buffer to restore, halved; 0 while the buffer has that size.
    lowered_from: AtomicU32,
    /// Number of the ring that a sharer has announced last, or was about to announce when it died. The writers of other rings
    /// send records.
    ring: AtomicU32,
    /// Number of rings that were announced.
    rings: AtomicU32,
    /// The last sleep of the daemon that a writer has ended.
    sleep_ended: AtomicU32,
    /// The sleep of the daemon that a writer has yet to end, behind several messages or once the kernel has memory; 0 for none.
    sleep_to_end: AtomicU32,
}

impl Sending {
    /// Returns whether the sharers may use the ring with this number: it is the last one that a sharer has announced.
    #[inline]
    pub fn is_ring(&self, number: u32) -> bool {
        self.ring.load(Relaxed) == number
    }

    /// Returns the number of the next ring, which is never zero.
    pub fn next_ring(&self) -> u32 {
        self.rings.fetch_add(1, Relaxed).wrapping_add(1).max(1)
    }

    /// Returns the number of the ring that the sharers may use; 0 for none.
    pub fn ring(&self) -> u32 {
        self.ring.load(Relaxed)
    }

    /// Lets the sharers use the ring with this number, once the daemon reads it, and no other.
    pub fn set_ring(&self, number: u32) {
        self.ring.store(number, Relaxed);
    }

    /// Returns the argument of `SO_SNDBUF` that restores the pair's send buffer; `None` if the buffer has its size.
    #[inline]
    pub fn lowered_send_buffer(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.lowered_from.load(Relaxed))
    }

    /// Notes that a sharer makes the send buffer small, whose size the kernel reports as `bytes`: twice the argument that
    /// sets it.
    pub fn on_send_buffer_lowered(&self, bytes: u32) {
        self.lowered_from.store(bytes / 2, Relaxed);
    }

    /// Notes that the send buffer has its size again.
    pub fn on_send_buffer_restored(&self) {
        self.lowered_from.store(0, Relaxed);
    }

    /// Returns whether a writer has ended this sleep of the daemon.
    #[inline]
    pub fn has_ended(&self, sleep: NonZeroU32) -> bool {
        self.sleep_ended.load(Relaxed) == sleep.get()
    }

    /// Notes that a writer has ended this sleep of the daemon.
    pub fn on_sleep_ended(&self, sleep: NonZeroU32) {
        self.sleep_ended.store(sleep.get(), Relaxed);
        self.sleep_to_end.store(0, Relaxed);
    }

    /// Notes that a writer has not ended this sleep of the daemon, because it puts more messages, or the kernel had no memory:
    /// the next call of a sharer tries it.
    pub fn on_wake_due(&self, sleep: NonZeroU32) {
        self.sleep_to_end.store(sleep.get(), Relaxed);
    }

    /// Returns the sleep of the daemon that a writer has yet to end, if there is one.
    #[inline]
    pub fn sleep_to_end(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.sleep_to_end.load(Relaxed))
    }
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
    pub fn reserve(&self, entry: &Entry, assoc_id: AssocId, bytes: u32) -> bool {
        let claim = |sent: u32| {
            let waiting = sent.wrapping_sub(entry.passed_on.load(Acquire));
            (waiting < ROOM_BYTES).then(|| sent.wrapping_add(bytes))
        };
        self.count(entry, assoc_id, claim)
    }

    /// Takes all room of an association to which nothing was sent. Returns false if something was.
    pub fn close_unused(&self, entry: &Entry, assoc_id: AssocId) -> bool {
        self.count(entry, assoc_id, |sent| (sent == 0).then_some(ROOM_BYTES))
    }

    /// Undoes the reservation for a message that was not sent.
    pub fn unreserve(&self, entry: &Entry, assoc_id: AssocId, bytes: u32) {
        // If the association has left the entry, there is nothing to undo.
        self.count(entry, assoc_id, |sent| Some(sent.wrapping_sub(bytes)));
    }

    /// Changes the number of bytes sent to an association. Returns whether the entry belongs to it and `new` returned a number.
    fn count(&self, entry: &Entry, assoc_id: AssocId, new: impl Fn(u32) -> Option<u32>) -> bool {
        let change = |sent: u64| {
            // Loaded after the number: a sharer that counts for a later association has found that association in the entry.
            let is_its_own = entry.is_of(assoc_id, Acquire);
            let sent = if sent >> 32 == u64::from(assoc_id.get()) { sent as u32 } else { 0 };
            is_its_own.then(|| new(sent)).flatten().map(|bytes| sent_to(assoc_id, bytes))
        };
        self.0.fetch_update(AcqRel, Acquire, change).is_ok()
    }
}

/// Returns a value of [`SentBytes`].
fn sent_to(assoc_id: AssocId, bytes: u32) -> u64 {
    u64::from(assoc_id.get()) << 32 | u64::from(bytes)
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
            is_being_read: word(offset_of!(SharersPage, read_lock)) != 0,
            data_taken: word(offset_of!(SharersPage, data_taken)),
            long_taken: word(offset_of!(SharersPage, long_taken)),
        }
    }
}

impl SharersPage {
    /// Offset of the number of messages read.
    pub const DATA_TAKEN_AT: u64 = offset_of!(SharersPage, data_taken) as u64;

    /// Returns the word of the read lock, whose holder reads the record at the front and changes [`SharersPage::position`].
    #[inline]
    pub fn read_lock(&self) -> &AtomicU32 {
        &self.read_lock
    }

    /// Returns how far the record at the front of the pair was read.
    #[inline]
    pub fn position(&self) -> &ReadPosition {
        &self.position
    }

    /// Returns the word of the write lock, whose holder puts messages into the ring and changes [`SharersPage::sending`].
    #[inline]
    pub fn write_lock(&self) -> &AtomicU32 {
        &self.write_lock
    }

    /// Returns the state of the ring and of the send buffer.
    #[inline]
    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    /// Counts a message that was read to its end.
    #[inline]
    pub fn on_message_taken(&self, header: &Header) {
        if header.kind == Kind::Data {
            self.data_taken.fetch_add(1, Relaxed);
        }
        if header.flags.contains(Flags::IN_MEMFD) {
            self.long_taken.fetch_add(1, Relaxed);
        }
    }

    /// Notes that a sharer has shut down reading.
    pub fn on_reading_shut(&self) {
        self.shut_reading.store(1, Relaxed);
    }

    /// Notes that a sharer has shut down writing.
    pub fn on_writing_shut(&self) {
        self.shut_writing.store(1, Relaxed);
    }

    /// Returns whether a sharer has shut down reading.
    pub fn is_reading_shut(&self) -> bool {
        self.shut_reading.load(Relaxed) != 0
    }

    /// Returns whether a sharer has shut down writing.
    #[inline]
    pub fn is_writing_shut(&self) -> bool {
        self.shut_writing.load(Relaxed) != 0
    }

    /// Counts a call that begins to wait for a message, until [`SharersPage::end_wait`]. Returns whether it is the only one.
    pub fn begin_wait(&self) -> bool {
        self.readers_waiting.fetch_add(1, AcqRel) == 0
    }

    /// Counts out a call that waits for a message no more.
    pub fn end_wait(&self) {
        self.readers_waiting.fetch_sub(1, AcqRel);
    }

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
    /// front in the pair, and before a record with the same or a greater one. A sharer that dies before it counts its
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
}

impl Default for SharersPage {
    /// Returns a page of zeros.
    fn default() -> SharersPage {
        SharersPage {
            read_lock: AtomicU32::default(),
            data_taken: AtomicU32::default(),
            long_taken: AtomicU32::default(),
            shut_reading: AtomicU32::default(),
            shut_writing: AtomicU32::default(),
            position: ReadPosition::default(),
            errors_taken: AtomicU32::default(),
            write_lock: AtomicU32::default(),
            sending: Sending::default(),
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

    fn id(number: u32) -> AssocId {
        AssocId::new(number)
    }

    fn entry_of(assoc_id: AssocId) -> Entry {
        let entry = Entry::default();
        entry.assoc_id.store(assoc_id.get(), Relaxed);
        entry
    }

    /// The sharers of a descriptor may have shims of different builds, which refuse each other by the version in the status page.
    #[test]
    fn the_layout_is_that_of_this_version() {
        macro_rules! offsets {
            ($page:ty: $($field:ident)*) => { [$(offset_of!($page, $field)),*] };
        }
        let first = offsets!(SharersPage: read_lock data_taken long_taken shut_reading shut_writing position);
        assert_eq!(first, [0, 4, 8, 12, 16, 20]);
        let others = offsets!(SharersPage: errors_taken write_lock sending readers_waiting records_sent sent);
        assert_eq!(others, [100, 104, 108, 128, 132, 136]);
        let sending = offsets!(Sending: lowered_from ring rings sleep_ended sleep_to_end);
        assert_eq!(sending, [0, 4, 8, 12, 16]);
        assert_eq!((size_of::<Sending>(), size_of::<SentBytes>()), (20, 8));
        assert_eq!(crate::VERSION, 19, "a change of the layout needs a new version");
    }

    #[test]
    fn room_is_reserved_up_to_the_limit_and_given_back() {
        assert_eq!(ROOM_BYTES, 262_144);
        // The counters wrap.
        for before in [0, u32::MAX - 10] {
            let (entry, sent) = (entry_of(id(7)), SentBytes::default());
            sent.0.store(sent_to(id(7), before), Relaxed);
            entry.passed_on.store(before, Relaxed);
            let reserve = |bytes| sent.reserve(&entry, id(7), bytes);
            assert!(reserve(ROOM_BYTES - 1) && reserve(1), "one byte was left");
            assert!(!reserve(1), "nothing is left");
            sent.unreserve(&entry, id(7), 1);
            assert!(reserve(1));
            entry.passed_on.store(before.wrapping_add(ROOM_BYTES), Relaxed);
            assert!(reserve(ROOM_BYTES));
            assert_eq!(sent.0.load(Relaxed), sent_to(id(7), before.wrapping_add(2 * ROOM_BYTES)));
        }
    }

    /// A sharer may have found the entry, or even reserved room, before the entry passed to another association.
    #[test]
    fn messages_to_one_association_take_no_room_of_the_next_in_its_entry() {
        let (entry, sent) = (entry_of(id(7)), SentBytes::default());
        assert!(sent.reserve(&entry, id(7), 100));
        entry.assoc_id.store(8, Relaxed);
        assert!(!sent.reserve(&entry, id(7), 100));
        assert!(sent.reserve(&entry, id(8), 100));
        assert!(!sent.reserve(&entry, id(7), 100));
        sent.unreserve(&entry, id(7), 100);
        assert_eq!(sent.0.load(Relaxed), sent_to(id(8), 100));
        entry.assoc_id.store(0, Relaxed);
        assert!(!sent.reserve(&entry, id(8), 100));
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
    fn messages_are_counted_by_what_the_daemon_must_know() {
        let page = SharersPage::default();
        let taken = || (page.data_taken.load(Relaxed), page.long_taken.load(Relaxed));
        let (data, notification) = (Header::new(Kind::Data), Header::new(Kind::Notification));
        page.on_message_taken(&data);
        page.on_message_taken(&notification);
        assert_eq!(taken(), (1, 0));
        page.on_message_taken(&Header { flags: Flags::IN_MEMFD, ..data });
        assert_eq!(taken(), (2, 1));
        page.on_message_taken(&Header { flags: Flags::IN_MEMFD, ..notification });
        page.on_message_taken(&notification);
        assert_eq!(taken(), (2, 2));
    }

    #[test]
    fn each_sharer_sees_what_another_has_noted() {
        let page = SharersPage::default();
        assert!(!page.is_reading_shut() && !page.is_writing_shut());
        page.on_writing_shut();
        assert!(!page.is_reading_shut() && page.is_writing_shut());
        page.on_reading_shut();
        assert!(page.is_reading_shut() && page.is_writing_shut());
        assert!(page.begin_wait() && !page.begin_wait(), "one waits already");
        page.end_wait();
        assert!(!page.begin_wait());
        page.end_wait();
        page.end_wait();
        assert!(page.begin_wait());
        assert_eq!(page.records_sent(), 0);
        page.count_record();
        page.count_record();
        assert_eq!(page.records_sent(), 2);
    }

    #[test]
    fn the_holder_of_the_write_lock_finds_what_the_last_one_has_noted() {
        let sending = Sending::default();
        let number = sending.next_ring();
        assert!(!sending.is_ring(number));
        sending.set_ring(number);
        assert!(sending.is_ring(number) && !sending.is_ring(number + 1));
        assert_eq!(sending.lowered_send_buffer(), None);
        // The kernel reports twice the argument that restores the size.
        sending.on_send_buffer_lowered(8192);
        assert_eq!(sending.lowered_send_buffer(), NonZeroU32::new(4096));
        sending.on_send_buffer_restored();
        assert_eq!(sending.lowered_send_buffer(), None);
        let [first, second] = [1, 3].map(|sleep| NonZeroU32::new(sleep).expect("a sleep"));
        assert!(!sending.has_ended(first));
        sending.on_sleep_ended(first);
        assert!(sending.has_ended(first) && !sending.has_ended(second));
    }

    #[test]
    fn only_an_association_without_messages_is_closed_unused() {
        let (entry, sent) = (entry_of(id(7)), SentBytes::default());
        assert!(!sent.close_unused(&entry, id(8)), "the entry is that of another association");
        assert!(sent.close_unused(&entry, id(7)));
        assert!(
            !sent.close_unused(&entry, id(7)) && !sent.reserve(&entry, id(7), 1),
            "there is no room any more"
        );
        entry.assoc_id.store(8, Relaxed);
        assert!(sent.reserve(&entry, id(8), 1) && !sent.close_unused(&entry, id(8)));
    }

    #[test]
    fn numbers_of_rings_are_never_zero() {
        let sending = Sending::default();
        sending.rings.store(u32::MAX - 1, Relaxed);
        assert_eq!([sending.next_ring(), sending.next_ring()], [u32::MAX, 1]);
    }

    #[test]
    fn the_beginning_says_how_far_the_sharers_have_read() {
        let words = [7_u32, 1, 2].map(u32::to_ne_bytes);
        let bytes = words.as_flattened().try_into().expect("three words");
        let expected = ReadSoFar { is_being_read: true, data_taken: 1, long_taken: 2 };
        assert_eq!(ReadSoFar::parse(bytes), expected);
        assert_eq!(ReadSoFar::parse(&[0; ReadSoFar::BYTES]), ReadSoFar::default());
        assert_eq!(offset_of!(SharersPage, read_lock), 0);
    }
}
