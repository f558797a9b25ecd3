//! Failures of commands.

use crate::output::OutputError;

/// Reason for which a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The results cannot be written.
    Output(OutputError),
    /// Any other reason, as a sentence for the user.
    Said(String),
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        Failure::Output(error)
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Failure::Said(sentence)
    }
}
