//! Two hosts and a line between them; every packet is kept.

mod tap;

use std::fmt::Write as _;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use bytes::Bytes;
use netsim::PipeConfig;
use netsim::topology::{Link, Paths};
use sctp::{AssociationConfig, AssociationId, CloseReason, Event, SendInfo};
use sctp_wire::Packet;

pub use tap::{Fate, Sent};
use tap::{Tap, Tapped, Taps};

use crate::app::{App, AppEvent};
use crate::simulation::Simulation;

/// The host that usually connects.
pub const A: usize = 0;
/// The host that usually listens.
pub const B: usize = 1;
/// The SCTP port that [`TwoHosts::establish`] connects from.
pub const PORT_A: u16 = 5000;
/// The SCTP port that [`TwoHosts::establish`] connects to.
pub const PORT_B: u16 = 5001;
/// Number of the last packets that a failure shows.
const LOG_PACKETS: usize = 60;

/// Two hosts, [`A`] and [`B`], and a line between them.
///
/// A [`Simulation`] whose packets are kept and can be changed on their way into the line. An [`App`] on each host takes
/// messages and events from the protocol core and reads at once, slowly or never.
#[derive(Debug)]
pub struct TwoHosts {
    simulation: Simulation<App>,
    taps: Taps,
    /// The line of each path; `there` leads from A to B.
    pub links: Vec<Link>,
    /// Every packet that was sent, including lost ones.
    pub sent: Vec<Sent>,
}

impl Deref for TwoHosts {
    type Target = Simulation<App>;

    fn deref(&self) -> &Simulation<App> {
        &self.simulation
    }
}

impl DerefMut for TwoHosts {
    fn deref_mut(&mut self) -> &mut Simulation<App> {
        &mut self.simulation
    }
}

/// Returns a line of 10 ms and 100 Mbit/s.
pub fn line() -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(100_000_000),
        delay: Duration::from_millis(10),
        ..PipeConfig::default()
    }
}

impl TwoHosts {
    /// Returns two hosts on a [`line()`].
    pub fn new(seed: u64) -> Self {
        Self::with_line(seed, &line())
    }

    /// Returns two hosts on this line.
    pub fn with_line(seed: u64, config: &PipeConfig) -> Self {
        let mut simulation = Simulation::new(seed);
        for last in [1, 2] {
            simulation.add_host(&[[10, 0, 0, last].into()], App::default());
        }
        let (there, back) = simulation.join(A, B, config);
        TwoHosts { simulation, taps: Taps::default(), links: vec![Link { there, back }], sent: Vec::new() }
    }

    /// Returns two hosts with an address for each of these lines. Each line is a separate path: packets to an address of the
    /// other host take the line of that address, and leave from the own address of the same number.
    ///
    /// ```
    /// use lab::{A, B, TwoHosts, line};
    ///
    /// let mut hosts = TwoHosts::with_paths(1, &[line(), line()]);
    /// let (a, _) = hosts.establish();
    /// hosts.run_for(std::time::Duration::from_secs(1));
    /// assert!(hosts.statistics(A, a).paths.iter().all(|path| path.active));
    /// // The first is cut, there and back.
    /// let link = hosts.links[0];
    /// for pipe in [link.there, link.back] {
    ///     hosts.network.pipe_mut(pipe).set_loss(netsim::Loss::Always);
    /// }
    /// ```
    pub fn with_paths(seed: u64, configs: &[PipeConfig]) -> Self {
        let mut simulation = Simulation::new(seed);
        let Paths { a, b, links } = Paths::build(&mut simulation.network, configs);
        for site in [&a, &b] {
            simulation.add_site(site, App::default());
        }
        TwoHosts { simulation, taps: Taps::default(), links, sent: Vec::new() }
    }

    /// Returns the application of a host.
    pub fn app(&mut self, node: usize) -> &mut App {
        &mut self.simulation.node_mut(node).app
    }

    /// Sets the fate of each packet that a host sends, before the packet enters the line.
    pub fn tap(&mut self, node: usize, fate: impl FnMut(&Bytes) -> Fate + Send + 'static) {
        self.taps.set(node, Some(Tap::new(fate)));
    }

    /// Lets every packet of a host pass again.
    pub fn untap(&mut self, node: usize) {
        self.taps.set(node, None);
    }

    /// Drops everything that both hosts send from now on.
    pub fn cut(&mut self) {
        for node in [A, B] {
            self.tap(node, |_| Fate::Drop);
        }
    }

    /// Restarts the endpoint of a host, as after a crash: the new endpoint knows no association.
    pub fn reboot(&mut self, node: usize) {
        self.simulation.restart(node);
        self.app(node).forget_unread();
    }

