//! Calls that make, name, connect and configure sockets.

use std::sync::atomic::Ordering::Relaxed;
use std::{ptr, slice};

use channel_protocol::abi::{
    SCTP_GET_LOCAL_ADDRS, SCTP_HMAC_IDENT, SCTP_SOCKOPT_CONNECTX, SCTP_SOCKOPT_CONNECTX_OLD,
    SCTP_SOCKOPT_CONNECTX3, SCTP_SOCKOPT_PEELOFF, SCTP_SOCKOPT_PEELOFF_FLAGS,
};
use channel_protocol::request::{OPTION_BYTES_MAX, SocketKind, SocketRequest};
use libc::{c_int, c_void, sockaddr, socklen_t};

use super::{number, on};
use crate::descriptor::Descriptor;
use crate::next::c_library;
use crate::system::{self, Destination, Errno, Result, can_be_bytes};
use crate::{address, ask, associations, cancel, environment, next, self_connect, setup, table, tcp};

/// # Safety
///
/// The caller meets the requirements of `socket(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    if let libc::AF_INET | libc::AF_INET6 = domain {
        let v6 = domain == libc::AF_INET6;
        match (kind & !flags, protocol) {
            (libc::SOCK_STREAM, libc::IPPROTO_SCTP) => {
                return number(setup::open(v6, SocketKind::OneToOne, flags));
            }
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) if environment::is_tcp_as_sctp() => {
                return number(setup::open(v6, SocketKind::TcpStream, flags));
            }
            // No other IP protocol has sockets of this type.
            (libc::SOCK_SEQPACKET, 0 | libc::IPPROTO_SCTP) => {
                return number(setup::open(v6, SocketKind::OneToMany, flags));
            }
            (libc::SOCK_SEQPACKET, _) => return number(Err(Errno(libc::EPROTONOSUPPORT))),
            _ => {}
        }
    }
    // SAFETY: the caller guarantees it.
    let fd = unsafe { next::socket(domain, kind, protocol) };
    table::forget(fd);
    fd
}

/// Makes a request that only a socket without an association can fulfil.
///
/// # Errors
///
/// `EINVAL`: the association has ended, and the daemon may no longer know the socket.
fn configure(fd: c_int, descriptor: &Descriptor, request: &SocketRequest<'_>) -> Result<c_int> {
    match ask::request(fd, request) {
        Err(Errno(libc::ENOTSOCK)) if setup::is_unusable(descriptor) => Err(Errno(libc::EINVAL)),
        done => done.map(|()| 0),
    }
}

/// # Safety
///
/// The caller meets the requirements of `bind(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::bind(fd, address, bytes) };
    on(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            let wanted = unsafe {
                match address::family(address, bytes)? {
                    libc::AF_UNSPEC | libc::AF_INET | libc::AF_INET6 => address::read(address, bytes)?,
                    _ => return Err(Errno(libc::EAFNOSUPPORT)),
                }
            };
            configure(fd, descriptor, &SocketRequest::Bind(wanted))
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `listen(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::listen(fd, backlog) };
    on(
        fd,
        |descriptor| {
            self_connect::listens();
            configure(fd, descriptor, &SocketRequest::Listen { backlog })
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `connect(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::connect(fd, address, bytes) };
    on(
        fd,
        |descriptor| {
            cancel::point();
            // SAFETY: the caller guarantees it.
            let server = unsafe {
                match address::family(address, bytes)? {
                    libc::AF_UNSPEC => return Err(Errno(libc::EOPNOTSUPP)),
                    _ => address::read(address, bytes)?,
                }
            };
            setup::connect(fd, descriptor, &[server]).1.map(|()| 0)
        },
        forward,
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
    if !address.is_null() {
        // SAFETY: the caller of the C function guarantees it.
        unsafe { address::write(address::as_wanted(descriptor, peer), address, bytes) }.inspect_err(
            |_| {
                table::forget(accepted);
                system::close(accepted);
            },
        )?;
    }
    Ok(accepted)
}

/// # Safety
///
/// The caller meets the requirements of `accept(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int {
    let forward = || {
        // SAFETY: the caller guarantees it.
        let accepted = unsafe { next::accept(fd, address, bytes) };
        table::forget(accepted);
        accepted
    };
    on(fd, |descriptor| accept_one(fd, descriptor, address, bytes, 0), forward)
}

