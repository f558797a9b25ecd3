//! Descriptors: closed, copied, controlled.

use std::sync::atomic::Ordering::Relaxed;

use carrier::page::State;
use libc::{FILE, c_int, c_uint, c_ulong};

use super::on;
use crate::system::{self, Errno};
use crate::{next, receive, setup, table};

/// # Safety
///
/// As `close(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let was_ours = table::is_known(fd);
    table::forget(fd);
    // SAFETY: as the caller says.
    let closed = unsafe { next::close(fd) };
    if was_ours {
        let errno = Errno::last();
        setup::settle();
        errno.set();
    }
    closed
}

/// # Safety
///
/// As `close_range(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        table::forget_range(first, last);
    }
    // SAFETY: as the caller says.
    unsafe { next::close_range(first, last, flags) }
}

/// # Safety
///
/// As `closefrom(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    table::forget_range(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: as the caller says.
    unsafe { next::closefrom(first) };
}

/// # Safety
///
/// As `fclose(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        table::forget(libc::fileno(file));
        next::fclose(file)
    }
}

/// # Safety
///
/// As `dup(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: as the caller says.
    copied(fd, unsafe { next::dup(fd) })
}

/// # Safety
///
/// As `dup2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: as the caller says.
    copied(fd, unsafe { next::dup2(fd, to) })
}

/// # Safety
///
/// As `dup3(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller says.
    copied(fd, unsafe { next::dup3(fd, to, flags) })
}

fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && to != from {
        let errno = Errno::last();
        table::copy(from, to);
        errno.set();
    }
    to
}

fn controlled(fd: c_int, command: c_int, returned: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, returned),
        _ => returned,
    }
}

/// # Safety
///
/// As `fcntl(2)`. What follows the command is at most one word, which is passed as it came.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller says.
    controlled(fd, command, unsafe { next::fcntl(fd, command, argument) })
}

/// # Safety
///
/// As [`fcntl`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller says.
    controlled(fd, command, unsafe { next::fcntl64(fd, command, argument) })
}

/// `SIOCGIFADDR` to `SIOCSIFNETMASK`: addresses of interfaces, which AF_UNIX sockets know nothing of.
const INTERFACE_ADDRESSES: std::ops::RangeInclusive<c_ulong> = 0x8915..=0x891c;

/// # Safety
///
/// As `ioctl(2)`. What follows the request is at most one word, which is passed as it came.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::ioctl(fd, request, argument) };
    let is_inets = INTERFACE_ADDRESSES.contains(&request);
    if !is_inets && !matches!(request, libc::FIONREAD | libc::TIOCOUTQ) {
        return theirs();
    }
    on(
        fd,
        |descriptor| {
            if is_inets {
                return system::control_of_family(descriptor.page().family.load(Relaxed), request, argument);
            }
            if descriptor.page().state() == State::Listening {
                return Err(Errno(libc::EINVAL));
            }
            if request == libc::TIOCOUTQ {
                return Err(Errno(libc::ENOTTY));
            }
            let available = receive::available(fd, descriptor)?;
            // SAFETY: the request takes a pointer to a number.
            unsafe { (argument as *mut c_int).write(available as c_int) };
            Ok(0)
        },
        theirs,
    )
}
