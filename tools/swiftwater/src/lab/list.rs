//! `lab --list`: the experiments on the virtual clock and in real time.

use ::lab::experiment::{self, Experiment, Options};
use clap::ValueEnum;
use serde::Serialize;

use super::args::LiveName;
use super::case_names::by_size;
use super::live::{self, Estimate, Settings};

/// An experiment, as JSON; docs/json.md describes the keys.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    experiment: &'static str,
    clock: &'static str,
    about: String,
    cases: Vec<String>,
    #[serde(flatten)]
    live: Option<Live>,
}

/// Transports and duration of an experiment in real time.
#[derive(Debug, Serialize)]
struct Live {
    transports: Vec<String>,
    measurements: usize,
    seconds: f64,
    quick_seconds: f64,
    #[serde(skip)]
    time: String,
}

impl Listed {
    fn on_virtual_clock(experiment: &Experiment) -> Self {
        let cases = (experiment.cases)(&Options::default());
        Listed {
            experiment: experiment.name,
            clock: "virtual",
            about: experiment.about.to_owned(),
            cases: cases.iter().map(|case| case.name()).collect(),
            live: None,
        }
    }

    fn in_real_time(experiment: LiveName) -> Self {
        let settings = Settings::default();
        let quick = Settings { quick: true, ..Settings::default() };
        let [whole, quick] = [&settings, &quick].map(|settings| live::estimate(experiment, settings));
        let (cases, transports) = live::case_names(experiment);
        let value = experiment.to_possible_value();
        let about = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string);
        Listed {
            experiment: live::name(experiment),
            clock: "live",
            about: about.unwrap_or_default(),
            cases,
            live: Some(Live {
                transports,
                measurements: whole.measurements,
                seconds: whole.seconds.round(),
                quick_seconds: quick.seconds.round(),
                time: time(&whole, &quick),
            }),
        }
    }

    /// Renders the experiment as lines of text, behind its name of `width` columns.
    fn text(&self, width: usize) -> String {
        let mut lines = vec![self.about.clone()];
        lines.extend(by_size(&self.cases).into_iter().map(|case| format!("- {case}")));
        if let Some(live) = &self.live {
            if !live.transports.is_empty() {
                lines.push(format!("transports: {}", live.transports.join(", ")));
            }
            lines.push(live.time.clone());
        }
        let indent = format!("\n{:width$}    ", "");
        format!("  {:width$}  {}\n", self.experiment, lines.join(&indent))
    }
}

/// Tells how long an experiment takes in full and with `--quick`.
fn time(whole: &Estimate, quick: &Estimate) -> String {
    format!("{whole}; with --quick {}", quick.time())
}

/// Returns all experiments.
pub(super) fn all() -> Vec<Listed> {
    let in_real_time = LiveName::value_variants().iter().map(|&name| Listed::in_real_time(name));
    experiment::ALL.iter().map(Listed::on_virtual_clock).chain(in_real_time).collect()
}

/// Renders the list as text.
pub(super) fn text(all: &[Listed]) -> String {
    let width = all.iter().map(|listed| listed.experiment.len()).max().unwrap_or(0);
    let of = |clock| all.iter().filter(move |listed| listed.clock == clock).map(|listed| listed.text(width));
    format!(
        "On a virtual clock, with swiftwater lab --virtual NAME:\n{}\n\
         In real time, with swiftwater lab --live NAME; --case TEXT selects measurements by case and transport:\n{}",
        of("virtual").collect::<String>(),
        of("live").collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_live_experiment_with_its_cases_and_its_time() {
        let text = text(&all());
        let (on_virtual_clock, in_real_time) = text.split_once("\n\n").expect("two parts");
        for experiment in &experiment::ALL {
            assert!(on_virtual_clock.contains(experiment.about), "{on_virtual_clock}");
        }
        assert!(
            on_virtual_clock.contains(" cases)\n")
                && !on_virtual_clock.contains("- cubic, 50 ms, 2 % lost\n"),
            "{on_virtual_clock}"
        );
        for &name in LiveName::value_variants() {
            assert!(in_real_time.contains(&format!("\n  {} ", live::name(name))), "{in_real_time}");
        }
        for part in [
            "- 100 + 100 Mbit/s, 0.2 ms, 8 to 16384 bytes (12 sizes)\n",
            "transports: mptcp, sctp-message, sctp-stream\n",
            "6 measurements, each 5 times: about 11m; with --quick about 3m\n",
        ] {
            assert!(in_real_time.contains(part), "{part} is missing in {in_real_time}");
        }
    }
}
