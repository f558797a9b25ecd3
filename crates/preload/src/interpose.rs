//! The functions of the C library, under their names. For a descriptor that is not ours each is the next one of its name.

use std::os::fd::RawFd;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use carrier::page::Wants;
use carrier::request::{OPTION_BYTES_MAX, Request};
use libc::{
    FILE, c_int, c_uint, c_ulong, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};

use crate::ancillary::{self, SendInfo};
use crate::descriptor::Descriptor;
use crate::receive::{self, Message};
use crate::send;
use crate::system::{Buffers, Errno, Result};
use crate::{address, next, setup, table};

const IPPROTO_SCTP: c_int = 132;

/// What a C function returns: -1 with an errno, or a number.
fn number<N: From<i8>>(result: Result<N>) -> N {
    result.unwrap_or_else(|error| {
        error.set();
        N::from(-1)
    })
}

/// Runs `ours` on a descriptor that is ours, `theirs` on any other.
fn on<N: From<i8>>(
    fd: RawFd,
    ours: impl FnOnce(&Arc<Descriptor>) -> Result<N>,
    theirs: impl FnOnce() -> N,
) -> N {
    let Some(descriptor) = table::find(fd) else { return theirs() };
    match ours(&descriptor) {
        // The number has become something else where nobody saw it.
        Err(Errno(libc::ENOTSOCK)) => {
            table::forget(fd);
            theirs()
        }
        result => number(result),
    }
}

// --- sockets -----------------------------------------------------------------------------

/// # Safety
///
/// As `socket(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let is_ours = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && protocol == IPPROTO_SCTP
        && kind & !flags == libc::SOCK_STREAM;
    if is_ours {
        return number(setup::open(domain == libc::AF_INET6, flags));
    }
    // SAFETY: as the caller says.
    let fd = unsafe { next::socket(domain, kind, protocol) };
    table::forget(fd);
    fd
}

/// # Safety
///
/// As `bind(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::bind(fd, address, bytes) };
    on(
        fd,
        |_| {
            // SAFETY: as the caller says.
            let wanted = unsafe { address::read(address, bytes) }?;
            setup::request(fd, &Request::Bind(wanted)).map(|()| 0)
        },
        theirs,
    )
}

/// # Safety
///
/// As `listen(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::listen(fd, backlog) };
    on(fd, |_| setup::request(fd, &Request::Listen { backlog }).map(|()| 0), theirs)
}

/// # Safety
///
/// As `connect(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::connect(fd, address, bytes) };
    on(
        fd,
        |descriptor| {
            // SAFETY: as the caller says.
            let server = unsafe { address::read(address, bytes) }?;
            setup::connect(fd, descriptor, server).map(|()| 0)
        },
        theirs,
    )
}

fn accept_one(
    fd: c_int,
    descriptor: &Descriptor,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
    flags: c_int,
) -> Result<c_int> {
    let (accepted, peer) = setup::accept(fd, descriptor, flags)?;
    // SAFETY: as the caller of the C function says.
    unsafe { address::write(peer, address, bytes) };
    Ok(accepted)
}

/// # Safety
///
/// As `accept(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int {
    let theirs = || {
        // SAFETY: as the caller says.
        let accepted = unsafe { next::accept(fd, address, bytes) };
        table::forget(accepted);
        accepted
    };
    on(fd, |descriptor| accept_one(fd, descriptor, address, bytes, 0), theirs)
}

/// # Safety
///
/// As `accept4(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let theirs = || {
        // SAFETY: as the caller says.
        let accepted = unsafe { next::accept4(fd, address, bytes, flags) };
        table::forget(accepted);
        accepted
    };
    on(fd, |descriptor| accept_one(fd, descriptor, address, bytes, flags), theirs)
}

/// # Safety
///
/// As `getsockname(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::getsockname(fd, address, bytes) };
    on(
        fd,
        |_| {
            let local = setup::local_address(fd)?;
            // SAFETY: as the caller says.
            unsafe { address::write(local, address, bytes) };
            Ok(0)
        },
        theirs,
    )
}

/// # Safety
///
/// As `getpeername(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::getpeername(fd, address, bytes) };
    on(
        fd,
        |descriptor| {
            let peer = setup::peer_address(descriptor)?;
            // SAFETY: as the caller says.
            unsafe { address::write(peer, address, bytes) };
            Ok(0)
        },
        theirs,
    )
}

