//! `swiftwater lab --live`: experiments in real time, beside the kernel's TCP and MPTCP on the same lines.

mod figures;
mod measure;
mod plan;

use std::io;

use ::lab::experiment::{self, Outcome};
use indicatif::ProgressBar;
use thiserror::Error;

use crate::args::LiveName;
use crate::interrupt;
use crate::lab::line::LineError;
use crate::lab::line::hosts::{ENDS, End, Hosts, HostsError, address};
use crate::output::note;
use crate::stats::median;
pub(super) use figures::Figures;
use figures::{Cell, Run};
use measure::Measurement;
use plan::{MPTCP, Plan};

/// Each is run so often, in turn with the others, and the median is told.
const REPEAT: u32 = 5;
/// A run that was disturbed is repeated so often.
const TRIES_MAX: u32 = 3;

/// Why an experiment failed.
#[derive(Debug, Error)]
pub(crate) enum LiveError {
    /// There are no hosts, or no lines between them.
    #[error("{0}; or try --virtual or --live loopback")]
    Hosts(#[from] HostsError),
    /// This process cannot have namespaces of its own.
    #[error("{0}; or try --virtual or --live loopback")]
    Line(LineError),
    /// No measurement has such a name.
    #[error("no case of this experiment has `{0}` in its name, such as `64 bytes, sctp-stream`")]
    NoCase(String),
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

/// How an experiment is run.
#[derive(Clone, Debug)]
pub(super) struct Settings<'a> {
    /// Seconds of each measurement.
    pub(super) seconds: Option<f64>,
    /// Only cases whose name contains this.
    pub(super) case: &'a str,
    /// Runs of each.
    pub(super) repeat: Option<u32>,
    /// One run of each.
    pub(super) quick: bool,
    /// What all chance of the lines comes from.
    pub(super) seed: u64,
}

/// Returns the name of an experiment.
pub(super) fn name(name: LiveName) -> &'static str {
    Plan::of(name).name
}

/// Moves to namespaces of its own, if an experiment needs them. Call it before a thread is started.
pub(super) fn enter(name: LiveName) -> Result<(), LiveError> {
    match name {
        LiveName::Loopback => Ok(()),
        _ => super::line::enter().map(drop).map_err(LiveError::Line),
    }
}

/// Runs an experiment; what was measured before Ctrl-C came is returned.
pub(super) fn run(
    name: LiveName,
    settings: &Settings<'_>,
) -> Result<Vec<(Outcome, Option<Figures>)>, LiveError> {
    let plan = Plan::of(name);
    let mut hosts = match plan.lines.as_slice() {
        [] => None,
        lines => {
            let emulator = emulator::Settings { seed: settings.seed, ..Default::default() };
            Some(Hosts::build(lines, Default::default(), &emulator)?)
        }
    };
    let mut series = plan.series.clone();
    if let Some(hosts) = &hosts
        && series.contains(&MPTCP)
        && let Err(error) = hosts.allow_mptcp(plan.lines.len())
    {
        note(format_args!("without MPTCP: {error}"));
        series.retain(|series| *series != MPTCP);
    }
    let seconds = settings.seconds.unwrap_or(plan.seconds);
    let sizes = plan.sizes.iter().flat_map(|&bytes| plan.buffers.iter().map(move |&buffer| (bytes, buffer)));
    let all = sizes.flat_map(|size| series.iter().map(move |&series| Cell::new(size, series)));
    let mut cells: Vec<Cell> = all.filter(|cell| cell.name().contains(settings.case)).collect();
    if cells.is_empty() {
        return Err(LiveError::NoCase(settings.case.to_owned()));
    }
    let repeat = settings.repeat.unwrap_or(if settings.quick { 1 } else { REPEAT });
    let bar = super::progress_bar(u64::from(repeat) * cells.len() as u64);
    let measured = measure_all(hosts.as_mut(), &mut cells, seconds, repeat, &bar);
    bar.finish_and_clear();
    measured?;
    Ok(outcomes(&plan, &cells, seconds))
}

