//! The ring of this process for a socket: memory that the process makes, and that the daemon maps for reading.
//!
//! The memory is sealed against later writable mappings, so that no process, this one included, can take pages of it away
//! while the daemon reads. A process that gets the socket by `exec`, or over another socket, therefore cannot use the ring
//! of an earlier one, and makes its own. The children of a `fork` use that of their parent. Only one ring of a socket is
//! in use at a time: the page of the sharers says which the last one is, and the status page which one the daemon reads.
//!
//! A process that sends long messages makes a long ring, in place of the one that it has, which has memory for them.

use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use ring::{Ring, Writer};

use crate::mapping::{self, Mapping};
use crate::owned::Owned;
use crate::pages::Pages;
use crate::system::{self, Errno, Result};

/// Number of messages that a process sends as records before it announces a ring: a ring costs some ten of them.
const RECORDS_BEFORE: u32 = 16;
/// Number of records that a long message counts as: its memfd costs about half of a ring.
const LONG_COUNTS_AS: u32 = 8;

pub(crate) struct OwnRing {
    /// Null as long as there is none.
    words: AtomicPtr<AtomicU64>,
    /// Number of these words. The holder of the write lock changes both.
    count: AtomicUsize,
    /// The number under which the ring was announced last, or 0.
    number: AtomicU32,
    /// Number of messages that were sent as records since then.
    records: AtomicU32,
    /// Number of threads that send at this moment and did not find the ring in use.
    under_way: AtomicU32,
    /// Not zero: the ring is in use.
    used: AtomicU32,
}

impl OwnRing {
    pub(crate) fn new() -> OwnRing {
        OwnRing {
            words: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
            number: AtomicU32::new(0),
            records: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
            used: AtomicU32::new(0),
        }
    }

    /// Returns the ring if it is the one that the daemon reads. The caller holds the write lock.
    pub(crate) fn writer<'a>(&'a self, pages: Pages<'a>) -> Option<Writer<'a>> {
        let number = self.number.load(Relaxed);
        let is_read = number != 0
            && pages.status.ring_number.load(Acquire) == number
            && pages.sharers.sending().is_ring(number);
        if !is_read || self.used.load(Relaxed) == 0 && !self.begins() {
            return None;
        }
        let words = NonNull::new(self.words.load(Acquire))?;
        // SAFETY: the memory is mapped with this length for the lifetime of `self`, and consists of atomics.
        let words = unsafe { slice::from_raw_parts(words.as_ptr(), self.count.load(Relaxed)) };
        Some(Writer::new(Ring::new(words, &pages.status.ring)))
    }

    /// Returns whether the ring was made for long messages. The caller holds the write lock.
    fn is_long(&self) -> bool {
        self.count.load(Relaxed) == ring::LONG_WORDS
    }

    /// Stops using the ring: the daemon no longer reads it.
    pub(crate) fn abandon(&self) {
        self.number.store(0, Relaxed);
    }

    /// Begins to use the ring, unless another thread may be sending a record.
    fn begins(&self) -> bool {
        let begins = self.under_way.load(Acquire) <= 1;
        self.used.store(begins.into(), Relaxed);
        begins
    }

    /// Returns whether this process uses the ring.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed) != 0
    }

    /// Notes that a thread sends a message while the ring is not in use. Until [`OwnRing::end_record`], no other thread begins to
    /// use it: no later message overtakes this one.
    pub(crate) fn begin_record(&self) {
        self.under_way.fetch_add(1, AcqRel);
    }

    /// Notes that the message was sent, or was not.
    pub(crate) fn end_record(&self) {
        self.under_way.fetch_sub(1, AcqRel);
    }

    /// Counts a message that is sent as a record, a long one if `is_long`. Announces a ring by `send`, with its number and its
    /// file, if enough messages were sent, and the ring is not the one that was announced last, or not long as it should be. The
    /// caller holds the write lock.
    pub(crate) fn count(&self, pages: Pages<'_>, is_long: bool, send: impl FnOnce(u32, RawFd) -> Result<()>) {
        let number = self.number.load(Relaxed);
        let is_last = number != 0 && pages.sharers.sending().is_ring(number);
        let suffices = is_last && (self.is_long() || !is_long);
        let counts_as = if is_long { LONG_COUNTS_AS } else { 1 };
        if suffices || self.records.fetch_add(counts_as, Relaxed) < RECORDS_BEFORE {
            return;
        }
        self.records.store(0, Relaxed);
        let words = if is_long || self.is_long() { ring::LONG_WORDS } else { ring::WORDS };
        // Without a ring the messages go as records.
        let Ok((memory, memfd)) = make(words) else { return };
        let sending = pages.sharers.sending();
        let (before, number) = (sending.ring(), sending.next_ring());
        // Noted first: if this thread dies after `send`, the other sharers put no more messages into the ring that the daemon
        // leaves.
        sending.set_ring(number);
        if send(number, memfd.raw()).is_err() {
            // The daemon continues with the earlier ring, and so do its writers.
            return sending.set_ring(before);
        }
        self.used.store(0, Relaxed);
        self.replace(memory, words);
        self.number.store(number, Relaxed);
    }

    /// Replaces the memory by that of a fresh ring of so many words. The caller holds the write lock.
    fn replace(&self, memory: Mapping, words: usize) {
        let old = self.words.swap(memory.release().as_ptr().cast(), Release);
        // A thread that uses the old memory has the lock, as the caller does.
        unmap(old, self.count.swap(words, Relaxed));
    }
}

