//! Memory that a program passes to a call.

use std::ptr;

use libc::iovec;

use crate::errno::{Errno, Result};

/// Size of the first and the last page of the address space. No object lies there; programs pass such pointers in place of null.
const NOWHERE_BYTES: usize = 4096;

/// Returns whether a program's pointer can be valid; the kernel would check further.
pub(crate) fn can_be<T>(pointer: *const T) -> bool {
    pointer.is_aligned() && can_be_bytes(pointer)
}

/// Returns whether a program's pointer, which need not be aligned, can be valid.
pub(crate) fn can_be_bytes<T>(pointer: *const T) -> bool {
    (NOWHERE_BYTES..usize::MAX - NOWHERE_BYTES).contains(&pointer.addr())
}

/// Memory that a program lends for a call. It is readable, and writable for calls that receive.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'a>(&'a [iovec]);

impl<'a> Buffers<'a> {
    /// # Safety
    ///
    /// Each part describes memory of the program that outlives the call. Where it does not, the kernel fails with `EFAULT`: only
    /// [`Buffers::write`] touches the memory here.
    pub(crate) unsafe fn new(iov: &'a [iovec]) -> Self {
        Buffers(iov)
    }

    /// Describes memory of our own to write into.
    pub(crate) fn of(bytes: &mut [u8]) -> iovec {
        iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    /// Describes memory of our own to read from.
    pub(crate) fn from(bytes: &[u8]) -> iovec {
        iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    pub(crate) fn bytes(self) -> usize {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(part.iov_len))
    }

    pub(crate) fn as_slice(self) -> &'a [iovec] {
        self.0
    }

    /// Copies as many of `bytes` as fit and returns their number. Finds invalid pointers as far as their values show it.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<usize> {
        let mut rest = bytes;
        for part in self.0 {
            let count = part.iov_len.min(rest.len());
            if count == 0 {
                continue;
            }
            if !can_be_bytes(part.iov_base) {
                return Err(Errno(libc::EFAULT));
            }
            let (now, later) = rest.split_at(count);
            // SAFETY: the program has lent the memory.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), part.iov_base.cast(), count) };
            rest = later;
        }
        Ok(bytes.len() - rest.len())
    }
}
