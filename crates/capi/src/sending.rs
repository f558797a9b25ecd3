//! Functions that send messages (RFC 6458 §9.7, §9.10 to §9.12).

use std::ptr;

use libc::{c_int, c_uint, c_void, iovec, size_t, sockaddr, socklen_t, ssize_t};
use swiftwater_preload::interpose::sending::sendmsg;
use swiftwater_preload::structures::{
    AuthInfo, PrInfo, SCTP_AUTHINFO, SCTP_DSTADDRV4, SCTP_DSTADDRV6, SCTP_PRINFO, SCTP_SNDINFO, SCTP_SNDRCV,
    SndInfo, SndRcvInfo,
};

use crate::address::{Entry, entries};
use crate::associations::sctp_connectx;
use crate::control::{Control, entry_bytes, message};
use crate::{fail, last_errno};

/// Number of addresses beyond the first that a message may name.
const ADDRESSES_MAX: usize = 16;

/// Sends a message, to `to` unless it is null. The payload protocol identifier is in network byte order.
///
/// # Safety
///
/// `content` and `to` point to as many bytes as their lengths say.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_sendmsg(
    fd: c_int,
    content: *const c_void,
    bytes: size_t,
    to: *mut sockaddr,
    to_bytes: socklen_t,
    ppid: u32,
    flags: u32,
    stream: u16,
    time_to_live_ms: u32,
    context: u32,
) -> c_int {
    // SCTP has no flags beyond those that fit the field of the structure.
    let Ok(flags) = u16::try_from(flags) else { return fail(libc::EINVAL) };
    let info = SndRcvInfo { stream, flags, ppid, time_to_live_ms, context, ..SndRcvInfo::default() };
    // SAFETY: the caller guarantees it.
    unsafe { send_one(fd, content, bytes, (to, to_bytes), Some(&info), 0) }
}

/// Sends a message to the peer with the attributes in `info`, which may be null.
///
/// # Safety
///
/// `content` points to `bytes` bytes, `info` to a `struct sctp_sndrcvinfo`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_send(
    fd: c_int,
    content: *const c_void,
    bytes: size_t,
    info: *const SndRcvInfo,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { send_one(fd, content, bytes, (ptr::null_mut(), 0), info.as_ref(), flags) }
}

/// Sends a message to a peer with several known addresses; sets up an association if there is none.
///
/// # Safety
///
/// The caller meets the requirements of [`sctp_send`]; `addresses` points to `count` addresses, one behind the other.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_sendx(
    fd: c_int,
    content: *const c_void,
    bytes: size_t,
    addresses: *mut sockaddr,
    count: c_int,
    info: *const SndRcvInfo,
    flags: c_int,
) -> c_int {
    if addresses.is_null() || count == 0 {
        // SAFETY: the caller guarantees it.
        return unsafe { sctp_send(fd, content, bytes, info, flags) };
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        let connected = sctp_connectx(fd, addresses, count, ptr::null_mut());
        if connected < 0 && !matches!(last_errno(), libc::EISCONN | libc::EALREADY | libc::EINPROGRESS) {
            return connected;
        }
        let Some(first) = entries(addresses, 1).next() else { return fail(libc::EINVAL) };
        send_one(fd, content, bytes, (addresses, first.bytes as socklen_t), info.as_ref(), flags)
    }
}

/// # Safety
///
/// `content` and `to` point to as many bytes as their lengths say.
unsafe fn send_one(
    fd: c_int,
    content: *const c_void,
    bytes: size_t,
    to: (*mut sockaddr, socklen_t),
    info: Option<&SndRcvInfo>,
    flags: c_int,
) -> c_int {
    let mut part = iovec { iov_base: content.cast_mut(), iov_len: bytes };
    let mut control = Control::<{ entry_bytes(size_of::<SndRcvInfo>()) }>::new();
    let mut message = message();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !to.0.is_null() {
        (message.msg_name, message.msg_namelen) = (to.0.cast(), to.1);
    }
    // SAFETY: the caller guarantees it; all else lives as long as the call.
    unsafe {
        if let Some(info) = info {
            control.push(SCTP_SNDRCV, ptr::from_ref(info).cast(), size_of::<SndRcvInfo>());
        }
        control.attach(&mut message);
        sent(sendmsg(fd, &raw const message, flags))
    }
}

/// Converts a number of bytes to an `int`; no message is too long for that.
fn sent(bytes: ssize_t) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

/// Types of information that `sctp_sendv` takes with a message.
const SENDV_NOINFO: c_uint = 0;
const SENDV_SNDINFO: c_uint = 1;
const SENDV_PRINFO: c_uint = 2;
const SENDV_AUTHINFO: c_uint = 3;
const SENDV_SPA: c_uint = 4;

const SEND_SNDINFO_VALID: u32 = 1;
const SEND_PRINFO_VALID: u32 = 2;
const SEND_AUTHINFO_VALID: u32 = 4;

