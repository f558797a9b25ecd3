//! Hosts, the routes of pipes between them, and the packets on the way.

mod recording;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::capture::{Fate, Recorder};
use crate::flow::{FlowId, Flows};
use crate::packet::{Delivery, HostId, NetworkStats, Packet, PipeId, SendOutcome, TooBig};
use crate::pipe::Pipe;
use crate::pipe_config::PipeConfig;
use crate::transit::Transit;
use crate::verdict::{Passage, Verdict};
use crate::{DropReason, Ecn, Payload};

/// Maximum number of reports of packets that were too long.
const TOO_BIG_MAX: usize = 256;

type Filter<P> = Box<dyn FnMut(&P) -> bool + Send>;

/// Hosts joined by routes of pipes.
///
/// `P` is the content of packets: bytes, a captured packet, or a number in a test. See the crate's page for an example.
pub struct Network<P> {
    seed: u64,
    hosts: HashMap<IpAddr, HostId>,
    hosts_len: usize,
    pipes: Vec<Pipe>,
    /// The filter of each pipe.
    filters: Vec<Option<Filter<P>>>,
    flows: Flows,
    /// Lane 0 is for routes without pipes, lane n + 1 for pipe n.
    transit: Transit<Traveller<P>>,
    too_big: VecDeque<TooBig<P>>,
    stats: NetworkStats,
    /// The recorder of captures, while at least one is open.
    recorder: Option<Box<Recorder>>,
}

/// A packet on its way to the next pipe of its route, or to its host.
#[derive(Clone, Debug)]
struct Traveller<P> {
    flow: FlowId,
    /// Number of pipes that it has passed.
    passed: u16,
    ecn: Ecn,
    corrupted: bool,
    bytes: usize,
    whole: bool,
    payload: P,
}

impl<P: Payload> Network<P> {
    /// Maximum number of pipes of a route.
    pub const ROUTE_PIPES_MAX: usize = u16::MAX as usize;

    /// Returns an empty network, whose random numbers all derive from `seed`.
    ///
    /// ```
    /// # use netsim::Network;
    /// assert_eq!(Network::<Vec<u8>>::new(7).in_flight(), 0);
    /// ```
    pub fn new(seed: u64) -> Self {
        let mut transit = Transit::new();
        transit.add_lane();
        Network {
            seed,
            hosts: HashMap::new(),
            hosts_len: 0,
            pipes: Vec::new(),
            filters: Vec::new(),
            flows: Flows::new(),
            transit,
            too_big: VecDeque::new(),
            stats: NetworkStats::default(),
            recorder: None,
        }
    }

