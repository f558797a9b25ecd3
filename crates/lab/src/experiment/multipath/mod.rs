//! Two paths at once, compared with each path alone.

mod asymmetric;
mod failover;
mod flapping;
mod lossy;
mod two_equal;

use std::ops::Range;
use std::time::Duration;

use netsim::{CaptureError, PipeConfig, Schedule};
use sctp::congestion::Algorithm;
use sctp::{AssociationConfig, Time};

use super::limit::{Mode, message_limit_bits_per_s, payload_bytes, round_trip_bytes};
use super::published::PathFigure;
use super::transfer::{Setup, Transfer};
use super::{Case, Outcome, Returns, Sample, Watch};
use crate::traffic::Source;

pub(super) use asymmetric::{delay_cases, rate_cases};
pub(super) use failover::cases as failover_cases;
pub(super) use flapping::cases as flapping_cases;
pub use flapping::published_flapping;
pub(super) use lossy::cases as lossy_cases;
pub(super) use two_equal::cases as two_equal_cases;
pub use two_equal::published_two_equal;

/// The queues of every case, in bandwidth-delay products of its line.
const QUEUES: [f64; 2] = [1.0, 0.25];
/// The default round-trip time.
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// Part of a line's rate above which the line counts as used again.
const USED_AGAIN: f64 = 0.1;
/// Number of bytes of an endless message that the receiver gets at once, because it reads a stream.
const STREAM_PART_BYTES: usize = 16 << 10;
/// Longest wait for the arrival of data after the last of it was sent.
const PATIENCE: Duration = Duration::from_secs(60);

/// One association on several lines, and on each of them alone.
#[derive(Clone, Debug)]
pub(super) struct Multipath {
    name: String,
    seed: u64,
    /// Both directions of each line.
    lines: Vec<PipeConfig>,
    algorithm: Algorithm,
    mode: Mode,
    message_bytes: usize,
    /// A receive buffer of fixed size.
    receive_buffer_bytes: Option<usize>,
    /// The part of the run that counts.
    measured: Range<Duration>,
    /// Interval of the samples.
    slice: Duration,
    /// Whether the run ends when everything has arrived.
    drains: bool,
    /// Published results of the same test.
    published: Vec<PathFigure>,
}

/// Result of a run.
struct Run {
    outcome: Outcome,
    trace: Vec<Sample>,
}

impl Case for Multipath {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&self, watch: &mut Watch<'_>) -> Result<Vec<Outcome>, CaptureError> {
        let alone = self.distinct_lines();
        let runs = alone.len() + 1;
        // First, because the first run is captured and traced.
        let together = self.send(&self.lines, watch, 0, runs)?;
        let mut interrupted = together.outcome.interrupted;
        let mut outcomes = Vec::new();
        for (number, line) in alone.iter().enumerate() {
            if interrupted {
                break;
            }
            let run = self.send(std::slice::from_ref(&self.lines[*line]), watch, number + 1, runs)?;
            interrupted = run.outcome.interrupted;
            outcomes.push(Outcome { path: Some(line + 1), ..run.outcome });
        }
        // A line that was down when the user ended the run might have come back later.
        let returns = self.use_after_returns(&together.trace).filter(|_| !together.outcome.interrupted);
        outcomes.push(Outcome { trace: together.trace, returns, ..together.outcome });
        if !interrupted {
            self.compare_with_alone(&mut outcomes);
        }
        // The user may end a run before its measured part begins.
        outcomes.retain(|outcome| outcome.seconds > 0.0);
        outcomes.extend(self.published.iter().map(|figure| self.published_outcome(figure)));
        Ok(outcomes)
    }
}

impl Multipath {
    /// Adds to the outcomes of all runs what the lines made alone. Those of the distinct lines come first, in their order.
    fn compare_with_alone(&self, outcomes: &mut [Outcome]) {
        let rate = |line: usize| outcomes[self.like(line)].bits_per_s;
        let best = (0..self.lines.len()).map(rate).fold(0.0, f64::max);
        let sum = (0..self.lines.len()).map(rate).sum();
        for outcome in outcomes {
            outcome.best_path_bits_per_s = Some(best);
            outcome.sum_of_paths_bits_per_s = (outcome.path.is_none()).then_some(sum);
        }
    }

