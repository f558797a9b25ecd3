//! A run of the command: experiments one after the other, whose measurements are printed and kept.

use std::time::{Duration, Instant};

use ::lab::experiment::{Outcome, table_with};

use super::{Conditions, Estimate, LiveError, Results, Settings};
use crate::failure::without_numbers;
use crate::lab::LabError;
use crate::lab::archive::Archive;
use crate::lab::args::{LabArgs, LiveName};
use crate::lab::paths;
use crate::lab::row::{Row, Source};
use crate::output::{Json, OutputError, note, print};
use crate::{host, interrupt};

/// Minimum time between two writings of an experiment that goes on: they use processors and disk while the next one is measured.
const PART_INTERVAL: Duration = Duration::from_secs(10);

/// Runs the experiments that the user asks for. Prints and keeps all measurements, even if a part fails.
pub(in crate::lab) fn run(name: LiveName, args: &LabArgs) -> Result<(), LabError> {
    let settings = settings(args);
    let experiments = super::select(name, &settings).map_err(LiveError::from)?;
    super::check_seconds(&experiments, &settings).map_err(LiveError::from)?;
    super::enter(name)?;
    let json = args.json.open()?;
    interrupt::listen()?;
    let archive = args.out.as_deref().map(|folder| Archive::create(folder, settings.seed)).transpose()?;
    let whole: Estimate = experiments.iter().map(|&one| super::estimate(one, &settings)).sum();
    let mut session = Session {
        json,
        print,
        is_printed: true,
        archive,
        parts: Parts::Awaited,
        measured: Vec::new(),
        planned_runs: whole.runs(),
        failure: None,
    };
    session.measure(&experiments, &settings);
    session.finish()
}

fn settings(args: &LabArgs) -> Settings<'_> {
    Settings {
        seconds: args.seconds,
        case: args.case.as_deref().unwrap_or_default(),
        repeat: args.repeat,
        quick: args.quick,
        full: args.full,
        seed: args.seed,
    }
}

/// The experiments that were measured so far, and where they go.
struct Session {
    json: Json,
    /// Prints text to standard output.
    print: fn(&str) -> Result<(), OutputError>,
    /// Whether nothing has failed to be printed: standard output may be closed or full.
    is_printed: bool,
    archive: Option<Archive>,
    parts: Parts,
    measured: Vec<(&'static str, Results)>,
    /// Number of runs that the user has asked for.
    planned_runs: usize,
    /// The first failure, which decides the result.
    failure: Option<LabError>,
}

/// Writing of experiments that go on.
#[derive(Clone, Copy, Debug)]
enum Parts {
    /// Nothing is written yet.
    Awaited,
    /// The last writing began then.
    Written(Instant),
    /// A writing has failed, so no other is tried.
    Failed,
}

impl Parts {
    /// Returns whether results are written now.
    fn are_due(self, now: Instant) -> bool {
        match self {
            Parts::Awaited => true,
            Parts::Written(at) => now.saturating_duration_since(at) >= PART_INTERVAL,
            Parts::Failed => false,
        }
    }
}

impl Session {
    fn measure(&mut self, experiments: &[LiveName], settings: &Settings<'_>) {
        let count = experiments.len();
        if count > 1 {
            let whole: Estimate = experiments.iter().map(|&one| super::estimate(one, settings)).sum();
            note(format_args!("{count} experiments, {whole}"));
        }
        let conditions = Conditions::find(experiments, settings);
        for sentence in conditions.limits.iter().cloned().chain(conditions.left_out()) {
            note(format_args!("{sentence}"));
        }
        if let Some(archive) = &mut self.archive {
            archive.describe(settings, self.planned_runs, &conditions);
        }
        for (number, &experiment) in (1..).zip(experiments) {
            if interrupt::requested() || self.goes_nowhere() {
                break;
            }
            let name = super::name(experiment);
            let place = if count > 1 { format!(" ({number} of {count})") } else { String::new() };
            note(format_args!("{name}{place}: {}", super::estimate(experiment, settings)));
            let others = host::OthersBusy::begin();
            let results = super::run(experiment, settings, &conditions, &mut |part| {
                self.on_part(name, part, Instant::now());
            });
            let heading = if count > 1 { format!("{name}\n") } else { String::new() };
            let is_cut =
                interrupt::requested() && lacks_runs(&results, super::estimate(experiment, settings).runs());
            // `number` counts from one.
            let next = experiments.get(number).map(|&next| super::name(next));
            let unfinished = if is_cut { Some(name) } else { next };
            self.on_results(name, &heading, results, others.sentence(), unfinished);
        }
    }

