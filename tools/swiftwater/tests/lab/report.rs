//! Tests of the page that `swiftwater lab report` makes of stored results: nothing is measured.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::support::{Folder, lab, output};

/// Stored results: measured and published rows of each experiment, and some traces.
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/results");

/// A column of numbers: its heading, the key of docs/json.md, what the number is divided by, and the digits after its point.
type Column = (&'static str, &'static str, f64, usize);

/// Columns of numbers, each in the unit of its heading.
const COLUMNS: [Column; 25] = [
    ("seconds", "seconds", 1.0, 2),
    // Bits in a second are shown as megabits, µs as ms.
    ("Mbit/s", "bits_per_s", 1e6, 2),
    ("from", "bits_per_s_min", 1e6, 2),
    ("to", "bits_per_s_max", 1e6, 2),
    ("published", "published_bits_per_s", 1e6, 2),
    ("of TCP", "ratio_to_tcp", 1.0, 2),
    ("latency mean ms", "latency_us", 1e3, 3),
    ("latency p50 ms", "latency_us_p50", 1e3, 3),
    ("latency p99 ms", "latency_us_p99", 1e3, 3),
    ("of fair share", "share_of_fair", 1.0, 2),
    ("share from", "share_of_fair_min", 1.0, 2),
    ("share to", "share_of_fair_max", 1.0, 2),
    ("in 10 s", "messages_in_10_s", 1.0, 0),
    ("limit", "limit_bits_per_s", 1e6, 2),
    // Percent.
    ("of limit", "ratio_to_limit", 0.01, 1),
    ("of best path", "ratio_to_best_path", 0.01, 1),
    ("longest gap ms", "gap_ms_max", 1.0, 0),
    ("back after ms", "back_ms_max", 1.0, 0),
    ("not back", "returns_missed", 1.0, 0),
    ("queue p95 ms", "queue_ms_p95", 1.0, 2),
    ("dropped", "line_dropped_packets", 1.0, 0),
    ("lost", "line_lost_packets", 1.0, 0),
    ("host dropped", "host_dropped_packets", 1.0, 0),
    ("late p99 µs", "late_us_p99", 1.0, 0),
    ("emulator", "emulator_cpu", 1.0, 2),
];
/// Columns of words: heading and key.
const WORDS: [(&str, &str); 4] =
    [("case", "case"), ("transport", "transport"), ("mode", "mode"), ("paths", "used_paths")];
/// The column that marks disturbed rows, and its heading.
const DISTURBED: (&str, &str) = ("host", "disturbed");

/// A table of the page.
struct Table<'a> {
    headings: Vec<&'a str>,
    rows: Vec<Row<'a>>,
}

/// A row of a table.
struct Row<'a> {
    /// Its place in the results.
    place: usize,
    class: &'a str,
    /// Key and text of each cell.
    cells: Vec<(&'a str, &'a str)>,
}

/// Returns what lies between two texts, each time.
fn all_between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.split_once(after).map(|(found, _)| found)).collect()
}

fn tables(page: &str) -> Vec<Table<'_>> {
    let tables = all_between(page, "<table><thead>", "</table>");
    tables
        .into_iter()
        .map(|table| {
            let (head, body) = table.split_once("</thead>").expect("a head");
            let headings = head.split("<th").skip(1).map(text_of).collect();
            let rows = body.split("<tr data-row=\"").skip(1).map(|row| {
                let (place, row) = row.split_once('"').expect("a number");
                let (class, row) = row.split_once('>').expect("an element");
                let cells = row.split(" data-key=\"").skip(1);
                let cells = cells.map(|cell| (cell.split('"').next().unwrap_or_default(), text_of(cell)));
                Row { place: place.parse().expect("a number"), class, cells: cells.collect() }
            });
            Table { headings, rows: rows.collect() }
        })
        .collect()
}

/// Returns the text of an element whose start is cut off within its first tag.
fn text_of(element: &str) -> &str {
    let (_, rest) = element.split_once('>').expect("the end of a tag");
    rest.split('<').next().unwrap_or_default()
}

/// Returns a number with so many digits after its point, and the digits before it in groups of three if there are none after.
fn formatted(value: f64, digits: usize) -> String {
    let plain = format!("{value:.digits$}");
    if digits > 0 {
        return plain;
    }
    let mut out = String::new();
    for (place, digit) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns the text that a row must have under a key.
fn expected(row: &Value, key: &str) -> String {
    if WORDS.iter().any(|(_, other)| *other == key) {
        return row[key].as_str().unwrap_or_default().to_owned();
    }
    if key == DISTURBED.1 {
        return if row[key] == true { row["disturbed_by"].as_str().expect("a reason") } else { "" }
            .to_owned();
    }
    let column = COLUMNS.iter().find(|(_, other, ..)| *other == key);
    let (_, _, divisor, digits) = column.unwrap_or_else(|| panic!("{key} is a column without a test"));
    let unit = if *divisor == 0.01 { " %" } else { "" };
    row[key].as_f64().map(|value| formatted(value / divisor, *digits) + unit).unwrap_or_default()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("room");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().expect("a type").is_dir() {
            true => copy_folder(&from, &to),
            false => fs::copy(from, to).map(drop).expect("room"),
        }
    }
}

