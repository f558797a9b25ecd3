//! Results as a table.

use std::fmt::Write as _;

use serde_json::Value;

use super::Row;
use crate::plot::escape;

/// Formats a value.
type Tell = fn(f64) -> String;

/// A column: its head, the key of the results, and the format of a number.
const COLUMNS: [(&str, &str, Tell); 20] = [
    ("paths", "paths", whole),
    ("seconds", "seconds", two_digits),
    ("Mbit/s", "bits_per_s", mega),
    ("95 % from", "bits_per_s_low", mega),
    ("to", "bits_per_s_high", mega),
    ("published", "published_bits_per_s", mega),
    ("by TCP", "ratio_to_tcp", two_digits),
    ("by limit", "ratio_to_limit", two_digits),
    ("by best path", "ratio_to_best_path", two_digits),
    ("by fair share", "share_of_fair", two_digits),
    ("in 10 s", "messages_in_10_s", whole),
    ("latency ms", "latency_us", thousandth),
    ("gap ms", "gap_ms_max", whole),
    ("back ms", "back_ms_max", whole),
    ("queue p95 ms", "queue_ms_p95", two_digits),
    ("dropped", "line_dropped_packets", whole),
    ("lost", "line_lost_packets", whole),
    ("host dropped", "host_dropped_packets", whole),
    ("late p99 µs", "late_us_p99", whole),
    ("emulator", "emulator_cpu", two_digits),
];

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}

fn mega(value: f64) -> String {
    two_digits(value / 1e6)
}

fn thousandth(value: f64) -> String {
    format!("{:.3}", value / 1e3)
}

/// Renders the rows with these numbers. Omits columns that none of them fills.
pub(super) fn render(rows: &[(usize, &Row)]) -> String {
    let fills = |(_, key, _): &&(&str, &str, Tell)| rows.iter().any(|(_, row)| number(row, key).is_some());
    let columns: Vec<_> = COLUMNS.iter().filter(fills).collect();
    let mut out = "<table><thead><tr><th>case</th><th>transport</th>".to_owned();
    for (head, _, _) in &columns {
        // Writing to a string cannot fail.
        let _ = write!(out, "<th>{head}</th>");
    }
    out += "</tr></thead><tbody>\n";
    for (place, row) in rows {
        let class =
            if row.get("published") == Some(&Value::Bool(true)) { " class=\"published\"" } else { "" };
        let _ = write!(out, "<tr data-row=\"{place}\"{class}>");
        for key in ["case", "transport"] {
            let text = row.get(key).and_then(Value::as_str).unwrap_or_default();
            let _ = write!(out, "<th data-key=\"{key}\">{}</th>", escape(text));
        }
        for (_, key, tell) in &columns {
            let text = number(row, key).map(tell).unwrap_or_default();
            let _ = write!(out, "<td data-key=\"{key}\">{text}</td>");
        }
        out += "</tr>\n";
    }
    out + "</tbody></table>"
}

fn number(row: &Row, key: &str) -> Option<f64> {
    row.get(key)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_columns_are_left_out_and_published_rows_are_marked() {
        let row = serde_json::json!({"case": "a", "transport": "tcp", "bits_per_s": 12_345_678.0, "published": true});
        let row = row.as_object().expect("an object");
        let drawn = render(&[(7, row)]);
        assert!(drawn.contains("<tr data-row=\"7\" class=\"published\">"), "{drawn}");
        assert!(drawn.contains("<td data-key=\"bits_per_s\">12.35</td>"), "{drawn}");
        assert!(!drawn.contains("queue") && !drawn.contains("<td data-key=\"paths\">"), "{drawn}");
    }
}
