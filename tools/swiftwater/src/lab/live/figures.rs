//! Summary of several runs of a measurement.

use std::time::Duration;

use ::lab::experiment::AddedColumn;
use emulator::EmulatorCounts;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::measure::{Cpu, Latency, Measured};
use super::plan::{Load, Series};
use super::watch::{LineHistory, StateAt, return_times};
use crate::host::OTHERS_BUSY_MAX;
use crate::lab::line::report::{is_late, ms, us};
use crate::lab::line::spec::PathSpec;
use crate::stats::{confidence_interval, median};
use crate::units::{grouped, mbits};

/// A line counts as used again when it has carried more than this share of its rate over this time.
const USED_AGAIN: f64 = 0.1;
const USED_AGAIN_S: f64 = 0.1;
/// Part of a time by which the last point of a run may lie before its end, at least two intervals of points, and at most one of a
/// long run.
const ENDED: f64 = 0.1;
const ENDED_S_MIN: f64 = 0.2;
const ENDED_S_MAX: f64 = 1.0;

/// A measured cell: a load by one series.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) load: Load,
    pub(super) series: Series,
    pub(super) turns: Vec<Turn>,
    /// Number of disturbed runs that others have replaced, those with answers included.
    pub(super) repeated: u32,
    /// Number of failed runs that others have replaced.
    pub(super) failed: u32,
}

/// One measurement of a cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) run: Run,
    /// The series that shared the line with it at the same time.
    pub(super) beside: Option<Run>,
    /// A run of its own, in which requests were answered.
    pub(super) request_response: Option<Run>,
    /// Whether that run has failed, so that the turn stays without one.
    pub(super) answers_failed: bool,
}

impl Turn {
    /// Returns whether the host has disturbed the run; the answers have a run of their own.
    pub(super) fn is_disturbed(&self) -> bool {
        self.run.is_disturbed()
    }

    /// Returns whether the answers are still to be measured, if the load has any.
    pub(super) fn lacks_answers(&self) -> bool {
        self.request_response.is_none() && !self.answers_failed
    }

    /// Returns the part of its fair share that the series had: its rate divided by half of the rate of both.
    fn share_of_fair(&self) -> Option<f64> {
        let (own, other) = (self.run.bits_per_s(None)?, self.beside.as_ref()?.bits_per_s(None)?);
        (own + other > 0.0).then(|| 2.0 * own / (own + other))
    }

    /// Returns the ratio of the rate to that of the series beside it.
    fn ratio_to_beside(&self) -> Option<f64> {
        let (own, other) = (self.run.bits_per_s(None)?, self.beside.as_ref()?.bits_per_s(None)?);
        (other > 0.0).then(|| own / other)
    }
}

impl Cell {
    pub(super) fn new(load: &Load, series: Series) -> Self {
        Cell { load: load.clone(), series, turns: Vec::new(), repeated: 0, failed: 0 }
    }

    /// Adds a turn, or replaces that with this number by a better one.
    pub(super) fn put_turn(&mut self, number: usize, turn: Turn) {
        match self.turns.get_mut(number) {
            Some(disturbed) => {
                *disturbed = turn;
                self.repeated += 1;
            }
            None => self.turns.push(turn),
        }
    }

    /// Adds the answers of a turn, or replaces them by better ones.
    pub(super) fn put_answers(&mut self, number: usize, run: Run) {
        let Some(turn) = self.turns.get_mut(number) else { return };
        if turn.request_response.replace(run).is_some() {
            self.repeated += 1;
        }
    }

    /// Returns the runs of the series.
    pub(super) fn runs(&self) -> Vec<&Run> {
        self.turns.iter().map(|turn| &turn.run).collect()
    }

    /// Returns the runs of the series that shares the line.
    pub(super) fn runs_beside(&self) -> Vec<&Run> {
        self.turns.iter().filter_map(|turn| turn.beside.as_ref()).collect()
    }

