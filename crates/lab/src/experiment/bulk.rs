//! One association that sends as much as it can from one host to another.

use std::time::Duration;

use netsim::{CaptureError, PipeConfig, PipeId};
use sctp::congestion::Algorithm;
use sctp::{AssociationConfig, AssociationId, Statistics, Time};

use super::limit::{limit_bits_per_s, payload_bytes};
use super::{Case, Outcome, Sample, Watch};
use crate::traffic::{Source, Traffic};
use crate::world::World;

/// Samples of one run, about.
const SAMPLES: u32 = 400;
/// A file that is not through after so many times what the line needs for it is given up.
const PATIENCE: u32 = 20;

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Load {
    /// A file of so many bytes.
    File(u64),
    /// All that goes, and after each of these times it is noted how much that was.
    Endless(Vec<Duration>),
}

/// One association on one line.
#[derive(Clone, Debug)]
pub(super) struct Bulk {
    pub(super) name: String,
    pub(super) seed: u64,
    /// Both directions of the line.
    pub(super) line: PipeConfig,
    pub(super) algorithm: Algorithm,
    pub(super) send_buffer_bytes: usize,
    pub(super) receive_buffer_bytes: usize,
    pub(super) load: Load,
    pub(super) predicted_bits_per_s: Option<f64>,
    /// What others have published of the outcome after so many seconds.
    pub(super) published: fn(&Bulk, f64) -> Vec<Outcome>,
}

/// A run: hosts 0 and 1 and the association between them.
struct Run<'a> {
    case: &'a Bulk,
    world: World<Traffic>,
    id: AssociationId,
    bottleneck: PipeId,
    trace: Vec<Sample>,
    sampled_bytes: u64,
}

impl Case for Bulk {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&self, watch: &mut Watch<'_>) -> Result<Vec<Outcome>, CaptureError> {
        let mut run = Run::start(self, watch);
        watch.start_capture(&mut run.world)?;
        let outcomes = match &self.load {
            Load::File(bytes) => run.file(*bytes, watch),
            Load::Endless(marks) => run.endless(marks, watch),
        };
        run.world.network.stop_capture()?;
        Ok(outcomes)
    }
}

impl Bulk {
    /// Settings of both ends.
    fn config(&self) -> AssociationConfig {
        AssociationConfig {
            send_buffer_bytes: self.send_buffer_bytes,
            receive_buffer_bytes: self.receive_buffer_bytes,
            congestion: self.algorithm,
            ..AssociationConfig::default()
        }
    }

    /// An outcome of this case.
    fn outcome(&self, seconds: f64, bytes: u64, statistics: &Statistics) -> Outcome {
        let outcome = Outcome {
            case: self.name.clone(),
            transport: "sctp".to_owned(),
            algorithm: Some(self.algorithm.name()),
            seconds,
            bits_per_s: bytes as f64 * 8.0 / seconds,
            limit_bits_per_s: limit_bits_per_s(&self.line),
            predicted_bits_per_s: self.predicted_bits_per_s,
            ..Outcome::default()
        };
        outcome.counted(statistics)
    }
}

impl<'a> Run<'a> {
    fn start(case: &'a Bulk, watch: &mut Watch<'_>) -> Self {
        let mut world: World<Traffic> = World::new(case.seed);
        watch.start_trace(&mut world);
        let hosts = [1, 2].map(|last| world.add_host(&[[10, 0, 0, last].into()], Traffic::default()));
        let (bottleneck, _) = world.join(hosts[0], hosts[1], &case.line);
        world.listen(hosts[1], 5001, case.config());
        let id = world.connect(hosts[0], hosts[1], (5000, 5001), case.config());
        let source = match case.load {
            Load::File(bytes) => Source::file(bytes, payload_bytes()),
            Load::Endless(_) => {
                Source::Endless { message_bytes: payload_bytes(), until: Time::from_nanos(u64::MAX) }
            }
        };
        world.node_mut(hosts[0]).app.start(id, source);
        Run { case, world, id, bottleneck, trace: Vec::new(), sampled_bytes: 0 }
    }