    /// Makes B listen on [`PORT_B`].
    pub fn listen(&mut self, config: AssociationConfig) {
        self.simulation.listen(B, PORT_B, config);
    }

    /// Starts to connect one host's port to the other's.
    pub fn connect(&mut self, from: usize, ports: (u16, u16), config: AssociationConfig) -> AssociationId {
        self.simulation.connect(from, 1 - from, ports, config)
    }

    /// Connects A to B with default settings; returns the identifier of the association at each side.
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
        self.run_until("both sides are up", Duration::from_secs(10), |hosts| {
            hosts.is_up(A) && hosts.is_up(B)
        });
        (a, self.accepted(B))
    }

    /// Returns whether an association of the host came up.
    pub fn is_up(&self, node: usize) -> bool {
        self.node(node).app.saw(|e| matches!(e, Event::Connected { .. } | Event::Accepted { .. }))
    }

    /// Returns the last association that the host accepted.
    pub fn accepted(&self, node: usize) -> AssociationId {
        let accepted = |e: &&AppEvent| matches!(e.event, Event::Accepted { .. });
        self.node(node).app.events.iter().rev().find(accepted).expect("one was accepted").id
    }

    /// Returns why the association of a host ended, if one did.
    pub fn closed(&self, node: usize) -> Option<CloseReason> {
        self.node(node).app.events.iter().find_map(|e| match &e.event {
            Event::Closed(reason) => Some(reason.clone()),
            _ => None,
        })
    }

    /// Sends a message as soon as the association accepts it.
    pub fn send(&mut self, node: usize, id: AssociationId, info: SendInfo, message: impl Into<Bytes>) {
        self.send_all(node, id, [(info, message.into())]);
    }

    /// Sends messages, each as soon as the association accepts it.
    pub fn send_all(
        &mut self,
        node: usize,
        id: AssociationId,
        messages: impl IntoIterator<Item = (SendInfo, Bytes)>,
    ) {
        self.app(node).send(id, messages);
        self.exchange();
    }

    /// Returns whether every message was accepted.
    pub fn all_admitted(&self, node: usize) -> bool {
        self.node(node).app.all_admitted()
    }

    /// Shuts an association down.
    pub fn shutdown(&mut self, node: usize, id: AssociationId) {
        self.simulation.shutdown(node, id);
        self.exchange();
    }

    /// Aborts an association.
    pub fn abort(&mut self, node: usize, id: AssociationId, reason: &[u8]) {
        self.simulation.abort(node, id, reason);
        self.exchange();
    }

    /// Delivers a packet to a host that neither host has sent, as if it came from `from`.
    pub fn inject(&mut self, node: usize, from: std::net::SocketAddr, packet: &Bytes) {
        self.simulation.inject(node, from, packet);
        self.exchange();
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let TwoHosts { simulation, taps, sent, .. } = self;
        simulation.run_for_with(time, &mut Tapped { taps, sent });
    }

    /// Lets time pass until `done`; fails if that takes longer than `limit`.
    pub fn run_until(&mut self, what: &str, limit: Duration, mut done: impl FnMut(&TwoHosts) -> bool) {
        let end = self.now() + limit;
        self.exchange();
        while !done(self) {
            let TwoHosts { simulation, taps, sent, .. } = self;
            if !simulation.step(end, &mut Tapped { taps, sent }) {
                panic!("after {limit:?} it was not so that {what}; seed {}\n{}", self.seed(), self.log());
            }
        }
    }

    /// Lets the applications read and write, and transmits, until nothing moves.
    pub fn exchange(&mut self) {
        let TwoHosts { simulation, taps, sent, .. } = self;
        simulation.transmit_touched(&mut Tapped { taps, sent });
    }

    /// Returns the last packets as a ladder diagram, one per line.
    pub fn log(&self) -> String {
        let mut out = String::new();
        for sent in &self.sent[self.sent.len().saturating_sub(LOG_PACKETS)..] {
            let ms = sent.at.as_nanos() as f64 / 1e6;
            let by = ["A -->", "  <-- B"][sent.by.min(1)];
            let text = Packet::parse(&sent.packet).map_or_else(|e| e.to_string(), |p| p.to_string());
            let _ = writeln!(out, "{ms:12.3} ms {by:7} {} bytes {text}", sent.packet.len());
        }
        for (node, name) in [A, B].into_iter().zip(["A", "B"]) {
            let app = &self.node(node).app;
            let _ = writeln!(out, "{name}: {} messages, events {:?}", app.messages.len(), app.events);
        }
        out
    }
}
