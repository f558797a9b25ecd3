//! Calls that send.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::{each, messages_of, on, parts_of_call, parts_of_message};
use crate::ancillary::{Control, SendInfo};
use crate::descriptor::Descriptor;
use crate::send::{self, Outgoing};
use crate::system::{Content, Errno, Result, Source, can_be};
use crate::{address, next};

/// # Safety
///
/// The program has lent the content, to be read.
unsafe fn send_from(
    fd: RawFd,
    descriptor: &Descriptor,
    content: *const c_void,
    bytes: size_t,
    to: Option<SocketAddr>,
    flags: c_int,
) -> Result<ssize_t> {
    // SAFETY: the caller guarantees it.
    let parts = [unsafe { Source::of_program(content, bytes) }];
    let (content, info) = (Content::new(&parts), &SendInfo::by_default());
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
    // SAFETY: the caller guarantees it.
    on(fd, |descriptor| unsafe { send_from(fd, descriptor, content, bytes, None, 0) }, forward)
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
            let content = unsafe { Content::of_program(parts_of_call(iov, parts)?) };
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
    // SAFETY: the caller guarantees it.
    on(fd, |descriptor| unsafe { send_from(fd, descriptor, content, bytes, None, flags) }, forward)
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
            unsafe {
                let to = destination(descriptor, to, to_bytes)?;
                send_from(fd, descriptor, content, bytes, to, flags)
            }
        },
        forward,
    )
}

/// Calls `send` with what the program describes.
///
/// # Safety
///
/// `message` meets the requirements of `sendmsg(2)`.
unsafe fn with_message<T>(
    fd: RawFd,
    descriptor: &Descriptor,
    message: &msghdr,
    flags: c_int,
    send: impl FnOnce(Outgoing<'_>) -> Result<T>,
) -> Result<T> {
    // SAFETY: the caller guarantees it.
    let (to, control, parts) = unsafe {
        let is_named = message.msg_namelen > 0;
        let name = if is_named { message.msg_name.cast() } else { ptr::null() };
        let to = destination(descriptor, name, message.msg_namelen)?;
        (to, Control::of(message), parts_of_message(message.msg_iov, message.msg_iovlen))
    };
    let (info, parts) = (control.info()?, parts?);
    // SAFETY: the caller guarantees it.
    let content = unsafe { Content::of_program(parts) };
    send(Outgoing { fd, descriptor, content, info: &info, control, to, flags })
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
    unsafe { with_message(fd, descriptor, message, flags, |outgoing| outgoing.send()) }
        .map(|bytes| bytes as ssize_t)
}

/// Sends messages until one must wait or fails, under few holds of the lock. Returns their number.
///
/// # Safety
///
/// The program has lent the messages, which meet the requirements of `sendmsg(2)`, to be written.
unsafe fn send_at_once(
    fd: RawFd,
    descriptor: &Descriptor,
    messages: &mut [mmsghdr],
    flags: c_int,
) -> Result<usize> {
    let mut sent = 0;
    send::send_batch(fd, descriptor, flags, |batch| {
        let Some(next) = messages.get_mut(sent) else { return false };
        let put = |outgoing: Outgoing<'_>| Ok((outgoing.put(batch), outgoing.content.bytes()));
        // SAFETY: the caller guarantees it.
        let put = unsafe { with_message(fd, descriptor, &next.msg_hdr, flags, put) };
        let Ok((true, bytes)) = put else { return false };
        next.msg_len = bytes as c_uint;
        sent += 1;
        true
    })?;
    Ok(sent)
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
            // As many as in the kernel.
            let number = number.min(libc::UIO_MAXIOV as c_uint);
            // SAFETY: the caller guarantees it.
            let messages = unsafe { messages_of(messages, number) }?;
            each(
                messages,
                // SAFETY: the caller guarantees it.
                |_, some| unsafe { send_at_once(fd, descriptor, some, flags) },
                // SAFETY: the caller guarantees it.
                |_, message| unsafe { send_message(fd, descriptor, message, flags) },
            )
        },
        forward,
    )
}

#[cfg(test)]
mod tests {
    use std::mem;

    use channel_protocol::status_page::{State, StatusPage};

    use super::*;
    use crate::descriptor;
    use crate::lock::tests::HOLDS;
    use crate::own_ring::tests::Socket;

    #[test]
    fn several_messages_are_sent_under_one_hold_of_the_lock() {
        let socket = Socket::new();
        descriptor::tests::set(socket.status.raw(), StatusPage::STATE_AT, State::Connected as u32);
        let _memory = socket.join(ring::WORDS);
        // The first message begins to use the ring.
        let descriptor = &socket.descriptor;
        assert!(descriptor.ring.writer(descriptor.pages()).is_some());
        let mut content = *b"a word";
        let mut part = iovec { iov_base: content.as_mut_ptr().cast(), iov_len: content.len() };
        let mut messages = [(); 32].map(|()| {
            // SAFETY: an all-zero header is valid and refers to nothing.
            let mut message: mmsghdr = unsafe { mem::zeroed() };
            message.msg_hdr.msg_iov = &raw mut part;
            message.msg_hdr.msg_iovlen = 1;
            message
        });
        let before = HOLDS.get();
        // SAFETY: each message refers to its content.
        assert_eq!(unsafe { send_at_once(-1, descriptor, &mut messages, 0) }, Ok(32));
        assert_eq!(HOLDS.get() - before, 1);
        assert!(messages.iter().all(|message| message.msg_len == 6));
    }
}
