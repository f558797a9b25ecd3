//! `swiftwater lab --live`: several paths in real time, beside the kernel's TCP and MPTCP on the same ones.

mod measure;
mod testbed;

use std::io;

use ::lab::experiment::{Mode, Outcome, message_limit_bits_per_s};
use indicatif::ProgressBar;
use netns::HostError;
use netsim::PipeConfig;
use thiserror::Error;

use crate::args::LiveName;
use crate::interrupt;
use crate::output::note;
use crate::stats::median;
use measure::Measurement;
use testbed::Testbed;

/// Message sizes: small writes, and large ones.
const SIZES: [usize; 2] = [64, 16384];
/// How long a measurement takes, if the user does not say.
const SECONDS: f64 = 3.0;
/// Each is run so often, in turn with the others, and the median is told.
const REPEAT: usize = 3;
/// What a queue holds: one bandwidth-delay product of a round trip of 10 ms.
const QUEUE_MS: u64 = 10;
/// Lengths on the line that tbf counts, for which a line is as fast as it says.
const FRAME_BYTES: f64 = 1514.0;
const PACKET_BYTES: f64 = 1500.0;
/// Payload of a full TCP packet over IPv4 with timestamps.
const SEGMENT_BYTES: f64 = 1448.0;

/// Why an experiment failed.
#[derive(Debug, Error)]
pub(crate) enum LiveError {
    /// It takes privileges, or the tools that make hosts and lines.
    #[error("{0}; or try --virtual or --live loopback")]
    Host(#[from] HostError),
    /// One end failed and said why.
    #[error("{name}: {said}")]
    End {
        /// What was measured.
        name: String,
        /// What it said.
        said: String,
    },
    /// The ends cannot be run.
    #[error("cannot run the two ends: {0}")]
    Io(#[from] io::Error),
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Series {
    name: &'static str,
    /// Options of `swiftwater perf client`.
    words: &'static [&'static str],
    paths: usize,
    /// The name of the series that shows what the best path makes alone.
    alone: &'static str,
}

const TCP: Series = Series { name: "tcp", words: &["--proto", "tcp"], paths: 1, alone: "tcp" };
const MPTCP: Series = Series { name: "mptcp", words: &["--proto", "mptcp"], paths: 2, alone: "tcp" };
const MESSAGE: Series =
    Series { name: "sctp-message", words: &["--mode", "message"], paths: 2, alone: "sctp-message" };
const STREAM: Series =
    Series { name: "sctp-stream", words: &["--mode", "stream"], paths: 2, alone: "sctp-stream" };

impl Series {
    fn on_one_path(self) -> Self {
        Series { paths: 1, ..self }
    }
}

/// Each size with each series, on lines of these rates; without rates, on loopback.
struct Plan {
    case: &'static str,
    /// The fastest first.
    rates_mbits: &'static [u64],
    series: Vec<Series>,
}

impl Plan {
    fn of(name: LiveName) -> Self {
        let ours = [MESSAGE.on_one_path(), MESSAGE, STREAM.on_one_path(), STREAM];
        let beside = |series: &[Series]| [series, &ours].concat();
        let (case, rates_mbits, series): (_, &[u64], _) = match name {
            LiveName::TwoEqual => ("100 + 100 Mbit/s", &[100, 100], beside(&[TCP, MPTCP])),
            LiveName::AsymmetricRate => ("100 + 10 Mbit/s", &[100, 10], beside(&[TCP, MPTCP])),
            LiveName::Loopback => ("two loopback addresses", &[], beside(&[TCP])),
        };
        Plan { case, rates_mbits, series }
    }

    /// What the first lines carry at best of messages of this size, in Ethernet frames.
    fn limit_bits_per_s(&self, series: Series, message_bytes: usize) -> f64 {
        let of_line = |mbits: &u64| {
            let line = PipeConfig { rate_bits_per_s: Some(mbits * 1_000_000), ..PipeConfig::default() };
            let in_packets = match series.name {
                "sctp-message" => message_limit_bits_per_s(&line, Mode::Message, message_bytes),
                "sctp-stream" => message_limit_bits_per_s(&line, Mode::Stream, message_bytes),
                _ => *mbits as f64 * 1e6 * SEGMENT_BYTES / PACKET_BYTES,
            };
            in_packets * PACKET_BYTES / FRAME_BYTES
        };
        // Nothing limits loopback but the processor.
        if self.rates_mbits.is_empty() {
            return f64::INFINITY;
        }
        self.rates_mbits.iter().take(series.paths).map(of_line).sum()
    }
}

/// The name of an experiment.
pub(super) fn name(name: LiveName) -> &'static str {
    match name {
        LiveName::TwoEqual => "two-equal",
        LiveName::AsymmetricRate => "asymmetric-rate",
        LiveName::Loopback => "loopback",
    }
}

/// Runs an experiment; what was measured before Ctrl-C came is returned.
pub(super) fn run(name: LiveName, seconds: Option<f64>) -> Result<Vec<Outcome>, LiveError> {
    let plan = Plan::of(name);
    let mut series = plan.series.clone();
    let testbed = match plan.rates_mbits {
        [] => None,
        rates => Some(Testbed::build(rates, QUEUE_MS)?),
    };
    if let Some(testbed) = &testbed
        && series.contains(&MPTCP)
        && let Err(error) = testbed.allow_mptcp()
    {
        note(format_args!("without MPTCP: {error}"));
        series.retain(|series| *series != MPTCP);
    }
    let seconds = seconds.unwrap_or(SECONDS);
    let cells: Vec<(usize, Series)> =
        SIZES.iter().flat_map(|&bytes| series.iter().map(move |&series| (bytes, series))).collect();
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); cells.len()];
    let bar = super::progress_bar((REPEAT * cells.len()) as u64);
    let measured = measure_all(testbed.as_ref(), &cells, seconds, &mut rates, &bar);
    bar.finish_and_clear();
    measured?;
    Ok(outcomes(&plan, &cells, seconds, &rates))
}

