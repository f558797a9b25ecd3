//! The trait of links, and its argument types.

use std::io;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use bytes::Bytes;

use crate::LinkStats;

/// The bits of a traffic class that are the ECN field (RFC 3168 §5).
pub(crate) const ECN: u8 = 3;

/// Datagrams of one sender that arrived together, as one run of bytes.
///
/// `payload.chunks(segment_bytes)` are the datagrams; all but the last have `segment_bytes` bytes. The bytes share a receive
/// block with their neighbours: keep a slice for a short time only, and copy a small one that must be kept for long, because it
/// keeps the whole block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Address of the sender. An IPv4 sender has an IPv4 address here, on a dual-stack socket, too.
    pub remote: SocketAddr,
    /// The local address that they were sent to.
    pub local: IpAddr,
    /// The ECN field of the IP header, 0 to 3.
    pub ecn: u8,
    /// Bytes of each datagram but the last; never 0.
    pub segment_bytes: usize,
    /// The datagrams, one after the other, without `shared`; never empty.
    pub payload: Bytes,
    /// Parts of a single datagram that lie in blocks of its sender, each with its place in `payload`. None of a batch.
    pub shared: Vec<(usize, Bytes)>,
    /// Number of bytes of the memory block that only `payload` keeps: those of `payload`, or more.
    pub block_bytes: usize,
}

impl Datagrams {
    /// Returns the length of all datagrams.
    pub fn total_bytes(&self) -> usize {
        self.payload.len() + self.shared.iter().map(|(_, part)| part.len()).sum::<usize>()
    }
}

/// Reason why a datagram did not arrive, as reported by ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnreachableReason {
    /// No socket is bound to the port.
    Port,
    /// The host cannot be reached.
    Host,
    /// The network cannot be reached.
    Net,
    /// The host does not support the protocol.
    Protocol,
    /// A filter rejects the traffic.
    Admin,
    /// The datagram exceeds the MTU of a link on the path.
    TooBig {
        /// The largest packet that fits, counted like [`PathInfo::mtu_bytes`].
        mtu_bytes: usize,
    },
}

/// An ICMP report about a datagram of this link. Any host can forge one: compare `quoted` with the packets sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The destination of the datagram.
    pub remote: SocketAddr,
    /// The reason.
    pub reason: UnreachableReason,
    /// The start of its payload as far as the report quotes it; may be empty.
    pub quoted: Bytes,
}

/// Receives the datagrams and reports of a link.
pub trait Sink {
    /// Handles a batch of datagrams from one sender.
    fn datagrams(&mut self, datagrams: Datagrams);
    /// Handles a batch that the link held in memory: it comes from this link, and may lack the checksum of the protocol above.
    /// Such batches stay in order among themselves, but may overtake those from the network.
    fn held_datagrams(&mut self, datagrams: Datagrams) {
        self.datagrams(datagrams);
    }
    /// Handles a report that a datagram could not be delivered.
    fn unreachable(&mut self, unreachable: Unreachable);
}

/// Datagrams of one size for one destination, sent together.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The destination.
    pub remote: SocketAddr,
    /// The source address; `None` lets the kernel choose.
    pub local: Option<IpAddr>,
    /// The traffic class of the IP header (the type of service of IPv4): DSCP, and in the two low bits ECN.
    pub traffic_class: u8,
    /// Whether the network may fragment datagrams. Otherwise a datagram that exceeds the device's MTU is returned as
    /// [`UnreachableReason::TooBig`], and routers report or drop it.
    pub may_fragment: bool,
    /// Bytes of each datagram; the last one may be shorter.
    pub segment_bytes: usize,
    /// The datagrams' bytes in order. A slice may end anywhere; boundaries are at multiples of `segment_bytes`.
    pub slices: &'a [IoSlice<'a>],
}

/// Properties of the path to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// Size of the largest packet that fits one datagram of this link, without the link's own headers. A multiple of 4, as SCTP
    /// packets are (RFC 9260 §3).
    pub mtu_bytes: usize,
    /// Length of the link's own headers: IP, and UDP if the link encapsulates.
    pub header_bytes: usize,
    /// Whether the address belongs to this host.
    pub same_host: bool,
    /// Whether the address belongs to another host on the interface's link: there is no router between, and the kernel knows no
    /// smaller MTU than the interface's.
    pub on_link: bool,
    /// On the same host: number of bytes in flight up to which the receiver's socket buffer cannot overflow, if it is as large as
    /// that of this link. Includes the overhead that the kernel charges for full batches.
    pub in_flight_limit_bytes: Option<usize>,
    /// The source address; `None` if the kernel may choose.
    pub local: Option<IpAddr>,
    /// The source address that the kernel would choose, if there is a route.
    pub route_local: Option<IpAddr>,
}

/// Limits of one [`Transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum number of datagrams; 1 if the kernel does not segment.
    pub segments_max: usize,
    /// Maximum number of bytes of several datagrams, so that they arrive as one batch. A single datagram may have
    /// [`PathInfo::mtu_bytes`].
    pub bytes_max: usize,
}

