//! The interceptor between two hosts and their nets: it reads every packet, and holds it until the script or the delay of a net
//! lets it pass.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use bytes::Bytes;
use lab::Simulation;
use lab::simulation::UDP_PORT;
use lab::wire::{Outgoing, Wire};
use netsim::Network;
use sctp::Time;

use crate::app::App;
use crate::nets::{DELAY_MIN, Nets};
use crate::sniff::{self, Known};

/// Number of packets of a host that the interceptor holds; further ones are lost.
const WIRE_PACKETS_MAX: usize = 512;
/// Number of packets that the interceptor remembers.
const HISTORY_PACKETS_MAX: usize = 64;
/// Number of packets without data that a call may cause beside one for each packet that came: full queues of control chunks and a
/// SACK.
const CONTROL_PACKETS_MAX: usize = 40;
/// The highest port that a NAT gives.
const NAT_PORT_MAX: u16 = 10_000;

/// The rule by which packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passing {
    /// The script, one by one.
    Single,
    /// The script has let the first packet of a host pass.
    First(usize),
    /// Packets pass after the delay of their nets, but not before this time.
    After(Time),
}

/// The interceptor.
#[derive(Debug)]
pub(crate) struct Interceptor {
    pub(crate) nets: Nets,
    /// Packets of each host that the interceptor holds.
    pub(crate) wires: [VecDeque<Outgoing>; 2],
    /// The last packets of both hosts.
    pub(crate) history: VecDeque<Outgoing>,
    pub(crate) known: [Known; 2],
    passing: Passing,
    /// The last packet that the interceptor has let pass.
    passed: Option<Outgoing>,
    hosts: [Host; 2],
    /// Whether to print every packet, which shows the effect of an input: if `FUZZ_LADDER` is set.
    prints: bool,
}

/// The interceptor's record of a host.
#[derive(Debug)]
struct Host {
    addresses: Vec<IpAddr>,
    /// Whether its packets leave it, so that some may be too long.
    leaves_host: bool,
    /// The UDP port that its NAT gives to its packets.
    port: u16,
    /// Source addresses of the packets that have arrived at it.
    heard: BTreeSet<IpAddr>,
    /// Its tags of the associations that it has begun.
    tags: BTreeSet<u32>,
    /// Packets that have arrived and were sent since the last check.
    packets_in: usize,
    control_packets_out: usize,
    data_bytes_out: usize,
}

impl Interceptor {
    /// Returns an interceptor between the two hosts of a simulation, with nets of its own.
    pub(crate) fn new(simulation: &mut Simulation<App>) -> Self {
        let nets = Nets::lay(simulation);
        let hosts = [0, 1].map(|side| {
            let node = simulation.node(side);
            Host {
                addresses: node.addresses().to_vec(),
                leaves_host: node.app.leaves_host(),
                port: UDP_PORT,
                heard: BTreeSet::new(),
                tags: BTreeSet::new(),
                packets_in: 0,
                control_packets_out: 0,
                data_bytes_out: 0,
            }
        });
        Interceptor {
            nets,
            wires: Default::default(),
            history: VecDeque::new(),
            known: Default::default(),
            passing: Passing::Single,
            passed: None,
            hosts,
            prints: std::env::var_os("FUZZ_LADDER").is_some(),
        }
    }

    /// Returns the port that packets of a host come from.
    pub(crate) fn port(&self, side: usize) -> u16 {
        self.hosts[side].port
    }

    /// Makes the NAT of a host forget its port: later packets come from another one. Packets to the old one still arrive.
    pub(crate) fn move_port(&mut self, side: usize) {
        let port = &mut self.hosts[side].port;
        *port = *port % NAT_PORT_MAX + 1;
    }

    /// Lets the first packet of a host pass next; returns whether there is one.
    pub(crate) fn pass_first(&mut self, side: usize) -> bool {
        self.passing = Passing::First(side);
        !self.wires[side].is_empty()
    }

    /// Lets packets pass after the delay of their nets, from `now` on.
    pub(crate) fn turn_honest(&mut self, now: Time) {
        self.passing = Passing::After(now + DELAY_MIN);
    }

    /// Holds packets again.
    pub(crate) fn turn_hostile(&mut self) {
        self.passing = Passing::Single;
    }

    /// Takes the last packet that has passed since the last call.
    pub(crate) fn take_passed(&mut self) -> Option<Outgoing> {
        self.passed.take()
    }

