//! The drawing as SVG.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::columns::{Columns, Mark, Series};
use super::{Drawing, Figure};
use crate::units::{grouped, mbits};

const WIDTH: u32 = 1200;
const TITLE_HEIGHT: u32 = 44;
/// Heights of windows, marks, round-trip times and rates.
const PANEL_HEIGHTS: [u32; 4] = [280, 96, 170, 190];
const FIGURE_HEIGHT: u32 = TITLE_HEIGHT + 280 + 96 + 170 + 190 + 16;
const AXIS_WIDTH: u32 = 84;
/// Right of the panels, for the names of their lines.
const LEGEND_WIDTH: u32 = 150;
const LEGEND_LINE: i32 = 18;
const LEFT_MARGIN: u32 = 10;
const RIGHT_MARGIN: u32 = 24;

// Okabe and Ito's palette: told apart by readers who confuse red and green.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const SKY: RGBColor = RGBColor(86, 180, 233);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const PURPLE: RGBColor = RGBColor(204, 121, 167);
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(225, 225, 225);

type Panel<'a, 'b> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// The colour of a mark.
fn color_of(mark: Mark) -> RGBColor {
    match mark {
        Mark::Lost => VERMILION,
        Mark::SentAgain => ORANGE,
        Mark::Timeout => INK,
        Mark::Probe => SKY,
        Mark::Undone => GREEN,
    }
}

/// Draws all figures, one below the other.
pub(super) fn render(drawing: &Drawing) -> Result<String, String> {
    let mut svg = String::new();
    let height = FIGURE_HEIGHT * drawing.figures.len() as u32;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let drawn = || -> Drawn {
            root.fill(&WHITE)?;
            for (area, figure) in root.split_evenly((drawing.figures.len(), 1)).iter().zip(&drawing.figures) {
                draw_figure(area, figure, &drawing.title)?;
            }
            root.present()?;
            Ok(())
        };
        drawn().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

/// What a figure is of.
pub(super) fn heading(figure: &Figure, title: &str) -> String {
    let remote = figure.remote.as_ref().map_or_else(String::new, |remote| format!(" to {remote}"));
    format!("{title}: association {}, path {}{remote}", figure.group, figure.path)
}

/// The sums of a figure in words.
pub(super) fn summary(columns: &Columns) -> String {
    let totals = &columns.totals;
    let seconds = columns.to_s - columns.from_s;
    let mut parts = vec![
        format!("{} packets sent", grouped(totals.packets_sent)),
        format!("{} received", grouped(totals.packets_received)),
    ];
    for (bytes, what) in [(totals.acked_bytes, "arrived"), (totals.received_bytes, "came")] {
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

fn draw_figure(area: &Panel<'_, '_>, figure: &Figure, title: &str) -> Drawn {
    let columns = &figure.columns;
    let bold = ("sans-serif", 17).into_font().style(FontStyle::Bold).color(&INK);
    area.draw_text(&heading(figure, title), &bold, (12, 8))?;
    let small = ("sans-serif", 13).into_font().color(&INK);
    area.draw_text(&summary(columns), &small, (12, 28))?;
    let (_, rest) = area.split_vertically(TITLE_HEIGHT);
    let (windows, rest) = rest.split_vertically(PANEL_HEIGHTS[0]);
    let (marks, rest) = rest.split_vertically(PANEL_HEIGHTS[1]);
    let (times, rest) = rest.split_vertically(PANEL_HEIGHTS[2]);
    let (rates, _) = rest.split_vertically(PANEL_HEIGHTS[3]);
    draw_windows(&windows, columns)?;
    draw_marks(&marks, columns)?;
    draw_times(&times, columns)?;
    draw_rates(&rates, columns)
}

/// One line of a panel.
struct Line<'a> {
    name: &'a str,
    color: RGBColor,
    width: u32,
    points: Vec<(f64, f64)>,
}

impl<'a> Line<'a> {
    fn of(name: &'a str, color: RGBColor, width: u32, series: &Series, columns: &Columns) -> Option<Self> {
        (!series.is_empty()).then(|| Self {
            name,
            color,
            width,
            points: series.line(columns.from_s, columns.to_s),
        })
    }
}

fn draw_windows(panel: &Panel<'_, '_>, columns: &Columns) -> Drawn {
    // A threshold that was never reached would leave the rest of the figure flat.
    let most = columns.cwnd.most().max(columns.in_flight.most());
    let threshold = Line::of("ssthresh", PURPLE, 1, &columns.ssthresh, columns);
    let lines = [
        Line::of("in flight", SKY, 1, &columns.in_flight, columns),
        threshold,
        Line::of("cwnd", BLUE, 2, &columns.cwnd, columns),
    ];
    let lost = columns.marked_windows(Mark::Lost).collect();
    let timeouts = columns.marked_windows(Mark::Timeout).collect();
    draw_panel(
        panel,
        columns,
        "bytes",
        &bytes_text,
        most,
        lines.into_iter().flatten(),
        &[("lost", VERMILION, lost), ("timeout", INK, timeouts)],
    )
}

fn draw_times(panel: &Panel<'_, '_>, columns: &Columns) -> Drawn {
    let most = columns.latest_rtt.most().max(columns.smoothed_rtt.most());
    let lines = [
        Line::of("min RTT", GREEN, 1, &columns.min_rtt, columns),
        Line::of("smoothed RTT", BLUE, 2, &columns.smoothed_rtt, columns),
    ];
    let latest = columns.latest_rtt.points(columns.from_s, columns.to_s);
    draw_panel(
        panel,
        columns,
        "round trip, ms",
        &plain_text,
        most,
        lines.into_iter().flatten(),
        &[("latest RTT", SKY, latest)],
    )
}

fn draw_rates(panel: &Panel<'_, '_>, columns: &Columns) -> Drawn {
    let rate = |name, color, points: Vec<(f64, f64)>| {
        (!points.is_empty()).then_some(Line { name, color, width: 2, points })
    };
    let arrived = rate("arrived at the peer", BLUE, columns.acked_rate());
    let came = rate("came from the peer", GREEN, columns.received_rate());
    let top = |line: &Option<Line<'_>>| {
        line.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max)
    };
    // Pacing above twice the rate that was reached holds nothing back.
    let reached = top(&arrived).max(top(&came));
    let most = columns.pacing.most().min(2.0 * reached).max(reached);
    let pacing = Line::of("pacing", ORANGE, 1, &columns.pacing, columns);
    let lines = [pacing, came, arrived];
    draw_panel(panel, columns, "Mbit/s", &mbits_text, most, lines.into_iter().flatten(), &[])
}

