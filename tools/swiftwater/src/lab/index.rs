//! Tests that `docs/published/INDEX.md` has a command for every figure and table of `docs/published/captions.txt`.

use clap::Parser;

use super::args::{LabArgs, LabCommand, LiveName};
use super::line::args::LineCommand;
use super::line::spec::PathSpec;
use crate::args::{Cli, Command};
use crate::bench::published;

const INDEX: &str = include_str!("../../../../docs/published/INDEX.md");
/// The captions of each document under its name, word for word.
const CAPTIONS: &str = include_str!("../../../../docs/published/captions.txt");
/// Drawings of software, without measurements.
const DRAWINGS: [&str; 3] = ["Figure 1: Sockets", "Figure 2: XTI over Sockets", "Figure 3: STREAMS sctp"];
/// The document whose figures 4 to 31 have a machine each four.
const STRSCTP: &str = "STREAMS vs. Sockets for SCTP (2007)";

/// Returns the rows of the table: document, figure or table, command and file.
fn rows() -> Vec<[&'static str; 4]> {
    let cells = |line: &'static str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        <[&str; 4]>::try_from(cells).unwrap_or_else(|cells| panic!("a row has four cells, not {cells:?}"))
    };
    INDEX.lines().filter(|line| line.starts_with('|')).skip(2).map(cells).collect()
}

/// Returns each caption with its document.
fn captions() -> Vec<(&'static str, &'static str)> {
    let mut document = "";
    let mut all = Vec::new();
    for line in CAPTIONS.lines() {
        match line.strip_prefix("## ") {
            Some(name) => document = name,
            None if line.is_empty() || line.starts_with("# ") => {}
            None => all.push((document, line)),
        }
    }
    all
}

/// Returns the commands of a row of the table.
fn commands(cell: &'static str) -> impl Iterator<Item = (&'static str, Command)> {
    cell.trim_matches('`').split(" && ").map(|command| {
        let cli = Cli::try_parse_from(shlex::split(command).expect("whole quotes"));
        (command, cli.unwrap_or_else(|error| panic!("`{command}`: {error}")).command)
    })
}

#[test]
fn every_published_figure_and_table_has_a_command() {
    let indexed: Vec<(&str, &str)> =
        rows().into_iter().map(|[document, what, ..]| (document, what)).collect();
    assert_eq!(indexed, captions());
    // The documents number their figures without a gap.
    for number in 1..=31 {
        let name = format!("Figure {number}: ");
        let found = captions().into_iter().filter(|(of, what)| *of == STRSCTP && what.starts_with(&name));
        assert_eq!(found.count(), 1, "{name}");
    }
}

#[test]
fn every_command_of_the_index_measures_as_the_document_did() {
    for [document, what, cell, _] in rows() {
        if DRAWINGS.iter().any(|drawing| what.starts_with(drawing)) {
            assert_eq!(cell, "none: a drawing of software", "{what}");
            continue;
        }
        let mut kept = None;
        for (text, command) in commands(cell) {
            match command {
                Command::Lab(LabArgs { live: Some(name), case, seconds, quick, out, .. }) => {
                    // The duration and the load of an experiment are those of its document.
                    assert!(seconds.is_none() && !quick, "{what}: `{text}` is shorter");
                    assert_has(name, case.as_deref(), what);
                    kept = out;
                }
                Command::Lab(LabArgs { command: Some(LabCommand::Report(report)), .. }) => {
                    assert_eq!(kept, Some(report.folder), "{what}: `{text}` draws another folder");
                }
                // A drawing of the lines.
                Command::Lab(LabArgs {
                    command: Some(LabCommand::Line(LineCommand::Check(check))), ..
                }) => {
                    let lines = |path: &PathSpec| (path.pipe.clone(), path.mtu_bytes);
                    let checked: Vec<_> = check.line.paths.iter().map(lines).collect();
                    let measured = experiments(document).into_iter().flat_map(super::live::lines);
                    let mut measured = measured.map(|paths| paths.iter().map(lines).collect::<Vec<_>>());
                    assert!(measured.any(|paths| paths == checked), "{what}: `{text}` has other lines");
                }
                // `bench` has buffers and durations of its own.
                _ => panic!("{what}: `{text}` is another measurement"),
            }
        }
    }
}

/// Returns the live experiments that the rows of a document name.
fn experiments(document: &str) -> Vec<LiveName> {
    let rows = rows().into_iter().filter(|[of, _, cell, _]| *of == document && cell.starts_with('`'));
    rows.flat_map(|[_, _, cell, _]| commands(cell))
        .filter_map(|(_, command)| match command {
            Command::Lab(args) => args.live,
            _ => None,
        })
        .collect()
}

/// Fails if no cell has such a name: the command would measure nothing.
fn assert_has(name: LiveName, case: Option<&str>, what: &str) {
    let cells = super::live::cell_names(name);
    let case = case.unwrap_or_default();
    assert!(cells.iter().any(|cell| cell.contains(case)), "{what}: no cell has `{case}` in {cells:?}");
}

#[test]
fn every_figure_of_a_machine_is_drawn_from_a_run_on_so_many_processors() {
    let kinds = ["Performance", "Delay", "Throughput", "Comparison"];
    for machine in published::machines() {
        for (number, kind) in (machine.first_figure..).zip(kinds) {
            let name = format!("Figure {number}: ");
            let [_, what, cell, _] = rows().into_iter().find(|row| row[1].starts_with(&name)).expect("a row");
            assert!(what.ends_with(kind), "{what} is no {kind}");
            let commands: Vec<Command> = commands(cell).map(|(_, command)| command).collect();
            let [Command::Lab(run), Command::Lab(LabArgs { command: Some(LabCommand::Report(report)), .. })] =
                &commands[..]
            else {
                panic!("{what}: {commands:?}")
            };
            assert_eq!(run.live, Some(LiveName::Strsctp), "{what}");
            assert_eq!(run.out.as_ref(), Some(&report.folder), "{what}");
            let plural = if machine.processors == 1 { "" } else { "s" };
            let case = format!("{} processor{plural}", machine.processors);
            assert_eq!(run.case, Some(case), "{what} of {}", machine.name);
        }
    }
}

#[test]
fn every_file_of_the_folder_is_in_the_index() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/published");
    for entry in std::fs::read_dir(folder).expect("the folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name == "INDEX.md" || INDEX.contains(&format!("({name})")), "{name}");
    }
}