/// Returns the page of the stored results, and their rows.
fn page(name: &str) -> (String, Vec<Value>) {
    let folder = Folder::new(name);
    let out = folder.file("results");
    copy_folder(Path::new(RESULTS), &out);
    let (output, said) = output(&mut lab(None, &["report", out.to_str().expect("ours")]));
    assert!(output.status.success(), "{said}");
    let rows = fs::read(out.join("results.json")).expect("ours");
    let page = fs::read_to_string(out.join("report.html")).expect("written");
    (page, serde_json::from_slice(&rows).expect("JSON"))
}

#[test]
fn every_cell_of_the_report_is_the_number_of_the_json_in_the_unit_of_its_heading() {
    let (page, rows) = page("cells");
    let tables = tables(&page);
    let experiments: BTreeSet<_> = rows.iter().filter_map(|row| row["experiment"].as_str()).collect();
    assert_eq!(tables.len(), experiments.len(), "a table for each experiment");
    let (mut places, mut filled) = (Vec::new(), BTreeSet::new());
    for table in tables {
        for Row { place, class, cells } in table.rows {
            let row = &rows[place];
            assert_eq!(class.contains("published"), row["published"] == true, "{row}");
            let keys: Vec<&str> = cells.iter().map(|(key, _)| *key).collect();
            let headings = keys.iter().map(|key| match COLUMNS.iter().find(|(_, other, ..)| other == key) {
                Some((heading, ..)) => heading,
                None if *key == DISTURBED.1 => DISTURBED.0,
                None => WORDS.iter().find(|(_, other)| other == key).map_or(key, |(heading, _)| heading),
            });
            assert_eq!(table.headings, headings.collect::<Vec<_>>());
            for (key, text) in cells {
                assert_eq!(text, expected(row, key), "{key} of {row}");
                if !text.is_empty() {
                    filled.insert(key);
                }
            }
            // A number that the row has is in the table.
            for (_, key, ..) in COLUMNS.iter().filter(|(_, key, ..)| row[*key].is_number()) {
                assert!(keys.contains(key), "{key} of {row}");
            }
            places.push(place);
        }
    }
    assert_eq!(places, (0..rows.len()).collect::<Vec<_>>(), "each row once");
    let words = WORDS.iter().map(|(_, key)| *key);
    let all = COLUMNS.iter().map(|(_, key, ..)| *key).chain(words).chain([DISTURBED.1]);
    assert_eq!(filled, all.collect(), "the stored results fill each column");
    assert!(
        page.contains("<p>paths: 2 is 10mbit,90us,down=10s/20s,queue=64000B</p>"),
        "the lines of flapping"
    );
}

#[test]
fn numbers_are_formatted_as_people_read_them() {
    assert_eq!(expected(&serde_json::json!({"ratio_to_limit": 0.9675}), "ratio_to_limit"), "96.8 %");
    assert_eq!(expected(&serde_json::json!({"latency_us": 1773.5}), "latency_us"), "1.774");
    assert_eq!(
        expected(&serde_json::json!({"messages_in_10_s": 98_183_174}), "messages_in_10_s"),
        "98,183,174"
    );
    assert_eq!(expected(&serde_json::json!({"gap_ms_max": 116.4}), "gap_ms_max"), "116");
}

#[test]
fn the_figures_of_strsctp_show_the_rows_of_the_json_beside_the_published_tables() {
    let (page, rows) = page("strsctp");
    let of_ours = |row: &&Value| row["experiment"] == "strsctp" && row["published"] == false;
    let ours: Vec<&Value> = rows.iter().filter(of_ours).collect();
    assert_eq!(ours.len(), 3 * 4, "three sizes of four transports");
    for row in ours {
        let (name, bytes) = (row["transport"].as_str().expect("a name"), &row["message_bytes"]);
        let bits_per_s = row["bits_per_s"].as_f64().expect("a rate");
        let messages_per_s = bits_per_s / 8.0 / bytes.as_f64().expect("a size");
        let bytes = formatted(bytes.as_f64().expect("a size"), 0);
        let words = format!("<title>{name}, {bytes} bytes: {} messages/s", formatted(messages_per_s, 0));
        // The four figures alone, and beside each of six machines with one processor.
        assert_eq!(page.matches(&words).count(), 4 * 7, "{words}");
    }
    // 985,536 messages in 10 s, table 1 of the paper.
    let published = "<title>2007 sctp, XTI, 1 bytes: 98,554 messages/s, 0.79 Mbit/s, 10.1 µs a message, 2.30 times tcp</title>";
    let found = page.split("<title>2007 sctp, XTI, 1 bytes: ").skip(1).map(|rest| &rest[..80]);
    assert_eq!(page.matches(published).count(), 4, "{:?}", found.collect::<Vec<_>>());
    for number in (4..=23).chain(28..=31) {
        assert_eq!(page.matches(&format!("<h3>Figure {number}: ")).count(), 1, "{number}");
    }
    assert!(!page.contains("<h3>Figure 24: "), "nothing was measured on two processors");
}
