//! The copy of a bundle, which its readers take messages from without system calls.

use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use carrier::record::BUNDLE_BYTES_MAX;

use crate::mapping;
use crate::pages::Pages;
use crate::system::{self, Buffers, Result};

/// Copy of the record at the front of a carrier. Its memory is mapped on first use: a signal handler may read, and must not
/// allocate.
pub(crate) struct RecordCopy(AtomicPtr<Copied>);

/// A copy in fresh memory, which is zero, is a copy of nothing.
///
/// The content comes first, at the beginning of a page: many processors copy from the kernel at less than half their speed to
/// the bytes behind it.
#[repr(C)]
pub(crate) struct Copied {
    pub(crate) content: [u8; BUNDLE_BYTES_MAX],
    /// Number of bundles taken before the one copied here.
    pub(crate) of: u32,
    /// Length of the bundle; 0 if the record is none.
    pub(crate) bytes: usize,
}

impl Copied {
    pub(crate) fn record(&self) -> &[u8] {
        &self.content[..self.bytes]
    }

    /// Copies the record and returns its length. The record counts as a bundle only once the caller has noted it.
    pub(crate) fn look(&mut self, fd: RawFd, page: Pages<'_>) -> Result<usize> {
        (self.of, self.bytes) = (page.sharers.bundles_taken.load(Relaxed), 0);
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let place = [Buffers::of(&mut self.content)];
        // SAFETY: the destination is writable.
        Ok(unsafe { system::receive::<0>(fd, &place, flags) }?.bytes)
    }
}

/// A copy while a call uses it. A child that forks meanwhile finds no copy, and makes another.
pub(crate) struct Lent<'a> {
    owner: &'a RecordCopy,
    copied: NonNull<Copied>,
}

impl RecordCopy {
    pub(crate) const fn new() -> RecordCopy {
        RecordCopy(AtomicPtr::new(null_mut()))
    }

    pub(crate) fn lend(&self) -> Result<Lent<'_>> {
        let copied = match NonNull::new(self.0.swap(null_mut(), AcqRel)) {
            Some(copied) => copied,
            None => mapping::map_private(size_of::<Copied>())?.cast(),
        };
        Ok(Lent { owner: self, copied })
    }
}

impl Deref for Lent<'_> {
    type Target = Copied;

    fn deref(&self) -> &Copied {
        // SAFETY: the memory is mapped, and this thread alone has taken it.
        unsafe { self.copied.as_ref() }
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Copied {
        // SAFETY: as above.
        unsafe { self.copied.as_mut() }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        unmap(self.owner.0.swap(self.copied.as_ptr(), AcqRel));
    }
}

impl Drop for RecordCopy {
    fn drop(&mut self) {
        unmap(*self.0.get_mut());
    }
}

fn unmap(copied: *mut Copied) {
    if let Some(copied) = NonNull::new(copied) {
        // SAFETY: the memory was mapped with this size, and no reference to it remains.
        unsafe { mapping::unmap(copied.cast(), size_of::<Copied>()) };
    }
}
