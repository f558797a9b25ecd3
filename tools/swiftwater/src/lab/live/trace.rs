//! A run as curves over the time.

use ::lab::experiment::path_numbers;
use serde::{Deserialize, Serialize};

use super::figures::{Cell, Run};
use super::measure::Point;
use super::plan::{MPTCP, Plan, Series};
use crate::lab::report::limits::{CURVES_MAX, POINTS_MAX, at_most};

/// Name of the curve of the round-trip time.
pub(in crate::lab) const ROUND_TRIP_NAME: &str = "smoothed, longest path";

/// Number of points of a curve, more than any published run has. A longer run has the means of groups of points, so that a report
/// can be made of a run of any duration.
const CURVE_POINTS_MAX: usize = 5_000;

/// Returns the names of the curves of the windows and of the round-trip time. The kernel reports those of the first subflow of
/// MPTCP.
fn statistics_names(series: Series) -> [&'static str; 2] {
    if series.name == MPTCP.name { ["first subflow"; 2] } else { ["all paths", ROUND_TRIP_NAME] }
}

/// Returns the name of the curves of a path.
fn path_name(path: usize) -> String {
    format!("path {}", path + 1)
}

/// Returns whether a curve is of a path, and not of a flow.
pub(in crate::lab) fn is_path(name: &str) -> bool {
    name.strip_prefix("path ").is_some_and(|number| number.parse::<usize>().is_ok())
}

/// Quantity of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::lab) enum Measure {
    /// Bits in a second.
    Rate,
    /// Bytes since the beginning. A report derives them from the rate.
    Transfer,
    /// Bytes of a congestion window.
    Window,
    /// Seconds of a round trip.
    RoundTrip,
    /// Bytes in a queue.
    Queue,
}

/// A trace of the run whose rate is nearest to the median of its cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::lab) struct Trace {
    pub(in crate::lab) experiment: String,
    pub(in crate::lab) case: String,
    pub(in crate::lab) transport: String,
    pub(in crate::lab) paths: usize,
    /// The numbers of the paths, as in the rows: `1+2`.
    #[serde(default)]
    pub(in crate::lab) used_paths: String,
    pub(in crate::lab) seconds: f64,
    #[serde(deserialize_with = "at_most::<_, _, CURVES_MAX>")]
    pub(in crate::lab) curves: Vec<TraceCurve>,
    /// Published results of the same load: program, seconds and bits per second.
    #[serde(deserialize_with = "at_most::<_, _, CURVES_MAX>")]
    pub(in crate::lab) published: Vec<(String, f64, f64)>,
}

/// A value over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::lab) struct TraceCurve {
    pub(in crate::lab) measure: Measure,
    pub(in crate::lab) name: String,
    /// Seconds since the beginning, and the value.
    #[serde(deserialize_with = "at_most::<_, _, POINTS_MAX>")]
    pub(in crate::lab) points: Vec<(f64, f64)>,
}

impl TraceCurve {
    /// Makes a curve of at most [`CURVE_POINTS_MAX`] points, each with the mean of a group of points up to it.
    fn new(measure: Measure, name: &str, points: impl Iterator<Item = (f64, f64)>) -> Self {
        let points: Vec<(f64, f64)> = points.collect();
        let mean = |group: &[(f64, f64)]| {
            let sum: f64 = group.iter().map(|(_, value)| value).sum();
            Some((group.last()?.0, sum / group.len() as f64))
        };
        let groups = points.chunks(points.len().div_ceil(CURVE_POINTS_MAX).max(1));
        TraceCurve { measure, name: name.to_owned(), points: groups.filter_map(mean).collect() }
    }
}

