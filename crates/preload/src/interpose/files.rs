//! Calls for files that take sockets, too.

use libc::{c_int, c_uint, iovec, size_t, ssize_t};

use super::{buffers, number, on};
use crate::ancillary::{Control, SendInfo};
use crate::descriptor::Descriptor;
use crate::send::Outgoing;
use crate::system::{self, Buffers, Errno, Result, can_be_bytes};
use crate::{next, receive, table};

/// Most bytes of a file that are one message of `sendfile`.
const PIECE_BYTES: usize = 16 * 1024;
/// `preadv2`, `pwritev2`: at the descriptor's own position, which is the only one of a socket.
const OWN_POSITION: i64 = -1;
/// `RWF_NOWAIT`.
const NO_WAIT: c_int = 8;

/// Sends a file, a piece in each message. The position moves by what was sent.
///
/// # Safety
///
/// As `sendfile(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendfile(to: c_int, from: c_int, offset: *mut i64, bytes: size_t) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::sendfile(to, from, offset, bytes) };
    on(
        to,
        |descriptor| {
            if !offset.is_null() && !can_be_bytes(offset) {
                return Err(Errno(libc::EFAULT));
            }
            // A pipe has no position. Programs that are told this write what they read.
            let not_a_file = |_| Errno(libc::EINVAL);
            // SAFETY: as the caller says.
            let start = match unsafe { offset.as_ref() } {
                Some(offset) => *offset,
                None => system::position(from).map_err(not_a_file)?,
            };
            let sent = send_file(to, descriptor, from, start, bytes)?;
            let end = start + sent as i64;
            // SAFETY: as the caller says.
            match unsafe { offset.as_mut() } {
                Some(offset) => *offset = end,
                None => system::set_position(from, end)?,
            }
            Ok(sent)
        },
        theirs,
    )
}

/// Sends at most so many bytes of a file; returns how many. What fails after the first piece is told by the next call.
fn send_file(to: c_int, descriptor: &Descriptor, from: c_int, start: i64, bytes: usize) -> Result<ssize_t> {
    let mut piece = [0; PIECE_BYTES];
    let mut sent = 0;
    while sent < bytes {
        let wanted = (bytes - sent).min(PIECE_BYTES);
        let read = system::read_file(from, &mut piece[..wanted], start + sent as i64);
        let done = match read {
            Ok(0) => break,
            Ok(count) => send(to, descriptor, &[Buffers::from(&piece[..count])], 0),
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

fn send(fd: c_int, descriptor: &Descriptor, parts: &[iovec], flags: c_int) -> Result<usize> {
    // SAFETY: as the caller of the C function says, or memory of ours.
    let content = unsafe { Buffers::new(parts) };
    let info = &SendInfo::by_default();
    Outgoing { fd, descriptor, content, info, control: Control::NONE, to: None, flags }.send()
}

/// Fails for a socket of ours, as where the kernel cannot splice: programs read and write instead.
///
/// # Safety
///
/// As `splice(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    bytes: size_t,
    flags: c_uint,
) -> ssize_t {
    if table::find(from).is_some() || table::find(to).is_some() {
        return number(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: as the caller says.
    unsafe { next::splice(from, from_offset, to, to_offset, bytes, flags) }
}

/// The flags of a receive or a send that does the same as one of these calls on a socket.
fn flags_of(offset: i64, flags: c_int) -> Result<c_int> {
    match offset {
        OWN_POSITION if flags & NO_WAIT != 0 => Ok(libc::MSG_DONTWAIT),
        OWN_POSITION => Ok(0),
        _ => Err(Errno(libc::ESPIPE)),
    }
}

/// # Safety
///
/// As `preadv2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    iov: *const iovec,
    parts: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::preadv2(fd, iov, parts, offset, flags) };
    on(
        fd,
        |descriptor| {
            let flags = flags_of(offset, flags)?;
            // SAFETY: as the caller says.
            let place = unsafe { buffers(iov, parts as usize) }?;
            Ok(receive::receive(fd, descriptor, place, flags)?.bytes as ssize_t)
        },
        theirs,
    )
}

/// # Safety
///
/// As `pwritev2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    iov: *const iovec,
    parts: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::pwritev2(fd, iov, parts, offset, flags) };
    on(
        fd,
        |descriptor| {
            let flags = flags_of(offset, flags)?;
            // SAFETY: as the caller says.
            let content = unsafe { buffers(iov, parts as usize) }?;
            send(fd, descriptor, content.as_slice(), flags).map(|bytes| bytes as ssize_t)
        },
        theirs,
    )
}

/// The names that programs with 64-bit offsets call these functions by.
macro_rules! also_named {
    ($($name:ident is $other:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// # Safety
        ///
        /// As the function without `64` in its name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> ssize_t {
            // SAFETY: as the caller says.
            unsafe { $other($($argument),*) }
        }
    )*};
}

also_named! {
    sendfile64 is sendfile(to: c_int, from: c_int, offset: *mut i64, bytes: size_t);
    preadv64v2 is preadv2(fd: c_int, iov: *const iovec, parts: c_int, offset: i64, flags: c_int);
    pwritev64v2 is pwritev2(fd: c_int, iov: *const iovec, parts: c_int, offset: i64, flags: c_int);
}
