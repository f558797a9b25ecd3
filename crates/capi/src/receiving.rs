//! Functions that receive messages (RFC 6458 §9.8, §9.13).

use libc::{c_int, c_uint, c_void, iovec, msghdr, size_t, sockaddr, socklen_t};
use swiftwater_preload::interpose::receiving::recvmsg;
use swiftwater_preload::structures::{NxtInfo, RcvInfo, SCTP_NXTINFO, SCTP_RCVINFO, SCTP_SNDRCV, SndRcvInfo};

use crate::control::{Control, entry_bytes, find, message};
use crate::fail;

/// Room for all ancillary data that a socket can subscribe to.
const CONTROL_BYTES: usize = entry_bytes(size_of::<SndRcvInfo>())
    + entry_bytes(size_of::<RcvInfo>())
    + entry_bytes(size_of::<NxtInfo>());

/// Receives with `*flags` as the flags of the call, and sets them to those of the message. Returns the number of bytes and fills
/// `message`.
///
/// # Safety
///
/// `from` has room for `*from_bytes` bytes; all three pointers may be null.
unsafe fn receive(
    fd: c_int,
    message: &mut msghdr,
    control: &mut Control<CONTROL_BYTES>,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
    flags: *mut c_int,
) -> c_int {
    control.lend(message);
    // SAFETY: the caller guarantees it.
    unsafe {
        if let Some(room) = from_bytes.as_ref().filter(|_| !from.is_null()) {
            (message.msg_name, message.msg_namelen) = (from.cast(), *room);
        }
        let bytes = recvmsg(fd, message, flags.as_ref().copied().unwrap_or(0));
        if bytes < 0 {
            return -1;
        }
        if let Some(out) = from_bytes.as_mut() {
            *out = message.msg_namelen;
        }
        if let Some(out) = flags.as_mut() {
            *out = message.msg_flags;
        }
        c_int::try_from(bytes).unwrap_or(c_int::MAX)
    }
}

/// Receives a message, or a part of it. Fills `info` if the socket has subscribed to it (`sctp_data_io_event`).
///
/// # Safety
///
/// `buffer` has room for `bytes` bytes and `from` for `*from_bytes`; `info` and `flags` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_recvmsg(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
    info: *mut SndRcvInfo,
    flags: *mut c_int,
) -> c_int {
    let mut part = iovec { iov_base: buffer, iov_len: bytes };
    let mut control = Control::new();
    let mut message = message();
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    // SAFETY: the caller guarantees it.
    unsafe {
        let received = receive(fd, &mut message, &mut control, from, from_bytes, flags);
        if received >= 0
            && let Some(out) = info.as_mut()
            && let Some(found) = find(&message, SCTP_SNDRCV)
        {
            *out = found;
        }
        received
    }
}

/// Types of information that `sctp_recvv` returns with a message.
const RECVV_NOINFO: c_uint = 0;
const RECVV_RCVINFO: c_uint = 1;
const RECVV_NXTINFO: c_uint = 2;
const RECVV_RN: c_uint = 3;

/// `struct sctp_recvv_rn`.
#[repr(C)]
struct RecvvRn {
    received: RcvInfo,
    next: NxtInfo,
}

/// Receives a message, or a part of it, into several buffers, with the information that the socket has subscribed to
/// (`SCTP_RECVRCVINFO`, `SCTP_RECVNXTINFO`).
///
/// # Safety
///
/// `iov` points to that many parts, `from` has room for `*from_bytes` bytes and `info` for `*info_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sctp_recvv(
    fd: c_int,
    iov: *const iovec,
    parts: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
    info: *mut c_void,
    info_bytes: *mut socklen_t,
    info_kind: *mut c_uint,
    flags: *mut c_int,
) -> c_int {
    let Ok(parts) = usize::try_from(parts) else { return fail(libc::EINVAL) };
    let mut control = Control::new();
    let mut message = message();
    (message.msg_iov, message.msg_iovlen) = (iov.cast_mut(), parts);
    // SAFETY: the caller guarantees it.
    unsafe {
        let received = receive(fd, &mut message, &mut control, from, from_bytes, flags);
        if received >= 0 {
            let room = info_bytes.as_ref().map_or(0, |bytes| *bytes as usize);
            let (kind, bytes) = put_info(&message, info, if info.is_null() { 0 } else { room });
            if let Some(out) = info_kind.as_mut() {
                *out = kind;
            }
            // Without information the length is unchanged, as in other libraries, so that a program need not set it before each
            // call.
            if let Some(out) = info_bytes.as_mut().filter(|_| kind != RECVV_NOINFO) {
                *out = bytes as socklen_t;
            }
        }
        received
    }
}

/// Writes the information beside a message, as far as it fits; returns its type and length.
///
/// # Safety
///
/// The control data of the message is readable, and `room` bytes of `buffer` are writable.
unsafe fn put_info(message: &msghdr, buffer: *mut c_void, room: usize) -> (c_uint, usize) {
    // SAFETY: the caller guarantees it; no more is written than there is room for.
    unsafe {
        match (find::<RcvInfo>(message, SCTP_RCVINFO), find::<NxtInfo>(message, SCTP_NXTINFO)) {
            (Some(received), Some(next)) if room >= size_of::<RecvvRn>() => {
                buffer.cast::<RecvvRn>().write_unaligned(RecvvRn { received, next });
                (RECVV_RN, size_of::<RecvvRn>())
            }
            (Some(received), _) if room >= size_of::<RcvInfo>() => {
                buffer.cast::<RcvInfo>().write_unaligned(received);
                (RECVV_RCVINFO, size_of::<RcvInfo>())
            }
            (_, Some(next)) if room >= size_of::<NxtInfo>() => {
                buffer.cast::<NxtInfo>().write_unaligned(next);
                (RECVV_NXTINFO, size_of::<NxtInfo>())
            }
            _ => (RECVV_NOINFO, 0),
        }
    }
}
