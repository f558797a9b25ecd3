//! Charts as SVG, for all pages and traces.
//!
//! | file | part |
//! |---|---|
//! | `scale` | axes: where a value stands, and the ticks |
//! | `curve_style` | colours for light and dark pages, and the shapes of points |
//! | `shape` | curves as paths, with the least and the largest value of each pixel |
//! | `template` | pages from their templates |
//!
//! A chart has a plot, ticks on both axes, and at its right a legend, so that labels never lie on curves.

mod curve_style;
mod scale;
mod shape;
mod template;

use std::fmt::Write;

pub(crate) use curve_style::{Color, CurveStyle, Marker, style};
pub(crate) use scale::{Axis, Scale, bytes_text, count_text, mbits_text, number_text, seconds_text};
pub(crate) use template::fill;

/// Width left of the plot, for the labels of the vertical axis.
const LEFT: f64 = 76.0;
/// Characters of a name that have room in the legend.
pub(crate) const LEGEND_CHARACTERS: usize = 25;
/// Width from the plot to the names of the legend, with a piece of each curve.
const LEGEND_SAMPLE: f64 = 39.0;
/// Width right of the plot, for the legend.
const LEGEND: f64 = LEGEND_SAMPLE + LEGEND_CHARACTERS as f64 * CHARACTER;
/// Height above the plot, for the name of the vertical axis.
const TOP: f64 = 24.0;
/// Height below the plot, for the labels and the name of the horizontal axis.
const BOTTOM: f64 = 38.0;
/// Distance between lines of the legend.
const LEGEND_LINE: f64 = 17.0;
/// Width of a character in a label.
const CHARACTER: f64 = 6.6;
/// Gap between two labels on the horizontal axis.
const LABEL_GAP: f64 = 10.0;

/// A chart.
pub(crate) struct Chart {
    /// Description, for readers who cannot see it.
    pub(crate) name: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Drawn in this order.
    pub(crate) curves: Vec<Curve>,
    /// A value of the vertical axis for comparison.
    pub(crate) rule: Option<f64>,
}

/// Form of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A line, with a marker and a hover text at each point.
    Marked,
    /// A line.
    Line,
    /// A thin broken line, for a limit or a fit.
    Limit,
    /// Points alone.
    Points,
    /// Upright strokes as high as one row of the vertical axis.
    Strokes,
}

/// Points that belong together.
pub(crate) struct Curve {
    /// Name in the legend; a curve without a name is not in the legend.
    pub(crate) name: String,
    pub(crate) style: CurveStyle,
    pub(crate) form: Form,
    pub(crate) points: Vec<(f64, f64)>,
    /// Hover texts, for every point or for none.
    pub(crate) words: Vec<String>,
}

impl Curve {
    pub(crate) fn new(name: &str, style: CurveStyle, form: Form, points: Vec<(f64, f64)>) -> Self {
        Curve { name: name.to_owned(), style, form, points, words: Vec::new() }
    }
}

