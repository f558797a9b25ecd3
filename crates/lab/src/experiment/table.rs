//! Outcomes as text.

use std::fmt::Write as _;

use super::{Outcome, Returns};

/// A column: its head, and what it says of an outcome.
type Column = (&'static str, fn(&Outcome) -> Option<String>);

const COLUMNS: [Column; 20] = [
    ("transport", |o| Some(o.transport.clone())),
    ("control", |o| o.algorithm.map(str::to_owned)),
    ("paths", Outcome::paths_text),
    ("seconds", |o| (o.seconds > 0.0).then(|| format!("{:.2}", o.seconds))),
    ("Mbit/s", |o| Some(mbits(o.bits_per_s))),
    ("in 10 s", |o| o.messages_in_10_s.map(|messages| grouped(messages.round() as u64))),
    ("limit", |o| o.paths.filter(|_| o.has_limit()).map(|_| mbits(o.limit_bits_per_s))),
    ("of limit", |o| o.has_limit().then(|| percent(o.share()))),
    ("of best path", |o| o.ratio_to_best_path().filter(|_| o.path.is_none()).map(percent)),
    ("of their sum", |o| o.ratio_to_sum_of_paths().map(percent)),
    ("latency mean", |o| o.latency_s.map(|seconds| format!("{:.3} ms", seconds * 1e3))),
    ("longest gap", |o| o.gap_s_max.map(ms)),
    ("back after", |o| o.returns.as_ref().map(back)),
    ("missing", |o| o.missing_messages.map(|n| n.to_string())),
    ("predicted", |o| o.predicted_bits_per_s.map(mbits)),
    ("round trips", |o| o.round_trips.map(|trips| format!("{trips:.2}"))),
    ("Jain's index", |o| o.fairness.map(|index| format!("{index:.3}"))),
    ("sent again", |o| o.retransmissions.map(|n| n.to_string())),
    ("recoveries", |o| o.fast_recoveries.map(|n| n.to_string())),
    ("timeouts", |o| o.timeouts.map(|n| n.to_string())),
];
/// Columns of names stand left, numbers right.
const NAMES: usize = 3;
/// Number of columns up to the rate, behind which the columns of the caller stand.
const RATE_COLUMNS: usize = 5;

/// A column that a caller adds to the table: its head, and a cell for each outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedColumn {
    /// The head.
    pub head: &'static str,
    /// The cells, in the order of the outcomes; `None` is an empty one.
    pub cells: Vec<Option<String>>,
}

/// Returns outcomes as aligned text, case by case, without empty columns.
pub fn table(outcomes: &[Outcome]) -> String {
    table_with(outcomes, &[])
}

/// Returns outcomes as aligned text with further columns behind the rate. Leaves empty columns out.
pub fn table_with(outcomes: &[Outcome], added: &[AddedColumn]) -> String {
    let own = |(head, cell): Column| AddedColumn { head, cells: outcomes.iter().map(cell).collect() };
    let (before, behind) = COLUMNS.split_at(RATE_COLUMNS);
    let all =
        before.iter().copied().map(own).chain(added.iter().cloned()).chain(behind.iter().copied().map(own));
    let columns: Vec<AddedColumn> = all.filter(|column| column.cells.iter().any(Option::is_some)).collect();
    let is_name = |column: &&AddedColumn| COLUMNS[..NAMES].iter().any(|(name, _)| *name == column.head);
    let names = columns.iter().filter(is_name).count();
    let heads = std::iter::once("case").chain(columns.iter().map(|column| column.head));
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).collect()];
    let mut case = None;
    for (number, outcome) in outcomes.iter().enumerate() {
        let name = if case == Some(&outcome.case) { String::new() } else { outcome.case.clone() };
        case = Some(&outcome.case);
        let cell = |column: &AddedColumn| column.cells.get(number).cloned().flatten().unwrap_or_default();
        rows.push(std::iter::once(name).chain(columns.iter().map(cell)).collect());
    }
    align(&rows, 1 + names)
}

fn align(rows: &[Vec<String>], names: usize) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column < names {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Returns a number with a comma between every three digits: `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn ms(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}

/// Returns the longest time until a line was used again, and how many of the returns were missed.
fn back(returns: &Returns) -> String {
    let Returns { count, missed, back_s_max } = *returns;
    match (back_s_max, missed) {
        (Some(most), 0) => ms(most),
        (Some(most), _) => format!("{}, {missed} of {count} never", ms(most)),
        (None, _) => "never".to_owned(),
    }
}

/// Returns a rate in Mbit/s, with two decimals below a hundred.
fn mbits(bits_per_s: f64) -> String {
    let value = bits_per_s / 1e6;
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_named_once_and_empty_columns_are_left_out() {
        let ours = Outcome {
            case: "one".into(),
            transport: "sctp".into(),
            algorithm: Some("cubic"),
            seconds: 10.0,
            bits_per_s: 5e6,
            limit_bits_per_s: 1e7,
            ..Outcome::default()
        };
        let theirs = Outcome { transport: "tcp".into(), algorithm: None, ..ours.clone() };
        let text = table(&[ours, theirs]);
        let expected = "\
case  transport  control  seconds  Mbit/s  of limit
one   sctp       cubic      10.00    5.00    50.0 %
      tcp                   10.00    5.00    50.0 %
";
        assert_eq!(text, expected);
    }

    #[test]
    fn numbers_of_messages_have_separators() {
        assert_eq!([7, 123, 1_234, 9_353_690].map(grouped), ["7", "123", "1,234", "9,353,690"]);
    }

    #[test]
    fn returns_that_were_missed_stand_beside_the_longest_time() {
        let text = |missed, back_s_max| back(&Returns { count: 5, missed, back_s_max });
        assert_eq!(text(0, Some(0.087)), "87 ms");
        assert_eq!(text(1, Some(3.1)), "3100 ms, 1 of 5 never");
        assert_eq!(text(5, None), "never");
    }

    #[test]
    fn columns_of_the_caller_stand_behind_the_rate() {
        let outcome = |transport: &str| Outcome {
            case: "one".into(),
            transport: transport.into(),
            bits_per_s: 5e6,
            limit_bits_per_s: 1e7,
            ..Outcome::default()
        };
        let column = |head, cells: [Option<&str>; 2]| AddedColumn {
            head,
            cells: cells.map(|cell| cell.map(str::to_owned)).into(),
        };
        let added = [column("interval", [Some("4 to 6"), None]), column("nothing", [None, None])];
        let expected = "\
case  transport  Mbit/s  interval  of limit
one   sctp         5.00    4 to 6    50.0 %
      tcp          5.00              50.0 %
";
        assert_eq!(table_with(&[outcome("sctp"), outcome("tcp")], &added), expected);
    }
}
