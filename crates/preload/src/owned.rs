//! A descriptor with an owner.

use std::mem;
use std::os::fd::RawFd;

use crate::system_call::system_call;

/// A descriptor that is closed when its owner is dropped. The standard library's `OwnedFd` would call `close` of the C library,
/// which the shim replaces; this one makes the system call, so it may be dropped in signal handlers and between `vfork` and
/// `exec`. No frame that waits may hold it (see [`cancel`](crate::cancel)).
#[derive(Debug)]
pub(crate) struct Owned(RawFd);

impl Owned {
    /// Takes a descriptor over from the kernel; `None` for a number that is none.
    pub(crate) fn new(fd: RawFd) -> Option<Owned> {
        // An owner of no descriptor would close it.
        if fd >= 0 { Some(Owned(fd)) } else { None }
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
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: this was the owner of the descriptor.
        unsafe { system_call!(libc::SYS_close, self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn a_number_that_is_no_descriptor_is_not_closed() {
        Errno(0).set();
        assert!(Owned::new(-1).is_none());
        assert_eq!(Errno::last(), Errno(0), "no system call has failed");
    }
}
