//! One case: a network, programs and faults drawn from a seed, and the guarantees that hold for all of them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use lab::bounds::assert_bounded;
use lab::delivery_log::{DeliveryLog, Record};
use lab::{Reading, Simulation};
use netsim::topology::RandomLimits;
use sctp::{AssociationConfig, AssociationId, CloseReason, PathId, SendInfo};

use crate::app::{self, App, Wish};
use crate::chatter;
use crate::dice::Dice;
use crate::settings;
use crate::trace::Trace;

/// The port on which every host listens.
const PORT: u16 = 5001;
/// Virtual time that the network may take to deliver everything, and then to end everything.
const PROGRESS_LIMIT: Duration = Duration::from_secs(50_000);
/// Limit of the bytes that all programs of a case send together.
const BYTES_MAX: usize = 2_000_000;
/// The longest record.
const RECORD_BYTES_MAX: u64 = 60_000;

/// Outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of every packet and every end of an association.
    pub trace: u64,
    pub packets: u64,
    pub associations: usize,
    pub records: u64,
}

struct Case {
    dice: Dice,
    simulation: Simulation<App>,
    wire: Trace,
    configs: Vec<AssociationConfig>,
    /// Nothing ends an association but its shutdown.
    peaceful: bool,
    /// A program has shut down while others had more to send, and the core gives up after a while (RFC 9260 §9.2, T5).
    early: bool,
    /// Some lines may lose several packets in a row.
    lossy: bool,
    talks: bool,
    /// Whether associations are to end.
    ends: bool,
    left_bytes: usize,
    records: u64,
}

