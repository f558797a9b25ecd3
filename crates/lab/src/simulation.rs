//! Endpoints, the network between them, and the clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use netsim::topology::Site;
use netsim::{Ecn, HostId, Network, PipeConfig, PipeId};
use sctp::trace::Record;
use sctp::{
    Arrival, AssociationConfig, AssociationId, BatchLimits, Endpoint, EndpointConfig, Host, Piece, Scope,
    Statistics, Time, TransmitBuffer, Unreachable,
};

use crate::wire::{Direct, LOWER_HEADER_BYTES, Outgoing, Wire};

/// The UDP port of every host (RFC 6951).
pub const UDP_PORT: u16 = 9899;
/// Number of bytes of a packet that a report about its loss quotes.
const QUOTED_BYTES: usize = 512;
/// Limits of batches, the same as those of the UDP link.
const LIMITS: BatchLimits = BatchLimits { segments_max: 64, bytes_max: 65_000 };

/// A program on a host.
pub trait Application: Host {
    /// Sets the time, before every input of the core.
    fn set_now(&mut self, now: Time);

    /// Reads received data and sends data. Called after every event of the host.
    fn act(&mut self, endpoint: &mut Endpoint);

    /// Returns the time at which the application acts without an event.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Takes a record of a traced association.
    fn traced(&mut self, _record: Record) {}
}

/// One host: an endpoint and the application on it.
#[derive(Debug)]
pub struct Node<A> {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Its application.
    pub app: A,
    /// Its first address.
    pub address: SocketAddr,
    host: HostId,
    addresses: Vec<IpAddr>,
    /// Source address of packets to each address.
    sources: HashMap<IpAddr, IpAddr>,
    /// Number of its restarts.
    restarts: u64,
    /// The valid entry in the heap of deadlines.
    armed: Option<Time>,
    touched: bool,
}

impl<A> Node<A> {
    /// Returns the host as the network names it.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Returns the addresses of the host.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns the addresses of the host with the port.
    pub fn sockets(&self) -> Vec<SocketAddr> {
        self.addresses.iter().map(|&address| SocketAddr::new(address, UDP_PORT)).collect()
    }

    fn source(&self, to: IpAddr) -> IpAddr {
        self.sources.get(&to).copied().unwrap_or(self.address.ip())
    }
}

/// Receiver of the records of traced associations.
struct TraceSink(Option<Box<dyn FnMut(usize, Record) + Send>>);

impl fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TraceSink").field(&self.0.is_some()).finish()
    }
}

/// Hosts with an endpoint and an application each, a network and a clock.
///
/// Only hosts to which something happened cost anything: their next deadlines are in a heap.
///
/// # Examples
///
/// A file of 1 MB on a line of 100 Mbit/s.
///
/// ```
/// use std::time::Duration;
/// use lab::{Simulation, line, traffic::{Source, Traffic}};
/// use sctp::AssociationConfig;
///
/// let mut simulation: Simulation<Traffic> = Simulation::new(1);
/// let a = simulation.add_host(&["10.0.0.1".parse()?], Traffic::default());
/// let b = simulation.add_host(&["10.0.0.2".parse()?], Traffic::default());
/// simulation.join(a, b, &line());
/// simulation.listen(b, 5001, AssociationConfig::default());
/// let id = simulation.connect(a, b, (5000, 5001), AssociationConfig::default());
/// simulation.node_mut(a).app.start(id, Source::file(1_000_000, 1444));
/// assert!(simulation.run_until(Duration::from_secs(5), |simulation| simulation.node(b).app.received().bytes == 1_000_000));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug)]
pub struct Simulation<A> {
    /// The network, for changes of its pipes.
    pub network: Network<Bytes>,
    seed: u64,
    now: Time,
    config: EndpointConfig,
    nodes: Vec<Node<A>>,
    numbers: HashMap<HostId, usize>,
    deadlines: BinaryHeap<Reverse<(Time, usize)>>,
    touched: Vec<usize>,
    buffer: TransmitBuffer,
    memory: BytesMut,
    trace_sink: TraceSink,
}

