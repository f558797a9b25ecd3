//! Results as a table.

use std::fmt::Write as _;

use serde_json::Value;

use super::Row;
use super::limits::MESSAGE_BYTES_MAX;
use crate::plot::escape;
use crate::units::grouped;

/// Formats a value.
type Format = fn(f64) -> String;

/// Columns of words: head and key.
const WORDS: [(&str, &str); 4] =
    [("case", "case"), ("transport", "transport"), ("mode", "mode"), ("paths", "used_paths")];
/// A column: its head, the key of the results, and the format of a number.
const COLUMNS: [(&str, &str, Format); 25] = [
    ("seconds", "seconds", two_digits),
    ("Mbit/s", "bits_per_s", mega),
    ("from", "bits_per_s_min", mega),
    ("to", "bits_per_s_max", mega),
    ("published", "published_bits_per_s", mega),
    ("of TCP", "ratio_to_tcp", two_digits),
    ("latency mean ms", "latency_us", thousandth),
    ("latency p50 ms", "latency_us_p50", thousandth),
    ("latency p99 ms", "latency_us_p99", thousandth),
    ("of fair share", "share_of_fair", two_digits),
    ("share from", "share_of_fair_min", two_digits),
    ("share to", "share_of_fair_max", two_digits),
    ("in 10 s", "messages_in_10_s", whole),
    ("limit", "limit_bits_per_s", mega),
    ("of limit", "ratio_to_limit", percent),
    ("of best path", "ratio_to_best_path", percent),
    ("longest gap ms", "gap_ms_max", whole),
    ("back after ms", "back_ms_max", whole),
    ("not back", "returns_missed", whole),
    ("queue p95 ms", "queue_ms_p95", two_digits),
    ("dropped", "line_dropped_packets", whole),
    ("lost", "line_lost_packets", whole),
    ("host dropped", "host_dropped_packets", whole),
    ("late p99 µs", "late_us_p99", whole),
    ("emulator", "emulator_cpu", two_digits),
];

fn whole(value: f64) -> String {
    grouped(value.round() as u64)
}

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn mega(value: f64) -> String {
    two_digits(value / 1e6)
}

fn thousandth(value: f64) -> String {
    format!("{:.3}", value / 1e3)
}

/// Renders the rows with these numbers. Omits columns that none of them fills.
pub(super) fn render(rows: &[(usize, &Row)]) -> String {
    let fills = |(_, key, _): &&(&str, &str, Format)| rows.iter().any(|(_, row)| number(row, key).is_some());
    let columns: Vec<_> = COLUMNS.iter().filter(fills).collect();
    let words: Vec<_> =
        WORDS.iter().filter(|(_, key)| rows.iter().any(|(_, row)| word(row, key).is_some())).collect();
    let mut out = "<table><thead><tr>".to_owned();
    for (head, _) in &words {
        // Writing to a string cannot fail.
        let _ = write!(out, "<th class=\"text\">{head}</th>");
    }
    let marks_disturbed = rows.iter().any(|(_, row)| is_disturbed(row));
    if marks_disturbed {
        out += "<th>host</th>";
    }
    for (head, _, _) in &columns {
        let _ = write!(out, "<th>{head}</th>");
    }
    out += "</tr></thead><tbody>\n";
    let mut above = None;
    for (place, row) in rows {
        let mut classes = Vec::new();
        if row.get("published") == Some(&Value::Bool(true)) {
            classes.push("published");
        }
        let case = word(row, "case");
        if above.replace(case).is_some_and(|above| above != case) {
            classes.push("next");
        }
        let class =
            if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
        let _ = write!(out, "<tr data-row=\"{place}\"{class}>");
        for (_, key) in &words {
            let text = word(row, key).unwrap_or_default();
            let _ = write!(out, "<th class=\"text\" data-key=\"{key}\">{}</th>", escape(text));
        }
        if marks_disturbed {
            // Results of earlier versions do not say by what.
            let by = word(row, "disturbed_by").map_or_else(|| "disturbed".to_owned(), escape);
            let mark = if is_disturbed(row) { &by[..] } else { "" };
            let _ = write!(out, "<td data-key=\"disturbed\">{mark}</td>");
        }
        for (_, key, tell) in &columns {
            let text = number(row, key).map(tell).unwrap_or_default();
            let _ = write!(out, "<td data-key=\"{key}\">{text}</td>");
        }
        out += "</tr>\n";
    }
    out + "</tbody></table>"
}

