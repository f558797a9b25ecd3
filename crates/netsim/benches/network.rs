//! Cost of the network itself for each packet, with few and with many packets on the way.
//!
//! `cargo bench -p swiftwater-netsim`; a word after `--` runs only the cases whose name has it.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use netsim::topology::Dumbbell;
use netsim::{Capture, Jitter, Loss, Network, PipeConfig, Reorder};

/// Length of a packet on the wire.
const PACKET_BYTES: usize = 1500;
/// Packets that leave at the same instant, as a sender with a batch does.
const BATCH: usize = 16;
/// Each case is measured this often over so many batches, which take less than a slice of the scheduler; the best
/// counts, because other work only ever adds.
const ROUNDS: usize = 300;
const ROUND_BATCHES: usize = 500;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("{:36} {:>10} {:>12}", "case", "on the way", "ns a packet");
    for (name, case) in CASES {
        if wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str())) {
            let (on_the_way, ns) = measure(case());
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

const CASES: [NamedCase; 13] = [
    ("one line, few on the way", || line(200, &PipeConfig::default())),
    ("one line", || line(10_000, &PipeConfig::default())),
    ("one line, a bounded queue", || {
        line(10_000, &PipeConfig { queue_bytes: 4_000_000, ..PipeConfig::default() })
    }),
    ("one line, random loss", || {
        let loss = Loss::Random { probability: 0.01 };
        line(10_000, &PipeConfig { loss, ..PipeConfig::default() })
    }),
    ("one line, all faults rarely", || line(10_000, &rare_faults())),
    ("one line, one in a hundred late", || {
        let reorder = Reorder::Late { probability: 0.01, by: Duration::from_millis(5) };
        line(10_000, &PipeConfig { reorder, ..PipeConfig::default() })
    }),
    ("one line, jitter that reorders", || line(10_000, &jitter(10_000 * PACKET_NS, true))),
    ("one line, jitter in a row", || line(10_000, &jitter(10_000 * PACKET_NS, false))),
    ("three pipes a route", || hops(3)),
    ("a dumbbell of 100 pairs", || dumbbell(100)),
    ("one line, captured", captured),
    ("100 lines", || lines(100)),
    ("1000 lines", || lines(1000)),
];

fn address(number: usize) -> SocketAddr {
    let [.., high, low] = (number as u32).to_be_bytes();
    SocketAddr::new(IpAddr::from([10, 1, high, low]), 9899)
}

/// Returns a line of 10 Gbit/s that is nearly full: its delay says how much is on the way.
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

fn rare_faults() -> PipeConfig {
    PipeConfig {
        mark_above_bytes: Some(100_000),
        loss: Loss::bursts(0.001, 3.0),
        reorder: Reorder::Behind { probability: 0.001, packets: 3, wait_max: Duration::from_millis(1) },
        duplicate_probability: 0.001,
        corrupt_probability: 0.001,
        ..PipeConfig::default()
    }
}

fn jitter(max_ns: u64, may_reorder: bool) -> PipeConfig {
    let max = Duration::from_nanos(max_ns);
    PipeConfig { jitter: Jitter::Uniform { max, may_reorder }, ..PipeConfig::default() }
}

fn dumbbell(pairs: usize) -> Case {
    let mut network = Network::new(1);
    let bottleneck = fast(9_000, &PipeConfig::default());
    let access = PipeConfig {
        rate_bits_per_s: Some(1_000_000_000),
        delay: Duration::from_micros(500),
        ..PipeConfig::default()
    };
    let Dumbbell { left, right, .. } = Dumbbell::build(&mut network, pairs, &access, &bottleneck);
    let flows = left.iter().zip(&right).map(|(a, b)| (a.socket(0, 9899), b.socket(0, 9899))).collect();
    Case { network, flows, gap_ns: PACKET_NS * BATCH as u64 }
}

fn captured() -> Case {
    let mut case = line(10_000, &PipeConfig::default());
    let hosts: Vec<_> = (2..4).map(|number| case.network.add_host(&[address(number).ip()])).collect();
    case.network.connect(address(2).ip(), address(3).ip(), &fast(10_000, &PipeConfig::default()));
    let capture = Capture::to(std::io::sink()).host(hosts[0], "from").host(hosts[1], "to");
    if let Err(error) = case.network.start_capture(capture) {
        panic!("{error}");
    }
    Case { flows: vec![(address(2), address(3))], ..case }
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

/// Returns how many packets are on the way in the end, and what one cost.
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
    // All that the queues will ever hold is allocated.
    run(4_000);
    let mut best_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run(ROUND_BATCHES);
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / (ROUND_BATCHES * BATCH) as f64);
    }
    (case.network.in_flight(), best_ns)
}