/// Returns the typical run of a cell, and of the series beside it.
pub(super) fn traces(experiment: &str, plan: &Plan, cell: &Cell) -> Vec<Trace> {
    let (turn, first) = (cell.typical_turn(), cell.load.first);
    let of_run = |transport: &str, run: Option<&Run>| {
        let run = run?;
        let seconds = run.measured.points.last().map_or(run.measured.seconds, |point| point.at_s);
        let mut marks: Vec<f64> = cell.load.marks_s.iter().map(|&mark| mark as f64).collect();
        marks.retain(|mark| *mark <= seconds + 1.0);
        if marks.is_empty() {
            marks.push(seconds);
        }
        let published = marks.iter().flat_map(|mark| cell.load.published(*mark));
        let published = published.filter(|published| published.paths.is_none_or(|p| p == cell.series.paths));
        let published =
            published.filter(|published| published.mode.is_none_or(|m| m == cell.series.mode_name()));
        Some(Trace {
            experiment: experiment.to_owned(),
            case: cell.load.name(),
            transport: transport.to_owned(),
            paths: cell.series.paths,
            used_paths: path_numbers(first + 1..=first + cell.series.paths),
            seconds,
            curves: curves(plan, cell, run),
            published: published.map(|one| (one.transport, one.seconds, one.bits_per_s)).collect(),
        })
    };
    let run_beside = turn.and_then(|turn| turn.beside.as_ref());
    let beside = cell.load.beside.and_then(|beside| of_run(beside.name, run_beside));
    let mut own = of_run(cell.series.name, turn.map(|turn| &turn.run));
    if let Some((own, rate)) = own.as_mut().zip(rate_beside(cell)) {
        own.curves.push(rate);
    }
    own.into_iter().chain(beside).collect()
}

/// Returns the rate of the series that shared the line with the typical run of a cell, so that one drawing shows both.
fn rate_beside(cell: &Cell) -> Option<TraceCurve> {
    let points = &cell.typical_turn()?.beside.as_ref()?.measured.points;
    let rates = points.iter().map(|point| (point.at_s, point.bits_per_s));
    Some(TraceCurve::new(Measure::Rate, cell.load.beside?.name, rates))
}

