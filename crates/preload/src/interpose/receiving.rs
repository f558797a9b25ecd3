//! Calls that receive.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use channel_protocol::record::{Header, Kind};
use channel_protocol::status_page::Subscriptions;
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::{each, on_reading, parts_of_call, parts_of_message};
use crate::descriptor::Descriptor;
use crate::form::ReadError;
use crate::message::Message;
use crate::system::{Buffers, Destination, Errno, Result, can_be};
use crate::{address, ancillary, next, receive, recognition, table, tcp};

/// Flag of a message that is a notification.
const MSG_NOTIFICATION: c_int = 0x8000;

/// # Safety
///
/// The program has lent the memory, to be written.
unsafe fn receive_into(
    fd: RawFd,
    descriptor: &Descriptor,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> Result<Message, ReadError> {
    // SAFETY: the caller guarantees it.
    let place = [unsafe { Destination::of_program(buffer, bytes) }];
    tcp::receive(fd, descriptor, Buffers::new(&place), flags)
}

/// Writes the address that a message came from, if the program passes a buffer for it.
///
/// # Safety
///
/// The caller meets the requirements of `recvfrom(2)` for `from` and `bytes`.
unsafe fn tell(
    descriptor: &Descriptor,
    peer: SocketAddr,
    from: *mut sockaddr,
    bytes: *mut socklen_t,
) -> Result<()> {
    if from.is_null() {
        return Ok(());
    }
    // SAFETY: the caller guarantees it.
    unsafe { address::write(address::as_wanted(descriptor, peer), from, bytes) }
}

/// Stores the address of the sender of a received message for the program. The end of file has no header and no sender,
/// and TCP names none.
///
/// # Safety
///
/// The caller meets the requirements of `recvfrom(2)` for `from` and `bytes`.
unsafe fn tell_sender(
    descriptor: &Descriptor,
    header: Option<&Header>,
    from: *mut sockaddr,
    bytes: *mut socklen_t,
) -> Result<()> {
    let Some(header) = header.filter(|_| !tcp::is_stream(descriptor)) else {
        if !from.is_null() && can_be(bytes) {
            // SAFETY: the caller guarantees it.
            unsafe { *bytes = 0 };
        }
        return Ok(());
    };
    match header.address.or_else(|| descriptor.pages().status.peer()) {
        // SAFETY: the caller guarantees it.
        Some(peer) => unsafe { tell(descriptor, peer, from, bytes) },
        None => Ok(()),
    }
}

/// # Safety
///
/// The caller meets the requirements of `read(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::read(fd, buffer, bytes) };
    on_reading(
        fd,
        |descriptor| match bytes {
            0 => Ok(0),
            // SAFETY: the caller guarantees it.
            _ => Ok(unsafe { receive_into(fd, descriptor, buffer, bytes, 0) }?.bytes as ssize_t),
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `read(2)`; the buffer has `room` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
) -> ssize_t {
    match bytes <= room && recognition::may_be_sctp_socket(fd) {
        // SAFETY: the caller guarantees it.
        true => unsafe { read(fd, buffer, bytes) },
        // SAFETY: the caller guarantees it.
        false => unsafe { next::__read_chk(fd, buffer, bytes, room) },
    }
}

/// # Safety
///
/// The caller meets the requirements of `readv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readv(fd: c_int, iov: *const iovec, parts: c_int) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::readv(fd, iov, parts) };
    on_reading(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            let buffers = unsafe { Buffers::of_program(parts_of_call(iov, parts)?) };
            // The kernel's layer of files ends a call without room, unlike `recvmsg`.
            if buffers.bytes() == 0 {
                return Ok(0);
            }
            Ok(tcp::receive(fd, descriptor, buffers, 0)?.bytes as ssize_t)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `recv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recv(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::recv(fd, buffer, bytes, flags) };
    on_reading(
        fd,
        // SAFETY: the caller guarantees it.
        |descriptor| Ok(unsafe { receive_into(fd, descriptor, buffer, bytes, flags) }?.bytes as ssize_t),
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `recv(2)`; the buffer has `room` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    match bytes <= room && recognition::may_be_sctp_socket(fd) {
        // SAFETY: the caller guarantees it.
        true => unsafe { recv(fd, buffer, bytes, flags) },
        // SAFETY: the caller guarantees it.
        false => unsafe { next::__recv_chk(fd, buffer, bytes, room, flags) },
    }
}

/// # Safety
///
/// The caller meets the requirements of `recvfrom(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::recvfrom(fd, buffer, bytes, flags, from, from_bytes) };
    on_reading(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            let message = unsafe { receive_into(fd, descriptor, buffer, bytes, flags) }?;
            // SAFETY: the caller guarantees it.
            unsafe { tell_sender(descriptor, message.header.as_ref(), from, from_bytes) }?;
            Ok(message.bytes as ssize_t)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `recvfrom(2)`; the buffer has `room` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> ssize_t {
    match bytes <= room && recognition::may_be_sctp_socket(fd) {
        // SAFETY: the caller guarantees it.
        true => unsafe { recvfrom(fd, buffer, bytes, flags, from, from_bytes) },
        // SAFETY: the caller guarantees it.
        false => unsafe { next::__recvfrom_chk(fd, buffer, bytes, room, flags, from, from_bytes) },
    }
}

/// # Safety
///
/// `message` meets the requirements of `recvmsg(2)`.
unsafe fn receive_message(
    fd: RawFd,
    descriptor: &Descriptor,
    message: &mut msghdr,
    flags: c_int,
) -> Result<ssize_t, ReadError> {
    // SAFETY: the caller guarantees it.
    let buffers = unsafe { Buffers::of_program(parts_of_message(message.msg_iov, message.msg_iovlen)?) };
    let received = receive::receive(fd, descriptor, buffers, flags)?;
    message.msg_flags = if received.whole && !tcp::is_stream(descriptor) { libc::MSG_EOR } else { 0 };
    let pages = descriptor.pages();
    let (name, bytes) = (message.msg_name.cast(), &raw mut message.msg_namelen);
    // SAFETY: the caller guarantees it.
    unsafe { tell_sender(descriptor, received.header.as_ref(), name, bytes) }?;
    match received.header {
        Some(header) if header.kind == Kind::Data => {
            let subscriptions = Subscriptions(pages.status.subscriptions.load(Relaxed));
            let peeks_on = subscriptions.contains(Subscriptions::NXTINFO)
                && received.whole
                && flags & libc::MSG_PEEK == 0;
            let next = if peeks_on { receive::next(fd, descriptor) } else { None };
            // SAFETY: the caller guarantees it.
            unsafe { ancillary::write(message, &header, next.as_ref(), subscriptions) };
        }
        Some(_) => {
            message.msg_flags |= MSG_NOTIFICATION;
            message.msg_controllen = 0;
        }
        None => message.msg_controllen = 0,
    }
    Ok(received.bytes as ssize_t)
}

/// # Safety
///
/// The caller meets the requirements of `recvmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let forward = || {
        // SAFETY: the caller guarantees it.
        unsafe {
            let received = next::recvmsg(fd, message, flags);
            if received >= 0 && !message.is_null() {
                forget_handed_over(&*message);
            }
            received
        }
    };
    on_reading(
        fd,
        |descriptor| {
            if !can_be(message) {
                return Err(Errno(libc::EFAULT).into());
            }
            // SAFETY: the caller guarantees it.
            unsafe { receive_message(fd, descriptor, &mut *message, flags) }
        },
        forward,
    )
}

/// Forgets the descriptors that came over a foreign socket: their numbers may have meant others before.
///
/// # Safety
///
/// The message was received.
unsafe fn forget_handed_over(message: &msghdr) {
    // SAFETY: the macros stay within the length that the kernel has written.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(message);
        while !entry.is_null() {
            if ((*entry).cmsg_level, (*entry).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*entry).cmsg_len - size_of::<libc::cmsghdr>();
                let descriptors = libc::CMSG_DATA(entry).cast::<RawFd>();
                (0..bytes / size_of::<RawFd>())
                    .for_each(|n| table::forget(descriptors.add(n).read_unaligned()));
            }
            entry = libc::CMSG_NXTHDR(message, entry);
        }
    }
}

/// # Safety
///
/// The caller meets the requirements of `recvmmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let forward = || {
        // SAFETY: the caller guarantees it.
        unsafe {
            let received = next::recvmmsg(fd, messages, number, flags, timeout);
            let headers = (0..usize::try_from(received).unwrap_or(0)).map(|n| &(*messages.add(n)).msg_hdr);
            headers.for_each(|message| forget_handed_over(message));
            received
        }
    };
    on_reading(
        fd,
        |descriptor| {
            let first_only = flags & libc::MSG_WAITFORONE != 0;
            let flags = flags & !libc::MSG_WAITFORONE;
            let receive = |n, message: &mut msghdr| {
                let flags = if n > 0 && first_only { flags | libc::MSG_DONTWAIT } else { flags };
                // SAFETY: the caller guarantees it.
                let bytes = unsafe { receive_message(fd, descriptor, message, flags) }?;
                // After a message, the end waits for the next call.
                if bytes == 0 && n > 0 { Err(Errno(libc::EAGAIN).into()) } else { Ok(bytes) }
            };
            // SAFETY: the caller guarantees it.
            unsafe { each(messages, number, receive) }
        },
        forward,
    )
}
