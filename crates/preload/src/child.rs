//! Calls that need a descriptor in a process whose table is full, or a file that its limits forbid. A child process raises
//! its own limits as far as it may and closes some descriptors in its own copy of the table, which changes nothing in this
//! process, and makes the call there.

use std::os::fd::RawFd;
use std::ptr;

use crate::mapping;
use crate::process::{self, AllSignalsBlocked};
use crate::system::{self, Errno, Result};

/// Number of descriptors that the child frees.
const ROOM: usize = 3;

/// Calls `f` in a child, where descriptors are free and limits are as high as they may be, and returns the result of `f`.
/// Descriptors that `f` opens stay in the child. `f` may only make system calls, since other threads may hold any lock, and must
/// keep `fd` open.
///
/// # Errors
///
/// Fails with the errors of `f`, and with `EMFILE` where no child can be made.
pub(crate) fn with_room<T: Copy>(fd: RawFd, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let none = Errno(libc::EMFILE);
    let page = mapping::map_shared(size_of::<Option<Result<T>>>()).map_err(|_| none)?;
    let answer = page.address().cast::<Option<Result<T>>>();
    // SAFETY: the memory is mapped, has the size of the answer, and is page-aligned.
    unsafe { answer.write(None) };
    // The program's signal handlers must not run in the child.
    let mask = AllSignalsBlocked::new();
    let child = process::fork();
    if child == Some(0) {
        // Where the hard limits are as low, `f` finds that.
        system::raise_limit(libc::RLIMIT_NOFILE);
        system::raise_limit(libc::RLIMIT_FSIZE);
        close_some(fd);
        // SAFETY: as above; no code of the program runs after `_exit`.
        unsafe {
            answer.write(Some(f()));
            libc::_exit(0);
        }
    }
    if let Some(child) = child {
        process::await_end(child);
    }
    drop(mask);
    // SAFETY: the child has ended, or never existed.
    unsafe { ptr::read_volatile(answer.as_ptr()) }.unwrap_or(Err(none))
}

/// Closes some descriptors other than `kept`.
fn close_some(kept: RawFd) {
    let others = (0..).filter(|fd| *fd != kept);
    let closed = others.take(system::descriptors_max()).filter(|fd| system::try_close(*fd));
    closed.take(ROOM).for_each(drop);
}
