//! Parsing of module arguments: `name=value`.

use std::str::FromStr;
use std::time::Duration;

/// Splits an argument into name and value.
pub(super) fn split(argument: &str) -> Result<(&str, &str), String> {
    argument.split_once('=').ok_or_else(|| format!("{argument} is not name=value"))
}

/// Parses a number.
pub(super) fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}={value} is not a number in its range"))
}

/// Parses a rate above 0 with an optional suffix k, M or G for thousands, millions and thousands of millions.
pub(super) fn rate(name: &str, value: &str) -> Result<f64, String> {
    let (digits, factor) = match value.char_indices().next_back() {
        Some((at, 'k')) => (&value[..at], 1e3),
        Some((at, 'M')) => (&value[..at], 1e6),
        Some((at, 'G')) => (&value[..at], 1e9),
        _ => (value, 1.0),
    };
    let rate = digits.parse::<f64>().ok().map(|rate| rate * factor);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
        format!("{name}={value} is not a rate; write a number above 0, such as 500, 10k or 1.5M")
    })
}

/// Parses a probability.
pub(super) fn probability(name: &str, value: &str) -> Result<f64, String> {
    let p: f64 = number(name, value)?;
    if (0.0..=1.0).contains(&p) { Ok(p) } else { Err(format!("{name} is a probability, from 0 to 1")) }
}

/// Parses a duration in milliseconds.
pub(super) fn milliseconds(name: &str, value: &str) -> Result<Duration, String> {
    number(name, value.strip_suffix("ms").unwrap_or(value)).map(Duration::from_millis)
}
