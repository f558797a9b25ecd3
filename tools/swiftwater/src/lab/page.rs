//! The page: the rate of each case relative to its line, and its course over time, in one self-contained file.

mod sizes;

use ::lab::experiment::{Experiment, Outcome, PathSample, Sample, table};

use crate::plot::{
    Axis, Chart, Color, Curve, CurveStyle, Form, Scale, bytes_text, escape, fill, mbits_text, seconds_text,
    style,
};

const TEMPLATE: &str = include_str!("page.html");
/// Size of a drawing.
const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 230.0;
/// Largest rate in the drawing, as a multiple of the lines' capacity.
const PEAK: f64 = 1.1;
/// Headroom above the largest value.
const HEADROOM: f64 = 1.06;
const DELIVERED: Color = Color::Blue;
/// Colours of paths, in turn.
const PATHS: [Color; 4] = [Color::Vermilion, Color::Green, Color::Violet, Color::Ochre];

/// Renders the whole page.
pub(super) fn render(experiment: &Experiment, outcomes: &[Outcome]) -> String {
    let (charts, bars) = match sizes::charts(outcomes) {
        Some(charts) => (charts, String::new()),
        None => (String::new(), outcomes.iter().map(bar).collect()),
    };
    // If one run has several outcomes, the last has the trace of all.
    let figures = outcomes.iter().enumerate().filter(|(index, outcome)| {
        let later = &outcomes[index + 1..];
        !outcome.trace.is_empty() && !later.iter().any(|other| goes_on(outcome, other))
    });
    let figures: String =
        std::iter::once(charts).chain(figures.map(|(_, outcome)| figure(outcome))).collect();
    let parts = [
        ("style", style()),
        ("name", escape(experiment.name)),
        ("about", escape(experiment.about)),
        ("bars", bars),
        ("figures", figures),
        ("table", escape(&table(outcomes))),
    ];
    fill(TEMPLATE, &parts)
}

/// Returns whether another outcome is of the same run, later.
fn goes_on(outcome: &Outcome, other: &Outcome) -> bool {
    !other.trace.is_empty() && (&other.case, other.algorithm) == (&outcome.case, outcome.algorithm)
}

fn bar(outcome: &Outcome) -> String {
    let class = if outcome.published { Color::Grey.class() } else { DELIVERED.class() };
    let who = match outcome.algorithm {
        Some(algorithm) => format!("{} {algorithm}", outcome.transport),
        None => outcome.transport.clone(),
    };
    let what =
        outcome.paths_text().map_or_else(|| format!("{:.0} s", outcome.seconds), |p| format!("path {p}"));
    let percent = outcome.share() * 100.0;
    format!(
        "<span>{}</span><span>{}, {what}</span><div class={class}><i style=\"width:{:.2}%\"></i></div><span>{percent:.1} %</span>\n",
        escape(&outcome.case),
        escape(&who),
        percent.clamp(0.0, 100.0),
    )
}

/// Draws the rate over time, and below it the data in flight.
fn figure(outcome: &Outcome) -> String {
    let trace = &outcome.trace;
    let paths = trace.first().map_or(0, |sample| sample.paths.len());
    let end_s = trace.last().map_or(1.0, |sample| sample.at_s);
    let (rates, on_the_way) =
        if paths > 1 { figure_of_paths(outcome, paths, end_s) } else { figure_of_line(outcome, end_s) };
    let named = outcome.algorithm.map(|algorithm| format!(", {algorithm}")).unwrap_or_default();
    format!("<figure><h2>{}{named}</h2>{rates}{on_the_way}</figure>\n", escape(&outcome.case))
}

/// Draws the rate delivered over one line, and its window and queue.
fn figure_of_line(outcome: &Outcome, end_s: f64) -> (String, String) {
    let trace = &outcome.trace;
    let of_path = |name, color, bytes: fn(&PathSample) -> usize| {
        curve(name, color, trace, |sample| sample.paths.first().map_or(0, bytes) as f64)
    };
    let rates = vec![curve("delivered", DELIVERED, trace, |sample| sample.bits_per_s)];
    let on_the_way = vec![
        of_path("bottleneck queue", Color::Vermilion, |path| path.queue_bytes),
        of_path("in flight", Color::Green, |path| path.in_flight_bytes),
        of_path("congestion window", DELIVERED, |path| path.cwnd_bytes),
    ];
    (
        drawing("Delivered", rates_axis(outcome, f64::INFINITY), with_limit(outcome, rates, end_s), end_s),
        drawing("On the way", bytes_axis(&on_the_way), on_the_way, end_s),
    )
}

