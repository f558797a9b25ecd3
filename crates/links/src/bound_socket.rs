//! A bound socket of a link, with the sockets for strangers that belong to it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::strangers::SeparateSockets;

/// One bound socket.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    pub(crate) fd: OwnedFd,
    pub(crate) bound: SocketAddr,
    /// Whether the socket is an IPv6 one, whose addresses have the IPv6 form.
    pub(crate) ipv6: bool,
    /// Whether an IPv6 socket carries IPv4 as well.
    pub(crate) dual_stack: bool,
    /// Part of the requested buffer that the kernel grants without privileges. The buffer may be larger.
    pub(crate) receive_buffer_bytes: usize,
    /// The interface that the socket is bound to, if that was requested.
    pub(crate) interface: Option<String>,
    /// The separate socket for packets of strangers, if there is one.
    pub(crate) strangers: Option<SeparateSockets>,
}
