//! Configurations of the two ends of a test.

use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use swiftwater::trace::TraceSink;

use super::spec::{Link, Spec};
use crate::sockets;

/// Clients that a server serves over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// Everybody who reaches it.
    All,
    /// Processes of its own user on this host, over IPv4.
    OwnUser,
}

impl Clients {
    /// Returns whether the other end of a connection may be served.
    pub(crate) fn admit(self, stream: &TcpStream) -> bool {
        // Without /proc users cannot be told apart.
        self == Clients::All || sockets::is_of_this_user(stream).unwrap_or(true)
    }
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerConfig {
    /// Local addresses; empty for all. TCP uses the first, SCTP all of them.
    pub addresses: Vec<IpAddr>,
    /// TCP port of the control connection and of TCP tests; the SCTP port too.
    pub port: u16,
    /// Address of the control connection, if it is not the first of `addresses`: TCP tests then have a port of their own.
    pub control: Option<IpAddr>,
    /// Clients that it serves.
    pub clients: Clients,
    /// UDP port of SCTP and of UDP tests; 0 for any.
    pub udp_port: u16,
    /// Links that may carry SCTP.
    pub link: Link,
    /// Receiver of the traces of associations.
    pub trace: Option<TraceSink>,
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientConfig {
    /// The server's name or address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// The server's address for the control connection, if it is another.
    pub control: Option<IpAddr>,
    /// Local addresses; if empty, the system chooses.
    pub local_addresses: Vec<IpAddr>,
    /// Local UDP port of SCTP; any, if not given.
    pub local_udp_port: Option<u16>,
    /// The test.
    pub spec: Spec,
    /// Time limit.
    pub duration: Duration,
    /// Limit for the number of messages, over all associations.
    pub count: Option<u64>,
    /// Whether the client, once connected, waits for a line on standard input.
    pub hold: bool,
    /// Receiver of the traces of associations.
    pub trace: Option<TraceSink>,
}
