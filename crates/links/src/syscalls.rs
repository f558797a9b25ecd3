//! The system calls of the data path; with `device_syscalls` and `ebpf_syscalls`, all unsafe code of this crate.
//!
//! `nix` allocates the control messages of each send and keeps received ones in vectors; here both are buffers of the caller, so
//! that a batch costs no allocation.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use bytes::BytesMut;
use nix::errno::Errno;
use smallvec::SmallVec;

use crate::control::ControlBuilder;
use crate::socket_address::RawAddress;

/// Maximum number of datagrams of one `sendmmsg`.
pub(crate) const MESSAGES_MAX: usize = 64;
/// Maximum number of datagrams of one `recvmmsg`.
pub(crate) const SLOTS_MAX: usize = 32;
/// Room for the control messages of one datagram: destination, traffic class, and drop counter.
const ARRIVED_CONTROL_BYTES: usize = 128;

/// Result of `recvmsg` apart from the data and the address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) bytes: usize,
    pub(crate) control_bytes: usize,
    pub(crate) truncated: bool,
}

/// Sends one datagram, or one batch if `control` requests segmentation (`sendmsg`).
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

/// Receives at the end of `block`, into at most `limit_bytes` of its free space, without initializing it first (`recvmsg`).
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

/// Sends several datagrams to one address, all with the same control messages (`sendmmsg`). Datagram n consists of the next
/// `counts[n]` slices. Returns the number of datagrams sent, possibly not all.
pub(crate) fn send_messages(
    fd: BorrowedFd<'_>,
    to: &RawAddress,
    slices: &[IoSlice<'_>],
    counts: &[usize],
    control: &[u8],
) -> Result<usize, Errno> {
    let mut headers = [empty_header_of_many(); MESSAGES_MAX];
    let mut rest = slices;
    let count = counts.len().min(MESSAGES_MAX);
    for (header, count) in headers.iter_mut().zip(counts) {
        let (own, others) = rest.split_at(*count);
        rest = others;
        let header = &mut header.msg_hdr;
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len as libc::socklen_t;
        // IoSlice promises the layout of `struct iovec`.
        header.msg_iov = own.as_ptr().cast_mut().cast();
        header.msg_iovlen = own.len() as _;
        if !control.is_empty() {
            header.msg_control = control.as_ptr().cast_mut().cast();
            header.msg_controllen = control.len() as _;
        }
    }
    // SAFETY: the first `count` headers hold pointers to memory borrowed for the call with the lengths beside them;
    // sendmmsg reads through those and writes only `msg_len` of the headers themselves.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count as _, 0) };
    Errno::result(sent).map(|sent| sent as usize)
}

/// One of several datagrams with different destinations.
pub(crate) struct OutgoingDatagram<'a> {
    pub(crate) to: RawAddress,
    pub(crate) slices: &'a [IoSlice<'a>],
    pub(crate) control: ControlBuilder,
}

/// Sends datagrams to many addresses, at most `MESSAGES_MAX` of them (`sendmmsg`). Returns the number of datagrams sent, possibly
/// not all.
pub(crate) fn send_to_many(fd: BorrowedFd<'_>, leaving: &[OutgoingDatagram<'_>]) -> Result<usize, Errno> {
    let mut headers = [empty_header_of_many(); MESSAGES_MAX];
    for (header, leaving) in headers.iter_mut().zip(leaving) {
        let header = &mut header.msg_hdr;
        header.msg_name = leaving.to.as_ptr().cast_mut().cast();
        header.msg_namelen = leaving.to.len as libc::socklen_t;
        // IoSlice promises the layout of `struct iovec`.
        header.msg_iov = leaving.slices.as_ptr().cast_mut().cast();
        header.msg_iovlen = leaving.slices.len() as _;
        let control = leaving.control.as_bytes();
        if !control.is_empty() {
            header.msg_control = control.as_ptr().cast_mut().cast();
            header.msg_controllen = control.len() as _;
        }
    }
    let count = leaving.len().min(MESSAGES_MAX);
    // SAFETY: the first `count` headers hold pointers to memory borrowed for the call with the lengths beside them;
    // sendmmsg reads through those and writes only `msg_len` of the headers themselves.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count as _, 0) };
    Errno::result(sent).map(|sent| sent as usize)
}

