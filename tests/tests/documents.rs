//! The documents name source files that exist, limits where they are defined, and all statistics; the README has the rates of
//! docs/benchmarks.md; prose is wrapped.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders with source files that documents name.
const SOURCES: [&str; 3] = ["crates", "tests", "tools"];

/// Documents outside of `docs` that describe the present code.
const OTHER_DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "README.md"];

/// Further documents outside of `docs`.
const UNCHECKED_DOCUMENTS: [&str; 2] = ["CHANGELOG.md", "SECURITY.md"];

/// Largest number of characters in a line of prose, as of a comment (`./test fmt`).
const PROSE_LINE_MAX: usize = 130;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the files in a folder whose names end so, with their texts.
fn files(folder: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|own| own == extension) {
            let text = fs::read_to_string(&path).expect("text");
            found.push((path, text));
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in SOURCES {
        files(&project().join(folder), "rs", &mut found);
    }
    found
}

/// Returns the documents in `docs`, and these of the project's folder.
fn documents(others: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    files(&project().join("docs"), "md", &mut found);
    found.extend(others.iter().map(|name| {
        let path = project().join(name);
        let text = fs::read_to_string(&path).expect("the document");
        (path, text)
    }));
    found
}

/// Returns the paragraphs of a document without its blocks of code, each as alternating prose and code.
fn paragraphs(document: &str) -> Vec<Vec<String>> {
    let mut paragraphs = vec![String::new()];
    let mut is_block = false;
    for line in document.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        if is_fence || is_block || line.trim().is_empty() {
            paragraphs.push(String::new());
        } else if let Some(last) = paragraphs.last_mut() {
            *last += line.trim();
            last.push(' ');
        }
    }
    paragraphs.iter().map(|paragraph| paragraph.split('`').map(str::to_owned).collect()).collect()
}

fn is_source(code: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_/.".contains(c);
    code.ends_with(".rs") && code.chars().all(is_part)
}

fn is_constant(code: &str) -> bool {
    code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Returns whether this prose says that what stands before it is in the file behind it: "of", "in", "of the core's".
fn says_where(prose: &str) -> bool {
    let mut words = prose.split_whitespace();
    matches!(words.next(), Some("of" | "in")) && words.all(|word| word == "the" || word.ends_with("'s"))
}

/// Returns the constants that a paragraph names in front of the source file at `place`: "`A`, `B` and `C` of `file.rs`".
fn constants_of(parts: &[String], place: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut before = place;
    while before >= 2 {
        let (code, prose) = (&*parts[before - 2], &*parts[before - 1]);
        let joins = if before == place { says_where(prose) } else { matches!(prose, ", " | " and ") };
        if !joins || !is_constant(code) {
            break;
        }
        found.push(code);
        before -= 2;
    }
    found
}

/// Returns what a document says about the sources that is not so.
fn mistakes(document: &str, sources: &[(PathBuf, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for parts in paragraphs(document) {
        for (place, file) in parts.iter().enumerate().skip(1).step_by(2).filter(|(_, code)| is_source(code)) {
            let texts: Vec<&String> =
                sources.iter().filter(|(path, _)| path.ends_with(file)).map(|(_, text)| text).collect();
            if texts.is_empty() {
                found.push(format!("no {file}"));
            }
            for constant in constants_of(&parts, place) {
                let definition = format!("const {constant}:");
                if !texts.iter().any(|text| text.contains(&definition)) {
                    found.push(format!("no {constant} in {file}"));
                }
            }
        }
    }
    found
}

#[test]
fn documents_name_files_and_limits_that_exist() {
    let sources = sources();
    for (path, text) in documents(&OTHER_DOCUMENTS) {
        assert_eq!(mistakes(&text, &sources), Vec::<String>::new(), "{}", path.display());
    }
}

/// Returns the numbers of the lines of prose that are too long. Tables, code and single words, such as links, may be long.
fn long_lines(document: &str) -> Vec<usize> {
    let mut is_block = false;
    let mut is_prose = |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        let is_table = line.trim_start().starts_with('|');
        let mut words = line.split_whitespace().filter(|word| *word != "-");
        !is_fence && !is_block && !is_table && words.nth(1).is_some()
    };
    let prose = document.lines().enumerate().filter(|(_, line)| is_prose(line));
    let long = prose.filter(|(_, line)| line.chars().count() > PROSE_LINE_MAX);
    long.map(|(place, _)| place + 1).collect()
}

#[test]
fn prose_is_wrapped() {
    for (path, text) in documents(&[OTHER_DOCUMENTS, UNCHECKED_DOCUMENTS].concat()) {
        assert_eq!(long_lines(&text), Vec::<usize>::new(), "lines of {}", path.display());
    }
    let fits = "é".repeat(PROSE_LINE_MAX - 2);
    let prose = format!("a {fits}\na {fits}é\n- é {fits}\n");
    let others = format!("| a {fits}é |\n- {fits}{fits}\n```\na {fits}é\n```\n");
    assert_eq!(long_lines(&(others + &prose)), [7, 8]);
}

/// Files whose public structs contain statistics.
const STATISTICS: [&str; 2] = ["crates/sctp/src/statistics.rs", "crates/links/src/stats.rs"];

/// Returns the public fields in a source file that a document does not name.
fn unnamed_fields<'a>(source: &'a str, document: &str) -> Vec<&'a str> {
    let fields = source.lines().filter_map(|line| line.strip_prefix("    pub ")?.split_once(':'));
    let names = fields.map(|(name, _)| name).filter(|name| !name.starts_with("const "));
    names.filter(|name| !document.contains(&format!("`{name}`"))).collect()
}