fn curves(plan: &Plan, cell: &Cell, run: &Run) -> Vec<TraceCurve> {
    let of_points = |measure, name: &str, value: fn(&Point) -> Option<f64>| {
        let points = run.measured.points.iter().filter_map(|point| Some((point.at_s, value(point)?)));
        TraceCurve::new(measure, name, points)
    };
    let [windows, round_trips] = statistics_names(cell.series);
    let mut curves = vec![
        of_points(Measure::Rate, "delivered", |point| Some(point.bits_per_s)),
        of_points(Measure::Window, windows, |point| point.cwnd_bytes),
        of_points(Measure::RoundTrip, round_trips, |point| point.srtt_s),
    ];
    let first = cell.load.first;
    for path in first..first + plan.lines_of(&cell.load, cell.series).len() {
        let name = path_name(path);
        let queued = run
            .history
            .states
            .iter()
            .filter_map(|state| Some((state.at_s, state.paths.get(path)?[0].queued_bytes as f64)));
        curves.push(TraceCurve::new(Measure::Queue, &name, queued));
        if cell.series.paths > 1 {
            curves.push(TraceCurve::new(Measure::Rate, &name, run.path_rates(path).into_iter()));
        }
    }
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

#[cfg(test)]
mod tests {
    use super::super::figures::Turn;
    use super::super::measure::Measured;
    use super::super::plan;
    use super::super::watch::LineHistory;
    use super::*;
    use crate::lab::args::LiveName;

    #[test]
    fn a_trace_has_the_curves_that_were_seen_and_what_was_published() {
        let plan = plan::plans(LiveName::Datatag).swap_remove(0);
        let mut cell = Cell::new(&plan.loads[0], plan.loads[0].series[0]);
        let point = |second: u32| Point {
            at_s: second.into(),
            bytes: 1,
            bits_per_s: 8.0,
            cwnd_bytes: Some(1000.0),
            srtt_s: None,
        };
        let points = (1..=20).map(point).collect();
        let run = Run::new(Measured { points, ..Measured::default() }, None, LineHistory::default());
        cell.turns.push(Turn { run, ..Turn::default() });
        let traces = traces("datatag", &plan, &cell);
        let kinds: Vec<Measure> = traces[0].curves.iter().map(|curve| curve.measure).collect();
        assert_eq!(kinds, [Measure::Rate, Measure::Window]);
        assert_eq!(traces[0].published.len(), 4, "two programs after 10 s and after 20 s");
        let text = serde_json::to_string(&traces[0]).expect("JSON");
        assert_eq!(serde_json::from_str::<Trace>(&text).expect("the same"), traces[0]);
    }

    #[test]
    fn windows_and_round_trips_of_mptcp_are_those_of_one_subflow() {
        let plan = plan::plans(LiveName::AsymmetricDelay).swap_remove(0);
        let names = |series: Series| {
            let mut cell = Cell::new(&plan.loads[0], series);
            let (cwnd_bytes, srtt_s) = (Some(1000.0), Some(0.01));
            let points = vec![Point { at_s: 1.0, bytes: 1, bits_per_s: 8.0, cwnd_bytes, srtt_s }];
            let run = Run::new(Measured { points, ..Measured::default() }, None, LineHistory::default());
            cell.turns.push(Turn { run, ..Turn::default() });
            let curves = traces("asymmetric-delay", &plan, &cell).swap_remove(0).curves;
            curves.into_iter().map(|curve| curve.name).collect::<Vec<_>>()
        };
        for series in plan.loads[0].series.iter().filter(|series| series.paths > 1) {
            let expected = if series.name == "mptcp" {
                ["delivered", "first subflow", "first subflow"]
            } else {
                ["delivered", "all paths", "smoothed, longest path"]
            };
            assert_eq!(names(*series)[..3], expected, "{}", series.name);
        }
    }

    #[test]
    fn a_run_of_days_has_a_curve_of_few_points_with_the_same_mean() {
        let curve = |seconds: u32| {
            let points = (1..=seconds).map(|second| (second.into(), f64::from(second % 10)));
            TraceCurve::new(Measure::Rate, "delivered", points).points
        };
        let hour = curve(3_600);
        assert_eq!((hour.len(), hour[8]), (3_600, (9.0, 9.0)), "an hour is drawn second by second");
        let day = curve(86_400);
        assert_eq!((day.len(), day[0].0, day[4_799].0), (4_800, 18.0, 86_400.0));
        let mean = day.iter().map(|(_, value)| value).sum::<f64>() / 4_800.0;
        assert!((mean - 4.5).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn a_run_beside_another_shows_the_rate_of_the_one_in_the_same_turn() {
        let plan = plan::plans(LiveName::Coexistence).swap_remove(0);
        let mut cell = Cell::new(&plan.loads[0], plan.loads[0].series[0]);
        let run = |bits_per_s| {
            let points = vec![Point { at_s: 1.0, bytes: 1, bits_per_s, cwnd_bytes: None, srtt_s: None }];
            Run::new(
                Measured { points, seconds: 1.0, bits_per_s, ..Measured::default() },
                None,
                LineHistory::default(),
            )
        };
        // The turn of the median share; the medians of the rates, 20 and 3, are of other turns.
        let turn = |(own, beside): (f64, Option<f64>)| Turn {
            run: run(own),
            beside: beside.map(run),
            ..Turn::default()
        };
        cell.turns = [(10.0, Some(4.0)), (30.0, Some(10.0)), (20.0, Some(3.0))].map(turn).into();
        let traces = traces("coexistence", &plan, &cell);
        let beside = plan.loads[0].beside.expect("two share the line").name;
        let rates: Vec<_> =
            traces[0].curves.iter().map(|curve| (&curve.name[..], curve.points[0].1)).collect();
        assert_eq!(rates, [("delivered", 30.0), (beside, 10.0)]);
        assert_eq!(traces[1].curves[0].points[0].1, 10.0, "its own trace is of the same turn");
    }
}