    /// Returns a case with messages that fill a packet, and nothing published.
    fn new(name: String, seed: u64, lines: Vec<PipeConfig>, measured: Range<Duration>) -> Self {
        let slice = measured.end / 400;
        Multipath {
            name,
            seed,
            lines,
            algorithm: Algorithm::default(),
            mode: Mode::Message,
            message_bytes: payload_bytes(),
            receive_buffer_bytes: None,
            measured,
            slice,
            drains: false,
            published: Vec::new(),
        }
    }

    /// Returns the distinct lines; each is measured alone once.
    fn distinct_lines(&self) -> Vec<usize> {
        (0..self.lines.len()).filter(|&line| !self.lines[..line].contains(&self.lines[line])).collect()
    }

    /// Returns the index of this line among the distinct lines.
    fn like(&self, line: usize) -> usize {
        let distinct = self.distinct_lines();
        distinct.iter().position(|&other| self.lines[other] == self.lines[line]).unwrap_or(line)
    }

    fn config(&self) -> AssociationConfig {
        let mut config = AssociationConfig { congestion: self.algorithm, ..AssociationConfig::default() };
        if let Some(bytes) = self.receive_buffer_bytes {
            (config.receive_buffer_bytes, config.receive_buffer_tuned_bytes) = (bytes, bytes);
        }
        if self.mode == Mode::Stream {
            config.partial_delivery_bytes = STREAM_PART_BYTES;
        }
        config
    }

    fn source(&self) -> Source {
        let until = Time::ZERO + self.measured.end;
        match self.mode {
            Mode::Message => Source::Endless { message_bytes: self.message_bytes, until },
            Mode::Stream => Source::Stream { piece_bytes: self.message_bytes, until },
        }
    }

    /// Runs a transfer over these lines; it is run `number` of `runs`.
    fn send(
        &self,
        lines: &[PipeConfig],
        watch: &mut Watch<'_>,
        number: usize,
        runs: usize,
    ) -> Result<Run, CaptureError> {
        let Range { start, end } = self.measured;
        let (seed, config, source) = (self.seed, self.config(), self.source());
        let setup = Setup { seed, lines, config, source, gaps_from: Time::ZERO + start };
        let mut transfer = Transfer::start(setup, watch)?;
        let mut before = (Duration::ZERO, 0);
        let mut interrupted = false;
        while transfer.now() < Time::ZERO + end && !interrupted {
            let now = transfer.now().saturating_since(Time::ZERO);
            let next = if now < start { start } else { end };
            transfer.run_for(self.slice.min(next - now));
            if transfer.now() <= Time::ZERO + start {
                before = (transfer.now().saturating_since(Time::ZERO), transfer.received().bytes);
            }
            let part = transfer.now_s() / end.as_secs_f64();
            interrupted = !watch.goes_on((number as f64 + part) / runs as f64);
        }
        let mut outcome = self.outcome(lines, &transfer, before);
        outcome.interrupted = interrupted;
        let trace = transfer.trace().to_vec();
        if self.drains && !interrupted {
            outcome.missing_messages = Some(transfer.drain(PATIENCE));
        }
        transfer.stop()?;
        Ok(Run { outcome, trace })
    }

    /// Returns the result of a run since a time, at which this many bytes had arrived.
    fn outcome(&self, lines: &[PipeConfig], transfer: &Transfer, before: (Duration, u64)) -> Outcome {
        let now = transfer.now().saturating_since(Time::ZERO);
        let measured = before.0..now;
        let seconds = (measured.end - measured.start).as_secs_f64();
        let received = transfer.received();
        // Perhaps no data has arrived for some time at the end.
        let quiet = transfer.now().saturating_since(received.last_at.unwrap_or_default());
        let gap = received.gap_max.max(quiet.min(measured.end - measured.start));
        let outcome = Outcome {
            case: self.name.clone(),
            transport: "sctp".to_owned(),
            algorithm: Some(self.algorithm.name()),
            seconds,
            bits_per_s: (received.bytes - before.1) as f64 * 8.0 / seconds,
            limit_bits_per_s: lines.iter().map(|line| self.limit_bits_per_s(line, &measured)).sum(),
            message_bytes: Some(self.message_bytes),
            mode: Some(self.mode.name()),
            paths: Some(lines.len()),
            gap_s_max: Some(gap.as_secs_f64()),
            ..Outcome::default()
        };
        outcome.counted(&transfer.statistics())
    }

