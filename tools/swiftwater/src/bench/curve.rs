//! Rows arranged as the curves of the figures, with the line fitted to their delays.

use super::result::Row;
use super::series::Series;
use crate::plot::CurveStyle;
use crate::stats::fit_line;

/// Limit of the published sizes; the line is fitted up to it, so that our costs and the published ones are comparable.
pub(super) const FIT_BYTES_MAX: usize = 16_384;

/// One measured size of a curve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub message_bytes: usize,
    pub messages_per_s: f64,
    pub bits_per_s: f64,
    pub delay_us: f64,
    pub ratio_to_tcp: Option<f64>,
}

impl Point {
    /// Computes the point from the rate.
    pub(crate) fn new(message_bytes: usize, messages_per_s: f64, ratio_to_tcp: Option<f64>) -> Self {
        Self {
            message_bytes,
            messages_per_s,
            bits_per_s: messages_per_s * message_bytes as f64 * 8.0,
            delay_us: 1e6 / messages_per_s,
            ratio_to_tcp,
        }
    }
}

/// One line of the figures.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Name in the legend; for our own curves, the name of the series.
    pub label: String,
    pub style: CurveStyle,
    /// Processors, packet size (0 if unlimited) and associations of our own curves.
    pub cpus: usize,
    pub packet_bytes: usize,
    pub parallel: usize,
    /// In the order of sizes.
    pub points: Vec<Point>,
    /// The fitted cost of a message, in microseconds.
    pub us_per_message: Option<f64>,
    /// The fitted cost of a byte, in nanoseconds.
    pub ns_per_byte: Option<f64>,
}

impl Curve {
    /// Returns a curve of a published machine.
    pub(crate) fn published(label: &str, style: CurveStyle, points: Vec<Point>) -> Self {
        Self::fitted(label, style, (0, 0, 0), points)
    }

    /// Returns a curve of our own on so many processors, whose points are in the order of sizes.
    pub(crate) fn measured(series: Series, cpus: usize, points: Vec<Point>) -> Self {
        Self::fitted(series.name(), series.style(), (cpus, 0, 1), points)
    }

    fn fitted(
        label: &str,
        style: CurveStyle,
        (cpus, packet_bytes, parallel): (usize, usize, usize),
        points: Vec<Point>,
    ) -> Self {
        let delays: Vec<(f64, f64)> = points
            .iter()
            .filter(|point| point.message_bytes <= FIT_BYTES_MAX)
            .map(|point| (point.message_bytes as f64, point.delay_us))
            .collect();
        let line = fit_line(&delays);
        let (us_per_message, ns_per_byte) = (line.map(|l| l.intercept), line.map(|l| l.slope * 1e3));
        Self { label: label.into(), style, cpus, packet_bytes, parallel, points, us_per_message, ns_per_byte }
    }
}

/// Returns the curves of the throughput rows.
pub(crate) fn curves(rows: &[Row]) -> Vec<Curve> {
    let mut keys: Vec<(Series, (usize, usize, usize))> = Vec::new();
    let throughput = || rows.iter().filter(|row| row.latency_us_p50.is_none());
    for row in throughput() {
        let Some(key) = key(row) else { continue };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let curve = |wanted: (Series, (usize, usize, usize))| {
        let mut points: Vec<Point> = throughput()
            .filter(|row| key(row) == Some(wanted))
            .map(|row| Point::new(row.message_bytes, row.messages_per_s, row.ratio_to_tcp))
            .collect();
        points.sort_by_key(|point| point.message_bytes);
        Curve::fitted(wanted.0.name(), wanted.0.style(), wanted.1, points)
    };
    keys.into_iter().map(curve).collect()
}

fn key(row: &Row) -> Option<(Series, (usize, usize, usize))> {
    let series = Series::parse(row.series).ok()?;
    let packet_bytes = if series.obeys_packet_size() { row.packet_bytes } else { 0 };
    Some((series, (row.cpus, packet_bytes, row.parallel)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::tests::rows;

    #[test]
    fn rows_become_curves_by_series_and_packet_size() {
        let curves = curves(&rows(&[1024, 64]));
        let names: Vec<(&str, usize)> = curves.iter().map(|c| (c.label.as_str(), c.packet_bytes)).collect();
        assert_eq!(names, [("tcp", 0), ("tcp-batched", 0), ("udp-limit", 65_536), ("udp-limit", 1500)]);
        let sizes: Vec<usize> = curves[0].points.iter().map(|point| point.message_bytes).collect();
        assert_eq!(sizes, [64, 1024]);
        // Equal rates at both sizes: the message accounts for all of the cost, the bytes for none.
        assert!((curves[0].us_per_message.expect("two sizes") - 0.5).abs() < 1e-9);
        assert!(curves[0].ns_per_byte.expect("two sizes").abs() < 1e-9);
    }
}
