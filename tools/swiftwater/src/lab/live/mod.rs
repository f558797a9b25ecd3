//! `swiftwater lab --live`: experiments in real time, beside the kernel's TCP and MPTCP on the same lines.
//!
//! | file | part |
//! |---|---|
//! | `plan` | what each experiment compares, and on which lines |
//! | `beside` | runs on the virtual clock beside live ones |
//! | `session` | a run of the command: what is printed and kept |
//! | `conditions` | restrictions of this host, and transports that it lacks |
//! | `selection` | the cells that the user asks for, and how long they take |
//! | `measure` | one measurement, by a process at each end |
//! | `watch` | the lines while it runs |
//! | `figures` | what several runs say together |
//! | `outcomes` | the report: measured figures beside published ones |
//! | `trace` | a run as curves over the time |
//! | `strsctp` | the one that runs as `swiftwater bench` does |

mod beside;
mod conditions;
mod figures;
mod measure;
mod outcomes;
mod plan;
mod repeat;
mod selection;
pub(super) mod session;
mod strsctp;
pub(super) mod trace;
mod watch;

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use ::lab::experiment::Outcome;
use emulator::EmulatorCounts;
use indicatif::ProgressBar;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use thiserror::Error;

use crate::host::OthersBusy;
use crate::lab::args::LiveName;
use crate::lab::line::LineError;
use crate::lab::line::hosts::{ENDS, End, Hosts, HostsError, address};
use crate::lab::row::Source;
use crate::output::note;
use crate::units::grouped;
use crate::{host, interrupt};
pub(super) use conditions::Conditions;
use figures::{Cell, Run, Turn, rates};
pub(super) use figures::{Figures, columns, disturbance};
use measure::{Begin, Measured, Measurement, Running};
use outcomes::outcomes;
use plan::{MPTCP, Plan, Series};
use repeat::{ATTEMPTS_MORE, attempt, undisturbed};
use selection::{BeforeOutage, NoCase, cells};
pub(super) use selection::{Estimate, case_names, check_seconds, estimate, select};
use trace::Trace;
use watch::{LineHistory, Progress, STALLED, watch};

/// Default number of runs of each cell, in turn with the others; the report gives the median.
const REPEAT: u32 = 5;
/// Part of the time in which two share a line that is not counted: the initial windows and the ends of slow start differ, and
/// CUBIC needs some five seconds to forget that.
const START_BESIDE: f64 = 0.25;
/// Packets and drops of the line of sctplib's users in all their transfers: to the receiver of the files, and back.
const IPFW_COUNTERS: [(u64, u64); 2] = [(1_318_327, 1_382), (644_497, 0)];
/// All experiments that need lines or processors of their own, in the order of `--live all`.
const ALL: [LiveName; 10] = [
    LiveName::TwoEqual,
    LiveName::Flapping,
    LiveName::Datatag,
    LiveName::Strsctp,
    LiveName::Sctplib,
    LiveName::AsymmetricRate,
    LiveName::AsymmetricDelay,
    LiveName::Lossy,
    LiveName::Failover,
    LiveName::Coexistence,
];

/// Error of an experiment.
#[derive(Debug, Error)]
pub(crate) enum LiveError {
    /// There are no hosts, or no lines between them.
    #[error("{0}; or try --virtual or --live loopback")]
    Hosts(#[from] HostsError),
    /// This process cannot have namespaces of its own.
    #[error("{0}; or try --virtual or --live loopback")]
    Line(LineError),
    /// The experiment needs loopback.
    #[error(transparent)]
    Loopback(#[from] host::LoopbackDown),
    /// No measurement has such a name.
    #[error(transparent)]
    NoCase(#[from] NoCase),
    /// The time ends before a line goes down.
    #[error(transparent)]
    BeforeOutage(#[from] BeforeOutage),
    /// No selected transport has delivered a figure.
    #[error(
        "nothing was measured: this host lacks the selected transports, or they fail; select others with --case"
    )]
    NothingToMeasure,
    /// One end failed and reported why.
    #[error("{name}: {said}")]
    End {
        /// Name of the measurement.
        name: String,
        /// The report.
        said: String,
    },
    /// An end cannot be started.
    #[error("cannot start {what}: {source}")]
    Start {
        /// Name of the end.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// A measurement has not ended.
    #[error(
        "{name}: no result after {} s, so it was ended: its lines let nothing through, or an end stands still",
        limit.as_secs()
    )]
    Deadline {
        /// Name of the measurement.
        name: String,
        /// The time that it had.
        limit: Duration,
    },
    /// A measurement stands still.
    #[error(
        "{name}: its lines have passed next to nothing for {} s, so it was ended: an end stands still",
        STALLED.as_secs()
    )]
    Stalled {
        /// Name of the measurement.
        name: String,
    },
    /// The ends cannot be run.
    #[error("cannot run the two ends: {0}")]
    Io(#[from] io::Error),
}

impl LiveError {
    /// Returns whether one measurement has failed, which others need not share.
    fn is_of_one_measurement(&self) -> bool {
        matches!(self, LiveError::End { .. } | LiveError::Deadline { .. } | LiveError::Stalled { .. })
    }
}

