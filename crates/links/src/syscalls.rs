//! The system calls of the data path, and all unsafe code of this crate.
//!
//! `nix` puts the control messages of each send on the heap and keeps received ones in vectors; here both are
//! buffers of the caller, so that a batch costs no allocation.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};

use bytes::BytesMut;
use nix::errno::Errno;

use crate::socket_address::RawAddress;

/// What `recvmsg` said beside the data and the address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) bytes: usize,
    pub(crate) control_bytes: usize,
    pub(crate) truncated: bool,
}

/// `sendmsg`: one datagram, or one batch when `control` asks for segmentation.
pub(crate) fn send_message(
    fd: BorrowedFd<'_>,
    to: &RawAddress,
    slices: &[IoSlice<'_>],
    control: &[u8],
) -> Result<usize, Errno> {
    let mut header = empty_header();
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len as libc::socklen_t;
    // IoSlice promises the layout of `struct iovec`.
    header.msg_iov = slices.as_ptr().cast_mut().cast();
    header.msg_iovlen = slices.len() as _;
    if !control.is_empty() {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len() as _;
    }
    // SAFETY: every pointer in `header` is to memory borrowed for the call with the length beside it, and sendmsg
    // only reads through them.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, 0) };
    Errno::result(sent).map(|bytes| bytes as usize)
}

/// `recvmsg` onto the end of `block`, into at most `limit_bytes` of its free space, without touching it before.
pub(crate) fn receive_message(
    fd: BorrowedFd<'_>,
    from: &mut RawAddress,
    block: &mut BytesMut,
    limit_bytes: usize,
    control: &mut [u8],
    flags: i32,
) -> Result<Received, Errno> {
    let filled = block.len();
    let spare = block.spare_capacity_mut();
    let mut vector =
        libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len().min(limit_bytes) };
    let mut header = empty_header();
    header.msg_name = from.as_mut_ptr().cast();
    header.msg_namelen = RawAddress::CAPACITY as libc::socklen_t;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len() as _;
    // SAFETY: every pointer in `header` is to memory borrowed mutably for the call with the length beside it, and
    // recvmsg writes no more than those lengths.
    let received = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
    let bytes = Errno::result(received)? as usize;
    // SAFETY: without MSG_TRUNC among `flags` recvmsg returns the number of bytes that it has written at the start
    // of the spare capacity, so `filled + bytes` is within the capacity and initialised.
    unsafe { block.set_len(filled + bytes) };
    from.len = (header.msg_namelen as usize).min(RawAddress::CAPACITY);
    #[allow(clippy::unnecessary_cast, reason = "the field has 32 bits in other C libraries")]
    let control_bytes = (header.msg_controllen as usize).min(control.len());
    Ok(Received { bytes, control_bytes, truncated: header.msg_flags & libc::MSG_TRUNC != 0 })
}

/// Sets a socket option that is an `int`.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value pointer is to an i32 that lives through the call, and the length is its size.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    Errno::result(result).map(drop)
}

/// Reads a socket option that is an `int`.
pub(crate) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> Result<i32, Errno> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value pointer is to an i32 that lives through the call, and `len` says its size.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    Errno::result(result).map(|_| value)
}

fn empty_header() -> libc::msghdr {
    // SAFETY: msghdr is plain data (pointers and integers), for which all zeroes is a valid value.
    unsafe { std::mem::zeroed() }
}