    /// Returns the runs in which requests were answered.
    pub(super) fn request_response_runs(&self) -> Vec<&Run> {
        self.turns.iter().filter_map(|turn| turn.request_response.as_ref()).collect()
    }

    /// Returns the turn whose rate is nearest to the median; of series that share a line, the turn whose share is.
    pub(super) fn typical_turn(&self) -> Option<&Turn> {
        nearest_to_median(self.turns.iter(), |turn| turn.share_of_fair())
            .or_else(|| nearest_to_median(self.turns.iter(), |turn| turn.run.bits_per_s(None)))
    }

    /// Returns the parts of its fair share that the series had in the turns.
    pub(super) fn share_of_fair(&self) -> Option<Share> {
        let shares: Vec<f64> = self.turns.iter().filter_map(Turn::share_of_fair).collect();
        let extreme = |of: fn(f64, f64) -> f64| shares.iter().copied().reduce(of);
        let range = extreme(f64::min).zip(extreme(f64::max)).filter(|_| shares.len() > 1);
        Some(Share {
            of_fair: median(&shares)?,
            least: range.map(|(least, _)| least),
            most: range.map(|(_, most)| most),
        })
    }

    /// Returns the median of the ratios to the series beside it in each turn.
    pub(super) fn ratio_to_beside(&self) -> Option<f64> {
        median(&self.turns.iter().filter_map(Turn::ratio_to_beside).collect::<Vec<_>>())
    }

    /// Returns the name for users.
    pub(super) fn name(&self) -> String {
        format!("{}, {}, paths: {}", self.load.name(), self.series.name, self.series.paths)
    }

    /// Returns the name for users of one of the series of the cell.
    pub(super) fn name_of(&self, series: Series) -> String {
        if series == self.series {
            self.name()
        } else {
            format!("{}: {} beside it", self.name(), series.name)
        }
    }

    /// Returns the series of the cell, and the one beside it.
    pub(super) fn all_series(&self) -> impl Iterator<Item = Series> + use<> {
        [Some(self.series), self.load.beside].into_iter().flatten()
    }

    /// Returns whether two cells send the same data over the same lines, and can be compared.
    pub(super) fn is_like(&self, other: &Cell) -> bool {
        (&self.load.case, self.load.message_bytes) == (&other.load.case, other.load.message_bytes)
    }
}

/// Parts of its fair share that a series had, which is half of the rate of both at one bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Share {
    /// Median of the turns.
    #[serde(rename = "share_of_fair")]
    of_fair: f64,
    /// The lowest and the highest one; `None` of one turn.
    #[serde(rename = "share_of_fair_min", skip_serializing_if = "Option::is_none")]
    least: Option<f64>,
    #[serde(rename = "share_of_fair_max", skip_serializing_if = "Option::is_none")]
    most: Option<f64>,
}

impl Share {
    /// Returns the parts that the other series had.
    pub(super) fn of_other(self) -> Self {
        let of_other = |share: f64| 2.0 - share;
        Share {
            of_fair: of_other(self.of_fair),
            least: self.most.map(of_other),
            most: self.least.map(of_other),
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) measured: Measured,
    /// `None` on loopback, which has no line.
    line: Option<LineFigures>,
    /// The lines during the run.
    pub(super) history: LineHistory,
    /// The part of the run that its rate is of, in seconds since its beginning; `None` is from the first to the last delivery.
    rate_window_s: Option<(f64, f64)>,
    /// Number of processors that other programs kept busy meanwhile. Lines may be on time while the ends have no processor.
    others_busy: Option<f64>,
}

/// Sums over all lines of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct LineFigures {
    line_packets: u64,
    line_dropped_packets: u64,
    /// Those of `line_packets` to the server, as a firewall counts them that counts each direction by itself.
    packets_to_server: u64,
    dropped_to_server: u64,
    line_lost_packets: u64,
    host_dropped_packets: u64,
    queue_ms_p50: f64,
    queue_ms_p95: f64,
    late_us_p50: f64,
    late_us_p99: f64,
    emulator_cpu: f64,
    long_turns: u64,
    write_us_max: f64,
    /// Whether the emulator had a real-time priority.
    #[serde(skip)]
    realtime: bool,
}

