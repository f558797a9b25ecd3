//! Memory that the shim maps.

use std::mem::{self, MaybeUninit};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use libc::{c_int, c_void};

use crate::errno::{Errno, Result, check};

/// Memory that is unmapped when its owner is dropped. No reference into it outlives the owner.
pub(crate) struct Mapping {
    address: NonNull<c_void>,
    bytes: usize,
}

impl Mapping {
    pub(crate) fn address(&self) -> NonNull<c_void> {
        self.address
    }

    /// Keeps the memory mapped, for an owner that unmaps it later by [`unmap`], or for good.
    pub(crate) fn release(self) -> NonNull<c_void> {
        let address = self.address;
        mem::forget(self);
        address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this size, and no reference to it remains.
        unsafe { unmap(self.address, self.bytes) };
    }
}

/// Maps zeroed memory that belongs to this process alone.
pub(crate) fn map_private(bytes: usize) -> Result<Mapping> {
    map_anonymous(bytes, libc::MAP_PRIVATE)
}

fn map_anonymous(bytes: usize, sharing: c_int) -> Result<Mapping> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping at an address that the kernel chooses replaces nothing.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    mapped(address, bytes)
}

/// Maps a file for reading. It may be shorter than `bytes`: the memory beyond its end is zero and belongs to this process alone.
pub(crate) fn map_to_read(file: RawFd, bytes: usize) -> Result<Mapping> {
    let length = file_bytes(file)?.min(bytes);
    let mapping = map_private(bytes)?;
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: this replaces a part of the mapping, to which nothing refers yet.
    let mapped = unsafe { libc::mmap(mapping.address.as_ptr(), length, libc::PROT_READ, flags, file, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    Ok(mapping)
}

/// Maps the beginning of a file, which has as many bytes, and makes the system provide its memory if `at_once`.
pub(crate) fn map_to_write(file: RawFd, bytes: usize, at_once: bool) -> Result<Mapping> {
    if file_bytes(file)? < bytes {
        return Err(Errno(libc::EINVAL));
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | if at_once { libc::MAP_POPULATE } else { 0 };
    // SAFETY: a mapping at an address that the kernel chooses replaces nothing.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, file, 0) };
    mapped(address, bytes)
}

/// Returns the result of `mmap` at an address that the kernel has chosen.
fn mapped(address: *mut c_void, bytes: usize) -> Result<Mapping> {
    let failed = Errno::last();
    let address = NonNull::new(address).filter(|_| address != libc::MAP_FAILED).ok_or(failed)?;
    Ok(Mapping { address, bytes })
}

fn file_bytes(file: RawFd) -> Result<usize> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes the status if the call succeeds.
    check(unsafe { libc::fstat(file, status.as_mut_ptr()) }.into())?;
    // SAFETY: the call has succeeded.
    let status = unsafe { status.assume_init() };
    usize::try_from(status.st_size).map_err(|_| Errno(libc::EINVAL))
}

/// Maps zeroed memory that is shared with children.
pub(crate) fn map_shared(bytes: usize) -> Result<Mapping> {
    map_anonymous(bytes, libc::MAP_SHARED)
}

/// Makes the kernel clear this memory in each child that gets a copy of it; a child of `vfork` shares the memory instead.
/// Before Linux 4.14 the copy stays as it is.
pub(crate) fn clear_in_copies(address: NonNull<c_void>, bytes: usize) {
    // SAFETY: the advice changes nothing in this process.
    unsafe { libc::madvise(address.as_ptr(), bytes, libc::MADV_WIPEONFORK) };
}

/// # Safety
///
/// The memory was mapped with this size, and no reference to it remains.
pub(crate) unsafe fn unmap(address: NonNull<c_void>, bytes: usize) {
    // SAFETY: the caller guarantees it.
    unsafe { libc::munmap(address.as_ptr(), bytes) };
}