/// Settings of an experiment.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings<'a> {
    /// Seconds of each measurement.
    pub(super) seconds: Option<f64>,
    /// Only cases whose name contains this.
    pub(super) case: &'a str,
    /// Runs of each cell.
    pub(super) repeat: Option<u32>,
    /// One short run of each cell.
    pub(super) quick: bool,
    /// The longest runs.
    pub(super) full: bool,
    /// Seed of the lines' random decisions.
    pub(super) seed: u64,
}

impl Settings<'_> {
    /// Returns the number of runs of each cell.
    pub(super) fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(if self.quick { 1 } else { REPEAT })
    }

    /// Returns whether the runs are shorter than the experiment's.
    fn is_short(&self) -> bool {
        self.quick || self.seconds.is_some()
    }
}

/// Results of an experiment, with published results.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) outcomes: Vec<(Outcome, Source)>,
    pub(super) traces: Vec<Trace>,
    /// Number of runs that were measured to their end.
    pub(super) runs: usize,
    /// Error, if a part of the results is missing.
    pub(super) failure: Option<LiveError>,
}

/// Takes the results so far after each measurement, from a function that makes them: that takes long if there are many.
type Keep<'a> = dyn FnMut(&dyn Fn() -> Results) + 'a;

/// Returns the name of an experiment.
pub(super) fn name(name: LiveName) -> &'static str {
    match name {
        LiveName::TwoEqual => "two-equal",
        LiveName::AsymmetricRate => "asymmetric-rate",
        LiveName::AsymmetricDelay => "asymmetric-delay",
        LiveName::Lossy => "lossy",
        LiveName::Flapping => "flapping",
        LiveName::Failover => "failover",
        LiveName::Coexistence => "coexistence",
        LiveName::Sctplib => "sctplib",
        LiveName::Datatag => "datatag",
        LiveName::Strsctp => "strsctp",
        LiveName::Loopback => "loopback",
        LiveName::All => "all",
    }
}

/// Returns a sentence about published counters of the line that belong to no single row.
pub(super) fn published_counters(experiment: &str) -> Option<String> {
    (experiment == name(LiveName::Sctplib)).then(|| {
        let [there, back] = IPFW_COUNTERS
            .map(|(packets, dropped)| format!("{} packets, {} dropped", grouped(packets), grouped(dropped)));
        format!("published, all transfers together (ipfw pipe show): to the server {there}; back {back}")
    })
}

/// Returns whether an experiment has this name.
pub(super) fn is_experiment(text: &str) -> bool {
    ALL.iter().chain([&LiveName::Loopback]).any(|&one| name(one) == text)
}

/// Returns the names of all cells of an experiment.
#[cfg(test)]
pub(super) fn cell_names(name: LiveName) -> Vec<String> {
    let plans = plan::plans(name);
    let loads = plans.iter().flat_map(|plan| &plan.loads);
    let cells = loads.flat_map(|load| load.series.iter().map(|&series| Cell::new(load, series).name()));
    if name == LiveName::Strsctp { strsctp::names() } else { cells.collect() }
}

/// Moves this process to namespaces of its own, if an experiment needs them. Must be called before a thread is started.
pub(super) fn enter(name: LiveName) -> Result<(), LiveError> {
    match name {
        LiveName::Loopback | LiveName::Strsctp => Ok(host::check_loopback()?),
        _ => {
            let restrictions = super::line::enter().map_err(LiveError::Line)?;
            restrictions.0.iter().for_each(|restriction| note(format_args!("{restriction}")));
            Ok(())
        }
    }
}

/// Runs an experiment without the series that this host lacks. Returns the results from before Ctrl-C or a failure, too.
pub(super) fn run(
    name: LiveName,
    settings: &Settings<'_>,
    conditions: &Conditions,
    keep: &mut Keep<'_>,
) -> Results {
    // A command that is killed leaves its last part as Ctrl-C would.
    let mut keep = |part: &dyn Fn() -> Results| {
        keep(&|| {
            let mut part = part();
            mark_interrupted(&mut part.outcomes, settings.repeat(), true);
            part
        });
    };
    let mut results = match name {
        LiveName::Strsctp => strsctp::run(settings, &mut keep),
        _ => run_plans(name, settings, conditions, &mut keep),
    };
    mark_interrupted(&mut results.outcomes, settings.repeat(), interrupt::requested());
    results
}

/// Marks the outcomes that have fewer runs than the user has asked for, or lack the answers of one, because the command ended.
/// The runs that they have are whole.
fn mark_interrupted(outcomes: &mut [(Outcome, Source)], repeat: u32, is_interrupted: bool) {
    for (outcome, source) in outcomes {
        let is_short = source.figures().is_some_and(|figures| figures.runs() < repeat as usize);
        outcome.interrupted = is_interrupted && (is_short || outcome.interrupted);
    }
}