impl Run {
    pub(super) fn new(
        measured: Measured,
        counts: Option<&(EmulatorCounts, u64)>,
        history: LineHistory,
    ) -> Self {
        let line = counts.map(|(counts, dropped)| LineFigures::new(counts, *dropped, measured.seconds));
        Run { measured, line, history, ..Run::default() }
    }

    /// Restricts the rate to a part of the run, in seconds since its beginning, if one is given.
    pub(super) fn with_rate_window(self, window_s: Option<(f64, f64)>) -> Self {
        Run { rate_window_s: window_s, ..self }
    }

    /// Adds the number of processors that other programs kept busy meanwhile, if it is known.
    pub(super) fn beside_others(self, busy: Option<f64>) -> Self {
        Run { others_busy: busy, ..self }
    }

    /// Returns whether the host itself lost packets or kept them for too long, or other programs used its processors.
    pub(super) fn is_disturbed(&self) -> bool {
        !self.disturbances().is_empty()
    }

    fn disturbances(&self) -> Disturbances {
        let late = |line: &LineFigures| {
            is_late([line.late_us_p50, line.late_us_p99].map(|us| Duration::from_secs_f64(us / 1e6)))
        };
        Disturbances {
            lost: self.line.as_ref().is_some_and(|line| line.host_dropped_packets > 0),
            late: self.line.as_ref().is_some_and(late),
            busy: self.others_busy.is_some_and(|busy| busy >= OTHERS_BUSY_MAX),
        }
    }

    /// Returns the rate of the run, or of its first seconds; `None` if its points end before.
    pub(super) fn bits_per_s(&self, mark_s: Option<f64>) -> Option<f64> {
        // A run without points is too short for a part of it.
        let window_s = self.rate_window_s.filter(|_| !self.measured.points.is_empty());
        match (mark_s, window_s) {
            (Some(mark_s), _) => self.rate_between(0.0, mark_s),
            (None, Some((from_s, until_s))) => self.rate_between(from_s, until_s),
            (None, None) => Some(self.measured.bits_per_s),
        }
    }

    /// Returns the rate between two moments since the beginning; `None` if the run ended before.
    fn rate_between(&self, from_s: f64, until_s: f64) -> Option<f64> {
        let bytes = self.bytes_until(until_s)? - self.bytes_until(from_s)?;
        Some(bytes * 8.0 / (until_s - from_s))
    }

    /// Returns the number of bytes that were delivered until a moment since the beginning; `None` if the run ended long before.
    fn bytes_until(&self, moment_s: f64) -> Option<f64> {
        // The last data of a run may be delivered before its end.
        let ended_s = (moment_s * ENDED).clamp(ENDED_S_MIN, ENDED_S_MAX);
        let (mut sum, mut since_s) = (0.0, 0.0);
        for point in &self.measured.points {
            if point.at_s >= moment_s {
                let part = (moment_s - since_s) / (point.at_s - since_s).max(f64::MIN_POSITIVE);
                return Some(sum + point.bytes as f64 * part);
            }
            (sum, since_s) = (sum + point.bytes as f64, point.at_s);
        }
        (since_s > moment_s - ended_s && since_s > 0.0).then_some(sum)
    }

    /// Returns the longest time without a delivery.
    pub(super) fn gap_s(&self) -> Option<f64> {
        let points = &self.measured.points;
        let (mut longest, mut since) = (0.0_f64, 0.0);
        for point in points {
            if point.bytes > 0 {
                since = point.at_s;
            }
            longest = longest.max(point.at_s - since);
        }
        points.first().map(|_| longest)
    }