/// Packets that the protocol above expects, in terms of bytes of a datagram (RFC 9260 §3.1). The default expects every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected<'a> {
    /// The verification tags (bytes 4 to 7) of packets that neither have tag 0 nor begin with a COOKIE ECHO. `None`: every tag.
    pub tags: Option<&'a [u32]>,
    /// The destination ports (bytes 2 and 3) of packets with tag 0. `None`: every port. A link that has [`Link::set_ports`] does
    /// not need them, and one may expect every port if there are many.
    pub init_ports: Option<&'a [u16]>,
    /// The mark at the beginning of the cookie (bytes 16 to 19) of a COOKIE ECHO. `None`: every cookie.
    pub cookies: Option<CookieMark>,
}

/// The relation between the verification tag of a COOKIE ECHO and the first four bytes of its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieMark {
    /// Combined with the tag by exclusive or.
    pub mask: u32,
    /// Factor of the result; an odd number.
    pub factor: u32,
}

impl CookieMark {
    /// Returns the first bytes of a cookie for this tag, as a big-endian number.
    pub fn of(self, tag: u32) -> u32 {
        (tag ^ self.mask).wrapping_mul(self.factor)
    }
}

/// Moves batches of datagrams between a protocol and the host's network.
pub trait Link: Send {
    /// Returns the addresses of the link; the unspecified address stands for all addresses of the host.
    fn local_addresses(&self) -> Vec<SocketAddr>;

    /// Returns the properties of the path to `remote`. The link caches them for some seconds; for an unknown path they are
    /// conservative.
    fn path_info(&self, remote: SocketAddr) -> PathInfo;

    /// Returns whether an address belongs to this host, as `same_host` of its path does, but without asking the kernel for a
    /// route to each new address.
    fn is_same_host(&self, address: IpAddr) -> bool {
        self.path_info(SocketAddr::new(address, 0)).same_host
    }

    /// Returns the limits of one `transmit`. They can shrink when the kernel turns out not to segment.
    fn batch_limits(&self) -> BatchLimits;

    /// Delivers received datagrams to the sink, up to a limit. Returns true if there may be more.
    ///
    /// # Errors
    ///
    /// Only an error that makes the link unusable. Without anything to receive the result is `Ok(false)`, and ICMP reports go to
    /// the sink.
    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool>;

    /// Sends a batch. `Ok` means that the network has accepted it, not that it arrives.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: nothing was sent; try again when a descriptor is writable. Any other error means that the path cannot be
    /// used, for example that there is no route to the destination.
    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()>;

    /// Passes a batch to this link itself, if the link is also its receiver and keeps such batches in memory; returns `None` if
    /// the batch has to be sent by [`Link::transmit`], which does not look for that again. The sink gets it by
    /// [`Sink::held_datagrams`] as it is: no network can damage it, so the protocol above may leave out its checksum.
    ///
    /// `shared` are slices, by their index, whose blocks the receiver may keep, in place of a copy.
    ///
    /// The inner error is that of [`Link::transmit`].
    fn turn_back(&mut self, _transmit: &Transmit<'_>, _shared: &[(usize, &Bytes)]) -> Option<io::Result<()>> {
        None
    }

    /// Sends a batch to a destination that may not exist, from a socket apart if there is one, because the kernel may keep
    /// packets to such a destination. A batch that cannot be sent at once is lost, as any datagram may be, and counted.
    ///
    /// # Errors
    ///
    /// Those of [`transmit`](Self::transmit), but not that the batch must wait.
    fn transmit_apart(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.transmit(transmit)
    }

    /// Sends answers to strangers: single datagrams to many destinations in few system calls, as
    /// [`transmit_apart`](Self::transmit_apart) does. Those that cannot be sent are lost, and counted.
    fn transmit_answers(&mut self, transmits: &[Transmit<'_>]) {
        for transmit in transmits {
            let _ = self.transmit_apart(transmit);
        }
    }

    /// Delivers the datagrams that wait in memory, and asks the system for no others.
    fn receive_held(&mut self, _sink: &mut dyn Sink) {}

    /// Returns the number of received bytes that wait in memory for `receive` or `receive_held`. No descriptor becomes ready for
    /// them.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Returns whether the addresses of this link have ports. Without ports, their port is 0.
    fn has_ports(&self) -> bool {
        true
    }

    /// Sets the accepted destination ports of the protocol above (bytes 2 and 3 of a datagram). A link that shares its addresses
    /// with other programs delivers no other packets, and none before this call; a link with ports of its own ignores them.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    fn set_ports(&mut self, _ports: &[u16]) -> io::Result<()> {
        Ok(())
    }

    /// Sets the packets that are expected. A link that supports this steers others to separate sockets, where a flood of them
    /// does not affect peers and handshakes. Initially every packet is expected.
    ///
    /// Returns whether the link does so. It does not if it has no such sockets, or if these are too many tags; every packet is
    /// expected then.
    fn set_expected(&mut self, _expected: Expected<'_>) -> bool {
        false
    }

    /// Visits the descriptors to poll. They stay open as long as the link exists.
    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>));

    /// Returns the counters of the link.
    fn stats(&self) -> LinkStats;
}