/// # Safety
///
/// The caller meets the requirements of `accept4(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let forward = || {
        // SAFETY: the caller guarantees it.
        let accepted = unsafe { next::accept4(fd, address, bytes, flags) };
        table::forget(accepted);
        accepted
    };
    on(fd, |descriptor| accept_one(fd, descriptor, address, bytes, flags), forward)
}

/// # Safety
///
/// The caller meets the requirements of `getsockname(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::getsockname(fd, address, bytes) };
    on(
        fd,
        |descriptor| {
            let local = setup::local_address(fd, descriptor)?;
            // SAFETY: the caller guarantees it.
            unsafe { address::write(address::as_wanted(descriptor, local), address, bytes) }.map(|()| 0)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `getpeername(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::getpeername(fd, address, bytes) };
    on(
        fd,
        |descriptor| {
            let peer = setup::peer_address(descriptor)?;
            // SAFETY: the caller guarantees it.
            unsafe { address::write(address::as_wanted(descriptor, peer), address, bytes) }.map(|()| 0)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `shutdown(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::shutdown(fd, how) };
    on(
        fd,
        |descriptor| {
            if !setup::check_shutdown(descriptor, how)? {
                return Ok(0);
            }
            setup::note_shutdown(descriptor, how);
            // Otherwise the daemon would take the shutdown of both directions for a close. If it cannot watch
            // the socket, it does.
            let _ = ask::request(fd, &SocketRequest::Shutdown);
            // SAFETY: the call takes no pointer.
            Ok(unsafe { c_library::shutdown(fd, how) })
        },
        forward,
    )
}

/// Returns whether the kernel keeps an option for the pair as it would for an SCTP socket.
fn is_kernels(level: c_int, name: c_int) -> bool {
    /// Missing from the C library's bindings.
    const SO_MAX_PACING_RATE: c_int = 47;
    let of_time = matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO);
    let of_pair = matches!(name, libc::SO_COOKIE | libc::SO_INCOMING_CPU | SO_MAX_PACING_RATE);
    level == libc::SOL_SOCKET && (of_time || of_pair)
}

const OPTION_BYTES_TOO_MANY: usize = OPTION_BYTES_MAX + 1;

/// Returns whether a socket has options of this level; the value of other options is not read.
fn has_options(descriptor: &Descriptor, level: c_int) -> bool {
    let is_v6 = || descriptor.pages().status.family.load(Relaxed) == libc::AF_INET6 as u32;
    match level {
        libc::SOL_SOCKET | libc::IPPROTO_SCTP | libc::IPPROTO_IP => true,
        libc::IPPROTO_IPV6 => is_v6(),
        _ => false,
    }
}

/// Returns the value that a program passes to `getsockopt`, and the size of its buffer.
///
/// # Safety
///
/// The caller meets the requirements of `getsockopt(2)`.
unsafe fn given(
    descriptor: &Descriptor,
    level: c_int,
    value: *const c_void,
    bytes: *const socklen_t,
) -> Result<(*const [u8], usize)> {
    let nothing: (*const [u8], usize) = (&[], 0);
    if !has_options(descriptor, level) {
        return Ok(nothing);
    }
    if !can_be_bytes(bytes) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller guarantees it.
    let room = unsafe { bytes.cast::<c_int>().read_unaligned() };
    let room = usize::try_from(room).map_err(|_| Errno(libc::EINVAL))?;
    let given = match can_be_bytes(value) {
        true => ptr::slice_from_raw_parts(value.cast(), room.min(OPTION_BYTES_MAX)),
        false => nothing.0,
    };
    Ok((given, room))
}

/// Writes the value of an option that is a number, and its length.
///
/// # Safety
///
/// The caller meets the requirements of `getsockopt(2)`.
unsafe fn write_number(number: c_int, value: *mut c_void, bytes: *mut socklen_t) -> Result<()> {
    if !can_be_bytes(bytes) || !can_be_bytes(value) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        let place = Destination::of_program(value, bytes.read_unaligned() as usize);
        let written = place.write(&number.to_ne_bytes())?;
        bytes.write_unaligned(written as socklen_t);
    }
    Ok(())
}

/// Returns whether the kernel would have failed for an invalid pointer before it found this error.
fn looks_first(error: Errno, name: c_int, value: *const c_void) -> bool {
    let unread = matches!(error, Errno(libc::EOPNOTSUPP | libc::ENOPROTOOPT)) || name == SCTP_HMAC_IDENT;
    !can_be_bytes(value) && !unread
}

