//! The report of a plan: measured figures, each load followed by published results.

use ::lab::experiment::{Outcome, Returns};

use super::Settings;
use super::figures::{Cell, Figures, Run, Share, Turn, latency, rates, typical};
use super::plan::{Load, MPTCP, Plan, Series};
use crate::lab::line::spec::PathSpec;
use crate::lab::row::{Clock, Source};
use crate::stats::median;

const PUBLISHED: Source = Source::Published(Clock::Live);
/// A run that is shorter than a mark by less than this counts as one of that length.
const MARK_TOLERANCE_S: f64 = 0.5;

/// Returns the measured outcomes, each load followed by the results of the virtual clock and by published results; those of runs
/// longer than ours come last. Leaves out the loads without a measurement.
pub(super) fn outcomes(
    plan: &Plan,
    cells: &[Cell],
    settings: &Settings<'_>,
    virtual_beside: &[Outcome],
) -> Vec<(Outcome, Source)> {
    let mut outcomes = Vec::new();
    for group in cells.chunk_by(|one, other| one.load.name() == other.load.name()) {
        let Some(first) = group.first() else { continue };
        if group.iter().all(|cell| cell.turns.is_empty()) {
            continue;
        }
        let seconds = plan.seconds(&first.load, first.series, settings);
        let marks = first
            .load
            .marks_s
            .iter()
            .map(|&mark| mark as f64)
            .filter(|mark| *mark < seconds - MARK_TOLERANCE_S);
        let marks: Vec<Option<f64>> = marks.map(Some).chain([None]).collect();
        for mark_s in marks {
            let seconds = mark_s.unwrap_or(seconds);
            let published = first.load.published(seconds);
            for cell in group {
                outcomes.extend(outcomes_of(plan, cell, cells, &published, (mark_s, seconds)));
            }
            let simulated = || Source::Virtual { seed: settings.seed };
            outcomes.extend(
                virtual_at(virtual_beside, &first.load, seconds).map(|outcome| (outcome, simulated())),
            );
            outcomes.extend(published.into_iter().map(|one| (one, PUBLISHED)));
        }
        if !settings.is_short() {
            let later = first.load.marks_s.iter().map(|&mark| mark as f64).filter(|mark| *mark > seconds);
            let published = later.flat_map(|mark| first.load.published(mark));
            outcomes.extend(published.map(|one| (one, PUBLISHED)));
        }
    }
    outcomes
}

/// Returns the outcome of the virtual clock at a mark, as one of this load.
fn virtual_at<'a>(
    beside: &'a [Outcome],
    load: &Load,
    seconds: f64,
) -> impl Iterator<Item = Outcome> + use<'a> {
    let case = load.name();
    let at_mark = beside.iter().filter(move |outcome| (outcome.seconds - seconds).abs() < MARK_TOLERANCE_S);
    let path = Some(load.first + 1);
    at_mark.map(move |outcome| Outcome {
        case: case.clone(),
        paths: Some(1),
        path,
        trace: Vec::new(),
        ..outcome.clone()
    })
}

