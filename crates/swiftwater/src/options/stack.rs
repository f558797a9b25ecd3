//! Options of sockets.

use std::net::IpAddr;
use std::time::Duration;

use sctp::Checksum;

use super::{AssociationOptions, ListenerOptions};
use crate::address::Address;
use crate::trace::TraceSink;

/// Links that carry SCTP packets. Both ends of an association must use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// UDP (RFC 6951): the fastest link, since kernels segment UDP. No privilege is needed.
    #[default]
    Udp,
    /// IP, protocol 132 (RFC 9260 §3), for peers without UDP encapsulation. The capability `CAP_NET_RAW` is needed.
    Raw,
    /// IP if permitted, otherwise UDP. [`Stack::link`](crate::Stack::link) returns the link in use,
    /// [`Stack::warning`](crate::Stack::warning) the reason.
    Auto,
}

/// Options of a [`Stack`](crate::Stack): its sockets, addresses and link. They are fixed when the stack is bound.
///
/// [`StackOptions::listener`] and [`StackOptions::association`] are the defaults of the listeners and associations of the
/// stack; [`Stack::listen_with`](crate::Stack::listen_with) and [`Stack::with_options`](crate::Stack::with_options)
/// replace them.
///
/// ```
/// use swiftwater::{AssociationOptions, StackOptions};
///
/// let options = StackOptions::default()
///     .with_udp_port(0)
///     .with_association(AssociationOptions::default().with_streams_out(64));
/// // If only the options of associations differ from the defaults:
/// let options = StackOptions::from(AssociationOptions::default().with_nodelay(true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackOptions {
    /// The link that carries SCTP packets. Default: UDP.
    pub link: LinkKind,
    /// The local UDP port, if UDP carries SCTP; 0 chooses a free one. Default (`None`): 9899 (RFC 6951 §5.1) for a
    /// stack, a listener or an endpoint, a free port for [`Association::connect`](crate::Association::connect).
    pub udp_port: Option<u16>,
    /// Local addresses to bind, one socket each. Default: all addresses of the host.
    ///
    /// As in [`std::net`] on Linux, `0.0.0.0` stands for all IPv4 addresses, and `::` for all addresses of both families; beside
    /// IPv4 addresses, `::` stands for all IPv6 addresses.
    ///
    /// The handshake lists those that the peer can reach: no loopback address to another host, no link-local address
    /// beyond the link, and no private IPv4 address to a public one unless the list also has a public one. Each path
    /// leaves from one: the same address on the same host, otherwise the source address of the route to the peer.
    ///
    /// [`Stack::with_local_addresses`](crate::Stack::with_local_addresses) restricts listeners and associations to some of
    /// them.
    pub local_addresses: Vec<IpAddr>,
    /// Bind each socket to the interface that has its address: packets from the address leave there, regardless of the
    /// routes. If the interface is removed and added again, the stack finds it at the next send, provided that the
    /// program then has `CAP_NET_RAW`. Default: false.
    pub bind_interfaces: bool,
    /// Deliver packets from this stack to itself in memory: they pass no interface, so captures and packet filters do
    /// not see them. Ignored together with `bind_interfaces`. Default: false.
    pub hairpin: bool,
    /// The largest IP packet to send, in bytes, such as 1500, unless the interface's MTU is smaller. Default: the
    /// interface's MTU.
    pub mtu_bytes: Option<usize>,
    /// Packet protection. Default: CRC32C (RFC 9260 §6.8). Anything else is for measurements on loopback.
    pub checksum: Checksum,
    /// Maximum duration of polling the sockets before a waiting call sleeps, as long as polling pays: a request is then
    /// answered without a wake-up, at the cost of processor time. Zero disables polling. Default: 50 µs.
    pub busy_poll: Duration,
    /// Maximum number of simultaneous associations of each listener of the stack with peers of one source prefix: the
    /// first 24 bits of an IPv4 address, 56 bits of an IPv6 address. The stack refuses further ones with ABORT. Peers
    /// on this host count as one prefix, but those of this stack by their [`ReceivePool`](crate::ReceivePool), if they have
    /// one. Default: 16,384.
    pub prefix_associations_max: usize,
    /// Receives a record of every event of each association; see [`crate::trace`]. Default: none, at no cost.
    pub trace: Option<TraceSink>,
    /// Options of listeners and one-to-many endpoints that the program opens without options.
    pub listener: ListenerOptions,
    /// Options of associations that the program opens without options.
    pub association: AssociationOptions,
}

setters! {
    StackOptions:
    with_link(link: LinkKind),
    with_udp_port(udp_port: impl Into<Option<u16>>),
    with_bind_interfaces(bind_interfaces: bool),
    with_hairpin(hairpin: bool),
    with_mtu_bytes(mtu_bytes: impl Into<Option<usize>>),
    with_checksum(checksum: Checksum),
    with_busy_poll(busy_poll: Duration),
    with_prefix_associations_max(prefix_associations_max: usize),
    with_trace(trace: impl Into<Option<TraceSink>>),
    with_listener(listener: ListenerOptions),
    with_association(association: AssociationOptions),
}

impl Default for StackOptions {
    fn default() -> Self {
        StackOptions {
            link: LinkKind::Udp,
            udp_port: None,
            local_addresses: Vec::new(),
            bind_interfaces: false,
            hairpin: false,
            mtu_bytes: None,
            checksum: Checksum::Crc32c,
            busy_poll: Duration::from_micros(50),
            prefix_associations_max: sctp::EndpointConfig::default().prefix_associations_max,
            trace: None,
            listener: ListenerOptions::default(),
            association: AssociationOptions::default(),
        }
    }
}

impl From<AssociationOptions> for StackOptions {
    fn from(association: AssociationOptions) -> Self {
        StackOptions { association, ..StackOptions::default() }
    }
}

impl From<ListenerOptions> for StackOptions {
    fn from(listener: ListenerOptions) -> Self {
        StackOptions { listener, ..StackOptions::default() }
    }
}

impl StackOptions {
    /// Returns these options with [`local_addresses`](StackOptions::local_addresses) set.
    #[must_use]
    pub fn with_local_addresses(mut self, local_addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.local_addresses = local_addresses.into_iter().collect();
        self
    }

    /// Returns these options with the hosts and the UDP port of `address`.
    pub(crate) fn at(&self, address: &Address) -> StackOptions {
        StackOptions {
            local_addresses: address.hosts.clone(),
            udp_port: address.udp_port.or(self.udp_port),
            ..self.clone()
        }
    }

    /// Returns the addresses to bind, one socket each; none for all addresses of the host.
    pub(crate) fn socket_addresses(&self) -> &[IpAddr] {
        match self.local_addresses[..] {
            [IpAddr::V6(all)] if all.is_unspecified() => &[],
            _ => &self.local_addresses,
        }
    }
}
