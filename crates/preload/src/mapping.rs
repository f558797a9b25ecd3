//! Memory that the shim maps.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use libc::{c_int, c_void};

use crate::errno::{Errno, Result, check};

/// Maps zeroed memory that belongs to this process alone.
pub(crate) fn map_private(bytes: usize) -> Result<NonNull<c_void>> {
    map_anonymous(bytes, libc::MAP_PRIVATE)
}

fn map_anonymous(bytes: usize, sharing: c_int) -> Result<NonNull<c_void>> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping at an address that the kernel chooses replaces nothing.
    let place = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    let failed = Errno::last();
    NonNull::new(place).filter(|_| place != libc::MAP_FAILED).ok_or(failed)
}

/// Maps a file with a page and a ring behind it, which has `ring_bytes`. The page may be shorter than `page_bytes`: the memory
/// beyond its end is zero and belongs to this process alone. The ring begins behind `page_bytes`.
pub(crate) fn map_page_and_ring(
    page_bytes: usize,
    ring_bytes: usize,
    file: RawFd,
) -> Result<NonNull<c_void>> {
    let length = file_bytes(file)?.checked_sub(ring_bytes).ok_or(Errno(libc::EINVAL))?;
    let place = map_private(page_bytes + ring_bytes)?;
    // SAFETY: the place is within the mapping, or just behind its end.
    let ring = unsafe { place.byte_add(page_bytes) };
    let mapped = map_over(place, length.min(page_bytes), file, 0)
        .and_then(|()| map_over(ring, ring_bytes, file, length as libc::off_t));
    if let Err(failed) = mapped {
        // SAFETY: the memory was mapped just now, and nothing refers to it.
        unsafe { unmap(place, page_bytes + ring_bytes) };
        return Err(failed);
    }
    Ok(place)
}

/// Replaces a part of a mapping that nothing refers to yet by a part of a file.
fn map_over(place: NonNull<c_void>, bytes: usize, file: RawFd, offset: libc::off_t) -> Result<()> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: as above.
    let mapped = unsafe { libc::mmap(place.as_ptr(), bytes, access, flags, file, offset) };
    if mapped == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(()) }
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
pub(crate) fn map_shared(bytes: usize) -> Result<NonNull<c_void>> {
    map_anonymous(bytes, libc::MAP_SHARED)
}

/// # Safety
///
/// The memory was mapped with this size, and no reference to it remains.
pub(crate) unsafe fn unmap(place: NonNull<c_void>, bytes: usize) {
    // SAFETY: the caller guarantees it.
    unsafe { libc::munmap(place.as_ptr(), bytes) };
}