/// Runs the case of a seed. Panics if a guarantee is broken.
pub fn run(seed: u64) -> Outcome {
    let mut case = Case::new(seed);
    case.connect_some();
    for _ in 0..case.dice.even(1, 16) {
        case.act();
        let time = Duration::from_micros(case.dice.skewed(0, 3_000_000));
        case.simulation.run_for_with(time, &mut case.wire);
        case.check();
    }
    case.finish()
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let patient = !dice.one_in(4);
        let peaceful = patient && !dice.one_in(3);
        let mut simulation = Simulation::new(seed);
        let hosts = if dice.one_in(3) { dice.even(3, 5) } else { 2 };
        let paths = dice.pick(&[1, 1, 2, 3]);
        let mut configs = Vec::new();
        for host in 0..hosts {
            let addresses: Vec<IpAddr> = (0..paths).map(|path| address(host, path)).collect();
            simulation.add_host(&addresses, App::new(settings::hints(&mut dice)));
            let config = settings::association(&mut dice, patient, !peaceful);
            configs.push(AssociationConfig { events: !seed.is_multiple_of(3), ..config });
        }
        let lines = settings::lines(&mut dice);
        lay_lines(&mut dice, &mut simulation, &lines, paths as usize);
        for (host, config) in configs.iter().enumerate() {
            simulation.listen(host, PORT, config.clone());
        }
        Case {
            peaceful,
            early: false,
            lossy: lines.loss_max > 0.0,
            talks: dice.one_in(2),
            ends: false,
            dice,
            simulation,
            wire: Trace::new(),
            configs,
            left_bytes: BYTES_MAX,
            records: 0,
        }
    }

    fn host(&mut self) -> usize {
        self.dice.next() as usize % self.simulation.hosts()
    }

    fn other_host(&mut self, host: usize) -> usize {
        (host + self.dice.even(1, self.simulation.hosts() as u64 - 1) as usize) % self.simulation.hosts()
    }

    fn connect_some(&mut self) {
        for _ in 0..self.dice.even(1, 3) {
            let host = self.host();
            self.connect(host);
        }
        let time = Duration::from_millis(self.dice.skewed(0, 2000));
        self.simulation.run_for_with(time, &mut self.wire);
    }

    fn connect(&mut self, host: usize) {
        let to = self.other_host(host);
        // Equal ports at both ends make two hosts that connect at once meet (RFC 9260 §5.2.1).
        let port = self.dice.pick(&[PORT, 6000, 6001, 6002]);
        let mut remotes = self.simulation.node(to).sockets();
        remotes.truncate(self.dice.even(1, remotes.len() as u64) as usize);
        let (now, config) = (self.simulation.now(), Arc::new(self.configs[host].clone()));
        let node = self.simulation.node_mut(host);
        if let Ok(id) = node.endpoint.connect(now, port, PORT, &remotes, config, &node.app) {
            node.app.deliveries.begin(id);
        }
    }

    /// Makes programs, strangers and accidents act at one moment.
    fn act(&mut self) {
        for _ in 0..self.dice.even(1, 6) {
            let host = self.host();
            match self.dice.even(0, 15) {
                0..=7 => self.send(host),
                8..=10 => {
                    let reading = app::reading(self.dice.even(0, 3), self.dice.skewed(10, 20_000));
                    self.simulation.node_mut(host).app.set_reading(reading);
                }
                11 => self.connect(host),
                12 if self.dice.one_in(2) => self.shutdown(host),
                13 if !self.peaceful => self.abort(host),
                14 if !self.peaceful && self.dice.one_in(3) => self.crash(host),
                _ => {}
            }
        }
        if self.talks {
            self.chatter();
        }
    }

    fn association(&mut self, host: usize) -> Option<AssociationId> {
        let open = self.simulation.node(host).app.open();
        let number = self.dice.next() as usize;
        open.get(number.checked_rem(open.len())?).copied()
    }

    fn send(&mut self, host: usize) {
        let Some(id) = self.association(host) else { return };
        // Until the peer has announced its number of streams, only the first is sure to exist.
        let up = self.simulation.node_mut(host).app.deliveries.entry(id).up;
        let streams = if up { self.simulation.statistics(host, id).streams_out.max(1) } else { 1 };
        for _ in 0..self.dice.skewed(1, 100) {
            let bytes = self.dice.skewed(1, RECORD_BYTES_MAX) as usize;
            if bytes > self.left_bytes {
                return;
            }
            self.left_bytes -= bytes;
            self.records += 1;
            let stream = self.dice.even(0, u64::from(streams) - 1) as u16;
            let info = SendInfo {
                stream,
                ppid: 7,
                unordered: self.dice.one_in(5),
                more: false,
                immediate: self.dice.one_in(20),
                path: self.dice.one_in(10).then(|| PathId(self.dice.even(0, 3) as u8)),
                ..SendInfo::default()
            };
            let parts = if self.dice.one_in(8) { self.dice.even(2, 5) as usize } else { 1 };
            let record = Record::new(self.dice.next(), bytes);
            self.simulation
                .node_mut(host)
                .app
                .wish(id, Wish { info, record, part_bytes: bytes.div_ceil(parts) });
        }
    }

    fn shutdown(&mut self, host: usize) {
        if let Some(id) = self.association(host) {
            self.early = true;
            self.simulation.shutdown(host, id);
        }
    }

    fn abort(&mut self, host: usize) {
        if let Some(id) = self.association(host) {
            self.simulation.abort(host, id, b"enough");
        }
    }

    fn crash(&mut self, host: usize) {
        self.simulation.restart(host);
        let config = self.configs[host].clone();
        self.simulation.node_mut(host).app.crash();
        self.simulation.listen(host, PORT, config);
    }

    fn chatter(&mut self) {
        for _ in 0..self.dice.even(1, 20) {
            let host = self.host();
            let peer = self.other_host(host);
            let peer = self.simulation.node(peer).address;
            let ports = (self.dice.pick(&[PORT, 6000, 6001, 6002]), self.dice.pick(&[PORT, 6000, 6001]));
            let (from, packet) = chatter::packet(&mut self.dice, ports, peer);
            self.simulation.inject(host, from, &packet);
        }
    }

    /// Checks the invariants that hold at every moment.
    fn check(&mut self) {
        for host in 0..self.simulation.hosts() {
            let node = self.simulation.node(host);
            let mut open = 0;
            for id in node.app.open() {
                let statistics = node.endpoint.statistics(id).expect("what has not ended is there");
                assert_bounded(&statistics, &self.configs[host]);
                let held = statistics.receive_buffered_bytes as usize;
                assert!(node.app.unread_bytes(id) <= held, "what was not read is counted");
                open += 1;
            }
            assert_eq!(open, node.endpoint.association_count(), "every association has said that it ended");
        }
        let mut logs = self.take_deliveries();
        for host in 0..logs.len() {
            let mut own = std::mem::take(&mut logs[host]);
            let others: Vec<&DeliveryLog> = logs.iter().collect();
            own.compare(&others);
            logs[host] = own;
        }
        for (host, deliveries) in logs.into_iter().enumerate() {
            self.simulation.node_mut(host).app.deliveries = deliveries;
        }
    }

    fn take_deliveries(&mut self) -> Vec<DeliveryLog> {
        let hosts = 0..self.simulation.hosts();
        hosts.map(|host| std::mem::take(&mut self.simulation.node_mut(host).app.deliveries)).collect()
    }

    /// Shuts down all associations, also those that a late COOKIE ECHO has set up: without heartbeats they would not end.
    fn shut_down_all(&mut self) {
        for host in 0..self.simulation.hosts() {
            for id in self.simulation.node(host).app.open() {
                self.simulation.shutdown(host, id);
            }
        }
    }

    /// Lets time pass until `done`, while chatter continues.
    fn run_until(&mut self, what: &str, done: impl Fn(&Simulation<App>) -> bool) {
        let end = self.simulation.now() + PROGRESS_LIMIT;
        let mut slice = Duration::from_millis(10);
        while !done(&self.simulation) {
            assert!(
                self.simulation.now() < end,
                "after {PROGRESS_LIMIT:?} it was not so that {what}\n{}",
                self.report()
            );
            if self.talks {
                self.chatter();
            }
            if self.ends {
                self.shut_down_all();
            }
            self.simulation.run_for_with(slice, &mut self.wire);
            slice = (slice * 5 / 4).min(Duration::from_secs(60));
        }
    }

    /// Checks at the end that every message has arrived or was reported, all associations have ended, and both ends agree.
    fn finish(mut self) -> Outcome {
        for host in 0..self.simulation.hosts() {
            self.simulation.node_mut(host).app.set_reading(Reading::AtOnce);
        }
        self.run_until("everything is acknowledged", |simulation| {
            (0..simulation.hosts()).all(|host| {
                let node = simulation.node(host);
                let buffered = |id| node.endpoint.statistics(id).map_or(0, |s| s.send_buffered_bytes);
                node.app.all_written() && node.app.open().into_iter().all(|id| buffered(id) == 0)
            })
        });
        self.check();
        self.nothing_is_counted();
        self.ends = true;
        let nobody = |simulation: &Simulation<App>| {
            (0..simulation.hosts()).all(|host| simulation.node(host).endpoint.association_count() == 0)
        };
        self.run_until("every association has ended", nobody);
        self.check();
        for host in 0..self.simulation.hosts() {
            let endpoint = &self.simulation.node(host).endpoint;
            assert_eq!(endpoint.poll_timeout(), None, "nothing is left to wait for");
        }
        self.agree()
    }

    /// Checks that all counters of held data are zero once all data is acknowledged and read.
    fn nothing_is_counted(&self) {
        for host in 0..self.simulation.hosts() {
            let node = self.simulation.node(host);
            for id in node.app.open() {
                let statistics = node.endpoint.statistics(id).expect("it is there");
                let in_flight: usize = statistics.paths.iter().map(|path| path.in_flight_bytes).sum();
                assert_eq!((statistics.outstanding_bytes, in_flight), (0, 0), "host {host}, {id:?}");
            }
        }
    }

    /// Checks that the data of an association that was shut down has reached exactly one other; without violence no association
    /// ends otherwise.
    fn agree(mut self) -> Outcome {
        let mut logs = self.take_deliveries();
        let mut associations = 0;
        for host in 0..logs.len() {
            let own = std::mem::take(&mut logs[host]);
            for (number, entry) in own.entries.iter().enumerate() {
                associations += 1;
                self.wire.note(&format!("{:?}", entry.closed));
                let reason = entry.closed.as_ref().expect("every association has ended");
                let arrived = logs.iter().any(|other| own.has_arrived(number, other, host));
                let shut_down = *reason == CloseReason::Shutdown;
                assert!(arrived || !shut_down, "a shutdown of host {host}, and not everything arrived");
                // A handshake that was delayed may begin an association whose peer has ended it.
                // An association that ends with everything acknowledged may meet a line that loses all that T5 allows to send
                // again.
                let unlucky = (self.early || (self.lossy && arrived)) && gave_up(reason);
                let excused = !self.peaceful || entry.is_silent() || unlucky;
                assert!(shut_down || excused, "host {host}: {reason}");
            }
            logs[host] = own;
        }
        let (trace, packets) = (self.wire.number(), self.wire.packets);
        Outcome { trace, packets, associations, records: self.records }
    }

    fn report(&self) -> String {
        let mut out = String::new();
        for host in 0..self.simulation.hosts() {
            let node = self.simulation.node(host);
            for id in node.app.open() {
                out += &format!("host {host} {id:?}: {:?}\n", node.endpoint.statistics(id));
            }
        }
        out
    }
}