    /// Records that packets which came together arrive at a host.
    pub(crate) fn on_arrival(&mut self, now: Time, side: usize, packet: &Outgoing, packets: usize) {
        self.print(now, "arrives at", side, packet);
        self.hosts[side].packets_in += packets;
        self.hosts[side].heard.insert(packet.from.ip());
    }

    /// Records that a host has begun an association after this packet; returns whether the packet shows that an earlier one has
    /// the same tag.
    pub(crate) fn note_tag(&mut self, side: usize, packet: &[u8]) -> bool {
        sniff::echoed_tag(packet).is_some_and(|tag| !self.hosts[side].tags.insert(tag))
    }

    /// Checks that a host which holds `buffered_bytes` in its send buffers has sent no more than its calls since the last check
    /// may cause.
    pub(crate) fn check(&mut self, side: usize, buffered_bytes: usize) {
        let host = &mut self.hosts[side];
        let data_bytes = std::mem::take(&mut host.data_bytes_out);
        assert!(data_bytes <= 2 * buffered_bytes + (1 << 16), "one call sends more than there is to send");
        let control_packets = std::mem::take(&mut host.control_packets_out);
        let control_packets_max = CONTROL_PACKETS_MAX + std::mem::take(&mut host.packets_in);
        assert!(control_packets <= control_packets_max, "one call sets off {control_packets} packets");
    }

    /// Returns the next packet to pass, as host and place in its wire, and the time.
    fn next(&self) -> Option<(usize, usize, Time)> {
        match self.passing {
            Passing::Single => None,
            Passing::First(side) => self.wires[side].front().map(|packet| (side, 0, packet.at)),
            Passing::After(time) => {
                let due = |packet: &Outgoing| (packet.at + self.nets.delay(packet.to.ip())).max(time);
                let packets = self.wires.iter().enumerate().flat_map(|(side, wire)| {
                    wire.iter().enumerate().map(move |(place, packet)| (side, place, packet))
                });
                packets
                    .map(|(side, place, packet)| (side, place, due(packet)))
                    .min_by_key(|&(_, _, due)| due.as_nanos())
            }
        }
    }

    /// Prints a packet: its time, what happens to it, the host, and its contents.
    pub(crate) fn print(&self, now: Time, what: &str, side: usize, packet: &Outgoing) {
        if self.prints {
            let ms = now.as_nanos() as f64 / 1e6;
            let text =
                sctp_wire::Packet::parse(&packet.packet).map_or_else(|e| e.to_string(), |p| p.to_string());
            println!("{ms:12.3} ms {what} {} {} to {}: {text}", ["A", "B"][side], packet.from, packet.to);
        }
    }
}

impl Wire for Interceptor {
    /// Reads a packet and holds it. A packet for another address than the peer's is lost.
    fn emit(&mut self, mut packet: Outgoing, _network: &mut Network<Bytes>) {
        let by = packet.by;
        let [a, b] = &mut self.hosts;
        let (own, other) = if by == 0 { (a, b) } else { (b, a) };
        packet.from.set_port(own.port);
        packet.whole &= own.leaves_host;
        let is_for_peer = other.addresses.contains(&packet.to.ip());
        if sniff::has_data(&packet.packet) {
            // An address that only the interceptor has named gets no data, because no packet from there has confirmed it.
            let to = packet.to.ip();
            assert!(is_for_peer || own.heard.contains(&to), "data goes to {to}, which has said nothing");
            own.data_bytes_out += packet.packet.len();
        } else {
            own.control_packets_out += 1;
        }
        own.tags.extend(sniff::initiate_tag(&packet.packet));
        self.known[by].read(&packet.packet);
        if self.history.len() == HISTORY_PACKETS_MAX {
            self.history.pop_front();
        }
        self.history.push_back(packet.clone());
        let is_held = is_for_peer && self.wires[by].len() < WIRE_PACKETS_MAX;
        self.print(packet.at, if is_held { "sent by   " } else { "lost by   " }, by, &packet);
        if is_held {
            self.wires[by].push_back(packet);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.next().map(|(_, _, due)| due)
    }

    /// Lets one packet enter its net, so that the effects of each packet are checked before the next one.
    fn release(&mut self, now: Time, network: &mut Network<Bytes>) {
        if let Some((side, place, _)) = self.next().filter(|&(_, _, due)| due <= now)
            && let Some(packet) = self.wires[side].remove(place)
        {
            self.on_arrival(now, 1 - side, &packet, 1);
            self.passed = Some(packet.clone());
            Outgoing { at: now, ..packet }.enter(network);
        }
        if matches!(self.passing, Passing::First(_)) {
            self.passing = Passing::Single;
        }
    }
}
