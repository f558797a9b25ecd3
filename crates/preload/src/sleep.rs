//! Calls that sleep on a descriptor, which another thread may close meanwhile (see [`sleepers`](crate::sleepers)).

use std::os::fd::RawFd;

use crate::descriptor::Descriptor;
use crate::system::{Errno, Result};
use crate::{cancel, table};

/// Sleeps in `wait`, which waits on `fd` or on its [`lasting`](table::lasting) copy. Returns a copy of the pair if the
/// number was closed meanwhile; the caller continues with [`with_copy`].
///
/// # Errors
///
/// `EBADF`: the number was closed, and there was no room for a copy.
pub(crate) fn asleep(
    fd: RawFd,
    descriptor: &Descriptor,
    wait: impl FnOnce() -> Result<()>,
) -> Result<Option<RawFd>> {
    let sleepers = &descriptor.sleepers;
    let end = || {
        if let Some(copy) = sleepers.end() {
            table::take_back(copy);
        }
    };
    sleepers.begin();
    let waited =
        cancel::undoing(end, || if table::is(fd, descriptor) { wait() } else { Err(Errno(libc::EBADF)) });
    let moved = waited.is_ok() && !table::is(fd, descriptor);
    let lend = |copy| table::lend(copy, descriptor);
    let copy = moved.then(|| sleepers.copy().map_or(Err(Errno(libc::EBADF)), lend));
    end();
    waited?;
    copy.transpose()
}

/// Calls `f` with a copy that [`asleep`] has returned, and closes it.
pub(crate) fn with_copy<T>(copy: RawFd, f: impl FnOnce(RawFd) -> T) -> T {
    let done = cancel::undoing(|| table::take_back(copy), || f(copy));
    table::take_back(copy);
    done
}
