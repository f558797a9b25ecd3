//! `swiftwater lab`: experiments on simulated networks, compared with published results.

mod archive;
pub(crate) mod args;
mod bar;
mod case_names;
#[cfg(test)]
mod index;
pub(crate) mod line;
mod list;
mod live;
mod page;
mod paths;
mod report;
mod row;
mod virtual_run;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ::lab::experiment;
use clap::ValueEnum as _;
use netsim::CaptureError;
use thiserror::Error;

use crate::failure::{EXIT_USAGE, without_numbers};
use crate::interrupt;
use crate::output::{OutputError, note};
use crate::run::{EXIT_NO_PROGRAM, EXIT_NOT_EXECUTABLE};
use crate::trace::file::TraceFileError;
use args::{LabArgs, LabCommand, LiveName, Misplaced};
use bar::progress_bar;
use live::LiveError;

/// Steps of the progress bar for each case.
const STEPS: u64 = 1000;

/// Error of an experiment.
#[derive(Debug, Error)]
pub(crate) enum LabError {
    /// There is no such experiment.
    #[error("there is no experiment `{0}` on a virtual clock; {advice}", advice = advice_for_unknown(.0))]
    Unknown(String),
    /// No case has such a name.
    #[error("no case of {experiment} has `{wanted}` in its name; they are: {names}")]
    NoCase { experiment: &'static str, wanted: String, names: String },
    /// An option is of the other kind of experiments.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    /// Ctrl-C cannot be caught.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(#[from] interrupt::ListenError),
    /// A file cannot be written.
    #[error("cannot write {}: {reason}; {advice}", path.display())]
    Write { path: PathBuf, reason: String, advice: &'static str },
    /// The folder for results has a file of others under a name of the laboratory's.
    #[error("{} is not of `swiftwater lab --live NAME --out DIR`, which would overwrite it; name another folder", path.display())]
    Foreign { path: PathBuf },
    /// Two hosts in real time failed.
    #[error(transparent)]
    Line(line::LineError),
    /// A live experiment failed.
    #[error(transparent)]
    Live(#[from] live::LiveError),
    /// The page cannot be made.
    #[error(transparent)]
    Report(#[from] report::ReportError),
    /// A trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// The results cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl From<line::LineError> for LabError {
    /// Keeps failures of the output apart.
    fn from(error: line::LineError) -> Self {
        match error {
            line::LineError::Output(error) => LabError::Output(error),
            error => LabError::Line(error),
        }
    }
}

impl LabError {
    /// Returns the exit status for errors that have one of their own.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        match self {
            // Options that do not exist have this status, too.
            LabError::Unknown(_)
            | LabError::NoCase { .. }
            | LabError::Misplaced(_)
            | LabError::Live(LiveError::NoCase(_) | LiveError::BeforeOutage(_)) => Some(EXIT_USAGE),
            LabError::Line(error) if error.is_usage() => Some(EXIT_USAGE),
            LabError::Line(line::LineError::Program { source, .. }) => {
                let is_missing = source.kind() == io::ErrorKind::NotFound;
                Some(if is_missing { EXIT_NO_PROGRAM } else { EXIT_NOT_EXECUTABLE })
            }
            _ => None,
        }
    }
}

/// Returns what to do about a name that no experiment on a virtual clock has.
fn advice_for_unknown(name: &str) -> String {
    if LiveName::from_str(name, false).is_ok() {
        return format!("it is in real time: --live {name}");
    }
    let names: Vec<_> = experiment::ALL.iter().map(|experiment| experiment.name).collect();
    format!("they are: {}", names.join(", "))
}

/// Runs the command.
pub(crate) fn run(args: &LabArgs) -> Result<(), LabError> {
    match &args.command {
        Some(LabCommand::Line(command)) => return Ok(line::run(command)?),
        Some(LabCommand::Report(args)) => return Ok(report::run(args)?),
        None => {}
    }
    args.check_options()?;
    if args.list {
        let mut json = args.json.open()?;
        let all = list::all();
        return Ok(json.write_beside(&list::text(&all), &all)?);
    }
    if let Some(name) = args.live {
        return live::session::run(name, args);
    }
    virtual_run::run(args)
}

/// Tells the user what Ctrl-C has left of the figures.
fn tell_interruption(has_figures: bool) {
    if interrupt::requested() {
        let what =
            if has_figures { "these figures are of the time until then" } else { "nothing was measured" };
        note(format_args!("interrupted: {what}"));
    }
}

fn write_error(path: &Path, error: &(dyn std::error::Error + 'static)) -> LabError {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let cause = causes.filter_map(|error| error.downcast_ref::<io::Error>()).next();
    // The error of a capture has an advice of its own.
    let reason =
        cause.filter(|_| error.is::<CaptureError>()).map_or_else(|| error.to_string(), io::Error::to_string);
    let advice = match cause.map(io::Error::kind) {
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) => {
            "make room there, or choose another place"
        }
        Some(ErrorKind::DirectoryNotEmpty) => "remove them, or choose another place",
        Some(ErrorKind::InvalidData) => "remove it, or choose another place",
        Some(ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => {
            "a file or a link has the name of a folder: choose another place"
        }
        _ => "choose another place",
    };
    LabError::Write { path: path.to_owned(), reason, advice }
}

/// Returns the first of several failures, which decides the status of the command, and tells the user of the others.
fn first_failure(failures: impl IntoIterator<Item = LabError>) -> Result<(), LabError> {
    let mut failures = failures.into_iter();
    let first = failures.next();
    failures.for_each(|error| note(format_args!("swiftwater: {}", without_numbers(&error.to_string()))));
    first.map_or(Ok(()), Err)
}