/// Every cell in turn, and again.
fn measure_all(
    mut hosts: Option<&mut Hosts>,
    cells: &mut [Cell],
    seconds: f64,
    repeat: u32,
    bar: &ProgressBar,
) -> Result<(), LiveError> {
    for _ in 0..repeat {
        for cell in &mut *cells {
            bar.set_message(cell.name());
            match measure_undisturbed(hosts.as_deref_mut(), cell, seconds) {
                Ok(Some(run)) => cell.runs.push(run),
                Ok(None) => return Ok(()),
                // The kernel's now and then delivers nothing more of what it has taken, and a kernel may lack a transport.
                Err(error @ LiveError::End { .. }) if !cell.series.name.starts_with("sctp") => {
                    bar.suspend(|| note(format_args!("left out: {error}")));
                }
                Err(error) => return Err(error),
            }
            bar.inc(1);
        }
    }
    Ok(())
}

/// Measures once, and again where the host has disturbed the run. `None`: Ctrl-C came.
fn measure_undisturbed(
    mut hosts: Option<&mut Hosts>,
    cell: &Cell,
    seconds: f64,
) -> Result<Option<Run>, LiveError> {
    let mut tries = 0;
    loop {
        tries += 1;
        if let Some(hosts) = hosts.as_deref_mut() {
            hosts.restart()?;
        }
        let Some(bits_per_s) = measurement(hosts.as_deref(), cell, seconds).run()? else { return Ok(None) };
        let counts = hosts.as_deref().map(Hosts::counts).transpose()?;
        let run = Run::new(bits_per_s, counts.as_ref().map(|(counts, dropped)| (counts, *dropped)));
        if !run.is_disturbed() || tries > TRIES_MAX {
            return Ok(Some(run));
        }
    }
}

fn measurement<'a>(hosts: Option<&'a Hosts>, cell: &Cell, seconds: f64) -> Measurement<'a> {
    let series = cell.series;
    // The client of MPTCP finds the other addresses of the server by itself.
    let named = if series == MPTCP { 1 } else { series.paths };
    let loopback = |end: End| {
        let first = if end == End::Server { 1 } else { 11 };
        (first..first + named).map(|last| format!("127.0.0.{last}")).collect()
    };
    let [client, server] = ENDS;
    let ends = [server, client];
    Measurement {
        name: cell.name(),
        hosts: ends.map(|end| hosts.map(|hosts| hosts.host(end))),
        addresses: ends.map(|end| match hosts {
            Some(_) => (0..named).map(|path| address(path, end)).collect(),
            None => loopback(end),
        }),
        words: words(cell),
        message_bytes: cell.message_bytes,
        seconds,
    }
}

/// Returns the options of the client.
fn words(cell: &Cell) -> Vec<String> {
    let buffer = cell.buffer_bytes.map(|bytes| ["-w".to_owned(), bytes.to_string()]);
    cell.series.words.iter().map(|&word| word.to_owned()).chain(buffer.into_iter().flatten()).collect()
}

/// Returns what was measured, each size followed by what others have published of it.
fn outcomes(plan: &Plan, cells: &[Cell], seconds: f64) -> Vec<(Outcome, Option<Figures>)> {
    let mut outcomes = Vec::new();
    for group in cells.chunk_by(|one, other| one.messages() == other.messages()) {
        let published = published(plan, group, seconds);
        outcomes.extend(group.iter().filter_map(|cell| outcome(plan, cell, group, &published, seconds)));
        outcomes.extend(published.into_iter().map(|published| (published, None)));
    }
    outcomes
}

fn outcome(
    plan: &Plan,
    cell: &Cell,
    group: &[Cell],
    published: &[Outcome],
    seconds: f64,
) -> Option<(Outcome, Option<Figures>)> {
    let (series, message_bytes) = (cell.series, cell.message_bytes);
    let rate = |of: &Cell| median(&of.rates());
    let alone = group.iter().find(|other| other.series.name == series.alone && other.series.paths == 1);
    let tcp = group.iter().filter(|other| other.series.is_tcp()).filter_map(rate).reduce(f64::max);
    let outcome = Outcome {
        case: case_name(plan, cell),
        transport: series.name.to_owned(),
        seconds,
        bits_per_s: rate(cell)?,
        limit_bits_per_s: plan.limit_bits_per_s(series, message_bytes),
        message_bytes: Some(message_bytes),
        mode: Some(series.mode_name()),
        paths: Some(series.paths),
        path: (series.paths == 1).then_some(1),
        best_path_bits_per_s: alone.and_then(rate),
        interrupted: interrupt::requested(),
        ..Outcome::default()
    };
    // A figure without paths or mode is of the only path, whatever the mode.
    let same = |other: &&Outcome| {
        other.paths.is_none_or(|paths| paths == series.paths)
            && other.mode.is_none_or(|mode| mode == series.mode_name())
            && other.transport.starts_with("tcp") == series.is_tcp()
            && series != MPTCP
    };
    let published = published.iter().find(same).map(|published| published.bits_per_s);
    let figures = Figures::new(&cell.runs, tcp, published);
    Some((outcome, figures))
}