    /// Returns the times from each return of one of these lines until it had carried a tenth of its rate over a tenth of a
    /// second; `None` for a line that had not until the end. `lines` belong to the paths from `first` on.
    pub(super) fn times_back_s(&self, lines: &[PathSpec], first: usize, seconds: f64) -> Vec<Option<f64>> {
        let states = self.history.all();
        let back = |(number, line): (usize, &PathSpec)| {
            let path = first + number;
            let rate = line.pipe.rate_bits_per_s.unwrap_or(u64::MAX) as f64;
            let returns = return_times(&line.pipe.schedule, self.history.began_s + seconds).into_iter();
            let in_test = returns
                .map(|back_at_s| back_at_s - self.history.began_s)
                .filter(|back_at_s| *back_at_s > 0.0);
            let states = &states;
            in_test.map(move |back_at_s| {
                let used_at_s = used_at_s(states, path, back_at_s, USED_AGAIN * rate);
                used_at_s.map(|at_s| at_s - back_at_s)
            })
        };
        lines.iter().enumerate().flat_map(back).collect()
    }

    /// Returns the rate at which the line of a path to the server accepted packets, over time.
    pub(super) fn path_rates(&self, path: usize) -> Vec<(f64, f64)> {
        let rate = |pair: &[StateAt]| {
            let bytes = bytes_accepted(&pair[1], path).saturating_sub(bytes_accepted(&pair[0], path));
            (pair[1].at_s, bytes as f64 * 8.0 / (pair[1].at_s - pair[0].at_s).max(1e-6))
        };
        self.history.states.windows(2).map(rate).collect()
    }
}

/// Returns the number of bytes that the line of a path to the server has accepted.
fn bytes_accepted(state: &StateAt, path: usize) -> u64 {
    state.paths.get(path).map_or(0, |lines| lines[0].bytes_accepted)
}

/// Returns when the line of a path, which returned at `back_at_s`, had first carried this rate over [`USED_AGAIN_S`].
fn used_at_s(states: &[&StateAt], path: usize, back_at_s: f64, bits_per_s: f64) -> Option<f64> {
    let is_used = |(number, state): &(usize, &&StateAt)| {
        let window_s = back_at_s.max(state.at_s - USED_AGAIN_S);
        // A line that was down has carried nothing between an earlier state and its return.
        let Some(from) = states[..*number].iter().rfind(|from| from.at_s <= window_s) else { return false };
        let bytes = bytes_accepted(state, path).saturating_sub(bytes_accepted(from, path));
        let seconds = (state.at_s - from.at_s.max(back_at_s)).max(USED_AGAIN_S);
        bytes as f64 * 8.0 > bits_per_s * seconds
    };
    let after = states.iter().enumerate().filter(|(_, state)| state.at_s > back_at_s);
    after.into_iter().find(is_used).map(|(_, state)| state.at_s)
}

impl LineFigures {
    /// Sums up the counters of a test that took so many seconds.
    fn new(counts: &EmulatorCounts, host_dropped_packets: u64, seconds: f64) -> Self {
        let seconds = if seconds > 0.0 { seconds } else { counts.elapsed.as_secs_f64() };
        let lines = || counts.paths.iter().flat_map(|path| &path.lines);
        let sum = |count: fn(&netsim::PipeStats) -> u64| lines().map(|line| count(&line.pipe)).sum();
        let to_server = |count: fn(&netsim::PipeStats) -> u64| {
            counts.paths.iter().map(|path| count(&path.lines[0].pipe)).sum()
        };
        // Data goes to the server, so its queue is the longest.
        let queues = counts.paths.iter().map(|path| path.lines[0].waited);
        let queue = queues.max_by_key(|waited| waited.p50).unwrap_or_default();
        LineFigures {
            line_packets: sum(|pipe| pipe.packets_offered),
            line_dropped_packets: sum(|pipe| pipe.packets_overflowed),
            packets_to_server: to_server(|pipe| pipe.packets_offered),
            dropped_to_server: to_server(|pipe| pipe.packets_overflowed),
            line_lost_packets: sum(|pipe| pipe.packets_lost),
            host_dropped_packets,
            queue_ms_p50: ms(queue.p50),
            queue_ms_p95: ms(queue.p95),
            late_us_p50: us(counts.late.p50),
            late_us_p99: us(counts.late.p99),
            // Without the start and the end of both processes, in which the emulator has next to nothing to do.
            emulator_cpu: counts.processor.as_secs_f64() / seconds,
            long_turns: counts.long_turns,
            write_us_max: us(counts.write_max),
            realtime: counts.realtime,
        }
    }
}

