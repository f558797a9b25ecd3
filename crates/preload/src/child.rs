//! Calls that need a descriptor in a process whose table is full. A child has a table of its own: there some are closed, which
//! changes nothing here, and what is needed is opened.

use std::os::fd::RawFd;
use std::ptr;

use libc::c_int;

use crate::start::{self, SignalMask};
use crate::system::{self, Errno, Result};

/// Descriptors that the child makes room for.
const ROOM: usize = 2;

/// Calls `f` in a child, where there is room for descriptors, and returns what it returns. Descriptors that it opens stay in the
/// child. It must make system calls only, since other threads may hold any lock, and keep `fd`.
///
/// # Errors
///
/// Those of `f`; `EMFILE` where there can be no child.
pub(crate) fn with_room<T: Copy>(fd: RawFd, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let none = Errno(libc::EMFILE);
    let place = system::map_shared(size_of::<Option<Result<T>>>()).map_err(|_| none)?;
    let answer = place.cast::<Option<Result<T>>>();
    // SAFETY: it is mapped, as long as that, and page-aligned.
    unsafe { answer.write(None) };
    // No handler of the program's runs in the child.
    let mask = SignalMask::block_all();
    let child = start::fork();
    if child == Some(0) {
        close_some(fd);
        // SAFETY: as above; nothing of the program runs after `_exit`.
        unsafe {
            answer.write(Some(f()));
            libc::_exit(0);
        }
    }
    if let Some(child) = child {
        start::await_end(child as c_int);
    }
    drop(mask);
    // SAFETY: the child has ended, or there is none.
    let answered = unsafe { ptr::read_volatile(answer.as_ptr()) };
    // SAFETY: it was mapped with this size, and nobody refers to it any more.
    unsafe { system::unmap(place, size_of::<Option<Result<T>>>()) };
    answered.unwrap_or(Err(none))
}

/// Closes some descriptors other than `kept`.
fn close_some(kept: RawFd) {
    let others = (0..).filter(|fd| *fd != kept);
    let closed = others.take(system::descriptors_max()).filter(|fd| system::try_close(*fd));
    closed.take(ROOM).for_each(drop);
}