/// One of the datagrams returned by `recvmmsg`.
pub(crate) struct Arrived<'a> {
    pub(crate) from: RawAddress,
    /// Its length.
    pub(crate) bytes: usize,
    pub(crate) control: &'a [u8],
    pub(crate) truncated: bool,
}

/// The kernel's information about each datagram of `recvmmsg`. It is reused by the next call without being cleared: the kernel
/// reports how much of each part it has written.
pub(crate) struct Arrivals(Vec<ArrivalInfo>);

#[derive(Clone)]
struct ArrivalInfo {
    from: RawAddress,
    control: [u8; ARRIVED_CONTROL_BYTES],
    bytes: usize,
    control_bytes: usize,
    truncated: bool,
}

impl Default for Arrivals {
    fn default() -> Self {
        let (from, control) = (RawAddress::empty(), [0; ARRIVED_CONTROL_BYTES]);
        Arrivals(vec![ArrivalInfo { from, control, bytes: 0, control_bytes: 0, truncated: false }; SLOTS_MAX])
    }
}

impl Arrivals {
    /// Returns the first `count` datagrams of the last call.
    pub(crate) fn iter(&self, count: usize) -> impl Iterator<Item = Arrived<'_>> {
        self.0.iter().take(count).map(|slip| Arrived {
            from: slip.from,
            bytes: slip.bytes,
            control: &slip.control[..slip.control_bytes],
            truncated: slip.truncated,
        })
    }
}

/// Receives datagrams into slots of `slot_bytes` at the end of `block`, which is empty and has room for `SLOTS_MAX` of them
/// (`recvmmsg`). A datagram longer than its slot continues in part n of `spill`. Appends the part of each datagram that is in its
/// slot to the list.
pub(crate) fn receive_into_slots(
    fd: BorrowedFd<'_>,
    block: &mut BytesMut,
    slot_bytes: usize,
    spill: &mut [u8],
    (arrived, arrivals): (&mut Vec<BytesMut>, &mut Arrivals),
) -> Result<(), Errno> {
    assert!(block.is_empty() && block.capacity() >= slot_bytes * SLOTS_MAX, "no room for a batch");
    let mut vectors = [[empty_vector(); 2]; SLOTS_MAX];
    let slots = block.spare_capacity_mut().chunks_exact_mut(slot_bytes);
    let spills = spill.chunks_exact_mut(spill.len() / SLOTS_MAX);
    for (vectors, (slot, spill)) in vectors.iter_mut().zip(slots.zip(spills)) {
        vectors[0] = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
        vectors[1] = libc::iovec { iov_base: spill.as_mut_ptr().cast(), iov_len: spill.len() };
    }
    // SAFETY: the vectors are disjoint parts of `block` and `spill`, which are borrowed mutably for the call.
    let count = unsafe { receive_messages(fd, &mut vectors, arrivals)? };
    for datagram in arrivals.iter(count) {
        let rest = block.split_off(slot_bytes);
        let mut slot = std::mem::replace(block, rest);
        // SAFETY: the first bytes of a datagram fill its slot, up to the length of the slot.
        unsafe { slot.set_len(datagram.bytes.min(slot_bytes)) };
        arrived.push(slot);
    }
    Ok(())
}

