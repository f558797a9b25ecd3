//! Memory that a call reads or writes: that of the shim, and that which a program passes.
//!
//! Safe code describes memory of slices only. A program's pointers need `unsafe`, once, where the function of the C library gets
//! them. Most of a program's memory is touched by the kernel alone, which fails with `EFAULT` for an invalid pointer. The shim
//! touches it in three places, where an invalid pointer that its value does not reveal raises SIGSEGV: [`Destination::write`]
//! (values of options, and messages of a bundle), [`Content::for_each_part`] (messages that go through a ring), and the two
//! joined parts of `parts.rs`.

use std::marker::PhantomData;
use std::{ptr, slice};

use libc::{c_void, iovec};

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

/// Returns the part of a list from byte `at` on to the end of an entry; `None` at the end of the list.
fn rest(parts: &[iovec], mut at: usize) -> Option<iovec> {
    for part in parts {
        if at < part.iov_len {
            return Some(iovec { iov_base: part.iov_base.wrapping_byte_add(at), iov_len: part.iov_len - at });
        }
        at -= part.iov_len;
    }
    None
}

fn total_bytes(parts: &[iovec]) -> usize {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.iov_len))
}

/// Memory to write into. Like `&[Cell<u8>]` it can be copied, and is written by one thread.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Destination<'a>(iovec, PhantomData<&'a mut [u8]>);

impl<'a> Destination<'a> {
    /// No memory.
    pub(crate) const NOWHERE: Destination<'static> =
        Destination(iovec { iov_base: ptr::null_mut(), iov_len: 0 }, PhantomData);

    pub(crate) fn of(bytes: &'a mut [u8]) -> Self {
        Destination(iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }, PhantomData)
    }

    /// Describes memory of a program.
    ///
    /// # Safety
    ///
    /// The program has lent this memory for `'a`, to be written. It may lend an invalid pointer (see the [module](self)).
    pub(crate) unsafe fn of_program(start: *mut c_void, bytes: usize) -> Self {
        Destination(iovec { iov_base: start, iov_len: bytes }, PhantomData)
    }

    pub(crate) fn bytes(self) -> usize {
        self.0.iov_len
    }

    /// Returns the memory without its first `bytes` bytes.
    pub(crate) fn after(self, bytes: usize) -> Self {
        let bytes = bytes.min(self.0.iov_len);
        let start = self.0.iov_base.wrapping_byte_add(bytes);
        Destination(iovec { iov_base: start, iov_len: self.0.iov_len - bytes }, PhantomData)
    }

    /// Copies as many of `bytes` as fit and returns their number. Finds an invalid pointer as far as its value shows it.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<usize> {
        let count = self.0.iov_len.min(bytes.len());
        if count > 0 {
            if !can_be_bytes(self.0.iov_base) {
                return Err(Errno(libc::EFAULT));
            }
            // SAFETY: the memory was a mutable slice, or a program has lent it to be written. Safe code has no reference to it
            // for `'a`; a program's memory may overlap with `bytes`.
            unsafe { ptr::copy(bytes.as_ptr(), self.0.iov_base.cast(), count) };
        }
        Ok(count)
    }
}

/// A list of memory to write into: that of a receive.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'a>(&'a [iovec]);

impl<'a> Buffers<'a> {
    pub(crate) fn new(parts: &'a [Destination<'_>]) -> Self {
        // SAFETY: the types have the same layout, and `'a` is no longer than the lifetime of the parts.
        Buffers(unsafe { slice::from_raw_parts(parts.as_ptr().cast(), parts.len()) })
    }

    /// Describes memory of a program.
    ///
    /// # Safety
    ///
    /// Each part meets the requirements of [`Destination::of_program`].
    pub(crate) unsafe fn of_program(parts: &'a [iovec]) -> Self {
        Buffers(parts)
    }

    pub(crate) fn bytes(self) -> usize {
        total_bytes(self.0)
    }

    pub(crate) fn as_iov(self) -> &'a [iovec] {
        self.0
    }

    /// Returns the memory from byte `at` on to the end of a part.
    pub(crate) fn part_at(self, at: usize) -> Option<Destination<'a>> {
        rest(self.0, at).map(|part| Destination(part, PhantomData))
    }

    /// Copies as many of `bytes` as fit and returns their number. Finds invalid pointers as far as their values show it.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<usize> {
        let mut written = 0;
        for part in self.0 {
            written += Destination(*part, PhantomData).write(&bytes[written..])?;
        }
        Ok(written)
    }
}

