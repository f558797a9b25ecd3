//! Parsing and formatting of numbers for users.

/// Parses a count of bytes such as `64`, `128k` or `4M` (1024 and 1,048,576 bytes, as in iperf).
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1 << 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 1 << 20),
        Some('g' | 'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .ok_or_else(|| format!("`{text}` is not a number of bytes; write one such as 64, 128k or 4M"))
}

/// Parses a count of messages such as `1000`, `250k` or `4M` (thousands and millions).
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1_000),
        Some('m' | 'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .filter(|&count| count > 0)
        .ok_or_else(|| format!("`{text}` is not a number above zero; write one such as 1000 or 4M"))
}

/// Parses a span of seconds such as `10` or `0.25`, at least a millisecond and at most a day.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.001..=86_400.0).contains(seconds))
        .ok_or_else(|| format!("`{text}` is not a number of seconds from 0.001 to 86400"))
}

/// Formats a number with a comma between every three digits: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a rate in Mbit/s with a meaningful number of decimals.
pub(crate) fn mbits(bits_per_s: f64) -> String {
    let value = bits_per_s / 1e6;
    match value {
        v if v >= 1000.0 => grouped(v.round() as u64),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Formats a time in milliseconds with a meaningful number of decimals.
pub(crate) fn milliseconds(microseconds: u64) -> String {
    let value = microseconds as f64 / 1e3;
    match value {
        v if v >= 100.0 => format!("{v:.0} ms"),
        v if v >= 10.0 => format!("{v:.1} ms"),
        v if v >= 1.0 => format!("{v:.2} ms"),
        v => format!("{v:.3} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_counts_and_spans() {
        assert_eq!(parse_bytes("64"), Ok(64));
        assert_eq!(parse_bytes("128k"), Ok(131_072));
        assert_eq!(parse_bytes("4M"), Ok(4 << 20));
        assert!(
            parse_bytes("").is_err()
                && parse_bytes("k").is_err()
                && parse_bytes("99999999999999999999g").is_err()
        );
        assert_eq!(parse_count("4M"), Ok(4_000_000));
        assert!(parse_count("0").is_err() && parse_count("é").is_err());
        assert_eq!(parse_seconds("0.25"), Ok(0.25));
        assert!(parse_seconds("0").is_err() && parse_seconds("NaN").is_err() && parse_seconds("-1").is_err());
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(mbits(25_123_000_000.0), "25,123");
        assert_eq!(mbits(8_400_000.0), "8.40");
    }

    #[test]
    fn a_short_time_is_not_zero() {
        let times = [35, 1500, 12_340, 123_400].map(milliseconds);
        assert_eq!(times, ["0.035 ms", "1.50 ms", "12.3 ms", "123 ms"]);
    }
}
