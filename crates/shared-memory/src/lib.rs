//! Memory that processes share: a mapping of a memfd, which other processes map and may write at any time. Also the return of
//! freed memory to the system.
//!
//! A write call to a memfd waits for the lock of its inode. Any process with a writable descriptor can hold that lock for as long as
//! it likes: its own write call sleeps with the lock held while it reads from memory that a FUSE server does not deliver. A store to
//! a mapping takes no such lock.
//!
//! The memfd must be sealed against shrinking, since a store beyond its end would raise SIGBUS. A punched hole reads as zeros. Under
//! strict overcommit (`vm.overcommit_memory=2`) a store to a hole raises SIGBUS where the system has no memory left to commit.
//!
//! ```
//! use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
//! use shared_memory::Mapping;
//!
//! let memfd = memfd_create("example", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
//! ftruncate(&memfd, 4096)?;
//! fcntl_add_seals(&memfd, SealFlags::SHRINK)?;
//! let mapping = Mapping::new(&memfd, 4096)?;
//! mapping.store(8, &7_u32.to_ne_bytes());
//! assert_eq!(mapping.load(8), 7);
//! # Ok::<(), rustix::io::Errno>(())
//! ```

mod freed;

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

pub use freed::return_freed;

/// Bytes of a word: all loads and stores are of whole, aligned words.
const WORD_BYTES: usize = size_of::<u32>();
const LONG_WORD_BYTES: usize = size_of::<u64>();

/// A mapping of a memfd, readable and writable.
#[derive(Debug)]
pub struct Mapping {
    place: NonNull<c_void>,
    /// Number of bytes that are accessed as words of 32 bits.
    bytes: usize,
    /// Number of words of 64 bits behind them.
    long_words: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread, and all accesses to it are atomic.
unsafe impl Send for Mapping {}
// SAFETY: all accesses to the memory are atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of a memfd.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is no memfd, is not sealed against shrinking, or is shorter; else the error of `mmap`.
    pub fn new(memfd: impl AsFd, bytes: usize) -> Result<Mapping, Errno> {
        Mapping::with_long_words(memfd, bytes, 0)
    }

    /// Maps the first `bytes` bytes of a memfd, a multiple of 8, and behind them so many words of 64 bits.
    ///
    /// # Errors
    ///
    /// As [`Mapping::new`].
    pub fn with_long_words(memfd: impl AsFd, bytes: usize, long_words: usize) -> Result<Mapping, Errno> {
        let all = long_words.checked_mul(LONG_WORD_BYTES).and_then(|long| long.checked_add(bytes));
        let all =
            all.filter(|_| bytes.is_multiple_of(LONG_WORD_BYTES) || long_words == 0).ok_or(Errno::INVAL)?;
        if !fcntl_get_seals(&memfd)?.contains(SealFlags::SHRINK) {
            return Err(Errno::INVAL);
        }
        let size = usize::try_from(fstat(&memfd)?.st_size).map_err(|_| Errno::INVAL)?;
        if bytes == 0 || size < all {
            return Err(Errno::INVAL);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address range that is free, so no memory in use is replaced. The memfd has that many bytes
        // and keeps them, since it is sealed against shrinking.
        let place = unsafe { mmap(ptr::null_mut(), all, access, MapFlags::SHARED, memfd, 0)? };
        let place = NonNull::new(place).ok_or(Errno::NOMEM)?;
        Ok(Mapping { place, bytes, long_words })
    }

    /// Returns the word at an offset in bytes.
    ///
    /// # Panics
    ///
    /// If the offset is not aligned, or the word does not lie within the mapping.
    pub fn load(&self, at: usize) -> u32 {
        self.word(at).load(Acquire)
    }

    /// Stores whole words from an offset in bytes, the last word first: a reader that finds the first one finds all of them.
    ///
    /// # Panics
    ///
    /// If the offset or the length is not aligned, or a word does not lie within the mapping.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        assert!(rest.is_empty(), "{} bytes are not whole words", bytes.len());
        for (index, word) in words.iter().enumerate().rev() {
            self.word(at + index * WORD_BYTES).store(u32::from_ne_bytes(*word), Release);
        }
    }

