//! Properties of a path that only the link knows.

use std::net::IpAddr;

/// The link's knowledge of the path to one address.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PathHints {
    /// The longest SCTP packet that the link takes.
    pub mtu_bytes: usize,
    /// Length of the headers that the link adds: IPv4 (20) or IPv6 (40), and UDP (8) if the link encapsulates.
    pub header_bytes: usize,
    /// The path leaves this host, so path MTU discovery must probe it (RFC 8899).
    pub leaves_host: bool,
    /// The peer's address is on the link that the interface joins, without a router between: packets begin as long as the
    /// interface takes, up to 1,500 bytes of IP.
    pub on_link: bool,
    /// On a path within this host: how many bytes the buffers between the sockets hold.
    pub in_flight_limit_bytes: Option<usize>,
    /// The local address to send from; `None` if the link may choose.
    pub local: Option<IpAddr>,
    /// The local address that the system would choose, if it is known.
    pub route_local: Option<IpAddr>,
}