/// Returns the outcome of a cell, and that of the series beside it, whose rates are of one turn.
fn outcomes_of(
    plan: &Plan,
    cell: &Cell,
    cells: &[Cell],
    published: &[Outcome],
    (mark_s, seconds): (Option<f64>, f64),
) -> Vec<(Outcome, Source)> {
    let (load, series) = (&cell.load, cell.series);
    let (runs, runs_beside, answered) = (cell.runs(), cell.runs_beside(), cell.request_response_runs());
    let pair = load.beside.and(cell.typical_turn());
    let measured = match pair {
        Some(turn) => turn.run.bits_per_s(mark_s).zip(Some(&turn.run)),
        None => median(&rates(&runs, mark_s)).zip(typical(&runs, mark_s)),
    };
    let Some((bits_per_s, run)) = measured else { return Vec::new() };
    let rate = |of: &Cell| median(&rates(&of.runs(), mark_s));
    let like = || cells.iter().filter(|other| other.is_like(cell));
    // Without a series on several paths there is no path that is used alone.
    let has_several = like().any(|other| other.series.paths > 1);
    let alone = like()
        .filter(|_| has_several)
        .find(|other| other.series.name == series.alone && other.series.paths == 1);
    let tcp = like().filter(|other| other.series.is_baseline()).filter_map(rate).reduce(f64::max);
    let lines = plan.lines_of(load, series);
    let of_file = load.messages().is_some() && mark_s.is_none();
    let seconds = if of_file { run.measured.seconds } else { seconds };
    let outages = plan.goes_down(load, series).then(|| Outages::new(&runs, lines, load.first, seconds));
    let outcome = Outcome {
        case: load.name(),
        transport: series.name.to_owned(),
        seconds,
        bits_per_s,
        limit_bits_per_s: plan.limit_bits_per_s(load, series, (run.history.began_s, seconds)),
        message_bytes: Some(load.message_bytes),
        mode: Some(series.mode_name()),
        paths: Some(series.paths),
        path: (series.paths == 1).then_some(load.first + 1),
        paths_before: load.first,
        // If the network comes and goes, the first path is not the best.
        best_path_bits_per_s: alone.filter(|_| !load.latency).and_then(rate),
        latency_s: latency(&answered, |latency| latency.mean_s),
        gap_s_max: outages.and_then(|outages| outages.gap_s_max),
        returns: outages.and_then(|outages| outages.returns),
        interrupted: load.latency && cell.turns.iter().any(Turn::lacks_answers),
        ..Outcome::default()
    };
    let run_beside = pair.and_then(|turn| turn.beside.as_ref());
    let beside = run_beside.and_then(|run| run.bits_per_s(mark_s));
    let published = published.iter().find(|published| is_same(published, series));
    let published_bits_per_s = published.map(|published| published.bits_per_s);
    let Some(figures) = Figures::new(&runs, mark_s, tcp.or(beside), published_bits_per_s) else {
        return Vec::new();
    };
    let figures = figures.on_lines(lines).with_answers(&answered).with_replaced_runs(cell);
    let other = load.beside.zip(beside).zip(Figures::new(&runs_beside, mark_s, beside, None));
    let Some(((tcp, other), other_figures)) = other else {
        return vec![(outcome, Source::Live(Box::new(figures)))];
    };
    let other_outcome = Outcome {
        transport: tcp.name.to_owned(),
        bits_per_s: other,
        limit_bits_per_s: plan.limit_bits_per_s(load, tcp, (run.history.began_s, seconds)),
        mode: Some(tcp.mode_name()),
        ..outcome.clone()
    };
    let other_figures = other_figures.on_lines(lines).with_line_of(run_beside).with_replaced_runs(cell);
    let (share, ratio) = (cell.share_of_fair(), cell.ratio_to_beside());
    let other_share = share.map(Share::of_other);
    vec![
        (outcome, Source::Live(Box::new(figures.with_line_of(Some(run)).with_share(share, ratio)))),
        (other_outcome, Source::Live(Box::new(other_figures.with_share(other_share, Some(1.0))))),
    ]
}

/// Effects of outages in all turns. A turn that suffers more has a lower rate, so it is seldom the typical one.
#[derive(Clone, Copy)]
struct Outages {
    gap_s_max: Option<f64>,
    returns: Option<Returns>,
}

impl Outages {
    /// Summarizes the outages of runs that last `seconds` each. `lines` belong to the paths from `first` on.
    fn new(runs: &[&Run], lines: &[PathSpec], first: usize, seconds: f64) -> Self {
        Outages {
            gap_s_max: runs.iter().filter_map(|run| run.gap_s()).reduce(f64::max),
            returns: Returns::new(runs.iter().flat_map(|run| run.times_back_s(lines, first, seconds))),
        }
    }
}

/// Returns whether a published result is comparable. One without a mode is of any mode, and TCP has none.
fn is_same(published: &Outcome, series: Series) -> bool {
    published.paths.is_none_or(|paths| paths == series.paths)
        && published.mode.is_none_or(|mode| !series.is_sctp() || mode == series.mode_name())
        && published.transport.starts_with("tcp") == series.is_tcp()
        && series != MPTCP
}
