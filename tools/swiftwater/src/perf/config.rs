//! Configurations of the two ends of a test.

use std::net::IpAddr;
use std::time::Duration;

use swiftwater::trace::TraceSink;

use super::spec::{Link, Spec};

/// Configuration of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerConfig {
    /// Local addresses; empty for all. TCP uses the first, SCTP all of them.
    pub addresses: Vec<IpAddr>,
    /// TCP port of the control connection and of TCP tests; the SCTP port too.
    pub port: u16,
    /// Address of the control connection, if it is not the first of `addresses`: TCP tests then have a port of their own.
    pub control: Option<IpAddr>,
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