/// Points of one kind.
type Points<'a> = (&'a str, RGBColor, Vec<(f64, f64)>);

fn draw_panel<'a>(
    panel: &Panel<'_, '_>,
    columns: &Columns,
    unit: &str,
    text: &dyn Fn(&f64) -> String,
    most: f64,
    lines: impl Iterator<Item = Line<'a>>,
    points: &[Points<'_>],
) -> Drawn {
    let top = if most > 0.0 { most * 1.08 } else { 1.0 };
    let (panel, legend) = panel.split_horizontally(WIDTH - LEGEND_WIDTH);
    let mut chart = ChartBuilder::on(&panel)
        .margin_top(6)
        .margin_left(LEFT_MARGIN)
        .margin_right(RIGHT_MARGIN)
        .x_label_area_size(24)
        .y_label_area_size(AXIS_WIDTH)
        .build_cartesian_2d(columns.from_s..columns.to_s, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .y_desc(unit)
        .x_labels(12)
        .y_labels(6)
        .x_label_formatter(&|seconds| format!("{} s", plain_text(seconds)))
        .y_label_formatter(text)
        .draw()?;
    let mut names = Vec::new();
    for line in lines {
        let style = line.color.stroke_width(line.width);
        // The axis ends at the top: what is above is drawn along it.
        let inside = line.points.into_iter().map(|(x, y)| (x, y.min(top)));
        chart.draw_series(LineSeries::new(inside, style))?;
        names.push((line.name, line.color));
    }
    for (name, color, marks) in points.iter().filter(|(_, _, marks)| !marks.is_empty()) {
        let style = color.filled();
        chart.draw_series(marks.iter().map(|(x, y)| Circle::new((*x, y.min(top)), 2, style)))?;
        names.push((name, *color));
    }
    draw_legend(&legend, &names)
}

fn draw_legend(legend: &Panel<'_, '_>, names: &[(&str, RGBColor)]) -> Drawn {
    for (row, (name, color)) in names.iter().enumerate() {
        let y = 16 + row as i32 * LEGEND_LINE;
        legend.draw(&Rectangle::new([(0, y - 4), (12, y + 4)], color.filled()))?;
        legend.draw_text(name, &("sans-serif", 12).into_font().color(&INK), (18, y - 6))?;
    }
    Ok(())
}

fn draw_marks(panel: &Panel<'_, '_>, columns: &Columns) -> Drawn {
    let rows = Mark::ALL.len() as f64;
    let row_of = |mark: Mark| rows - mark as usize as f64;
    let (panel, _) = panel.split_horizontally(WIDTH - LEGEND_WIDTH);
    let mut chart = ChartBuilder::on(&panel)
        .margin_left(LEFT_MARGIN)
        .margin_right(RIGHT_MARGIN)
        .x_label_area_size(4)
        .y_label_area_size(AXIS_WIDTH)
        .build_cartesian_2d(columns.from_s..columns.to_s, 0.4..rows + 0.6)?;
    let names = |row: &f64| {
        let mark = Mark::ALL.into_iter().find(|mark| (row_of(*mark) - row).abs() < 0.01);
        mark.map_or_else(String::new, |mark| mark.name().to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_labels(0)
        .y_labels(Mark::ALL.len())
        .y_label_formatter(&names)
        .draw()?;
    for mark in Mark::ALL {
        let (row, color) = (row_of(mark), color_of(mark));
        let ticks = columns.marked(mark).map(|time_s| {
            PathElement::new([(time_s, row - 0.35), (time_s, row + 0.35)], color.stroke_width(2))
        });
        chart.draw_series(ticks)?;
    }
    Ok(())
}

/// A number without zeros that say nothing.
fn plain_text(value: &f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn bytes_text(bytes: &f64) -> String {
    match *bytes {
        b if b >= 1e6 => format!("{} MB", plain_text(&(b / 1e6))),
        b if b >= 1e3 => format!("{} KB", plain_text(&(b / 1e3))),
        b => plain_text(&b),
    }
}

fn mbits_text(bits_per_s: &f64) -> String {
    plain_text(&(bits_per_s / 1e6))
}