/// Makes a fresh ring of so many words; returns its memory and its file.
///
/// # Errors
///
/// `EFBIG`: the process may not make as long a file, and would get a signal.
fn make(words: usize) -> Result<(Mapping, Owned)> {
    let bytes = bytes_of(words);
    if bytes > system::file_bytes_max() {
        return Err(Errno(libc::EFBIG));
    }
    let memfd = system::memfd(c"swiftwater-ring")?;
    system::set_length(memfd.raw(), bytes)?;
    let memory = mapping::map_to_write(memfd.raw(), bytes, true)?;
    system::seal_mapped(memfd.raw())?;
    Ok((memory, memfd))
}

/// Returns the length of so many words.
const fn bytes_of(words: usize) -> usize {
    words * size_of::<AtomicU64>()
}

fn unmap(words: *mut AtomicU64, count: usize) {
    if let Some(words) = NonNull::new(words) {
        // SAFETY: the memory was mapped with this size, and no reference to it remains.
        unsafe { mapping::unmap(words.cast(), bytes_of(count)) };
    }
}

impl Drop for OwnRing {
    fn drop(&mut self) {
        unmap(*self.words.get_mut(), *self.count.get_mut());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use channel_protocol::status_page::StatusPage;
    use ring::{PutOutcome, ReaderWords};

    use super::*;
    use crate::descriptor::{self, Descriptor};

    /// A socket whose daemon reads the ring that the test tells.
    pub(crate) struct Socket {
        pub(crate) descriptor: Descriptor,
        pub(crate) status: Owned,
    }

    impl Socket {
        pub(crate) fn new() -> Socket {
            let files = descriptor::tests::files();
            // SAFETY: the call takes no pointer.
            let status = Owned::new(unsafe { libc::dup(files[0].raw()) }).expect("a copy");
            Socket { descriptor: Descriptor::map(files).expect("pages of this version"), status }
        }

        fn pages(&self) -> Pages<'_> {
            self.descriptor.pages()
        }

        fn daemon_reads(&self, number: u32) {
            descriptor::tests::set(self.status.raw(), StatusPage::RING_NUMBER_AT, number);
        }

        /// Counts messages until a ring is announced by `send`.
        fn count_until_announced(&self, is_long: bool, send: impl Fn(u32, RawFd) -> Result<()>) {
            let announced = Cell::new(false);
            while !announced.get() {
                self.descriptor.ring.count(self.pages(), is_long, |number, memfd| {
                    announced.set(true);
                    send(number, memfd)
                });
            }
        }

        /// Announces a ring, which the daemon then reads; returns its memory.
        pub(crate) fn join(&self, words: usize) -> Mapping {
            let memory = Cell::new(None);
            self.count_until_announced(words == ring::LONG_WORDS, |number, memfd| {
                memory.set(Some(mapping::map_to_read(memfd, bytes_of(words))?));
                self.daemon_reads(number);
                Ok(())
            });
            memory.take().expect("it was announced")
        }

        /// Returns whether the process puts a message into the ring in this memory.
        fn writes_to(&self, memory: &Mapping, words: usize) -> bool {
            let Some(writer) = self.descriptor.ring.writer(self.pages()) else { return false };
            // SAFETY: the memory is mapped with this length, and consists of atomics.
            let words = unsafe { slice::from_raw_parts(memory.address().cast().as_ptr(), words) };
            let (reader, mut found) = (ReaderWords::default(), ring::Reader::default());
            let done = writer.put(3, |record| record.push(b"abc"));
            done != PutOutcome::Full && found.next(Ring::new(words, &reader)) == Ok(Some(3))
        }
    }

    #[test]
    fn a_ring_that_cannot_be_announced_leaves_the_earlier_one_in_use() {
        let socket = Socket::new();
        let short = socket.join(ring::WORDS);
        socket.count_until_announced(true, |_, _| Err(Errno(libc::EAGAIN)));
        assert!(socket.writes_to(&short, ring::WORDS));
        let long = socket.join(ring::LONG_WORDS);
        assert!(socket.writes_to(&long, ring::LONG_WORDS), "it is announced later");
    }

    #[test]
    fn a_message_that_its_association_takes_no_more_is_not_in_the_ring_which_stays_in_use() {
        use channel_protocol::record::{Header, Kind};

        let socket = Socket::new();
        let memory = socket.join(ring::WORDS);
        let header = Header::new(Kind::Data);
        let ended = || Err(Errno(libc::EPIPE));
        let parts = [crate::system::Source::of(b"a word")];
        let content = crate::system::Content::new(&parts);
        let sent = crate::ring::send(-1, &socket.descriptor, &header, content, libc::MSG_DONTWAIT, ended);
        assert_eq!(sent, Err(crate::ring::PutError::Refused(Errno(libc::EPIPE))));
        assert!(socket.writes_to(&memory, ring::WORDS), "the first message of the ring");
    }

    /// The daemon may leave the earlier ring as soon as the record is sent, even if its sender has died.
    #[test]
    fn sharers_do_not_use_the_earlier_ring_from_before_another_is_announced() {
        let socket = Socket::new();
        let _short = socket.join(ring::WORDS);
        let ring = &socket.descriptor.ring;
        assert!(ring.writer(socket.pages()).is_some());
        socket.count_until_announced(true, |_, _| {
            assert!(ring.writer(socket.pages()).is_none());
            Ok(())
        });
        assert!(ring.writer(socket.pages()).is_none(), "the daemon does not read the new one yet");
    }
}
