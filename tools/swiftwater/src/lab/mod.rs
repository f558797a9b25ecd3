//! `swiftwater lab`: experiments on simulated networks, compared with published results.

mod archive;
pub(crate) mod args;
mod case_names;
#[cfg(test)]
mod index;
pub(crate) mod line;
mod list;
mod live;
mod page;
mod report;
mod row;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ::lab::experiment::{self, Case, Experiment, Options, Outcome, Watch, table, table_with};
use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;

use crate::output::{Json, OutputError, note, print};
use crate::result_file::ResultFile;
use crate::run::{EXIT_NO_PROGRAM, EXIT_NOT_EXECUTABLE};
use crate::trace::file::{TraceFileError, VirtualTrace};
use crate::{host, interrupt};
use archive::Archive;
use args::{LabArgs, LabCommand, LiveName};
use live::LiveError;
use row::Row;

/// Exit status for arguments that cannot be used.
const EXIT_USAGE: u8 = 2;
/// Steps of the progress bar for each case.
const STEPS: u64 = 1000;

/// Error of an experiment.
#[derive(Debug, Error)]
pub(crate) enum LabError {
    /// There is no such experiment.
    #[error("there is no experiment `{0}` on a virtual clock; they are: {names}", names = names())]
    Unknown(String),
    /// No case has such a name.
    #[error("no case of {experiment} has `{wanted}` in its name; they are: {names}")]
    NoCase {
        /// The experiment.
        experiment: &'static str,
        /// The name that the user gave.
        wanted: String,
        /// The names that exist.
        names: String,
    },
    /// Ctrl-C cannot be caught.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(#[from] interrupt::ListenError),
    /// A file cannot be written.
    #[error("cannot write {}: {reason}; choose another place, or make room there", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Error of the system.
        reason: String,
    },
    /// The folder for results has a file of others under a name of the laboratory's.
    #[error("{} is not of `swiftwater lab --live NAME --out DIR`, which would overwrite it; name another folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Two hosts in real time failed.
    #[error(transparent)]
    Line(line::LineError),
    /// A live experiment failed.
    #[error(transparent)]
    Live(#[from] live::LiveError),
    /// The page cannot be made.
    #[error(transparent)]
    Report(#[from] report::ReportError),
    /// A trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// The results cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl From<line::LineError> for LabError {
    /// Keeps failures of the output apart.
    fn from(error: line::LineError) -> Self {
        match error {
            line::LineError::Output(error) => LabError::Output(error),
            error => LabError::Line(error),
        }
    }
}

impl LabError {
    /// Returns the exit status for errors that have one of their own.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        match self {
            // Options that do not exist have this status, too.
            LabError::Unknown(_) | LabError::NoCase { .. } | LabError::Live(LiveError::NoCase(_)) => {
                Some(EXIT_USAGE)
            }
            LabError::Line(error) if error.is_usage() => Some(EXIT_USAGE),
            LabError::Line(line::LineError::Program { source, .. }) => {
                let is_missing = source.kind() == io::ErrorKind::NotFound;
                Some(if is_missing { EXIT_NO_PROGRAM } else { EXIT_NOT_EXECUTABLE })
            }
            _ => None,
        }
    }
}

/// Returns the names of the experiments on a virtual clock.
fn names() -> String {
    experiment::ALL.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ")
}

