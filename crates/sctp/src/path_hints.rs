//! Properties of a path that only the link knows.

use std::net::IpAddr;

/// The link's knowledge of the path to one address.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PathHints {
    /// Maximum length of an SCTP packet on the link.
    pub mtu_bytes: usize,
    /// Length of the headers that the link adds: IPv4 (20) or IPv6 (40), and UDP (8) if the link encapsulates.
    pub header_bytes: usize,
    /// Whether the path leaves this host, so that path MTU discovery must probe it (RFC 8899).
    pub leaves_host: bool,
    /// Whether the peer's address is on the link of the interface, without a router between: packets begin with the MTU
    /// of the interface, up to 1,500 bytes of IP.
    pub on_link: bool,
    /// Number of bytes that the buffers between the sockets hold, on a path within this host.
    pub in_flight_limit_bytes: Option<usize>,
    /// The local address to send from; `None` if the link may choose.
    pub local: Option<IpAddr>,
    /// The local address that the system would choose, if known.
    pub route_local: Option<IpAddr>,
}
