//! The system calls that open devices, and all unsafe code for them.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use crate::syscalls::set_option;

/// Creates a TUN device with this name, whose packets are preceded by a `virtio_net_hdr` only (`TUNSETIFF`).
pub(crate) fn attach_tun(fd: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let mut request = named_request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the pointer is to an ifreq that lives through the call, whose name ends with a zero.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    Errno::result(result).map(drop)
}

/// Sets the offloads that the reader of the device supports (`TUNSETOFFLOAD`).
pub(crate) fn set_tun_offloads(fd: BorrowedFd<'_>, offloads: u32) -> Result<(), Errno> {
    // SAFETY: this request takes a number and no pointer.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) };
    Errno::result(result).map(drop)
}

/// Sets the length of the header before each packet (`TUNSETVNETHDRSZ`).
pub(crate) fn set_tun_vnet_header_bytes(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
    let bytes = libc::c_int::try_from(bytes).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the pointer is to an int that lives through the call, which only reads it.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) };
    Errno::result(result).map(drop)
}

/// Opens a non-blocking packet socket (packet(7)) for all packets of an interface.
pub(crate) fn open_packet_socket(interface: &str) -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // With protocol 0 the socket gets nothing before it is bound.
    // SAFETY: the call takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    let fd = Errno::result(fd)?;
    // SAFETY: the descriptor is new, so nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface_index(interface)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer is to a sockaddr_ll that lives through the call, and `len` says its size.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    Errno::result(result)?;
    Ok(socket)
}

fn interface_index(name: &str) -> Result<i32, Errno> {
    let index = nix::net::if_::if_nametoindex(name)?;
    i32::try_from(index).map_err(|_| Errno::EINVAL)
}

/// A boolean option of a packet socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PacketOption {
    /// `PACKET_VNET_HDR`: a `virtio_net_hdr` precedes each packet.
    VnetHeader,
    /// `PACKET_IGNORE_OUTGOING`: packets sent by this host are not received.
    IgnoreOutgoing,
    /// `PACKET_QDISC_BYPASS`: sent packets bypass the queue of the interface.
    BypassQueue,
}

/// Enables an option.
pub(crate) fn set_packet_option(fd: BorrowedFd<'_>, option: PacketOption) -> Result<(), Errno> {
    let name = match option {
        PacketOption::VnetHeader => libc::PACKET_VNET_HDR,
        PacketOption::IgnoreOutgoing => libc::PACKET_IGNORE_OUTGOING,
        PacketOption::BypassQueue => libc::PACKET_QDISC_BYPASS,
    };
    set_option(fd, libc::SOL_PACKET, name, 1)
}

/// Returns the number of packets that the socket has dropped since the last call (`PACKET_STATISTICS`).
pub(crate) fn packet_drops(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    // `struct tpacket_stats`: packets, then drops.
    let mut counts = [0u32; 2];
    let mut len = size_of_val(&counts) as libc::socklen_t;
    let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    // SAFETY: the pointer is to two u32 that live through the call, and `len` says their size.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut counts).cast(), &raw mut len) };
    Errno::result(result).map(|_| counts[1])
}

/// Gives the calling thread a real-time priority (`SCHED_FIFO`), which processes that it starts do not inherit.
///
/// # Errors
///
/// The process lacks the privilege.
pub fn become_realtime(priority: i32) -> Result<(), Errno> {
    // SAFETY: sched_param is plain data, for which all zeroes is a valid value; musl's has more fields than glibc's.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: the pointer is to a sched_param that lives through the call. Process 0 is the calling thread.
    let result = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
    Errno::result(result).map(drop)
}

/// Returns an interface request with a zero-terminated name.
fn named_request(name: &str) -> Result<libc::ifreq, Errno> {
    // SAFETY: ifreq is plain data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return Err(Errno::ENAMETOOLONG);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}