/// A case, with the files for its capture and its trace.
struct Job {
    case: Box<dyn Case>,
    capture: Option<PathBuf>,
    qlog: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &LabArgs) -> Result<(), LabError> {
    match &args.command {
        Some(LabCommand::Line(command)) => return Ok(line::run(command)?),
        Some(LabCommand::Report(args)) => return Ok(report::run(args)?),
        None => {}
    }
    if args.list {
        let mut json = args.json.open()?;
        let all = list::all();
        return Ok(json.write_beside(&list::text(&all), &all)?);
    }
    if let Some(name) = args.live {
        let settings = live_settings(args);
        let experiments = live::select(name, &settings).map_err(LiveError::from)?;
        live::enter(name)?;
        let json = args.json.open()?;
        interrupt::listen()?;
        return run_live(&experiments, &settings, args.out.as_deref(), json);
    }
    let name = args.experiment.as_deref().unwrap_or_default();
    let experiment = experiment::find(name).ok_or_else(|| LabError::Unknown(name.to_owned()))?;
    let jobs = jobs(args, experiment)?;
    let json = args.json.open()?;
    let mut plot = args.plot.as_deref().map(open_page).transpose()?;
    check_files(&jobs)?;
    interrupt::listen()?;
    let (outcomes, measured) = measure(&jobs);
    if outcomes.is_empty() {
        measured?;
        return print_outcomes(json, experiment.name, args.seed, &outcomes);
    }
    let printed = print_outcomes(json, experiment.name, args.seed, &outcomes);
    if let Some(plot) = &mut plot {
        let page = page::render(experiment, &outcomes);
        plot.write_all(page.as_bytes()).map_err(|error| write_error(plot.path(), &error))?;
    }
    printed?;
    measured?;
    let files = jobs.iter().flat_map(|job| [job.capture.as_deref(), job.qlog.as_deref()]).flatten();
    for path in args.plot.as_deref().into_iter().chain(files).filter(|path| path.exists()) {
        note(format_args!("written: {}", path.display()));
    }
    Ok(())
}

/// Prints outcomes as a table, as JSON, or as both.
fn print_outcomes(
    mut json: Json,
    experiment: &'static str,
    seed: u64,
    outcomes: &[Outcome],
) -> Result<(), LabError> {
    let row = |outcome| Row::new(experiment, Some(seed), outcome, None);
    let rows: Vec<Row<'_>> = outcomes.iter().map(row).collect();
    let text = if outcomes.is_empty() { String::new() } else { table(outcomes) };
    let written = if outcomes.is_empty() { json.write_nothing() } else { json.write_beside(&text, &rows) };
    tell_interruption(!outcomes.is_empty());
    Ok(written?)
}

/// Tells the user what Ctrl-C has left of the figures.
fn tell_interruption(has_figures: bool) {
    if interrupt::requested() {
        let what =
            if has_figures { "these figures are of the time until then" } else { "nothing was measured" };
        note(format_args!("interrupted: {what}"));
    }
}

fn live_settings(args: &LabArgs) -> live::Settings<'_> {
    live::Settings {
        seconds: args.seconds,
        case: args.case.as_deref().unwrap_or_default(),
        repeat: args.repeat,
        quick: args.quick,
        full: args.full,
        seed: args.seed,
    }
}

