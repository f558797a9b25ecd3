//! Records from one process to another, in memory that each side shares for reading only.
//!
//! Any number of writers take turns under a lock of their own; there is one reader. The writers' memory, which the reader may map
//! without the right to write, has two parts:
//!
//! | words | content |
//! |---|---|
//! | the first [`CONTROL_WORDS`] | how far the writers are |
//! | the others | the records: each a word with its length, and its bytes, padded to whole words |
//!
//! The reader's memory, which the writers may map without the right to write, are two words, [`ReaderWords`].
//!
//! A position is the number of bytes from the beginning on, and never wraps in practice (2^64); its remainder by the length of
//! the content is a place in the memory. A record is visible to the reader once it is complete, because only then the writer
//! moves the tail. So a writer that dies loses only the record that it was writing.
//!
//! A ring has room for [`ROOM_BYTES`] of records. A *long ring* has memory beyond that for one longer record: a record of up to
//! [`LONG_RECORD_BYTES_MAX`] is taken whole as soon as an eighth of the room is free. Its length says which of the two a ring is.
//!
//! A ring that never holds much uses little memory: now and then, a writer that finds all records removed goes back to
//! the beginning of the memory.
//!
//! # Sleep
//!
//! A reader that finds nothing may sleep. It notes that in its own word ([`Reader::sleep`]) and looks at the tail once more;
//! a writer moves the tail, and then looks at that word. Between the two steps of either stands a fence, so the reader finds
//! the record, or the writer finds the sleeper; [`PutOutcome::Done`] has the number of the sleep, and the writer wakes the reader
//! by a way of its own. All writers that find one sleep get its number, so that they can agree on one of them. A writer of
//! several records looks once, behind the last ([`Writer::try_put_of_several`]).
//!
//! # Full rings
//!
//! A writer that finds no room asks to be notified ([`Writer::request_notification`]) and looks again, before it waits. The
//! reader looks for such requests each time it has reported room; [`Reader::taken`] returns true once half of the ring is free.
//!
//! # Hostile processes
//!
//! A process that writes anything into the writers' memory at any time does the reader no harm, if it can neither shorten
//! that memory nor take pages of it away. All accesses are atomic, and all indexes stay within the memory. The reader trusts
//! its own position alone, checks the tail and each length that it reads, and reads each of them once. It returns [`Broken`]
//! for content that no writer would write; writers that continue make it find ever more records, so its owner bounds how many
//! it takes. The bytes of a record may change while they are read, so a reader copies them before it looks at them. A writer
//! finds a full ring or overwrites records, whatever the others do; its own calls return.
//!
//! ```
//! use std::sync::atomic::AtomicU64;
//! use ring::{PutOutcome, Reader, ReaderWords, Ring, WORDS, Writer};
//!
//! let memory: Vec<AtomicU64> = std::iter::repeat_with(AtomicU64::default).take(WORDS).collect();
//! let words = ReaderWords::default();
//! let (ring, mut reader) = (Ring::new(&memory, &words), Reader::default());
//! assert_eq!(Writer::new(ring).put(5, |record| record.push(b"hello")), PutOutcome::Done { sleep: None });
//! let bytes = reader.next(ring)?.expect("a record");
//! let mut content = vec![0; bytes];
//! reader.read(ring, &mut content);
//! reader.taken(ring, bytes);
//! assert_eq!(content, b"hello");
//! assert_eq!(reader.next(ring)?, None);
//! # Ok::<(), ring::Broken>(())
//! ```
#![deny(unsafe_code)]

mod copy;

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, fence};

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();
/// Number of words before the records.
pub const CONTROL_WORDS: usize = 16;
/// Number of bytes of records, with their lengths, for which a ring has room. The model of `tests/model.rs` has room for a few
/// small records.
pub const ROOM_BYTES: usize = if cfg!(loom) { 64 } else { 512 * 1024 };
/// The longest record of a ring that is not long.
pub const RECORD_BYTES_MAX: usize = ROOM_BYTES - WORD_BYTES;
/// The longest record of a long ring.
pub const LONG_RECORD_BYTES_MAX: usize = if cfg!(loom) { 128 } else { 1028 * 1024 };
/// A record that is longer than this finds room in a long ring as soon as one of this length would.
const ENOUGH_BYTES: u64 = ROOM_BYTES as u64 / 8;

