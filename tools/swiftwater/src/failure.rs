//! Failures of commands.

use crate::attack::AttackError;
use crate::bench::BenchError;
use crate::lab::LabError;
use crate::neighbours::NeighboursError;
use crate::output::OutputError;
use crate::perf::PerfError;
use crate::trace::TraceError;

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

/// Converts errors of a command, keeping failures of the output apart.
macro_rules! from_errors_with_output {
    ($($error:ident),+) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                match error {
                    $error::Output(error) => Failure::Output(error),
                    error => Failure::Said(error.to_string()),
                }
            }
        }
    )+};
}

from_errors_with_output!(AttackError, BenchError, LabError, NeighboursError, PerfError, TraceError);
