//! A descriptor with an owner.

use std::mem;
use std::os::fd::RawFd;

use crate::system;

/// A descriptor that is closed when its owner is dropped. The standard library's `OwnedFd` would call `close` of the C library,
/// which the shim replaces; this one makes the system call, so it may be dropped in signal handlers and between `vfork` and `exec`.
/// No frame that waits may hold it (see [`cancel`](crate::cancel)).
#[derive(Debug)]
pub(crate) struct Owned(RawFd);

impl Owned {
    /// Takes a descriptor over from the kernel; `None` for a number that is none.
    pub(crate) fn new(fd: RawFd) -> Option<Owned> {
        (fd >= 0).then_some(Owned(fd))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0
    }

    /// Returns the number for an owner that closes it later.
    pub(crate) fn release(self) -> RawFd {
        let fd = self.0;
        mem::forget(self);
        fd
    }

    /// Moves the descriptor to the lowest free number.
    pub(crate) fn at_lowest(self) -> Owned {
        Owned(system::lowest(self.release()))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        system::close(self.0);
    }
}
