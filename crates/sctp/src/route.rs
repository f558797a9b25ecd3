//! The way of a received packet.

use std::net::{IpAddr, SocketAddr};

/// The addresses of a received packet, and its mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The source address; the port is the UDP encapsulation port.
    pub(crate) remote: SocketAddr,
    /// The destination address.
    pub(crate) local: Option<IpAddr>,
    /// Whether a congested router has marked the packet (CE, RFC 3168).
    pub(crate) marked: bool,
    /// Whether it needs no checksum.
    pub(crate) in_memory: bool,
}
