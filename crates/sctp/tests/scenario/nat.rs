//! A NAT between two hosts, which gives each path a UDP port of its own, forgets idle ports, and may change them at any time
//! (RFC 6951 §5.4, RFC 4787 §4).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use lab::script::Peer;
use lab::simulation::UDP_PORT;
use lab::wire::{Outgoing, Wire};
use lab::{App, Simulation, packets};
use netsim::topology::Paths;
use netsim::{Network, PipeConfig};
use sctp::{AssociationConfig, AssociationId, Multipath, PathState, SendInfo, Time};
use sctp_wire::chunk::{Data, HeartbeatAck};

use crate::several_paths::{answers, established};

/// The client, behind the NAT.
const A: usize = 0;
/// The server.
const B: usize = 1;
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// HB.interval, RTO and half of it, after the answer to the last heartbeat.
const QUIET_MAX: Duration = Duration::from_millis(31_500 + 100);

/// The external port of the client for one address of the server.
struct Mapping {
    port: u16,
    used_at: Time,
}

/// A NAT whose mappings depend on the address of the other side, and live as long as the client uses them.
struct Nat {
    life: Duration,
    mappings: HashMap<(IpAddr, IpAddr), Mapping>,
    last_port: u16,
    /// Packets for the client that found no mapping.
    refused: u64,
    /// The longest time that the client left a mapping unused.
    quiet_max: Duration,
}

impl Nat {
    fn new(life: Duration) -> Self {
        Nat { life, mappings: HashMap::new(), last_port: 40_000, refused: 0, quiet_max: Duration::ZERO }
    }

    /// Gives the client's packets from an address other ports from now on.
    fn rebinds(&mut self, address: IpAddr) {
        self.mappings.retain(|(own, _), _| *own != address);
    }

    fn outward(&mut self, packet: &mut Outgoing) {
        let ways = (packet.from.ip(), packet.to.ip());
        let old = self.mappings.remove(&ways);
        let quiet = old.as_ref().map_or(Duration::ZERO, |old| packet.at.saturating_since(old.used_at));
        self.quiet_max = self.quiet_max.max(quiet);
        let port = old.filter(|_| quiet <= self.life).map_or_else(
            || {
                self.last_port += 1;
                self.last_port
            },
            |old| old.port,
        );
        self.mappings.insert(ways, Mapping { port, used_at: packet.at });
        packet.from.set_port(port);
    }

    fn lets_in(&self, packet: &Outgoing) -> bool {
        let mapping = self.mappings.get(&(packet.to.ip(), packet.from.ip()));
        mapping.is_some_and(|mapping| {
            mapping.port == packet.to.port() && packet.at.saturating_since(mapping.used_at) <= self.life
        })
    }
}

impl Wire for Nat {
    fn emit(&mut self, mut packet: Outgoing, network: &mut Network<Bytes>) {
        if packet.by == A {
            self.outward(&mut packet);
        } else if !self.lets_in(&packet) {
            self.refused += 1;
            return;
        }
        packet.enter(network);
    }
}

fn line() -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(20_000_000),
        delay: ROUND_TRIP / 2,
        queue_bytes: 50_000,
        ..PipeConfig::default()
    }
}

/// Two hosts, two lines, and the NAT.
struct Translated {
    simulation: Simulation<App>,
    nat: Nat,
    id: AssociationId,
}

impl Translated {
    /// Both paths are verified at both ends.
    fn new(seed: u64, life: Duration, config: &AssociationConfig) -> Self {
        Translated::with(seed, life, [config, config])
    }

    /// Returns the network with these settings of the client and the server.
    fn with(seed: u64, life: Duration, [client, server]: [&AssociationConfig; 2]) -> Self {
        let mut simulation: Simulation<App> = Simulation::new(seed);
        let Paths { a, b, .. } = Paths::build(&mut simulation.network, &[line(), line()]);
        for site in [&a, &b] {
            simulation.add_site(site, App::default());
        }
        simulation.listen(B, 5001, server.clone());
        let id = simulation.connect(A, B, (5000, 5001), client.clone());
        let mut translated = Translated { simulation, nat: Nat::new(life), id };
        translated.run_for(Duration::from_secs(5));
        translated.assert_active();
        // The server may have probed the second path before there was a mapping.
        translated.nat.refused = 0;
        translated
    }

    fn run_for(&mut self, time: Duration) {
        self.simulation.run_for_with(time, &mut self.nat);
    }

    fn id(&self, node: usize) -> AssociationId {
        if node == A { self.id } else { self.simulation.node(B).app.events[0].id }
    }

    #[track_caller]
    fn assert_active(&self) {
        for node in [A, B] {
            let paths = self.simulation.statistics(node, self.id(node)).paths;
            assert!(paths.len() == 2 && paths.iter().all(|p| p.state == PathState::Active), "{paths:#?}");
        }
    }

