//! Runs on the virtual clock beside live ones.

use ::lab::experiment::{self, Outcome, Watch};

use super::Settings;
use crate::interrupt;
use crate::lab::args::LiveName;
use crate::lab::{STEPS, progress_bar};

/// Name of this stack on the virtual clock.
pub(in crate::lab) const TRANSPORT: &str = "sctp-virtual";

/// Returns what this stack delivers on the virtual clock until each of these seconds, if the experiment has it beside live runs;
/// nothing after Ctrl-C.
pub(super) fn run(experiment: LiveName, settings: &Settings<'_>, marks_s: &[u64]) -> Vec<Outcome> {
    if experiment != LiveName::Datatag || marks_s.is_empty() || interrupt::requested() {
        return Vec::new();
    }
    let bar = progress_bar(STEPS);
    bar.set_message(TRANSPORT);
    let mut progress = |part: f64| {
        bar.set_position((part * STEPS as f64) as u64);
        !interrupt::requested()
    };
    let mut watch = Watch { progress: Some(&mut progress), ..Watch::default() };
    // Only a capture can fail, and there is none.
    let mut outcomes = experiment::datatag_marks(settings.seed, marks_s).run(&mut watch).unwrap_or_default();
    drop(watch);
    bar.finish_and_clear();
    outcomes.retain(|outcome| !outcome.interrupted);
    outcomes.iter_mut().for_each(|outcome| outcome.transport = TRANSPORT.to_owned());
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_experiment_has_the_virtual_clock_beside_it() {
        let settings = Settings { seed: 1, ..Settings::default() };
        assert!(run(LiveName::Lossy, &settings, &[1]).is_empty());
        let outcomes = run(LiveName::Datatag, &settings, &[1]);
        assert_eq!(outcomes.len(), 1);
        assert_eq!((outcomes[0].transport.as_str(), outcomes[0].seconds), (TRANSPORT, 1.0));
    }
}
