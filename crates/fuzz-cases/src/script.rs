//! Reading an input as a script, and carrying it out.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use lab::wire::Outgoing;
use netsim::Ecn;
use sctp::config::{Multipath, RtoConfig};
use sctp::congestion::{Algorithm, Coupling};
use sctp::{AssociationConfig, CloseReason, SendInfo, Unreachable};

use crate::app::Setup;
use crate::input::Input;
use crate::two_endpoints::TwoEndpoints;
use crate::{edit, forge, nets};

/// Steps of a script; what comes after them is not read.
const STEPS_MAX: usize = 400;
/// The longest record; its parts are at most a third as long.
const RECORD_BYTES_MAX: usize = 20_000;
/// How long an honest network may need to bring everything across: some timeouts of a minute each.
const PROGRESS_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Powers of the interceptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// Change bytes of packets.
    Edits,
    /// Also make chunks that fit; and it turns honest at the end.
    Forges,
}

/// Runs a script.
pub(crate) fn run(bytes: &[u8], power: Power) {
    let mut input = Input::new(bytes);
    let mut ends = begin(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        step(&mut input, &mut ends, power);
    }
    if power == Power::Forges {
        end(&mut ends);
    }
}

/// A bit of the byte that selects the step: the packet is marked on the way.
const MARKED: u8 = 0x20;

const PORTS: [u16; 3] = [5000, 5001, 5002];

fn addresses(side: u8) -> impl Iterator<Item = IpAddr> {
    (0..nets::COUNT as u8).map(move |net| IpAddr::from([10, net, 0, side + 1]))
}

fn settings(input: &mut Input<'_>) -> AssociationConfig {
    let block = input.settings();
    let mut input = Input::new(&block);
    let switches = block[block.len() - 1];
    let on = |switch: u8| switches & switch == 0;
    AssociationConfig {
        streams_out: input.pick(&[10, 1, 2, 65_535]),
        streams_in_max: input.pick(&[65_535, 1, 10]),
        send_buffer_bytes: input.pick(&[1 << 16, 1, 4000, 1 << 20]),
        send_buffer_tuned_bytes: input.pick(&[64 << 20, 0, 1 << 17]),
        receive_buffer_bytes: input.pick(&[1 << 16, 1500, 2500, 6000, 1 << 20]),
        receive_buffer_tuned_bytes: input.pick(&[64 << 20, 0, 1 << 17]),
        message_bytes_max: RECORD_BYTES_MAX,
        partial_delivery_bytes: input.pick(&[1 << 19, 1, 2000]),
        congestion: input.pick(&Algorithm::ALL),
        rto: RtoConfig { max: Duration::from_secs(input.pick(&[60, 2])), ..RtoConfig::default() },
        heartbeat_interval: input.pick(&[Some(30), None, Some(1)]).map(Duration::from_secs),
        sack_delay: Duration::from_millis(input.pick(&[200, 0, 20])),
        init_retries_max: input.pick(&[8, 1]),
        association_retries_max: input.pick(&[10, 2, 0]),
        path_retries_max: input.pick(&[5, 0, 1]),
        coupling: input.pick(&Coupling::ALL),
        multipath: [Multipath::Agreed, Multipath::Always, Multipath::Off, Multipath::Agreed]
            [usize::from(switches & 3)],
        nr_sack: on(4),
        path_mtu_discovery: on(8),
        ecn: on(16),
        early_failover: on(32),
        tail_loss_probes: on(64),
        potentially_failed_retries_max: if on(128) { 0 } else { 3 },
        events: true,
        ..AssociationConfig::default()
    }
}