/// # Safety
///
/// As `shutdown(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::shutdown(fd, how) };
    on(fd, |descriptor| setup::check_shutdown(descriptor, how).map(|()| theirs()), theirs)
}

/// Options that the kernel keeps for the carrier as it would for an SCTP socket.
fn is_kernels(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO)
}

/// # Safety
///
/// As `getsockopt(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::getsockopt(fd, level, name, value, bytes) };
    if is_kernels(level, name) {
        return theirs();
    }
    on(
        fd,
        |descriptor| {
            if value.is_null() || bytes.is_null() {
                return Err(Errno(libc::EFAULT));
            }
            let own = setup::own_option(fd, descriptor, level, name);
            let found = own.map_or_else(|| setup::option(fd, level, name), Ok)?;
            // SAFETY: no more is written than the program has room for.
            unsafe {
                let room = (*bytes as usize).min(found.len);
                std::ptr::copy_nonoverlapping(found.bytes.as_ptr(), value.cast(), room);
                *bytes = room as socklen_t;
            }
            Ok(0)
        },
        theirs,
    )
}

/// # Safety
///
/// As `setsockopt(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: socklen_t,
) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::setsockopt(fd, level, name, value, bytes) };
    if is_kernels(level, name) {
        return theirs();
    }
    on(
        fd,
        |_| {
            let bytes = bytes as usize;
            if value.is_null() {
                return Err(Errno(libc::EFAULT));
            }
            if bytes > OPTION_BYTES_MAX {
                return Err(Errno(libc::EINVAL));
            }
            // SAFETY: as the caller says.
            let value = unsafe { slice::from_raw_parts(value.cast(), bytes) };
            setup::request(fd, &Request::SetOption { level, name, value }).map(|()| 0)
        },
        theirs,
    )
}

// --- receiving ---------------------------------------------------------------------------

fn receive_into(
    fd: RawFd,
    descriptor: &Descriptor,
    place: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> Result<Message> {
    let part = [iovec { iov_base: place, iov_len: bytes }];
    // SAFETY: as the caller of the C function says.
    receive::receive(fd, descriptor, unsafe { Buffers::new(&part) }, flags)
}

/// # Safety
///
/// As `read(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn read(fd: c_int, place: *mut c_void, bytes: size_t) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::read(fd, place, bytes) };
    on(fd, |descriptor| Ok(receive_into(fd, descriptor, place, bytes, 0)?.bytes as ssize_t), theirs)
}

/// # Safety
///
/// As `read(2)` into a place with this much room.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __read_chk(fd: c_int, place: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
    match bytes <= room && table::find(fd).is_some() {
        // SAFETY: as the caller says.
        true => unsafe { read(fd, place, bytes) },
        // SAFETY: as the caller says.
        false => unsafe { next::__read_chk(fd, place, bytes, room) },
    }
}

/// # Safety
///
/// As `readv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, parts: c_int) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::readv(fd, iov, parts) };
    on(
        fd,
        |descriptor| {
            // SAFETY: as the caller says.
            let place = unsafe { buffers(iov, parts as usize) }?;
            Ok(receive::receive(fd, descriptor, place, 0)?.bytes as ssize_t)
        },
        theirs,
    )
}

/// # Safety
///
/// `iov` points to as many parts.
unsafe fn buffers<'a>(iov: *const iovec, parts: usize) -> Result<Buffers<'a>> {
    match parts {
        0 => Ok(
            // SAFETY: there is nothing in it.
            unsafe { Buffers::new(&[]) },
        ),
        _ if parts > libc::UIO_MAXIOV as usize - 1 => Err(Errno(libc::EMSGSIZE)),
        _ if iov.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: as the caller says.
        _ => Ok(unsafe { Buffers::new(slice::from_raw_parts(iov, parts)) }),
    }
}

/// # Safety
///
/// As `recv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recv(fd: c_int, place: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::recv(fd, place, bytes, flags) };
    on(fd, |descriptor| Ok(receive_into(fd, descriptor, place, bytes, flags)?.bytes as ssize_t), theirs)
}

/// # Safety
///
/// As `recv(2)` into a place with this much room.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    place: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    match bytes <= room && table::find(fd).is_some() {
        // SAFETY: as the caller says.
        true => unsafe { recv(fd, place, bytes, flags) },
        // SAFETY: as the caller says.
        false => unsafe { next::__recv_chk(fd, place, bytes, room, flags) },
    }
}

