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
use repeat::{attempt, undisturbed};
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
    End { name: String, said: String },
    /// An end cannot be started.
    #[error("cannot start {what}: {source}")]
    Start {
        /// Name of the end.
        what: &'static str,
        source: io::Error,
    },
    /// A measurement has not ended.
    #[error(
        "{name}: no result after {} s, so it was ended: its lines let nothing through, or an end stands still",
        limit.as_secs()
    )]
    Deadline {
        name: String,
        /// The time that it had.
        limit: Duration,
    },
    /// A measurement stands still.
    #[error(
        "{name}: its lines have passed next to nothing for {} s, so it was ended: an end stands still",
        STALLED.as_secs()
    )]
    Stalled { name: String },
    /// The ends cannot be run.
    #[error("cannot run the two ends: {0}")]
    Io(#[from] io::Error),
    /// The repetition of a disturbed run failed.
    #[error("{0}; the disturbed run before it counts")]
    Repetition(Box<LiveError>),
    /// The measurement of a transport failed.
    #[error("{error}")]
    Of {
        /// Whether the transport is ours.
        is_ours: bool,
        /// The failure.
        error: Box<LiveError>,
    },
}

impl LiveError {
    /// Returns whether one measurement has failed, which others need not share.
    fn is_of_one_measurement(&self) -> bool {
        match self {
            LiveError::End { .. } | LiveError::Deadline { .. } | LiveError::Stalled { .. } => true,
            LiveError::Of { error, .. } | LiveError::Repetition(error) => error.is_of_one_measurement(),
            _ => false,
        }
    }

    /// Returns the failure as one of a transport.
    fn of(self, is_ours: bool) -> Self {
        LiveError::Of { is_ours, error: Box::new(self) }
    }