/// Reasons why runs are disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Disturbances {
    /// The host lost packets outside the lines.
    lost: bool,
    /// The emulator delivered packets too late.
    late: bool,
    /// Other programs used the processors.
    busy: bool,
}

impl Disturbances {
    fn of(runs: &[&Run]) -> Self {
        runs.iter().map(|run| run.disturbances()).fold(Self::default(), Self::or)
    }

    fn or(self, other: Self) -> Self {
        Disturbances {
            lost: self.lost || other.lost,
            late: self.late || other.late,
            busy: self.busy || other.busy,
        }
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the reasons as words, separated by ", "; `None` if there is none.
    fn words(self) -> Option<String> {
        let words = [(self.lost, "lost"), (self.late, "late"), (self.busy, "busy")];
        let words: Vec<_> = words.into_iter().filter_map(|(applies, word)| applies.then_some(word)).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl Serialize for Disturbances {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut keys = serializer.serialize_map(None)?;
        keys.serialize_entry("disturbed", &!self.is_empty())?;
        if let Some(words) = self.words() {
            keys.serialize_entry("disturbed_by", &words)?;
        }
        keys.end()
    }
}

/// Figures of a cell's runs beside the rate; docs/json.md describes the keys.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(super) published_bits_per_s: Option<f64>,
    #[serde(skip)]
    tcp_bits_per_s: Option<f64>,
    /// Median of the ratios to TCP beside, each of one turn.
    #[serde(skip)]
    ratio_to_beside: Option<f64>,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_s_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_s_max: Option<f64>,
    /// Ends of the 95 % interval of the mean; `None` for one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_s_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_s_high: Option<f64>,
    /// Number of disturbed runs that others have replaced.
    repeated: u32,
    /// Number of failed runs that others have replaced.
    failed_runs: u32,
    /// The lines, with their queues, separated by "; " because a line has commas; none on loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<String>,
    #[serde(flatten)]
    line: Option<LineFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_cpu_ns_per_byte: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cpu_ns_per_byte: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us_p99: Option<f64>,
    #[serde(flatten)]
    share: Option<Share>,
    /// Most processors that other programs kept busy during a run; `None` if that is known of none.
    others_busy_processors: Option<f64>,
    #[serde(flatten)]
    disturbances: Disturbances,
}

/// Returns the most processors that other programs kept busy during one of these runs.
fn others_busy(runs: &[&Run]) -> Option<f64> {
    runs.iter().filter_map(|run| run.others_busy).reduce(f64::max)
}

impl Figures {
    /// Returns the figures of these runs until a mark; `None` if there are no runs. Counters of lines and processor time are of
    /// whole runs, so figures until a mark have none.
    pub(super) fn new(
        runs: &[&Run],
        mark_s: Option<f64>,
        tcp_bits_per_s: Option<f64>,
        published_bits_per_s: Option<f64>,
    ) -> Option<Self> {
        let rates = rates(runs, mark_s);
        let typical = typical(runs, mark_s)?;
        let extreme = |of: fn(f64, f64) -> f64| rates.iter().copied().reduce(of).filter(|_| rates.len() > 1);
        let interval = confidence_interval(&rates);
        let cpu = |of: fn(&Cpu) -> f64| {
            median(&runs.iter().filter_map(|run| run.measured.cpu.as_ref().map(of)).collect::<Vec<_>>())
        };
        Some(Figures {
            published_bits_per_s,
            tcp_bits_per_s,
            ratio_to_beside: None,
            runs: rates.len(),
            bits_per_s_min: extreme(f64::min),
            bits_per_s_max: extreme(f64::max),
            bits_per_s_low: interval.map(|(low, _)| low),
            bits_per_s_high: interval.map(|(_, high)| high),
            repeated: 0,
            failed_runs: 0,
            lines: None,
            line: typical.line.clone().filter(|_| mark_s.is_none()),
            client_cpu_ns_per_byte: cpu(|cpu| cpu.client_ns_per_byte).filter(|_| mark_s.is_none()),
            server_cpu_ns_per_byte: cpu(|cpu| cpu.server_ns_per_byte).filter(|_| mark_s.is_none()),
            latency_us_p50: None,
            latency_us_p99: None,
            share: None,
            others_busy_processors: others_busy(runs),
            disturbances: Disturbances::of(runs),
        })
    }

