//! A hash of every packet of a run: the same seed gives the same hash.

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use lab::wire::{Outgoing, Wire};
use netsim::Network;
use sctp_wire::Packet;

pub struct Trace {
    hasher: DefaultHasher,
    pub packets: u64,
    /// Whether to print every packet.
    prints: bool,
}

impl Trace {
    pub fn new() -> Self {
        let prints = std::env::var_os("SWARM_LADDER").is_some();
        Trace { hasher: DefaultHasher::new(), packets: 0, prints }
    }

    /// Adds another event.
    pub fn note(&mut self, what: &impl Hash) {
        what.hash(&mut self.hasher);
    }

    pub fn number(&self) -> u64 {
        self.hasher.finish()
    }
}

impl Wire for Trace {
    fn emit(&mut self, packet: Outgoing, network: &mut Network<Bytes>) {
        self.packets += 1;
        if self.prints {
            let ms = packet.at.as_nanos() as f64 / 1e6;
            let text = Packet::parse(&packet.packet).map_or_else(|e| e.to_string(), |p| p.to_string());
            println!("{ms:12.3} ms {} {} to {}: {text}", packet.by, packet.from.ip(), packet.to.ip());
        }
        (packet.at, packet.by, packet.from, packet.to).hash(&mut self.hasher);
        self.hasher.write(&packet.packet);
        packet.enter(network);
    }
}