fn run_plans(
    name: LiveName,
    settings: &Settings<'_>,
    conditions: &Conditions,
    keep: &mut Keep<'_>,
) -> Results {
    let mut results = Results::default();
    for plan in plan::plans(name) {
        let mut cells = cells(&plan, settings);
        cells.retain(|cell| cell.all_series().all(|series| conditions.permit(series)));
        if cells.is_empty() || interrupt::requested() {
            continue;
        }
        let results_with = |cells: &[Cell], beside: &[Outcome]| {
            let (mut outcomes_so_far, mut traces) = (results.outcomes.clone(), results.traces.clone());
            outcomes_so_far.extend(outcomes(&plan, cells, settings, beside));
            traces.extend(cells.iter().flat_map(|cell| trace::traces(self::name(name), &plan, cell)));
            let runs = results.runs + cells.iter().map(|cell| cell.turns.len()).sum::<usize>();
            Results { outcomes: outcomes_so_far, traces, runs, failure: None }
        };
        let measured =
            measure_plan(&plan, &mut cells, settings, &mut |cells| keep(&|| results_with(cells, &[])));
        let beside = if cells.iter().any(|cell| !cell.turns.is_empty()) {
            beside::run(name, settings, &plan.marks_s(settings))
        } else {
            Vec::new()
        };
        let failure = results.failure.take().or(measured.err());
        results = Results { failure, ..results_with(&cells, &beside) };
    }
    results
}

/// Measures every cell in turn, and again. Fails with the first failure of one of our transports, after all others were measured.
/// `keep` gets the cells after each measurement.
fn measure_plan(
    plan: &Plan,
    cells: &mut Vec<Cell>,
    settings: &Settings<'_>,
    keep: &mut dyn FnMut(&[Cell]),
) -> Result<(), LiveError> {
    let mut hosts = match plan.lines.as_slice() {
        [] => None,
        lines => {
            let emulator = emulator::Settings { seed: settings.seed, ..Default::default() };
            Some(Hosts::build(lines, Default::default(), &emulator)?)
        }
    };
    let mut failure = None;
    // Without veth the reports come over the first line.
    let control = hosts.as_ref().and_then(|hosts| hosts.join_beside().ok());
    if let Some(hosts) = &hosts
        && cells.iter().any(|cell| cell.series == MPTCP)
        && let Err(error) = hosts.allow_mptcp(plan.lines.len())
    {
        failure = Some(HostsError::from(error).into());
        cells.retain(|cell| cell.series != MPTCP);
    }
    let repeat = settings.repeat();
    let bar = super::progress_bar(u64::from(repeat) * cells.len() as u64);
    'turns: for turn in 0..repeat {
        let seed = seed_of_turn(settings.seed, turn);
        for number in 0..cells.len() {
            bar.set_message(cells[number].name());
            let (hosts, control) = (hosts.as_mut(), control.as_deref());
            let mut testbed = Testbed { plan, settings, hosts, control, seed, bar: &bar };
            match measure_turn(&mut testbed, cells, number, keep) {
                Ok(ControlFlow::Continue(())) => bar.suspend(|| keep(cells)),
                Ok(ControlFlow::Break(())) => break 'turns,
                Err(error) if error.is_of_one_measurement() => {
                    leave_out(&bar, error, cells[number].series.is_sctp(), &mut failure);
                }
                Err(error) => {
                    failure = Some(error);
                    break 'turns;
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    failure.map_or(Ok(()), Err)
}

/// Tells the user that a measurement is left out. It is a failure of this command if the transport is ours: those of the kernel
/// sometimes stop delivering.
fn leave_out(bar: &ProgressBar, error: LiveError, is_ours: bool, failure: &mut Option<LiveError>) {
    bar.suspend(|| note(format_args!("left out: {error}")));
    if is_ours {
        failure.get_or_insert(error);
    }
}

/// Returns the seed of the lines in a turn: all cells of a turn meet the same random decisions, those of the next turn others.
fn seed_of_turn(seed: u64, turn: u32) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(turn.into());
    random.next_u64()
}

/// The plan, settings and hosts that the measurements of a turn share.
struct Testbed<'a> {
    plan: &'a Plan,
    settings: &'a Settings<'a>,
    hosts: Option<&'a mut Hosts>,
    /// The server's address beside the lines.
    control: Option<&'a str>,
    /// Seed of the lines.
    seed: u64,
    bar: &'a ProgressBar,
}

impl Testbed<'_> {
    /// Restarts the lines, if there are any.
    fn restart(&mut self) -> Result<(), HostsError> {
        self.hosts.as_deref_mut().map_or(Ok(()), |hosts| hosts.restart(self.seed))
    }

    fn counts(&self) -> Result<Option<(EmulatorCounts, u64)>, HostsError> {
        self.hosts.as_deref().map(Hosts::counts).transpose()
    }
}

