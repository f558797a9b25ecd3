//! The drawing as SVG.

use std::fmt::Write;

use super::columns::{Columns, Mark, Series};
use super::{Drawing, Figure, WIDTH};
use crate::plot::{
    Axis, Chart, Color, Curve, CurveStyle, Form, Scale, bytes_text, escape, mbits_text, number_text,
    seconds_text, style,
};
use crate::units::{grouped, mbits};

const TITLE_HEIGHT: f64 = 50.0;
/// Heights of windows, marks, round-trip times and rates.
const PANEL_HEIGHTS: [f64; 4] = [300.0, 130.0, 200.0, 220.0];
const FIGURE_HEIGHT: f64 =
    TITLE_HEIGHT + PANEL_HEIGHTS[0] + PANEL_HEIGHTS[1] + PANEL_HEIGHTS[2] + PANEL_HEIGHTS[3] + 16.0;
/// Headroom above the largest value.
const HEADROOM: f64 = 1.08;

/// Returns the colour of a mark.
fn color_of(mark: Mark) -> Color {
    match mark {
        Mark::Lost => Color::Vermilion,
        Mark::SentAgain => Color::Ochre,
        Mark::Timeout => Color::Ink,
        Mark::Probe => Color::Cyan,
        Mark::Undone => Color::Green,
    }
}

/// Draws all figures, one below the other.
pub(super) fn render(drawing: &Drawing) -> String {
    let height = FIGURE_HEIGHT * drawing.figures.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\"><style>{}</style><rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>",
        escape(&drawing.title),
        style()
    );
    for (index, figure) in drawing.figures.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(out, "<g transform=\"translate(0,{})\">", FIGURE_HEIGHT * index as f64);
        draw_figure(figure, &drawing.title, &mut out);
        out.push_str("</g>");
    }
    out + "</svg>\n"
}

/// Returns the heading of a figure.
pub(super) fn heading(figure: &Figure, title: &str) -> String {
    let remote = figure.remote.as_ref().map_or_else(String::new, |remote| format!(" to {remote}"));
    format!("{title}: association {}, path {}{remote}", figure.group, figure.path)
}

/// Returns the sums of a figure as text.
pub(super) fn summary(columns: &Columns) -> String {
    let totals = &columns.totals;
    let seconds = columns.to_s - columns.from_s;
    let mut parts = vec![
        format!("{} packets sent", grouped(totals.packets_sent)),
        format!("{} packets received", grouped(totals.packets_received)),
    ];
    for (bytes, what) in [(totals.acked_bytes, "delivered"), (totals.received_bytes, "received")] {
        if bytes > 0 {
            let rate = mbits(bytes as f64 * 8.0 / seconds);
            parts.push(format!("{} bytes {what} ({rate} Mbit/s)", grouped(bytes)));
        }
    }
    for mark in Mark::ALL {
        let count = totals.marks[mark as usize];
        match mark {
            Mark::Lost => parts.push(format!("{} packets lost", grouped(count))),
            Mark::SentAgain => parts.push(format!("{} chunks sent again", grouped(count))),
            Mark::Timeout => parts.push(format!("{} timeouts", grouped(count))),
            Mark::Probe if count > 0 => parts.push(format!("{} probes", grouped(count))),
            Mark::Undone if count > 0 => parts.push(format!("{} reductions undone", grouped(count))),
            Mark::Probe | Mark::Undone => {}
        }
    }
    parts.join(", ")
}

fn draw_figure(figure: &Figure, title: &str, out: &mut String) {
    let columns = &figure.columns;
    let _ = write!(
        out,
        "<text class=\"title\" x=\"12\" y=\"22\">{}</text><text x=\"12\" y=\"40\">{}</text>",
        escape(&heading(figure, title)),
        escape(&summary(columns))
    );
    let panels = [windows(columns), marks(columns), times(columns), rates(columns)];
    let mut y = TITLE_HEIGHT;
    for (panel, height) in panels.iter().zip(PANEL_HEIGHTS) {
        *out += &panel.at(y);
        y += height;
    }
}

