//! Records of sockets, with descriptors: `sendmsg` and `recvmsg`.

use std::os::fd::RawFd;
use std::ptr;

use libc::{c_int, c_long};

use super::{Buffers, Content, Result};
use crate::errno::check;
use crate::next::c_library;
use crate::owned::Owned;
use crate::system_call::system_call;

/// Control message with one descriptor.
#[repr(C)]
struct Rights<const N: usize> {
    header: libc::cmsghdr,
    descriptors: [RawFd; N],
}

const EMPTY: libc::cmsghdr = libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 };
const RIGHTS_AT: usize = size_of::<libc::cmsghdr>();

/// Result of a receive.
pub(crate) struct Received<const N: usize> {
    pub(crate) bytes: usize,
    /// Descriptors that came with the record.
    pub(crate) descriptors: [Option<Owned>; N],
    /// The process' table had no room for a descriptor.
    pub(crate) descriptors_lost: bool,
}

/// Receives into `buffers` with `recvmsg`, and takes at most `N` descriptors.
pub(crate) fn receive<const N: usize>(fd: RawFd, buffers: Buffers<'_>, flags: c_int) -> Result<Received<N>> {
    let call = |message: &mut libc::msghdr, flags: c_int| {
        // SAFETY: all memory that the message describes is writable.
        unsafe { system_call!(libc::SYS_recvmsg, fd, ptr::from_mut(message), flags) }
    };
    receive_by(call, buffers, flags)
}

/// Receives as [`receive`] does, for as long as it takes: a cancellation point.
pub(crate) fn await_message<const N: usize>(
    fd: RawFd,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Result<Received<N>> {
    let call = |message: &mut libc::msghdr, flags: c_int| {
        // SAFETY: all memory that the message describes is writable.
        unsafe { c_library::recvmsg(fd, message, flags) as c_long }
    };
    receive_by(call, buffers, flags)
}

fn receive_by<const N: usize>(
    call: impl FnOnce(&mut libc::msghdr, c_int) -> c_long,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Result<Received<N>> {
    let mut control = Rights { header: EMPTY, descriptors: [-1; N] };
    // SAFETY: an all-zero msghdr is valid and refers to nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = buffers.as_iov().as_ptr().cast_mut();
    message.msg_iovlen = buffers.as_iov().len();
    if N > 0 {
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = RIGHTS_AT + N * size_of::<RawFd>();
    }
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    let bytes = check(call(&mut message, flags))?;
    let descriptors_lost = N > 0 && message.msg_flags & libc::MSG_CTRUNC != 0;
    // In a debug build, `map` of an array takes more stack than some threads have.
    let mut descriptors = [const { None }; N];
    for (descriptor, fd) in descriptors.iter_mut().zip(control.descriptors) {
        *descriptor = Owned::new(fd);
    }
    Ok(Received { bytes, descriptors, descriptors_lost })
}

/// Sends `content` with `sendmsg`, and a descriptor with it.
pub(crate) fn send(
    fd: RawFd,
    content: Content<'_>,
    descriptor: Option<RawFd>,
    flags: c_int,
) -> Result<usize> {
    let call = |message: &libc::msghdr| {
        // SAFETY: all memory that the message describes is readable.
        unsafe { system_call!(libc::SYS_sendmsg, fd, ptr::from_ref(message), flags) }
    };
    send_by(call, content, descriptor)
}

/// Sends as [`send`] does, for as long as it takes: a cancellation point.
pub(crate) fn send_waiting(
    fd: RawFd,
    content: Content<'_>,
    descriptor: Option<RawFd>,
    flags: c_int,
) -> Result<usize> {
    let call = |message: &libc::msghdr| {
        // SAFETY: all memory that the message describes is readable.
        unsafe { c_library::sendmsg(fd, message, flags) as c_long }
    };
    send_by(call, content, descriptor)
}

fn send_by(
    call: impl FnOnce(&libc::msghdr) -> c_long,
    content: Content<'_>,
    descriptor: Option<RawFd>,
) -> Result<usize> {
    let mut control = Rights::<1> {
        header: libc::cmsghdr {
            cmsg_len: RIGHTS_AT + size_of::<RawFd>(),
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        },
        descriptors: [descriptor.unwrap_or(-1)],
    };
    // SAFETY: an all-zero msghdr is valid and refers to nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = content.as_iov().as_ptr().cast_mut();
    message.msg_iovlen = content.as_iov().len();
    if descriptor.is_some() {
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = RIGHTS_AT + size_of::<RawFd>();
    }
    check(call(&message))
}