/// Draws the rate delivered over all lines together and over each, and the windows of the paths.
fn figure_of_paths(outcome: &Outcome, paths: usize, end_s: f64) -> (String, String) {
    let trace = &outcome.trace;
    // Data that waited for a lost packet is delivered at once when the packet comes: a meaningless peak, which would flatten
    // everything else.
    let most = PEAK * trace.iter().map(on_the_lines).fold(outcome.limit_bits_per_s, f64::max);
    let mut rates = vec![curve("delivered", DELIVERED, trace, |sample| sample.bits_per_s)];
    let mut windows = Vec::new();
    for path in 0..paths {
        let (name, color) = (format!("path {}", path + 1), PATHS[path % PATHS.len()]);
        rates.push(curve(&name, color, trace, |sample| sample.paths[path].bits_per_s));
        windows.push(curve(&name, color, trace, |sample| sample.paths[path].cwnd_bytes as f64));
    }
    (
        drawing(
            "Delivered, and what left each line",
            rates_axis(outcome, most),
            with_limit(outcome, rates, end_s),
            end_s,
        ),
        drawing("Congestion windows", bytes_axis(&windows), windows, end_s),
    )
}

/// Returns the rate at which packets left all lines together.
fn on_the_lines(sample: &Sample) -> f64 {
    sample.paths.iter().map(|path| path.bits_per_s).sum()
}

fn with_limit(outcome: &Outcome, mut curves: Vec<Curve>, end_s: f64) -> Vec<Curve> {
    let limit = outcome.limit_bits_per_s;
    // Where lines go down, the limit is that of the whole run: less than all lines carry together, and more than the rest.
    let name = if outcome.missing_messages.is_some() { "mean limit" } else { "limit" };
    curves.push(Curve::new(
        name,
        CurveStyle::line(Color::Grey),
        Form::Limit,
        vec![(0.0, limit), (end_s, limit)],
    ));
    curves
}

/// Returns an axis for rates of at most `most`.
fn rates_axis(outcome: &Outcome, most: f64) -> Axis {
    let reached =
        outcome.trace.iter().map(|sample| sample.bits_per_s).fold(outcome.limit_bits_per_s, f64::max);
    Axis::new(Scale::Linear, 0.0, reached.min(most) * HEADROOM, "Mbit/s", mbits_text)
}

fn bytes_axis(curves: &[Curve]) -> Axis {
    let most = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).fold(0.0, f64::max);
    Axis::new(Scale::Linear, 0.0, most * HEADROOM, "bytes", bytes_text)
}

fn drawing(title: &str, y: Axis, curves: Vec<Curve>, end_s: f64) -> String {
    let x = Axis::new(Scale::Linear, 0.0, end_s, "", seconds_text);
    let chart = Chart { name: title.to_owned(), width: WIDTH, height: HEIGHT, x, y, curves, rule: None };
    format!("<figcaption>{title}</figcaption>{}", chart.svg())
}

fn curve(name: &str, color: Color, trace: &[Sample], value: impl Fn(&Sample) -> f64) -> Curve {
    let points = trace.iter().map(|sample| (sample.at_s, value(sample))).collect();
    Curve::new(name, CurveStyle::line(color), Form::Line, points)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(case: &str, published: bool) -> Outcome {
        Outcome {
            case: case.into(),
            transport: "sctp".into(),
            seconds: 2.0,
            bits_per_s: 5e6,
            limit_bits_per_s: 1e7,
            published,
            trace: if published {
                Vec::new()
            } else {
                vec![Sample { at_s: 1.0, bits_per_s: 5e6, ..Sample::default() }; 2]
            },
            ..Outcome::default()
        }
    }

    #[test]
    fn each_path_is_drawn_beside_their_sum() {
        let path = |bits_per_s| PathSample { bits_per_s, cwnd_bytes: 9000, ..PathSample::default() };
        let sample = Sample { at_s: 1.0, bits_per_s: 5e6, paths: vec![path(3e6), path(2e6)] };
        let drawn = figure(&Outcome { trace: vec![sample; 2], ..outcome("two", false) });
        // Each name appears once in the plot and once in the legend.
        let curves = drawn.matches("class=\"curve\"").count();
        assert_eq!(curves, 2 * 5, "the sum, two rates and two windows: {drawn}");
        assert!(
            drawn.contains("path 1") && drawn.contains("path 2") && drawn.contains(">8 KB</text>"),
            "{drawn}"
        );
    }

    #[test]
    fn a_limit_of_lines_that_go_down_is_named_a_mean() {
        let steady = figure(&outcome("steady", false));
        assert!(steady.contains(">limit<") && !steady.contains("mean limit"), "{steady}");
        let flapping = figure(&Outcome { missing_messages: Some(0), ..outcome("flapping", false) });
        assert!(flapping.contains(">mean limit<"), "{flapping}");
    }

    #[test]
    fn the_page_needs_nothing_else_and_draws_a_run_once() {
        let experiment = &::lab::experiment::ALL[0];
        let page =
            render(experiment, &[outcome("a < b", false), outcome("a < b", true), outcome("a < b", false)]);
        for outside in ["src=", "href=", "@import", "url(", "<script", "{{"] {
            assert!(!page.contains(outside), "the page has {outside}");
        }
        assert!(page.contains("a &lt; b") && !page.contains("a < b"));
        assert_eq!(page.matches("<figure>").count(), 1);
        assert_eq!(page.matches("50.0 %</span>").count(), 3);
    }
}