impl<A: Application> Simulation<A> {
    /// Returns a simulation without hosts. All random numbers derive from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::with_endpoints(seed, EndpointConfig::default())
    }

    /// Returns a simulation without hosts; the endpoints of future hosts have this configuration.
    pub fn with_endpoints(seed: u64, config: EndpointConfig) -> Self {
        Simulation {
            network: Network::new(seed),
            seed,
            now: Time::ZERO,
            config,
            nodes: Vec::new(),
            numbers: HashMap::new(),
            deadlines: BinaryHeap::new(),
            touched: Vec::new(),
            buffer: TransmitBuffer::new(),
            memory: BytesMut::new(),
            trace_sink: TraceSink(None),
        }
    }

    /// Adds a host with these addresses; returns its number.
    ///
    /// # Panics
    ///
    /// `addresses` is empty, or another host has one of them.
    pub fn add_host(&mut self, addresses: &[IpAddr], app: A) -> usize {
        let host = self.network.add_host(addresses);
        self.attach(host, addresses, HashMap::new(), app)
    }

    /// Adds an endpoint to a host that a topology of `netsim` has put into the network; returns its number.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lab::{Simulation, line, traffic::{Source, Traffic}};
    /// use netsim::topology::Dumbbell;
    /// use sctp::AssociationConfig;
    ///
    /// let mut simulation: Simulation<Traffic> = Simulation::new(1);
    /// let dumbbell = Dumbbell::build(&mut simulation.network, 2, &line(), &line());
    /// for (left, right) in dumbbell.left.iter().zip(&dumbbell.right) {
    ///     let (a, b) = (simulation.add_site(left, Traffic::default()), simulation.add_site(right, Traffic::default()));
    ///     simulation.listen(b, 5001, AssociationConfig::default());
    ///     let id = simulation.connect(a, b, (5000, 5001), AssociationConfig::default());
    ///     simulation.node_mut(a).app.start(id, Source::file(100_000, 1444));
    /// }
    /// let received = |simulation: &Simulation<Traffic>| [1, 3].map(|node| simulation.node(node).app.received().bytes);
    /// assert!(simulation.run_until(Duration::from_secs(5), |simulation| received(simulation) == [100_000; 2]));
    /// ```
    ///
    /// # Panics
    ///
    /// When it has no address.
    pub fn add_site(&mut self, site: &Site, app: A) -> usize {
        self.attach(site.host, &site.addresses, site.sources.iter().copied().collect(), app)
    }

    fn attach(
        &mut self,
        host: HostId,
        addresses: &[IpAddr],
        sources: HashMap<IpAddr, IpAddr>,
        app: A,
    ) -> usize {
        let number = self.nodes.len();
        let seed = seed_bytes(self.seed, number, 0);
        let mut endpoint = Endpoint::new(self.config.clone(), seed, LIMITS);
        endpoint.set_local_addresses(addresses.to_vec());
        self.numbers.insert(host, number);
        self.nodes.push(Node {
            endpoint,
            app,
            address: SocketAddr::new(addresses[0], UDP_PORT),
            host,
            addresses: addresses.to_vec(),
            sources,
            restarts: 0,
            armed: None,
            touched: false,
        });
        number
    }

    /// Connects the first addresses of two hosts by a line; returns both pipes.
    pub fn join(&mut self, a: usize, b: usize, config: &PipeConfig) -> (PipeId, PipeId) {
        let (from, to) = (self.nodes[a].address.ip(), self.nodes[b].address.ip());
        let (there, back) = (self.network.add_pipe(config), self.network.add_pipe(config));
        self.route(from, to, &[there]);
        self.route(to, from, &[back]);
        (there, back)
    }

    /// Routes packets from one address to another through these pipes, in this order; the sending host uses the first
    /// address as source.
    ///
    /// # Panics
    ///
    /// No host has the first address.
    pub fn route(&mut self, from: IpAddr, to: IpAddr, pipes: &[PipeId]) {
        self.network.set_route(from, to, pipes);
        let node = self.nodes.iter_mut().find(|node| node.addresses.contains(&from));
        node.expect("a host has the address").sources.insert(to, from);
    }

    /// Restarts the endpoint of a host, as after a crash: the new endpoint knows no association.
    pub fn restart(&mut self, node: usize) {
        self.touch(node);
        let Node { endpoint, addresses, restarts, .. } = &mut self.nodes[node];
        *restarts += 1;
        *endpoint = Endpoint::new(self.config.clone(), seed_bytes(self.seed, node, *restarts), LIMITS);
        endpoint.set_local_addresses(addresses.clone());
    }

    /// Traces every association that is connected from now on, at the connecting host. `take` also gets the number of
    /// that host. Without this call, the application gets the records of associations that it traces.
    pub fn trace(&mut self, take: impl FnMut(usize, Record) + Send + 'static) {
        self.trace_sink = TraceSink(Some(Box::new(take)));
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a host.
    pub fn node(&self, node: usize) -> &Node<A> {
        &self.nodes[node]
    }

    /// Returns a host for changes.
    pub fn node_mut(&mut self, node: usize) -> &mut Node<A> {
        self.touch(node);
        &mut self.nodes[node]
    }

    /// Makes a host listen on a port.
    ///
    /// # Panics
    ///
    /// The host listens on the port already.
    pub fn listen(&mut self, node: usize, port: u16, config: AssociationConfig) {
        self.nodes[node].endpoint.listen(port, config).expect("the port is free");
    }

    /// Starts to connect a port of one host to a port at the first address of another.
    ///
    /// # Panics
    ///
    /// These ports are connected already.
    pub fn connect(
        &mut self,
        from: usize,
        to: usize,
        ports: (u16, u16),
        mut config: AssociationConfig,
    ) -> AssociationId {
        config.trace |= self.trace_sink.0.is_some();
        let (now, remote) = (self.now, self.nodes[to].address);
        let Node { endpoint, app, .. } = self.node_mut(from);
        endpoint
            .connect(now, ports.0, ports.1, &[remote], Arc::new(config), app)
            .expect("no such association yet")
    }

    /// Returns the counters of an association.
    ///
    /// # Panics
    ///
    /// The association does not exist.
    pub fn statistics(&self, node: usize, id: AssociationId) -> Statistics {
        self.nodes[node].endpoint.statistics(id).expect("the association is there")
    }

    /// Shuts an association down.
    pub fn shutdown(&mut self, node: usize, id: AssociationId) {
        let now = self.now;
        let Node { endpoint, app, .. } = self.node_mut(node);
        app.set_now(now);
        endpoint.shutdown(now, id, app);
    }

    /// Aborts an association.
    pub fn abort(&mut self, node: usize, id: AssociationId, reason: &[u8]) {
        let now = self.now;
        let Node { endpoint, app, .. } = self.node_mut(node);
        app.set_now(now);
        endpoint.abort(now, id, reason, app);
    }

    /// Delivers a packet to a host that no host has sent, as if it came from `from`.
    pub fn inject(&mut self, node: usize, from: SocketAddr, packet: &Bytes) {
        let local = Some(self.nodes[node].address.ip());
        let segment_bytes = packet.len();
        self.arrive(
            node,
            &Arrival {
                remote: from,
                local,
                marked: false,
                in_memory: false,
                segment_bytes,
                bytes: packet,
                shared: &[],
            },
        );
    }

    /// Delivers packets that arrive together to a host, whether or not another host has sent them.
    pub fn arrive(&mut self, node: usize, arrival: &Arrival<'_>) {
        let now = self.now;
        let Node { endpoint, app, .. } = self.node_mut(node);
        app.set_now(now);
        endpoint.handle_batch(now, arrival, app);
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        self.run_for_with(time, &mut Direct);
    }

    /// Lets time pass until `done` returns true; returns false if that takes longer than `limit`.
    pub fn run_until(&mut self, limit: Duration, done: impl FnMut(&Self) -> bool) -> bool {
        let mut done = done;
        let end = self.now + limit;
        self.transmit_touched(&mut Direct);
        while !done(self) {
            if !self.step(end, &mut Direct) {
                return false;
            }
        }
        true
    }

    /// Lets time pass, with a stage between the hosts and the network.
    pub fn run_for_with(&mut self, time: Duration, wire: &mut impl Wire) {
        let end = self.now + time;
        while self.step(end, wire) {}
        self.now = end;
    }

    /// Advances to the next event and handles it. Returns false if there is none before `end`.
    pub fn step(&mut self, end: Time, wire: &mut impl Wire) -> bool {
        self.transmit_touched(wire);
        let Some(next) = self.next_event(wire).filter(|at| *at <= end) else { return false };
        self.now = self.now.max(next);
        wire.release(self.now, &mut self.network);
        self.deliver();
        self.expire();
        self.transmit_touched(wire);
        true
    }

    /// Returns the time of the next event, once all hosts have transmitted.
    pub fn next_event(&self, wire: &impl Wire) -> Option<Time> {
        let network = self.network.next_event_ns().map(Time::from_nanos);
        let deadline = self.deadlines.peek().map(|Reverse((at, _))| *at);
        [network, deadline, wire.deadline()].into_iter().flatten().min()
    }

    /// Lets applications act and endpoints transmit on all hosts with events.
    pub fn transmit_touched(&mut self, wire: &mut impl Wire) {
        while let Some(number) = self.touched.pop() {
            self.transmit(number, wire);
            self.nodes[number].touched = false;
            self.report_too_big();
            let node = &mut self.nodes[number];
            let deadline = next_deadline(node);
            if let Some(at) = deadline
                && node.armed.is_none_or(|armed| at < armed)
            {
                node.armed = Some(at);
                self.deadlines.push(Reverse((at, number)));
            }
        }
    }

    fn touch(&mut self, node: usize) {
        if !self.nodes[node].touched {
            self.nodes[node].touched = true;
            self.touched.push(node);
        }
    }

    /// Delivers the packets that have arrived by now.
    fn deliver(&mut self) {
        while let Some(delivery) = self.network.deliver(self.now.as_nanos()) {
            let Some(&number) = self.numbers.get(&delivery.host) else { continue };
            let arrival = Arrival {
                remote: delivery.from,
                local: Some(delivery.to.ip()),
                marked: delivery.ecn == Ecn::CongestionExperienced,
                in_memory: false,
                segment_bytes: delivery.payload.len(),
                bytes: &delivery.payload,
                shared: &[],
            };
            self.arrive(number, &arrival);
        }
        self.report_too_big();
    }

    /// Reports to hosts the packets that were too long for a line which reports that.
    fn report_too_big(&mut self) {
        while let Some(report) = self.network.too_big() {
            let Some(&number) = report.host.and_then(|host| self.numbers.get(&host)) else { continue };
            let quoted = report.payload.slice(..report.payload.len().min(QUOTED_BYTES));
            let why = Unreachable::TooBig { mtu_bytes: report.mtu_bytes.saturating_sub(LOWER_HEADER_BYTES) };
            self.report(number, report.to, why, &quoted);
        }
    }

    /// Reports to a host that the network could not deliver a packet to `remote` which begins with `quoted`.
    pub fn report(&mut self, node: usize, remote: SocketAddr, why: Unreachable, quoted: &[u8]) {
        let now = self.now;
        let Node { endpoint, app, .. } = self.node_mut(node);
        app.set_now(now);
        endpoint.handle_unreachable(now, remote, why, quoted, app);
    }

    /// Handles expired deadlines.
    fn expire(&mut self) {
        while let Some(&Reverse((at, number))) = self.deadlines.peek()
            && at <= self.now
        {
            self.deadlines.pop();
            if self.nodes[number].armed != Some(at) {
                continue;
            }
            self.touch(number);
            let Node { endpoint, app, armed, .. } = &mut self.nodes[number];
            *armed = None;
            app.set_now(self.now);
            endpoint.handle_timeout(self.now, app);
        }
    }

    fn transmit(&mut self, number: usize, wire: &mut impl Wire) {
        let now = self.now;
        loop {
            let node = &mut self.nodes[number];
            node.app.set_now(now);
            node.app.act(&mut node.endpoint);
            while let Some(record) = node.endpoint.poll_trace() {
                match &mut self.trace_sink {
                    TraceSink(Some(take)) => take(number, record),
                    TraceSink(None) => node.app.traced(record),
                }
            }
            #[cfg(feature = "testing")]
            node.endpoint.assert_counters();
            let Some(transmit) = node.endpoint.poll_transmit(now, Scope::All, &mut self.buffer) else {
                return;
            };
            let mut batch = gather(&self.buffer, transmit.total_bytes, &mut self.memory);
            assert_eq!(batch.len(), transmit.total_bytes, "a batch is as long as it says");
            let source = transmit.local.unwrap_or_else(|| node.source(transmit.remote.ip()));
            let from = SocketAddr::new(source, UDP_PORT);
            let ecn = if transmit.ecn_capable { Ecn::Ect0 } else { Ecn::NotCapable };
            while !batch.is_empty() {
                let packet = batch.split_to(transmit.segment_bytes.min(batch.len()));
                let whole = !transmit.may_fragment;
                let packet = Outgoing {
                    at: now,
                    by: number,
                    from,
                    to: transmit.remote,
                    ecn,
                    dscp: transmit.dscp,
                    whole,
                    packet,
                };
                wire.emit(packet, &mut self.network);
            }
        }
    }
}

fn next_deadline<A: Application>(node: &Node<A>) -> Option<Time> {
    [node.endpoint.poll_timeout(), node.app.deadline()].into_iter().flatten().min()
}

/// Joins a batch in memory that it shares with others: one allocation for dozens of packets.
fn gather(buffer: &TransmitBuffer, bytes: usize, memory: &mut BytesMut) -> Bytes {
    memory.reserve(bytes);
    for piece in buffer.pieces() {
        match piece {
            Piece::Inline(range) => memory.extend_from_slice(&buffer.inline()[range.clone()]),
            Piece::Shared(block) => memory.extend_from_slice(block),
        }
    }
    memory.split().freeze()
}

/// Returns the seed of an endpoint. After a restart it differs, so that no tag or cookie is valid again.
fn seed_bytes(seed: u64, node: usize, restarts: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(node as u64).to_le_bytes());
    bytes[16..24].copy_from_slice(&restarts.to_le_bytes());
    bytes
}
