//! Hosts, the routes of pipes between them, and the packets on the way.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::pipe::{DropReason, Pipe, PipeConfig, Verdict};
use crate::random::Random;

/// A host of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostId(usize);

/// A pipe of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PipeId(usize);

/// A packet that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When it arrived.
    pub at_ns: u64,
    /// Where it arrived.
    pub host: HostId,
    /// Who sent it.
    pub from: SocketAddr,
    /// To which address of the host.
    pub to: SocketAddr,
    /// What it carries.
    pub payload: P,
}

/// What became of a packet at the first pipe of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOutcome {
    /// It is on its way; a later pipe may still drop it.
    Sent,
    /// The first pipe dropped it.
    Dropped(DropReason),
    /// A filter took it.
    Filtered,
    /// No route leads from the one address to the other.
    NoRoute,
}

/// What a network has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that have arrived.
    pub packets_delivered: u64,
    /// Packets that a pipe or a filter took, at any hop.
    pub packets_dropped: u64,
    /// Packets that had no route.
    pub packets_unroutable: u64,
}

type Filter<P> = Box<dyn FnMut(&P) -> bool + Send>;

/// Hosts joined by routes of pipes.
///
/// `P` is what packets carry: bytes, a captured packet, or a number in a test. See the crate's page for an example.
pub struct Network<P> {
    seed: u64,
    hosts: HashMap<IpAddr, HostId>,
    hosts_len: usize,
    pipes: Vec<Pipe>,
    filters: HashMap<PipeId, Filter<P>>,
    routes: HashMap<(IpAddr, IpAddr), Vec<PipeId>>,
    on_the_way: BinaryHeap<Traveller<P>>,
    /// Orders packets that arrive at the same instant as they were put on the way.
    sequence: u64,
    stats: NetworkStats,
}

impl<P> Network<P> {
    /// An empty network whose chances all come from `seed`.
    pub fn new(seed: u64) -> Self {
        Network {
            seed,
            hosts: HashMap::new(),
            hosts_len: 0,
            pipes: Vec::new(),
            filters: HashMap::new(),
            routes: HashMap::new(),
            on_the_way: BinaryHeap::new(),
            sequence: 0,
            stats: NetworkStats::default(),
        }
    }

    /// A host with these addresses.
    ///
    /// # Panics
    ///
    /// When another host has one of them.
    pub fn add_host(&mut self, addresses: &[IpAddr]) -> HostId {
        let host = HostId(self.hosts_len);
        self.hosts_len += 1;
        for address in addresses {
            let before = self.hosts.insert(*address, host);
            assert!(before.is_none(), "{address} belongs to two hosts");
        }
        host
    }

    /// A pipe that routes can use; several may share it.
    pub fn add_pipe(&mut self, config: &PipeConfig) -> PipeId {
        let id = PipeId(self.pipes.len());
        self.pipes.push(Pipe::with_random(config, Random::new(self.seed, id.0 as u64)));
        id
    }

    /// Packets from one address to another pass these pipes, in this order; those on the way pass what is left of it.
    pub fn set_route(&mut self, from: IpAddr, to: IpAddr, pipes: &[PipeId]) {
        self.routes.insert((from, to), pipes.to_vec());
    }

    /// A line between two addresses with a pipe each way; returns the pipe there and the pipe back.
    pub fn connect(&mut self, a: IpAddr, b: IpAddr, config: &PipeConfig) -> (PipeId, PipeId) {
        let (there, back) = (self.add_pipe(config), self.add_pipe(config));
        self.set_route(a, b, &[there]);
        self.set_route(b, a, &[back]);
        (there, back)
    }

    /// Drops what `drops` says at the near end of a pipe, before its loss and its queue: the way to lose one
    /// particular packet. It replaces an earlier filter.
    pub fn set_filter(&mut self, pipe: PipeId, drops: impl FnMut(&P) -> bool + Send + 'static) {
        self.filters.insert(pipe, Box::new(drops));
    }

    /// Lets everything pass again.
    pub fn clear_filter(&mut self, pipe: PipeId) {
        self.filters.remove(&pipe);
    }

