//! The four figures of a view: messages, time, bits, and gain.

use std::fmt::Write;

use crate::bench::curve::{Curve, FIT_BYTES_MAX, Point};
use crate::bench::series::Series;
use crate::plot::{self, Axis, Chart, Form, Scale, count_text, escape, number_text};
use crate::units::{grouped, mbits};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 340.0;
/// The series that has no messages, only bytes.
const ONLY_COUNTED: &str = "udp-limit";

/// One of the figures.
struct Figure {
    class: &'static str,
    title: &'static str,
    caption: &'static str,
    value: fn(&Point) -> Option<f64>,
    /// Whether the figure shows bytes or time, which `udp-limit` also has, rather than messages.
    shows_limit: bool,
}

const FIGURES: [Figure; 4] = [
    Figure {
        class: "performance",
        title: "Performance",
        caption: "Messages delivered in a second, both axes logarithmic.",
        value: |point| Some(point.messages_per_s),
        shows_limit: false,
    },
    Figure {
        class: "delay",
        title: "Delay",
        caption: "Time for each message up to 16,384 bytes. Broken: the line of least relative error, a cost for each message and one for each byte.",
        value: |point| (point.message_bytes <= FIT_BYTES_MAX).then_some(point.delay_us),
        shows_limit: true,
    },
    Figure {
        class: "throughput",
        title: "Throughput",
        caption: "Bits of messages delivered in a second, both axes logarithmic.",
        value: |point| Some(point.bits_per_s),
        shows_limit: true,
    },
    Figure {
        class: "improvement",
        title: "Improvement",
        caption: "Rate relative to one plain TCP write for each message, same size, same run; above 1 is faster than TCP. A published series is relative to its own machine's sockets.",
        value: |point| point.ratio_to_tcp,
        shows_limit: false,
    },
];

/// Renders all four, with their numbers in a paper from `first_number` on.
pub(crate) fn all(curves: &[Curve], first_number: Option<usize>) -> String {
    let title = |place: usize, figure: &Figure| match first_number {
        Some(first) => format!("Figure {}: {}", first + place, figure.title),
        None => figure.title.to_owned(),
    };
    let draw = |(place, figure)| draw(figure, &title(place, figure), curves);
    let figures: String = FIGURES.iter().enumerate().map(draw).collect();
    format!("<div class=\"figures\">{figures}</div>")
}

fn draw(figure: &Figure, title: &str, curves: &[Curve]) -> String {
    let drawn = curves.iter().filter(|curve| figure.shows_limit || curve.label != ONLY_COUNTED);
    let mut lines: Vec<plot::Curve> = drawn.clone().map(|curve| line(figure, curve)).collect();
    lines.retain(|line| !line.points.is_empty());
    // The legend lists the curves in the order of their ends.
    let end = |line: &plot::Curve| line.points.last().map_or(0.0, |point| point.1);
    lines.sort_by(|a, b| end(b).total_cmp(&end(a)));
    let (x, y) = axes(figure, &lines);
    if figure.class == "delay" {
        lines.extend(drawn.filter_map(fit));
    }
    let rule = (figure.class == "improvement").then_some(1.0);
    let chart = Chart { name: title.into(), width: WIDTH, height: HEIGHT, x, y, curves: lines, rule };
    format!(
        "<figure class=\"{}\"><figcaption><h3>{}</h3><p>{}</p></figcaption>{}</figure>",
        figure.class,
        title,
        figure.caption,
        chart.svg()
    )
}

fn line(figure: &Figure, curve: &Curve) -> plot::Curve {
    let shown = curve.points.iter().filter_map(|point| Some((point, (figure.value)(point)?)));
    let shown: Vec<(&Point, f64)> = shown.filter(|(_, value)| *value > 0.0).collect();
    let points = shown.iter().map(|(point, value)| (point.message_bytes as f64, *value)).collect();
    let mut line = plot::Curve::new(&curve.label, curve.style, Form::Marked, points);
    line.words = shown.iter().map(|(point, _)| words(curve, point)).collect();
    line
}