/// Receives datagram n into part n of `slots`, which has `SLOTS_MAX` parts of one length (`recvmmsg`). Returns the number of
/// datagrams.
pub(crate) fn receive_into_parts(
    fd: BorrowedFd<'_>,
    slots: &mut [u8],
    arrivals: &mut Arrivals,
) -> Result<usize, Errno> {
    let mut vectors = [[empty_vector(); 1]; SLOTS_MAX];
    let slot_bytes = slots.len() / SLOTS_MAX;
    for ([vector], slot) in vectors.iter_mut().zip(slots.chunks_exact_mut(slot_bytes)) {
        *vector = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
    }
    // SAFETY: the vectors are disjoint parts of `slots`, which is borrowed mutably for the call.
    unsafe { receive_messages(fd, &mut vectors, arrivals) }
}

/// Receives a datagram into each of `rooms`, at most `SLOTS_MAX` of them, which are empty (`recvmmsg`). Returns the number of
/// datagrams; datagram n is in room n.
pub(crate) fn receive_into_rooms(
    fd: BorrowedFd<'_>,
    rooms: &mut [BytesMut],
    arrivals: &mut Arrivals,
) -> Result<usize, Errno> {
    let mut vectors: SmallVec<[[libc::iovec; 1]; SLOTS_MAX]> = SmallVec::new();
    vectors.extend(rooms.iter_mut().take(SLOTS_MAX).map(|room| {
        assert!(room.is_empty(), "a room is taken");
        let spare = room.spare_capacity_mut();
        [libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() }]
    }));
    // SAFETY: each vector is the memory of another of `rooms`, which are borrowed mutably for the call.
    let count = unsafe { receive_messages(fd, &mut vectors, arrivals)? };
    for (datagram, room) in arrivals.iter(count).zip(rooms) {
        // SAFETY: without MSG_TRUNC among the flags, the kernel returns the bytes that it has written.
        unsafe { room.set_len(datagram.bytes) };
    }
    Ok(count)
}

/// Receives datagram n into the memory of `vectors[n]`, and the information about it into part n of `arrivals` (`recvmmsg`).
/// Returns the number of datagrams.
///
/// # Safety
///
/// The vectors must name memory that may be written and that nothing else refers to during the call.
unsafe fn receive_messages<const PARTS: usize>(
    fd: BorrowedFd<'_>,
    vectors: &mut [[libc::iovec; PARTS]],
    Arrivals(slips): &mut Arrivals,
) -> Result<usize, Errno> {
    // Only the headers of this call are initialized: where one datagram comes at a time, 32 of them would cost
    // more than the call.
    let mut headers = [MaybeUninit::<libc::mmsghdr>::uninit(); SLOTS_MAX];
    let slots = vectors.len().min(SLOTS_MAX);
    for ((header, vectors), slip) in headers.iter_mut().zip(vectors).zip(slips.iter_mut()) {
        let header = &mut header.write(empty_header_of_many()).msg_hdr;
        header.msg_name = slip.from.as_mut_ptr().cast();
        header.msg_namelen = RawAddress::CAPACITY as libc::socklen_t;
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = PARTS as _;
        header.msg_control = slip.control.as_mut_ptr().cast();
        header.msg_controllen = slip.control.len() as _;
    }
    let (flags, timeout) = (libc::MSG_DONTWAIT as _, std::ptr::null_mut());
    // SAFETY: the pointers in the first `slots` headers are to memory borrowed mutably for the call with the length beside
    // it; for what the vectors name, the caller vouches.
    let count =
        unsafe { libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr().cast(), slots as _, flags, timeout) };
    let count = (Errno::result(count)? as usize).min(slots);
    for (header, slip) in headers.iter().zip(slips).take(count) {
        // SAFETY: the first `slots` headers are initialized, and `count` is no more.
        let header = unsafe { header.assume_init_ref() };
        slip.bytes = header.msg_len as usize;
        let header = &header.msg_hdr;
        slip.from.len = (header.msg_namelen as usize).min(RawAddress::CAPACITY);
        #[allow(clippy::unnecessary_cast, reason = "the field has 32 bits in other C libraries")]
        let control_bytes = (header.msg_controllen as usize).min(slip.control.len());
        slip.control_bytes = control_bytes;
        slip.truncated = header.msg_flags & libc::MSG_TRUNC != 0;
    }
    Ok(count)
}

