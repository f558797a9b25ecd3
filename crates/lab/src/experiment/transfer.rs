//! One association that sends as much as it can from one host to another, over a path for each line between them.

use std::time::Duration;

use netsim::topology::{Link, Paths};
use netsim::{CaptureError, PipeConfig};
use sctp::{AssociationConfig, AssociationId, Statistics, Time};

use super::{PathSample, Sample, Watch};
use crate::simulation::Simulation;
use crate::traffic::{Received, Source, Traffic};

/// The host that sends, and the one that receives.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// A transfer: the data and the lines.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    pub(super) seed: u64,
    /// Both directions of each line.
    pub(super) lines: &'a [PipeConfig],
    /// Settings of both ends.
    pub(super) config: AssociationConfig,
    pub(super) source: Source,
    /// Gaps in the delivery count from then on.
    pub(super) gaps_from: Time,
}

/// The hosts, the association between them, and how it went so far.
#[derive(Debug)]
pub(super) struct Transfer {
    simulation: Simulation<Traffic>,
    id: AssociationId,
    links: Vec<Link>,
    trace: Vec<Sample>,
    sampled_bytes: u64,
    /// Bytes that had left each line at the last sample.
    sampled_line_bytes: Vec<u64>,
}

impl Transfer {
    pub(super) fn start(setup: Setup<'_>, watch: &mut Watch<'_>) -> Result<Self, CaptureError> {
        let mut simulation: Simulation<Traffic> = Simulation::new(setup.seed);
        watch.start_trace(&mut simulation);
        let Paths { a, b, links } = Paths::build(&mut simulation.network, setup.lines);
        for site in [&a, &b] {
            simulation.add_site(site, Traffic::default());
        }
        simulation.node_mut(RECEIVER).app.gaps_from = setup.gaps_from;
        simulation.listen(RECEIVER, 5001, setup.config.clone());
        let id = simulation.connect(SENDER, RECEIVER, (5000, 5001), setup.config);
        simulation.node_mut(SENDER).app.start(id, setup.source);
        watch.start_capture(&mut simulation)?;
        let sampled_line_bytes = vec![0; links.len()];
        Ok(Transfer { simulation, id, links, trace: Vec::new(), sampled_bytes: 0, sampled_line_bytes })
    }

    /// Ends the capture, if there is one.
    pub(super) fn stop(&mut self) -> Result<(), CaptureError> {
        self.simulation.network.stop_capture()
    }

    pub(super) fn now(&self) -> Time {
        self.simulation.now()
    }

    pub(super) fn now_s(&self) -> f64 {
        self.now().saturating_since(Time::ZERO).as_secs_f64()
    }

    /// Returns the data that the receiver's program has got.
    pub(super) fn received(&self) -> Received {
        self.simulation.node(RECEIVER).app.received()
    }

    /// Returns the counters of the sender.
    pub(super) fn statistics(&self) -> Statistics {
        self.simulation.node(SENDER).endpoint.statistics(self.id).unwrap_or_default()
    }

    /// Returns the trace so far.
    pub(super) fn trace(&self) -> &[Sample] {
        &self.trace
    }

    /// Lets everything arrive that was sent, unless that takes too long: messages sent less messages delivered.
    pub(super) fn drain(&mut self, patience: Duration) -> i64 {
        self.simulation.run_until(patience, |simulation| {
            let statistics = simulation.node(SENDER).endpoint.statistics(self.id).unwrap_or_default();
            statistics.send_buffered_bytes == 0
        });
        self.statistics().messages_sent as i64 - self.received().messages as i64
    }

    /// Lets time pass and takes a sample.
    pub(super) fn run_for(&mut self, time: Duration) {
        self.simulation.run_for(time);
        let bytes = self.received().bytes;
        let statistics = self.statistics();
        let per_second = |bytes: u64| bytes as f64 * 8.0 / time.as_secs_f64();
        let now_ns = self.simulation.now().as_nanos();
        let mut paths = Vec::with_capacity(self.links.len());
        for (number, (link, sampled)) in self.links.iter().zip(&mut self.sampled_line_bytes).enumerate() {
            let pipe = self.simulation.network.pipe(link.there);
            let rate_bits_per_s = pipe.config().rate_bits_per_s.unwrap_or(u64::MAX);
            let queue_bytes = pipe.queued_bytes(now_ns);
            // The pipe counts packets as delivered when they enter it; those in the queue have yet to leave.
            let left_bytes = pipe.stats().bytes_delivered.saturating_sub(queue_bytes as u64);
            let remote = self.simulation.node(RECEIVER).sockets()[number];
            let path = statistics.paths.iter().find(|path| path.remote == remote);
            paths.push(PathSample {
                // Packets that an outage takes with the queue have been counted as waiting; no line carries more than its rate.
                bits_per_s: per_second(left_bytes.saturating_sub(*sampled)).min(rate_bits_per_s as f64),
                cwnd_bytes: path.map_or(0, |path| path.cwnd_bytes),
                in_flight_bytes: path.map_or(0, |path| path.in_flight_bytes),
                queue_bytes,
                srtt_s: path.and_then(|path| path.srtt).map_or(0.0, |srtt| srtt.as_secs_f64()),
            });
            *sampled = (*sampled).max(left_bytes);
        }
        self.trace.push(Sample {
            at_s: self.now_s(),
            bits_per_s: per_second(bytes - self.sampled_bytes),
            paths,
        });
        self.sampled_bytes = bytes;
    }
}
