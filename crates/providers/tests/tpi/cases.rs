//! Checks the tables of tests by group in `docs/streams.md` (conformance cases in addition to those of Fast-STREAMS).

use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Counts the tests of a file, whose first lines must name its clauses.
fn count_tests(file: &Path) -> usize {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let header: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let tests = text.lines().filter(|line| line.trim() == "#[test]").count();
    assert!(tests == 0 || header.contains('('), "{} names no clause", file.display());
    tests
}

/// Each row has the number of tests in its files, and each file with tests is in one row.
#[test]
fn the_documentation_counts_the_tests_of_each_group() {
    let folders =
        ["streams/tests/streams", "providers/tests/tpi", "tpi/tests"].map(|folder| crates().join(folder));
    let text = fs::read_to_string(crates().join("../docs/streams.md")).unwrap();
    let tables = text.split("## Cases by group\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| group"));
    let (mut listed, mut sum) = (Vec::new(), 0);
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let expected: usize = cells[1].parse().unwrap();
        if cells[0].starts_with("all, ") {
            assert_eq!(std::mem::take(&mut sum), expected, "{row}");
            continue;
        }
        let names = cells[2].split('`').skip(1).step_by(2).filter(|name| *name != "tpi");
        let find = |name: &str| {
            let mut files = folders.iter().map(|folder| folder.join(format!("{name}.rs")));
            files.find(|file| file.is_file()).unwrap_or_else(|| panic!("no tests {name}"))
        };
        let files: Vec<PathBuf> = names.map(find).collect();
        assert_eq!(files.iter().map(|file| count_tests(file)).sum::<usize>(), expected, "{row}");
        sum += expected;
        listed.extend(files);
    }
    let all = folders.iter().flat_map(|folder| folder.read_dir().unwrap()).map(|entry| entry.unwrap().path());
    for file in all.filter(|file| !file.ends_with("cases.rs")) {
        let is_listed = listed.iter().filter(|other| **other == file).count();
        assert_eq!(is_listed, usize::from(count_tests(&file) > 0), "{}", file.display());
    }
}