fn empty_vector() -> libc::iovec {
    libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }
}

/// Makes the socket receive only packets that the classic BPF program accepts (`SO_ATTACH_FILTER`).
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> Result<(), Errno> {
    attach(fd, libc::SO_ATTACH_FILTER, program)
}

/// Makes the socket receive all packets again (`SO_DETACH_FILTER`).
pub(crate) fn detach_filter(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
        Err(Errno::ENOENT) => Ok(()),
        result => result,
    }
}

/// Makes the classic BPF program select the member of the socket's group that receives a datagram (`SO_ATTACH_REUSEPORT_CBPF`).
pub(crate) fn attach_group_program(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> Result<(), Errno> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

fn attach(fd: BorrowedFd<'_>, name: i32, program: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?,
        filter: program.as_ptr().cast_mut(),
    };
    let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let level = libc::SOL_SOCKET;
    // SAFETY: the pointer is to a sock_fprog that lives through the call, and it points to as many instructions as it
    // says; the kernel copies both.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const program).cast(), len) };
    Errno::result(result).map(drop)
}

/// Returns the number of datagrams that the kernel has dropped in place of receiving them at the socket (`SO_MEMINFO`).
pub(crate) fn dropped_packets(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    /// Number of values of the option, and the place of this one (`SK_MEMINFO_DROPS`).
    const VALUES: usize = 9;
    const DROPS: usize = 8;
    let mut values = [0_u32; VALUES];
    let mut len = size_of_val(&values) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
    // SAFETY: the pointers are to an array and its length in bytes, which live through the call.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut values).cast(), &raw mut len) };
    Errno::result(result).map(|_| values[DROPS])
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

/// Returns the MTU of an interface, which has that name in the socket's namespace (`SIOCGIFMTU`).
pub(crate) fn interface_mtu(fd: BorrowedFd<'_>, name: &str) -> Result<usize, Errno> {
    // SAFETY: ifreq is plain data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero and terminates the name.
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return Err(Errno::ENAMETOOLONG);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    #[allow(clippy::unnecessary_cast, reason = "the argument has another type in other C libraries")]
    let name = libc::SIOCGIFMTU as libc::Ioctl;
    // SAFETY: the pointer is to an ifreq that lives through the call, whose name ends with a zero.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), name, &raw mut request) };
    Errno::result(result)?;
    // SAFETY: an ifreq that SIOCGIFMTU has filled holds the MTU.
    let mtu_bytes = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu_bytes).map_err(|_| Errno::EINVAL)
}

/// Returns how much a socket has sent that its peer has not received (`SIOCOUTQ`). For AF_UNIX that is memory of the
/// kernel, and at most 1 while the kernel reports that the peer has received the last of it.
///
/// # Errors
///
/// The descriptor is not a socket, or the socket does not send.
pub fn unreceived_bytes(fd: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the pointer is to an int that lives through the call, and SIOCOUTQ, which is TIOCOUTQ, writes an int there.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    Errno::result(result)?;
    usize::try_from(bytes).map_err(|_| Errno::EINVAL)
}

/// Sets the position in a socket's queue at which a peek begins, in bytes (`SO_PEEK_OFF`); `None` for the first record.
///
/// # Errors
///
/// The socket has no such position.
pub fn set_peek_offset(fd: BorrowedFd<'_>, bytes: Option<u32>) -> Result<(), Errno> {
    let value = bytes.map_or(-1, |bytes| libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX));
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to an int that lives through the call, and the length is that of an int.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            (&raw const value).cast(),
            length,
        )
    };
    Errno::result(result).map(drop)
}

fn empty_header_of_many() -> libc::mmsghdr {
    libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: msghdr is plain data (pointers and integers), for which all zeroes is a valid value.
    unsafe { std::mem::zeroed() }
}