fn case_name(plan: &Plan, cell: &Cell) -> String {
    format!("{}, {}", plan.case, cell.messages())
}

/// Returns what others have published of the same.
fn published(plan: &Plan, group: &[Cell], seconds: f64) -> Vec<Outcome> {
    let Some(first) = group.first() else { return Vec::new() };
    let mut published = match plan.name {
        "two-equal" => experiment::published_two_equal(first.message_bytes),
        "sctplib" => experiment::published_sctplib(first.buffer_bytes.unwrap_or_default()),
        "datatag" => experiment::published_datatag(seconds.round() as u64),
        _ => Vec::new(),
    };
    published.iter_mut().for_each(|outcome| outcome.case = case_name(plan, first));
    published
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(plan: &Plan, message_bytes: usize, rates: &[(&str, usize, &[f64])]) -> Vec<Cell> {
        let cell = |(name, paths, rates): &(&str, usize, &[f64])| {
            let series = plan.series.iter().find(|series| series.name == *name && series.paths == *paths);
            let mut cell =
                Cell::new((message_bytes, plan.buffers[0]), *series.expect("a series of the plan"));
            cell.runs = rates.iter().map(|rate| Run::new(*rate, None)).collect();
            cell
        };
        rates.iter().map(cell).collect()
    }

    #[test]
    fn the_best_path_alone_is_of_the_same_series_and_mptcp_has_that_of_tcp() {
        let plan = Plan::of(LiveName::AsymmetricRate);
        let rates: [(&str, usize, &[f64]); 5] = [
            ("tcp-cubic", 1, &[95e6]),
            ("tcp-bbr", 1, &[80e6, 90e6]),
            ("mptcp", 2, &[1e6, 76e6, 80e6]),
            ("sctp-message", 1, &[38e6]),
            ("sctp-message", 2, &[]),
        ];
        let outcomes = outcomes(&plan, &cells(&plan, 64, &rates), 1.0);
        assert_eq!(outcomes.len(), 4, "what was not measured is left out");
        let (mptcp, _) = &outcomes[2];
        assert_eq!((mptcp.bits_per_s, mptcp.best_path_bits_per_s), (76e6, Some(95e6)));
        let (message, figures) = &outcomes[3];
        assert_eq!((message.path, message.ratio_to_best_path()), (Some(1), Some(1.0)));
        let figures = figures.as_ref().expect("measured");
        assert_eq!(figures.ratio_to_tcp(message.bits_per_s), Some(0.4), "by the better TCP");
    }

    #[test]
    fn what_openss7_has_published_stands_beside_the_same_of_ours() {
        let plan = Plan::of(LiveName::TwoEqual);
        let rates: [(&str, usize, &[f64]); 3] =
            [("tcp-cubic", 1, &[95e6]), ("sctp-message", 2, &[70e6]), ("mptcp", 2, &[180e6])];
        let outcomes = outcomes(&plan, &cells(&plan, 64, &rates), 1.0);
        let figure =
            |number: usize| outcomes[number].1.as_ref().and_then(|figures| figures.published_bits_per_s);
        assert_eq!(figure(1), Some(91.6e6));
        assert!(figure(0).is_some() && figure(2).is_none());
        assert!(outcomes.iter().any(|(outcome, figures)| outcome.published && figures.is_none()));
        let plan = Plan::of(LiveName::Sctplib);
        let outcomes = self::outcomes(&plan, &cells(&plan, 16384, &[("sctp-stream", 1, &[28e6])]), 10.0);
        let figures = outcomes[0].1.as_ref().expect("measured");
        assert_eq!(figures.published_bits_per_s, Some(970.0 * 8192.0));
        assert!(outcomes[0].0.case.ends_with("655335 bytes of buffer"), "{}", outcomes[0].0.case);
    }
}
