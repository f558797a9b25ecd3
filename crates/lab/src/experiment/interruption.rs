//! Cases that the user ends at once.

use super::{ALL, Experiment, Options, Outcome, Watch};

/// Runs the cases of an experiment, each until it asks for the first time whether to go on.
fn begin(experiment: &Experiment) -> Vec<Outcome> {
    let cases = (experiment.cases)(&Options::default());
    let begun = cases.iter().map(|case| {
        let mut progress = |_| false;
        let mut watch = Watch { progress: Some(&mut progress), ..Watch::default() };
        case.run(&mut watch).expect("nothing is captured")
    });
    begun.flatten().collect()
}

#[test]
fn outcomes_of_an_interrupted_case_are_figures() {
    for experiment in &ALL {
        for outcome in begin(experiment).iter().filter(|outcome| !outcome.published) {
            let ratios = [outcome.ratio_to_best_path(), outcome.ratio_to_sum_of_paths()];
            let figures = [outcome.seconds, outcome.bits_per_s, outcome.share()];
            let all_finite = figures.into_iter().chain(ratios.into_iter().flatten()).all(f64::is_finite);
            let none_missed = outcome.returns.is_none_or(|returns| returns.missed == 0);
            assert!(all_finite && none_missed && outcome.seconds > 0.0, "{}: {outcome:?}", experiment.name);
        }
    }
}

#[test]
fn the_paths_of_an_interrupted_case_are_not_compared() {
    for experiment in &ALL {
        let compared = |outcome: &Outcome| outcome.interrupted && outcome.best_path_bits_per_s.is_some();
        assert!(!begin(experiment).iter().any(compared), "{}", experiment.name);
    }
}