/// Returns two sides after as many honest exchanges as the input requests before the script begins.
fn begin(input: &mut Input<'_>) -> TwoEndpoints {
    let mut setup = |side: u8| {
        let host = input.byte();
        Setup {
            mtu_bytes: input.pick(&[1472, 512, 1280, 9000, 65_504]),
            in_flight_limit_bytes: input.pick(&[None, Some(150_000)]),
            initial_tsn: input.pick(&[None, Some(u32::MAX - 3), Some(0), Some(0x7fff_fffe)]),
            addresses: addresses(side).take(1 + usize::from(host & 1)).collect(),
            binds_paths: host & 2 != 0,
            config: settings(input),
        }
    };
    let setups = [setup(0), setup(1)];
    let mut ends = TwoEndpoints::new(setups);
    let talk = input.below(4);
    listen(&mut ends, 1, PORTS[1]);
    if talk > 0 {
        connect(&mut ends, 0, (PORTS[0], PORTS[1]), usize::MAX);
        ends.honest(Duration::from_millis(500), |_| false);
    }
    for number in 1..talk * 4 {
        for side in 0..2 {
            send(
                &mut ends,
                side,
                0,
                SendInfo { stream: number as u16 % 3, ..SendInfo::default() },
                number * 300,
            );
        }
    }
    if talk > 1 {
        ends.honest(Duration::from_millis(500), |_| false);
    }
    ends
}

fn connect(ends: &mut TwoEndpoints, side: usize, ports: (u16, u16), addresses: usize) {
    let remotes: Vec<_> = ends.addresses(1 - side).into_iter().take(addresses).collect();
    ends.call(side, |app, endpoint, now| app.connect(endpoint, now, ports, &remotes));
}

fn listen(ends: &mut TwoEndpoints, side: usize, port: u16) {
    ends.call(side, |app, endpoint, _| app.listen(endpoint, port));
}

fn send(ends: &mut TwoEndpoints, side: usize, number: usize, info: SendInfo, bytes: usize) {
    if let Some(id) = ends.association(side, number) {
        ends.call(side, |app, endpoint, now| app.send(endpoint, now, id, info, bytes));
    }
}

/// Executes one step of the programs, the network or the interceptor.
fn step(input: &mut Input<'_>, ends: &mut TwoEndpoints, power: Power) {
    let what = input.byte();
    let side = usize::from(what >> 7);
    match what & 31 {
        0..=2 => {
            if let Some(packet) = ends.interceptor.wires[side].front_mut()
                && what & MARKED != 0
            {
                packet.ecn = Ecn::CongestionExperienced;
            }
            ends.deliver(side);
        }
        3 => {
            for _ in 0..input.below(32) {
                ends.deliver(0);
                ends.deliver(1);
            }
        }
        4 => {
            let time =
                input.pick(&[1_000_000, 50_000, 10_000_000, 250_000_000, 1_000_000_000, 3_000_000_000]);
            ends.pass(Duration::from_nanos(time));
        }
        5 => {
            if let Some(at) = ends.deadline() {
                ends.pass(at - ends.now());
            }
        }
        6 => ends.pass(Duration::from_secs(input.pick(&[10, 60, 600]))),
        7 => {
            let time = Duration::from_millis(input.pick(&[5, 500, 10_000]));
            ends.honest(time, |_| false);
        }
        8..=17 => call(input, ends, side, what & 31),
        18..=23 => disturb(input, ends, side, what & 31),
        24..=27 => edit_next(input, ends, side),
        28 => replay(input, ends, side),
        _ if power == Power::Forges => {
            let [a, b] = &ends.interceptor.known;
            let (sender, receiver) = if side == 0 { (a, b) } else { (b, a) };
            if let Some(packet) = forge::forge(input, sender, receiver) {
                ends.forged = true;
                inject(input, ends, side, packet);
            }
        }
        _ => edit_next(input, ends, side),
    }
}