#[test]
fn all_statistics_are_explained() {
    let document = fs::read_to_string(project().join("docs/statistics.md")).expect("the document");
    for file in STATISTICS {
        let source = fs::read_to_string(project().join(file)).expect("the source");
        assert!(source.contains("    pub "), "{file} has fields");
        assert_eq!(unnamed_fields(&source, &document), Vec::<&str>::new(), "{file}");
    }
    let source = "    pub known: u64,\n    pub unknown: u64,\n    pub const ALL: u8 = 1;";
    assert_eq!(unnamed_fields(source, "`known`"), ["unknown"]);
}

/// Largest difference of a rate in the README, which may be rounded, from that in docs/benchmarks.md.
const ROUNDING: f64 = 0.03;

/// Returns the cells of a table's row.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()
}

/// Returns the message sizes, series and ratios of the README's table.
fn ratios_of_readme(readme: &str) -> Vec<(u32, &str, f64)> {
    let mut lines = readme.lines().skip_while(|line| !line.starts_with("| bytes |"));
    let series = cells(lines.next().unwrap_or_default());
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    let number = |cell: &str| cell.replace(',', "").parse::<f64>().expect("a number");
    rows.flat_map(|row| {
        let bytes = number(row[0]) as u32;
        series
            .iter()
            .zip(row)
            .skip(1)
            .map(move |(series, cell)| (bytes, *series, number(cell)))
            .collect::<Vec<_>>()
    })
    .collect()
}

/// Returns the ratio to TCP of a series in the table of `swiftwater bench`: two processors, packets of the loopback device.
fn ratio_in_bench(table: &str, bytes: u32, series: &str) -> Option<f64> {
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut rows = rows.filter(|row| row.len() > 7 && row[0] == bytes.to_string() && row[1] == series);
    let row = rows.find(|row| row[2..5] == ["65536", "2", "1"])?;
    row[7].strip_suffix('x')?.parse().ok()
}

#[test]
fn the_readme_has_the_rates_of_the_measurements() {
    let text = |name| fs::read_to_string(project().join(name)).expect("the document");
    let (readme, measurements) = (text("README.md"), text("docs/benchmarks.md"));
    let ratios = ratios_of_readme(&readme);
    assert!(ratios.len() >= 8, "the README has a table of rates");
    for (bytes, series, ratio) in ratios {
        let measured = ratio_in_bench(&measurements, bytes, series);
        let is_same = measured.is_some_and(|measured| (ratio - measured).abs() <= measured * ROUNDING);
        assert!(
            is_same,
            "{series} at {bytes} bytes: {ratio} in the README, {measured:?} in docs/benchmarks.md"
        );
    }
}

#[test]
fn a_wrong_place_is_found() {
    let sources =
        [("crates/a/src/users/file.rs".into(), "pub const LIMIT: u32 = 1;\nconst WAIT: u8 = 2;".into())];
    let mistakes = |text: &str| mistakes(text, &sources);
    for right in [
        "| `LIMIT`, `WAIT` of `file.rs` |",
        "`LIMIT` and `WAIT` of the crate's\n`users/file.rs`",
        "`OTHER`; `LIMIT` in `file.rs`",
        "`OTHER` is `file.rs`",
        "```\n`NONE` of `none.rs`\n```",
    ] {
        assert!(mistakes(right).is_empty(), "{right}");
    }
    assert_eq!(mistakes("`system/file.rs`"), ["no system/file.rs"]);
    assert_eq!(mistakes("`LIMIT`, `OTHER` and `WAIT` of\n`file.rs`"), ["no OTHER in file.rs"]);
    assert_eq!(mistakes("`LIMITS` of the crate's `file.rs`"), ["no LIMITS in file.rs"]);
}