/// Returns a curve of a value over time, if it has any.
fn line(name: &str, color: Color, form: Form, series: &Series, columns: &Columns) -> Option<Curve> {
    let points = series.line(columns.from_s, columns.to_s);
    (!series.is_empty()).then(|| Curve::new(name, CurveStyle::line(color), form, points))
}

fn points(name: &str, color: Color, points: Vec<(f64, f64)>) -> Curve {
    Curve::new(name, CurveStyle::line(color), Form::Points, points)
}

fn windows(columns: &Columns) -> Chart {
    // A threshold that was never reached would flatten the rest of the figure.
    let most = columns.cwnd.most().max(columns.in_flight.most());
    let lines = [
        line("in flight", Color::Cyan, Form::Line, &columns.in_flight, columns),
        line("ssthresh", Color::Violet, Form::Limit, &columns.ssthresh, columns),
        line("cwnd", Color::Blue, Form::Line, &columns.cwnd, columns),
        Some(points("lost", color_of(Mark::Lost), columns.marked_windows(Mark::Lost).collect())),
        Some(points("timeout", color_of(Mark::Timeout), columns.marked_windows(Mark::Timeout).collect())),
    ];
    let axis = Axis::new(Scale::Linear, 0.0, most * HEADROOM, "bytes", bytes_text);
    panel(columns, 0, "Windows", axis, lines.into_iter().flatten().collect())
}

fn marks(columns: &Columns) -> Chart {
    let rows = Mark::ALL.len();
    let strokes = |mark: Mark| {
        let row = (rows - mark as usize) as f64;
        let points = columns.marked(mark).map(|time_s| (time_s, row)).collect();
        Curve::new("", CurveStyle::line(color_of(mark)), Form::Strokes, points)
    };
    let curves = Mark::ALL.map(strokes).into_iter().collect();
    panel(columns, 1, "Events", Axis::rows(&Mark::ALL.map(Mark::name)), curves)
}

fn times(columns: &Columns) -> Chart {
    let most = columns.latest_rtt.most().max(columns.smoothed_rtt.most());
    let latest = columns.latest_rtt.points(columns.from_s, columns.to_s);
    let lines = [
        Some(points("latest RTT", Color::Cyan, latest)),
        line("min RTT", Color::Green, Form::Line, &columns.min_rtt, columns),
        line("smoothed RTT", Color::Blue, Form::Line, &columns.smoothed_rtt, columns),
    ];
    let axis = Axis::new(Scale::Linear, 0.0, most * HEADROOM, "round trip, ms", number_text);
    panel(columns, 2, "Round-trip times", axis, lines.into_iter().flatten().collect())
}

fn rates(columns: &Columns) -> Chart {
    let rate = |name, color, points: Vec<(f64, f64)>| {
        (!points.is_empty()).then(|| Curve::new(name, CurveStyle::line(color), Form::Line, points))
    };
    let arrived = rate("arrived at the peer", Color::Blue, columns.acked_rate());
    let came = rate("came from the peer", Color::Green, columns.received_rate());
    let top = |curve: &Option<Curve>| {
        curve.iter().flat_map(|curve| &curve.points).map(|point| point.1).fold(0.0, f64::max)
    };
    // Pacing above twice the measured rate has no effect.
    let reached = top(&arrived).max(top(&came));
    let most = columns.pacing.most().min(2.0 * reached).max(reached);
    let pacing = line("pacing", Color::Ochre, Form::Limit, &columns.pacing, columns);
    let axis = Axis::new(Scale::Linear, 0.0, most * HEADROOM, "Mbit/s", mbits_text);
    panel(columns, 3, "Rates", axis, [pacing, came, arrived].into_iter().flatten().collect())
}

fn panel(columns: &Columns, index: usize, name: &str, y: Axis, curves: Vec<Curve>) -> Chart {
    let x = Axis::new(Scale::Linear, columns.from_s, columns.to_s, "", seconds_text);
    Chart { name: name.into(), width: WIDTH, height: PANEL_HEIGHTS[index], x, y, curves, rule: None }
}
