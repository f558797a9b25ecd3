//! Failures of commands.

use crate::output::OutputError;

/// Exit status for arguments that cannot be used.
pub(crate) const EXIT_USAGE: u8 = 2;

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

/// Returns a sentence without the numbers of errors of the system, which tell a user nothing beside their names.
pub(crate) fn without_numbers(sentence: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut parts = sentence.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((_, rest)) => out += rest,
            None => out += part,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_names_and_no_numbers() {
        let error = std::io::Error::from_raw_os_error(2);
        let sentence = format!("cannot read a: {error}; or b: {error}");
        let expected = "cannot read a: No such file or directory; or b: No such file or directory";
        assert_eq!(without_numbers(&sentence), expected);
        assert_eq!(without_numbers("nothing was measured (so far)"), "nothing was measured (so far)");
    }
}
