//! Runs that failed or that the host disturbed are measured again.

use indicatif::ProgressBar;

use super::{LiveError, Settings};
use crate::interrupt;
use crate::output::note;

/// Number of repetitions of a run that is disturbed.
const REPETITIONS_MAX: u32 = 3;
/// Number of further attempts after a run of a transport of the kernel has failed: those sometimes stop delivering.
pub(super) const ATTEMPTS_MORE: u32 = 3;

/// Measures, and again if that fails, up to `more` times. `failed` counts the runs that others replace, and the user is told of
/// each.
pub(super) fn attempt<T>(
    more: u32,
    failed: &mut u32,
    bar: &ProgressBar,
    mut measure: impl FnMut() -> Result<T, LiveError>,
) -> Result<T, LiveError> {
    for _ in 0..more {
        match measure() {
            Err(error) if error.is_of_one_measurement() && !interrupt::requested() => {
                bar.suspend(|| note(format_args!("measured again: {error}")));
                *failed += 1;
            }
            measured => return measured,
        }
    }
    measure()
}

/// Measures once, and again if the host has disturbed the run, unless the command must be quick; returns `None` after Ctrl-C.
/// `repeated` counts the runs that another one replaces.
pub(super) fn undisturbed<T>(
    settings: &Settings<'_>,
    repeated: &mut u32,
    is_disturbed: impl Fn(&T) -> bool,
    mut measure: impl FnMut() -> Result<Option<T>, LiveError>,
) -> Result<Option<T>, LiveError> {
    let repetitions = if settings.quick { 0 } else { REPETITIONS_MAX };
    for _ in 0..repetitions {
        let measured = measure()?;
        if !measured.as_ref().is_some_and(&is_disturbed) {
            return Ok(measured);
        }
        *repeated += 1;
    }
    measure()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::tests::SETTINGS;
    use super::*;

    /// Measures undisturbed runs out of these, each disturbed or not, and returns the number of runs that were replaced and the
    /// result.
    fn repeated(quick: bool, disturbed: &[bool]) -> (u32, Option<bool>) {
        let (settings, mut count, mut repeated) = (Settings { quick, ..SETTINGS }, 0, 0);
        let measured = undisturbed(
            &settings,
            &mut repeated,
            |disturbed| *disturbed,
            || {
                count += 1;
                Ok(disturbed.get(count - 1).copied())
            },
        );
        (repeated, measured.expect("no failure"))
    }

    #[test]
    fn a_run_that_fails_is_measured_again_and_counted() {
        let outcome = |more, failures: usize| {
            let (mut failed, mut count) = (0, 0);
            let measured = attempt(more, &mut failed, &ProgressBar::hidden(), || {
                count += 1;
                let error = LiveError::Stalled { name: "mptcp".to_owned() };
                if count > failures { Ok(count) } else { Err(error) }
            });
            (failed, measured.ok())
        };
        assert_eq!(outcome(2, 0), (0, Some(1)));
        assert_eq!(outcome(2, 2), (2, Some(3)));
        assert_eq!(outcome(2, 3), (2, None), "it is left out");
        assert_eq!(outcome(0, 1), (0, None), "a failure of ours is not covered up");
        let mut failed = 0;
        let broken = attempt::<()>(2, &mut failed, &ProgressBar::hidden(), || {
            Err(io::Error::other("no processes").into())
        });
        assert!(broken.is_err() && failed == 0, "the others would fail, too");
    }

    #[test]
    fn a_disturbed_run_is_repeated_three_times_and_then_counts() {
        assert_eq!(repeated(false, &[false]), (0, Some(false)));
        assert_eq!(repeated(false, &[true, true, false]), (2, Some(false)));
        assert_eq!(repeated(false, &[true; 9]), (3, Some(true)));
        assert_eq!(repeated(false, &[true]), (1, None), "Ctrl-C");
        assert_eq!(repeated(true, &[true; 9]), (0, Some(true)), "no time for more");
    }
}