/// Adds a turn to the cell with this number. If the latency cannot be measured, the turn has the rate alone. Breaks off after
/// Ctrl-C. `keep` gets the cells before a disturbed run is repeated.
fn measure_turn(
    testbed: &mut Testbed<'_>,
    cells: &mut [Cell],
    number: usize,
    keep: &mut dyn FnMut(&[Cell]),
) -> Result<ControlFlow<()>, LiveError> {
    let (settings, bar) = (testbed.settings, testbed.bar);
    // A failure of ours is one of this command.
    let more = if cells[number].series.is_sctp() { 0 } else { ATTEMPTS_MORE };
    let turn_number = cells[number].turns.len();
    let mut failed = 0;
    let mut keep_if = |again, cells: &[Cell]| {
        if again {
            bar.suspend(|| keep(cells));
        }
    };
    let measured = undisturbed(
        settings,
        cells,
        Turn::is_disturbed,
        |cells| attempt(more, &mut failed, bar, || measure_rate(testbed, &cells[number])),
        |cells, turn, again| {
            cells[number].put_turn(turn_number, turn);
            keep_if(again, cells);
        },
    );
    cells[number].failed += failed;
    let flow = measured?;
    if flow.is_break() || !cells[number].load.latency {
        return Ok(flow);
    }
    let mut failed = 0;
    let answered = undisturbed(
        settings,
        cells,
        Run::is_disturbed,
        |cells| attempt(more, &mut failed, bar, || measure_request_response(testbed, &cells[number])),
        |cells, run, again| {
            cells[number].put_answers(turn_number, run);
            keep_if(again, cells);
        },
    );
    cells[number].failed += failed;
    answered
}

/// Measures the rate of a cell, and of the series beside it.
fn measure_rate(testbed: &mut Testbed<'_>, cell: &Cell) -> Result<Option<Turn>, LiveError> {
    testbed.restart()?;
    let seconds = testbed.plan.seconds(&cell.load, cell.series, testbed.settings);
    let by_time = testbed.settings.seconds.is_some();
    let hosts = testbed.hosts.as_deref();
    let series = cell.all_series();
    let measurements = series.map(|series| Measurement {
        control: testbed.control,
        ..measurement(hosts, cell, series, seconds, by_time)
    });
    let measurements: Vec<Measurement<'_>> = measurements.collect();
    let (measured, observed) =
        watch(hosts, &testbed.plan.lines, seconds, |progress| at_once(&measurements, progress));
    let Some(AtOnce { measured, others_busy }) = measured? else { return Ok(None) };
    let counts = testbed.counts()?;
    let parts = rate_windows(testbed.plan, cell, &measured, seconds);
    let runs = measured.into_iter().zip(parts).map(|(measured, part)| {
        let history = observed.since(measured.began_s);
        Run::new(measured, counts.as_ref(), history).with_rate_window(part).beside_others(Some(others_busy))
    });
    let runs: Vec<Run> = runs.collect();
    if runs.iter().any(|run| run.bits_per_s(None).is_none()) {
        let said = "its reports end before the test".to_owned();
        return Err(LiveError::End { name: cell.name(), said });
    }
    let mut runs = runs.into_iter();
    Ok(runs.next().map(|run| Turn { run, beside: runs.next(), request_response: None }))
}

/// Measures how long answers take, in a run of its own with its own counts.
fn measure_request_response(testbed: &mut Testbed<'_>, cell: &Cell) -> Result<Option<Run>, LiveError> {
    testbed.restart()?;
    let seconds = testbed.plan.latency_seconds(&cell.load, cell.series, testbed.settings);
    let hosts = testbed.hosts.as_deref();
    let asked = Measurement {
        request_response: true,
        control: testbed.control,
        ..measurement(hosts, cell, cell.series, seconds, true)
    };
    // Requests and answers may pass as few bytes as a test that stands still.
    let Some(AtOnce { mut measured, others_busy }) = at_once(&[asked], None)? else { return Ok(None) };
    let counts = testbed.counts()?;
    let run = |measured| Run::new(measured, counts.as_ref(), LineHistory::default());
    Ok(measured.pop().map(|measured| run(measured).beside_others(Some(others_busy))))
}

/// Returns the part of each run that its rate is of, if it is not the whole run: with marks, the time of the sending, as at each
/// mark, and over lines that go down, because a run that ends in an outage would last until the transport sends again; beside
/// another, the time in which both sent, without its start.
fn rate_windows(plan: &Plan, cell: &Cell, measured: &[Measured], seconds: f64) -> Vec<Option<(f64, f64)>> {
    let whole = Some((0.0, seconds));
    if cell.load.beside.is_none() {
        let planned = !cell.load.marks_s.is_empty() || plan.goes_down(&cell.load, cell.series);
        return vec![whole.filter(|_| planned); measured.len()];
    }
    let began: Vec<f64> = measured.iter().filter_map(|measured| measured.began_s).collect();
    let first = began.iter().copied().fold(f64::INFINITY, f64::min);
    let last = began.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (from, until) = (last + START_BESIDE * seconds, first + seconds);
    if began.len() < measured.len() || from >= until {
        return vec![whole; measured.len()];
    }
    began.iter().map(|began| Some((from - began, until - began))).collect()
}

/// Measurements that ran at the same time.
struct AtOnce {
    measured: Vec<Measured>,
    /// Number of processors that other programs kept busy meanwhile.
    others_busy: f64,
}