const CONTENT_WORDS: usize = ROOM_BYTES / WORD_BYTES;
const LONG_CONTENT_WORDS: usize = CONTENT_WORDS + LONG_RECORD_BYTES_MAX / WORD_BYTES;
/// Number of words of a ring that is not long.
pub const WORDS: usize = CONTROL_WORDS + CONTENT_WORDS;
/// Number of words of a long ring.
pub const LONG_WORDS: usize = CONTROL_WORDS + LONG_CONTENT_WORDS;

/// Word with the position behind the last record.
const TAIL: usize = 0;
/// Word with the position of the reader, as a writer has loaded it last.
const CACHED_HEAD: usize = 1;
/// Word with the position from which the writers have gone back to the beginning of the memory, and a mark that there is one.
const WRAPPED_AT: usize = 2;
const SET: u64 = 1;
/// Word with the number of times that a writer has asked the reader to report room.
const REQUESTS: usize = 8;

/// The last position at which a reader begins: far from the end of the numbers.
const POSITION_MAX: u64 = 1 << 62;

/// The mark of a sleep.
const ASLEEP: u32 = 1;

/// Where a writer goes back to the beginning of the memory, if it can: each time that it has passed a multiple of this.
const NEAR_BYTES: u64 = if cfg!(loom) { 32 } else { 4 * 1024 };

/// The reader reports room to the writers in steps of this size: each report costs both a cache line.
const STEP_BYTES: u64 = ROOM_BYTES as u64 / 8;

/// The words that the reader writes. Zeros are those of a reader that is awake and has read nothing.
pub type ReaderWords = [AtomicU64; 2];

/// Word of the reader with its position.
const HEAD: usize = 0;
/// Word of the reader with the number of its last sleep, doubled, and [`ASLEEP`] while it sleeps.
const SLEEP: usize = 1;

/// The memory of a ring, as both sides see it.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    control: &'a [AtomicU64; CONTROL_WORDS],
    content: &'a [AtomicU64],
    reader: &'a ReaderWords,
}

/// The side of a ring that writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a>(Ring<'a>);

/// The outcome of [`Writer::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The reader will find the record.
    Done {
        /// The generation of its sleep, if it sleeps: one of the writers that get this number must wake it.
        sleep: Option<NonZeroU32>,
    },
    /// There is no room for the record.
    Full,
}

/// A process has written something into the memory that no writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the shared ring holds a position or a length that no writer writes")
    }
}

impl std::error::Error for Broken {}

/// Returns the number of bytes that a record of this length takes.
const fn taken_bytes(bytes: usize) -> u64 {
    (WORD_BYTES + bytes.next_multiple_of(WORD_BYTES)) as u64
}

impl<'a> Ring<'a> {
    /// Returns the ring in these words. Fresh memory is zero, which is an empty ring.
    ///
    /// # Panics
    ///
    /// If the words are neither [`WORDS`] nor [`LONG_WORDS`].
    pub fn new(words: &'a [AtomicU64], reader: &'a ReaderWords) -> Ring<'a> {
        assert!(matches!(words.len(), WORDS | LONG_WORDS), "{} words are no ring", words.len());
        let (control, content) = words.split_first_chunk().expect("a ring begins with its control words");
        Ring { control, content, reader }
    }

    /// Returns whether the ring has memory for a long record.
    pub fn is_long(self) -> bool {
        self.content.len() == LONG_CONTENT_WORDS
    }

    /// Returns the length of the longest record.
    fn record_bytes_max(self) -> usize {
        if self.is_long() { LONG_RECORD_BYTES_MAX } else { RECORD_BYTES_MAX }
    }

    /// Returns the number of bytes of the content.
    fn content_bytes(self) -> u64 {
        (self.content.len() * WORD_BYTES) as u64
    }

    /// Returns the index of a position's word among the content.
    fn index(self, position: u64) -> usize {
        let word = (position / WORD_BYTES as u64) as usize;
        // Both divisors are constants, so neither costs a division.
        if self.is_long() { word % LONG_CONTENT_WORDS } else { word % CONTENT_WORDS }
    }

    /// Returns the number of bytes from a position to the end of the memory.
    fn bytes_to_end(self, position: u64) -> u64 {
        self.content_bytes() - (self.index(position) * WORD_BYTES) as u64
    }

    /// Returns the word at a position.
    fn word(self, position: u64) -> &'a AtomicU64 {
        &self.content[self.index(position)]
    }
}

