//! Endpoints coupled by a simulated network on a virtual clock.
//!
//! A [`Lab`] has two hosts, [`A`] and [`B`], and a line between them. An [`App`] on each takes messages and events from
//! the protocol core and reads at once, slowly or never. Nothing looks at a clock, and all chance comes from the seed:
//! a run that failed can be run again.

mod tap;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use netsim::{HostId, Network, PipeConfig, PipeId};
use sctp::{
    Admission, AssociationConfig, AssociationId, BatchLimits, CloseReason, Endpoint, EndpointConfig, Event,
    Scope, SendInfo, Statistics, Time, TransmitBuffer,
};
use sctp_wire::Packet;

pub use tap::Fate;
use tap::{Delayed, Overtaken, Tap};

use crate::app::{App, Happened};

/// The host that usually connects.
pub const A: usize = 0;
/// The host that usually listens.
pub const B: usize = 1;
/// The SCTP port that [`Lab::establish`] connects from.
pub const PORT_A: u16 = 5000;
/// The SCTP port that [`Lab::establish`] connects to.
pub const PORT_B: u16 = 5001;
/// IPv4 and UDP headers, which the wire carries, too.
const LOWER_HEADER_BYTES: usize = 28;
/// How many of the last packets a failure shows.
const LOG_PACKETS: usize = 60;

/// A packet that a host sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Time,
    /// By which host.
    pub by: usize,
    /// The SCTP packet.
    pub packet: Bytes,
}

/// Messages that wait until the association admits them.
#[derive(Debug, Default)]
struct Backlog {
    messages: VecDeque<(SendInfo, Bytes)>,
    /// The association said that it is full; only `Writable` ends that.
    full: bool,
}

/// One host: an endpoint and the application on it.
#[derive(Debug)]
pub struct Node {
    /// The protocol.
    pub endpoint: Endpoint,
    /// Where it is reached.
    pub address: SocketAddr,
    /// Its application.
    pub app: App,
    host: HostId,
    backlog: BTreeMap<u32, Backlog>,
}

/// The hosts, the line and the clock.
#[derive(Debug)]
pub struct Lab {
    seed: u64,
    now: Time,
    /// The line, to cut it or to slow it down.
    pub network: Network<Bytes>,
    /// Pipe from A to B, and back.
    pub pipes: (PipeId, PipeId),
    nodes: Vec<Node>,
    taps: Vec<Option<Tap>>,
    delayed: Vec<Delayed>,
    overtaken: Vec<Overtaken>,
    /// Every packet that was sent, whatever became of it.
    pub sent: Vec<Sent>,
    buffer: TransmitBuffer,
}

/// A line of 10 ms and 100 Mbit/s.
pub fn line() -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(100_000_000),
        delay: Duration::from_millis(10),
        ..PipeConfig::default()
    }
}

impl Lab {
    /// Two hosts on a [`line()`].
    pub fn new(seed: u64) -> Self {
        Self::with_line(seed, &line())
    }