/// Runs measurements at the same time; returns `None` after Ctrl-C. Several clients first connect, and then begin at once.
/// One that stands still is ended, if the progress of the lines is known.
fn at_once(
    measurements: &[Measurement<'_>],
    progress: Option<&Progress>,
) -> Result<Option<AtOnce>, LiveError> {
    let busy = OthersBusy::begin();
    let begin = if measurements.len() > 1 { Begin::WhenReleased } else { Begin::AtOnce };
    let mut running = Vec::new();
    for measurement in measurements {
        let Some(started) = measurement.start(begin)? else { return Ok(None) };
        running.push(started);
    }
    if begin == Begin::WhenReleased {
        for one in &mut running {
            if one.wait_until_connected()?.is_none() {
                return Ok(None);
            }
        }
        running.iter_mut().for_each(Running::release);
    }
    let measured = running.into_iter().map(|running| running.finish(progress));
    let Some(measured) = measured.collect::<Result<Option<Vec<_>>, _>>()? else { return Ok(None) };
    Ok(Some(AtOnce { measured, others_busy: busy.processors() }))
}

fn measurement<'a>(
    hosts: Option<&'a Hosts>,
    cell: &Cell,
    series: Series,
    seconds: f64,
    by_time: bool,
) -> Measurement<'a> {
    // The MPTCP client learns the other addresses from the server.
    let named = if series == MPTCP { 1 } else { series.paths };
    let loopback = |end: End| {
        let first = if end == End::Server { 1 } else { 11 };
        (first..first + named).map(|last| format!("127.0.0.{last}")).collect()
    };
    let [client, server] = ENDS;
    let ends = [server, client];
    let first = cell.load.first;
    Measurement {
        name: cell.name(),
        hosts: ends.map(|end| hosts.map(|hosts| hosts.host(end))),
        addresses: ends.map(|end| match hosts {
            Some(_) => (first..first + named).map(|path| address(path, end)).collect(),
            None => loopback(end),
        }),
        control: None,
        tool: series.tool,
        // The kernel limits a requested buffer to net.core.rmem_max and then does not let it grow. TCP's default buffer grows to
        // the capacity of the lines.
        buffer_bytes: cell.load.buffer_bytes.filter(|_| series.is_sctp()),
        message_bytes: cell.load.message_bytes,
        parallel: cell.load.parallel,
        seconds,
        messages: cell.load.messages().filter(|_| !by_time),
        request_response: false,
    }
}

#[cfg(test)]
mod tests {
    use emulator::LineState;

    use super::*;

    pub(super) const SETTINGS: Settings<'_> =
        Settings { seconds: None, case: "", repeat: None, quick: false, full: false, seed: 1 };

    fn run(bits_per_s: f64) -> Run {
        Run::new(Measured { bits_per_s, ..Measured::default() }, None, LineHistory::default())
    }

    fn plan(name: LiveName) -> Plan {
        plan::plans(name).swap_remove(0)
    }

    /// Returns the cells of a load, with these rates.
    fn measured(plan: &Plan, load: usize, rates: &[(&str, usize, &[f64])]) -> Vec<Cell> {
        let cell = |(name, paths, rates): &(&str, usize, &[f64])| {
            let load = &plan.loads[load];
            let series = load.series.iter().find(|series| series.name == *name && series.paths == *paths);
            let mut cell = Cell::new(load, *series.expect("a series of the load"));
            cell.turns = rates.iter().map(|rate| Turn { run: run(*rate), ..Turn::default() }).collect();
            cell
        };
        rates.iter().map(cell).collect()
    }

    #[test]
    fn the_best_path_alone_is_of_the_same_series_and_mptcp_has_that_of_tcp() {
        let plan = plan(LiveName::AsymmetricRate);
        let rates: [(&str, usize, &[f64]); 5] = [
            ("tcp-cubic", 1, &[95e6]),
            ("tcp-bbr", 1, &[80e6, 90e6]),
            ("mptcp", 2, &[1e6, 76e6, 80e6]),
            ("sctp-message", 1, &[38e6]),
            ("sctp-message", 2, &[]),
        ];
        let outcomes = outcomes(&plan, &measured(&plan, 0, &rates), &SETTINGS, &[]);
        assert_eq!(outcomes.len(), 4, "what was not measured is left out");
        let (mptcp, _) = &outcomes[2];
        assert_eq!((mptcp.bits_per_s, mptcp.best_path_bits_per_s), (76e6, Some(95e6)));
        let (message, figures) = &outcomes[3];
        assert_eq!((message.path, message.ratio_to_best_path()), (Some(1), Some(1.0)));
        let figures = figures.figures().expect("measured");
        assert_eq!(figures.ratio_to_tcp(message.bits_per_s), Some(0.4), "by the better TCP");
    }