    /// Returns the ports of the client that the server knows.
    fn ports(&self) -> [u16; 2] {
        let paths = self.simulation.statistics(B, self.id(B)).paths;
        [0, 1].map(|path| paths[path].remote.port())
    }

    fn send(&mut self, from: usize, messages: &[Bytes]) {
        let id = self.id(from);
        let messages = messages.iter().map(|message| (SendInfo::default(), message.clone()));
        self.simulation.node_mut(from).app.send(id, messages);
    }

    #[track_caller]
    fn assert_received(&self, at: usize, messages: &[Bytes]) {
        let received = self.simulation.node(at).app.messages.iter().map(|message| &message.bytes[..]);
        assert!(received.eq(messages.iter().map(|message| &message[..])), "every message, once, in order");
    }
}

fn messages(count: u64) -> Vec<Bytes> {
    (0..count).map(|n| n.to_be_bytes().repeat(200).into()).collect()
}

#[test]
fn each_path_has_a_port_of_its_own() {
    let translated = Translated::new(1, Duration::from_secs(120), &AssociationConfig::default());
    let [first, second] = translated.ports();
    assert!(first != second && first != UDP_PORT && second != UDP_PORT);
    assert_eq!(translated.simulation.node(B).endpoint.association_count(), 1);
}

#[test]
fn a_port_may_change_on_one_path_while_data_flows() {
    for multipath in [Multipath::Off, Multipath::Agreed] {
        for sender in [A, B] {
            let case = format!("{multipath:?}, from {sender}");
            let config = AssociationConfig { multipath, ..AssociationConfig::default() };
            let mut translated = Translated::new(2, Duration::from_secs(120), &config);
            let sent = messages(10_000);
            let at_first = translated.ports();
            translated.send(sender, &sent);
            // Where the second path carries nothing, its port changes with the next heartbeat.
            let changes: &[usize] = if multipath == Multipath::Off { &[0, 0] } else { &[0, 1, 0] };
            for &changed in changes {
                translated.run_for(Duration::from_millis(200));
                let before = translated.ports();
                let address = translated.simulation.node(A).addresses()[changed];
                translated.nat.rebinds(address);
                translated.run_for(Duration::from_millis(800));
                let after = translated.ports();
                // The server cannot find the client. A client that only acknowledges may do so on the other path.
                assert!(after[changed] != before[changed] || sender == B, "{case}");
                assert_eq!(after[1 - changed], before[1 - changed], "{case}");
            }
            translated.run_for(QUIET_MAX);
            translated.assert_active();
            translated.assert_received(1 - sender, &sent);
            let arrivals =
                translated.simulation.node(1 - sender).app.messages.iter().map(|message| message.at);
            let gap = longest_gap(arrivals);
            assert!(gap < Duration::from_millis(200), "{case}: {gap:?}");
            let now = translated.ports();
            assert!(changes.iter().all(|&path| now[path] != at_first[path]), "{case}: {now:?}");
        }
    }
}

fn longest_gap(mut times: impl Iterator<Item = Time>) -> Duration {
    let mut last = times.next().unwrap();
    times.map(|at| at - std::mem::replace(&mut last, at)).max().unwrap()
}

#[test]
fn a_mapping_of_two_minutes_outlives_every_pause() {
    // RFC 4787 §4.3, REQ-5: a mapping lives for at least two minutes.
    let mut translated = Translated::new(3, Duration::from_secs(120), &AssociationConfig::default());
    let ports = translated.ports();
    translated.run_for(Duration::from_secs(3 * 3600));
    assert_eq!((translated.ports(), translated.nat.refused), (ports, 0));
    // The server may send first.
    let sent = messages(100);
    translated.send(B, &sent);
    translated.run_for(Duration::from_secs(2));
    translated.assert_received(A, &sent);
    assert_eq!(translated.nat.refused, 0);
}

#[test]
fn no_path_is_quiet_for_longer_than_the_heartbeat_interval() {
    // However the application's messages coincide with the heartbeats, and without those of the server.
    let server = AssociationConfig { heartbeat_interval: None, ..AssociationConfig::default() };
    for pause in [1, 7, 29, 31, 40, 53, 61, 90].map(Duration::from_secs) {
        for sender in [A, B] {
            let life = Duration::from_secs(35);
            let mut translated = Translated::with(4, life, [&AssociationConfig::default(), &server]);
            let sent = messages(3600 / pause.as_secs());
            for message in &sent {
                translated.send(sender, std::slice::from_ref(message));
                translated.run_for(pause);
            }
            translated.assert_received(1 - sender, &sent);
            let Nat { quiet_max, refused, .. } = translated.nat;
            assert!(quiet_max <= QUIET_MAX, "{pause:?}, from {sender}: {quiet_max:?}");
            assert_eq!(refused, 0);
        }
    }
}

