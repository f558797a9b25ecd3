//! Addresses and associations of a socket (RFC 6458 §9.1 to §9.6, §9.9), and options of one of its associations.

use std::ptr;

use libc::{c_int, c_uint, c_void, sa_family_t, sockaddr, socklen_t};
use swiftwater_preload::interpose::sockets::{getsockopt, setsockopt};

use crate::address::{bytes_of, list_bytes};
use crate::{SCTP, fail, last_errno};

/// `sctp_assoc_t`.
pub type AssociationId = i32;

const SCTP_BINDX_ADD_ADDR: c_int = 1;
const SCTP_BINDX_REM_ADDR: c_int = 2;

const SOCKOPT_BINDX_ADD: c_int = 100;
const SOCKOPT_BINDX_REM: c_int = 101;
const SOCKOPT_PEELOFF: c_int = 102;
const GET_PEER_ADDRS: c_int = 108;
const GET_LOCAL_ADDRS: c_int = 109;
const SOCKOPT_CONNECTX3: c_int = 111;
const SOCKOPT_PEELOFF_FLAGS: c_int = 122;

/// First size of the buffer for a list of addresses, and the largest that is tried.
const LIST_BYTES: usize = 512;
const LIST_BYTES_MAX: usize = 128 * 1024;

/// Adds local addresses to a socket, or removes some.
///
/// # Safety
///
/// `addresses` points to `count` addresses, one behind the other.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_bindx(
    fd: c_int,
    addresses: *mut sockaddr,
    count: c_int,
    flags: c_int,
) -> c_int {
    let option = match flags {
        SCTP_BINDX_ADD_ADDR => SOCKOPT_BINDX_ADD,
        SCTP_BINDX_REM_ADDR => SOCKOPT_BINDX_REM,
        _ => return fail(libc::EINVAL),
    };
    // SAFETY: the caller guarantees it.
    unsafe {
        match list_bytes(addresses, count) {
            Some(bytes) => setsockopt(fd, SCTP, option, addresses.cast(), bytes as socklen_t),
            None => fail(libc::EINVAL),
        }
    }
}

/// `struct sctp_getaddrs_old`, which passes a list of addresses to an option and returns the identifier.
#[repr(C)]
struct ConnectList {
    association: AssociationId,
    bytes: c_int,
    addresses: *mut sockaddr,
}

/// Connects to a peer with several known addresses. `association` may be null.
///
/// # Safety
///
/// `addresses` points to `count` addresses, one behind the other.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_connectx(
    fd: c_int,
    addresses: *mut sockaddr,
    count: c_int,
    association: *mut AssociationId,
) -> c_int {
    // SAFETY: the caller guarantees it.
    let Some(bytes) = (unsafe { list_bytes(addresses, count) }) else { return fail(libc::EINVAL) };
    let mut list = ConnectList { association: 0, bytes: bytes as c_int, addresses };
    let mut list_bytes = size_of::<ConnectList>() as socklen_t;
    // SAFETY: the list outlives the call.
    let outcome =
        unsafe { getsockopt(fd, SCTP, SOCKOPT_CONNECTX3, (&raw mut list).cast(), &raw mut list_bytes) };
    let is_known = outcome == 0 || last_errno() == libc::EINPROGRESS;
    // SAFETY: the caller guarantees it.
    if let Some(place) = unsafe { association.as_mut() } {
        *place = if is_known { list.association } else { 0 };
    }
    outcome
}

/// `sctp_peeloff_arg_t`.
#[repr(C)]
struct Peel {
    association: AssociationId,
    fd: c_int,
}

/// Peels an association off a one-to-many socket and returns the descriptor of its new socket.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sctp_peeloff(fd: c_int, association: AssociationId) -> c_int {
    let mut peel = Peel { association, fd: 0 };
    let mut bytes = size_of::<Peel>() as socklen_t;
    // SAFETY: the value outlives the call.
    let outcome = unsafe { getsockopt(fd, SCTP, SOCKOPT_PEELOFF, (&raw mut peel).cast(), &raw mut bytes) };
    if outcome < 0 { outcome } else { peel.fd }
}

/// `sctp_peeloff_flags_arg_t`.
#[repr(C)]
struct PeelFlags {
    peel: Peel,
    flags: c_uint,
}

/// Peels an association off as [`sctp_peeloff`] does; `flags` may have `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sctp_peeloff_flags(fd: c_int, association: AssociationId, flags: c_uint) -> c_int {
    if flags == 0 {
        return sctp_peeloff(fd, association);
    }
    let mut value = PeelFlags { peel: Peel { association, fd: 0 }, flags };
    let mut bytes = size_of::<PeelFlags>() as socklen_t;
    // SAFETY: the value outlives the call.
    let outcome =
        unsafe { getsockopt(fd, SCTP, SOCKOPT_PEELOFF_FLAGS, (&raw mut value).cast(), &raw mut bytes) };
    if outcome < 0 { outcome } else { value.peel.fd }
}

/// Header of `struct sctp_getaddrs`, which the addresses follow.
#[repr(C)]
struct ListHeader {
    association: AssociationId,
    count: u32,
}