/// The rectangle of the plot.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Chart {
    /// Renders the chart as a document of its own, or as a part of a page that has the [`style`].
    pub(crate) fn svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let name = escape(&self.name);
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{name}\">{}</svg>",
            self.draw()
        )
    }

    /// Renders the chart as a part of a drawing, `y` below its top.
    pub(crate) fn at(&self, y: f64) -> String {
        format!("<g transform=\"translate(0,{y})\">{}</g>", self.draw())
    }

    /// Returns the start and the width of the plot in a chart of this width.
    pub(crate) const fn plot_span(width: f64) -> (f64, f64) {
        (LEFT, width - LEFT - LEGEND)
    }

    /// Returns the width of the plot in pixels, in a chart of this width.
    pub(crate) const fn plot_width(width: f64) -> usize {
        Self::plot_span(width).1 as usize
    }

    fn draw(&self) -> String {
        let frame = Frame { left: LEFT, right: self.width - LEGEND, top: TOP, bottom: self.height - BOTTOM };
        let mut out = String::new();
        self.draw_axes(frame, &mut out);
        for curve in &self.curves {
            self.draw_curve(curve, frame, &mut out);
        }
        self.draw_legend(frame, &mut out);
        out
    }

    fn draw_axes(&self, frame: Frame, out: &mut String) {
        let Frame { left, right, top, bottom } = frame;
        for (value, text) in self.y.ticks(((bottom - top) / 30.0) as usize) {
            let y = self.y.place(value, bottom, top);
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <line class=\"axis\" x1=\"{:.1}\" x2=\"{left}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 4.0,
                left - 7.0,
                y + 4.0,
                escape(&text)
            );
        }
        for (value, text, x) in self.x_labels(frame) {
            let _ = (
                value,
                write!(
                    out,
                    "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    bottom + 4.0,
                    bottom + 17.0,
                    escape(&text)
                ),
            );
        }
        let _ = write!(
            out,
            "<path class=\"axis\" d=\"M{left},{top}V{bottom}H{right}\"/>\
             <text class=\"name\" x=\"2\" y=\"12\">{}</text>\
             <text class=\"name\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            escape(&self.y.name),
            bottom + 33.0,
            escape(&self.x.name)
        );
        if let Some(rule) = self.rule {
            let y = self.y.place(rule, bottom, top);
            let _ = write!(
                out,
                "<line class=\"rule\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
        }
    }

    /// Returns the labels of the horizontal axis that fit beside each other, with their places.
    fn x_labels(&self, frame: Frame) -> Vec<(f64, String, f64)> {
        let width = frame.right - frame.left;
        for count in (2..=(width / 40.0) as usize).rev() {
            let ticks = self.x.ticks(count);
            let placed: Vec<_> = ticks
                .into_iter()
                .map(|(value, text)| (value, text, self.x.place(value, frame.left, frame.right)))
                .collect();
            let half = |text: &str| text.chars().count() as f64 * CHARACTER / 2.0;
            if placed.windows(2).all(|pair| {
                let ((_, a, left), (_, b, right)) = (&pair[0], &pair[1]);
                right - left >= half(a) + half(b) + LABEL_GAP
            }) {
                return placed;
            }
        }
        Vec::new()
    }

    fn draw_curve(&self, curve: &Curve, frame: Frame, out: &mut String) {
        let place = |&(x, y): &(f64, f64)| {
            (
                self.x.place(x, frame.left, frame.right).clamp(frame.left, frame.right),
                // Values beyond the axis are drawn at its end.
                self.y.place(y, frame.bottom, frame.top).clamp(frame.top, frame.bottom),
            )
        };
        let placed: Vec<(f64, f64)> = curve.points.iter().map(place).collect();
        let _ = write!(out, "<g class=\"{}\">", curve.style.color.class());
        match curve.form {
            Form::Marked => {
                let _ = write!(out, "<path class=\"curve\" d=\"{}\"/>", shape::path(&placed));
                for (index, &at) in placed.iter().enumerate() {
                    shape::marker(curve.style.marker, at, curve.words.get(index).map(String::as_str), out);
                }
            }
            Form::Line | Form::Limit => {
                let class = if curve.form == Form::Line { "curve" } else { "limit" };
                let _ =
                    write!(out, "<path class=\"{class}\" d=\"{}\"/>", shape::path(&shape::extremes(&placed)));
            }
            Form::Points => {
                shape::extremes(&placed).iter().for_each(|&at| shape::marker(Marker::Dot, at, None, out))
            }
            Form::Strokes => {
                let row = (self.y.place(0.0, frame.bottom, frame.top)
                    - self.y.place(1.0, frame.bottom, frame.top))
                    * 0.35;
                let _ = write!(out, "<path class=\"curve\" d=\"{}\"/>", shape::strokes(&placed, row));
            }
        }
        out.push_str("</g>");
    }

    fn draw_legend(&self, frame: Frame, out: &mut String) {
        let named = self.curves.iter().filter(|curve| !curve.name.is_empty() && !curve.points.is_empty());
        for (row, curve) in named.enumerate() {
            let (x, y) = (frame.right + 14.0, frame.top + 6.0 + row as f64 * LEGEND_LINE);
            let _ = write!(out, "<g class=\"{}\">", curve.style.color.class());
            match curve.form {
                Form::Points => shape::marker(Marker::Dot, (x + 9.0, y), None, out),
                form => {
                    let class = if form == Form::Limit { "limit" } else { "curve" };
                    let _ = write!(out, "<path class=\"{class}\" d=\"M{x:.1},{y:.1}h18\"/>");
                    if form == Form::Marked {
                        shape::marker(curve.style.marker, (x + 9.0, y), None, out);
                    }
                }
            }
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                frame.right + LEGEND_SAMPLE,
                y + 4.0,
                escape(&curve.name)
            );
        }
    }
}

/// Escapes text for an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(curves: Vec<Curve>) -> Chart {
        Chart {
            name: "a < b".into(),
            width: 600.0,
            height: 300.0,
            x: Axis::new(Scale::Linear, 0.0, 10.0, "seconds", seconds_text),
            y: Axis::new(Scale::Logarithmic(10.0), 1.0, 1e6, "bytes", bytes_text),
            curves,
            rule: Some(100.0),
        }
    }

    #[test]
    fn both_axes_have_ticks_with_labels_that_do_not_touch() {
        let chart = chart(Vec::new());
        let frame = Frame { left: 0.0, right: 400.0, top: 0.0, bottom: 100.0 };
        let labels = chart.x_labels(frame);
        assert!(labels.len() >= 4, "{labels:?}");
        for pair in labels.windows(2) {
            let room = pair[1].2 - pair[0].2;
            assert!(room > CHARACTER * pair[0].1.len().max(pair[1].1.len()) as f64, "{labels:?}");
        }
        let svg = chart.svg();
        assert!(
            svg.contains(">1 MB</text>") && svg.contains(">10 s</text>") && svg.contains("a &lt; b"),
            "{svg}"
        );
    }

    #[test]
    fn a_curve_has_its_colour_its_words_and_a_line_in_the_legend() {
        let mut curve = Curve::new(
            "ours",
            CurveStyle::new(Color::Blue, Marker::Square),
            Form::Marked,
            vec![(1.0, 10.0), (2.0, 100.0)],
        );
        curve.words = vec!["ten".into(), "a hundred".into()];
        let svg = chart(vec![curve]).svg();
        assert_eq!(
            svg.matches(Color::Blue.class()).count(),
            2,
            "the curve and its line in the legend: {svg}"
        );
        assert!(svg.contains("<title>a hundred</title>") && svg.contains(">ours</text>"), "{svg}");
    }
}
