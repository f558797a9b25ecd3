//! Runs that failed or that the host disturbed are measured again.

use std::ops::ControlFlow;

use indicatif::ProgressBar;

use super::{LiveError, Settings};
use crate::interrupt;
use crate::output::note;

/// Number of repetitions of a run that is disturbed.
const REPETITIONS_MAX: u32 = 3;
/// Number of further attempts after a run has failed by a transport of the kernel: those sometimes stop delivering.
const ATTEMPTS_MORE: u32 = 3;

/// Measures, and again if a transport of the kernel fails. One of ours may not: that is a failure of this command. `failed`
/// counts the runs that others replace, and the user is told of each.
pub(super) fn attempt<T>(
    failed: &mut u32,
    bar: &ProgressBar,
    mut measure: impl FnMut() -> Result<T, LiveError>,
) -> Result<T, LiveError> {
    for _ in 0..ATTEMPTS_MORE {
        match measure() {
            Err(error) if error.is_of_one_measurement() && !error.is_ours() && !interrupt::requested() => {
                bar.suspend(|| note(format_args!("measured again: {error}")));
                *failed += 1;
            }
            measured => return measured,
        }
    }
    measure()
}

/// Measures once, and again if the host has disturbed the run, unless the command must be quick; breaks off after Ctrl-C. `put`
/// takes each run into `cells`, in place of the disturbed one before it, so that the end of the command loses no whole run; it is
/// told whether the run will be repeated. If a repetition fails, the run before it stays.
pub(super) fn undisturbed<T, C: ?Sized>(
    settings: &Settings<'_>,
    cells: &mut C,
    is_disturbed: impl Fn(&T) -> bool,
    mut measure: impl FnMut(&C) -> Result<Option<T>, LiveError>,
    mut put: impl FnMut(&mut C, T, bool),
) -> Result<ControlFlow<()>, LiveError> {
    let repetitions = if settings.quick { 0 } else { REPETITIONS_MAX };
    for left in (0..=repetitions).rev() {
        let measured = measure(cells).map_err(|error| match left < repetitions {
            true if error.is_of_one_measurement() => LiveError::Repetition(Box::new(error)),
            _ => error,
        });
        let Some(measured) = measured? else { return Ok(ControlFlow::Break(())) };
        let again = left > 0 && is_disturbed(&measured);
        put(cells, measured, again);
        if !again {
            break;
        }
    }
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::after_repetition;
    use super::super::tests::SETTINGS;
    use super::*;

    /// Measures undisturbed runs out of these, each disturbed or not, until Ctrl-C. Returns those that were put, and whether each
    /// was to be repeated.
    fn repeated(quick: bool, disturbed: &[bool]) -> (Vec<(bool, bool)>, ControlFlow<()>) {
        let (settings, mut runs) = (Settings { quick, ..SETTINGS }, Vec::new());
        let measured = undisturbed(
            &settings,
            &mut runs,
            |disturbed| *disturbed,
            |runs| Ok(disturbed.get(runs.len()).copied()),
            |runs, disturbed, again| runs.push((disturbed, again)),
        );
        (runs, measured.expect("no failure"))
    }

    #[test]
    fn a_run_that_fails_is_measured_again_and_counted() {
        let outcome = |is_ours, failures: usize| {
            let (mut failed, mut count) = (0, 0);
            let measured = attempt(&mut failed, &ProgressBar::hidden(), || {
                count += 1;
                let error = LiveError::Stalled { name: "mptcp".to_owned() }.of(is_ours);
                if count > failures { Ok(count) } else { Err(error) }
            });
            (failed, measured.ok())
        };
        assert_eq!(outcome(false, 0), (0, Some(1)));
        assert_eq!(outcome(false, 3), (3, Some(4)));
        assert_eq!(outcome(false, 4), (3, None), "it is left out");
        assert_eq!(outcome(true, 1), (0, None), "a failure of ours is not covered up");
        let mut failed = 0;
        let broken = attempt::<()>(&mut failed, &ProgressBar::hidden(), || {
            Err(LiveError::from(io::Error::other("no processes")).of(false))
        });
        assert!(broken.is_err() && failed == 0, "the others would fail, too");
    }

    #[test]
    fn a_repetition_that_fails_leaves_the_disturbed_run_and_says_so() {
        let measured = |runs_before: usize| {
            let mut runs = Vec::new();
            let measured = undisturbed(
                &SETTINGS,
                &mut runs,
                |_| true,
                |runs: &Vec<bool>| {
                    let stalled = LiveError::Stalled { name: "sctp-stream".to_owned() }.of(true);
                    if runs.len() < runs_before { Ok(Some(true)) } else { Err(stalled) }
                },
                |runs, disturbed, _| runs.push(disturbed),
            );
            let (bar, mut failure) = (ProgressBar::hidden(), None);
            let goes_on = after_repetition(measured, &bar, &mut failure).is_ok();
            (runs.len(), goes_on, failure.map(|error| error.to_string()))
        };
        assert_eq!(measured(0), (0, false, None), "there is nothing to go on with");
        let (runs, goes_on, said) = measured(1);
        assert_eq!((runs, goes_on), (1, true), "its answers are measured all the same");
        let said = said.expect("ours has failed");
        assert!(said.ends_with("an end stands still; the disturbed run before it counts"), "{said}");
    }

    #[test]
    fn a_disturbed_run_is_repeated_three_times_and_then_counts() {
        let (again, last) = ((true, true), (true, false));
        let whole = ControlFlow::Continue(());
        assert_eq!(repeated(false, &[false]), (vec![(false, false)], whole));
        assert_eq!(repeated(false, &[true, true, false]), (vec![again, again, (false, false)], whole));
        assert_eq!(repeated(false, &[true; 9]), (vec![again, again, again, last], whole));
        assert_eq!(repeated(true, &[true; 9]), (vec![last], whole), "no time for more");
        let cut = ControlFlow::Break(());
        assert_eq!(repeated(false, &[true]), (vec![again], cut), "Ctrl-C leaves the disturbed run");
        assert_eq!(repeated(false, &[]), (vec![], cut));
    }
}
