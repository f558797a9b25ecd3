//! The page: how much of the line each case filled, and how each went, in one file that needs nothing else.

mod sizes;

use std::fmt::Write;

use ::lab::experiment::{Experiment, Outcome, PathSample, Sample, table};

use crate::units::{grouped, mbits};

const TEMPLATE: &str = include_str!("page.html");
/// Size of a drawing.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 150.0;
/// Where its curves are.
const LEFT: f64 = 8.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = HEIGHT - 20.0;
/// What is delivered may be drawn so much above what the lines carry.
const PEAK: f64 = 1.1;
/// Colours of paths, in turn.
const PATH_CLASSES: [&str; 4] = ["queue", "flight", "third", "fourth"];

/// The whole page.
pub(super) fn render(experiment: &Experiment, outcomes: &[Outcome]) -> String {
    let (charts, bars) = match sizes::charts(outcomes) {
        Some(charts) => (charts, String::new()),
        None => (String::new(), outcomes.iter().map(bar).collect()),
    };
    // Of several outcomes of one run, the last has the trace of all.
    let figures = outcomes.iter().enumerate().filter(|(index, outcome)| {
        let later = &outcomes[index + 1..];
        !outcome.trace.is_empty() && !later.iter().any(|other| goes_on(outcome, other))
    });
    let figures: String =
        std::iter::once(charts).chain(figures.map(|(_, outcome)| figure(outcome))).collect();
    let parts = [
        ("{{name}}", escape(experiment.name)),
        ("{{about}}", escape(experiment.about)),
        ("{{bars}}", bars),
        ("{{figures}}", figures),
        ("{{table}}", escape(&table(outcomes))),
    ];
    parts.iter().fold(TEMPLATE.to_owned(), |page, (mark, text)| page.replace(mark, text))
}

/// Whether another outcome is of the same run, later.
fn goes_on(outcome: &Outcome, other: &Outcome) -> bool {
    !other.trace.is_empty() && (&other.case, other.algorithm) == (&outcome.case, outcome.algorithm)
}

