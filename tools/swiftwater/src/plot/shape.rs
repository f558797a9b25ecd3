//! Curves, strokes and markers as SVG paths.

use std::fmt::Write;

use super::curve_style::Marker;

/// Half the height of a marker.
const RADIUS: f64 = 3.2;

/// Returns a line through these places.
pub(super) fn path(placed: &[(f64, f64)]) -> String {
    let mut out = String::new();
    for (index, (x, y)) in placed.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        // Writing to a string cannot fail.
        let _ = write!(out, "{command}{x:.1},{y:.1}");
    }
    out
}

/// Returns upright strokes, each extending so far above and below its place.
pub(super) fn strokes(placed: &[(f64, f64)], reach: f64) -> String {
    placed.iter().fold(String::new(), |mut out, (x, y)| {
        let _ = write!(out, "M{x:.1},{:.1}v{:.1}", y - reach, 2.0 * reach);
        out
    })
}

/// Reduces the places in each column of pixels to the first, the lowest, the highest and the last, so that no peak is lost. The
/// places must be in the order of x.
pub(super) fn extremes(placed: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = Vec::new();
    let same_pixel = |a: &(f64, f64), b: &(f64, f64)| a.0.floor() == b.0.floor();
    for column in placed.chunk_by(same_pixel) {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let kept =
            [column.first(), column.iter().min_by(by_height), column.iter().max_by(by_height), column.last()];
        if column.len() <= kept.len() {
            out.extend(column);
        } else {
            out.extend(kept.into_iter().flatten());
        }
    }
    out.dedup();
    out
}

/// Returns a marker with its hover text.
pub(super) fn marker(marker: Marker, (x, y): (f64, f64), words: Option<&str>, out: &mut String) {
    let r = RADIUS;
    let class = if marker.is_hollow() { "hollow" } else { "full" };
    let title = words.map_or_else(String::new, |words| format!("<title>{}</title>", super::escape(words)));
    let polygon = |points: &[(f64, f64)]| {
        let places: Vec<(f64, f64)> = points.iter().map(|(dx, dy)| (x + dx * r, y + dy * r)).collect();
        format!("<path class=\"{class}\" d=\"{}Z\">{title}</path>", path(&places))
    };
    *out += &match marker {
        Marker::Dot => {
            format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\">{title}</circle>")
        }
        Marker::Circle | Marker::Ring => {
            format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\">{title}</circle>")
        }
        Marker::Square | Marker::Frame => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        Marker::Diamond | Marker::Kite => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        Marker::Up => polygon(&[(0.0, -1.2), (1.2, 1.0), (-1.2, 1.0)]),
        Marker::Down => polygon(&[(0.0, 1.2), (1.2, -1.0), (-1.2, -1.0)]),
        Marker::Right => polygon(&[(1.2, 0.0), (-1.0, 1.2), (-1.0, -1.2)]),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_within_a_pixel_is_kept() {
        let mut placed: Vec<(f64, f64)> = (0..1000).map(|n| (f64::from(n) / 100.0, 50.0)).collect();
        placed[555].1 = 3.0;
        placed[556].1 = 97.0;
        let kept = extremes(&placed);
        assert!(kept.len() < 60, "{}", kept.len());
        assert!(kept.contains(&(5.55, 3.0)) && kept.contains(&(5.56, 97.0)), "{kept:?}");
        assert_eq!(extremes(&placed[..3]), placed[..3], "few points stay as they are");
    }
}