    /// Adds the series' part of its fair share, and its ratio to TCP beside.
    pub(super) fn with_share(self, share: Option<Share>, ratio_to_beside: Option<f64>) -> Self {
        Figures { share, ratio_to_beside, ..self }
    }

    /// Replaces the counters of the line by those of this run.
    pub(super) fn with_line_of(self, run: Option<&Run>) -> Self {
        Figures { line: run.and_then(|run| run.line.clone()), ..self }
    }

    /// Adds the lines that the series used.
    pub(super) fn on_lines(self, lines: &[PathSpec]) -> Self {
        let joined = lines.iter().map(PathSpec::with_queue).collect::<Vec<_>>().join("; ");
        Figures { lines: Some(joined).filter(|lines| !lines.is_empty()), ..self }
    }

    /// Returns the number of runs.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// Returns the lines that the series used, if there are any.
    pub(in crate::lab) fn lines(&self) -> Option<&str> {
        self.lines.as_deref()
    }

    /// Adds the numbers of disturbed and of failed runs of a cell that others have replaced.
    pub(super) fn with_replaced_runs(self, cell: &Cell) -> Self {
        Figures { repeated: cell.repeated, failed_runs: cell.failed, ..self }
    }

    /// Adds the number of failed runs that others have replaced.
    pub(super) fn with_failed_runs(self, failed_runs: u32) -> Self {
        Figures { failed_runs, ..self }
    }

    /// Adds the percentiles of the latency, and whether its runs were disturbed.
    pub(super) fn with_answers(self, runs: &[&Run]) -> Self {
        Figures {
            latency_us_p50: latency(runs, |latency| latency.p50_s * 1e6),
            latency_us_p99: latency(runs, |latency| latency.p99_s * 1e6),
            others_busy_processors: self
                .others_busy_processors
                .into_iter()
                .chain(others_busy(runs))
                .reduce(f64::max),
            disturbances: self.disturbances.or(Disturbances::of(runs)),
            ..self
        }
    }

