//! `swiftwater trace`, and the trace files that `--qlog` writes.
//!
//! | file | part |
//! |---|---|
//! | `file` | a file that is written while a program runs |
//! | `writer` | records of the protocol core as qlog |
//! | `schema`, `names` | what stands in a file |
//! | `reader` | the same read again |
//! | `show` | events as lines |
//! | `plot` | figures |

pub(crate) mod args;
pub(crate) mod file;
pub(crate) mod names;
mod plot;
mod reader;
mod schema;
mod show;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::failure::EXIT_USAGE;
use crate::output::OutputError;
use args::{PlotArgs, Select, ShowArgs, TraceCommand};
use reader::{Entry, ReadError};

/// Error of the command.
#[derive(Debug, Error)]
pub(crate) enum TraceError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No event is left to show.
    #[error("no event of {path} is left by these options; `swiftwater trace show {path}` prints all", path = path.display())]
    NothingSelected { path: PathBuf },
    /// The wanted time ends before it begins.
    #[error("--from {from} is later than --to {to}; exchange them")]
    EmptyTime {
        /// Wanted start, in seconds.
        from: f64,
        /// Wanted end, in seconds.
        to: f64,
    },
    /// There is no event of that name.
    #[error("there is no event `{0}`; the names are {names}", names = show::NAMES.join(", "))]
    NoSuchEvent(String),
    /// The name of the output has no known suffix.
    #[error("cannot tell what to write from the name {path}; end it with .svg or .html", path = path.display())]
    Format { path: PathBuf },
    /// Standard output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The figure cannot be written.
    #[error("cannot write {path}: {source}; choose another file with --output", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl TraceError {
    /// Returns the exit status for errors that have one of their own.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        matches!(self, TraceError::EmptyTime { .. }).then_some(EXIT_USAGE)
    }
}

/// Runs the command.
pub(crate) fn run(command: &TraceCommand) -> Result<(), TraceError> {
    let (TraceCommand::Plot(PlotArgs { select, .. }) | TraceCommand::Show(ShowArgs { select, .. })) = command;
    select.check()?;
    match command {
        TraceCommand::Plot(args) => plot::run(args),
        TraceCommand::Show(args) => show::run(args, &mut io::stdout().lock()),
    }
}

impl Select {
    /// Fails if no moment is between its start and its end.
    fn check(&self) -> Result<(), TraceError> {
        match (self.from, self.to) {
            (Some(from), Some(to)) if from > to => Err(TraceError::EmptyTime { from, to }),
            _ => Ok(()),
        }
    }

    fn takes(&self, entry: &Entry) -> bool {
        self.association.as_ref().is_none_or(|tag| tag.eq_ignore_ascii_case(&entry.group))
            && self.path.is_none_or(|path| entry.path.as_deref() == Some(path.to_string().as_str()))
            && self.from.is_none_or(|from| entry.time_s >= from)
            && self.to.is_none_or(|to| entry.time_s <= to)
    }
}
