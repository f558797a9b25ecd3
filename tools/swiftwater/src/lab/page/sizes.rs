//! Rates by message size: a chart for each kind of case that differs in the size alone.

use std::fmt::Write;

use ::lab::experiment::Outcome;

use super::{BOTTOM, HEIGHT, LEFT, TOP, WIDTH, escape};
use crate::units::mbits;

/// So many sizes make a chart.
const SIZES_MIN: usize = 3;

/// A curve: its class, its words, and which outcomes are on it.
type Series = (&'static str, &'static str, fn(&Outcome) -> bool);

const SERIES: [Series; 4] = [
    ("ours", "two paths", |o| !o.published && o.path.is_none()),
    ("flight", "one path", |o| !o.published && o.path.is_some()),
    ("queue", "published, two paths", |o| o.published && o.paths == Some(2)),
    ("theirs", "published, one path", |o| {
        o.published && o.paths == Some(1) && !o.transport.starts_with("tcp")
    }),
];

/// The charts, if the cases differ in the size of messages.
pub(super) fn charts(outcomes: &[Outcome]) -> Option<String> {
    let mut sizes: Vec<usize> = outcomes.iter().filter_map(|outcome| outcome.message_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < SIZES_MIN {
        return None;
    }
    let mut kinds: Vec<String> = Vec::new();
    for outcome in outcomes {
        let kind = kind(outcome);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let charts = kinds.iter().map(|kind_of| {
        let of_kind: Vec<&Outcome> = outcomes.iter().filter(|outcome| kind(outcome) == *kind_of).collect();
        chart(kind_of, &of_kind, &sizes)
    });
    Some(charts.collect())
}

/// The name of a case without the size.
fn kind(outcome: &Outcome) -> String {
    let size = outcome.message_bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
    outcome.case.replace(&size, "")
}

fn chart(kind: &str, outcomes: &[&Outcome], sizes: &[usize]) -> String {
    let rate_max = outcomes.iter().map(|o| o.bits_per_s.max(o.limit_bits_per_s)).fold(1.0, f64::max);
    let step = (WIDTH - LEFT * 2.0) / (sizes.len() - 1).max(1) as f64;
    let curve = |class: &str, belongs: fn(&Outcome) -> bool, rate: fn(&Outcome) -> f64| {
        let mut points = String::new();
        for (place, size) in sizes.iter().enumerate() {
            let outcome = outcomes.iter().find(|o| o.message_bytes == Some(*size) && belongs(o));
            if let Some(outcome) = outcome {
                let y = BOTTOM - (BOTTOM - TOP) * rate(outcome) / rate_max;
                let _ = write!(points, "{:.1},{y:.1} ", LEFT + step * place as f64);
            }
        }
        format!("<polyline class={class} points=\"{}\" />", points.trim_end())
    };
    let mut drawn = String::new();
    for (_, _, belongs) in &SERIES[..2] {
        drawn += &curve("limit", *belongs, |outcome| outcome.limit_bits_per_s);
    }
    for (class, _, belongs) in SERIES.iter().rev() {
        drawn += &curve(class, *belongs, |outcome| outcome.bits_per_s);
    }
    for (place, size) in sizes.iter().enumerate().step_by(2) {
        let anchor = if place == 0 { "start" } else { "middle" };
        let _ = write!(
            drawn,
            "<text x={:.1} y={HEIGHT} text-anchor={anchor}>{size}</text>",
            LEFT + step * place as f64
        );
    }
    let names: Vec<String> =
        SERIES.iter().map(|(class, name, _)| format!("<span class={class}>{name}</span>")).collect();
    format!(
        "<figure><h2>{}</h2><figcaption>Delivered by message size: {}, and the limits</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\"><line class=axis x1={LEFT} x2={WIDTH} y1={BOTTOM} y2={BOTTOM} />\
         <text x={LEFT} y=12>{} Mbit/s</text>{drawn}</svg></figure>\n",
        escape(kind),
        names.join(", "),
        mbits(rate_max),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_that_differ_in_size_alone_are_one_chart() {
        let outcome = |bytes: usize, mode: &str, path| Outcome {
            case: format!("{mode}, {bytes} bytes, short"),
            message_bytes: Some(bytes),
            paths: Some(2),
            path,
            bits_per_s: 5e6,
            limit_bits_per_s: 1e7,
            ..Outcome::default()
        };
        let of_mode = |mode| [8, 64, 512].map(|bytes| outcome(bytes, mode, None));
        let drawn = charts(&[of_mode("message"), of_mode("stream")].concat()).expect("three sizes");
        assert_eq!(drawn.matches("<figure>").count(), 2, "{drawn}");
        assert!(drawn.contains("<h2>message, short</h2>") && drawn.contains("10.0 Mbit/s"), "{drawn}");
        assert!(charts(&of_mode("message")[..2]).is_none());
    }
}