impl<'a> Writer<'a> {
    /// Returns the writer of a ring. Only processes that may write its memory call the functions of this type.
    pub fn new(ring: Ring<'a>) -> Writer<'a> {
        Writer(ring)
    }

    /// Puts a record of this length behind the others; `fill` pushes its bytes. The caller holds the lock of the writers.
    ///
    /// Bytes that `fill` does not push are those of an earlier record; those beyond the length are left out.
    pub fn put(self, bytes: usize, fill: impl FnOnce(&mut Record<'a>)) -> PutOutcome {
        let put = self.try_put(bytes, |record| {
            fill(record);
            Ok::<(), Infallible>(())
        });
        match put {
            Ok(outcome) => outcome,
            Err(never) => match never {},
        }
    }

    /// Puts a record as [`Writer::put`] does, unless `fill` fails: then the reader does not find it. The record is there directly
    /// after `fill` has returned.
    ///
    /// # Errors
    ///
    /// That of `fill`.
    pub fn try_put<E>(
        self,
        bytes: usize,
        fill: impl FnOnce(&mut Record<'a>) -> Result<(), E>,
    ) -> Result<PutOutcome, E> {
        let is_done = self.try_put_of_several(bytes, fill)?;
        Ok(if is_done { PutOutcome::Done { sleep: self.sleep_to_end() } } else { PutOutcome::Full })
    }

    /// Puts one of several records as [`Writer::try_put`] does; returns false if there is no room. Behind the last of them the
    /// caller looks for the reader's sleep by [`Writer::sleep_to_end`].
    ///
    /// # Errors
    ///
    /// That of `fill`.
    pub fn try_put_of_several<E>(
        self,
        bytes: usize,
        fill: impl FnOnce(&mut Record<'a>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let tail = self.0.control[TAIL].load(Relaxed);
        if !self.fits(bytes) {
            return Ok(false);
        }
        let begin = self.begin(tail, taken_bytes(bytes));
        self.0.word(begin).store(bytes as u64, Relaxed);
        let mut record = Record {
            ring: self.0,
            at: begin.wrapping_add(WORD_BYTES as u64),
            left: bytes,
            begun: [0; WORD_BYTES],
            count: 0,
        };
        fill(&mut record)?;
        record.finish();
        self.0.control[TAIL].store(begin.wrapping_add(taken_bytes(bytes)), Release);
        Ok(true)
    }

    /// Returns the number of the sleep of a reader that may not have found the records that were put before this call.
    pub fn sleep_to_end(self) -> Option<NonZeroU32> {
        // Either the reader finds the records, or the writer finds the sleeper.
        fence(SeqCst);
        self.sleep_that_is_noted()
    }

    /// Returns the number of a sleep that the reader has noted, without regard to the order of records and notes.
    #[inline]
    pub fn sleep_that_is_noted(self) -> Option<NonZeroU32> {
        let word = self.0.reader[SLEEP].load(Relaxed) as u32;
        NonZeroU32::new(word).filter(|word| word.get() & ASLEEP != 0)
    }

    /// Returns whether the ring has memory for a long record.
    #[inline]
    pub fn is_long(self) -> bool {
        self.0.is_long()
    }

    /// Returns whether a record of this length has room. The caller holds the lock of the writers.
    pub fn fits(self, bytes: usize) -> bool {
        let tail = self.0.control[TAIL].load(Relaxed);
        bytes <= self.0.record_bytes_max() && self.has_room(tail, taken_bytes(bytes))
    }

    /// Returns the position at which the next record begins: that of the tail, or the beginning of the memory, if the reader has
    /// removed all records. So a ring that never holds much uses little memory, and what it uses is in the caches.
    fn begin(self, tail: u64, bytes: u64) -> u64 {
        if self.0.control[WRAPPED_AT].load(Relaxed) == tail | SET {
            // A writer has gone back here, and has not published its record.
            self.0.control[WRAPPED_AT].store(0, Relaxed);
        }
        let rest = self.0.bytes_to_end(tail);
        let used = self.0.content_bytes() - rest;
        // To look costs a cache line, so not each record does.
        let is_far = used >= NEAR_BYTES && used % NEAR_BYTES < bytes;
        if !is_far || self.0.reader[HEAD].load(Acquire) != tail {
            return tail;
        }
        // The skipped room is free, although the reader has not passed it.
        let begin = tail.wrapping_add(rest);
        self.0.control[CACHED_HEAD].store(begin, Relaxed);
        self.0.control[WRAPPED_AT].store(tail | SET, Relaxed);
        begin
    }

    /// Returns whether `bytes` bytes are free behind `tail`.
    fn has_room(self, tail: u64, bytes: u64) -> bool {
        // The memory beyond the room holds the rest of a long record.
        let needed = if self.0.is_long() { bytes.min(ENOUGH_BYTES) } else { bytes };
        let fits = |head: u64| {
            let used = tail.wrapping_sub(head);
            used <= ROOM_BYTES as u64 && needed <= ROOM_BYTES as u64 - used
        };
        let known = self.0.control[CACHED_HEAD].load(Relaxed);
        if fits(known) {
            return true;
        }
        // The reader may be in front of the skipped bytes. A position behind the tail is that of a record that was not published.
        let known = if known <= tail { known } else { 0 };
        let head = self.0.reader[HEAD].load(Acquire).max(known);
        self.0.control[CACHED_HEAD].store(head, Relaxed);
        fits(head)
    }

    /// Asks the reader to report room. The writer looks once more afterwards: room that the reader has made before the request
    /// is not reported.
    pub fn request_notification(self) {
        let requests = self.0.control[REQUESTS].load(Relaxed);
        self.0.control[REQUESTS].store(requests.wrapping_add(1), Relaxed);
        fence(SeqCst);
    }
}

/// A record that is being written.
#[derive(Debug)]
pub struct Record<'a> {
    ring: Ring<'a>,
    /// Position of the next whole word.
    at: u64,
    /// Number of bytes that are still missing.
    left: usize,
    /// The word that is not complete yet, and its number of bytes.
    begun: [u8; WORD_BYTES],
    count: usize,
}

impl Record<'_> {
    /// Appends bytes to the record.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        if self.count > 0 {
            let more = bytes.len().min(WORD_BYTES - self.count);
            self.begun[self.count..][..more].copy_from_slice(&bytes[..more]);
            self.count += more;
            bytes = &bytes[more..];
            if self.count < WORD_BYTES {
                return;
            }
            self.ring.word(self.at).store(u64::from_ne_bytes(self.begun), Relaxed);
            self.at = self.at.wrapping_add(WORD_BYTES as u64);
        }
        let (words, rest) = bytes.as_chunks();
        let content = self.ring.content;
        let first = self.ring.index(self.at);
        let (now, later) = words.split_at(words.len().min(content.len() - first));
        copy::store(&content[first..], now);
        copy::store(content, later);
        self.at = self.at.wrapping_add((words.len() * WORD_BYTES) as u64);
        self.begun[..rest.len()].copy_from_slice(rest);
        self.count = rest.len();
    }

