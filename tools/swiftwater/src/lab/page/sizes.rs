//! Rates by message size: a chart for each group of cases that differ in the size alone.

use ::lab::experiment::Outcome;

use super::{HEADROOM, HEIGHT, WIDTH};
use crate::plot::{
    Axis, Chart, Color, Curve, CurveStyle, Form, Marker, Scale, escape, mbits_text, number_text,
};

/// Minimum number of sizes for a chart.
const SIZES_MIN: usize = 3;

/// A curve: its name, its style, and the filter for its outcomes.
type Series = (&'static str, CurveStyle, fn(&Outcome) -> bool);

const SERIES: [Series; 4] = [
    ("two paths", CurveStyle::new(Color::Blue, Marker::Circle), |o| !o.published && o.path.is_none()),
    ("one path", CurveStyle::new(Color::Green, Marker::Square), |o| !o.published && o.path.is_some()),
    ("published, two", CurveStyle::new(Color::Vermilion, Marker::Ring), |o| {
        o.published && o.paths == Some(2)
    }),
    ("published, one", CurveStyle::new(Color::Grey, Marker::Frame), |o| {
        o.published && o.paths == Some(1) && !o.transport.starts_with("tcp")
    }),
];
/// Number of curves in SERIES with a limit of their own.
const OURS: usize = 2;

/// Draws the charts, if the cases differ in the size of messages.
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

/// Returns the name of a case without the size.
fn kind(outcome: &Outcome) -> String {
    let size = outcome.message_bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
    outcome.case.replace(&size, "")
}

fn chart(kind: &str, outcomes: &[&Outcome], sizes: &[usize]) -> String {
    let most = outcomes.iter().map(|o| o.bits_per_s.max(o.limit_bits_per_s)).fold(1.0, f64::max);
    let points = |belongs: fn(&Outcome) -> bool, rate: fn(&Outcome) -> f64| {
        let of_size = |&size: &usize| {
            let outcome = outcomes.iter().find(|o| o.message_bytes == Some(size) && belongs(o))?;
            Some((size as f64, rate(outcome)))
        };
        sizes.iter().filter_map(of_size).collect()
    };
    let measured = SERIES.iter().map(|(name, style, belongs)| {
        Curve::new(name, *style, Form::Marked, points(*belongs, |outcome| outcome.bits_per_s))
    });
    let limits = SERIES[..OURS].iter().map(|(name, style, belongs)| {
        let points = points(*belongs, |outcome| outcome.limit_bits_per_s);
        Curve::new(&format!("limit, {name}"), *style, Form::Limit, points)
    });
    let curves: Vec<Curve> = limits.chain(measured).filter(|curve| !curve.points.is_empty()).collect();
    let (first, last) = (sizes[0] as f64, sizes[sizes.len() - 1] as f64);
    let chart = Chart {
        name: format!("Delivered by message size: {kind}"),
        width: WIDTH,
        height: HEIGHT,
        x: Axis::new(Scale::Logarithmic(2.0), first, last, "bytes of a message", number_text),
        y: Axis::new(Scale::Linear, 0.0, most * HEADROOM, "Mbit/s", mbits_text),
        curves,
        rule: None,
    };
    format!(
        "<figure><h2>{}</h2><figcaption>Delivered by message size</figcaption>{}</figure>\n",
        escape(kind),
        chart.svg()
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
        assert!(
            drawn.contains("<h2>message, short</h2>")
                && drawn.contains(">Mbit/s</text>")
                && drawn.contains(">10</text>"),
            "{drawn}"
        );
        assert!(charts(&of_mode("message")[..2]).is_none());
    }
}
