//! Axes: map values to places, and choose ticks.

use crate::units::grouped;

/// Largest absolute value of an end: powers, differences and quotients of values up to it are finite.
const END_MAX: f64 = 1e100;
/// The least end of a logarithmic scale, and length of a linear one.
const END_MIN: f64 = 1e-100;
/// Part of an end that an axis without a length gets, and at least 1.
const LENGTH: f64 = 1e-6;

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    Linear,
    /// Logarithmic, with ticks at powers of this base.
    Logarithmic(f64),
}

/// An axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    /// The unit or the quantity.
    pub(super) name: String,
    text: fn(f64) -> String,
    /// Names of the rows 1, 2 and so on, in place of ticks.
    rows: Vec<&'static str>,
}

impl Axis {
    /// Returns an axis whose values are formatted by `text`. Ends that the scale does not have, such as 0 on a logarithmic one,
    /// are replaced by the nearest ones, so that ticks and places are finite.
    pub(crate) fn new(scale: Scale, from: f64, to: f64, name: &str, text: fn(f64) -> String) -> Self {
        let least = match scale {
            Scale::Linear => -END_MAX,
            Scale::Logarithmic(_) => END_MIN,
        };
        // `max` and `min` return the other value for one that is no number.
        let [from, to] = [from, to].map(|end| end.max(least).min(END_MAX));
        let to = if to - from > END_MIN { to } else { from + (from.abs() * LENGTH).max(1.0) };
        Axis { scale, from, to, name: name.to_owned(), text, rows: Vec::new() }
    }

    /// Returns an axis with a row for each name, the first one on top.
    pub(crate) fn rows(names: &[&'static str]) -> Self {
        let rows = names.iter().rev().copied().collect();
        let to = names.len() as f64 + 0.6;
        Axis { scale: Scale::Linear, from: 0.4, to, name: String::new(), text: number_text, rows }
    }

    /// Returns the place of a value between `low` and `high`, the places of the ends of the axis.
    pub(super) fn place(&self, value: f64, low: f64, high: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Logarithmic(_) => {
                (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
            }
        };
        low + part * (high - low)
    }

    /// Returns about `count` values with their texts, at most one more.
    pub(super) fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if !self.rows.is_empty() {
            let rows = self.rows.iter().enumerate();
            return rows.map(|(row, name)| (row as f64 + 1.0, (*name).to_owned())).collect();
        }
        let count = count.max(2);
        let values = match self.scale {
            Scale::Linear => self.linear_ticks(count),
            Scale::Logarithmic(base) => self.powers(base, count),
        };
        values.into_iter().map(|value| (value, (self.text)(value))).collect()
    }

    fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let raw = (self.to - self.from) / count as f64;
        let power = 10_f64.powf(raw.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = nice.into_iter().find(|step| *step >= raw * 0.999).unwrap_or(raw);
        let first = (self.from / step - 1e-9).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last).map(|index| index as f64 * step).collect()
    }

    fn powers(&self, base: f64, count: usize) -> Vec<f64> {
        let exponent = |value: f64| value.ln() / base.ln();
        let (first, last) =
            ((exponent(self.from) - 1e-9).ceil() as i32, (exponent(self.to) + 1e-9).floor() as i32);
        let every = (last - first).max(0) / count as i32 + 1;
        let powers: Vec<f64> =
            (first..=last).filter(|n| (n - first) % every == 0).map(|n| base.powi(n)).collect();
        // Between few powers of ten there are ticks at 2 and 5 times each.
        if base == 10.0 && every == 1 && powers.len() * 3 <= count {
            let fine = (first - 1..=last).flat_map(|n| [1.0, 2.0, 5.0].map(|factor| factor * base.powi(n)));
            return fine.filter(|value| (self.from..=self.to).contains(value)).collect();
        }
        powers
    }
}

/// Formats a number without redundant zeros, and never as a negative zero.
pub(crate) fn number_text(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats a count with a letter for its thousands.
pub(crate) fn count_text(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", number_text(v / 1e9)),
        v if v >= 1e6 => format!("{}M", number_text(v / 1e6)),
        v if v >= 1e4 => format!("{}k", number_text(v / 1e3)),
        v if v >= 1e3 => grouped(v as u64),
        v => number_text(v),
    }
}

/// Formats bytes.
pub(crate) fn bytes_text(bytes: f64) -> String {
    match bytes {
        b if b >= 1e6 => format!("{} MB", number_text(b / 1e6)),
        b if b >= 1e3 => format!("{} KB", number_text(b / 1e3)),
        b => number_text(b),
    }
}

/// Formats bits per second in Mbit/s, for an axis that names the unit.
pub(crate) fn mbits_text(bits_per_s: f64) -> String {
    number_text(bits_per_s / 1e6)
}

/// Formats seconds.
pub(crate) fn seconds_text(seconds: f64) -> String {
    format!("{} s", number_text(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let linear = Axis::new(Scale::Linear, 0.0, 103.0, "", number_text);
        let texts: Vec<String> = linear.ticks(6).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["0", "20", "40", "60", "80", "100"]);
        let part = Axis::new(Scale::Linear, 1.05, 1.35, "", number_text);
        assert_eq!(part.ticks(3).first().map(|tick| tick.1.clone()).as_deref(), Some("1.1"));
        let sizes = Axis::new(Scale::Logarithmic(4.0), 1.0, 65_536.0, "", count_text);
        assert_eq!(sizes.ticks(9).len(), 9);
        let few = Axis::new(Scale::Logarithmic(10.0), 5e4, 4e6, "", count_text);
        let texts: Vec<String> = few.ticks(8).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["50k", "100k", "200k", "500k", "1M", "2M"]);
    }

    #[test]
    fn an_axis_of_any_ends_has_few_ticks_at_finite_places() {
        let ends = [0.0, -1.0, 1.0, 2.0, 1e16, 1e16 + 2.0, 1e308, 5e-324, f64::MAX, f64::MIN];
        let ends = ends.into_iter().chain([f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
        let scales = [Scale::Linear, Scale::Logarithmic(2.0), Scale::Logarithmic(10.0)];
        for (from, to) in ends.clone().flat_map(|from| ends.clone().map(move |to| (from, to))) {
            for scale in scales {
                let axis = Axis::new(scale, from, to, "", number_text);
                for count in [0, 2, 20] {
                    let ticks = axis.ticks(count);
                    assert!(ticks.len() <= 3 * count.max(2) + 1, "{axis:?}: {} ticks", ticks.len());
                    let places = ticks.iter().map(|(value, _)| axis.place(*value, 0.0, 100.0));
                    assert!(
                        places.clone().all(|place| (-0.1..100.1).contains(&place)),
                        "{axis:?}: {ticks:?}"
                    );
                }
                assert!(
                    [0.0, 1.0, 1e308].iter().all(|value| !axis.place(*value, 0.0, 1.0).is_nan()),
                    "{axis:?}"
                );
            }
        }
    }

    #[test]
    fn the_ends_of_an_axis_are_the_ends_of_its_place() {
        for scale in [Scale::Linear, Scale::Logarithmic(10.0)] {
            let axis = Axis::new(scale, 1.0, 100.0, "", number_text);
            assert_eq!((axis.place(1.0, 10.0, 20.0), axis.place(100.0, 10.0, 20.0)), (10.0, 20.0));
        }
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(number_text(-0.000_000_01), "0");
        assert_eq!((number_text(0.25), count_text(2e6)), ("0.25".into(), "2M".into()));
    }
}
