//! Calls that close, copy and control descriptors.

use std::sync::atomic::Ordering::Relaxed;

use channel_protocol::status_page::State;
use libc::{FILE, c_int, c_uint, c_ulong};

use super::on_reading;
use crate::system::{self, Errno};
use crate::waiting::Lingering;
use crate::{ask, next, recognition, table, tcp};

/// # Safety
///
/// The caller meets the requirements of `close(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let (was_ours, lingering) = (table::is_known(fd), Lingering::at(fd));
    table::close(fd);
    // SAFETY: the caller guarantees it.
    let closed = unsafe { next::close(fd) };
    if was_ours {
        let errno = Errno::last();
        lingering.map_or_else(ask::barrier, Lingering::wait);
        errno.set();
    }
    closed
}

/// Waits after a number was closed, if its socket lingers.
fn linger(lingering: Option<Lingering>) {
    if let Some(lingering) = lingering {
        let errno = Errno::last();
        lingering.wait();
        errno.set();
    }
}

/// # Safety
///
/// The caller meets the requirements of `close_range(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        table::close_range(first, last);
    }
    // SAFETY: the caller guarantees it.
    unsafe { next::close_range(first, last, flags) }
}

/// # Safety
///
/// The caller meets the requirements of `closefrom(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    table::close_range(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: the caller guarantees it.
    unsafe { next::closefrom(first) };
}

/// # Safety
///
/// The caller meets the requirements of `fclose(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    // SAFETY: the caller guarantees it.
    let fd = unsafe { libc::fileno(file) };
    let lingering = Lingering::at(fd);
    table::close(fd);
    // SAFETY: the caller guarantees it.
    let closed = unsafe { next::fclose(file) };
    linger(lingering);
    closed
}

/// # Safety
///
/// The caller meets the requirements of `dup(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller guarantees it.
    copied(fd, unsafe { next::dup(fd) })
}

/// # Safety
///
/// The caller meets the requirements of `dup2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    replacing(fd, to, || {
        // SAFETY: the caller guarantees it.
        unsafe { next::dup2(fd, to) }
    })
}

/// # Safety
///
/// The caller meets the requirements of `dup3(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    replacing(fd, to, || {
        // SAFETY: the caller guarantees it.
        unsafe { next::dup3(fd, to, flags) }
    })
}

/// Makes a call by which a copy of `from` takes the number `to`.
fn replacing(from: c_int, to: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if from == to {
        return call();
    }
    let lingering = Lingering::at(to);
    table::close(to);
    let made = copied(from, call());
    linger(lingering);
    made
}

fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && to != from {
        let errno = Errno::last();
        table::set_copy(to, recognition::find(from).as_ref());
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
/// The caller meets the requirements of `fcntl(2)`. At most one word follows the command, and it is passed on unchanged.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller guarantees it.
    controlled(fd, command, unsafe { next::fcntl(fd, command, argument) })
}

/// # Safety
///
/// The caller meets the requirements of [`fcntl`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller guarantees it.
    controlled(fd, command, unsafe { next::fcntl64(fd, command, argument) })
}

/// `SIOCGIFADDR` to `SIOCSIFNETMASK`: addresses of interfaces, which AF_UNIX sockets do not support.
const INTERFACE_ADDRESSES: std::ops::RangeInclusive<c_ulong> = 0x8915..=0x891c;

/// # Safety
///
/// The caller meets the requirements of `ioctl(2)`. At most one word follows the request, and it is passed on unchanged.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::ioctl(fd, request, argument) };
    let is_inets = INTERFACE_ADDRESSES.contains(&request);
    if !is_inets && !matches!(request, libc::FIONREAD | libc::TIOCOUTQ) {
        return forward();
    }
    on_reading(
        fd,
        |descriptor| {
            if is_inets {
                let family = descriptor.pages().status.family.load(Relaxed);
                // SAFETY: the caller of `ioctl` guarantees it.
                return Ok(unsafe { system::control_of_family(family, request, argument) }?);
            }
            if descriptor.pages().status.state() == State::Listening {
                return Err(Errno(libc::EINVAL).into());
            }
            if request == libc::TIOCOUTQ {
                return Err(Errno(libc::ENOTTY).into());
            }
            let available = tcp::available(fd, descriptor)?;
            // SAFETY: the request's argument points to a number.
            unsafe { (argument as *mut c_int).write(available as c_int) };
            Ok(0)
        },
        forward,
    )
}