/// Memory to read from.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Source<'a>(iovec, PhantomData<&'a [u8]>);

impl<'a> Source<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Source(iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }, PhantomData)
    }

    /// Describes memory of a program.
    ///
    /// # Safety
    ///
    /// The program has lent this memory for `'a`, and does not change it. It may lend an invalid pointer (see the
    /// [module](self)).
    pub(crate) unsafe fn of_program(start: *const c_void, bytes: usize) -> Self {
        Source(iovec { iov_base: start.cast_mut(), iov_len: bytes }, PhantomData)
    }

    /// Returns the first `bytes` bytes of the memory.
    pub(crate) fn up_to(self, bytes: usize) -> Self {
        Source(iovec { iov_len: self.0.iov_len.min(bytes), ..self.0 }, PhantomData)
    }
}

/// A list of memory to read from: that of a send.
#[derive(Clone, Copy)]
pub(crate) struct Content<'a>(&'a [iovec]);

impl<'a> Content<'a> {
    pub(crate) const NONE: Content<'static> = Content(&[]);

    pub(crate) fn new(parts: &'a [Source<'_>]) -> Self {
        // SAFETY: the types have the same layout, and `'a` is no longer than the lifetime of the parts.
        Content(unsafe { slice::from_raw_parts(parts.as_ptr().cast(), parts.len()) })
    }

    /// Describes memory of a program.
    ///
    /// # Safety
    ///
    /// Each part meets the requirements of [`Source::of_program`].
    pub(crate) unsafe fn of_program(parts: &'a [iovec]) -> Self {
        Content(parts)
    }

    pub(crate) fn bytes(self) -> usize {
        total_bytes(self.0)
    }

    pub(crate) fn as_iov(self) -> &'a [iovec] {
        self.0
    }

    /// Returns the memory from byte `at` on to the end of a part.
    pub(crate) fn part_at(self, at: usize) -> Option<Source<'a>> {
        rest(self.0, at).map(|part| Source(part, PhantomData))
    }

    /// Fails for invalid pointers, as far as their values show it.
    pub(crate) fn check(self) -> Result<()> {
        let is_invalid = |part: &iovec| part.iov_len > 0 && !can_be_bytes(part.iov_base);
        if self.0.iter().any(is_invalid) { Err(Errno(libc::EFAULT)) } else { Ok(()) }
    }

    /// Calls `f` with each part that is not empty.
    pub(crate) fn for_each_part(self, mut f: impl FnMut(&[u8])) {
        for part in self.0.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the memory was a slice, or a program has lent it and does not change it.
            f(unsafe { slice::from_raw_parts(part.iov_base.cast(), part.iov_len) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_fills_the_parts_of_a_list_in_turn() {
        let (mut first, mut second) = ([0; 3], [0; 4]);
        let parts = [Destination::of(&mut first), Destination::NOWHERE, Destination::of(&mut second)];
        let buffers = Buffers::new(&parts);
        assert_eq!((buffers.bytes(), buffers.write(b"hello")), (7, Ok(5)));
        assert_eq!(buffers.part_at(5).map(|rest| rest.write(b"worlds")), Some(Ok(2)));
        assert!(buffers.part_at(7).is_none());
        assert_eq!((&first, &second), (b"hel", b"lowo"));
    }

    #[test]
    fn a_pointer_into_the_first_page_is_refused() {
        let start = ptr::without_provenance_mut(8);
        // SAFETY: no code touches the memory.
        let (place, content) = unsafe { (Destination::of_program(start, 4), [Source::of_program(start, 4)]) };
        assert_eq!(place.write(b"value"), Err(Errno(libc::EFAULT)));
        assert_eq!(place.write(b""), Ok(0), "nothing is written");
        assert_eq!(Content::new(&content).check(), Err(Errno(libc::EFAULT)));
    }
}
