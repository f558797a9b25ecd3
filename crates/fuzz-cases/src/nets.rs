//! The nets that packets cross: what they lose, and how long they take while the interceptor is honest.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use lab::Simulation;
use lab::simulation::Application;
use lab::wire::LOWER_HEADER_BYTES;
use netsim::{Loss, Network, PipeConfig, PipeId};

/// Number of nets. The second byte of an address is the number of its net.
pub(crate) const COUNT: usize = 2;
/// Minimum delay of a net.
pub(crate) const DELAY_MIN: Duration = Duration::from_millis(1);
/// Delays of a net, in milliseconds.
const DELAYS_MS: [u64; 4] = [1, 10, 100, 400];
/// Longest packets of a net, and whether it reports longer ones. A net with an MTU below RFC 8899's base reports them, because
/// path MTU discovery would not find it otherwise.
const MTUS: [(Option<usize>, bool); 8] = [
    (None, true),
    (Some(1400), true),
    (Some(1200), true),
    (Some(600), true),
    (Some(9000), false),
    (Some(1400), false),
    (Some(1200), false),
    (Some(1200), false),
];

/// The nets between two hosts. Each is a pipe without delay that carries the packets to its addresses: the interceptor in front
/// of it holds them back.
#[derive(Debug)]
pub(crate) struct Nets {
    pipes: [PipeId; COUNT],
    delays: [Duration; COUNT],
}

impl Nets {
    /// Adds the nets to the network of two hosts.
    pub(crate) fn lay<A: Application>(simulation: &mut Simulation<A>) -> Self {
        let pipes = [(); COUNT].map(|()| simulation.network.add_pipe(&PipeConfig::default()));
        for (sender, receiver) in [(0, 1), (1, 0)] {
            let mut sources = simulation.node(sender).addresses().to_vec();
            for to in simulation.node(receiver).addresses().to_vec() {
                // The last one is the usual source.
                sources.sort_by_key(|from| of(*from) == of(to));
                for &from in &sources {
                    simulation.route(from, to, &[pipes[of(to)]]);
                }
            }
        }
        Nets { pipes, delays: [DELAY_MIN; COUNT] }
    }

    /// Changes one property of a net.
    pub(crate) fn change(&mut self, network: &mut Network<Bytes>, net: usize, what: u8) {
        let pipe = network.pipe_mut(self.pipes[net]);
        let choice = usize::from(what % 16);
        match choice {
            0..4 if pipe.config().loss == Loss::Always => pipe.set_loss(Loss::Never),
            0..4 => pipe.set_loss(Loss::Always),
            4..8 => self.delays[net] = Duration::from_millis(DELAYS_MS[choice - 4]),
            _ => {
                let (mtu_bytes, reports_too_big) = MTUS[choice - 8];
                let mtu_bytes = mtu_bytes.map(|bytes| bytes + LOWER_HEADER_BYTES);
                pipe.set_config(PipeConfig { mtu_bytes, reports_too_big, ..pipe.config().clone() });
            }
        }
    }

    /// Makes all nets carry packets again.
    pub(crate) fn repair(&self, network: &mut Network<Bytes>) {
        for &pipe in &self.pipes {
            network.pipe_mut(pipe).set_loss(Loss::Never);
        }
    }

    /// Returns the delay of packets to an address.
    pub(crate) fn delay(&self, to: IpAddr) -> Duration {
        self.delays[of(to)]
    }
}

/// Returns the net of an address; the first one for those that are on none.
pub(crate) fn of(address: IpAddr) -> usize {
    match address.to_canonical() {
        IpAddr::V4(v4) => usize::from(v4.octets()[1]) % COUNT,
        IpAddr::V6(_) => 0,
    }
}
