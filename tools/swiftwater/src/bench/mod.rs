//! `swiftwater bench`: the netperf range experiment, all transports beside each other on this machine.

pub(crate) mod args;
pub(crate) mod curve;
pub(crate) mod page;
pub(crate) mod plan;
pub(crate) mod published;
pub(crate) mod result;
pub(crate) mod run;
pub(crate) mod series;
pub(crate) mod table;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;

use crate::failure::EXIT_USAGE;
use crate::output::{Json, OutputError, note};
use crate::result_file::ResultFile;
use crate::run::find_shim_for_itself;
use crate::{host, interrupt};
use args::BenchArgs;
use plan::{Cell, Plan, PlanError};
pub(crate) use result::Conditions;
use result::{Results, Row};
use run::Runner;

const JSON_FILE: &str = "bench-out/bench.json";
const HTML_FILE: &str = "bench-out/bench.html";

/// Error of the experiment.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    /// Loopback is down.
    #[error(transparent)]
    Loopback(#[from] host::LoopbackDown),
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// This program cannot start itself.
    #[error("cannot locate the own executable: {0}")]
    Program(io::Error),
    /// Ctrl-C cannot be caught.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(#[from] interrupt::ListenError),
    /// The results cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The page cannot be written.
    #[error("cannot write {}: {source}; choose another file with --html", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Some runs failed.
    #[error("{failed} of {runs} runs failed, the first ({first}): {reason}")]
    Runs { failed: usize, runs: u64, first: String, reason: String },
}

impl BenchError {
    /// Returns the exit status for errors that have one of their own.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        matches!(self, BenchError::Plan(_)).then_some(EXIT_USAGE)
    }
}

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<(), BenchError> {
    host::check_loopback()?;
    let shim = find_shim_for_itself();
    let plan = Plan::new(args, host::allowed_processors().len(), shim.is_ok())?;
    let json = match args.json.to {
        None => Json::file_with_folder(Path::new(JSON_FILE))?,
        Some(_) => args.json.open()?,
    };
    let (path, page) = match args.html.as_deref() {
        Some(path) => (path, ResultFile::open(path)),
        None => (Path::new(HTML_FILE), ResultFile::open_with_folders(Path::new(HTML_FILE))),
    };
    let page = page.map_err(|source| BenchError::Write { path: path.to_owned(), source })?;
    interrupt::listen()?;
    if let (true, Err(reason)) = (args.series.is_empty(), &shim) {
        note(format_args!("swiftwater bench: without sctp-sockets: {reason}"));
    }
    let runner = Runner::new(shim).map_err(BenchError::Program)?;
    let mut conditions = Conditions::here(plan.seconds);
    note(format_args!(
        "swiftwater bench: {} runs of {:.2} s, about {}; Ctrl-C prints what there is so far",
        plan.runs(),
        plan.seconds,
        humantime::format_duration(Duration::from_secs(plan.total_s().ceil() as u64))
    ));
    let mut failures = Vec::new();
    let mut rows = measure(&plan, &runner, &conditions, &mut failures);
    conditions.stopped_early = interrupt::requested();
    rows.iter_mut().for_each(|row| row.stopped_early = conditions.stopped_early);
    publish(json, page, &rows, &conditions)?;
    if conditions.stopped_early {
        note(format_args!("swiftwater bench: stopped early; these are the rows so far"));
    }
    match failures.first() {
        Some((cell, reason)) => Err(BenchError::Runs {
            failed: failures.len(),
            runs: plan.runs(),
            first: name(cell),
            reason: reason.clone(),
        }),
        None => Ok(()),
    }
}

/// Measures all rows. The cells of a group take turns, and each round begins with another one.
fn measure(
    plan: &Plan,
    runner: &Runner,
    conditions: &Conditions,
    failures: &mut Vec<(Cell, String)>,
) -> Vec<Row> {
    let progress = progress_bar(plan);
    let mut rows = Vec::new();
    for group in &plan.groups {
        let mut results = Results::new(group);
        let count = group.cells.len();
        for round in 0..plan.repeat as usize {
            for turn in 0..count {
                let index = (turn + round) % count;
                if interrupt::requested() {
                    break;
                }
                let cell = &group.cells[index];
                progress.set_message(name(cell));
                let outcome = runner.run(cell, plan.seconds);
                if interrupt::requested() && outcome.is_err() {
                    break;
                }
                if let Err(error) = &outcome {
                    failures.push((*cell, error.to_string()));
                }
                results.add(index, round, outcome.ok());
                progress.inc(1);
            }
        }
        rows.extend(results.rows(conditions));
    }
    progress.finish_and_clear();
    rows
}

fn progress_bar(plan: &Plan) -> ProgressBar {
    let bar = ProgressBar::new(plan.runs());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}") {
        bar.set_style(style);
    }
    bar
}

fn name(cell: &Cell) -> String {
    let packet = cell.packet_cap.map_or_else(String::new, |bytes| format!(", packets of {bytes}"));
    let processors =
        if cell.cpus == 1 { "1 processor".to_owned() } else { format!("{} processors", cell.cpus) };
    format!(
        "{} {} bytes{packet}, {processors}, {} at a time",
        cell.series.name(),
        cell.message_bytes,
        cell.parallel
    )
}

/// Writes the table to the terminal, the array and the page. A failure to write one of them does not keep the
/// others from being written.
fn publish(
    mut json: Json,
    mut page: ResultFile,
    rows: &[Row],
    conditions: &Conditions,
) -> Result<(), BenchError> {
    let table = table::render(rows);
    if !json.leaves_text() {
        note(format_args!("{table}"));
    }
    let printed = json.write_beside(&table, &rows);
    let path = page.path().to_owned();
    let written = page.write_all(page::render(rows, conditions).as_bytes());
    written.map_err(|source| BenchError::Write { path: path.clone(), source })?;
    printed?;
    let files = match &json {
        Json::File(file) => format!("{} and ", file.path().display()),
        _ => String::new(),
    };
    note(format_args!("\nwritten: {files}{}; open the page in a browser", path.display()));
    Ok(())
}
