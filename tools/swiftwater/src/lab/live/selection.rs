//! The cells that the user asks for, and the time that they take.

use std::fmt;
use std::iter::Sum;
use std::time::Duration;

use thiserror::Error;

use super::figures::Cell;
use super::plan::{self, Plan};
use super::{ALL, Settings, name, strsctp};
use crate::lab::args::LiveName;
use crate::lab::case_names::by_size;

/// Time to start and end both processes of a measurement.
const START_SECONDS: f64 = 0.3;

/// No cell has the text in its name that the user wants.
#[derive(Debug, Error, PartialEq)]
pub(crate) enum NoCase {
    /// One experiment has none.
    #[error(
        "no case of {experiment} has `{wanted}` in its name, such as `{}, {}`; the cases are {}; the transports are {}",
        cases[0], transports[0], by_size(cases).join("; "), transports.join(", ")
    )]
    OfOne {
        /// The experiment.
        experiment: &'static str,
        /// The text.
        wanted: String,
        /// The first parts of all names.
        cases: Vec<String>,
        /// The last parts of all names.
        transports: Vec<String>,
    },
    /// No experiment has one.
    #[error(
        "no case of any experiment has `{0}` in its name; swiftwater lab --live NAME --case '{0}' lists the names of one"
    )]
    OfAll(String),
    /// `--quick` leaves out all that have the text.
    #[error("--quick leaves out the cases with `{0}` in their names; leave out --quick")]
    NotQuick(String),
}

/// A test that ends before the line goes down that its case is about.
#[derive(Debug, Error, PartialEq)]
#[error(
    "--seconds {seconds}: no line of {experiment} goes down so early; give at least {least}, leave --seconds out, or select other cases with --case"
)]
pub(crate) struct BeforeOutage {
    experiment: &'static str,
    seconds: f64,
    least: u64,
}

/// Fails if a test of these experiments would end before its line goes down.
pub(in crate::lab) fn check_seconds(
    experiments: &[LiveName],
    settings: &Settings<'_>,
) -> Result<(), BeforeOutage> {
    let Some(seconds) = settings.seconds else { return Ok(()) };
    for &experiment in experiments {
        for plan in plan::plans(experiment) {
            for cell in cells(&plan, settings) {
                if let Some(outage_s) = plan.first_outage_s(&cell.load, cell.series)
                    && seconds <= outage_s
                {
                    let least = outage_s.floor() as u64 + 1;
                    return Err(BeforeOutage { experiment: name(experiment), seconds, least });
                }
            }
        }
    }
    Ok(())
}

/// Returns the experiments that have cells which the user asks for.
pub(in crate::lab) fn select(wanted: LiveName, settings: &Settings<'_>) -> Result<Vec<LiveName>, NoCase> {
    let all = if wanted == LiveName::All { ALL.to_vec() } else { vec![wanted] };
    let selected = |settings: &Settings<'_>| -> Vec<LiveName> {
        all.iter().copied().filter(|&one| count(one, settings) > 0).collect()
    };
    let found = selected(settings);
    if !found.is_empty() {
        return Ok(found);
    }
    let text = settings.case.to_owned();
    if !selected(&Settings { quick: false, ..settings.clone() }).is_empty() {
        return Err(NoCase::NotQuick(text));
    }
    if wanted == LiveName::All {
        return Err(NoCase::OfAll(text));
    }
    let (cases, transports) = case_names(wanted);
    Err(NoCase::OfOne { experiment: name(wanted), wanted: text, cases, transports })
}

/// Returns the cells of a plan that the user asks for.
pub(super) fn cells(plan: &Plan, settings: &Settings<'_>) -> Vec<Cell> {
    let loads = plan.loads.iter().filter(|load| !(settings.quick && load.is_long()));
    let loads =
        loads.map(|load| settings.seconds.map_or_else(|| load.clone(), |seconds| load.shortened(seconds)));
    let all = loads.flat_map(|load| {
        let series = load.series.clone();
        series.into_iter().map(move |series| Cell::new(&load, series))
    });
    all.filter(|cell| cell.name().contains(settings.case)).collect()
}