/// Returns the hover text of a point.
fn words(curve: &Curve, point: &Point) -> String {
    let ratio =
        point.ratio_to_tcp.map_or_else(String::new, |ratio| format!(", {} times tcp", rounded(ratio)));
    format!(
        "{}, {} bytes: {} messages/s, {} Mbit/s, {} µs a message{ratio}",
        curve.label,
        grouped(point.message_bytes as u64),
        grouped(point.messages_per_s.round() as u64),
        mbits(point.bits_per_s),
        rounded(point.delay_us),
    )
}

/// Returns the fitted line of a curve.
fn fit(curve: &Curve) -> Option<plot::Curve> {
    let at = |bytes: f64| Some((bytes, curve.us_per_message? + curve.ns_per_byte? * bytes / 1e3));
    let last = curve.points.iter().map(|point| point.message_bytes.min(FIT_BYTES_MAX)).max()?;
    Some(plot::Curve::new("", curve.style, Form::Limit, vec![at(0.0)?, at(last as f64)?]))
}

fn axes(figure: &Figure, lines: &[plot::Curve]) -> (Axis, Axis) {
    let points = || lines.iter().flat_map(|line| &line.points);
    let least = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::INFINITY, f64::min);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let (low, high, longest) = (least(|p| p.1), most(|p| p.1), most(|p| p.0));
    let size = Axis::new(
        Scale::Logarithmic(4.0),
        least(|p| p.0).min(longest / 2.0).max(1.0),
        longest.max(2.0),
        "bytes of a message",
        bytes_text,
    );
    match figure.class {
        "delay" => (
            Axis::new(Scale::Linear, 0.0, longest, "bytes of a message", |bytes| grouped(bytes as u64)),
            Axis::new(Scale::Linear, 0.0, high * 1.04, "µs", number_text),
        ),
        "improvement" => {
            let low = low.min(0.5);
            (size, Axis::new(Scale::Logarithmic(2.0), low, high.max(2.0) * 1.1, "times tcp", times_text))
        }
        "throughput" => {
            (size, Axis::new(Scale::Logarithmic(10.0), low / 1.2, high * 1.3, "bit/s", count_text))
        }
        _ => (size, Axis::new(Scale::Logarithmic(10.0), low / 1.2, high * 1.3, "messages/s", count_text)),
    }
}

/// Formats powers of two as programs write them.
fn bytes_text(bytes: f64) -> String {
    if bytes >= 1024.0 { format!("{}K", number_text(bytes / 1024.0)) } else { number_text(bytes) }
}

fn times_text(ratio: f64) -> String {
    format!("{}×", number_text(ratio))
}

/// Rounds a number to three significant digits.
fn rounded(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 { grouped(value.round() as u64) } else { text }
}

/// Renders the fitted costs of each curve.
pub(crate) fn costs(curves: &[Curve]) -> String {
    let mut rows = String::new();
    for curve in curves {
        let (Some(us_per_message), Some(ns_per_byte)) = (curve.us_per_message, curve.ns_per_byte) else {
            continue;
        };
        let note = Series::parse(&curve.label).ok().and_then(Series::note).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = write!(
            rows,
            "<tr><td class=\"name {}\">{}</td><td>{}</td><td>{}</td><td class=note>{note}</td></tr>",
            curve.style.color.class(),
            escape(&curve.label),
            cost(us_per_message * 1e3),
            cost(ns_per_byte)
        );
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<div class=\"scroll\"><table class=\"costs\"><thead><tr><th class=name>fitted costs</th><th>ns for each message</th>\
         <th>ns for each byte</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// Formats a cost in nanoseconds. The fit may put an immeasurably small cost below zero.
fn cost(ns: f64) -> String {
    if ns < 0.0005 { "none".to_owned() } else { rounded(ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_zero_no_sign() {
        let texts = [0.123_456, 12.345, 6827.4, 1_234_567.0].map(rounded);
        assert_eq!(texts, ["0.123", "12.3", "6,827", "1,234,567"]);
        assert_eq!((cost(-0.0), cost(-3.0), cost(0.25)), ("none".into(), "none".into(), "0.250".into()));
    }
}