    #[test]
    fn published_figures_stand_beside_ours() {
        let published = |name, load, rates: &[(&str, usize, &[f64])]| {
            let plan = plan(name);
            let outcomes = outcomes(&plan, &measured(&plan, load, rates), &SETTINGS, &[]);
            assert!(outcomes.iter().any(|(outcome, source)| outcome.published && source.figures().is_none()));
            let figures = outcomes.iter().filter_map(|(_, source)| source.figures());
            figures.map(|figures| figures.published_bits_per_s).collect::<Vec<_>>()
        };
        let two_equal: [(&str, usize, &[f64]); 3] =
            [("tcp-cubic", 1, &[95e6]), ("sctp-message", 2, &[70e6]), ("mptcp", 2, &[180e6])];
        assert_eq!(published(LiveName::TwoEqual, 3, &two_equal), [Some(93.8e6), Some(91.6e6), None]);
        assert_eq!(published(LiveName::Sctplib, 1, &[("sctp-stream", 1, &[28e6])]), [Some(970.0 * 8192.0)]);
        assert_eq!(published(LiveName::Sctplib, 0, &[("tcp-bbr", 1, &[28e6])]), [Some(3008.1 * 8192.0)]);
        let flapping: [(&str, usize, &[f64]); 2] = [("tcp-cubic", 1, &[4e6]), ("sctp-message", 2, &[9e6])];
        assert_eq!(published(LiveName::Flapping, 2, &flapping), [Some(1064e3), Some(1750e3)]);
    }

    #[test]
    fn published_figures_do_not_stand_alone() {
        for name in [LiveName::TwoEqual, LiveName::Flapping, LiveName::Datatag, LiveName::Sctplib] {
            let plan = plan(name);
            let mut cells = cells(&plan, &SETTINGS);
            assert_eq!(outcomes(&plan, &cells, &SETTINGS, &[]).len(), 0, "nothing was measured");
            cells[0].turns = vec![Turn { run: run(1e6), ..Turn::default() }];
            let case = cells[0].load.name();
            let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
            assert!(outcomes.iter().any(|(outcome, _)| outcome.published), "{case}");
            assert!(
                outcomes.iter().all(|(outcome, _)| outcome.case == case),
                "other loads were not measured"
            );
        }
    }

    #[test]
    fn buffers_that_were_published_are_given_to_sctp_and_tcp_grows() {
        let plan = plan(LiveName::Datatag);
        let load = &plan.loads[0];
        let buffers: Vec<_> = load
            .series
            .iter()
            .map(|&series| measurement(None, &Cell::new(load, series), series, 1.0, false).buffer_bytes)
            .collect();
        assert_eq!(buffers, [None, None, Some(32 << 20), Some(32 << 20), Some(32 << 20)]);
    }

    #[test]
    fn tcp_of_a_file_is_compared_with_sctp_whatever_its_buffer() {
        let plan = plan(LiveName::Sctplib);
        let mut cells = measured(&plan, 0, &[("tcp-cubic", 1, &[28e6])]);
        cells.extend(measured(&plan, 2, &[("sctp-stream", 1, &[14e6])]));
        let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
        let (stream, source) =
            outcomes.iter().find(|(outcome, _)| outcome.transport == "sctp-stream").expect("one");
        assert!(stream.case.ends_with("67107840 bytes of buffer"), "{}", stream.case);
        assert_eq!(source.figures().and_then(|figures| figures.ratio_to_tcp(14e6)), Some(0.5));
    }

    #[test]
    fn both_sides_of_a_bottleneck_are_told() {
        let plan = plan(LiveName::Coexistence);
        let mut cells = measured(&plan, 0, &[("sctp-stream", 1, &[60e6])]);
        cells[0].turns[0].beside = Some(run(30e6));
        let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
        let transports: Vec<&str> = outcomes.iter().map(|(outcome, _)| outcome.transport.as_str()).collect();
        assert_eq!(transports, ["sctp-stream", "tcp-cubic"]);
        let figures = outcomes[0].1.figures().expect("measured");
        assert_eq!(figures.ratio_to_tcp(60e6), Some(2.0));
    }

    #[test]
    fn the_rates_of_a_pair_are_of_the_turn_of_the_median_share() {
        let plan = plan(LiveName::Coexistence);
        let mut cells = measured(&plan, 0, &[("sctp-stream", 1, &[78e6, 50e6, 40e6])]);
        for (turn, beside) in cells[0].turns.iter_mut().zip([17e6, 46e6, 55e6]) {
            turn.beside = Some(run(beside));
        }
        let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
        let rates: Vec<f64> = outcomes.iter().map(|(outcome, _)| outcome.bits_per_s).collect();
        assert_eq!(rates, [50e6, 46e6]);
        let rows: Vec<_> = outcomes
            .iter()
            .map(|(_, source)| serde_json::to_value(source.figures().expect("measured")).expect("JSON"))
            .collect();
        let share = |row: usize, key: &str| (rows[row][key].as_f64().expect("a share") * 100.0).round();
        let keys = ["share_of_fair", "share_of_fair_min", "share_of_fair_max"];
        assert_eq!(keys.map(|key| share(0, key)), [104.0, 84.0, 164.0]);
        assert_eq!(keys.map(|key| share(1, key)), [96.0, 36.0, 116.0]);
    }