/// Returns the number of cells of an experiment that the user asks for.
fn count(experiment: LiveName, settings: &Settings<'_>) -> usize {
    match experiment {
        LiveName::Strsctp => strsctp_count(settings),
        LiveName::All => ALL.iter().map(|&one| count(one, settings)).sum(),
        _ => plan::plans(experiment).iter().map(|plan| cells(plan, settings).len()).sum(),
    }
}

fn strsctp_count(settings: &Settings<'_>) -> usize {
    let names = strsctp::cells().into_iter().map(|(case, transport)| format!("{case}, {transport}"));
    names.filter(|name| name.contains(settings.case)).count()
}

/// Returns the cases and the transports in the names of an experiment's cells, each once; none of `all`.
pub(in crate::lab) fn case_names(experiment: LiveName) -> (Vec<String>, Vec<String>) {
    let mut all = strsctp::cells();
    // `all` has no plans.
    if experiment != LiveName::Strsctp {
        let plans = plan::plans(experiment);
        let loads = plans.iter().flat_map(|plan| &plan.loads);
        all = loads.flat_map(|load| load.series.iter().map(|one| (load.name(), one.name))).collect();
    }
    let (mut cases, mut transports) = (Vec::new(), Vec::new());
    for (case, transport) in all {
        for (part, parts) in [(case, &mut cases), (transport.to_owned(), &mut transports)] {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    (cases, transports)
}

/// Number of measurements, and the time that they take if none is disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::lab) struct Estimate {
    pub(in crate::lab) measurements: usize,
    repeat: u32,
    pub(in crate::lab) seconds: f64,
}

/// Estimates an experiment, or all, from the durations of the measurements.
pub(in crate::lab) fn estimate(experiment: LiveName, settings: &Settings<'_>) -> Estimate {
    let once: f64 = match experiment {
        LiveName::All => return ALL.iter().map(|&one| estimate(one, settings)).sum(),
        LiveName::Strsctp => strsctp_count(settings) as f64 * (START_SECONDS + strsctp::seconds(settings)),
        _ => plan::plans(experiment).iter().map(|plan| seconds(plan, settings)).sum(),
    };
    let repeat = settings.repeat();
    Estimate { measurements: count(experiment, settings), repeat, seconds: once * f64::from(repeat) }
}

impl Estimate {
    /// Returns the number of runs of all measurements.
    pub(in crate::lab) fn runs(&self) -> usize {
        self.measurements * self.repeat as usize
    }

    /// Returns the time in words.
    pub(in crate::lab) fn time(&self) -> String {
        const MINUTE_SECONDS: f64 = 60.0;
        let unit = if self.seconds < MINUTE_SECONDS { 1.0 } else { MINUTE_SECONDS };
        let seconds = (self.seconds / unit).ceil() * unit;
        format!("about {}", humantime::format_duration(Duration::from_secs(seconds as u64)))
    }
}

impl Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Estimate::default(), |sum, one| Estimate {
            measurements: sum.measurements + one.measurements,
            repeat: one.repeat,
            seconds: sum.seconds + one.seconds,
        })
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.repeat == 1 { "once".to_owned() } else { format!("{} times", self.repeat) };
        let measurements = if self.measurements == 1 { "measurement," } else { "measurements, each" };
        write!(f, "{} {measurements} {times}: {}", self.measurements, self.time())
    }
}