/// Runs live experiments one after the other. Prints and keeps all measurements, even if a part fails.
fn run_live(
    experiments: &[LiveName],
    settings: &live::Settings<'_>,
    out: Option<&Path>,
    mut json: Json,
) -> Result<(), LabError> {
    let mut archive = out.map(|folder| Archive::create(folder, settings.seed)).transpose()?;
    let whole = || experiments.iter().map(|&one| live::estimate(one, settings)).sum::<live::Estimate>();
    if experiments.len() > 1 {
        note(format_args!("{} experiments, {}", experiments.len(), whole()));
    }
    let conditions = live::Conditions::find(experiments, settings);
    for sentence in conditions.limits.iter().cloned().chain(conditions.left_out()) {
        note(format_args!("{sentence}"));
    }
    if let Some(archive) = &mut archive {
        archive.describe(settings, &conditions);
    }
    let (mut all, mut failure) = (Vec::new(), None);
    for (number, &experiment) in (1..).zip(experiments) {
        if interrupt::requested() {
            break;
        }
        let place = if experiments.len() > 1 {
            format!(" ({number} of {})", experiments.len())
        } else {
            String::new()
        };
        note(format_args!("{}{place}: {}", live::name(experiment), live::estimate(experiment, settings)));
        let others = host::OthersBusy::begin();
        let mut results = live::run(experiment, settings, &conditions);
        let busy = others.sentence();
        let missing = results.failure.take().map(LabError::from);
        let name = live::name(experiment);
        if json.leaves_text() && !results.outcomes.is_empty() {
            let heading = if experiments.len() > 1 { format!("{name}\n") } else { String::new() };
            print(&(heading + &live_table(name, &results.outcomes)))?;
        }
        if let Some(sentence) =
            live::disturbance(results.outcomes.iter().filter_map(|(_, figures)| figures.as_ref()))
        {
            note(format_args!("{sentence}"));
        }
        // The lines may be on time while the ends have no processor.
        if let Some(sentence) = busy {
            note(format_args!("{sentence}"));
        }
        let traces = std::mem::take(&mut results.traces);
        all.push((name, results));
        let kept = match &mut archive {
            // An experiment that has measured nothing does not take the place of results from before.
            Some(archive) if has_figures(&all) => archive.keep(name, &live_rows(&all), &traces),
            _ => Ok(()),
        };
        for error in missing.into_iter().chain(kept.err()) {
            // The first failure decides the result.
            match &failure {
                None => failure = Some(error),
                Some(_) => note(format_args!("{name}: {error}")),
            }
        }
    }
    if has_figures(&all) {
        json.write(&live_rows(&all))?;
    } else {
        json.write_nothing()?;
    }
    tell_interruption(has_figures(&all));
    if !has_figures(&all) && !interrupt::requested() {
        // What the kernel lacks is no failure beside other figures.
        failure.get_or_insert(LiveError::NothingToMeasure.into());
    }
    failure.map_or(Ok(()), Err)
}