/// Asks for a list of addresses with room for `room` bytes, and passes it to the caller; returns an errno if that fails.
///
/// # Safety
///
/// `addresses` is writable.
unsafe fn list_in(
    fd: c_int,
    association: AssociationId,
    option: c_int,
    room: usize,
    addresses: *mut *mut sockaddr,
) -> Result<c_int, c_int> {
    // SAFETY: the C library allocates the memory, and the caller frees it with `free`.
    let list = unsafe { libc::malloc(size_of::<ListHeader>() + room) }.cast::<ListHeader>();
    if list.is_null() {
        return Err(libc::ENOMEM);
    }
    let mut bytes = (size_of::<ListHeader>() + room) as socklen_t;
    // SAFETY: the list has the room that `getsockopt` is told of, and the bytes moved lie within it.
    unsafe {
        list.write(ListHeader { association, count: 0 });
        if getsockopt(fd, SCTP, option, list.cast(), &raw mut bytes) < 0 {
            let errno = last_errno();
            libc::free(list.cast());
            return Err(errno);
        }
        let count = (*list).count;
        let filled = (bytes as usize).saturating_sub(size_of::<ListHeader>()).min(room);
        ptr::copy(list.add(1).cast::<u8>(), list.cast::<u8>(), filled);
        *addresses = list.cast();
        Ok(count as c_int)
    }
}

/// # Safety
///
/// `addresses` is writable, or null.
unsafe fn list(fd: c_int, association: AssociationId, option: c_int, addresses: *mut *mut sockaddr) -> c_int {
    if addresses.is_null() {
        return fail(libc::EFAULT);
    }
    let mut room = LIST_BYTES;
    loop {
        // SAFETY: the caller guarantees it.
        match unsafe { list_in(fd, association, option, room, addresses) } {
            Ok(count) => return count,
            // The buffer was too small.
            Err(libc::ENOMEM | libc::ENOBUFS) if room < LIST_BYTES_MAX => room *= 4,
            Err(errno) => return fail(errno),
        }
    }
}

/// Writes the list of the peer's addresses and returns their number. [`sctp_freepaddrs`] frees the list.
///
/// # Safety
///
/// `addresses` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_getpaddrs(
    fd: c_int,
    association: AssociationId,
    addresses: *mut *mut sockaddr,
) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { list(fd, association, GET_PEER_ADDRS, addresses) }
}

/// Frees a list of [`sctp_getpaddrs`].
///
/// # Safety
///
/// The list is from [`sctp_getpaddrs`], and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_freepaddrs(addresses: *mut sockaddr) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { libc::free(addresses.cast()) };
    0
}

/// Writes the list of the local addresses and returns their number. [`sctp_freeladdrs`] frees the list.
///
/// # Safety
///
/// `addresses` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_getladdrs(
    fd: c_int,
    association: AssociationId,
    addresses: *mut *mut sockaddr,
) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { list(fd, association, GET_LOCAL_ADDRS, addresses) }
}

/// Frees a list of [`sctp_getladdrs`].
///
/// # Safety
///
/// The list is from [`sctp_getladdrs`], and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_freeladdrs(addresses: *mut sockaddr) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { libc::free(addresses.cast()) };
    0
}

/// Returns the length of an address of a family; 0 for a family without SCTP addresses.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sctp_getaddrlen(family: sa_family_t) -> c_int {
    bytes_of(family).map_or(0, |bytes| bytes as c_int)
}

/// Returns the offset at which the value of an option names the association; `None` if it names none.
fn association_at(option: c_int) -> Option<usize> {
    const DEFAULT_SEND_PARAM: c_int = 10;
    const DEFAULT_SNDINFO: c_int = 34;
    match option {
        DEFAULT_SEND_PARAM => Some(28),
        DEFAULT_SNDINFO => Some(12),
        // Timers, limits, paths, lengths, state, delayed SACKs, context, burst, keys and chunks of authentication, thresholds.
        0 | 1 | 5 | 6 | 9 | 13..=17 | 20 | 23..=27 | 31 | 35 | 37 => Some(0),
        // Statistics, partial reliability, reconfiguration, schedulers, interleaving, events, and newer options.
        112..=121 | 123..=125 | 127..=133 => Some(0),
        _ => None,
    }
}

/// Returns whether a value of this length holds the identifier and more: some options also take a plain number.
fn holds_more(at: usize, room: usize) -> bool {
    let identifier_bytes = size_of::<AssociationId>();
    room >= at + identifier_bytes && room > identifier_bytes
}

/// Calls `getsockopt` for an option of one association, whose value must name the association.
///
/// # Safety
///
/// `value` points to `*bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_opt_info(
    fd: c_int,
    association: AssociationId,
    option: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    if value.is_null() || bytes.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller guarantees it; the identifier is written where the value has room for it.
    unsafe {
        let room = *bytes as usize;
        if let Some(at) = association_at(option).filter(|at| holds_more(*at, room)) {
            value.byte_add(at).cast::<AssociationId>().write_unaligned(association);
        }
        getsockopt(fd, SCTP, option, value, bytes)
    }
}
