//! A line that is up for ten seconds and down for ten, and a slower one that is always up.

use std::time::Duration;

use netsim::{PipeConfig, Schedule};

use super::super::published::{self, Network};
use super::super::{Case, Options, Outcome};
use super::{Multipath, boxed, line};

/// Round-trip times measured between the hosts of the published test.
const ROUND_TRIPS: [Duration; 2] = [Duration::from_micros(180), Duration::from_micros(1870)];
const MBITS_PER_S: [u64; 2] = [10, 5];
/// The bandwidth-delay products are below one packet, and no interface has so short a queue.
const QUEUES_PACKETS: [usize; 2] = [20, 5];
const PACKET_BYTES: usize = 1500;
const UP: Duration = Duration::from_secs(10);
/// Three times up and down.
const TIME: Duration = Duration::from_secs(60);

pub(super) fn case(options: &Options, queue_packets: usize, up: Duration, end: Duration) -> Multipath {
    let lines = [0, 1].map(|n| PipeConfig {
        queue_bytes: queue_packets * PACKET_BYTES,
        ..line(MBITS_PER_S[n], ROUND_TRIPS[n], 0.0)
    });
    let [first, second] = lines;
    let mut outages = Vec::new();
    let mut down = up;
    while down < end {
        outages.push(down..down + up);
        down += up * 2;
    }
    let first = PipeConfig { schedule: Schedule::Listed(outages), ..first };
    let name = format!("10 Mbit/s up and down + 5 Mbit/s, queue of {queue_packets} packets");
    Multipath {
        slice: Duration::from_millis(50),
        drains: true,
        published: published::dissertation(Network::Both).into_iter().map(|(figure, _)| figure).collect(),
        ..Multipath::new(name, options.seed, vec![first, second], Duration::ZERO..end)
    }
}

pub(in super::super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    let end = options.time.unwrap_or(TIME);
    boxed(QUEUES_PACKETS.map(|packets| case(options, packets, UP, end)))
}

/// Returns the throughput and the latency that have been published of a network.
pub fn published_flapping(network: Network) -> Vec<Outcome> {
    let case = case(&Options::default(), QUEUES_PACKETS[0], UP, TIME);
    // Neither the size of the messages nor the limits of the networks were published.
    let outcome = |(figure, latency_s)| Outcome {
        latency_s: Some(latency_s),
        limit_bits_per_s: f64::INFINITY,
        message_bytes: None,
        mode: None,
        ..case.published_outcome(&figure)
    };
    published::dissertation(network).into_iter().map(outcome).collect()
}