fn bar(outcome: &Outcome) -> String {
    let class = if outcome.published { "theirs" } else { "ours" };
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

/// The rate over the time, and below it what is on the way.
fn figure(outcome: &Outcome) -> String {
    let trace = &outcome.trace;
    let paths = trace.first().map_or(0, |sample| sample.paths.len());
    let end_s = trace.last().map_or(1.0, |sample| sample.at_s);
    let (rates, on_the_way) =
        if paths > 1 { figure_of_paths(outcome, paths, end_s) } else { figure_of_line(outcome, end_s) };
    let named = outcome.algorithm.map(|algorithm| format!(", {algorithm}")).unwrap_or_default();
    format!("<figure><h2>{}{named}</h2>{rates}{on_the_way}</figure>\n", escape(&outcome.case))
}

/// What came through one line, and its window and queue.
fn figure_of_line(outcome: &Outcome, end_s: f64) -> (String, String) {
    let trace = &outcome.trace;
    let rate_max = trace.iter().map(|s| s.bits_per_s).fold(outcome.limit_bits_per_s, f64::max);
    let bytes = |path: &PathSample| path.cwnd_bytes.max(path.queue_bytes).max(path.in_flight_bytes);
    let bytes_max = trace.iter().flat_map(|s| &s.paths).map(bytes).max().unwrap_or(0).max(1) as f64;
    let of_path = |class, bytes: fn(&PathSample) -> usize| {
        curve(class, trace, end_s, |sample| sample.paths.first().map_or(0, bytes) as f64 / bytes_max)
    };
    let rates = format!(
        "{}{}",
        limit(outcome, rate_max),
        curve("ours", trace, end_s, |sample| sample.bits_per_s / rate_max),
    );
    let on_the_way = format!(
        "<text x={LEFT} y=12>{} bytes</text>{}{}{}",
        grouped(bytes_max as u64),
        of_path("queue", |path| path.queue_bytes),
        of_path("flight", |path| path.in_flight_bytes),
        of_path("ours", |path| path.cwnd_bytes),
    );
    (
        format!(
            "<figcaption><span class=ours>Delivered</span>, and the limit</figcaption>{}",
            drawing(&rates, end_s)
        ),
        format!(
            "<figcaption><span class=ours>Congestion window</span>, <span class=flight>in flight</span>, \
             <span class=queue>queue at the bottleneck</span></figcaption>{}",
            drawing(&on_the_way, end_s)
        ),
    )
}

/// What came through all lines together and what each carried, and the windows of the paths.
fn figure_of_paths(outcome: &Outcome, paths: usize, end_s: f64) -> (String, String) {
    let trace = &outcome.trace;
    // What waited for a lost packet is delivered at once when that comes: a peak which says little and would press
    // everything else to the ground.
    let rate_max = PEAK * trace.iter().map(on_the_lines).fold(outcome.limit_bits_per_s, f64::max);
    let bytes_max =
        trace.iter().flat_map(|s| &s.paths).map(|path| path.cwnd_bytes).max().unwrap_or(0).max(1) as f64;
    let class = |path: usize| PATH_CLASSES[path % PATH_CLASSES.len()];
    let names: Vec<String> =
        (0..paths).map(|path| format!("<span class={}>path {}</span>", class(path), path + 1)).collect();
    let names = names.join(", ");
    let mut rates = limit(outcome, rate_max);
    rates += &curve("ours", trace, end_s, |sample| (sample.bits_per_s / rate_max).min(1.0));
    let mut windows = format!("<text x={LEFT} y=12>{} bytes</text>", grouped(bytes_max as u64));
    for path in 0..paths {
        rates += &curve(class(path), trace, end_s, |sample| sample.paths[path].bits_per_s / rate_max);
        windows +=
            &curve(class(path), trace, end_s, |sample| sample.paths[path].cwnd_bytes as f64 / bytes_max);
    }
    (
        format!(
            "<figcaption><span class=ours>Delivered</span>, what left the line of {names}, and the limit\
             </figcaption>{}",
            drawing(&rates, end_s)
        ),
        format!("<figcaption>Congestion window of {names}</figcaption>{}", drawing(&windows, end_s)),
    )
}

/// What left all lines together.
fn on_the_lines(sample: &Sample) -> f64 {
    sample.paths.iter().map(|path| path.bits_per_s).sum()
}

/// The limit as a line, and what the height of the drawing stands for.
fn limit(outcome: &Outcome, rate_max: f64) -> String {
    let y = BOTTOM - (BOTTOM - TOP) * outcome.limit_bits_per_s / rate_max;
    format!(
        "<line class=limit x1={LEFT} x2={WIDTH} y1={y:.1} y2={y:.1} /><text x={LEFT} y=12>{} Mbit/s</text>",
        mbits(rate_max),
    )
}

fn drawing(curves: &str, end_s: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\"><line class=axis x1={LEFT} x2={WIDTH} y1={BOTTOM} y2={BOTTOM} />{curves}\
         <text x={LEFT} y={HEIGHT}>0</text><text x={WIDTH} y={HEIGHT} text-anchor=end>{end_s:.0} s</text></svg>"
    )
}

fn curve(class: &str, trace: &[Sample], end_s: f64, height: impl Fn(&Sample) -> f64) -> String {
    let mut points = String::new();
    for sample in trace {
        let x = LEFT + (WIDTH - LEFT) * sample.at_s / end_s;
        let y = BOTTOM - (BOTTOM - TOP) * height(sample);
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    format!("<polyline class={class} points=\"{}\" />", points.trim_end())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
        assert_eq!(drawn.matches("<polyline").count(), 5, "the sum, two rates and two windows: {drawn}");
        assert!(drawn.contains("path 1") && drawn.contains("path 2") && drawn.contains("9,000 bytes"));
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