    /// Returns the ratio of a rate to that of the best TCP on one path, or to that of TCP beside in each turn.
    pub(crate) fn ratio_to_tcp(&self, bits_per_s: f64) -> Option<f64> {
        self.ratio_to_beside.or_else(|| self.tcp_bits_per_s.map(|tcp| bits_per_s / tcp))
    }
}

/// Returns the columns of the table that outcomes with figures have: the least and the highest rate, the mean latency, which
/// published outcomes have, too, with its percentiles, what disturbed the runs, and if wanted the counters of the line in a
/// typical run.
pub(in crate::lab) fn columns(
    figures: &[Option<&Figures>],
    latencies_s: &[Option<f64>],
    with_counters: bool,
) -> Vec<AddedColumn> {
    let column = |head, cell: &dyn Fn(&Figures) -> Option<String>| AddedColumn {
        head,
        cells: figures.iter().map(|figures| figures.and_then(cell)).collect(),
    };
    let range = |figures: &Figures| {
        let (least, highest) = figures.bits_per_s_min.zip(figures.bits_per_s_max)?;
        Some(format!("{} to {}", mbits(least), mbits(highest)))
    };
    let latency = |us: Option<f64>| us.map(|us| format!("{:.3} ms", us / 1e3));
    let means = latencies_s.iter().map(|seconds| latency(seconds.map(|seconds| seconds * 1e6)));
    let mut columns = vec![
        column("from to", &range),
        AddedColumn { head: "latency mean", cells: means.collect() },
        column("latency p50", &|figures| latency(figures.latency_us_p50)),
        column("latency p99", &|figures| latency(figures.latency_us_p99)),
        column("of fair share", &|figures| figures.share.map(|share| format!("{:.2}", share.of_fair))),
        column("share from to", &|figures| {
            let (least, most) = figures.share.and_then(|share| share.least.zip(share.most))?;
            Some(format!("{least:.2} to {most:.2}"))
        }),
        column("host", &|figures| figures.disturbances.words()),
    ];
    if with_counters {
        let counter = |count: fn(&LineFigures) -> u64| {
            move |figures: &Figures| figures.line.as_ref().map(|line| grouped(count(line)))
        };
        columns.push(column("packets to server", &counter(|line| line.packets_to_server)));
        columns.push(column("dropped of them", &counter(|line| line.dropped_to_server)));
    }
    columns
}

/// Returns a sentence about figures with a disturbed run, if there are any: what has disturbed how many of them, and what to do.
pub(in crate::lab) fn disturbance<'a>(all: impl Iterator<Item = &'a Figures>) -> Option<String> {
    let all: Vec<&Figures> = all.collect();
    let count = |applies: fn(&Disturbances) -> bool| {
        all.iter().filter(|figures| applies(&figures.disturbances)).count()
    };
    let (lost, late, busy) = (count(|by| by.lost), count(|by| by.late), count(|by| by.busy));
    let reasons = [
        (lost, "this machine lost packets"),
        (late, "this machine was late"),
        (busy, "other programs kept processors busy"),
    ];
    let reasons: Vec<_> = reasons
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, how)| format!("in runs of {count} of {} measurements {how}", all.len()))
        .collect();
    let is_ordinary = all.iter().filter_map(|figures| figures.line.as_ref()).any(|line| !line.realtime);
    // A real-time priority helps the emulator alone, and not the ends.
    let advice = if is_ordinary && lost + late > 0 {
        "end what else runs, or run this as root, for real-time priority"
    } else {
        "end what else runs"
    };
    (!reasons.is_empty()).then(|| format!("disturbed: {}; {advice}", reasons.join(", ")))
}

/// Returns the rates of these runs, or those of their first seconds.
pub(super) fn rates(runs: &[&Run], mark_s: Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(|run| run.bits_per_s(mark_s)).collect()
}

/// Returns the median of a value of the runs in which requests were answered.
pub(super) fn latency(runs: &[&Run], value: fn(&Latency) -> f64) -> Option<f64> {
    median(&runs.iter().filter_map(|run| run.measured.latency.as_ref().map(value)).collect::<Vec<_>>())
}

/// Returns the run whose rate is nearest to the median.
pub(super) fn typical<'a>(runs: &[&'a Run], mark_s: Option<f64>) -> Option<&'a Run> {
    nearest_to_median(runs.iter().copied(), |run| run.bits_per_s(mark_s))
}

/// Returns the one whose rate is nearest to the median of all rates.
fn nearest_to_median<T>(all: impl Iterator<Item = T>, rate: impl Fn(&T) -> Option<f64>) -> Option<T> {
    let rated: Vec<(f64, T)> = all.filter_map(|one| Some((rate(&one)?, one))).collect();
    let middle = median(&rated.iter().map(|(rate, _)| *rate).collect::<Vec<_>>())?;
    let nearest = rated
        .into_iter()
        .min_by(|(one, _), (other, _)| (one - middle).abs().total_cmp(&(other - middle).abs()));
    nearest.map(|(_, one)| one)
}

#[cfg(test)]
mod tests;