/// Every cell in turn, and again.
fn measure_all(
    testbed: Option<&Testbed>,
    cells: &[(usize, Series)],
    seconds: f64,
    rates: &mut [Vec<f64>],
    bar: &ProgressBar,
) -> Result<(), LiveError> {
    for _ in 0..REPEAT {
        for (&(message_bytes, series), rates) in cells.iter().zip(&mut *rates) {
            let measurement = measurement(testbed, series, message_bytes, seconds);
            bar.set_message(measurement.name.clone());
            match measurement.run() {
                Ok(Some(rate)) => rates.push(rate),
                Ok(None) => return Ok(()),
                // The kernel's now and then delivers nothing more of what it has taken.
                Err(error @ LiveError::End { .. }) if series == MPTCP => {
                    bar.suspend(|| note(format_args!("left out: {error}")));
                }
                Err(error) => return Err(error),
            }
            bar.inc(1);
        }
    }
    Ok(())
}

fn measurement(
    testbed: Option<&Testbed>,
    series: Series,
    message_bytes: usize,
    seconds: f64,
) -> Measurement<'_> {
    // The client of MPTCP finds the other addresses of the server by itself.
    let named = if series == MPTCP { 1 } else { series.paths };
    let ends = [true, false];
    let loopback = |first: usize| (first..first + named).map(|last| format!("127.0.0.{last}")).collect();
    Measurement {
        name: format!("{}, {message_bytes} bytes, paths: {}", series.name, series.paths),
        hosts: ends.map(|server| testbed.map(|testbed| testbed.host(server))),
        addresses: ends.map(|server| match testbed {
            Some(testbed) => testbed.addresses(named, server),
            None => loopback(if server { 1 } else { 11 }),
        }),
        words: series.words.iter().map(|&word| word.to_owned()).collect(),
        message_bytes,
        seconds,
    }
}

fn outcomes(plan: &Plan, cells: &[(usize, Series)], seconds: f64, rates: &[Vec<f64>]) -> Vec<Outcome> {
    let rate = |wanted: usize, name: &str, paths: usize| {
        let cell = cells.iter().position(|(bytes, s)| *bytes == wanted && s.name == name && s.paths == paths);
        median(&rates[cell?])
    };
    let outcome = |&(message_bytes, series): &(usize, Series)| {
        Some(Outcome {
            case: format!("{}, {message_bytes} bytes", plan.case),
            transport: series.name.to_owned(),
            seconds,
            bits_per_s: rate(message_bytes, series.name, series.paths)?,
            limit_bits_per_s: plan.limit_bits_per_s(series, message_bytes),
            message_bytes: Some(message_bytes),
            mode: Some(if series.name == "sctp-message" { Mode::Message } else { Mode::Stream }.name()),
            paths: Some(series.paths),
            path: (series.paths == 1).then_some(1),
            best_path_bits_per_s: rate(message_bytes, series.alone, 1),
            interrupted: interrupt::requested(),
            ..Outcome::default()
        })
    };
    cells.iter().filter_map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_frames() {
        let mbits =
            |name, series, bytes| (Plan::of(name).limit_bits_per_s(series, bytes) / 1e4).round() / 100.0;
        assert_eq!(mbits(LiveName::TwoEqual, STREAM, 8), 190.75);
        assert_eq!(mbits(LiveName::AsymmetricRate, TCP, 64), 95.64);
        assert_eq!(mbits(LiveName::AsymmetricRate, MPTCP, 64), 105.2);
    }

    #[test]
    fn the_best_path_alone_is_of_the_same_series_and_mptcp_has_that_of_tcp() {
        let plan = Plan::of(LiveName::AsymmetricRate);
        let cells = [(64, TCP), (64, MPTCP), (64, MESSAGE.on_one_path()), (64, MESSAGE)];
        let rates = [vec![95e6], vec![1e6, 76e6, 80e6], vec![70e6], Vec::new()];
        let outcomes = outcomes(&plan, &cells, 1.0, &rates);
        assert_eq!(outcomes.len(), 3, "what was not measured is left out");
        assert_eq!((outcomes[1].bits_per_s, outcomes[1].best_path_bits_per_s), (76e6, Some(95e6)));
        assert_eq!((outcomes[2].path, outcomes[2].ratio_to_best_path()), (Some(1), Some(1.0)));
    }
}