    fn finish(&self) {
        if self.count > 0 {
            self.ring.word(self.at).store(u64::from_ne_bytes(self.begun), Relaxed);
        }
    }
}

/// The reader of a ring. It alone knows how far it has read.
#[derive(Debug, Default)]
pub struct Reader {
    position: u64,
    /// The tail that the reader has seen last.
    tail: u64,
    /// The position that the writers know.
    reported: u64,
    /// The number of requests to report room that the reader has seen.
    requests: u64,
    /// The number of the last sleep, doubled, and a mark while the reader sleeps.
    sleep: u32,
}

impl Reader {
    /// Returns the length of the next record; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The tail or the length is none that a writer writes.
    pub fn next(&mut self, ring: Ring<'_>) -> Result<Option<usize>, Broken> {
        if self.position == self.tail {
            self.tail = self.tail_of(ring)?;
            if self.position == self.tail {
                return Ok(None);
            }
            // The writers go back only when the reader has removed all records.
            if ring.control[WRAPPED_AT].load(Relaxed) == self.position | SET {
                let rest = ring.bytes_to_end(self.position);
                // A record follows.
                if rest >= self.tail.wrapping_sub(self.position) {
                    return Err(Broken);
                }
                self.position += rest;
            }
        }
        let bytes = ring.word(self.position).load(Relaxed);
        let waiting = self.tail.wrapping_sub(self.position);
        match usize::try_from(bytes) {
            Ok(bytes) if bytes <= ring.record_bytes_max() && taken_bytes(bytes) <= waiting => Ok(Some(bytes)),
            _ => Err(Broken),
        }
    }