    /// Sends a packet of `bytes` on the wire, headers included.
    pub fn send(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        to: SocketAddr,
        bytes: usize,
        payload: P,
    ) -> SendOutcome {
        self.stats.packets_sent += 1;
        let known = self.routes.contains_key(&(from.ip(), to.ip()));
        let Some(host) = self.hosts.get(&to.ip()).copied().filter(|_| known) else {
            self.stats.packets_unroutable += 1;
            return SendOutcome::NoRoute;
        };
        let delivery = Delivery { at_ns: now_ns, host, from, to, payload };
        let outcome = self.pass(delivery, bytes, 0);
        if !matches!(outcome, SendOutcome::Sent) {
            self.stats.packets_dropped += 1;
        }
        outcome
    }

    /// When something happens next: a packet arrives, here or at the next pipe of its route.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.on_the_way.peek().map(|traveller| traveller.delivery.at_ns)
    }

    /// The next packet that has arrived by `now_ns`, in the order of arrival. Call it until there is none.
    pub fn deliver(&mut self, now_ns: u64) -> Option<Delivery<P>> {
        while self.next_event_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            let Traveller { delivery, bytes, next_hop, .. } = self.on_the_way.pop()?;
            let hops = self.routes.get(&(delivery.from.ip(), delivery.to.ip())).map_or(0, Vec::len);
            if next_hop >= hops {
                self.stats.packets_delivered += 1;
                return Some(delivery);
            }
            if !matches!(self.pass(delivery, bytes, next_hop), SendOutcome::Sent) {
                self.stats.packets_dropped += 1;
            }
        }
        None
    }

    /// Packets on the way.
    pub fn in_flight(&self) -> usize {
        self.on_the_way.len()
    }

    /// A pipe, to look at.
    pub fn pipe(&self, id: PipeId) -> &Pipe {
        &self.pipes[id.0]
    }

    /// A pipe, to change: cut the line, script a loss, slow it down.
    pub fn pipe_mut(&mut self, id: PipeId) -> &mut Pipe {
        &mut self.pipes[id.0]
    }

    /// What the network has counted.
    pub fn stats(&self) -> NetworkStats {
        self.stats
    }

    /// Offers a packet to the pipe at `hop` of its route, at the time it is there.
    fn pass(&mut self, mut delivery: Delivery<P>, bytes: usize, hop: usize) -> SendOutcome {
        let route = self.routes.get(&(delivery.from.ip(), delivery.to.ip()));
        // A route of no pipes joins the addresses directly.
        if let Some(pipe) = route.and_then(|route| route.get(hop)).copied() {
            if let Some(drops) = self.filters.get_mut(&pipe)
                && drops(&delivery.payload)
            {
                return SendOutcome::Filtered;
            }
            match self.pipes[pipe.0].offer(delivery.at_ns, bytes) {
                Verdict::Deliver { at_ns } => delivery.at_ns = at_ns,
                Verdict::Drop(reason) => return SendOutcome::Dropped(reason),
            }
        }
        self.on_the_way.push(Traveller { delivery, bytes, next_hop: hop + 1, sequence: self.sequence });
        self.sequence += 1;
        SendOutcome::Sent
    }
}

impl<P> fmt::Debug for Network<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("seed", &self.seed)
            .field("hosts", &self.hosts_len)
            .field("pipes", &self.pipes.len())
            .field("in_flight", &self.on_the_way.len())
            .field("stats", &self.stats)
            .finish()
    }
}

/// A packet on its way to the next pipe of its route, or to its host.
struct Traveller<P> {
    delivery: Delivery<P>,
    bytes: usize,
    next_hop: usize,
    sequence: u64,
}

impl<P> Traveller<P> {
    fn key(&self) -> (u64, u64) {
        (self.delivery.at_ns, self.sequence)
    }
}

impl<P> PartialEq for Traveller<P> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<P> Eq for Traveller<P> {}

impl<P> PartialOrd for Traveller<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Traveller<P> {
    /// The heap gives the greatest first, and the earliest packet is to be that.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}
