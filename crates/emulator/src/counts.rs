//! Counters and distributions.

use std::collections::HashMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use netsim::{DropReason, Ecn, Passage, PipeStats};

use crate::flow::FlowKey;

/// Number of flows with counters of their own on each line. Later flows share one.
const FLOWS_MAX: usize = 4096;
/// Range of times that the distribution distinguishes.
const TIME_NS_MIN: u64 = 100;
const TIME_NS_MAX: u64 = 3_600_000_000_000;
/// Significant decimal digits of a time.
const TIME_DIGITS: u8 = 2;

/// Counters of a flow. A packet is a segment, as on a real line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Packets that reached the line.
    pub packets_offered: u64,
    /// Packets that the receiving host has taken, without copies.
    pub packets_delivered: u64,
    /// Their bytes, from the IP header on.
    pub bytes_delivered: u64,
    /// Packets that the line has accepted and that are not yet at the host, without copies.
    pub packets_in_flight: u64,
    /// Packets that the line lost at random.
    pub packets_lost: u64,
    /// Packets that found the queue full.
    pub packets_overflowed: u64,
    /// Packets that the line lost because it was down.
    pub packets_down: u64,
    /// Packets that were too long for the line.
    pub packets_too_big: u64,
    /// Accepted packets whose bits the line has flipped.
    pub packets_corrupted: u64,
    /// Copies that the line has made and accepted.
    pub packets_duplicated: u64,
    /// Accepted packets that the line has marked "congestion experienced".
    pub packets_marked: u64,
    /// Packets that have passed the line and that the receiving host has refused, without copies.
    pub packets_refused: u64,
    /// Sum of the delays of all packets that have arrived, beyond the delay of the line.
    pub waited: Duration,
    /// Largest of these delays.
    pub waited_max: Duration,
}

impl FlowCounts {
    /// Counts a packet that was offered with this ECN field.
    pub(crate) fn on_accepted(&mut self, passage: &Passage, ecn: Ecn) {
        self.packets_in_flight += 1;
        self.packets_corrupted += u64::from(passage.flips.is_some());
        self.packets_duplicated += u64::from(passage.copy_at_ns.is_some());
        self.packets_marked += u64::from(passage.ecn != ecn);
    }

    pub(crate) fn on_delivered(&mut self, arrived: &Arrived) {
        self.packets_in_flight -= arrived.packets;
        self.packets_delivered += arrived.packets;
        self.bytes_delivered += arrived.bytes;
        self.waited += arrived.waited;
        self.waited_max = self.waited_max.max(arrived.waited_max);
    }

    pub(crate) fn on_refused(&mut self, arrived: &Arrived) {
        self.packets_in_flight -= arrived.packets;
        self.packets_refused += arrived.packets;
    }

    pub(crate) fn on_dropped(&mut self, reason: DropReason) {
        match reason {
            DropReason::Loss => self.packets_lost += 1,
            DropReason::Queue => self.packets_overflowed += 1,
            DropReason::Down => self.packets_down += 1,
            DropReason::TooBig => self.packets_too_big += 1,
        }
    }

    /// Returns the mean delay of packets that have arrived, beyond the delay of the line.
    #[must_use]
    pub fn waited_mean(&self) -> Duration {
        Duration::from_nanos(
            self.waited.as_nanos().checked_div(u128::from(self.packets_delivered)).unwrap_or(0) as u64,
        )
    }
}

/// Packets of a flow that arrive in one piece.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    packets: u64,
    bytes: u64,
    waited: Duration,
    waited_max: Duration,
}

impl Arrived {
    pub(crate) fn add(&mut self, bytes: usize, waited: Duration) {
        self.packets += 1;
        self.bytes += bytes as u64;
        self.waited += waited;
        self.waited_max = self.waited_max.max(waited);
    }
}

/// Distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Median.
    pub p50: Duration,
    /// 95th percentile.
    pub p95: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Maximum.
    pub max: Duration,
}

/// Times, which can be summarised as a [`Distribution`].
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(TIME_NS_MIN, TIME_NS_MAX, TIME_DIGITS);
        Times(histogram.expect("the bounds are in order"))
    }

    pub(crate) fn record(&mut self, time_ns: u64) {
        self.record_each(time_ns, 1);
    }

    /// Records the same time for each of so many packets.
    pub(crate) fn record_each(&mut self, time_ns: u64, packets: u16) {
        self.0.saturating_record_n(time_ns, packets.into());
    }

    pub(crate) fn distribution(&self) -> Distribution {
        let at = |quantile| Duration::from_nanos(self.0.value_at_quantile(quantile));
        Distribution { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: Duration::from_nanos(self.0.max()) }
    }
}

/// Counters by flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flows {
    places: HashMap<FlowKey, usize>,
    counts: Vec<(Option<FlowKey>, FlowCounts)>,
    /// The place of all packets without a flow of their own.
    others: Option<usize>,
    /// The flow looked up last: a host sends many packets of a flow in a row.
    recent: Option<(Option<FlowKey>, usize)>,
}