#[test]
fn a_shorter_interval_keeps_a_shorter_mapping() {
    let interval = Duration::from_secs(10);
    let config = AssociationConfig { heartbeat_interval: Some(interval), ..AssociationConfig::default() };
    let mut translated = Translated::new(5, Duration::from_secs(12), &config);
    let ports = translated.ports();
    translated.run_for(Duration::from_secs(3600));
    assert_eq!((translated.ports(), translated.nat.refused), (ports, 0));
}

#[test]
fn a_mapping_that_was_forgotten_is_found_again() {
    // A mapping lives for less than the interval, so the NAT drops the server's packets until the client sends.
    let mut translated = Translated::new(6, Duration::from_secs(10), &AssociationConfig::default());
    translated.run_for(Duration::from_secs(20));
    let sent = messages(100);
    translated.send(B, &sent);
    translated.run_for(QUIET_MAX + Duration::from_secs(2));
    assert!(translated.nat.refused > 0);
    translated.assert_received(A, &sent);
}

/// The peer has two addresses, both verified.
fn with_two(seed: u8, second: IpAddr) -> Peer {
    let config = AssociationConfig { multipath: Multipath::Off, ..AssociationConfig::default() };
    let mut peer = established(seed, config, &[second]);
    peer.expects("COOKIE ACK");
    peer.waits(Duration::ZERO);
    assert_eq!(answers(&mut peer).ip(), second);
    peer
}

fn remotes(peer: &Peer) -> Vec<SocketAddr> {
    peer.endpoint.peer_addresses(peer.id).unwrap().0
}

#[test]
fn only_a_packet_with_our_tag_moves_a_path_and_only_its_own() {
    let second = IpAddr::from([10, 0, 1, 9]);
    let mut peer = with_two(7, second);
    let (home, before) = (peer.address, remotes(&peer));
    let elsewhere = SocketAddr::new(second, 41_000);
    peer.address = elsewhere;
    let (tag, info) = (peer.endpoint_tag, [0; 8]);
    for forged in [tag ^ 1, tag.swap_bytes(), peer.tag] {
        peer.sends().tag(forged).data(0).go();
        peer.sends().tag(forged).chunk(|_, out| HeartbeatAck { info: &info }.write(out)).go();
    }
    // An INIT has no tag at all, and an ABORT may reflect the peer's.
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    assert_eq!(remotes(&peer), before);
    while peer.hears_maybe().is_some() {}
    peer.sends().data(0).go();
    assert_eq!(remotes(&peer), [home, elsewhere]);
    // Later packets go there, and the primary path stays as it was.
    peer.expects("SACK 0");
    peer.app_sends(SendInfo::default(), &b"on the primary path"[..]);
    let (to, packet) = peer.hears_on();
    assert!(to == home && packets::has(&packet, Data::KIND));
    peer.endpoint.set_primary(peer.now, peer.id, second, &mut peer.app).unwrap();
    peer.app_sends(SendInfo::default(), &b"on the other"[..]);
    assert_eq!(peer.hears_on().0, elsewhere);
}

#[test]
fn a_client_with_one_address_uses_both_of_a_server() {
    // The server knows one path, whose port and local address are those of the last packet.
    for multipath in [Multipath::Off, Multipath::Agreed] {
        let config = AssociationConfig { multipath, ..AssociationConfig::default() };
        let mut simulation: Simulation<App> = Simulation::new(8);
        let addresses = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
        let (client, server) = (addresses(&["10.0.0.1"]), addresses(&["10.0.0.2", "10.0.1.2"]));
        simulation.add_host(&client, App::default());
        simulation.add_host(&server, App::default());
        for &address in &server {
            let (there, back) = (simulation.network.add_pipe(&line()), simulation.network.add_pipe(&line()));
            simulation.route(client[0], address, &[there]);
            simulation.route(address, client[0], &[back]);
        }
        simulation.listen(B, 5001, config.clone());
        let id = simulation.connect(A, B, (5000, 5001), config);
        let sent = messages(10_000);
        let nat = Nat::new(Duration::from_secs(120));
        let mut translated = Translated { simulation, nat, id };
        translated.send(A, &sent);
        translated.run_for(Duration::from_secs(20));
        translated.assert_received(B, &sent);
        let paths = translated.simulation.statistics(A, id).paths;
        assert!(paths.iter().map(|path| path.state).eq([PathState::Active; 2]), "{paths:#?}");
        let shared = paths[1].delivered_bytes * 3 > paths[0].delivered_bytes;
        assert_eq!(shared, multipath == Multipath::Agreed, "{paths:#?}");
    }
}
