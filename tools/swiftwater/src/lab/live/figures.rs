//! What several runs of a measurement say together.

use emulator::{Distribution, EmulatorCounts};
use serde::Serialize;

use super::plan::Series;
use crate::stats::{confidence_interval, median};

/// A run in which one packet in a hundred was later than this is disturbed.
const LATE_US_MAX: f64 = 1_000.0;

/// What is measured: messages of one size by one series.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) message_bytes: usize,
    pub(super) buffer_bytes: Option<usize>,
    pub(super) series: Series,
    pub(super) runs: Vec<Run>,
}

impl Cell {
    pub(super) fn new((message_bytes, buffer_bytes): (usize, Option<usize>), series: Series) -> Self {
        Cell { message_bytes, buffer_bytes, series, runs: Vec::new() }
    }

    /// Returns what the user calls it.
    pub(super) fn name(&self) -> String {
        format!("{}, {}, paths: {}", self.messages(), self.series.name, self.series.paths)
    }

    /// Returns how long messages are, and the buffers, if not the default.
    pub(super) fn messages(&self) -> String {
        let buffer = self.buffer_bytes.map(|bytes| format!(", {bytes} bytes of buffer"));
        format!("{} bytes{}", self.message_bytes, buffer.unwrap_or_default())
    }

    pub(super) fn rates(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.bits_per_s).collect()
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    bits_per_s: f64,
    /// `None`: there is no line.
    line: Option<LineFigures>,
}

/// What the lines did in a run, all of them together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct LineFigures {
    line_packets: u64,
    line_dropped_packets: u64,
    line_lost_packets: u64,
    host_dropped_packets: u64,
    queue_ms_p50: f64,
    queue_ms_p95: f64,
    late_us_p99: f64,
    emulator_cpu: f64,
}

impl Run {
    pub(super) fn new(bits_per_s: f64, counts: Option<(&EmulatorCounts, u64)>) -> Self {
        Run { bits_per_s, line: counts.map(|(counts, dropped)| LineFigures::new(counts, dropped)) }
    }

    /// Returns whether the host itself lost packets, or kept them for too long.
    pub(super) fn is_disturbed(&self) -> bool {
        let disturbed = |line: &LineFigures| line.host_dropped_packets > 0 || line.late_us_p99 > LATE_US_MAX;
        self.line.as_ref().is_some_and(disturbed)
    }
}

impl LineFigures {
    fn new(counts: &EmulatorCounts, host_dropped_packets: u64) -> Self {
        let lines = || counts.paths.iter().flat_map(|path| &path.lines);
        let sum = |count: fn(&netsim::PipeStats) -> u64| lines().map(|line| count(&line.pipe)).sum();
        // Data goes to the server: its queue is the longest.
        let queues = counts.paths.iter().map(|path| path.lines[0].waited);
        let queue = queues.max_by_key(|waited| waited.p50).unwrap_or_default();
        let ms = |of: fn(&Distribution) -> std::time::Duration| of(&queue).as_secs_f64() * 1e3;
        LineFigures {
            line_packets: sum(|pipe| pipe.packets_offered),
            line_dropped_packets: sum(|pipe| pipe.packets_overflowed),
            line_lost_packets: sum(|pipe| pipe.packets_lost),
            host_dropped_packets,
            queue_ms_p50: ms(|queue| queue.p50),
            queue_ms_p95: ms(|queue| queue.p95),
            late_us_p99: counts.late.p99.as_secs_f64() * 1e6,
            emulator_cpu: counts.processor.as_secs_f64() / counts.elapsed.as_secs_f64().max(1e-9),
        }
    }
}

/// What the runs of a cell say beside its rate; docs/json.md says what the keys mean.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(super) published_bits_per_s: Option<f64>,
    #[serde(skip)]
    tcp_bits_per_s: Option<f64>,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_s_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_s_high: Option<f64>,
    #[serde(flatten)]
    line: Option<LineFigures>,
    disturbed: bool,
}

impl Figures {
    /// Returns the figures of these runs, or `None` if there are none.
    pub(super) fn new(
        runs: &[Run],
        tcp_bits_per_s: Option<f64>,
        published_bits_per_s: Option<f64>,
    ) -> Option<Self> {
        let rates: Vec<f64> = runs.iter().map(|run| run.bits_per_s).collect();
        let middle = median(&rates)?;
        let distance = |run: &&Run| (run.bits_per_s - middle).abs();
        let typical = runs.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)))?;
        let interval = confidence_interval(&rates);
        Some(Figures {
            published_bits_per_s,
            tcp_bits_per_s,
            runs: runs.len(),
            bits_per_s_low: interval.map(|(low, _)| low),
            bits_per_s_high: interval.map(|(_, high)| high),
            line: typical.line.clone(),
            disturbed: runs.iter().any(Run::is_disturbed),
        })
    }

    /// Returns a rate by that of the best TCP on one path.
    pub(crate) fn ratio_to_tcp(&self, bits_per_s: f64) -> Option<f64> {
        self.tcp_bits_per_s.map(|tcp| bits_per_s / tcp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bits_per_s: f64, host_dropped_packets: u64, late_us_p99: f64) -> Run {
        let line = LineFigures { host_dropped_packets, late_us_p99, ..LineFigures::default() };
        Run { bits_per_s, line: Some(line) }
    }

    #[test]
    fn figures_of_the_line_are_those_of_the_run_nearest_to_the_median() {
        let runs = [run(90e6, 0, 5.0), run(50e6, 0, 6.0), run(92e6, 0, 7.0)];
        let figures = Figures::new(&runs, Some(45e6), None).expect("runs");
        assert_eq!((figures.runs, figures.disturbed), (3, false));
        assert_eq!(figures.line.as_ref().map(|line| line.late_us_p99), Some(5.0));
        assert_eq!(figures.ratio_to_tcp(90e6), Some(2.0));
        assert!(figures.bits_per_s_low.expect("three runs") < 77e6);
        assert!(Figures::new(&[], None, None).is_none());
    }

    #[test]
    fn a_run_is_disturbed_by_losses_of_the_host_and_by_a_late_emulator() {
        assert!(!run(1.0, 0, 1_000.0).is_disturbed());
        assert!(run(1.0, 1, 1.0).is_disturbed() && run(1.0, 0, 1_001.0).is_disturbed());
        assert!(!Run::new(1.0, None).is_disturbed());
    }
}