    /// Returns the largest payload rate of a line in the part of a time in which it is up.
    fn limit_bits_per_s(&self, line: &PipeConfig, within: &Range<Duration>) -> f64 {
        let whole = within.end - within.start;
        let up = whole - line.schedule.time_down(within.clone());
        message_limit_bits_per_s(line, self.mode, self.message_bytes) * up.as_secs_f64() / whole.as_secs_f64()
    }

    /// Returns how soon the lines were used after they came back.
    fn use_after_returns(&self, trace: &[Sample]) -> Option<Returns> {
        let back = |(path, line): (usize, &PipeConfig)| {
            let rate = line.rate_bits_per_s.unwrap_or(u64::MAX) as f64;
            let used = move |sample: &&Sample| sample.paths[path].bits_per_s > USED_AGAIN * rate;
            returns(line).into_iter().filter(|&at| at < self.measured.end).map(move |at| {
                let at_s = at.as_secs_f64();
                let again = trace.iter().filter(|sample| sample.at_s > at_s).find(used);
                again.map(|sample| sample.at_s - at_s)
            })
        };
        Returns::new(self.lines.iter().enumerate().flat_map(back))
    }

    /// Returns a published outcome.
    fn published_outcome(&self, figure: &PathFigure) -> Outcome {
        let lines = &self.lines[..figure.paths.min(self.lines.len())];
        let ours = || lines.iter().map(|line| self.limit_bits_per_s(line, &self.measured)).sum();
        Outcome {
            case: self.name.clone(),
            transport: figure.figure.transport.clone(),
            seconds: figure.figure.seconds,
            bits_per_s: figure.figure.bits_per_s,
            limit_bits_per_s: figure.limit_bits_per_s.unwrap_or_else(ours),
            message_bytes: Some(self.message_bytes),
            mode: Some(self.mode.name()),
            paths: Some(figure.paths),
            path: (figure.paths == 1).then_some(1),
            published: true,
            ..Outcome::default()
        }
    }
}

/// Returns a short case of every kind.
#[cfg(test)]
pub(super) fn small_cases(seed: u64) -> Vec<Box<dyn Case>> {
    let second = Duration::from_secs(1);
    let options = super::Options { seed, time: Some(second), ..super::Options::default() };
    let mut cases: Vec<Multipath> =
        [Mode::Stream, Mode::Message].map(|mode| two_equal::case(&options, mode, 1024, 1.0)).into();
    cases.extend([false, true].map(|small_buffer| asymmetric::rate_case(&options, 1.0, small_buffer)));
    cases.push(asymmetric::delay_case(&options, 1.0));
    cases.push(lossy::case(&options, Algorithm::default(), 1.0));
    for case in &mut cases {
        case.measured = Duration::ZERO..second;
    }
    cases.push(flapping::case(&options, 20, second * 2, second * 8));
    let whole = line(10, ROUND_TRIP, 1.0);
    cases.push(failover::case(
        &options,
        0,
        "small",
        &whole,
        (second..second * 2, Duration::ZERO..second * 3),
    ));
    boxed(cases)
}

/// Returns a line of so many Mbit/s whose queue holds a part of its bandwidth-delay product.
fn line(mbits_per_s: u64, round_trip: Duration, queue: f64) -> PipeConfig {
    let rate = mbits_per_s * 1_000_000;
    let queue_bytes = round_trip_bytes(rate, round_trip.as_secs_f64() * queue);
    PipeConfig { rate_bits_per_s: Some(rate), delay: round_trip / 2, queue_bytes, ..PipeConfig::default() }
}

/// Returns when a line comes back.
fn returns(line: &PipeConfig) -> Vec<Duration> {
    match &line.schedule {
        Schedule::Listed(outages) => outages.iter().map(|outage| outage.end).collect(),
        Schedule::AlwaysUp | Schedule::Periodic { .. } => Vec::new(),
    }
}

fn boxed(cases: impl IntoIterator<Item = Multipath>) -> Vec<Box<dyn Case>> {
    cases.into_iter().map(|case| Box::new(case) as Box<dyn Case>).collect()
}
