//! Packets as hosts see them, the names of hosts and pipes, and what is counted.

use std::net::SocketAddr;

use crate::{DropReason, Ecn};

/// A host of a [`Network`](crate::Network).
///
/// # Examples
///
/// ```
/// let mut network = netsim::Network::<()>::new(0);
/// assert_ne!(network.add_host(&[]), network.add_host(&[]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub(crate) usize);

impl HostId {
    /// Returns the index of the host in its network, from 0.
    ///
    /// ```
    /// let mut network = netsim::Network::<()>::new(0);
    /// assert_eq!([(); 2].map(|()| network.add_host(&[]).index()), [0, 1]);
    /// ```
    pub fn index(self) -> usize {
        self.0
    }
}

/// A pipe of a [`Network`](crate::Network).
///
/// # Examples
///
/// ```
/// # use netsim::{Network, PipeConfig};
/// let mut network = Network::<()>::new(0);
/// let pipe = network.add_pipe(&PipeConfig::default());
/// assert_eq!(network.pipe(pipe).stats().packets_offered, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipeId(pub(crate) usize);

/// A packet to send.
///
/// # Examples
///
/// ```
/// use netsim::{Ecn, Packet};
///
/// let packet = Packet { bytes: 1500, ecn: Ecn::Ect0, whole: true, payload: vec![0u8; 1472] };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<P> {
    /// The length on the wire, headers included.
    pub bytes: usize,
    /// ECN field that the sender set.
    pub ecn: Ecn,
    /// Whether routers must not fragment it ("don't fragment").
    pub whole: bool,
    /// Content.
    pub payload: P,
}

/// A packet that was too long for a pipe that reports such packets, see [`Network::too_big`](crate::Network::too_big).
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use netsim::{Ecn, Network, Packet, PipeConfig};
///
/// let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 1)), SocketAddr::from(([10, 0, 0, 2], 2)));
/// let mut network = Network::new(0);
/// let host = network.add_host(&[a.ip()]);
/// network.add_host(&[b.ip()]);
/// let config = PipeConfig { mtu_bytes: Some(1400), reports_too_big: true, ..PipeConfig::default() };
/// network.connect(a.ip(), b.ip(), &config);
/// network.send_packet(3, a, b, Packet { bytes: 1500, ecn: Ecn::NotCapable, whole: true, payload: "long" });
/// let report = network.too_big().expect("the pipe reports");
/// assert_eq!((report.host, report.to, report.mtu_bytes, report.payload), (Some(host), b, 1400, "long"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooBig<P> {
    /// The host that sent it, if the network knows it.
    pub host: Option<HostId>,
    /// The source address.
    pub from: SocketAddr,
    /// The destination address.
    pub to: SocketAddr,
    /// Longest packet that the pipe takes, headers included.
    pub mtu_bytes: usize,
    /// Content of the packet that was too long.
    pub payload: P,
}

/// A packet that has arrived.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use netsim::{Network, PipeConfig};
///
/// let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 1)), SocketAddr::from(([10, 0, 0, 2], 2)));
/// let mut network = Network::new(0);
/// network.add_host(&[a.ip()]);
/// let host = network.add_host(&[b.ip()]);
/// network.connect(a.ip(), b.ip(), &PipeConfig::default());
/// network.send(3, a, b, 1500, "hello");
/// let delivery = network.deliver(3).expect("it has arrived");
/// assert_eq!((delivery.at_ns, delivery.host, delivery.payload), (3, host, "hello"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The time of arrival.
    pub at_ns: u64,
    /// The receiving host.
    pub host: HostId,
    /// Address of the sender.
    pub from: SocketAddr,
    /// The destination address.
    pub to: SocketAddr,
    /// The ECN field after the queues on the way.
    pub ecn: Ecn,
    /// Whether it was damaged on the way.
    pub corrupted: bool,
    /// Content.
    pub payload: P,
}

/// Fate of a packet at the first pipe of its route.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use netsim::{Network, SendOutcome};
///
/// let address = SocketAddr::from(([10, 0, 0, 1], 1));
/// assert_eq!(Network::new(0).send(0, address, address, 100, ()), SendOutcome::NoRoute);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOutcome {
    /// The packet was sent; a later pipe may still drop it.
    Sent,
    /// The first pipe dropped it.
    Dropped(DropReason),
    /// A filter took it.
    Filtered,
    /// No route leads from the one address to the other.
    NoRoute,
}

/// Counters of a network.
///
/// `packets_sent + packets_copied` is the sum of the others and of [`Network::in_flight`](crate::Network::in_flight).
///
/// # Examples
///
/// ```
/// assert_eq!(netsim::Network::<()>::new(0).stats(), netsim::NetworkStats::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Copies that pipes put on the way.
    pub packets_copied: u64,
    /// Packets that have arrived, with copies.
    pub packets_delivered: u64,
    /// Packets that a pipe or a filter took, at any hop.
    pub packets_dropped: u64,
    /// Packets that had no route.
    pub packets_unroutable: u64,
}