/// # Safety
///
/// As `recvfrom(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    place: *mut c_void,
    bytes: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::recvfrom(fd, place, bytes, flags, from, from_bytes) };
    on(
        fd,
        |descriptor| {
            let message = receive_into(fd, descriptor, place, bytes, flags)?;
            if let Some(peer) = descriptor.page().peer() {
                // SAFETY: as the caller says.
                unsafe { address::write(peer, from, from_bytes) };
            }
            Ok(message.bytes as ssize_t)
        },
        theirs,
    )
}

/// # Safety
///
/// As `recvfrom(2)` into a place with this much room.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    place: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> ssize_t {
    match bytes <= room && table::find(fd).is_some() {
        // SAFETY: as the caller says.
        true => unsafe { recvfrom(fd, place, bytes, flags, from, from_bytes) },
        // SAFETY: as the caller says.
        false => unsafe { next::__recvfrom_chk(fd, place, bytes, room, flags, from, from_bytes) },
    }
}

/// # Safety
///
/// `message` is as for `recvmsg(2)`.
unsafe fn receive_message(
    fd: RawFd,
    descriptor: &Descriptor,
    message: &mut msghdr,
    flags: c_int,
) -> Result<ssize_t> {
    // SAFETY: as the caller says.
    let place = unsafe { buffers(message.msg_iov, message.msg_iovlen) }?;
    let received = receive::receive(fd, descriptor, place, flags)?;
    message.msg_flags = if received.whole { libc::MSG_EOR } else { 0 };
    let page = descriptor.page();
    if let Some(peer) = page.peer() {
        // SAFETY: as the caller says.
        unsafe { address::write(peer, message.msg_name.cast(), &raw mut message.msg_namelen) };
    }
    match received.header {
        // SAFETY: as the caller says.
        Some(header) => unsafe { ancillary::write(message, &header, Wants(page.wants.load(Relaxed))) },
        None => message.msg_controllen = 0,
    }
    Ok(received.bytes as ssize_t)
}

/// # Safety
///
/// As `recvmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let theirs = || {
        // SAFETY: as the caller says.
        unsafe {
            let received = next::recvmsg(fd, message, flags);
            if received >= 0 && !message.is_null() {
                forget_handed_over(&*message);
            }
            received
        }
    };
    on(
        fd,
        |descriptor| {
            // SAFETY: as the caller says.
            let message = unsafe { message.as_mut() }.ok_or(Errno(libc::EFAULT))?;
            // SAFETY: as the caller says.
            unsafe { receive_message(fd, descriptor, message, flags) }
        },
        theirs,
    )
}

/// Descriptors that came over a socket may be anything, whatever their numbers were before.
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
/// As `recvmmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let theirs = || {
        // SAFETY: as the caller says.
        unsafe {
            let received = next::recvmmsg(fd, messages, number, flags, timeout);
            let headers = (0..usize::try_from(received).unwrap_or(0)).map(|n| &(*messages.add(n)).msg_hdr);
            headers.for_each(|message| forget_handed_over(message));
            received
        }
    };
    on(
        fd,
        |descriptor| {
            let first_only = flags & libc::MSG_WAITFORONE != 0;
            let flags = flags & !libc::MSG_WAITFORONE;
            each(messages, number, |n, message| {
                let flags = if n > 0 && first_only { flags | libc::MSG_DONTWAIT } else { flags };
                // SAFETY: as the caller says.
                let bytes = unsafe { receive_message(fd, descriptor, message, flags) }?;
                // After the end comes nothing.
                if bytes == 0 && n > 0 { Err(Errno(libc::EAGAIN)) } else { Ok(bytes) }
            })
        },
        theirs,
    )
}

/// Does the same with each message until one fails; says with how many it did not.
fn each(
    messages: *mut mmsghdr,
    number: c_uint,
    mut with: impl FnMut(c_uint, &mut msghdr) -> Result<ssize_t>,
) -> Result<c_int> {
    for n in 0..number {
        // SAFETY: the program says that there are as many.
        let message = unsafe { &mut *messages.add(n as usize) };
        match with(n, &mut message.msg_hdr) {
            Ok(bytes) => message.msg_len = bytes as c_uint,
            Err(error) if n == 0 => return Err(error),
            Err(_) => return Ok(n as c_int),
        }
    }
    Ok(number as c_int)
}

// --- sending -----------------------------------------------------------------------------

