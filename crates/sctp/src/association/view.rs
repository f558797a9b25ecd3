//! The negotiated values and the present condition of an association, for callers that decide by them. The counters of
//! [`Statistics`](crate::Statistics) are for reports only.

use std::net::{IpAddr, SocketAddr};

use super::Association;
use crate::config::PathOptions;
use crate::inbound::Inbound;
use crate::path::Path;
use crate::path_state::PathState;
use crate::statistics::AssociationState;

/// An association as its user sees it.
#[derive(Clone, Copy)]
pub struct AssociationView<'a>(&'a Association);

/// A path of an association as its user sees it.
#[derive(Clone, Copy)]
pub struct PathView<'a>(&'a Path);

impl Association {
    pub(crate) fn view(&self) -> AssociationView<'_> {
        AssociationView(self)
    }
}

impl<'a> AssociationView<'a> {
    /// Returns the state.
    pub fn state(&self) -> AssociationState {
        self.0.state()
    }

    /// Returns our SCTP port and the peer's.
    pub fn ports(&self) -> (u16, u16) {
        (self.0.identity.local_port, self.0.identity.peer_port)
    }

    /// Returns the number of outbound streams, after the handshake as it has negotiated.
    pub fn streams_out(&self) -> u16 {
        self.0.outbound.streams()
    }

    /// Returns the number of inbound streams that the handshake has negotiated; 0 before.
    pub fn streams_in(&self) -> u16 {
        self.0.inbound.as_ref().map_or(0, Inbound::streams)
    }

    /// Returns whether the peer has acknowledged everything that the user has sent.
    pub fn is_send_buffer_empty(&self) -> bool {
        self.0.outbound.buffered_bytes() == 0
    }

    /// Returns whether a part of a record was sent or delivered, and not its end.
    pub fn is_in_record(&self) -> bool {
        self.0.outbound.has_open_record() || self.0.inbound.as_ref().is_some_and(Inbound::has_open_record)
    }

    /// Returns the length above which messages are fragmented (`SCTP_MAXSEG`).
    pub fn fragmentation_point_bytes(&self) -> usize {
        self.0.fragmentation_point_bytes()
    }

    /// Returns the receive window that the peer has announced, less what is in flight (`sasoc_peer_rwnd`).
    pub fn peer_window_bytes(&self) -> usize {
        self.0.outbound.peer_window_bytes()
    }

    /// Returns the bytes that were received and that the user has not read.
    pub fn unread_bytes(&self) -> usize {
        self.0.unread_bytes()
    }

    /// Returns the paths to all addresses of the peer.
    pub fn paths(&self) -> impl Iterator<Item = PathView<'a>> + use<'a> {
        self.0.paths.iter().map(PathView)
    }

    /// Returns the path to an address of the peer, in either form of an IPv4 address.
    pub fn path_to(&self, address: IpAddr) -> Option<PathView<'a>> {
        let address = address.to_canonical();
        self.paths().find(|path| path.remote().ip().to_canonical() == address)
    }

    /// Returns the primary path (`SCTP_PRIMARY_ADDR`).
    pub fn primary(&self) -> PathView<'a> {
        PathView(&self.0.paths[self.0.paths.primary()])
    }

    /// Returns the local addresses: those that the association is restricted to or that the endpoint was given, otherwise the
    /// source addresses of its paths.
    pub fn local_addresses(&self) -> Vec<IpAddr> {
        self.0.local_addresses()
    }
}

impl PathView<'_> {
    /// Returns the peer's address; the port is the UDP encapsulation port.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote()
    }

    /// Returns whether the address is confirmed, and whether it answers.
    pub fn state(&self) -> PathState {
        self.0.state()
    }

    /// Returns the local address, once a packet has arrived on the path or the link has chosen one.
    pub fn local(&self) -> Option<IpAddr> {
        self.0.local()
    }

    /// Returns the maximum length of an IP packet, including the headers of IP and UDP (`spp_pathmtu`).
    pub fn ip_mtu_bytes(&self) -> usize {
        self.0.ip_mtu_bytes()
    }

    /// Returns the options in effect (`SCTP_PEER_ADDR_PARAMS`): each is present, except a DSCP that the path does not have of
    /// its own.
    pub fn options(&self) -> PathOptions {
        self.0.options()
    }
}

impl std::fmt::Debug for AssociationView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AssociationView").field(&self.0.id()).finish()
    }
}

impl std::fmt::Debug for PathView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PathView").field(&self.remote()).finish()
    }
}
