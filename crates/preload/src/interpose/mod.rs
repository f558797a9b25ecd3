//! The functions of the C library, under their names. On a descriptor that is not an SCTP socket, each calls the
//! next function of its name.

pub mod descriptors;
pub mod exec;
pub mod files;
pub mod loading;
pub mod numbers;
pub mod receiving;
pub mod sending;
pub mod sockets;
pub mod spawn;
pub mod streams;

use std::os::fd::RawFd;
use std::slice;
use std::sync::Arc;

use libc::{c_int, c_uint, iovec, mmsghdr, msghdr, ssize_t};

use crate::descriptor::Descriptor;
use crate::form::ReadError;
use crate::setup;
use crate::system::{Errno, Result, can_be};
use crate::{cancel, lock, recognition, table};

/// Converts a result to the return value of a C function: -1 with `errno`, or a number.
fn number<N: From<i8>>(result: Result<N>) -> N {
    result.unwrap_or_else(|error| {
        error.set();
        N::from(-1)
    })
}

/// Runs `shim` on an SCTP socket, and `forward` on any other descriptor. Success leaves `errno` unchanged. Neither
/// closure may hold a value with a destructor while it waits (see [`cancel`]). A signal handler may leave `shim` by
/// `siglongjmp` at any point.
fn on<N: From<i8>>(fd: RawFd, shim: impl FnOnce(&Descriptor) -> Result<N>, forward: impl FnOnce() -> N) -> N {
    on_reading(fd, |descriptor| shim(descriptor).map_err(ReadError::Errno), forward)
}

/// Runs `shim` as [`on`] does, and `forward` also where `shim` finds that the content stays plain.
fn on_reading<N: From<i8>>(
    fd: RawFd,
    shim: impl FnOnce(&Descriptor) -> Result<N, ReadError>,
    forward: impl FnOnce() -> N,
) -> N {
    let before = Errno::last();
    let descriptor = match recognition::look_up(fd) {
        Ok(Some(descriptor)) => Arc::into_raw(descriptor),
        Ok(None) => {
            before.set();
            return forward();
        }
        Err(error) => return number(Err(error)),
    };
    // SAFETY: the pointer came from `Arc::into_raw`, and is released once: here if the thread is cancelled, below if not.
    let release = || unsafe { Arc::decrement_strong_count(descriptor) };
    let mark = lock::mark();
    let leave = || {
        // SAFETY: the descriptor, and with it the page, lives until it is released.
        unsafe { lock::abandon_since(mark) };
        release();
    };
    // SAFETY: as above.
    let (done, is_unusable) =
        cancel::undoing(leave, || unsafe { (shim(&*descriptor), setup::is_unusable(&*descriptor)) });
    release();
    match done {
        Ok(returned) => {
            before.set();
            returned
        }
        // The daemon no longer knows the socket.
        Err(ReadError::Errno(Errno(libc::ENOTSOCK))) if is_unusable => number(Err(Errno(libc::ENOTCONN))),
        // The shim has no further use for the descriptor, or the number was reused where the shim did not see it.
        Err(ReadError::StaysPlain | ReadError::Errno(Errno(libc::ENOTSOCK))) => {
            table::forget(fd);
            forward()
        }
        Err(ReadError::Errno(error)) => number(Err(error)),
    }
}

/// Returns the parts of a message (`msg_iov`).
///
/// # Safety
///
/// `iov` points to `parts` entries, which do not change for `'a`.
unsafe fn parts_of_message<'a>(iov: *const iovec, parts: usize) -> Result<&'a [iovec]> {
    let parts = match parts {
        0 => &[],
        _ if parts > libc::UIO_MAXIOV as usize => return Err(Errno(libc::EMSGSIZE)),
        _ if !can_be(iov) => return Err(Errno(libc::EFAULT)),
        // SAFETY: the caller guarantees it.
        _ => unsafe { slice::from_raw_parts(iov, parts) },
    };
    if parts.iter().any(|part| isize::try_from(part.iov_len).is_err()) {
        return Err(Errno(libc::EINVAL));
    }
    Ok(parts)
}

/// Returns the parts that `readv` and its kin are given, which fail otherwise than `recvmsg` where there are too many.
///
/// # Safety
///
/// The caller meets the requirements of [`parts_of_message`].
unsafe fn parts_of_call<'a>(iov: *const iovec, parts: c_int) -> Result<&'a [iovec]> {
    match parts {
        // SAFETY: the caller guarantees it.
        0..=libc::UIO_MAXIOV => unsafe { parts_of_message(iov, parts as usize) },
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Calls `with` for each message until one fails, and returns the number of messages before that.
///
/// # Safety
///
/// `messages` points to `number` messages, which the program has lent to be written.
unsafe fn each<E>(
    messages: *mut mmsghdr,
    number: c_uint,
    mut with: impl FnMut(c_uint, &mut msghdr) -> Result<ssize_t, E>,
) -> Result<c_int, E> {
    for n in 0..number {
        // SAFETY: the caller guarantees it.
        let message = unsafe { &mut *messages.add(n as usize) };
        match with(n, &mut message.msg_hdr) {
            Ok(bytes) => message.msg_len = bytes as c_uint,
            Err(error) if n == 0 => return Err(error),
            Err(_) => return Ok(n as c_int),
        }
    }
    Ok(number as c_int)
}
