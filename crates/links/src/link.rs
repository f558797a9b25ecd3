//! The trait of links, and the types that cross it.

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
/// `payload.chunks(segment_bytes)` are the datagrams; all but the last have `segment_bytes` bytes. The bytes share a
/// receive block with their neighbours: keep a slice as long as it is wanted, but copy a small one that has to stay
/// for long, since it holds the whole block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Address of the sender. An IPv4 sender is an IPv4 address here, on a dual-stack socket too.
    pub remote: SocketAddr,
    /// The address of ours that they were sent to.
    pub local: IpAddr,
    /// The ECN field of the IP header, 0 to 3.
    pub ecn: u8,
    /// Bytes of each datagram but the last; never 0.
    pub segment_bytes: usize,
    /// The datagrams, one after the other; never empty.
    pub payload: Bytes,
    /// Bytes of the block of memory that `payload` lies in which nothing else uses: those of `payload`, or more.
    pub block_bytes: usize,
}

/// Why a datagram of ours did not arrive, as the network reported it by ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnreachableReason {
    /// Nobody listens on the port.
    Port,
    /// The host cannot be reached.
    Host,
    /// The network cannot be reached.
    Net,
    /// The host does not speak the protocol.
    Protocol,
    /// A filter forbids the traffic.
    Admin,
    /// The datagram was larger than a link on the way takes.
    TooBig {
        /// The largest packet that fits, counted like [`PathInfo::mtu_bytes`].
        mtu_bytes: usize,
    },
}

/// One ICMP report about something that we sent. Anybody can forge one: compare `quoted` with what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Where the datagram was going.
    pub remote: SocketAddr,
    /// The reason.
    pub reason: UnreachableReason,
    /// The start of its payload as far as the report quotes it; may be empty.
    pub quoted: Bytes,
}

/// Takes what a link received.
pub trait Sink {
    /// A batch of datagrams from one sender.
    fn datagrams(&mut self, datagrams: Datagrams);
    /// A report that something could not be delivered.
    fn unreachable(&mut self, unreachable: Unreachable);
}

/// Datagrams of one size for one destination, handed over together.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Where they go.
    pub remote: SocketAddr,
    /// The source address; `None` lets the kernel choose.
    pub local: Option<IpAddr>,
    /// The traffic class of the IP header (the type of service of IPv4): DSCP, and in the two low bits ECN.
    pub traffic_class: u8,
    /// The network may cut datagrams that are too long for it. Otherwise one that is too long for the device comes back as
    /// [`UnreachableReason::TooBig`], and routers report it or drop it.
    pub may_fragment: bool,
    /// Bytes of each datagram; the last one may be shorter.
    pub segment_bytes: usize,
    /// The datagrams' bytes in order. A slice may end anywhere; boundaries are at multiples of `segment_bytes`.
    pub slices: &'a [IoSlice<'a>],
}

/// Properties of the way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// The largest packet that fits one datagram of this link, without the link's own headers. A multiple of 4, as
    /// SCTP packets are (RFC 9260 §3).
    pub mtu_bytes: usize,
    /// The link's own headers before it: of IP, and of UDP if the link encapsulates.
    pub header_bytes: usize,
    /// The address is one of this host's own.
    pub same_host: bool,
    /// The address is another host's on the link that the interface joins: no router stands between, and the kernel knows of no smaller
    /// MTU than the interface's.
    pub on_link: bool,
    /// On the same host: how many bytes may be on the way before the receiver's socket buffer can overflow, taking
    /// the peer's buffer for as large as ours. It counts what the kernel charges for full batches.
    pub in_flight_limit_bytes: Option<usize>,
    /// The address of ours that the way begins at; `None` where the kernel may choose.
    pub local: Option<IpAddr>,
    /// Source address that the kernel would choose, if there is a way.
    pub route_local: Option<IpAddr>,
}

/// How much one [`Transmit`] may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most datagrams in a batch; 1 where the kernel does not segment.
    pub segments_max: usize,
    /// Most bytes in a batch of several datagrams, so that it arrives in one piece. A single datagram may have as
    /// many as [`PathInfo::mtu_bytes`] says.
    pub bytes_max: usize,
}

/// Moves batches of datagrams between a protocol and the host's network.
pub trait Link: Send {
    /// The addresses the link is bound to; the unspecified address stands for all of the host's.
    fn local_addresses(&self) -> Vec<SocketAddr>;

    /// Returns the properties of the way to `remote`. The link remembers them for some seconds; for an unknown way they are
    /// cautious.
    fn path_info(&self, remote: SocketAddr) -> PathInfo;

    /// How much one `transmit` may carry. It can shrink when the kernel turns out not to segment.
    fn batch_limits(&self) -> BatchLimits;

    /// Hands what has arrived to the sink, up to a limit; true when there may be more.
    ///
    /// # Errors
    ///
    /// Only what makes the link useless. Nothing to receive is `Ok(false)`, an ICMP report goes to the sink.
    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool>;

    /// Sends a batch. `Ok` says that the network has it, not that it arrives.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: nothing was sent; try again when a descriptor is writable. Anything else says that this way
    /// cannot be used, such as no route to the destination.
    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()>;

    /// Sends single datagrams to many destinations in few system calls. Datagrams that cannot be sent at once are lost,
    /// as any datagram may be, and counted.
    fn transmit_singles(&mut self, transmits: &[Transmit<'_>]) {
        for transmit in transmits {
            let _ = self.transmit(transmit);
        }
    }

    /// Bytes that have arrived and wait in memory for `receive`. No descriptor becomes ready for them.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Returns whether addresses of this link have ports of its own. Those of one that has none have port 0.
    fn has_ports(&self) -> bool {
        true
    }

    /// Names the destination ports of the protocol above (bytes 2 and 3 of a datagram) that are wanted from now on.
    /// A link that shares its addresses with other programs hands up nothing else and nothing before that; one that
    /// has ports of its own has no use for them.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    fn set_ports(&mut self, _ports: &[u16]) -> io::Result<()> {
        Ok(())
    }

    /// Names the verification tags of all packets that are expected (bytes 4 to 7 of a datagram, RFC 9260 §3.1), until it is told
    /// otherwise. A link that can steers other packets to where a flood of them costs peers nothing; handshakes, which nobody
    /// expects, have room of their own there. Without tags, and from the beginning, every tag is expected.
    ///
    /// Returns whether the link does so. It does not where it has no such sockets, or where these are too many tags.
    fn set_expected_tags(&mut self, _tags: Option<&[u32]>) -> bool {
        false
    }

    /// Names the descriptors to poll. They stay open as long as the link.
    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>));

    /// Returns the counters of the link.
    fn stats(&self) -> LinkStats;
}
