//! What the network itself costs for each packet, with few and with many packets on the way.
//!
//! `cargo bench -p swiftwater-netsim`; a word after `--` runs only the cases whose name has it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on fails")]

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use netsim::{Loss, Network, PipeConfig};

/// What a packet weighs on the wire.
const PACKET_BYTES: usize = 1500;
/// Packets that leave at the same instant, as a sender with a batch does.
const BATCH: usize = 16;
/// How long each case is measured, and how often; the best counts, because other work only ever adds.
const MEASURED: Duration = Duration::from_millis(300);
const ROUNDS: usize = 3;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("{:36} {:>10} {:>12}", "case", "on the way", "ns a packet");
    for (name, case) in CASES {
        if wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str())) {
            let (on_the_way, ns) =
                (0..ROUNDS).map(|_| measure(case())).min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            println!("{name:36} {on_the_way:>10} {ns:>12.1}");
        }
    }
}

/// A network and who sends in it.
struct Case {
    network: Network<Bytes>,
    /// From where to where; they take turns.
    flows: Vec<(SocketAddr, SocketAddr)>,
    /// Virtual time between two batches.
    gap_ns: u64,
}

/// Its name, and how it is set up.
type NamedCase = (&'static str, fn() -> Case);

const CASES: [NamedCase; 7] = [
    ("one line, few on the way", || line(200, &PipeConfig::default())),
    ("one line", || line(10_000, &PipeConfig::default())),
    ("one line, a bounded queue", || {
        line(10_000, &PipeConfig { queue_bytes: 4_000_000, ..PipeConfig::default() })
    }),
    ("one line, random loss", || {
        let loss = Loss::Random { probability: 0.01 };
        line(10_000, &PipeConfig { loss, ..PipeConfig::default() })
    }),
    ("three pipes a route", || hops(3)),
    ("100 lines", || lines(100)),
    ("1000 lines", || lines(1000)),
];

fn address(number: usize) -> SocketAddr {
    let [.., high, low] = (number as u32).to_be_bytes();
    SocketAddr::new(IpAddr::from([10, 1, high, low]), 9899)
}

/// A line of 10 Gbit/s that is nearly full: its delay says how much is on the way.
fn fast(on_the_way: u64, config: &PipeConfig) -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(10_000_000_000),
        delay: Duration::from_nanos(on_the_way * PACKET_NS),
        ..config.clone()
    }
}

/// 1500 bytes at 10 Gbit/s.
const PACKET_NS: u64 = 1200;

fn line(on_the_way: u64, config: &PipeConfig) -> Case {
    let mut network = Network::new(1);
    network.add_host(&[address(0).ip()]);
    network.add_host(&[address(1).ip()]);
    network.connect(address(0).ip(), address(1).ip(), &fast(on_the_way, config));
    Case { network, flows: vec![(address(0), address(1))], gap_ns: PACKET_NS * BATCH as u64 }
}

fn hops(pipes: usize) -> Case {
    let mut network = Network::new(1);
    network.add_host(&[address(0).ip()]);
    network.add_host(&[address(1).ip()]);
    let route: Vec<_> = (0..pipes).map(|_| network.add_pipe(&fast(3_000, &PipeConfig::default()))).collect();
    network.set_route(address(0).ip(), address(1).ip(), &route);
    Case { network, flows: vec![(address(0), address(1))], gap_ns: PACKET_NS * BATCH as u64 }
}

/// Pairs of hosts with a line each, all busy, with 10,000 packets on the way together.
fn lines(pairs: usize) -> Case {
    let mut network = Network::new(1);
    let mut flows = Vec::new();
    for pair in 0..pairs {
        let (from, to) = (address(2 * pair), address(2 * pair + 1));
        network.add_host(&[from.ip()]);
        network.add_host(&[to.ip()]);
        network.connect(from.ip(), to.ip(), &fast(10_000 / pairs as u64, &PipeConfig::default()));
        flows.push((from, to));
    }
    Case { network, flows, gap_ns: PACKET_NS * BATCH as u64 / pairs as u64 }
}

/// How many packets are on the way in the end, and what one cost.
fn measure(mut case: Case) -> (usize, f64) {
    let payload = Bytes::from(vec![0; PACKET_BYTES - 28]);
    let mut now_ns = 0;
    let mut turn = 0;
    let mut run = |batches: usize| {
        for _ in 0..batches {
            let (from, to) = case.flows[turn];
            turn = (turn + 1) % case.flows.len();
            for _ in 0..BATCH {
                black_box(case.network.send(now_ns, from, to, PACKET_BYTES, payload.clone()));
            }
            now_ns += case.gap_ns.max(1);
            while let Some(delivery) = case.network.deliver(now_ns) {
                black_box(delivery);
            }
        }
    };
    run(4_000);
    let (mut packets, start) = (0, Instant::now());
    while start.elapsed() < MEASURED {
        run(500);
        packets += 500 * BATCH;
    }
    let ns = start.elapsed().as_nanos() as f64 / packets as f64;
    (case.network.in_flight(), ns)
}