/// Returns whether T5 ended an association, or a shutdown its handshake: here or at the other end, which says why once and later
/// only that there is no such association.
fn gave_up(reason: &CloseReason) -> bool {
    match reason {
        CloseReason::Timeout | CloseReason::Refused => true,
        CloseReason::PeerAborted { text: why, .. } => why.is_empty() || why == "the shutdown took too long",
        _ => false,
    }
}

fn address(host: u64, path: u64) -> IpAddr {
    IpAddr::from([10, path as u8, 0, host as u8 + 1])
}

/// Lays a line for each pair of hosts and each path, or one for each path that all hosts share.
fn lay_lines(dice: &mut Dice, simulation: &mut Simulation<App>, limits: &RandomLimits, paths: usize) {
    let shared = dice.one_in(3);
    let mut common = Vec::new();
    for a in 0..simulation.hosts() {
        for b in a + 1..simulation.hosts() {
            let pipes: Vec<_> = (0..paths)
                .map(|path| {
                    if shared && let Some(pipes) = common.get(path) {
                        return *pipes;
                    }
                    let mut pipe = || simulation.network.add_pipe(&limits.pipe(dice.next()));
                    let pipes = (pipe(), pipe());
                    common.push(pipes);
                    pipes
                })
                .collect();
            let (from, to) =
                (simulation.node(a).addresses().to_vec(), simulation.node(b).addresses().to_vec());
            // The path of a packet is that of the address that it goes to; its own net comes last, as the usual one.
            for (i, j) in (0..paths * paths).map(|n| (n / paths, n % paths)).filter(|(i, j)| i != j) {
                simulation.route(from[i], to[j], &[pipes[j].0]);
                simulation.route(to[j], from[i], &[pipes[i].1]);
            }
            for (path, (there, back)) in pipes.into_iter().enumerate() {
                simulation.route(from[path], to[path], &[there]);
                simulation.route(to[path], from[path], &[back]);
            }
        }
    }
}
