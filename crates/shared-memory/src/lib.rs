//! Memory that processes share and that only one of them writes, and calls about freed memory ([`keep_freed`],
//! [`return_freed`]).
//!
//! A process with a descriptor of a memfd that is open for writing can make others wait, without limit, in two ways: it holds the
//! lock of the inode, for which each write call to the memfd waits, and it punches holes, during which each access to the memory
//! waits (`FALLOC_FL_PUNCH_HOLE`, `MADV_REMOVE`). So a process that must not wait for others shares memory in one direction:
//!
//! - [`OwnedMapping`] is its own memory, which others get for reading alone ([`OwnedMapping::for_reading`]). No other process can
//!   write the memfd, make it shorter, or punch a hole into it.
//! - [`PeerMapping`] is the memory of another process, which that one has sealed against new writable mappings and later writes
//!   (`F_SEAL_FUTURE_WRITE`), and so against holes, too.
//!
//! The kernel also replaces the pages of such memory by a huge one for a process that asks for that (`MADV_COLLAPSE`),
//! and accesses wait meanwhile. It does not touch memory with a pinned page: see [`Pins`].
//!
//! ```
//! use std::sync::Arc;
//! use shared_memory::{OwnedMapping, Pins};
//!
//! let ours = OwnedMapping::new("example", 4096, 2, &Arc::new(Pins::new(1)))?;
//! ours.store(16, &7_u32.to_ne_bytes());
//! assert_eq!(ours.load(16), 7);
//! let theirs = ours.for_reading()?;
//! let mut bytes = [0; 4];
//! rustix::io::pread(&theirs, &mut bytes, 16)?;
//! assert_eq!(bytes, 7_u32.to_ne_bytes());
//! assert!(rustix::fs::ftruncate(&theirs, 0).is_err());
//! # Ok::<(), rustix::io::Errno>(())
//! ```

mod freed;
mod pins;

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, fallocate, fchmod, fcntl_add_seals,
    fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create, open, seek,
};
use rustix::io::{Errno, pread};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

pub use freed::{keep_freed, return_freed};
use pins::Pin;
pub use pins::Pins;

/// Bytes of a word: all loads and stores are of whole, aligned words.
const WORD_U32_BYTES: usize = size_of::<u32>();
const WORD_U64_BYTES: usize = size_of::<u64>();

/// The file system of memfds with pages of the usual size.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A shared mapping.
#[derive(Debug)]
struct Mapping {
    place: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: words are accessed atomically. Bytes lie behind the words of their `OwnedMapping`, whose lock admits one thread at a
// time to write them, and nothing in this process reads them by a reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of a memfd that has as many and keeps them, and makes the system provide their memory.
    fn new(memfd: impl AsFd, bytes: usize, access: ProtFlags) -> Result<Mapping, Errno> {
        Mapping::with_flags(memfd, bytes, access, MapFlags::SHARED | MapFlags::POPULATE)
    }

    fn with_flags(
        memfd: impl AsFd,
        bytes: usize,
        access: ProtFlags,
        flags: MapFlags,
    ) -> Result<Mapping, Errno> {
        // SAFETY: the kernel chooses an address range that is free, so no memory in use is replaced.
        let place = unsafe { mmap(ptr::null_mut(), bytes, access, flags, memfd, 0)? };
        let place = NonNull::new(place).ok_or(Errno::NOMEM)?;
        Ok(Mapping { place, bytes })
    }