    /// Two hosts on a line of your own.
    pub fn with_line(seed: u64, config: &PipeConfig) -> Self {
        let mut network = Network::new(seed);
        let addresses = [SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899))];
        let nodes: Vec<Node> = (0..)
            .zip(addresses)
            .map(|(number, address)| Node {
                endpoint: Endpoint::new(EndpointConfig::default(), seed_bytes(seed, number), limits()),
                address,
                app: App::default(),
                host: network.add_host(&[address.ip()]),
                backlog: BTreeMap::new(),
            })
            .collect();
        let pipes = network.connect(addresses[A].ip(), addresses[B].ip(), config);
        Lab {
            seed,
            now: Time::ZERO,
            network,
            pipes,
            nodes,
            taps: vec![None, None],
            delayed: Vec::new(),
            overtaken: Vec::new(),
            sent: Vec::new(),
            buffer: TransmitBuffer::new(),
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A host.
    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// A host, to act on.
    pub fn node_mut(&mut self, node: usize) -> &mut Node {
        &mut self.nodes[node]
    }

    /// The application of a host.
    pub fn app(&mut self, node: usize) -> &mut App {
        &mut self.nodes[node].app
    }

    /// Tells what becomes of each packet that a host sends, before it enters the line.
    pub fn tap(&mut self, node: usize, fate: impl FnMut(&Bytes) -> Fate + Send + 'static) {
        self.taps[node] = Some(Tap::new(fate));
    }

    /// Lets every packet of a host pass again.
    pub fn untap(&mut self, node: usize) {
        self.taps[node] = None;
    }

    /// Drops everything that both hosts send from now on.
    pub fn cut(&mut self) {
        for node in [A, B] {
            self.tap(node, |_| Fate::Drop);
        }
    }

    /// Starts the endpoint of a host anew, as after a crash: it knows nothing of what was.
    pub fn reboot(&mut self, node: usize) {
        let seed = seed_bytes(self.seed ^ 0x5eed, node as u64 + 100);
        self.nodes[node].endpoint = Endpoint::new(EndpointConfig::default(), seed, limits());
        self.nodes[node].app.forget_unread();
        self.nodes[node].backlog.clear();
    }

    /// B listens on [`PORT_B`].
    pub fn listen(&mut self, config: AssociationConfig) {
        assert!(self.nodes[B].endpoint.listen(PORT_B, config), "the port was free");
    }

    /// Starts to connect one host's port to the other's.
    pub fn connect(&mut self, from: usize, ports: (u16, u16), config: AssociationConfig) -> AssociationId {
        let (now, remote) = (self.now, self.nodes[1 - from].address);
        let Node { endpoint, app, .. } = &mut self.nodes[from];
        endpoint
            .connect(now, ports.0, ports.1, &[remote], Arc::new(config), app)
            .expect("no such association yet")
    }

    /// Connects A to B with default settings and returns the association as each side names it.
    pub fn establish(&mut self) -> (AssociationId, AssociationId) {
        self.establish_with(AssociationConfig::default(), AssociationConfig::default())
    }

    /// Connects A to B.
    pub fn establish_with(
        &mut self,
        config_a: AssociationConfig,
        config_b: AssociationConfig,
    ) -> (AssociationId, AssociationId) {
        self.listen(config_b);
        let a = self.connect(A, (PORT_A, PORT_B), config_a);
        self.run_until("both sides are up", Duration::from_secs(10), |lab| lab.is_up(A) && lab.is_up(B));
        (a, self.accepted(B))
    }

    /// Whether an association of the host came up.
    pub fn is_up(&self, node: usize) -> bool {
        let up = |e: &Happened| matches!(e.event, Event::Connected { .. } | Event::Accepted { .. });
        self.nodes[node].app.events.iter().any(up)
    }

    /// The last association that the host accepted.
    pub fn accepted(&self, node: usize) -> AssociationId {
        let accepted = |e: &&Happened| matches!(e.event, Event::Accepted { .. });
        self.nodes[node].app.events.iter().rev().find(accepted).expect("one was accepted").id
    }

    /// Why the association of a host ended, if one did.
    pub fn closed(&self, node: usize) -> Option<CloseReason> {
        self.nodes[node].app.events.iter().find_map(|e| match &e.event {
            Event::Closed(reason) => Some(reason.clone()),
            _ => None,
        })
    }

    /// Counters of an association that is there.
    pub fn statistics(&self, node: usize, id: AssociationId) -> Statistics {
        self.nodes[node].endpoint.statistics(id).expect("the association is there")
    }

    /// Sends a message as soon as the association admits it.
    pub fn send(&mut self, node: usize, id: AssociationId, info: SendInfo, message: impl Into<Bytes>) {
        self.nodes[node].backlog.entry(id.0).or_default().messages.push_back((info, message.into()));
        self.pump();
    }

    /// Sends many messages, each as soon as the association admits it.
    pub fn send_all(
        &mut self,
        node: usize,
        id: AssociationId,
        messages: impl IntoIterator<Item = (SendInfo, Bytes)>,
    ) {
        self.nodes[node].backlog.entry(id.0).or_default().messages.extend(messages);
        self.pump();
    }

    /// Whether every message was admitted.
    pub fn all_admitted(&self, node: usize) -> bool {
        self.nodes[node].backlog.values().all(|b| b.messages.is_empty())
    }

    /// Sends no more on an association.
    pub fn shutdown(&mut self, node: usize, id: AssociationId) {
        let now = self.now;
        let Node { endpoint, app, .. } = &mut self.nodes[node];
        endpoint.shutdown(now, id, app);
        self.pump();
    }

    /// Ends an association at once.
    pub fn abort(&mut self, node: usize, id: AssociationId, reason: &[u8]) {
        let now = self.now;
        let Node { endpoint, app, .. } = &mut self.nodes[node];
        endpoint.abort(now, id, reason, app);
        self.pump();
    }

    /// Hands a host a packet that came from nowhere in the lab, as if `from` had sent it.
    pub fn inject(&mut self, node: usize, from: SocketAddr, packet: &Bytes) {
        let now = self.now;
        let Node { endpoint, app, address, .. } = &mut self.nodes[node];
        app.now = now;
        endpoint.handle_datagram(now, from, Some(address.ip()), packet, app);
        self.pump();
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.pump();
        while self.step(end) {}
        self.now = end;
    }

    /// Lets time pass until `done`; fails if that takes longer than `limit`.
    pub fn run_until(&mut self, what: &str, limit: Duration, mut done: impl FnMut(&Lab) -> bool) {
        let end = self.now + limit;
        self.pump();
        while !done(self) {
            if !self.step(end) {
                panic!("after {limit:?} it was not so that {what}; seed {}\n{}", self.seed, self.log());
            }
        }
    }

    /// The last packets, one a line, as a ladder.
    pub fn log(&self) -> String {
        let mut out = String::new();
        for sent in &self.sent[self.sent.len().saturating_sub(LOG_PACKETS)..] {
            let ms = sent.at.as_nanos() as f64 / 1e6;
            let by = ["A -->", "  <-- B"][sent.by.min(1)];
            let text = Packet::parse(&sent.packet).map_or_else(|e| e.to_string(), |p| p.to_string());
            let _ = writeln!(out, "{ms:12.3} ms {by:7} {} bytes {text}", sent.packet.len());
        }
        for (node, name) in self.nodes.iter().zip(["A", "B"]) {
            let _ =
                writeln!(out, "{name}: {} messages, events {:?}", node.app.messages.len(), node.app.events);
        }
        out
    }

    /// Goes to the next instant at which something happens and lets it happen. False: there is none until `end`.
    fn step(&mut self, end: Time) -> bool {
        let wakes = self.nodes.iter().flat_map(|n| [n.endpoint.poll_timeout(), n.app.next_read()]).flatten();
        let network = self.network.next_event_ns().map(Time::from_nanos);
        let delayed = self.delayed.iter().map(|d| d.at).min();
        let Some(next) = wakes.chain(network).chain(delayed).min().filter(|at| *at <= end) else {
            return false;
        };
        self.now = self.now.max(next);
        self.release_delayed();
        let mut arrived = Vec::new();
        while let Some(delivery) = self.network.deliver(self.now.as_nanos()) {
            arrived.push(delivery);
        }
        for delivery in arrived {
            let now = self.now;
            let Some(node) = self.nodes.iter_mut().find(|n| n.host == delivery.host) else { continue };
            node.app.now = now;
            let local = Some(delivery.to.ip());
            node.endpoint.handle_datagram(now, delivery.from, local, &delivery.payload, &mut node.app);
        }
        for node in &mut self.nodes {
            node.app.now = self.now;
            node.endpoint.handle_timeout(self.now, &mut node.app);
        }
        self.pump();
        true
    }

    /// Lets the applications read and write, and transmits, until nothing moves.
    pub fn pump(&mut self) {
        for number in 0..self.nodes.len() {
            loop {
                let node = &mut self.nodes[number];
                node.app.now = self.now;
                node.app.read(&mut node.endpoint);
                node.write();
                #[cfg(feature = "testing")]
                node.endpoint.assert_counters();
                let Some(transmit) = node.endpoint.poll_transmit(self.now, Scope::All, &mut self.buffer)
                else {
                    break;
                };
                let batch = self.buffer.to_vec();
                assert_eq!(batch.len(), transmit.total_bytes, "a batch is as long as it says");
                for packet in batch.chunks(transmit.segment_bytes) {
                    self.emit(number, transmit.remote, Bytes::copy_from_slice(packet));
                }
            }
        }
    }

    /// Puts a packet on the line, past the tap.
    fn emit(&mut self, by: usize, to: SocketAddr, packet: Bytes) {
        self.sent.push(Sent { at: self.now, by, packet: packet.clone() });
        let fate = self.taps[by].as_mut().map_or(Fate::Pass, |tap| tap.judge(&packet));
        match fate {
            Fate::Pass => self.put(by, to, packet),
            Fate::Drop => {}
            Fate::Twice => {
                self.put(by, to, packet.clone());
                self.put(by, to, packet);
            }
            Fate::Delay(time) => self.delayed.push(Delayed { at: self.now + time, by, to, packet }),
            Fate::Behind(left) => {
                self.overtaken.push(Overtaken { by, to, packet, left });
                return;
            }
            Fate::Replace(other) => self.put(by, to, other),
        }
        self.overtake(by);
    }

    /// A packet of `by` has passed: those that it was to overtake may follow.
    fn overtake(&mut self, by: usize) {
        for overtaken in self.overtaken.iter_mut().filter(|o| o.by == by) {
            overtaken.left = overtaken.left.saturating_sub(1);
        }
        let (ready, later) = std::mem::take(&mut self.overtaken).into_iter().partition(|o| o.left == 0);
        self.overtaken = later;
        let ready: Vec<Overtaken> = ready;
        for Overtaken { by, to, packet, .. } in ready {
            self.put(by, to, packet);
        }
    }

    fn put(&mut self, by: usize, to: SocketAddr, packet: Bytes) {
        let bytes = packet.len() + LOWER_HEADER_BYTES;
        let from = self.nodes[by].address;
        self.network.send(self.now.as_nanos(), from, to, bytes, packet);
    }

    fn release_delayed(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.delayed).into_iter().partition(|d| d.at <= now);
        self.delayed = later;
        let mut due: Vec<Delayed> = due;
        due.sort_by_key(|d| d.at);
        for Delayed { by, to, packet, .. } in due {
            self.put(by, to, packet);
        }
    }
}

impl Node {
    /// Hands in what the associations admit.
    fn write(&mut self) {
        for id in self.app.take_writable() {
            self.backlog.entry(id.0).or_default().full = false;
        }
        for (&id, backlog) in &mut self.backlog {
            let id = AssociationId(id);
            while !backlog.full
                && let Some((info, message)) = backlog.messages.front()
            {
                match self.endpoint.admit(id, info, message.len()) {
                    Admission::Idle | Admission::Room => {}
                    Admission::Full => {
                        backlog.full = true;
                        break;
                    }
                    Admission::Fail(_) => {
                        backlog.messages.clear();
                        break;
                    }
                }
                self.endpoint
                    .send(id, info, message.len(), [message.clone()])
                    .expect("what was admitted is taken");
                backlog.messages.pop_front();
            }
        }
    }
}

/// Batches as the UDP link takes them.
fn limits() -> BatchLimits {
    BatchLimits { segments_max: 64, bytes_max: 65_000 }
}

fn seed_bytes(seed: u64, node: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&node.to_le_bytes());
    bytes
}
