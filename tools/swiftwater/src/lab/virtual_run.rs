//! `lab --virtual`: cases on a virtual clock, several at a time.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ::lab::experiment::{self, Case, Experiment, Options, Outcome, Watch, table};
use indicatif::ProgressBar;

use super::args::LabArgs;
use super::row::{Clock, Row, Source};
use super::{LabError, STEPS, case_names, first_failure, page, progress_bar, tell_interruption, write_error};
use crate::output::{Json, note};
use crate::result_file::ResultFile;
use crate::trace::file::VirtualTrace;
use crate::{host, interrupt};

/// A case, with the files for its capture and its trace.
struct Job {
    case: Box<dyn Case>,
    capture: Option<PathBuf>,
    qlog: Option<PathBuf>,
}

/// Runs the cases that the user asks for.
pub(super) fn run(args: &LabArgs) -> Result<(), LabError> {
    let name = args.experiment.as_deref().unwrap_or_default();
    let experiment = experiment::find(name).ok_or_else(|| LabError::Unknown(name.to_owned()))?;
    let jobs = jobs(args, experiment)?;
    let json = args.json.open()?;
    let mut plot = args.plot.as_deref().map(open_page).transpose()?;
    check_files(&jobs)?;
    interrupt::listen()?;
    let (outcomes, mut failures) = measure(&jobs);
    if !outcomes.is_empty() || failures.is_empty() {
        failures.extend(print_outcomes(json, experiment.name, args.seed, &outcomes).err());
    }
    if let Some(plot) = plot.as_mut().filter(|_| !outcomes.is_empty()) {
        let page = page::render(experiment, &outcomes);
        let written = plot.write_all(page.as_bytes());
        failures.extend(written.err().map(|error| write_error(plot.path(), &error)));
    }
    // Those that are not whole are removed.
    drop(plot);
    first_failure(failures)?;
    if outcomes.is_empty() {
        return Ok(());
    }
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
    let source = |outcome: &Outcome| match outcome.published {
        true => Source::Published(Clock::Virtual),
        false => Source::Virtual { seed },
    };
    let sources: Vec<Source> = outcomes.iter().map(source).collect();
    let rows = outcomes.iter().zip(&sources).map(|(outcome, source)| Row::new(experiment, outcome, source));
    let rows: Vec<Row<'_>> = rows.collect();
    let text = if outcomes.is_empty() { String::new() } else { table(outcomes) };
    let written = if outcomes.is_empty() { json.write_nothing() } else { json.write_beside(&text, &rows) };
    tell_interruption(!outcomes.is_empty());
    Ok(written?)
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

/// Returns all outcomes, in the order of the cases, and all failures. Every processor runs cases until none is left;
/// the outcomes do not depend on their distribution.
fn measure(jobs: &[Job]) -> (Vec<Outcome>, Vec<LabError>) {
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
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    for (of_case, failures_of_case) in done.into_iter().filter_map(OnceLock::into_inner) {
        outcomes.extend(of_case);
        failures.extend(failures_of_case);
    }
    (outcomes, failures)
}

/// Returns the outcomes of a case, and failures of its capture and its trace: a trace that cannot be written costs no figures.
fn run_job(job: &Job, bar: &ProgressBar) -> (Vec<Outcome>, Vec<LabError>) {
    let (mut watch, mut failures) = (Watch::default(), Vec::new());
    if let Some(path) = &job.capture {
        match ResultFile::open(path) {
            Ok(file) => watch.capture = Some(Box::new(BufWriter::new(file))),
            Err(error) => failures.push(write_error(path, &error)),
        }
    }
    let trace = job.qlog.as_ref().map(|path| VirtualTrace::create(path, &job.case.name())).transpose();
    let trace = trace.unwrap_or_else(|error| {
        failures.push(error.into());
        None
    });
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
    let outcomes = outcomes.unwrap_or_else(|error| {
        failures.push(write_error(job.capture.as_deref().unwrap_or(Path::new("")), &error));
        Vec::new()
    });
    failures.extend(trace.and_then(|trace| trace.finish().err()).map(LabError::from));
    (outcomes, failures)
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
