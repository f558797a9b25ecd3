//! The system calls that open devices and ask the scheduler, and all unsafe code for them.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

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

/// Short slices of the processor for the thread that has asked for them, until dropped. Threads that it starts meanwhile inherit
/// them, and keep them until they end.
///
/// A thread of a shorter slice replaces one of a longer slice as soon as it wakes; otherwise, it may wait for the next tick.
#[derive(Debug)]
pub struct ShortSlices {
    /// The slice of the thread before, if it was replaced.
    usual_ns: Option<u64>,
    _of_thread: PhantomData<*const ()>,
}

impl ShortSlices {
    /// Asks for slices of `slice` at most. No privilege is needed. Changes no thread of another policy than `SCHED_OTHER`, and
    /// none that has shorter slices. Kernels before Linux 6.12 ignore the request.
    ///
    /// # Errors
    ///
    /// A filter of system calls refuses the request.
    pub fn begin(slice: Duration) -> Result<ShortSlices, Errno> {
        let attributes = scheduling()?;
        let slice_ns = u64::try_from(slice.as_nanos()).map_err(|_| Errno::EINVAL)?;
        let usual_ns = attributes.sched_runtime;
        // Kernels that know no slices say 0.
        let is_longer = attributes.sched_policy == libc::SCHED_OTHER as u32 && usual_ns > slice_ns;
        if is_longer {
            set_scheduling(&libc::sched_attr { sched_runtime: slice_ns, ..attributes })?;
        }
        Ok(ShortSlices { usual_ns: is_longer.then_some(usual_ns), _of_thread: PhantomData })
    }
}

impl Drop for ShortSlices {
    fn drop(&mut self) {
        // An administrator may have changed the rest.
        if let Some(usual_ns) = self.usual_ns
            && let Ok(attributes) = scheduling()
        {
            // Without it, the slices remain short.
            let _ = set_scheduling(&libc::sched_attr { sched_runtime: usual_ns, ..attributes });
        }
    }
}

/// Returns how the calling thread is scheduled (sched_getattr(2)).
fn scheduling() -> Result<libc::sched_attr, Errno> {
    // SAFETY: sched_attr is plain data, for which all zeroes is a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: the pointer is to a sched_attr that lives through the call, and `size` says its size. Process 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    Errno::result(result).map(|_| attributes)
}

fn set_scheduling(attributes: &libc::sched_attr) -> Result<(), Errno> {
    let attributes: *const libc::sched_attr = attributes;
    // SAFETY: the pointer is to a sched_attr, whose first field says its size, and which lives through the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, attributes, 0) };
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_micros(300);

    /// Returns the policy and the slice of the calling thread.
    fn own() -> (i32, u64) {
        let attributes = scheduling().expect("Linux has this call");
        (attributes.sched_policy as i32, attributes.sched_runtime)
    }

    fn shorten(slice: Duration) -> ShortSlices {
        ShortSlices::begin(slice).expect("nothing refuses it")
    }

    /// Runs the steps of a test on a thread of its own.
    fn on_a_thread(steps: fn()) {
        thread::spawn(steps).join().expect("it succeeds");
    }

    #[test]
    fn a_thread_and_those_that_it_starts_have_short_slices_for_a_time() {
        on_a_thread(|| {
            let (policy, usual_ns) = own();
            // Before Linux 6.12 a thread has no slice of its own.
            let short_ns = if usual_ns > 0 { SHORT.as_nanos() as u64 } else { 0 };
            let short = shorten(SHORT);
            assert_eq!(own(), (policy, short_ns));
            assert_eq!(thread::spawn(own).join().expect("it ends"), (policy, short_ns));
            drop(shorten(2 * SHORT));
            assert_eq!(own(), (policy, short_ns), "shorter ones remain");
            drop(short);
            assert_eq!(own(), (policy, usual_ns));
        });
    }

    #[test]
    fn a_policy_that_an_administrator_has_chosen_remains() {
        on_a_thread(|| {
            let attributes = scheduling().expect("Linux has this call");
            let batch = libc::sched_attr { sched_policy: libc::SCHED_BATCH as u32, ..attributes };
            set_scheduling(&batch).expect("nothing refuses it");
            let before = own();
            let _short = shorten(SHORT);
            assert_eq!((own(), before.0), (before, libc::SCHED_BATCH));
        });
    }
}
