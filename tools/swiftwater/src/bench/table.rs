//! The table on the terminal.

use std::fmt::Write;

use super::result::Row;
use super::series::Series;
use crate::host::{self, OTHERS_BUSY_MAX};
use crate::stats::median;
use crate::units::{grouped, mbits};

const HEAD: [&str; 10] = [
    "bytes",
    "series",
    "packet",
    "cpus",
    "P",
    "messages/s",
    "Mbit/s",
    "ratio to tcp",
    "from .. to",
    "cpu ns/message",
];
const LATENCY_HEAD: [&str; 9] =
    ["bytes", "series", "cpus", "P", "exchanges/s", "p50 us", "p99 us", "ratio to tcp", "from .. to"];

/// Renders all rows as aligned text, those of throughput first. A note says that lower latency ratios are better.
pub(crate) fn render(rows: &[Row]) -> String {
    let (latency, throughput): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.latency_us_p50.is_some());
    let mut out = String::new();
    if !throughput.is_empty() {
        align(&mut out, &HEAD, &throughput.iter().map(|row| (group(row), cells(row))).collect::<Vec<_>>());
        out.push_str("cpu ns/message: processor time of the sender + of the receiver\n");
    }
    if !latency.is_empty() {
        out.push_str(if throughput.is_empty() { "" } else { "\n" });
        out.push_str("request and answer, latency: lower is better\n");
        align(
            &mut out,
            &LATENCY_HEAD,
            &latency.iter().map(|row| (group(row), latency_cells(row))).collect::<Vec<_>>(),
        );
    }
    for line in notes(rows) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Returns a key; rows with equal keys have no blank line between them.
fn group(row: &Row) -> (usize, usize, usize) {
    (row.cpus, row.parallel, row.message_bytes)
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.message_bytes.to_string(),
        row.series.to_owned(),
        row.packet_bytes.to_string(),
        row.cpus.to_string(),
        row.parallel.to_string(),
        of_messages(row, || grouped(row.messages_per_s.round() as u64)),
        mbits(row.bits_per_s),
        ratio(row.ratio_to_tcp),
        range(row),
        of_messages(row, || {
            format!("{:.0} + {:.0}", row.sender_cpu_ns_per_message, row.receiver_cpu_ns_per_message)
        }),
    ]
}

/// Returns the text for a series that sends messages, and nothing for others.
pub(super) fn of_messages(row: &Row, text: impl FnOnce() -> String) -> String {
    if Series::parse(row.series).is_ok_and(Series::has_messages) { text() } else { "-".into() }
}

fn latency_cells(row: &Row) -> Vec<String> {
    let micros = |value: Option<f64>| value.map_or_else(String::new, |us| format!("{us:.1}"));
    vec![
        row.message_bytes.to_string(),
        row.series.to_owned(),
        row.cpus.to_string(),
        row.parallel.to_string(),
        grouped(row.messages_per_s.round() as u64),
        micros(row.latency_us_p50),
        micros(row.latency_us_p99),
        ratio(row.ratio_to_tcp),
        range(row),
    ]
}

/// Formats a ratio with two decimals.
pub(crate) fn ratio(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(ratio) if ratio >= 100.0 => format!("{}x", grouped(ratio.round() as u64)),
        Some(ratio) => format!("{ratio:.2}x"),
    }
}

fn range(row: &Row) -> String {
    match (row.ratio_to_tcp_min, row.ratio_to_tcp_max) {
        (Some(min), Some(max)) if row.runs > 1 => format!("{min:.2} .. {max:.2}"),
        _ => String::new(),
    }
}

/// Returns the processors that other programs kept busy during the runs, if that was too many to ignore.
pub(crate) fn others_busy(rows: &[Row]) -> Option<f64> {
    let busy: Vec<f64> = rows.iter().filter_map(|row| row.others_busy_processors).collect();
    median(&busy).filter(|&busy| busy >= OTHERS_BUSY_MAX)
}

fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(others_busy(rows).and_then(host::busy_sentence));
    if let Some(row) = rows.iter().find(|row| row.series == "tcp-artificial") {
        notes.push(format!(
            "tcp-artificial: the sender ran at nice {}, the receiver at {} (of -20 and 19)",
            row.sender_nice, row.receiver_nice
        ));
    }
    if rows.iter().any(|row| row.series == "sctp-nocsum") {
        notes.push("sctp-nocsum: packets without a checksum; not for networks".into());
    }
    if rows.iter().any(|row| row.series == "udp-limit") {
        notes.push(
            "udp-limit: what plain UDP moves with packets of that size, only counted; no protocol".into(),
        );
    }
    notes
}

/// Appends rows in columns, with a blank line between different keys.
pub(crate) fn align<K: PartialEq>(out: &mut String, head: &[&str], rows: &[(K, Vec<String>)]) {
    let width = |column: usize| {
        let longest = rows.iter().map(|(_, cells)| cells[column].chars().count()).max().unwrap_or(0);
        longest.max(head[column].chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (column, cell) in cells.enumerate() {
            let width = widths[column];
            // Numbers are right-aligned, names left-aligned.
            let _ =
                if column == 1 { write!(text, "{cell:<width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut head.iter().copied());
    let mut previous = None;
    for (key, cells) in rows {
        if previous.is_some_and(|previous| previous != key) {
            line(&mut std::iter::empty());
        }
        previous = Some(key);
        line(&mut cells.iter().map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::tests::rows;

    #[test]
    fn columns_are_aligned_and_sizes_set_apart() {
        let text = render(&rows(&[64, 1024]));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("bytes  series"), "{text}");
        assert_eq!(lines.iter().filter(|line| line.is_empty()).count(), 1, "{text}");
        let column = lines[0].find("messages/s").expect("a column") + "messages/s".len();
        for line in lines.iter().filter(|line| line.contains("000,000")) {
            assert!(line[..column].ends_with(|c: char| c.is_ascii_digit()), "{text}");
            assert_eq!(line.as_bytes()[column], b' ', "{text}");
        }
        assert!(
            text.contains("\ncpu ns/message: processor time of the sender + of the receiver\n"),
            "{text}"
        );
        assert!(text.contains("4.00x") && text.contains("4.00 .. 4.00"), "{text}");
        assert!(text.contains("0.5 processors busy") && text.ends_with("no protocol\n"), "{text}");
    }
}
