//! Calls for files that also take sockets.

use libc::{c_int, c_uint, iovec, size_t, ssize_t};

use super::{number, on, on_reading, parts_of_call};
use crate::ancillary::{Control, SendInfo};
use crate::descriptor::Descriptor;
use crate::send::Outgoing;
use crate::system::{self, Buffers, Content, Errno, Result, Source, can_be_bytes};
use crate::{next, recognition, tcp};

/// Largest message of `sendfile`, in bytes.
const PIECE_BYTES: usize = 16 * 1024;
/// Offset for `preadv2` and `pwritev2` that means the descriptor's own position, the only one that a socket has.
const OWN_POSITION: i64 = -1;
/// `RWF_NOWAIT`.
const NO_WAIT: c_int = 8;

/// Sends a file in messages of `PIECE_BYTES` and advances the position by the number of bytes sent.
///
/// # Safety
///
/// The caller meets the requirements of `sendfile(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendfile(to: c_int, from: c_int, offset: *mut i64, bytes: size_t) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::sendfile(to, from, offset, bytes) };
    on(
        to,
        |descriptor| {
            if !offset.is_null() && !can_be_bytes(offset) {
                return Err(Errno(libc::EFAULT));
            }
            // A pipe has no position. Programs that get this error fall back to reading and writing.
            let not_a_file = |_| Errno(libc::EINVAL);
            // SAFETY: the caller guarantees it.
            let start = match unsafe { offset.as_ref() } {
                Some(offset) => *offset,
                None => system::position(from).map_err(not_a_file)?,
            };
            let sent = send_file(to, descriptor, from, start, bytes)?;
            let end = start + sent as i64;
            // SAFETY: the caller guarantees it.
            match unsafe { offset.as_mut() } {
                Some(offset) => *offset = end,
                None => system::set_position(from, end)?,
            }
            Ok(sent)
        },
        forward,
    )
}

/// Sends at most `bytes` bytes of a file and returns their number. The next call reports an error that follows the first piece.
fn send_file(to: c_int, descriptor: &Descriptor, from: c_int, start: i64, bytes: usize) -> Result<ssize_t> {
    let mut piece = [0; PIECE_BYTES];
    let mut sent = 0;
    while sent < bytes {
        let wanted = (bytes - sent).min(PIECE_BYTES);
        let read = system::read_file(from, &mut piece[..wanted], start + sent as i64);
        let done = match read {
            Ok(0) => break,
            Ok(count) => send(to, descriptor, Content::new(&[Source::of(&piece[..count])]), 0),
            Err(Errno(libc::ESPIPE)) => Err(Errno(libc::EINVAL)),
            Err(error) => Err(error),
        };
        match done {
            Ok(count) => sent += count,
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent as ssize_t)
}

fn send(fd: c_int, descriptor: &Descriptor, content: Content<'_>, flags: c_int) -> Result<usize> {
    let info = &SendInfo::by_default();
    Outgoing { fd, descriptor, content, info, control: Control::NONE, to: None, flags }.send()
}

/// Fails for SCTP descriptors as the kernel does where it cannot splice: programs read and write instead.
///
/// # Safety
///
/// The caller meets the requirements of `splice(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    bytes: size_t,
    flags: c_uint,
) -> ssize_t {
    if recognition::may_be_sctp_socket(from) || recognition::may_be_sctp_socket(to) {
        return number(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller guarantees it.
    unsafe { next::splice(from, from_offset, to, to_offset, bytes, flags) }
}

/// Returns the flags of the receive or send that is equivalent to one of these calls on a socket.
fn flags_of(offset: i64, flags: c_int) -> Result<c_int> {
    match offset {
        OWN_POSITION if flags & NO_WAIT != 0 => Ok(libc::MSG_DONTWAIT),
        OWN_POSITION => Ok(0),
        _ => Err(Errno(libc::ESPIPE)),
    }
}

/// # Safety
///
/// The caller meets the requirements of `preadv2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    iov: *const iovec,
    parts: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::preadv2(fd, iov, parts, offset, flags) };
    on_reading(
        fd,
        |descriptor| {
            let flags = flags_of(offset, flags)?;
            // SAFETY: the caller guarantees it.
            let buffers = unsafe { Buffers::of_program(parts_of_call(iov, parts)?) };
            if buffers.bytes() == 0 {
                return Ok(0);
            }
            Ok(tcp::receive(fd, descriptor, buffers, flags)?.bytes as ssize_t)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `pwritev2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    iov: *const iovec,
    parts: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::pwritev2(fd, iov, parts, offset, flags) };
    on(
        fd,
        |descriptor| {
            let flags = flags_of(offset, flags)?;
            // SAFETY: the caller guarantees it.
            let content = unsafe { Content::of_program(parts_of_call(iov, parts)?) };
            if content.bytes() == 0 {
                return Ok(0);
            }
            send(fd, descriptor, content, flags).map(|bytes| bytes as ssize_t)
        },
        forward,
    )
}

/// Defines the names of these functions for programs with 64-bit offsets.
macro_rules! also_named {
    ($($name:ident is $other:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// # Safety
        ///
        /// The caller meets the requirements of the function without `64` in its name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> ssize_t {
            // SAFETY: the caller guarantees it.
            unsafe { $other($($argument),*) }
        }
    )*};
}

also_named! {
    sendfile64 is sendfile(to: c_int, from: c_int, offset: *mut i64, bytes: size_t);
    preadv64v2 is preadv2(fd: c_int, iov: *const iovec, parts: c_int, offset: i64, flags: c_int);
    pwritev64v2 is pwritev2(fd: c_int, iov: *const iovec, parts: c_int, offset: i64, flags: c_int);
}