impl Flows {
    /// Returns the place of a flow's counters.
    pub(crate) fn place(&mut self, key: Option<FlowKey>) -> usize {
        let place = match self.recent {
            Some((recent, place)) if recent == key => place,
            _ => self.find_place(key),
        };
        self.recent = Some((key, place));
        place
    }

    /// Returns the counters at a place.
    pub(crate) fn at(&mut self, place: usize) -> &mut FlowCounts {
        &mut self.counts[place].1
    }

    fn find_place(&mut self, key: Option<FlowKey>) -> usize {
        if let Some(place) = key.and_then(|key| self.places.get(&key)) {
            return *place;
        }
        let key = key.filter(|_| self.places.len() < FLOWS_MAX);
        let new = self.counts.len();
        let place = match key {
            Some(key) => *self.places.entry(key).or_insert(new),
            None => *self.others.get_or_insert(new),
        };
        if place == new {
            self.counts.push((key, FlowCounts::default()));
        }
        place
    }

    pub(crate) fn all(&self) -> &[(Option<FlowKey>, FlowCounts)] {
        &self.counts
    }
}

/// Counters of a line.
#[derive(Clone, Debug)]
pub struct LineCounts {
    /// Counters of the pipe, which counts each segment.
    pub pipe: PipeStats,
    /// Super-packets and packets read from the host.
    pub packets_read: u64,
    /// Super-packets and packets that the other host has taken.
    pub packets_written: u64,
    /// Segments dropped for lack of memory, because packets on the way took over a gigabyte. The line's losses do not include
    /// them.
    pub memory_drops: u64,
    /// Delays of segments beyond the delay of the line: their time in the queue, and the time to transmit them.
    pub waited: Distribution,
    /// Counters of each flow, in the order of their first packets. `None` stands for other than IP packets, and for flows beyond
    /// the first 4,096.
    pub flows: Vec<(Option<FlowKey>, FlowCounts)>,
}

/// State of a line at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineState {
    /// Bytes in the queue, including the packet that is leaving.
    pub queued_bytes: usize,
    /// Bytes that the line has accepted and not lost since the counters started.
    pub bytes_accepted: u64,
}

/// Counters of a path.
#[derive(Clone, Debug)]
pub struct PathCounts {
    /// From the first host to the second, and the reverse.
    pub lines: [LineCounts; 2],
    /// Segments whose write to the device of the other host failed, in either direction.
    pub write_drops: u64,
    /// Packets and super-packets of either host that were lost before this program had read them: for lack of room in the device,
    /// or because the kernel could not describe them.
    pub read_drops: u64,
}

/// Counters of an emulator.
#[derive(Clone, Debug)]
pub struct EmulatorCounts {
    /// The paths in their order.
    pub paths: Vec<PathCounts>,
    /// Lateness of each segment when its write to the host began, unless the host refused it: the time since the pipe delivered
    /// it, including the wait for the segments that travel with it, and the longest time by which it may have left the line later
    /// because it waited in the device of its sender.
    pub late: Distribution,
    /// Number of times that a device or a line used up its time, and the others had to wait for it.
    pub long_turns: u64,
    /// Longest time that the write of one packet, or of segments in one piece, took. Behind it the kernel does the work of the
    /// receiving host.
    pub write_max: Duration,
    /// Elapsed time.
    pub elapsed: Duration,
    /// Processor time.
    pub processor: Duration,
    /// Whether the thread has real-time priority.
    pub realtime: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> Option<FlowKey> {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        Some(FlowKey { protocol: 6, from: (address, port), to: (address, 80) })
    }

    #[test]
    fn flows_are_counted_apart_up_to_a_limit() {
        let mut flows = Flows::default();
        for port in 0..u16::MAX {
            let place = flows.place(key(port));
            flows.at(place).packets_lost += 1;
            let place = flows.place(None);
            flows.at(place).packets_lost += 1;
        }
        assert_eq!(flows.all().len(), FLOWS_MAX + 1);
        let place = flows.place(key(5));
        assert_eq!(flows.at(place).packets_lost, 1);
        let lost: u64 = flows.all().iter().map(|(_, counts)| counts.packets_lost).sum();
        assert_eq!(lost, 2 * u64::from(u16::MAX));
    }

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut times = Times::new();
        (1..=100).for_each(|time| times.record(time * 1_000_000));
        let distribution = times.distribution();
        let Distribution { p50, p95, p99, max } = distribution;
        for (time, expected_ms) in [(p50, 50.0), (p95, 95.0), (p99, 99.0), (max, 100.0)] {
            assert!((time.as_secs_f64() * 1e3 / expected_ms - 1.0).abs() < 0.01, "{distribution:?}");
        }
    }
}