/// Makes a program call its endpoint.
fn call(input: &mut Input<'_>, ends: &mut TwoEndpoints, side: usize, what: u8) {
    match what {
        8..=10 => {
            let (number, flags, stream) = (input.below(4), input.byte(), input.byte());
            let info = SendInfo {
                stream: stream.into(),
                ppid: stream.into(),
                unordered: flags & 1 != 0,
                more: flags & 2 != 0,
                immediate: flags & 4 != 0,
                ..SendInfo::default()
            };
            let bytes = input.length(RECORD_BYTES_MAX / 3);
            for _ in 0..=(flags >> 6) {
                send(ends, side, number, info, bytes);
            }
        }
        11 => {
            let messages = input.below(8);
            ends.call(side, |app, endpoint, _| app.read(endpoint, messages));
        }
        12 => {
            let ports = (input.pick(&PORTS), input.pick(&PORTS));
            connect(ends, side, ports, 1 + input.below(2));
        }
        13 => {
            let port = input.pick(&PORTS);
            listen(ends, side, port);
        }
        14 => {
            let port = input.pick(&PORTS);
            ends.call(side, |app, endpoint, _| app.unlisten(endpoint, port));
        }
        15 | 16 => {
            let Some(id) = ends.association(side, input.below(4)) else { return };
            ends.call(side, |app, endpoint, now| {
                if what == 15 {
                    endpoint.shutdown(now, id, app);
                } else {
                    endpoint.abort(now, id, b"enough", app);
                }
            });
        }
        _ => change_host(input, ends, side),
    }
}

/// Changes a host: it crashes, another path becomes the primary one, a net changes, or a NAT forgets.
fn change_host(input: &mut Input<'_>, ends: &mut TwoEndpoints, side: usize) {
    let what = input.byte();
    let which = usize::from(what / 4);
    match what % 4 {
        0 => ends.restart(side),
        1 => {
            let Some(id) = ends.association(side, which / 2) else { return };
            let others = ends.addresses(1 - side);
            let address = others[which % others.len()].ip();
            // An address that is not confirmed yet, or not one of this association, is refused.
            ends.call(side, |app, endpoint, now| {
                let _ = endpoint.set_primary(now, id, address, app);
            });
        }
        2 => {
            let (net, change) = (which % nets::COUNT, (which / nets::COUNT) as u8);
            ends.interceptor.nets.change(&mut ends.simulation.network, net, change);
        }
        _ if which.is_multiple_of(2) => ends.interceptor.move_port(side),
        _ => {}
    }
}

/// Disturbs the network: loses, repeats and reorders packets, delivers them in a batch, or returns them.
fn disturb(input: &mut Input<'_>, ends: &mut TwoEndpoints, side: usize, what: u8) {
    let wire = &mut ends.interceptor.wires[side];
    match what {
        18 => {
            for _ in 0..=input.below(4) {
                wire.pop_front();
            }
        }
        19 => {
            if let Some(packet) = wire.front().cloned() {
                wire.push_front(packet);
            }
        }
        20 => {
            let places = input.below(16).checked_rem(wire.len()).unwrap_or(0);
            wire.rotate_left(places);
        }
        21 => {
            let other = input.below(16).checked_rem(wire.len()).unwrap_or(0);
            if other > 0 {
                wire.swap(0, other);
            }
        }
        22 => batch(ends, side),
        _ => returned(input, ends, side),
    }
}

/// Delivers as many packets as fit together in one batch.
fn batch(ends: &mut TwoEndpoints, from: usize) {
    let wire = &mut ends.interceptor.wires[from];
    let Some(first) = wire.pop_front() else { return };
    let segment_bytes = first.packet.len();
    let mut bytes = first.packet.to_vec();
    while let Some(next) = wire.front()
        && (next.from, next.to) == (first.from, first.to)
        && bytes.len().is_multiple_of(segment_bytes)
        && next.packet.len() <= segment_bytes
        && bytes.len() + next.packet.len() <= 65_000
    {
        bytes.extend_from_slice(&next.packet);
        wire.pop_front();
    }
    ends.hand(1 - from, &Outgoing { packet: Bytes::from(bytes), ..first }, segment_bytes);
}

/// Delivers an ICMP message that quotes a packet of a side.
fn returned(input: &mut Input<'_>, ends: &mut TwoEndpoints, side: usize) {
    let why = match input.below(3) {
        0 => Unreachable::Port,
        1 => Unreachable::Host,
        _ => Unreachable::TooBig { mtu_bytes: input.short().into() },
    };
    let Some(packet) = input.choose(&ends.interceptor.history).cloned() else { return };
    ends.report(side, &packet, why, input.length(64));
}

