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

/// Returns the messages of a call.
///
/// # Safety
///
/// `messages` points to `number` messages, which the program has lent to be written for `'a`.
unsafe fn messages_of<'a>(messages: *mut mmsghdr, number: c_uint) -> Result<&'a mut [mmsghdr]> {
    match number {
        0 => Ok(&mut []),
        _ if !can_be(messages) => Err(Errno(libc::EFAULT)),
        // SAFETY: the caller guarantees it.
        _ => Ok(unsafe { slice::from_raw_parts_mut(messages, number as usize) }),
    }
}

/// Passes all messages on until one fails, and returns the number of messages before that. `some` passes on as many of the next
/// messages as go without a wait, and returns their number; `one` passes on the next one, which has this number.
fn each<E>(
    messages: &mut [mmsghdr],
    mut some: impl FnMut(usize, &mut [mmsghdr]) -> Result<usize, E>,
    mut one: impl FnMut(usize, &mut msghdr) -> Result<ssize_t, E>,
) -> Result<c_int, E> {
    let mut done = 0;
    while done < messages.len() {
        let rest = &mut messages[done..];
        let passed = if rest.len() > 1 { some(done, rest) } else { Ok(0) };
        let passed = match passed {
            Ok(0) => one(done, &mut rest[0].msg_hdr).map(|bytes| {
                rest[0].msg_len = bytes as c_uint;
                1
            }),
            passed => passed,
        };
        match passed {
            Ok(passed) => done += passed,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done as c_int)
}