    /// Keeps what an experiment that goes on has measured, if that is due, so that the end of the command at any moment leaves
    /// it.
    fn on_part(&mut self, name: &'static str, part: &dyn Fn() -> Results, now: Instant) {
        let Some(archive) = self.archive.as_mut().filter(|_| self.parts.are_due(now)) else { return };
        let part = part();
        if part.outcomes.is_empty() {
            return;
        }
        self.parts = Parts::Written(now);
        archive.count(runs(&self.measured) + part.runs);
        let all = of_all(&self.measured).chain([(name, &part)]);
        if let Err(error) = archive.keep_part(name, &rows(all), &part.traces) {
            note(format_args!("{}; measuring goes on", without_numbers(&error.to_string())));
            self.parts = Parts::Failed;
        }
    }

    /// Prints and keeps the results of an experiment, and tells the user what has disturbed it. A failed print loses no results.
    /// `unfinished` is the experiment that the command has still to measure.
    fn on_results(
        &mut self,
        name: &'static str,
        heading: &str,
        mut results: Results,
        busy: Option<String>,
        unfinished: Option<&str>,
    ) {
        let missing = results.failure.take().map(LabError::from);
        let mut printed = Ok(());
        if self.is_printed && self.json.leaves_text() && !results.outcomes.is_empty() {
            printed = (self.print)(&(heading.to_owned() + &text(name, &results.outcomes)));
            self.is_printed = printed.is_ok();
        }
        let figures = results.outcomes.iter().filter_map(|(_, source)| source.figures());
        // The lines may be on time while the ends have no processor. Without figures there is nothing to compare.
        let busy = busy.filter(|_| !results.outcomes.is_empty());
        for sentence in super::disturbance(figures).into_iter().chain(busy) {
            note(format_args!("{sentence}"));
        }
        let traces = std::mem::take(&mut results.traces);
        self.measured.push((name, results));
        let kept = match &mut self.archive {
            // An experiment that has measured nothing does not take the place of results from before.
            Some(archive) if has_figures(&self.measured) => {
                archive.count(runs(&self.measured));
                archive.keep(name, &rows(of_all(&self.measured)), &traces, unfinished)
            }
            _ => Ok(()),
        };
        for error in missing.into_iter().chain(kept.err()).chain(printed.err().map(LabError::from)) {
            self.on_failure(name, error);
        }
    }

    /// Returns whether further results would be neither printed nor kept.
    fn goes_nowhere(&self) -> bool {
        !self.is_printed && self.archive.is_none() && !matches!(self.json, Json::File(_))
    }

    fn on_failure(&mut self, name: &str, error: LabError) {
        match &self.failure {
            None => self.failure = Some(error),
            Some(_) => note(format_args!("{name}: {}", without_numbers(&error.to_string()))),
        }
    }

