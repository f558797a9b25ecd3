//! Standard output and standard error, in one way for all commands.
//!
//! If the reader has gone, such as `head`, the command ends quietly, with the status that a shell reports of a program that
//! SIGPIPE ended. A full device ends it with an error message. Failures of standard error never end a command.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use thiserror::Error;

use crate::result_file::ResultFile;

/// Exit status of a command whose reader has gone: 128 and the number of SIGPIPE.
pub(crate) const EXIT_CLOSED: u8 = 141;
/// Name that stands for standard output as a file.
const STANDARD_OUTPUT: &str = "-";

/// Error of writing results.
#[derive(Debug, Error)]
pub(crate) enum OutputError {
    /// The reader of standard output has gone.
    #[error("the reader of standard output has closed it")]
    Closed,
    /// The system refused.
    #[error("cannot write to standard output: {0}")]
    System(io::Error),
    /// A value is no JSON.
    #[error("the results cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The file that `--json` names cannot be written.
    #[error("cannot write {path}: {source}; choose another file with --json=FILE", path = path.display())]
    File { path: PathBuf, source: io::Error },
}

impl From<io::Error> for OutputError {
    /// Converts an error of standard output.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => OutputError::Closed,
            _ => OutputError::System(error),
        }
    }
}

/// Prints results.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a line for the user beside the results. Ignores failures: standard error may be closed.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// `--json`, common to all commands.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct JsonArgs {
    /// Print one JSON array in place of text; with =FILE, write it there and print the text, too (its keys:
    /// json.md in share/doc/swiftwater).
    #[arg(
        long = "json",
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = STANDARD_OUTPUT
    )]
    pub to: Option<PathBuf>,
}

impl JsonArgs {
    /// Opens the file, if one is named, so that a long command fails early.
    pub(crate) fn open(&self) -> Result<Json, OutputError> {
        match self.to.as_deref() {
            None => Ok(Json::Unwanted),
            Some(path) if path.as_os_str() == STANDARD_OUTPUT => Ok(Json::InPlaceOfText),
            Some(path) => Json::file(path),
        }
    }
}

/// Destination of a command's JSON.
#[derive(Debug)]
pub(crate) enum Json {
    /// Nowhere.
    Unwanted,
    /// To standard output, where nothing else may be printed.
    InPlaceOfText,
    /// Into a file, beside the text.
    File(ResultFile),
}

impl Json {
    /// Opens a file for the JSON in a folder that exists.
    pub(crate) fn file(path: &Path) -> Result<Json, OutputError> {
        Self::opened(path, ResultFile::open(path))
    }

    /// Opens a file for the JSON, and makes its folder.
    pub(crate) fn file_with_folder(path: &Path) -> Result<Json, OutputError> {
        Self::opened(path, ResultFile::open_with_folders(path))
    }

    fn opened(path: &Path, file: io::Result<ResultFile>) -> Result<Json, OutputError> {
        file.map(Json::File).map_err(|source| OutputError::File { path: path.to_owned(), source })
    }

    /// Returns whether standard output is for the text.
    pub(crate) fn leaves_text(&self) -> bool {
        !matches!(self, Json::InPlaceOfText)
    }

    /// Prints the text, unless the array stands in its place, and writes the array. A file that cannot be written costs
    /// no text, and a reader of the text that has gone costs no file.
    pub(crate) fn write_beside(&mut self, text: &str, rows: &impl Serialize) -> Result<(), OutputError> {
        let printed = self.print_beside(text);
        self.write(rows)?;
        printed
    }

    /// Does the same with the array on a line of its own.
    pub(crate) fn write_line_beside(&mut self, text: &str, rows: &impl Serialize) -> Result<(), OutputError> {
        let printed = self.print_beside(text);
        self.write_as(rows, serde_json::to_string)?;
        printed
    }

    fn print_beside(&self, text: &str) -> Result<(), OutputError> {
        if self.leaves_text() { print(text) } else { Ok(()) }
    }

    /// Writes an array in a readable layout.
    pub(crate) fn write(&mut self, rows: &impl Serialize) -> Result<(), OutputError> {
        self.write_as(rows, serde_json::to_string_pretty)
    }

    /// Prints an empty array in place of text, if there are no results. A file keeps those of before.
    pub(crate) fn write_nothing(&mut self) -> Result<(), OutputError> {
        if self.leaves_text() { Ok(()) } else { self.write(&[(); 0]) }
    }

    fn write_as<R: Serialize>(
        &mut self,
        rows: &R,
        encode: fn(&R) -> serde_json::Result<String>,
    ) -> Result<(), OutputError> {
        match self {
            Json::Unwanted => Ok(()),
            Json::InPlaceOfText => print(&(encode(rows)? + "\n")),
            Json::File(file) => {
                let text = encode(rows)? + "\n";
                let written = file.write_all(text.as_bytes());
                written.map_err(|source| OutputError::File { path: file.path().to_owned(), source })
            }
        }
    }
}