    fn file(&mut self, bytes: u64, watch: &mut Watch<'_>) -> Vec<Outcome> {
        let needed = Duration::from_secs_f64(bytes as f64 * 8.0 / limit_bits_per_s(&self.case.line));
        let slice = needed / SAMPLES;
        let mut interrupted = false;
        while self.received_bytes() < bytes
            && !interrupted
            && self.world.now() < Time::ZERO + needed * PATIENCE
        {
            self.run_for(slice);
            interrupted = !watch.goes_on(self.received_bytes() as f64 / bytes as f64);
        }
        let last = self.world.node(1).app.received().last_at;
        let seconds = last.map_or(self.now_s(), |at| at.saturating_since(Time::ZERO).as_secs_f64());
        let ours = self.case.outcome(seconds, self.received_bytes(), &self.statistics());
        self.finish(ours, interrupted)
    }

    fn endless(&mut self, marks: &[Duration], watch: &mut Watch<'_>) -> Vec<Outcome> {
        let whole = marks.last().copied().unwrap_or_default();
        let slice = whole / SAMPLES;
        let mut outcomes = Vec::new();
        for &mark in marks {
            let mut interrupted = false;
            while self.world.now() < Time::ZERO + mark && !interrupted {
                let left = (Time::ZERO + mark).saturating_since(self.world.now());
                self.run_for(slice.min(left));
                interrupted = !watch.goes_on(self.now_s() / whole.as_secs_f64());
            }
            let ours = self.case.outcome(self.now_s(), self.received_bytes(), &self.statistics());
            outcomes.extend(self.finish(ours, interrupted));
            if interrupted {
                break;
            }
        }
        outcomes
    }

    fn finish(&mut self, ours: Outcome, interrupted: bool) -> Vec<Outcome> {
        let seconds = ours.seconds;
        let ours = Outcome { interrupted, trace: self.trace.clone(), ..ours };
        std::iter::once(ours).chain((self.case.published)(self.case, seconds)).collect()
    }

    fn now_s(&self) -> f64 {
        self.world.now().saturating_since(Time::ZERO).as_secs_f64()
    }

    fn received_bytes(&self) -> u64 {
        self.world.node(1).app.received().bytes
    }

    fn statistics(&self) -> Statistics {
        self.world.node(0).endpoint.statistics(self.id).unwrap_or_default()
    }

    /// Lets time pass and takes a sample.
    fn run_for(&mut self, time: Duration) {
        self.world.run_for(time);
        let bytes = self.received_bytes();
        let statistics = self.statistics();
        let path = statistics.paths.first();
        let now_ns = self.world.now().as_nanos();
        self.trace.push(Sample {
            at_s: self.now_s(),
            bits_per_s: (bytes - self.sampled_bytes) as f64 * 8.0 / time.as_secs_f64(),
            cwnd_bytes: path.map_or(0, |path| path.cwnd_bytes),
            in_flight_bytes: path.map_or(0, |path| path.in_flight_bytes),
            queue_bytes: self.world.network.pipe(self.bottleneck).queued_bytes(now_ns),
            srtt_s: path.and_then(|path| path.srtt).map_or(0.0, |srtt| srtt.as_secs_f64()),
        });
        self.sampled_bytes = bytes;
    }
}

/// Outcomes of others.
pub(super) fn published(bulk: &Bulk, figures: Vec<super::published::Figure>) -> Vec<Outcome> {
    let outcome = |figure: super::published::Figure| Outcome {
        case: bulk.name.clone(),
        transport: figure.transport.to_owned(),
        seconds: figure.seconds,
        bits_per_s: figure.bits_per_s,
        limit_bits_per_s: limit_bits_per_s(&bulk.line),
        published: true,
        ..Outcome::default()
    };
    figures.into_iter().map(outcome).collect()
}