/// Changes the next packet of a side in flight.
fn edit_next(input: &mut Input<'_>, ends: &mut TwoEndpoints, from: usize) {
    let Some(packet) = ends.interceptor.wires[from].pop_front() else { return };
    let mut bytes = edit::edit(input, packet.packet.to_vec(), &ends.interceptor.history);
    ends.forged |= edit::seal(input, &mut bytes, &ends.interceptor.known[1 - from]);
    let segment_bytes = bytes.len();
    ends.hand(1 - from, &Outgoing { packet: bytes.into(), ..packet }, segment_bytes);
}

/// Replays an earlier packet, possibly changed, to the side that sent it, or from another address.
fn replay(input: &mut Input<'_>, ends: &mut TwoEndpoints, from: usize) {
    let Some(packet) = input.choose(&ends.interceptor.history).cloned() else { return };
    let how = input.below(4);
    if how < 2 {
        let to = (0..2).find(|&to| ends.simulation.node(to).addresses().contains(&packet.to.ip()));
        if let Some(to) = to {
            ends.hand(to, &packet, packet.packet.len());
        }
        return;
    }
    let mut bytes = edit::edit(input, packet.packet.to_vec(), &ends.interceptor.history);
    ends.forged |= edit::seal(input, &mut bytes, &ends.interceptor.known[1 - from]);
    inject(input, ends, from, bytes);
}

/// Injects a packet as if `from` had sent it, from one of its addresses or from another one.
fn inject(input: &mut Input<'_>, ends: &mut TwoEndpoints, from: usize, bytes: Vec<u8>) {
    let address = |side: usize, number: usize| {
        let addresses = ends.addresses(side);
        addresses[number % addresses.len()]
    };
    let mut source = address(from, input.below(2));
    match input.below(8) {
        0 => source = SocketAddr::from(([10, 9, 9, 9], 9899)),
        1 => source.set_port(1000),
        _ => {}
    }
    let to = address(1 - from, input.below(2));
    let segment_bytes = bytes.len();
    let packet = Outgoing {
        at: ends.now(),
        by: from,
        from: source,
        to,
        ecn: Ecn::NotCapable,
        dscp: 0,
        whole: true,
        packet: bytes.into(),
    };
    ends.hand(1 - from, &packet, segment_bytes);
}

/// Ends the script: the interceptor becomes honest, everything arrives or is reported, both sides end, and nothing is left.
fn end(ends: &mut TwoEndpoints) {
    ends.interceptor.nets.repair(&mut ends.simulation.network);
    let idle = |ends: &TwoEndpoints| (0..2).all(|side| ends.send_buffered_bytes(side) == 0);
    let arrived = ends.honest(PROGRESS_LIMIT, idle);
    assert!(arrived || ends.forged, "the network is honest and nothing moves");
    for side in 0..2 {
        for id in ends.app(side).open() {
            ends.call(side, |app, endpoint, now| endpoint.shutdown(now, id, app));
        }
    }
    let gone = |ends: &TwoEndpoints| (0..2).all(|side| ends.endpoint(side).association_count() == 0);
    let ended = ends.honest(PROGRESS_LIMIT, gone);
    assert!(ended || ends.forged, "both sides have shut down and an association stays");
    for side in 0..2 {
        for id in ends.app(side).open() {
            ends.call(side, |app, endpoint, now| endpoint.abort(now, id, b"", app));
        }
    }
    assert!(gone(ends), "an abort ends an association at once");
    for side in 0..2 {
        assert_eq!(ends.endpoint(side).poll_timeout(), None, "nothing is left to wait for");
        assert!(!ends.endpoint(side).transmit_waits(), "nothing is left to send");
    }
    if !ends.forged {
        everything_arrived(ends);
    }
}

/// Checks that an association that was shut down has delivered all data.
fn everything_arrived(ends: &TwoEndpoints) {
    for side in 0..2 {
        let (own, other) = (&ends.app(side).deliveries, &ends.app(1 - side).deliveries);
        for (number, entry) in own.entries.iter().enumerate() {
            let shut_down = entry.closed == Some(CloseReason::Shutdown);
            assert!(
                !shut_down || own.has_arrived(number, other, 0),
                "a shutdown, and not everything arrived"
            );
        }
    }
}