fn send_from(
    fd: RawFd,
    descriptor: &Descriptor,
    content: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> Result<ssize_t> {
    let part = [iovec { iov_base: content.cast_mut(), iov_len: bytes }];
    // SAFETY: as the caller of the C function says.
    let content = unsafe { Buffers::new(&part) };
    send::send(fd, descriptor, content, &SendInfo::default(), flags).map(|bytes| bytes as ssize_t)
}

/// # Safety
///
/// As `write(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn write(fd: c_int, content: *const c_void, bytes: size_t) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::write(fd, content, bytes) };
    on(fd, |descriptor| send_from(fd, descriptor, content, bytes, 0), theirs)
}

/// # Safety
///
/// As `writev(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, parts: c_int) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::writev(fd, iov, parts) };
    on(
        fd,
        |descriptor| {
            // SAFETY: as the caller says.
            let content = unsafe { buffers(iov, parts as usize) }?;
            send::send(fd, descriptor, content, &SendInfo::default(), 0).map(|bytes| bytes as ssize_t)
        },
        theirs,
    )
}

/// # Safety
///
/// As `send(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn send(fd: c_int, content: *const c_void, bytes: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::send(fd, content, bytes, flags) };
    on(fd, |descriptor| send_from(fd, descriptor, content, bytes, flags), theirs)
}

/// # Safety
///
/// As `sendto(2)`. An address adds nothing where there is one peer.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    content: *const c_void,
    bytes: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_bytes: socklen_t,
) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::sendto(fd, content, bytes, flags, to, to_bytes) };
    on(fd, |descriptor| send_from(fd, descriptor, content, bytes, flags), theirs)
}

/// # Safety
///
/// `message` is as for `sendmsg(2)`.
unsafe fn send_message(
    fd: RawFd,
    descriptor: &Descriptor,
    message: &msghdr,
    flags: c_int,
) -> Result<ssize_t> {
    // SAFETY: as the caller says.
    let (info, content) =
        unsafe { (SendInfo::read(message)?, buffers(message.msg_iov, message.msg_iovlen)?) };
    send::send(fd, descriptor, content, &info, flags).map(|bytes| bytes as ssize_t)
}

/// # Safety
///
/// As `sendmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::sendmsg(fd, message, flags) };
    on(
        fd,
        |descriptor| {
            // SAFETY: as the caller says.
            let message = unsafe { message.as_ref() }.ok_or(Errno(libc::EFAULT))?;
            // SAFETY: as the caller says.
            unsafe { send_message(fd, descriptor, message, flags) }
        },
        theirs,
    )
}

/// # Safety
///
/// As `sendmmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, number: c_uint, flags: c_int) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::sendmmsg(fd, messages, number, flags) };
    on(
        fd,
        |descriptor| {
            // SAFETY: as the caller says.
            each(messages, number, |_, message| unsafe { send_message(fd, descriptor, message, flags) })
        },
        theirs,
    )
}

// --- descriptors -------------------------------------------------------------------------

/// # Safety
///
/// As `close(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    table::forget(fd);
    // SAFETY: as the caller says.
    unsafe { next::close(fd) }
}

/// # Safety
///
/// As `close_range(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
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
pub unsafe extern "C" fn closefrom(first: c_int) {
    table::forget_range(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: as the caller says.
    unsafe { next::closefrom(first) };
}

/// # Safety
///
/// As `fclose(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
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
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: as the caller says.
    copied(fd, unsafe { next::dup(fd) })
}

/// # Safety
///
/// As `dup2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: as the caller says.
    copied(fd, unsafe { next::dup2(fd, to) })
}

/// # Safety
///
/// As `dup3(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
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
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller says.
    controlled(fd, command, unsafe { next::fcntl(fd, command, argument) })
}

/// # Safety
///
/// As [`fcntl`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the caller says.
    controlled(fd, command, unsafe { next::fcntl64(fd, command, argument) })
}

/// # Safety
///
/// As `ioctl(2)`. What follows the request is at most one word, which is passed as it came.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: as the caller says.
    let theirs = || unsafe { next::ioctl(fd, request, argument) };
    if request != libc::FIONREAD {
        return theirs();
    }
    on(
        fd,
        |descriptor| {
            let available = receive::available(fd, descriptor.page())?;
            // SAFETY: the request takes a pointer to a number.
            unsafe { (argument as *mut c_int).write(available as c_int) };
            Ok(0)
        },
        theirs,
    )
}