/// # Safety
///
/// The caller meets the requirements of `getsockopt(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::getsockopt(fd, level, name, value, bytes) };
    if is_kernels(level, name) {
        return forward();
    }
    on(
        fd,
        |descriptor| {
            if tcp::is_hint(level, name) {
                // SAFETY: the caller guarantees it.
                return unsafe { write_number(0, value, bytes) }.map(|()| 0);
            }
            let (level, name) = tcp::as_sctp(level, name);
            // SAFETY: the caller guarantees it.
            let (given, room) = unsafe { given(descriptor, level, value, bytes) }?;
            // SAFETY: the caller lends the memory, to be written.
            let place = unsafe { Destination::of_program(given.cast::<c_void>().cast_mut(), given.len()) };
            let found = match (level, name) {
                (
                    libc::IPPROTO_SCTP,
                    SCTP_SOCKOPT_PEELOFF | SCTP_SOCKOPT_PEELOFF_FLAGS | SCTP_SOCKOPT_CONNECTX3,
                ) if !can_be_bytes(value) => return Err(Errno(libc::EFAULT)),
                (libc::IPPROTO_SCTP, SCTP_SOCKOPT_PEELOFF | SCTP_SOCKOPT_PEELOFF_FLAGS) => {
                    // SAFETY: the caller guarantees it.
                    let peeled_off = associations::peel_off(fd, descriptor, name, unsafe { &*given })?;
                    // SAFETY: it is written where the value was read from.
                    unsafe { value.byte_add(4).cast::<c_int>().write_unaligned(peeled_off) };
                    return Ok(peeled_off);
                }
                (libc::IPPROTO_SCTP, SCTP_SOCKOPT_CONNECTX3) => {
                    // SAFETY: the caller guarantees it.
                    let (begun, done) = unsafe { associations::connect_listed(fd, descriptor, &*given) };
                    // SAFETY: the value has room for it.
                    unsafe { value.cast::<c_int>().write_unaligned(begun.to_assoc_t()) };
                    return done.map(|()| 0);
                }
                _ => match setup::own_option(fd, descriptor, level, name) {
                    Some(own) => place.write(&own.to_ne_bytes())?,
                    // SAFETY: the caller guarantees it.
                    None => unsafe { setup::option(fd, level, name, given, place) }.map_err(|error| {
                        if looks_first(error, name, value) { Errno(libc::EFAULT) } else { error }
                    })?,
                },
            };
            if room > 0 && !can_be_bytes(value) {
                return Err(Errno(libc::EFAULT));
            }
            // For local addresses the kernel returns the length of the list alone.
            let is_list = (level, name) == (libc::IPPROTO_SCTP, SCTP_GET_LOCAL_ADDRS);
            // SAFETY: the length was read there.
            unsafe { *bytes = (if is_list { found.saturating_sub(8) } else { found }) as socklen_t };
            Ok(0)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `setsockopt(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: socklen_t,
) -> c_int {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::setsockopt(fd, level, name, value, bytes) };
    if is_kernels(level, name) {
        return forward();
    }
    on(
        fd,
        |descriptor| {
            if tcp::is_hint(level, name) {
                return if bytes as usize >= size_of::<c_int>() { Ok(0) } else { Err(Errno(libc::EINVAL)) };
            }
            let value: &[u8] = match bytes as usize {
                OPTION_BYTES_TOO_MANY.. => return Err(Errno(libc::EINVAL)),
                0 => &[],
                _ if !has_options(descriptor, tcp::as_sctp(level, name).0) => &[],
                _ if !can_be_bytes(value) => return Err(Errno(libc::EFAULT)),
                // SAFETY: the caller guarantees it.
                bytes => unsafe { slice::from_raw_parts(value.cast(), bytes) },
            };
            let (level, name) = tcp::as_sctp(level, name);
            match (level, name) {
                (libc::IPPROTO_SCTP, SCTP_SOCKOPT_CONNECTX | SCTP_SOCKOPT_CONNECTX_OLD) => {
                    let (begun, done) = associations::connect(fd, descriptor, value)?;
                    done?;
                    Ok(if name == SCTP_SOCKOPT_CONNECTX { begun.to_assoc_t() } else { 0 })
                }
                _ => ask::request(fd, &SocketRequest::SetOption { level, name, value }).map(|()| 0),
            }
        },
        forward,
    )
}