    /// Returns the words of the next record from this offset on, as many as hold `bytes` bytes. The offset is a multiple of a
    /// word's length. `None`: the system has no memory for them.
    pub fn words(&self, ring: Ring<'_>, offset: usize, bytes: usize) -> Option<Vec<u64>> {
        let at = self.position + (WORD_BYTES + offset) as u64;
        let content = ring.content;
        let (first, count) = (ring.index(at), bytes.div_ceil(WORD_BYTES).min(content.len()));
        let now = count.min(content.len() - first);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        copy::append(&content[first..][..now], &mut words);
        copy::append(&content[..count - now], &mut words);
        Some(words)
    }

    /// Copies the first bytes of the next record. Those beyond its end are undefined.
    pub fn read(&self, ring: Ring<'_>, place: &mut [u8]) {
        let (content, first) = (ring.content, ring.index(self.position.wrapping_add(WORD_BYTES as u64)));
        let (now, later) = place.split_at_mut(place.len().min((content.len() - first) * WORD_BYTES));
        copy::load(&content[first..], now);
        copy::load(content, later);
    }

    /// Removes the next record, whose length [`Reader::next`] has returned. Returns whether a writer has asked to be notified of
    /// room, and half of the ring is free now.
    pub fn taken(&mut self, ring: Ring<'_>, bytes: usize) -> bool {
        self.position += taken_bytes(bytes);
        let is_due = self.position == self.tail || self.position.wrapping_sub(self.reported) >= STEP_BYTES;
        is_due && self.report(ring)
    }

    /// Reports to the writers how far the reader is. Returns whether one of them waits, and half of the ring is free.
    fn report(&mut self, ring: Ring<'_>) -> bool {
        self.reported = self.position;
        ring.reader[HEAD].store(self.position, Release);
        // Either the writer finds the room, or the reader finds the request.
        fence(SeqCst);
        let is_free = self.waiting(ring).is_ok_and(|waiting| waiting <= ROOM_BYTES as u64 / 2);
        is_free && {
            let before = std::mem::replace(&mut self.requests, ring.control[REQUESTS].load(Relaxed));
            self.requests != before
        }
    }

    /// Continues in the memory of other writers, behind what they have put there so far. The reader sleeps.
    ///
    /// # Errors
    ///
    /// The tail is none that a writer writes; then the reader stays where it is.
    pub fn move_to(&mut self, ring: Ring<'_>) -> Result<(), Broken> {
        let tail = ring.control[TAIL].load(Acquire);
        if tail > POSITION_MAX || !tail.is_multiple_of(WORD_BYTES as u64) {
            return Err(Broken);
        }
        *self = Reader { position: tail, tail, reported: tail, requests: 0, sleep: self.sleep };
        ring.reader[HEAD].store(tail, Release);
        self.sleep(ring);
        Ok(())
    }

    /// Notes that the reader sleeps, if there is no record. Returns whether it sleeps.
    pub fn sleep(&mut self, ring: Ring<'_>) -> bool {
        if self.sleep & ASLEEP == 0 {
            self.sleep = self.sleep.wrapping_add(2) | ASLEEP;
            ring.reader[SLEEP].store(self.sleep.into(), Relaxed);
        }
        fence(SeqCst);
        let sleeps = ring.control[TAIL].load(Acquire) == self.position;
        if !sleeps {
            self.wake(ring);
        }
        sleeps
    }

    /// Notes that the reader is awake.
    pub fn wake(&mut self, ring: Ring<'_>) {
        self.sleep &= !ASLEEP;
        ring.reader[SLEEP].store(self.sleep.into(), Relaxed);
    }

    /// Returns the number of bytes that all records take that were not removed.
    ///
    /// # Errors
    ///
    /// The tail is none that a writer writes.
    pub fn waiting(&self, ring: Ring<'_>) -> Result<u64, Broken> {
        Ok(self.tail_of(ring)?.wrapping_sub(self.position))
    }

    /// Returns the position, which increases with each record that is removed.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn tail_of(&self, ring: Ring<'_>) -> Result<u64, Broken> {
        let tail = ring.control[TAIL].load(Acquire);
        // As much as the memory holds may have been skipped.
        let is_near = tail.wrapping_sub(self.position) <= 2 * ring.content_bytes();
        if is_near && tail.is_multiple_of(WORD_BYTES as u64) { Ok(tail) } else { Err(Broken) }
    }
}
