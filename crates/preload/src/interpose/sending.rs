//! Calls that send.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::{buffers, buffers_of_call, each, on};
use crate::ancillary::{Control, SendInfo};
use crate::descriptor::Descriptor;
use crate::send::Outgoing;
use crate::system::{Buffers, Errno, Result, can_be};
use crate::{address, next};

fn send_from(
    fd: RawFd,
    descriptor: &Descriptor,
    content: *const c_void,
    bytes: size_t,
    to: Option<SocketAddr>,
    flags: c_int,
) -> Result<ssize_t> {
    let part = [iovec { iov_base: content.cast_mut(), iov_len: bytes }];
    // SAFETY: the caller of the C function guarantees it.
    let content = unsafe { Buffers::new(&part) };
    let info = &SendInfo::by_default();
    Outgoing { fd, descriptor, content, info, control: Control::NONE, to, flags }
        .send()
        .map(|bytes| bytes as ssize_t)
}

/// # Safety
///
/// The caller meets the requirements of `write(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn write(fd: c_int, content: *const c_void, bytes: size_t) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::write(fd, content, bytes) };
    on(fd, |descriptor| send_from(fd, descriptor, content, bytes, None, 0), forward)
}

/// # Safety
///
/// The caller meets the requirements of `writev(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn writev(fd: c_int, iov: *const iovec, parts: c_int) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::writev(fd, iov, parts) };
    on(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            let content = unsafe { buffers_of_call(iov, parts) }?;
            // The kernel's layer of files ends a call without bytes, unlike `write`.
            if content.bytes() == 0 {
                return Ok(0);
            }
            let info = &SendInfo::by_default();
            let outgoing =
                Outgoing { fd, descriptor, content, info, control: Control::NONE, to: None, flags: 0 };
            outgoing.send().map(|bytes| bytes as ssize_t)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `send(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    content: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::send(fd, content, bytes, flags) };
    on(fd, |descriptor| send_from(fd, descriptor, content, bytes, None, flags), forward)
}

/// # Safety
///
/// `address` points to `bytes` bytes, or is null.
unsafe fn destination(
    descriptor: &Descriptor,
    address: *const sockaddr,
    bytes: socklen_t,
) -> Result<Option<SocketAddr>> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees it.
    let to = unsafe { address::read(address, bytes) }?;
    Ok(Some(address::as_seen(descriptor, to)))
}

/// # Safety
///
/// The caller meets the requirements of `sendto(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    content: *const c_void,
    bytes: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_bytes: socklen_t,
) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::sendto(fd, content, bytes, flags, to, to_bytes) };
    on(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            let to = unsafe { destination(descriptor, to, to_bytes) }?;
            send_from(fd, descriptor, content, bytes, to, flags)
        },
        forward,
    )
}

/// # Safety
///
/// `message` meets the requirements of `sendmsg(2)`.
unsafe fn send_message(
    fd: RawFd,
    descriptor: &Descriptor,
    message: &msghdr,
    flags: c_int,
) -> Result<ssize_t> {
    // SAFETY: the caller guarantees it.
    let (to, control, content) = unsafe {
        let is_named = message.msg_namelen > 0;
        let name = if is_named { message.msg_name.cast() } else { ptr::null() };
        let to = destination(descriptor, name, message.msg_namelen)?;
        (to, Control::of(message), buffers(message.msg_iov, message.msg_iovlen))
    };
    let (info, content) = (control.info()?, content?);
    Outgoing { fd, descriptor, content, info: &info, control, to, flags }.send().map(|bytes| bytes as ssize_t)
}

/// # Safety
///
/// The caller meets the requirements of `sendmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::sendmsg(fd, message, flags) };
    on(
        fd,
        |descriptor| {
            if !can_be(message) {
                return Err(Errno(libc::EFAULT));
            }
            // SAFETY: the caller guarantees it.
            unsafe { send_message(fd, descriptor, &*message, flags) }
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `sendmmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::sendmmsg(fd, messages, number, flags) };
    on(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            each(messages, number, |_, message| unsafe { send_message(fd, descriptor, message, flags) })
        },
        forward,
    )
}