/// Returns the duration of one turn of a plan's cells.
fn seconds(plan: &Plan, settings: &Settings<'_>) -> f64 {
    let of_cell = |cell: &Cell| {
        let (load, series) = (&cell.load, cell.series);
        let latency =
            if load.latency { START_SECONDS + plan.latency_seconds(load, series, settings) } else { 0.0 };
        START_SECONDS + plan.seconds(load, series, settings) + latency
    };
    cells(plan, settings).iter().map(of_cell).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings<'_> =
        Settings { seconds: None, case: "", repeat: None, quick: false, full: false, seed: 1 };

    #[test]
    fn a_text_selects_the_experiments_that_have_it() {
        let of = |wanted, case| select(wanted, &Settings { case, ..SETTINGS });
        assert_eq!(of(LiveName::All, ""), Ok(ALL.to_vec()));
        assert_eq!(of(LiveName::All, "2 % lost"), Ok(vec![LiveName::Lossy]));
        assert_eq!(of(LiveName::All, "nowhere"), Err(NoCase::OfAll("nowhere".to_owned())));
    }

    #[test]
    fn an_experiment_without_the_text_names_its_cases() {
        for (experiment, case, transport) in [
            (LiveName::Lossy, "clean + 2 % lost, 64 to 16384 bytes (2 sizes)", "mptcp"),
            (LiveName::Strsctp, "1 processor, 1 to 16384 bytes (15 sizes)", "sctp-stream"),
        ] {
            let said =
                select(experiment, &Settings { case: "nowhere", ..SETTINGS }).expect_err("none").to_string();
            assert!(said.contains("`nowhere`") && said.contains(case) && said.contains(transport), "{said}");
            assert_eq!(said.matches(case).count(), 1, "{said}");
        }
    }

    #[test]
    fn a_test_that_ends_before_its_line_goes_down_is_refused() {
        let check = |experiment, case, seconds| {
            check_seconds(&[experiment], &Settings { case, seconds: Some(seconds), ..SETTINGS })
        };
        assert_eq!(check_seconds(&ALL, &SETTINGS), Ok(()));
        for (experiment, outage_s) in [(LiveName::Failover, 4.0), (LiveName::Flapping, 10.0)] {
            let said = check(experiment, "", outage_s).expect_err("it stays up").to_string();
            assert!(said.contains(&format!("at least {}", outage_s + 1.0)), "{said}");
            assert_eq!(check(experiment, "", outage_s + 0.1), Ok(()));
        }
        assert_eq!(check(LiveName::Flapping, "wireless", 1.0), Ok(()), "this line stays up");
        assert_eq!(check(LiveName::Lossy, "", 1.0), Ok(()));
    }

    #[test]
    fn a_file_that_is_cut_short_is_named_so() {
        let plan = plan::plans(LiveName::Sctplib).swap_remove(0);
        let cells = |seconds| cells(&plan, &Settings { seconds, case: "114.3 MB", ..SETTINGS });
        let whole = cells(None)[0].load.name();
        assert_eq!(cells(Some(5.0))[0].load.name(), format!("the first 5 s of {whole}"));
        let timed = &plan::plans(LiveName::Lossy)[0];
        let short = super::cells(timed, &Settings { seconds: Some(5.0), ..SETTINGS });
        assert!(!short[0].load.name().contains("first 5 s"), "it has no whole");
    }

    #[test]
    fn a_case_that_quick_leaves_out_is_told_so() {
        let quick = Settings { case: "228.7 MB", quick: true, ..SETTINGS };
        assert_eq!(select(LiveName::Sctplib, &quick), Err(NoCase::NotQuick("228.7 MB".to_owned())));
    }

    #[test]
    fn the_time_is_that_of_all_turns() {
        let of = |experiment, settings: &Settings<'_>| estimate(experiment, settings).to_string();
        // 6 cells of 20 s, 5 times.
        assert_eq!(of(LiveName::Coexistence, &SETTINGS), "6 measurements, each 5 times: about 11m");
        let one = Settings { case: "bbr, 4", ..SETTINGS };
        assert_eq!(of(LiveName::Coexistence, &one), "1 measurement, 5 times: about 2m");
        let short = Settings { case: "bbr, 4", seconds: Some(0.5), repeat: Some(1), ..SETTINGS };
        assert_eq!(of(LiveName::Coexistence, &short), "1 measurement, once: about 1s");
        // Throughput and latency of 20 s each in 4 cells, and of 60 s in 3.
        assert_eq!(of(LiveName::Flapping, &SETTINGS), "7 measurements, each 5 times: about 44m");
        // 114.3 MB in 32 s at least.
        let quick = Settings { quick: true, ..SETTINGS };
        assert_eq!(of(LiveName::Sctplib, &quick), "4 measurements, each once: about 3m");
        let all = estimate(LiveName::All, &quick);
        assert!(all.seconds <= 900.0, "{all}");
    }
}