    /// Returns the words of 64 bits at the beginning.
    fn words_u64(&self, count: usize) -> &[AtomicU64] {
        assert!(count <= self.bytes / WORD_U64_BYTES, "{count} words are not in {} bytes", self.bytes);
        // SAFETY: the words are aligned, since the mapping begins at a page, and they are within it, as asserted. They
        // stay mapped as long as `self` is borrowed, and this process accesses them only as atomic words; other processes
        // may write at any time, which atomic words allow.
        unsafe { slice::from_raw_parts(self.place.as_ptr().cast(), count) }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(WORD_U32_BYTES), "offset {at} is not aligned");
        assert!(
            at.checked_add(WORD_U32_BYTES).is_some_and(|end| end <= self.bytes),
            "offset {at} is not in {} bytes",
            self.bytes
        );
        // SAFETY: the offset is within the mapping, as asserted.
        let word = unsafe { self.place.as_ptr().byte_add(at) };
        // SAFETY: the word is aligned, since the mapping begins at a page and the offset is aligned. It stays mapped as
        // long as `self` is borrowed. This process accesses the memory only as atomic words; other processes may write
        // at any time, which an atomic word allows.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the range that `mmap` returned. No reference into it is left, since each borrows `self`.
        let unmapped = unsafe { munmap(self.place.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Memory that this process writes and others may read: words, and bytes from an offset on.
#[derive(Debug)]
pub struct OwnedMapping {
    memfd: OwnedFd,
    /// Dropped before the mapping, because it names its memory by the address.
    pin: Pin,
    mapping: Arc<Mapping>,
    /// Number of words of 64 bits in front of those of 32 bits.
    u64_count: usize,
    /// Offset of the bytes.
    bytes_at: usize,
    /// Held while bytes are written.
    writing: Mutex<()>,
}

impl OwnedMapping {
    /// Creates a memfd of zeros that begins with `u64_count` words of 64 bits, maps and pins it. Other users may not open it.
    ///
    /// # Errors
    ///
    /// The system has no memory, or no descriptor is left.
    pub fn new(name: &str, bytes: usize, u64_count: usize, pins: &Arc<Pins>) -> Result<OwnedMapping, Errno> {
        let memfd = fixed_memfd(name, bytes)?;
        let mapping = Mapping::new(&memfd, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        OwnedMapping::of(memfd, mapping, u64_count, bytes, pins)
    }

    /// Creates a memfd as [`OwnedMapping::new`] does, which has room for bytes in the range `more` behind the words. The system
    /// provides the memory of the words at once, and that of the bytes at [`OwnedMapping::allocate`].
    ///
    /// # Errors
    ///
    /// The errors of [`OwnedMapping::new`].
    pub fn with_bytes(
        name: &str,
        bytes: usize,
        u64_count: usize,
        more: Range<usize>,
        pins: &Arc<Pins>,
    ) -> Result<OwnedMapping, Errno> {
        let memfd = fixed_memfd(name, more.end)?;
        fallocate(&memfd, FallocateFlags::empty(), 0, bytes as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = Mapping::with_flags(&memfd, more.end, access, MapFlags::SHARED)?;
        populate(&mapping, 0..bytes);
        OwnedMapping::of(memfd, mapping, u64_count, more.start, pins)
    }

    fn of(
        memfd: OwnedFd,
        mapping: Mapping,
        u64_count: usize,
        bytes_at: usize,
        pins: &Arc<Pins>,
    ) -> Result<OwnedMapping, Errno> {
        assert!(bytes_at <= mapping.bytes, "the bytes begin within {} bytes", mapping.bytes);
        let mapping = Arc::new(mapping);
        mapping.words_u64(u64_count);
        let pin = pins.pin(&mapping)?;
        Ok(OwnedMapping { memfd, pin, mapping, u64_count, bytes_at, writing: Mutex::default() })
    }

    /// Makes the system provide memory, which [`OwnedMapping::write`] may fill then. Waits for other processes with the memfd.
    ///
    /// # Errors
    ///
    /// The system has no memory, or the range is empty or not in the memory.
    pub fn allocate(&self, range: Range<usize>) -> Result<(), Errno> {
        fallocate(&self.memfd, FallocateFlags::empty(), range.start as u64, range.len() as u64)?;
        if range.end <= self.mapping.bytes {
            populate(&self.mapping, range);
        }
        Ok(())
    }

    /// Writes bytes to memory behind the words. A process that reads there at the same time gets old and new bytes.
    ///
    /// # Panics
    ///
    /// If the bytes do not lie within the memory behind the words.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len()).filter(|end| *end <= self.mapping.bytes);
        assert!(
            at >= self.bytes_at && end.is_some(),
            "{} bytes at {at} do not lie behind the words",
            bytes.len()
        );
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the place is within the mapping, as asserted.
        let place = unsafe { self.mapping.place.as_ptr().cast::<u8>().add(at) };
        // SAFETY: the place has room for the bytes, as asserted. No reference into this part of the memory exists: words lie in
        // front of it, as asserted where they are accessed, and threads of this process write one at a time.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Reads bytes of the memory by a system call.
    ///
    /// # Errors
    ///
    /// The bytes do not lie within the memory.
    pub fn read(&self, at: usize, place: &mut [u8]) -> Result<(), Errno> {
        match pread(&self.memfd, &mut *place, at as u64)? {
            count if count == place.len() => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Returns a descriptor of the memory that is open for reading only.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is no `/proc`. Or no descriptor is left.
    pub fn for_reading(&self) -> Result<OwnedFd, Errno> {
        let place = format!("/proc/self/fd/{}", self.memfd.as_raw_fd());
        open(place, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Returns the word at an offset in bytes.
    ///
    /// # Panics
    ///
    /// If the offset is not aligned, or the word does not lie within the memory behind the words of 64 bits.
    pub fn load(&self, at: usize) -> u32 {
        self.word(at).load(Acquire)
    }

    /// Stores whole words from an offset in bytes, the last word first: a reader that finds the first one finds all of them.
    ///
    /// # Panics
    ///
    /// If the offset or the length is not aligned, or a word does not lie within the memory behind the words of 64 bits.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<WORD_U32_BYTES>();
        assert!(rest.is_empty(), "{} bytes are not whole words", bytes.len());
        for (index, word) in words.iter().enumerate().rev() {
            self.word(at + index * WORD_U32_BYTES).store(u32::from_ne_bytes(*word), Release);
        }
    }

    /// Returns the words of 64 bits.
    pub fn words_u64(&self) -> &[AtomicU64] {
        self.mapping.words_u64(self.u64_count)
    }

    /// Returns the memory from an offset on to the system; it reads as zeros then. Waits for accesses of other processes.
    pub fn discard_from(&self, at: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Memory that cannot be returned stays until the memfd is closed.
        let _ = fallocate(&self.memfd, flags, at as u64, (self.mapping.bytes - at) as u64);
    }

    /// Returns all memory to the system for the last time, as [`OwnedMapping::discard_from`] does. The memory is pinned no more:
    /// a page that moves to another pipe would be filled again, as is one that this process accesses.
    pub fn empty(&self) {
        self.pin.release();
        self.discard_from(0);
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at >= self.u64_count * WORD_U64_BYTES, "offset {at} is in a word of 64 bits");
        let word = self.mapping.word(at);
        assert!(at + WORD_U32_BYTES <= self.bytes_at, "offset {at} is behind the words");
        word
    }
}

/// Memory that this process writes and another one may map as [`PeerMapping`].
#[derive(Debug)]
pub struct OfferedMapping {
    memfd: OwnedFd,
    mapping: Mapping,
    u64_count: usize,
}

impl OfferedMapping {
    /// Creates a memfd of `u64_count` words of zeros, maps it, and seals it.
    ///
    /// # Errors
    ///
    /// The system has no memory, or no descriptor is left.
    pub fn new(name: &str, u64_count: usize) -> Result<OfferedMapping, Errno> {
        let bytes = u64_count.checked_mul(WORD_U64_BYTES).ok_or(Errno::NOMEM)?;
        let memfd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memfd, bytes as u64)?;
        let mapping = Mapping::new(&memfd, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        fcntl_add_seals(
            &memfd,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL,
        )?;
        Ok(OfferedMapping { memfd, mapping, u64_count })
    }

    /// Returns the words.
    pub fn words_u64(&self) -> &[AtomicU64] {
        self.mapping.words_u64(self.u64_count)
    }
}

impl AsFd for OfferedMapping {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

/// Creates a memfd of zeros whose length never changes, and that other users may not open.
fn fixed_memfd(name: &str, bytes: usize) -> Result<OwnedFd, Errno> {
    let memfd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fchmod(&memfd, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&memfd, bytes as u64)?;
    // A reader must not find it shortened, even by a process of this user.
    fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memfd)
}

/// Enters a part of a mapping, which has memory, into the tables of this process. Otherwise the first accesses do.
fn populate(mapping: &Mapping, range: Range<usize>) {
    assert!(range.end <= mapping.bytes, "{range:?} is within {} bytes", mapping.bytes);
    // SAFETY: the range is within the mapping, as asserted.
    let place = unsafe { mapping.place.as_ptr().byte_add(range.start) };
    // SAFETY: the advice changes no content.
    let _ = unsafe { madvise(place, range.len(), Advice::LinuxPopulateWrite) };
}

/// Memory that another process writes and this one reads.
#[derive(Debug)]
pub struct PeerMapping {
    mapping: Arc<Mapping>,
    _pin: Pin,
    u64_count: usize,
}

impl PeerMapping {
    /// Maps the first `u64_count` words of 64 bits of a memfd for reading, and pins them. The call may wait for other processes;
    /// later accesses do not.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is no memfd with pages of the usual size, can be shortened or written by those who do not map it yet,
    /// is shorter, or has holes, which this process would have to fill. Or the error of `mmap`, or of a pipe.
    pub fn new(memfd: impl AsFd, u64_count: usize, pins: &Arc<Pins>) -> Result<PeerMapping, Errno> {
        let bytes = u64_count.checked_mul(WORD_U64_BYTES).filter(|bytes| *bytes > 0).ok_or(Errno::INVAL)?;
        // A descriptor without seals is that of another file.
        let seals = fcntl_get_seals(&memfd).map_err(|_| Errno::INVAL)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::FUTURE_WRITE)
            || fstatfs(&memfd)?.f_type as u64 != TMPFS_MAGIC
        {
            return Err(Errno::INVAL);
        }
        // Neither can be undone. The number of blocks says nothing about holes: a file may have blocks behind its end.
        let needed = bytes as u64;
        if (fstat(&memfd)?.st_size as u64) < needed || first_hole(&memfd)? < needed {
            return Err(Errno::INVAL);
        }
        let mapping = Arc::new(Mapping::new(memfd, bytes, ProtFlags::READ)?);
        let pin = pins.pin(&mapping)?;
        Ok(PeerMapping { mapping, _pin: pin, u64_count })
    }

    /// Returns the words. They may change at any time, and a store to one raises SIGSEGV.
    pub fn words_u64(&self) -> &[AtomicU64] {
        self.mapping.words_u64(self.u64_count)
    }
}

/// Returns the offset of the first hole of a file, or its length. Waits for the lock of the inode.
fn first_hole(file: impl AsFd) -> Result<u64, Errno> {
    seek(file, SeekFrom::Hole(0))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::io::{FdFlags, fcntl_getfd, pwrite};

    use super::*;

    const BYTES: usize = 8192;
    /// The kernel counts the memory of a file in blocks of this size.
    const BLOCK_BYTES: u64 = 512;
    const WORDS: usize = BYTES / WORD_U64_BYTES;
    const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

    fn pins() -> Arc<Pins> {
        Arc::new(Pins::new(1))
    }

    fn peer(memfd: impl AsFd, words: usize) -> Result<PeerMapping, Errno> {
        PeerMapping::new(memfd, words, &pins())
    }

    fn owned() -> OwnedMapping {
        OwnedMapping::new("swiftwater-test", BYTES, 2, &pins()).expect("memory")
    }

    /// Returns a memfd that is mapped for writing and has these seals, with its mapping.
    fn sealed(seals: SealFlags) -> (OwnedFd, Mapping) {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = memfd_create("swiftwater-test", flags).expect("a memfd");
        ftruncate(&memfd, BYTES as u64).expect("it is ours");
        let mapping = Mapping::new(&memfd, BYTES, ProtFlags::READ | ProtFlags::WRITE).expect("memory");
        fcntl_add_seals(&memfd, seals).expect("it is ours");
        (memfd, mapping)
    }

    #[test]
    fn a_reader_cannot_change_what_is_written() {
        let ours = owned();
        ours.store(BYTES - 8, b"two more");
        let theirs = ours.for_reading().expect("a descriptor");
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        assert_eq!(Mapping::new(&theirs, BYTES, read_write).err(), Some(Errno::ACCESS));
        assert_eq!(pwrite(&theirs, b"more", 16), Err(Errno::BADF));
        assert_eq!(ftruncate(&theirs, 0).err(), Some(Errno::INVAL));
        assert_eq!(fallocate(&theirs, HOLE, 0, BYTES as u64), Err(Errno::BADF));
        assert_eq!(fcntl_add_seals(&theirs, SealFlags::WRITE), Err(Errno::PERM));
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        assert_eq!(fcntl_get_seals(&theirs), Ok(seals));
        assert_eq!(fcntl_add_seals(&ours.memfd, SealFlags::WRITE), Err(Errno::PERM), "nobody adds a seal");
        assert_eq!(fcntl_getfd(&theirs), Ok(FdFlags::CLOEXEC));
        let mapping = Mapping::new(&theirs, BYTES, ProtFlags::READ).expect("it may read");
        assert_eq!(mapping.word(BYTES - 4).load(Relaxed), u32::from_ne_bytes(*b"more"));
        // SAFETY: the range is that of a shared mapping, and no reference into it is left.
        let removed = unsafe { madvise(mapping.place.as_ptr(), BYTES, Advice::LinuxRemove) };
        assert_eq!(removed, Err(Errno::ACCESS));
        assert_eq!(fstat(&theirs).expect("it is open").st_mode & 0o777, 0o600, "other users may not open it");
    }

    #[test]
    fn discarded_memory_reads_as_zeros() {
        let ours = owned();
        let theirs = ours.for_reading().expect("a descriptor");
        let blocks = || fstat(&theirs).expect("it is open").st_blocks as u64 * BLOCK_BYTES;
        assert_eq!(blocks(), BYTES as u64, "all of it is there from the beginning");
        ours.store(BYTES - 4, b"more");
        ours.store(16, b"less");
        ours.discard_from(BYTES / 2);
        assert_eq!(blocks(), BYTES as u64 / 2);
        assert_eq!(ours.load(BYTES - 4), 0);
        ours.store(BYTES - 4, b"back");
        let mut bytes = [0; 4];
        assert_eq!(pread(&theirs, &mut bytes, BYTES as u64 - 4), Ok(4));
        assert_eq!((&bytes, ours.load(16)), (b"back", u32::from_ne_bytes(*b"less")));
    }

    #[test]
    fn bytes_behind_the_words_have_memory_once_it_is_provided() {
        let ours =
            OwnedMapping::with_bytes("swiftwater-test", 4096, 2, 8192..4 * 4096, &pins()).expect("memory");
        let theirs = ours.for_reading().expect("a descriptor");
        let pages = || fstat(&theirs).expect("it is open").st_blocks as u64 * BLOCK_BYTES / 4096;
        assert_eq!(pages(), 1);
        ours.store(4092, b"word");
        ours.allocate(8192..12288).expect("memory");
        assert_eq!(pages(), 2);
        ours.write(8193, b"bytes");
        let mut bytes = [0; 6];
        assert_eq!(pread(&theirs, &mut bytes, 8193), Ok(6));
        assert_eq!(&bytes, b"bytes\0");
        ours.read(8192, &mut bytes).expect("they are there");
        assert_eq!(&bytes, b"\0bytes");
        assert_eq!(ours.read(4 * 4096 - 5, &mut bytes), Err(Errno::INVAL));
        ours.discard_from(8192);
        assert_eq!((pages(), ours.load(4092)), (1, u32::from_ne_bytes(*b"word")));
        for (at, bytes) in [(8191, &b"1"[..]), (4 * 4096 - 1, b"12"), (4 * 4096, b"1"), (usize::MAX, b"1")] {
            assert!(catch_unwind(AssertUnwindSafe(|| ours.write(at, bytes))).is_err(), "{at}");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| ours.load(8192))).is_err(), "it is no word");
    }

    #[test]
    fn only_memory_that_stays_as_it_is_is_mapped() {
        let good = SealFlags::SHRINK | SealFlags::FUTURE_WRITE;
        for seals in [SealFlags::SHRINK, SealFlags::FUTURE_WRITE, SealFlags::GROW] {
            assert_eq!(peer(sealed(seals).0, WORDS).err(), Some(Errno::INVAL), "{seals:?}");
        }
        let (memfd, mapping) = sealed(good);
        assert_eq!(peer(&memfd, WORDS + 1).err(), Some(Errno::INVAL), "it is shorter");
        for words in [0, usize::MAX] {
            assert_eq!(peer(&memfd, words).err(), Some(Errno::INVAL), "{words}");
        }
        let file = std::fs::File::open("/dev/zero").expect("a file");
        assert_eq!(peer(file, WORDS).err(), Some(Errno::INVAL), "it is no memfd");
        let peer = peer(&memfd, WORDS).expect("memory");
        mapping.words_u64(WORDS)[WORDS - 1].store(7, Relaxed);
        assert_eq!(peer.words_u64()[WORDS - 1].load(Relaxed), 7);
        // The process that has it can take none of it away.
        assert_eq!(fallocate(&memfd, HOLE, 0, BYTES as u64), Err(Errno::PERM));
        // SAFETY: the range is that of a shared mapping, and no reference into it is left.
        let removed = unsafe { madvise(mapping.place.as_ptr(), BYTES, Advice::LinuxRemove) };
        assert_eq!(removed, Err(Errno::PERM));
    }

    #[test]
    fn offered_memory_is_mapped() {
        let offered = OfferedMapping::new("swiftwater-test", WORDS).expect("memory");
        let peer = peer(&offered, WORDS).expect("it is sealed");
        offered.words_u64()[0].store(7, Relaxed);
        assert_eq!(peer.words_u64()[0].load(Relaxed), 7);
    }

    #[test]
    fn memory_with_a_hole_is_not_mapped() {
        let (memfd, _mapping) = sealed(SealFlags::SHRINK);
        fallocate(&memfd, HOLE, 0, 4096).expect("it is ours");
        fcntl_add_seals(&memfd, SealFlags::FUTURE_WRITE).expect("it is ours");
        assert_eq!(peer(memfd, WORDS).err(), Some(Errno::INVAL));
    }

    #[test]
    fn memory_with_a_hole_is_not_mapped_however_many_blocks_the_file_has() {
        for behind_end in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
            let (memfd, _mapping) = sealed(SealFlags::SHRINK);
            fallocate(&memfd, HOLE, 0, BYTES as u64).expect("it is ours");
            fallocate(&memfd, behind_end, BYTES as u64, BYTES as u64).expect("it is ours");
            fcntl_add_seals(&memfd, SealFlags::FUTURE_WRITE).expect("it is ours");
            let blocks = || fstat(&memfd).expect("it is open").st_blocks as u64 * BLOCK_BYTES;
            assert_eq!((blocks(), peer(&memfd, WORDS).err()), (BYTES as u64, Some(Errno::INVAL)));
            assert_eq!(blocks(), BYTES as u64, "nothing was filled in");
        }
    }

    #[test]
    fn nothing_outside_is_accessed() {
        let ours = owned();
        for at in [0, 8, 17, 18, BYTES - 2, BYTES, usize::MAX - 3, usize::MAX] {
            assert!(catch_unwind(AssertUnwindSafe(|| ours.load(at))).is_err(), "{at}");
            assert!(catch_unwind(AssertUnwindSafe(|| ours.store(at, &[0; WORD_U32_BYTES]))).is_err(), "{at}");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| ours.store(BYTES - 4, &[0; 8]))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| ours.store(16, &[0; 3]))).is_err(), "it is no whole word");
        assert_eq!(ours.words_u64().len(), 2);
        assert!(
            catch_unwind(|| OwnedMapping::new("swiftwater-test", 8, 2, &pins())).is_err(),
            "they are not there"
        );
    }
}