/// `struct sctp_sendv_spa`.
#[repr(C)]
struct Spa {
    valid: u32,
    sndinfo: SndInfo,
    prinfo: PrInfo,
    authinfo: AuthInfo,
}

const SENDV_CONTROL_BYTES: usize = entry_bytes(size_of::<SndInfo>())
    + entry_bytes(size_of::<PrInfo>())
    + entry_bytes(size_of::<AuthInfo>())
    + ADDRESSES_MAX * entry_bytes(size_of::<libc::in6_addr>());

/// Sends a message from several buffers, to a peer that may have several known addresses.
///
/// # Safety
///
/// `iov` points to that many parts, `addresses` to `count` addresses, one behind the other, and `info` to `info_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_sendv(
    fd: c_int,
    iov: *const iovec,
    parts: c_int,
    addresses: *mut sockaddr,
    count: c_int,
    info: *mut c_void,
    info_bytes: socklen_t,
    info_kind: c_uint,
    flags: c_int,
) -> c_int {
    let (Ok(parts), Ok(count)) = (usize::try_from(parts), usize::try_from(count)) else {
        return fail(libc::EINVAL);
    };
    let mut control = Control::<SENDV_CONTROL_BYTES>::new();
    let mut message = message();
    (message.msg_iov, message.msg_iovlen) = (iov.cast_mut(), parts);
    // SAFETY: the caller guarantees it.
    unsafe {
        if !push_info(&mut control, info, info_bytes as usize, info_kind) {
            return fail(libc::EINVAL);
        }
        if count > 0 && !addresses.is_null() {
            let mut list = entries(addresses, count);
            let Some(first) = list.next() else { return fail(libc::EINVAL) };
            (message.msg_name, message.msg_namelen) = (addresses.cast(), first.bytes as socklen_t);
            let others: usize = list.map(|entry| usize::from(push_address(&mut control, entry))).sum();
            if others + 1 < count {
                return fail(libc::EINVAL);
            }
        }
        control.attach(&mut message);
        sent(sendmsg(fd, &raw const message, flags))
    }
}

/// # Safety
///
/// `info` points to that many bytes.
unsafe fn push_info<const BYTES: usize>(
    control: &mut Control<BYTES>,
    info: *const c_void,
    bytes: usize,
    kind: c_uint,
) -> bool {
    let mut push = |kind, data, needed| {
        // SAFETY: the length was checked against the data's.
        !info.is_null() && bytes >= needed && unsafe { control.push(kind, data, needed) }
    };
    match kind {
        SENDV_NOINFO => info.is_null() && bytes == 0,
        SENDV_SNDINFO => push(SCTP_SNDINFO, info, size_of::<SndInfo>()),
        SENDV_PRINFO => push(SCTP_PRINFO, info, size_of::<PrInfo>()),
        SENDV_AUTHINFO => push(SCTP_AUTHINFO, info, size_of::<AuthInfo>()),
        SENDV_SPA if !info.is_null() && bytes >= size_of::<Spa>() => {
            // SAFETY: that many bytes are readable.
            push_spa(control, &unsafe { info.cast::<Spa>().read_unaligned() })
        }
        _ => false,
    }
}

/// Adds the valid parts of the structure.
fn push_spa<const BYTES: usize>(control: &mut Control<BYTES>, spa: &Spa) -> bool {
    let mut push = |valid, kind, data, bytes| {
        // SAFETY: the data is a field of `spa`.
        spa.valid & valid == 0 || unsafe { control.push(kind, data, bytes) }
    };
    push(SEND_SNDINFO_VALID, SCTP_SNDINFO, (&raw const spa.sndinfo).cast(), size_of::<SndInfo>())
        && push(SEND_PRINFO_VALID, SCTP_PRINFO, (&raw const spa.prinfo).cast(), size_of::<PrInfo>())
        && push(SEND_AUTHINFO_VALID, SCTP_AUTHINFO, (&raw const spa.authinfo).cast(), size_of::<AuthInfo>())
}

/// Adds a further address of the peer, which has the port of the first.
///
/// # Safety
///
/// The address is readable.
unsafe fn push_address<const BYTES: usize>(control: &mut Control<BYTES>, entry: Entry) -> bool {
    // SAFETY: the caller guarantees it; the fields are those of the family.
    unsafe {
        if entry.family == libc::AF_INET {
            let ip = &raw const (*entry.address.cast::<libc::sockaddr_in>()).sin_addr;
            control.push(SCTP_DSTADDRV4, ip.cast(), size_of::<libc::in_addr>())
        } else {
            let ip = &raw const (*entry.address.cast::<libc::sockaddr_in6>()).sin6_addr;
            control.push(SCTP_DSTADDRV6, ip.cast(), size_of::<libc::in6_addr>())
        }
    }
}
