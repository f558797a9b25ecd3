//! Packets that leave a host, and stages between the hosts and the network.

use std::net::SocketAddr;

use bytes::Bytes;
use netsim::{Ecn, Network, Packet};
use sctp::Time;

/// Length of IPv4 and UDP headers, which are part of packets on the wire.
pub const LOWER_HEADER_BYTES: usize = 28;

/// A packet that leaves a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Time of sending.
    pub at: Time,
    /// Number of the host.
    pub by: usize,
    /// Source address.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Whether routers may mark it.
    pub ecn: Ecn,
    /// Its differentiated services codepoint, which the simulated routers ignore.
    pub dscp: u8,
    /// Whether it must not be fragmented.
    pub whole: bool,
    /// The SCTP packet.
    pub packet: Bytes,
}

impl Outgoing {
    /// Sends the packet into the network.
    pub fn enter(self, network: &mut Network<Bytes>) {
        let bytes = self.packet.len() + LOWER_HEADER_BYTES;
        let packet = Packet { bytes, ecn: self.ecn, whole: self.whole, payload: self.packet };
        network.send_packet(self.at.as_nanos(), self.from, self.to, packet);
    }
}

/// A stage between the hosts and the network.
pub trait Wire {
    /// Handles a packet that leaves a host.
    fn emit(&mut self, packet: Outgoing, network: &mut Network<Bytes>);

    /// Returns the time at which the stage releases packets that it has held back.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Releases packets whose time has come.
    fn release(&mut self, _now: Time, _network: &mut Network<Bytes>) {}
}

/// No stage: every packet enters the network directly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl Wire for Direct {
    #[inline]
    fn emit(&mut self, packet: Outgoing, network: &mut Network<Bytes>) {
        packet.enter(network);
    }
}