    /// Returns the words of 64 bits.
    pub fn long_words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping reaches as far behind the other words.
        let first = unsafe { self.place.as_ptr().byte_add(self.bytes) };
        // SAFETY: the words are aligned, since the mapping begins at a page and `bytes` is a multiple of their length. They stay
        // mapped as long as `self` is borrowed, and this process accesses them only through this function; other processes may
        // write at any time, which atomic words allow.
        unsafe { slice::from_raw_parts(first.cast(), self.long_words) }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(WORD_BYTES), "offset {at} is not aligned");
        assert!(
            at.checked_add(WORD_BYTES).is_some_and(|end| end <= self.bytes),
            "offset {at} is not in {} bytes",
            self.bytes
        );
        // SAFETY: the offset is within the mapping, as asserted.
        let word = unsafe { self.place.as_ptr().byte_add(at) };
        // SAFETY: the word is aligned, since the mapping begins at a page and the offset is aligned. It stays mapped as long as `self` is
        // borrowed. This process accesses the memory only through this function, so only as atomic words; other processes may
        // write at any time, which an atomic word allows.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the range that `mmap` returned. No reference into it is left, since each borrows `self`.
        let unmapped = unsafe { munmap(self.place.as_ptr(), self.bytes + self.long_words * LONG_WORD_BYTES) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::panic::catch_unwind;

    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::io::pread;

    use super::*;

    const BYTES: usize = 8192;

    fn memfd(seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = memfd_create("swiftwater-test", flags).expect("a memfd");
        ftruncate(&memfd, BYTES as u64).expect("it is ours");
        fcntl_add_seals(&memfd, seals).expect("it is ours");
        memfd
    }

    #[test]
    fn only_a_memfd_that_cannot_shrink_is_mapped() {
        assert_eq!(Mapping::new(memfd(SealFlags::GROW), BYTES).err(), Some(Errno::INVAL));
        let sealed = memfd(SealFlags::SHRINK);
        assert_eq!(Mapping::new(&sealed, BYTES + 1).err(), Some(Errno::INVAL), "it is shorter");
        assert_eq!(Mapping::new(&sealed, 0).err(), Some(Errno::INVAL));
        let file = std::fs::File::open("/dev/zero").expect("a file");
        assert_eq!(Mapping::new(file, BYTES).err(), Some(Errno::INVAL), "it is no memfd");
        assert!(Mapping::new(sealed, BYTES).is_ok());
    }

    #[test]
    fn words_are_found_by_others_and_a_hole_reads_as_zeros() {
        let memfd = memfd(SealFlags::SHRINK);
        let (one, other) = (Mapping::new(&memfd, BYTES), Mapping::new(&memfd, BYTES));
        let (one, other) = (one.expect("memory"), other.expect("memory"));
        one.store(BYTES - 8, b"two more");
        assert_eq!(other.load(BYTES - 4), u32::from_ne_bytes(*b"more"));
        let mut bytes = [0; 8];
        assert_eq!(pread(&memfd, &mut bytes[..], BYTES as u64 - 8), Ok(8));
        assert_eq!(&bytes, b"two more");
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&memfd, flags, 0, BYTES as u64).expect("it is ours");
        assert_eq!(one.load(BYTES - 8), 0);
        one.store(BYTES - 8, b"back");
        assert_eq!(other.load(BYTES - 8), u32::from_ne_bytes(*b"back"));
    }

    #[test]
    fn nothing_outside_is_accessed() {
        let mapping = Mapping::new(memfd(SealFlags::SHRINK), BYTES).expect("memory");
        for at in [1, 2, BYTES - 2, BYTES, usize::MAX - 3, usize::MAX] {
            assert!(catch_unwind(|| mapping.load(at)).is_err(), "{at}");
            assert!(catch_unwind(|| mapping.store(at, &[0; WORD_BYTES])).is_err(), "{at}");
        }
        assert!(catch_unwind(|| mapping.store(BYTES - 4, &[0; 8])).is_err(), "the second word is outside");
        assert!(catch_unwind(|| mapping.store(0, &[0; 3])).is_err(), "it is no whole word");
    }
}
