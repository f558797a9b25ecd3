//! Failures of commands.

use crate::output::OutputError;

/// Reason for which a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The results cannot be written.
    Output(OutputError),
    /// Any other reason, as a sentence for the user.
    Said(String),
    /// A reason with an exit status of its own: wrong arguments, or a program that could not be executed.
    WithStatus(String, u8),
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