    /// Prints the JSON of all experiments; returns the first failure.
    fn finish(mut self) -> Result<(), LabError> {
        let has_figures = has_figures(&self.measured);
        let written = if has_figures {
            self.json.write(&rows(of_all(&self.measured)))
        } else {
            self.json.write_nothing()
        };
        if let Err(error) = written {
            self.on_failure("--json", error.into());
        }
        if interrupt::requested() {
            note(format_args!("{}", interruption(runs(&self.measured), self.planned_runs)));
        }
        if !has_figures && !interrupt::requested() {
            // A protocol that the kernel lacks is no failure beside other figures.
            self.failure.get_or_insert(LiveError::NothingToMeasure.into());
        }
        self.failure.map_or(Ok(()), Err)
    }
}

/// Returns a sentence about an interrupted command, of whose runs so many are measured. Those that Ctrl-C ends are left out.
fn interruption(runs: usize, planned: usize) -> String {
    match runs {
        0 => "interrupted: nothing was measured".to_owned(),
        _ => format!("interrupted: {runs} of {planned} runs were measured, each to its end"),
    }
}

/// Returns whether Ctrl-C has left out a run of an experiment, or the answers of one.
fn lacks_runs(results: &Results, planned: usize) -> bool {
    results.runs < planned || results.outcomes.iter().any(|(outcome, _)| outcome.interrupted)
}

/// Returns the number of runs that were measured to their end.
fn runs(measured: &[(&'static str, Results)]) -> usize {
    measured.iter().map(|(_, results)| results.runs).sum()
}

/// Returns whether something was measured.
fn has_figures(measured: &[(&'static str, Results)]) -> bool {
    measured.iter().any(|(_, results)| !results.outcomes.is_empty())
}

/// Returns measured and published outcomes of an experiment as text.
fn text(name: &str, outcomes: &[(Outcome, Source)]) -> String {
    let (named, figures): (Vec<_>, Vec<_>) =
        outcomes.iter().map(|(outcome, source)| (named(outcome), source.figures())).unzip();
    let latencies_s: Vec<_> = outcomes.iter().map(|(outcome, _)| outcome.latency_s).collect();
    let counters = super::published_counters(name);
    let table = table_with(&named, &super::columns(&figures, &latencies_s, counters.is_some()));
    let numbered: Vec<(&str, String, &str)> = outcomes
        .iter()
        .filter_map(|(outcome, source)| {
            Some((&outcome.case[..], outcome.paths_text()?, source.figures()?.lines()?))
        })
        .collect();
    let legend = paths::legend(numbered.iter().map(|(case, used, lines)| (*case, &used[..], *lines)));
    let below = legend.into_iter().chain(counters).map(|sentence| sentence + "\n");
    table + &below.collect::<String>()
}

/// Returns an outcome for the table, in which a published one has its mode: its transport does not tell it. The mean latency
/// has a column beside its percentiles.
fn named(outcome: &Outcome) -> Outcome {
    let transport = match outcome.mode.filter(|_| outcome.published) {
        Some(mode) => format!("{}, {mode}", outcome.transport),
        None => outcome.transport.clone(),
    };
    Outcome { transport, latency_s: None, ..outcome.clone() }
}

/// Returns the results of all experiments.
fn of_all<'a>(measured: &'a [(&'static str, Results)]) -> impl Iterator<Item = (&'static str, &'a Results)> {
    measured.iter().map(|(name, results)| (*name, results))
}

/// Returns what `--json` prints of these experiments.
fn rows<'a>(measured: impl Iterator<Item = (&'static str, &'a Results)>) -> Vec<Row<'a>> {
    let rows = measured.flat_map(|(name, results)| {
        results.outcomes.iter().map(move |(outcome, source)| Row::new(name, outcome, source))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let json = Json::file(std::path::Path::new("/dev/null")).expect("every host has one");
        Session {
            json,
            print: |_| Ok(()),
            is_printed: true,
            archive: None,
            parts: Parts::Awaited,
            measured: Vec::new(),
            planned_runs: 1,
            failure: None,
        }
    }

    #[test]
    fn an_interruption_leaves_whole_runs() {
        assert_eq!(interruption(2, 3), "interrupted: 2 of 3 runs were measured, each to its end");
        assert!(interruption(0, 3).ends_with("nothing was measured"));
    }

    fn failed(name: &str, outcomes: usize) -> Results {
        let failure = LiveError::End { name: name.to_owned(), said: "it hangs".to_owned() };
        let outcomes = vec![(Outcome::default(), Source::Virtual { seed: 1 }); outcomes];
        Results { outcomes, failure: Some(failure), ..Results::default() }
    }

    #[test]
    fn the_first_failure_decides_and_later_experiments_are_kept() {
        let mut session = session();
        session.on_results("lossy", "", failed("first", 1), None, None);
        session.on_results("failover", "", failed("second", 1), None, None);
        assert_eq!(rows(of_all(&session.measured)).len(), 2);
        assert_eq!(session.finish().expect_err("one has failed").to_string(), "first: it hangs");
    }

    #[test]
    fn results_that_cannot_be_printed_are_kept() {
        let folder = std::env::temp_dir().join(format!("swiftwater-unprinted-{}", std::process::id()));
        let archive = Some(Archive::create(&folder, 1).expect("a folder"));
        let full = |_: &str| Err(OutputError::System(std::io::ErrorKind::StorageFull.into()));
        let mut session = Session { print: full, archive, ..session() };
        for name in ["lossy", "failover"] {
            session.on_results(name, "", Results { failure: None, ..failed(name, 1) }, None, None);
            assert!(!session.goes_nowhere());
        }
        let kept = std::fs::read_to_string(folder.join("results.json")).expect("it is kept");
        std::fs::remove_dir_all(&folder).expect("ours");
        assert!(kept.contains("lossy") && kept.contains("failover"), "{kept}");
        session.archive = None;
        assert!(!session.goes_nowhere(), "a file still takes the JSON");
        let error = session.finish().expect_err("nothing was printed").to_string();
        assert!(error.contains("cannot write to standard output"), "{error}");
        let nowhere = Session { json: Json::Unwanted, is_printed: false, ..self::session() };
        assert!(nowhere.goes_nowhere(), "nobody would see more");
    }

    #[test]
    fn a_part_of_an_experiment_is_kept_behind_the_experiments_before_it() {
        let folder = std::env::temp_dir().join(format!("swiftwater-parts-{}", std::process::id()));
        let archive = Some(Archive::create(&folder, 1).expect("a folder"));
        let mut session = Session { archive, ..session() };
        session.on_results("lossy", "", Results { failure: None, ..failed("lossy", 1) }, None, None);
        let began = Instant::now();
        let mut on_part =
            |measured, at| session.on_part("datatag", &|| failed("datatag", measured), began + at);
        on_part(0, Duration::ZERO);
        let kept = || -> Vec<serde_json::Value> {
            let text = std::fs::read(folder.join("results.json")).expect("it is kept");
            serde_json::from_slice(&text).expect("JSON")
        };
        assert_eq!(kept().len(), 1);
        let millisecond = Duration::from_millis(1);
        for (measured, at, written) in [
            (1, millisecond, 1),
            (2, PART_INTERVAL, 1),
            (3, PART_INTERVAL + millisecond, 3),
            (4, PART_INTERVAL * 2, 3),
        ] {
            on_part(measured, at);
            let experiments: Vec<_> = kept().iter().map(|row| row["experiment"].clone()).collect();
            assert_eq!(experiments, [&["lossy"][..], &vec!["datatag"; written]].concat(), "{at:?}");
        }
        session.on_results("datatag", "", Results { failure: None, ..failed("datatag", 4) }, None, None);
        assert_eq!(kept().len(), 5, "the end of an experiment is written at once");
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_folder_of_an_interrupted_command_says_what_it_lacks() {
        let folder = std::env::temp_dir().join(format!("swiftwater-cut-{}", std::process::id()));
        let archive = Some(Archive::create(&folder, 1).expect("a folder"));
        let mut session = Session { archive, ..session() };
        let manifest = || -> serde_json::Value {
            let text = std::fs::read(folder.join("manifest.json")).expect("it is kept");
            serde_json::from_slice(&text).expect("JSON")
        };
        let results = |runs| Results { failure: None, runs, ..failed("lossy", 1) };
        for (name, unfinished, runs) in
            [("lossy", Some("failover"), 2), ("failover", Some("failover"), 1), ("datatag", None, 1)]
        {
            session.on_results(name, "", results(runs), None, unfinished);
            assert_eq!(manifest()["unfinished"].as_str(), unfinished);
        }
        assert_eq!(manifest()["runs"], 4);
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn an_experiment_without_its_last_answers_lacks_runs() {
        let outcome =
            |interrupted| (Outcome { interrupted, ..Outcome::default() }, Source::Virtual { seed: 1 });
        let results =
            |runs, interrupted| Results { outcomes: vec![outcome(interrupted)], runs, ..Results::default() };
        assert!(lacks_runs(&results(1, false), 2) && lacks_runs(&results(2, true), 2));
        assert!(!lacks_runs(&results(2, false), 2));
    }

    #[test]
    fn results_that_are_not_written_are_not_made() {
        let folder = std::env::temp_dir().join(format!("swiftwater-unmade-{}", std::process::id()));
        let archive = Some(Archive::create(&folder, 1).expect("a folder"));
        let mut session = Session { archive, ..session() };
        let (made, now) = (std::cell::Cell::new(0), Instant::now());
        let part = || {
            made.set(made.get() + 1);
            failed("datatag", 1)
        };
        for _ in 0..3 {
            session.on_part("datatag", &part, now);
        }
        session.parts = Parts::Failed;
        session.on_part("datatag", &part, now + PART_INTERVAL);
        session.archive = None;
        session.parts = Parts::Awaited;
        session.on_part("datatag", &part, now);
        std::fs::remove_dir_all(&folder).expect("ours");
        assert_eq!(made.get(), 1);
    }

    #[test]
    fn a_session_without_a_figure_is_a_failure() {
        let error = session().finish().expect_err("nothing was measured");
        assert!(matches!(error, LabError::Live(LiveError::NothingToMeasure)), "{error}");
    }
}
