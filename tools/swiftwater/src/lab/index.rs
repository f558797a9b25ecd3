//! Tests that `docs/published/INDEX.md` has a command for every published figure and table.

use clap::Parser;

use super::args::LabArgs;
use crate::args::{Cli, Command};

const INDEX: &str = include_str!("../../../../docs/published/INDEX.md");
/// Drawings of software, without measurements.
const DRAWINGS: [&str; 3] = ["Figure 1: Sockets", "Figure 2: XTI over Sockets", "Figure 3: STREAMS sctp"];

/// Returns the rows of the table: document, figure or table, command and file.
fn rows() -> Vec<[&'static str; 4]> {
    let cells = |line: &'static str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        <[&str; 4]>::try_from(cells).ok()
    };
    INDEX.lines().filter(|line| line.starts_with('|')).skip(2).filter_map(cells).collect()
}

/// Returns the names that the documents give to their figures and tables.
fn published() -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let mut add =
        |document, names: &[&str]| all.extend(names.iter().map(|&name| (document, name.to_owned())));
    add("OpenSS7", &["Diagram", "Table: SCTP vs TCP", "Graph: SCTP vs TCP", "Table: SCTP SOCK_SEQPACKET"]);
    add("OpenSS7", &["Graph: SCTP SOCK_SEQPACKET"]);
    add("Dissertation", &["Table: Throughput", "Table: Latency"]);
    add("DataTAG", &["Table: transfer and bandwidth"]);
    add("sctplib", &["Figure 1:", "Graph: rate of scp", "Counters: ipfw show"]);
    add("sctplib", &["Result 3.1:", "Result 3.2:", "Result 4.1:", "Result 4.2:", "Result 7.1:"]);
    all.extend((0..=5).map(|number| ("DataTAG", format!("Graph 1.{number}:"))));
    all.extend((1..=31).map(|number| ("STREAMS vs. Sockets", format!("Figure {number}:"))));
    all.extend((1..=7).map(|number| ("STREAMS vs. Sockets", format!("Table {number}:"))));
    all
}

#[test]
fn every_published_figure_and_table_has_a_command() {
    let rows = rows();
    for (document, name) in published() {
        let found = rows.iter().filter(|[of, what, ..]| of.starts_with(document) && what.starts_with(&name));
        assert_eq!(found.count(), 1, "{document}: {name}");
    }
    assert_eq!(rows.len(), published().len(), "a row is of no known figure");
}

#[test]
fn every_command_of_the_index_is_one() {
    for [_, what, commands, _] in rows() {
        if DRAWINGS.iter().any(|drawing| what.starts_with(drawing)) {
            assert_eq!(commands, "none: a drawing of software", "{what}");
            continue;
        }
        for command in commands.trim_matches('`').split(" && ") {
            let cli = Cli::try_parse_from(words(command)).unwrap_or_else(|error| panic!("{what}: {error}"));
            match cli.command {
                // A command that selects a case no cell has would measure nothing.
                Command::Lab(LabArgs { live: Some(name), case, .. }) => {
                    assert_has(name, case.as_deref(), what)
                }
                Command::Lab(LabArgs { command: Some(_), .. }) | Command::Bench(_) => {}
                _ => panic!("{what}: `{command}` measures nothing"),
            }
        }
    }
}

fn assert_has(name: super::args::LiveName, case: Option<&str>, what: &str) {
    let cells = super::live::cell_names(name);
    let case = case.unwrap_or_default();
    assert!(cells.iter().any(|cell| cell.contains(case)), "{what}: no cell has `{case}` in {cells:?}");
}

#[test]
fn every_file_of_the_folder_is_in_the_index() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/published");
    for entry in std::fs::read_dir(folder).expect("the folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name == "INDEX.md" || INDEX.contains(&format!("({name})")), "{name}");
    }
}

/// Splits a command as a shell does, if quotes enclose whole words.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('\'').enumerate();
    parts
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        })
        .collect()
}