/// Returns the key of a value that the page does not draw: it has another type, is no size of a message, or names no experiment.
pub(super) fn wrong_value(row: &Row) -> Option<&'static str> {
    let has =
        |key: &str, is_right: fn(&Value) -> bool| row.get(key).is_none_or(|v| v.is_null() || is_right(v));
    if word(row, "experiment").is_none() {
        return Some("experiment");
    }
    let words = WORDS.iter().map(|(_, key)| *key).chain(["disturbed_by", "lines"]);
    let mut words = words.filter(|key| !has(key, Value::is_string));
    let mut numbers = COLUMNS.iter().map(|(_, key, _)| *key).filter(|key| !has(key, Value::is_number));
    let mut flags = ["published", "disturbed"].into_iter().filter(|key| !has(key, Value::is_boolean));
    let mut sizes = ["message_bytes"].into_iter().filter(|key| !has(key, is_message_size));
    words.next().or_else(|| numbers.next()).or_else(|| flags.next()).or_else(|| sizes.next())
}

fn is_message_size(value: &Value) -> bool {
    value.as_u64().is_some_and(|bytes| (1..=MESSAGE_BYTES_MAX).contains(&bytes))
}

/// Returns whether the host disturbed a run of the row.
pub(super) fn is_disturbed(row: &Row) -> bool {
    row.get("disturbed") == Some(&Value::Bool(true))
}

pub(super) fn word<'a>(row: &'a Row, key: &str) -> Option<&'a str> {
    row.get(key)?.as_str()
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
        assert!(!drawn.contains("queue") && !drawn.contains("paths"), "{drawn}");
        assert!(!drawn.contains("mode") && !drawn.contains("<th>host</th>"), "{drawn}");
    }

    /// Otherwise tests of the page of the stored results do not see a new column.
    #[test]
    fn the_stored_results_of_the_tests_fill_every_column() {
        let stored = include_str!("../../../tests/lab/results/results.json");
        let rows: Vec<Row> = serde_json::from_str(stored).expect("an array of objects");
        for (head, key, _) in COLUMNS {
            assert!(rows.iter().any(|row| number(row, key).is_some()), "{head}: no stored row has {key}");
        }
    }

    #[test]
    fn rows_of_disturbed_runs_are_marked() {
        let row = |disturbed: bool| {
            let row = serde_json::json!({"case": "a", "transport": "tcp", "bits_per_s": 1e6, "disturbed": disturbed});
            row.as_object().expect("an object").clone()
        };
        let (good, late) = (row(false), row(true));
        let drawn = render(&[(0, &good), (1, &late)]);
        assert!(drawn.contains("<th>host</th>"), "{drawn}");
        assert_eq!(drawn.matches("<td data-key=\"disturbed\">disturbed</td>").count(), 1, "{drawn}");
        assert_eq!(drawn.matches("<td data-key=\"disturbed\"></td>").count(), 1, "{drawn}");
        let mut busy = late.clone();
        busy.insert("disturbed_by".into(), "busy".into());
        assert!(render(&[(0, &busy)]).contains("<td data-key=\"disturbed\">busy</td>"));
    }

    #[test]
    fn rows_have_their_mode_and_a_line_above_the_next_case() {
        let row = |case: &str, mode: &str| {
            let row = serde_json::json!({"case": case, "transport": "openss7 2007", "mode": mode});
            row.as_object().expect("an object").clone()
        };
        let rows = [row("a", "stream"), row("a", "message"), row("b", "stream")];
        let drawn = render(&rows.iter().enumerate().collect::<Vec<_>>());
        assert!(drawn.contains("<th class=\"text\" data-key=\"mode\">message</th>"), "{drawn}");
        assert!(
            drawn.contains("<tr data-row=\"1\">") && drawn.contains("<tr data-row=\"2\" class=\"next\">")
        );
    }
}
