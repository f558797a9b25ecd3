//! Errors of system calls.

use libc::{c_int, c_long};

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) fn last() -> Errno {
        // SAFETY: each thread has its own errno.
        Errno(unsafe { *libc::__errno_location() })
    }

    pub(crate) fn set(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

pub(crate) type Result<T, E = Errno> = std::result::Result<T, E>;

/// Returns the result of a system call of the C library.
pub(crate) fn check(returned: c_long) -> Result<usize> {
    usize::try_from(returned).map_err(|_| Errno::last())
}