    #[test]
    fn a_long_run_is_told_at_each_mark_beside_the_published_run_of_that_length() {
        let plan = plan(LiveName::Datatag);
        let mut cells = measured(&plan, 0, &[("sctp-stream", 1, &[9e8])]);
        let point = |second: u32| measure::Point {
            at_s: second.into(),
            bytes: 1_000_000,
            ..measure::Point::default()
        };
        cells[0].turns[0].run.measured.points = (1..=60).map(point).collect();
        let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
        let ours: Vec<f64> = outcomes
            .iter()
            .filter(|(outcome, _)| !outcome.published)
            .map(|(outcome, _)| outcome.seconds)
            .collect();
        assert_eq!(ours, [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        let at = |seconds| Outcome { seconds, transport: beside::TRANSPORT.to_owned(), ..Outcome::default() };
        let with_virtual = self::outcomes(&plan, &cells, &SETTINGS, &[at(10.0)]);
        let named = |(outcome, _): &(Outcome, Source)| (outcome.transport.clone(), outcome.seconds);
        let rows: Vec<_> = with_virtual.iter().map(named).collect();
        assert_eq!(rows[1], (beside::TRANSPORT.to_owned(), 10.0), "behind ours, before what was published");
        let published = with_virtual.iter().filter(|(outcome, _)| outcome.published).count();
        assert_eq!(published, 40, "two programs in each of the twenty rows");
        assert_eq!(rows[rows.len() - 1], ("tcp 2003".to_owned(), 3600.0));
    }

    /// Returns a turn over two lines, the first of which comes back 8 s after the beginning and is used so long after that, if at
    /// all. Nothing is delivered for `gap` tenths of a second.
    fn turn_of_failover(bits_per_s: f64, used_after_s: Option<f64>, gap: usize) -> Turn {
        let state = |tenths: u32| {
            let at_s = f64::from(tenths) / 10.0;
            let used_s = used_after_s.map_or(0.0, |after_s| (at_s - 8.0 - after_s).max(0.0));
            let line = LineState { bytes_accepted: (used_s * 12.5e6) as u64, ..LineState::default() };
            watch::StateAt { at_s, paths: vec![[line; 2], [LineState::default(); 2]] }
        };
        let point = |tenths: usize| measure::Point {
            at_s: tenths as f64 / 10.0,
            bytes: u64::from(!(41..41 + gap).contains(&tenths)),
            ..measure::Point::default()
        };
        let points = (1..=110).map(point).collect();
        let measured = Measured { bits_per_s, points, ..Measured::default() };
        let states = (1..=110).map(state).collect();
        let history = LineHistory { states, ..LineHistory::default() };
        Turn { run: Run::new(measured, None, history), ..Turn::default() }
    }

    #[test]
    fn the_longest_gap_and_the_latest_return_are_of_all_turns() {
        let plan = plan(LiveName::Failover);
        let mut cells = measured(&plan, 0, &[("mptcp", 2, &[])]);
        let tenths = |cells: &[Cell]| {
            let (outcome, _) = outcomes(&plan, cells, &SETTINGS, &[]).swap_remove(0);
            let returns = outcome.returns.expect("a line comes back");
            let in_tenths = |seconds: f64| (seconds * 10.0).round();
            let times = [outcome.gap_s_max, returns.back_s_max].map(|time| time.map(in_tenths));
            (times, returns.count, returns.missed)
        };
        // Each is used at the first observation after it, which is one of a tenth of a second.
        cells[0].turns = [(90e6, 0.05, 2), (91e6, 0.05, 3), (70e6, 2.05, 25)]
            .map(|(rate, used_after_s, gap)| turn_of_failover(rate, Some(used_after_s), gap))
            .into();
        assert_eq!(tenths(&cells), ([Some(25.0), Some(21.0)], 3, 0), "the worst turn has the lowest rate");
        cells[0].turns.push(turn_of_failover(60e6, None, 2));
        assert_eq!(tenths(&cells), ([Some(25.0), Some(21.0)], 4, 1), "one was never used");
    }

    #[test]
    fn ctrl_c_marks_only_outcomes_that_lack_runs() {
        let plan = plan(LiveName::Lossy);
        let rates: [(&str, usize, &[f64]); 2] = [("tcp-cubic", 1, &[9e6, 8e6]), ("sctp-message", 2, &[7e6])];
        let all = outcomes(&plan, &measured(&plan, 0, &rates), &SETTINGS, &[]);
        let marks = |repeat, is_interrupted| {
            let mut outcomes = all.clone();
            mark_interrupted(&mut outcomes, repeat, is_interrupted);
            outcomes.iter().map(|(outcome, _)| outcome.interrupted).collect::<Vec<_>>()
        };
        assert_eq!(marks(2, true), [false, true]);
        assert_eq!(marks(1, true), [false, false]);
        assert_eq!(marks(2, false), [false, false], "a failed run was left out");
        let plan = self::plan(LiveName::Flapping);
        let mut cells = measured(&plan, 0, &[("tcp-cubic", 1, &[9e6, 8e6])]);
        cells[0].turns[0].request_response = Some(run(1e6));
        for (answered, lacks) in [(None, true), (Some(run(1e6)), false)] {
            cells[0].turns[1].request_response = answered;
            let mut outcomes = outcomes::outcomes(&plan, &cells, &SETTINGS, &[]);
            mark_interrupted(&mut outcomes, 2, true);
            assert_eq!(outcomes[0].0.interrupted, lacks, "answers of the second run");
        }
    }

    #[test]
    fn a_better_run_replaces_the_disturbed_one_of_its_turn() {
        let plan = plan(LiveName::Flapping);
        let mut cell = measured(&plan, 0, &[("tcp-cubic", 1, &[9e6])]).remove(0);
        let rates =
            |cell: &Cell| cell.turns.iter().map(|turn| turn.run.measured.bits_per_s).collect::<Vec<_>>();
        for (rate, repeated, all) in [(5e6, 0, [9e6, 5e6]), (7e6, 1, [9e6, 7e6])] {
            cell.put_turn(1, Turn { run: run(rate), ..Turn::default() });
            assert_eq!((cell.repeated, rates(&cell)), (repeated, all.to_vec()));
        }
        for (number, repeated) in [(1, 1), (1, 2), (0, 2)] {
            cell.put_answers(number, run(1e6));
            assert_eq!(cell.repeated, repeated);
        }
        assert_eq!(cell.request_response_runs().len(), 2);
    }

    #[test]
    fn only_turns_have_other_losses() {
        let seeds: std::collections::BTreeSet<u64> =
            (0..3).flat_map(|seed| (0..100).map(move |turn| seed_of_turn(seed, turn))).collect();
        assert_eq!(seeds.len(), 300, "each seed and turn has its own");
        assert_eq!(seed_of_turn(1, 0), 7_424_550_030_962_593_201, "a run of before can be repeated");
    }

    #[test]
    fn published_rows_used_the_lines_of_ours_and_tcp_only_the_one_that_comes_and_goes() {
        let plan = plan(LiveName::Flapping);
        let mut cells = measured(&plan, 1, &[("tcp-cubic", 1, &[4e6])]);
        cells.extend(measured(&plan, 2, &[("tcp-cubic", 1, &[4e6]), ("sctp-message", 2, &[9e6])]));
        let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
        let used: Vec<_> = outcomes.iter().filter_map(|(outcome, _)| outcome.paths_text()).collect();
        assert_eq!(used, ["3", "3", "3", "2", "2+3", "2", "2+3"], "three published ones");
        let datatag = self::plan(LiveName::Datatag);
        let published = datatag.loads[0].published(10.0);
        assert!(published.iter().all(|outcome| outcome.paths_text().as_deref() == Some("1")));
    }

    #[test]
    fn rows_name_their_lines_with_the_queues() {
        let plan = plan(LiveName::Sctplib);
        let cells = measured(&plan, 0, &[("tcp-cubic", 1, &[28e6])]);
        let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
        let row = serde_json::to_value(outcomes[0].1.figures().expect("measured")).expect("JSON");
        assert_eq!(row["lines"], "30mbit,50ms,queue=400KiB");
        assert_eq!(row["repeated"], 0);
    }

    #[test]
    fn rates_beside_another_are_of_the_time_in_which_both_sent_without_its_start() {
        let plan = plan(LiveName::Coexistence);
        let cell = Cell::new(&plan.loads[0], plan.loads[0].series[0]);
        let began = |began_s| Measured { began_s, ..Measured::default() };
        let parts = |began_s: [Option<f64>; 2]| rate_windows(&plan, &cell, &began_s.map(began), 20.0);
        assert_eq!(parts([Some(100.0), Some(100.5)]), [Some((5.5, 20.0)), Some((5.0, 19.5))]);
        assert_eq!(parts([Some(100.0), None]), [Some((0.0, 20.0)); 2], "one does not tell when it began");
        assert_eq!(parts([Some(100.0), Some(130.0)]), [Some((0.0, 20.0)); 2], "they missed each other");
    }

    #[test]
    fn rates_with_marks_and_over_lines_that_go_down_are_of_the_planned_time() {
        let parts = |name| {
            let plan = plan(name);
            let cells = plan.loads.iter().map(|load| Cell::new(load, load.series[0]));
            cells.map(|cell| rate_windows(&plan, &cell, &[Measured::default()], 60.0)[0]).collect::<Vec<_>>()
        };
        let planned = Some((0.0, 60.0));
        assert_eq!(parts(LiveName::Datatag), [planned]);
        assert_eq!(parts(LiveName::Failover), [planned]);
        assert_eq!(parts(LiveName::Flapping), [None, None, planned], "one network alone is always up");
        assert_eq!(parts(LiveName::Lossy), [None; 2]);
    }

    #[test]
    fn quick_leaves_the_larger_files_out() {
        let plan = plan(LiveName::Sctplib);
        assert_eq!(cells(&plan, &SETTINGS).len(), 7, "two TCPs for each file, and three transfers of ours");
        assert_eq!(cells(&plan, &Settings { quick: true, ..SETTINGS }).len(), 4);
    }

    #[test]
    fn all_experiments_have_plans() {
        for name in ALL {
            assert!(name == LiveName::Strsctp || !plan::plans(name).is_empty(), "{}", self::name(name));
        }
        let words = <LiveName as clap::ValueEnum>::value_variants();
        for &word in words {
            let value = clap::ValueEnum::to_possible_value(&word).expect("each has a word");
            assert_eq!(value.get_name(), name(word));
        }
    }
}