    /// Adds a host with these addresses.
    ///
    /// # Panics
    ///
    /// Another host has one of the addresses.
    ///
    /// ```
    /// # use netsim::Network;
    /// let mut network = Network::<()>::new(7);
    /// let host = network.add_host(&["10.0.0.1".parse()?, "fd00::1".parse()?]);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn add_host(&mut self, addresses: &[IpAddr]) -> HostId {
        let host = HostId(self.hosts_len);
        self.hosts_len += 1;
        for address in addresses {
            let before = self.hosts.insert(*address, host);
            assert!(before.is_none(), "{address} belongs to two hosts");
        }
        host
    }

    /// Adds a pipe for routes; several routes may share it.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// let mut network = Network::<()>::new(7);
    /// let shared = network.add_pipe(&PipeConfig { queue_packets: 50, ..PipeConfig::default() });
    /// assert_eq!(network.pipe(shared).config().queue_packets, 50);
    /// ```
    pub fn add_pipe(&mut self, config: &PipeConfig) -> PipeId {
        let id = PipeId(self.pipes.len());
        self.pipes.push(Pipe::numbered(config, self.seed, id.0 as u64));
        self.filters.push(None);
        self.transit.add_lane();
        id
    }

    /// Sets the pipes that packets from one address to another pass, in this order; packets in flight pass the rest of the new
    /// route.
    ///
    /// # Panics
    ///
    /// There are more pipes than [`ROUTE_PIPES_MAX`](Self::ROUTE_PIPES_MAX).
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # network.send(0, a, b, 100, ());
    /// // Everything to b passes one more pipe from now on.
    /// let slow = network.add_pipe(&PipeConfig { rate_bits_per_s: Some(56_000), ..PipeConfig::default() });
    /// network.set_route(a.ip(), b.ip(), &[there, slow]);
    /// ```
    pub fn set_route(&mut self, from: IpAddr, to: IpAddr, pipes: &[PipeId]) {
        assert!(pipes.len() <= Self::ROUTE_PIPES_MAX, "a route of {} pipes is too long", pipes.len());
        self.flows.set_route(from, to, pipes);
    }

    /// Connects two addresses by a line with a pipe in each direction; returns both pipes.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// let mut network = Network::<()>::new(7);
    /// let (there, back) = network.connect("10.0.0.1".parse()?, "10.0.0.2".parse()?, &PipeConfig::default());
    /// assert_ne!(there, back);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn connect(&mut self, a: IpAddr, b: IpAddr, config: &PipeConfig) -> (PipeId, PipeId) {
        let (there, back) = (self.add_pipe(config), self.add_pipe(config));
        self.set_route(a, b, &[there]);
        self.set_route(b, a, &[back]);
        (there, back)
    }

    /// Drops the packets for which `drops` returns true at the near end of a pipe, before its loss and its queue, so that
    /// a test can lose one particular packet. Replaces an earlier filter.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # use netsim::SendOutcome;
    /// network.set_filter(there, |packet| *packet == "lose me");
    /// assert_eq!(network.send(0, a, b, 100, "lose me"), SendOutcome::Filtered);
    /// assert_eq!(network.send(0, a, b, 100, "not me"), SendOutcome::Sent);
    /// ```
    pub fn set_filter(&mut self, pipe: PipeId, drops: impl FnMut(&P) -> bool + Send + 'static) {
        self.filters[pipe.0] = Some(Box::new(drops));
    }

    /// Removes the filter of a pipe.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// network.set_filter(there, |_| true);
    /// network.clear_filter(there);
    /// network.send(0, a, b, 100, ());
    /// assert_eq!(network.in_flight(), 1);
    /// ```
    pub fn clear_filter(&mut self, pipe: PipeId) {
        self.filters[pipe.0] = None;
    }

    /// Returns the flow between two addresses, or `None` if no route leads to a host. A sender of many packets needs to
    /// ask only once. Later changes of the route apply to the flow.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # network.send(0, a, b, 100, ());
    /// assert!(network.flow(a, b).is_some());
    /// let nobody = SocketAddr::from(([10, 9, 9, 9], 9899));
    /// assert!(network.flow(a, nobody).is_none());
    /// ```
    pub fn flow(&mut self, from: SocketAddr, to: SocketAddr) -> Option<FlowId> {
        self.flows.find(from, to, &self.hosts)
    }

    /// Sends a packet of `bytes` on the wire, headers included, whose sender does not support ECN. `now_ns` must not
    /// decrease: call [`deliver`](Self::deliver) first for packets that have arrived by then, if routes have several pipes.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # use netsim::SendOutcome;
    /// assert_eq!(network.send(0, a, b, 1500, "hello"), SendOutcome::Sent);
    /// ```
    pub fn send(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        to: SocketAddr,
        bytes: usize,
        payload: P,
    ) -> SendOutcome {
        self.send_packet(now_ns, from, to, Packet { bytes, ecn: Ecn::NotCapable, whole: true, payload })
    }

    /// Sends a packet.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # use netsim::{Ecn, Packet};
    /// network.send_packet(0, a, b, Packet { bytes: 1500, ecn: Ecn::Ect0, whole: true, payload: "hello" });
    /// assert_eq!(network.deliver(0).map(|delivery| delivery.ecn), Some(Ecn::Ect0));
    /// ```
    pub fn send_packet(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        to: SocketAddr,
        packet: Packet<P>,
    ) -> SendOutcome {
        match self.flow(from, to) {
            Some(flow) => self.send_on(now_ns, flow, packet),
            None => {
                self.stats.packets_sent += 1;
                self.stats.packets_unroutable += 1;
                self.record_unroutable(now_ns, from, to, &packet);
                SendOutcome::NoRoute
            }
        }
    }

    /// Sends a packet on a flow of this network. `now_ns` never goes back.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # use netsim::{Ecn, Packet};
    /// let flow = network.flow(a, b).expect("they are connected");
    /// network.send_on(0, flow, Packet { bytes: 1500, ecn: Ecn::NotCapable, whole: true, payload: "hello" });
    /// assert_eq!(network.deliver(0).map(|delivery| delivery.payload), Some("hello"));
    /// ```
    pub fn send_on(&mut self, now_ns: u64, flow: FlowId, packet: Packet<P>) -> SendOutcome {
        self.stats.packets_sent += 1;
        let Packet { bytes, ecn, whole, payload } = packet;
        let traveller = Traveller { flow, passed: 0, ecn, corrupted: false, bytes, whole, payload };
        match self.flows.pipe(flow, 0) {
            Some(pipe) => self.pass(now_ns, pipe, traveller),
            // A route of no pipes joins the addresses directly.
            None => {
                self.record_offered(now_ns, None, &traveller, Fate::Direct);
                self.transit.push(0, now_ns, traveller);
                SendOutcome::Sent
            }
        }
    }

    /// Returns the time of the next event: a packet arrives, here or at the next pipe of its route.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// network.send(5, a, b, 1500, "hello");
    /// assert_eq!(network.next_event_ns(), Some(5));
    /// ```
    pub fn next_event_ns(&self) -> Option<u64> {
        self.transit.next_ns()
    }

    /// Returns the next packet that has arrived by `now_ns`, in the order of arrival. Call this until it returns `None`.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// network.send(5, a, b, 1500, "hello");
    /// assert_eq!(network.deliver(4), None);
    /// assert_eq!(network.deliver(5).map(|delivery| delivery.payload), Some("hello"));
    /// ```
    pub fn deliver(&mut self, now_ns: u64) -> Option<Delivery<P>> {
        while let Some((at_ns, traveller)) = self.transit.pop_due(now_ns) {
            if let Some(pipe) = self.flows.pipe(traveller.flow, traveller.passed.into()) {
                self.pass(at_ns, pipe, traveller);
                continue;
            }
            self.stats.packets_delivered += 1;
            if let Some(recorder) = &mut self.recorder {
                let flow = self.flows.get(traveller.flow);
                recorder.arrived(flow.host, &traveller.sight(at_ns, flow));
            }
            let Traveller { flow, ecn, corrupted, payload, .. } = traveller;
            let flow = self.flows.get(flow);
            let (host, from, to) = (flow.host, flow.from, flow.to);
            return Some(Delivery { at_ns, host, from, to, ecn, corrupted, payload });
        }
        None
    }

    /// Returns the next report of a packet that was too long for a pipe with
    /// [`PipeConfig::reports_too_big`](crate::PipeConfig::reports_too_big). The report is available at the time of the drop:
    /// its way back to the sender is not simulated. The network keeps the last 256 reports. See [`TooBig`] for an example.
    pub fn too_big(&mut self) -> Option<TooBig<P>> {
        self.too_big.pop_front()
    }

    /// Returns the number of packets in flight.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// network.send(5, a, b, 1500, "hello");
    /// assert_eq!(network.in_flight(), 1);
    /// ```
    pub fn in_flight(&self) -> usize {
        self.transit.len()
    }

    /// Returns a pipe.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # network.send(0, a, b, 1500, ());
    /// assert_eq!(network.pipe(there).stats().packets_offered, 1);
    /// ```
    pub fn pipe(&self, id: PipeId) -> &Pipe {
        &self.pipes[id.0]
    }

    /// Returns a pipe for changes: to cut the line, script a loss, or slow it down.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # use netsim::Loss;
    /// network.pipe_mut(there).set_loss(Loss::Always);
    /// network.send(0, a, b, 1500, "hello?");
    /// assert_eq!(network.in_flight(), 0);
    /// ```
    pub fn pipe_mut(&mut self, id: PipeId) -> &mut Pipe {
        &mut self.pipes[id.0]
    }

    /// Returns all pipes, in the order in which they were added.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # network.send(0, a, b, 1500, ());
    /// assert_eq!(network.pipe_ids().collect::<Vec<_>>(), [there, back]);
    /// ```
    pub fn pipe_ids(&self) -> impl ExactSizeIterator<Item = PipeId> + use<P> {
        (0..self.pipes.len()).map(PipeId)
    }

    /// Returns the counters of the network.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// network.send(0, a, b, 1500, "hello");
    /// assert_eq!(network.stats().packets_sent, 1);
    /// ```
    pub fn stats(&self) -> NetworkStats {
        self.stats
    }

    pub(crate) fn hosts_len(&self) -> usize {
        self.hosts_len
    }

    /// Offers a packet to the next pipe of its route.
    fn pass(&mut self, now_ns: u64, pipe: PipeId, traveller: Traveller<P>) -> SendOutcome {
        if let Some(drops) = &mut self.filters[pipe.0]
            && drops(&traveller.payload)
        {
            self.stats.packets_dropped += 1;
            self.record_offered(now_ns, Some(pipe), &traveller, Fate::Filtered);
            return SendOutcome::Filtered;
        }
        let Traveller { bytes, ecn, whole, .. } = traveller;
        let verdict = if whole {
            self.pipes[pipe.0].offer_with_ecn(now_ns, bytes, ecn)
        } else {
            self.pipes[pipe.0].offer_in_pieces(now_ns, bytes, ecn)
        };
        if self.recorder.is_some() {
            self.record_offered(now_ns, Some(pipe), &traveller, verdict.into());
        }
        match verdict {
            Verdict::Deliver(passage) => {
                self.travel(pipe, passage, traveller);
                SendOutcome::Sent
            }
            Verdict::Drop(reason) => {
                self.stats.packets_dropped += 1;
                if reason == DropReason::TooBig {
                    self.report_too_big(pipe, traveller);
                }
                SendOutcome::Dropped(reason)
            }
        }
    }

    fn report_too_big(&mut self, pipe: PipeId, traveller: Traveller<P>) {
        let config = self.pipes[pipe.0].config();
        let Some(mtu_bytes) = config.mtu_bytes.filter(|_| config.reports_too_big) else { return };
        if self.too_big.len() >= TOO_BIG_MAX {
            self.too_big.pop_front();
        }
        let flow = self.flows.get(traveller.flow);
        let (host, from, to) = (flow.from_host, flow.from, flow.to);
        self.too_big.push_back(TooBig { host, from, to, mtu_bytes, payload: traveller.payload });
    }

    /// Sends a packet through a pipe that accepts it.
    fn travel(&mut self, pipe: PipeId, passage: Passage, mut traveller: Traveller<P>) {
        let lane = pipe.0 + 1;
        traveller.passed += 1;
        traveller.ecn = passage.ecn;
        let copy = passage.copy_at_ns.map(|at_ns| (at_ns, traveller.clone()));
        if let Some(flips) = passage.flips {
            flips.apply(&mut traveller.payload);
            traveller.corrupted = true;
        }
        match passage.behind {
            None if passage.late => self.transit.push_late(lane, passage.at_ns, traveller),
            None => self.transit.push(lane, passage.at_ns, traveller),
            Some(behind) => self.transit.push_behind(lane, passage.at_ns, behind, traveller),
        }
        if let Some((at_ns, copy)) = copy {
            self.stats.packets_copied += 1;
            self.transit.push(lane, at_ns, copy);
        }
    }
}

impl<P> fmt::Debug for Network<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("seed", &self.seed)
            .field("hosts", &self.hosts_len)
            .field("pipes", &self.pipes.len())
            .field("in_flight", &self.transit.len())
            .field("stats", &self.stats)
            .finish()
    }
}