    /// Returns whether it is a failure of ours: transports of the kernel sometimes stop delivering.
    fn is_ours(&self) -> bool {
        match self {
            LiveError::Of { is_ours, .. } => *is_ours,
            LiveError::Repetition(error) => error.is_ours(),
            _ => true,
        }
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

/// Returns the sets of lines of an experiment.
#[cfg(test)]
pub(super) fn lines(name: LiveName) -> Vec<Vec<super::line::spec::PathSpec>> {
    plan::plans(name).into_iter().map(|plan| plan.lines).collect()
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
        cells.retain(|cell| {
            cell.all_series().all(|series| conditions.permit(series))
                && conditions.permit_outages(&plan, &cell.load, cell.series)
        });
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
        let measured = measure_plan(&plan, &mut cells, settings, conditions, &mut |cells| {
            keep(&|| results_with(cells, &[]))
        });
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
    conditions: &Conditions,
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
    let joined = hosts.as_ref().filter(|_| conditions.has_beside()).map(Hosts::join_beside);
    let control = joined.transpose().map_err(HostsError::from)?;
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
            match measure_turn(&mut testbed, cells, number, &mut failure, keep) {
                Ok(ControlFlow::Continue(())) => bar.suspend(|| keep(cells)),
                Ok(ControlFlow::Break(())) => break 'turns,
                Err(error) if error.is_of_one_measurement() => {
                    leave_out(&bar, error, &mut failure);
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

/// Tells the user that a measurement is left out, or not repeated. It is a failure of this command if the transport is ours.
fn leave_out(bar: &ProgressBar, error: LiveError, failure: &mut Option<LiveError>) {
    let what = if matches!(error, LiveError::Repetition(_)) { "not repeated" } else { "left out" };
    bar.suspend(|| note(format_args!("{what}: {error}")));
    if error.is_ours() {
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
/// Ctrl-C. `failure` takes that of a repetition, and `keep` gets the cells before a disturbed run is repeated.
fn measure_turn(
    testbed: &mut Testbed<'_>,
    cells: &mut [Cell],
    number: usize,
    failure: &mut Option<LiveError>,
    keep: &mut dyn FnMut(&[Cell]),
) -> Result<ControlFlow<()>, LiveError> {
    let (settings, bar) = (testbed.settings, testbed.bar);
    let turn_number = cells[number].turns.len();
    let mut failed = 0;
    let measured = undisturbed(
        settings,
        cells,
        Turn::is_disturbed,
        |cells| attempt(&mut failed, bar, || measure_rate(testbed, &cells[number])),
        |cells, turn, again| {
            cells[number].put_turn(turn_number, turn);
            if again {
                bar.suspend(|| keep(cells));
            }
        },
    );
    cells[number].failed += failed;
    let flow = after_repetition(measured, bar, failure)?;
    if flow.is_break() || !cells[number].load.latency {
        return Ok(flow);
    }
    measure_answers(testbed, cells, (number, turn_number), failure, keep)
}

/// Adds the answers to a turn of the cell with this number, or the mark that they have failed.
fn measure_answers(
    testbed: &mut Testbed<'_>,
    cells: &mut [Cell],
    (number, turn_number): (usize, usize),
    failure: &mut Option<LiveError>,
    keep: &mut dyn FnMut(&[Cell]),
) -> Result<ControlFlow<()>, LiveError> {
    let (settings, bar) = (testbed.settings, testbed.bar);
    let mut failed = 0;
    let answered = undisturbed(
        settings,
        cells,
        Run::is_disturbed,
        |cells| attempt(&mut failed, bar, || measure_request_response(testbed, &cells[number])),
        |cells, run, again| {
            cells[number].put_answers(turn_number, run);
            if again {
                bar.suspend(|| keep(cells));
            }
        },
    );
    cells[number].failed += failed;
    let answered = after_repetition(answered, bar, failure);
    cells[number].turns[turn_number].answers_failed = answered.is_err();
    answered
}

/// Goes on after the failure of a repetition: the disturbed run before it counts.
fn after_repetition(
    measured: Result<ControlFlow<()>, LiveError>,
    bar: &ProgressBar,
    failure: &mut Option<LiveError>,
) -> Result<ControlFlow<()>, LiveError> {
    match measured {
        Err(error @ LiveError::Repetition(_)) => {
            leave_out(bar, error, failure);
            Ok(ControlFlow::Continue(()))
        }
        measured => measured,
    }
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
        Run::new(measured, counts.as_ref(), history).with_rate_window(part).beside_others(others_busy)
    });
    let runs: Vec<Run> = runs.collect();
    if let Some((_, short)) = runs.iter().zip(&measurements).find(|(run, _)| run.bits_per_s(None).is_none()) {
        let said = "its reports end before the test".to_owned();
        return Err(LiveError::End { name: short.name.clone(), said }.of(short.series.is_sctp()));
    }
    let mut runs = runs.into_iter();
    Ok(runs.next().map(|run| Turn { run, beside: runs.next(), ..Turn::default() }))
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
    Ok(measured.pop().map(|measured| run(measured).beside_others(others_busy)))
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
    /// Number of processors that other programs kept busy meanwhile, if it is known.
    others_busy: Option<f64>,
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
        let started = measurement.start(begin).map_err(|error| error.of(measurement.series.is_sctp()))?;
        let Some(started) = started else { return Ok(None) };
        running.push(started);
    }
    if begin == Begin::WhenReleased {
        for (one, measurement) in running.iter_mut().zip(measurements) {
            let connected = one.wait_until_connected();
            if connected.map_err(|error| error.of(measurement.series.is_sctp()))?.is_none() {
                return Ok(None);
            }
        }
        running.iter_mut().for_each(Running::release);
    }
    let measured = running.into_iter().zip(measurements).map(|(running, measurement)| {
        running.finish(progress).map_err(|error| error.of(measurement.series.is_sctp()))
    });
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
        name: cell.name_of(series),
        hosts: ends.map(|end| hosts.map(|hosts| hosts.host(end))),
        addresses: ends.map(|end| match hosts {
            Some(_) => (first..first + named).map(|path| address(path, end)).collect(),
            None => loopback(end),
        }),
        control: None,
        series,
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
mod tests;
