//! The ring of this process for a socket: memory that the process makes, and that the daemon maps for reading.
//!
//! The memory is sealed against later writable mappings, so that no process, this one included, can take pages of it away
//! while the daemon reads. A process that gets the socket by `exec`, or over another socket, therefore cannot use the ring
//! of an earlier one, and makes its own. The children of a `fork` use that of their parent. Only one ring of a socket is
//! in use at a time: the page of the sharers says which the last one is, and the status page which one the daemon reads.

use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use ring::{Ring, Writer};

use crate::mapping;
use crate::owned::Owned;
use crate::pages::Pages;
use crate::system::{self, Result};

/// Number of messages that a process sends as records before it announces a ring: a ring costs some ten of them.
const RECORDS_BEFORE: u32 = 16;

type Words = [AtomicU64; ring::WORDS];

pub(crate) struct OwnRing {
    /// Null as long as there is none.
    words: AtomicPtr<Words>,
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
        // SAFETY: the memory is mapped for the lifetime of `self`, and consists of atomics.
        let words = unsafe { words.as_ref() };
        Some(Writer::new(Ring::new(words, &pages.status.ring)))
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

    /// Counts a message that is sent as a record. Announces the ring by `send`, with its number and its file, if enough
    /// messages were sent, and the ring is not the one that was announced last. The caller holds the write lock.
    pub(crate) fn count(&self, pages: Pages<'_>, send: impl FnOnce(u32, RawFd) -> Result<()>) {
        let number = self.number.load(Relaxed);
        let is_last = number != 0 && pages.sharers.sending().is_ring(number);
        if is_last || self.records.fetch_add(1, Relaxed) < RECORDS_BEFORE {
            return;
        }
        self.records.store(0, Relaxed);
        let number = pages.sharers.sending().next_ring();
        // Without a ring the messages go as records.
        let Ok(memfd) = self.make() else { return };
        if send(number, memfd.raw()).is_ok() {
            self.used.store(0, Relaxed);
            self.number.store(number, Relaxed);
            pages.sharers.sending().on_ring_announced(number);
        }
    }

    /// Makes a fresh ring; returns its file.
    fn make(&self) -> Result<Owned> {
        let memfd = system::memfd(c"swiftwater-ring")?;
        system::set_length(memfd.raw(), ring::BYTES)?;
        let words = mapping::map_to_write(memfd.raw(), ring::BYTES, true)?;
        system::seal_mapped(memfd.raw())?;
        let old = self.words.swap(words.release().as_ptr().cast(), Release);
        // A thread that uses the old one has the lock, as the caller does.
        unmap(old);
        Ok(memfd)
    }
}

fn unmap(words: *mut Words) {
    if let Some(words) = NonNull::new(words) {
        // SAFETY: the memory was mapped with this size, and no reference to it remains.
        unsafe { mapping::unmap(words.cast(), ring::BYTES) };
    }
}

impl Drop for OwnRing {
    fn drop(&mut self) {
        unmap(*self.words.get_mut());
    }
}