/// Returns whether something was measured.
fn has_figures(all: &[(&'static str, live::Results)]) -> bool {
    all.iter().any(|(_, results)| !results.outcomes.is_empty())
}

/// Returns measured and published outcomes of an experiment as text.
fn live_table(name: &str, outcomes: &[(Outcome, Option<live::Figures>)]) -> String {
    let (named, figures): (Vec<_>, Vec<_>) =
        outcomes.iter().map(|(outcome, figures)| (named(outcome), figures.as_ref())).unzip();
    let counters = live::published_counters(name);
    let table = table_with(&named, &live::columns(&figures, counters.is_some()));
    table + &counters.map_or_else(String::new, |counters| counters + "\n")
}

/// Returns an outcome for the table, in which a published one has its mode: its transport does not tell it.
fn named(outcome: &Outcome) -> Outcome {
    let transport = match outcome.mode.filter(|_| outcome.published) {
        Some(mode) => format!("{}, {mode}", outcome.transport),
        None => outcome.transport.clone(),
    };
    Outcome { transport, ..outcome.clone() }
}

/// Returns what `--json` prints of these experiments.
fn live_rows<'a>(all: &'a [(&'static str, live::Results)]) -> Vec<Row<'a>> {
    let rows = all.iter().flat_map(|(name, results)| {
        results.outcomes.iter().map(|(outcome, figures)| Row::new(name, None, outcome, figures.as_ref()))
    });
    rows.collect()
}

/// Returns the selected cases.
fn jobs(args: &LabArgs, experiment: &Experiment) -> Result<Vec<Job>, LabError> {
    let options =
        Options { seed: args.seed, time: args.seconds.map(Duration::from_secs_f64), full: args.full };
    let wanted = args.case.as_deref().unwrap_or_default();
    let (cases, others): (Vec<_>, Vec<_>) =
        (experiment.cases)(&options).into_iter().partition(|case| case.name().contains(wanted));
    if cases.is_empty() {
        let names: Vec<String> = others.iter().map(|case| case.name()).collect();
        let names =
            case_names::by_size(&names).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Err(LabError::NoCase { experiment: experiment.name, wanted: wanted.to_owned(), names });
    }
    let alone = cases.len() == 1;
    let file = |path: &Option<PathBuf>, number: usize| {
        let path = path.as_deref()?;
        Some(if alone { path.to_owned() } else { numbered(path, number) })
    };
    let jobs = cases.into_iter().zip(1..).map(|(case, number)| Job {
        case,
        capture: file(&args.capture, number),
        qlog: file(&args.qlog, number),
    });
    Ok(jobs.collect())
}

/// Opens the file of the page before the experiment begins.
fn open_page(path: &Path) -> Result<ResultFile, LabError> {
    ResultFile::open(path).map_err(|error| write_error(path, &error))
}

/// Fails if a capture or a trace cannot be written. The cases open their files later, since a user may have more cases than files
/// that may be open at a time.
fn check_files(jobs: &[Job]) -> Result<(), LabError> {
    let paths = jobs.iter().flat_map(|job| [job.capture.as_deref(), job.qlog.as_deref()]).flatten();
    // The reader of a pipe takes the end of the first writer for the end of the file.
    let is_pipe_or_device =
        |path: &Path| path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir());
    let mut files = paths.filter(|path| !is_pipe_or_device(path));
    files.try_for_each(|path| ResultFile::open(path).map(drop).map_err(|error| write_error(path, &error)))
}

/// Returns the file of one of several cases: `run.pcapng` becomes `run-1.pcapng`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    path.with_file_name(name)
}

/// Returns all outcomes, in the order of the cases, and the first failure. Every processor runs cases until none is left;
/// the outcomes do not depend on their distribution.
fn measure(jobs: &[Job]) -> (Vec<Outcome>, Result<(), LabError>) {
    let bar = progress_bar(jobs.len() as u64 * STEPS);
    let next = AtomicUsize::new(0);
    let done: Vec<OnceLock<_>> = jobs.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while !interrupt::requested()
            && let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some((job, done)) = jobs.get(index).zip(done.get(index))
        {
            done.get_or_init(|| run_job(job, &bar));
        }
    };
    thread::scope(|scope| {
        for _ in 0..host::allowed_processors().len().min(jobs.len()) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let (mut outcomes, mut measured) = (Vec::new(), Ok(()));
    for done in done.into_iter().filter_map(OnceLock::into_inner) {
        let (of_case, written) = done.unwrap_or_else(|error| (Vec::new(), Err(error)));
        outcomes.extend(of_case);
        measured = measured.and(written);
    }
    (outcomes, measured)
}

/// Returns the outcomes of a case, and whether its trace was written: a full disk costs no figures.
fn run_job(job: &Job, bar: &ProgressBar) -> Result<(Vec<Outcome>, Result<(), LabError>), LabError> {
    let mut watch = Watch::default();
    if let Some(path) = &job.capture {
        let file = ResultFile::open(path).map_err(|error| write_error(path, &error))?;
        watch.capture = Some(Box::new(BufWriter::new(file)));
    }
    let trace = job.qlog.as_ref().map(|path| VirtualTrace::create(path, &job.case.name())).transpose()?;
    watch.trace = trace.as_ref().map(VirtualTrace::taker);
    bar.set_message(job.case.name());
    let mut shown = 0;
    let mut progress = |part: f64| {
        let steps = (part * STEPS as f64) as u64;
        bar.inc(steps.saturating_sub(shown));
        shown = shown.max(steps);
        !interrupt::requested()
    };
    watch.progress = Some(&mut progress);
    let outcomes = job.case.run(&mut watch);
    bar.inc(STEPS.saturating_sub(shown));
    let traced = trace.map_or(Ok(()), VirtualTrace::finish).map_err(LabError::from);
    let path = job.capture.as_deref().unwrap_or(Path::new(""));
    let outcomes = outcomes.map_err(|error| write_error(path, &error))?;
    Ok((outcomes, traced))
}

/// Returns a bar of so many steps for the terminal.
fn progress_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} %  {eta} left  {msg}") {
        bar.set_style(style);
    }
    bar
}

fn write_error(path: &Path, error: &dyn std::error::Error) -> LabError {
    LabError::Write { path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_file_of_its_own() {
        assert_eq!(numbered(Path::new("a/run.pcapng"), 2), Path::new("a/run-2.pcapng"));
        assert_eq!(numbered(Path::new("run"), 1), Path::new("run-1"));
    }
}
