//! `--out`: a folder that keeps the measurements of an experiment, and their conditions.
//!
//! `manifest.json` describes the run, `results.json` has the rows of `--json`, and `traces/` has runs as curves. Files that are
//! not of the laboratory remain.
//!
//! The three belong together. So all files of an experiment are first written into the folder [`NEW`], which is renamed to
//! [`READY`] once it is complete, and then moved out of it. A full disk or the end of the command before the renaming leaves the
//! results from before; whoever uses the folder next moves what the end of the command has left in [`READY`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::live;
use super::live::trace::Trace;
use super::{LabError, write_error};
use crate::host;
use crate::regular_file;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const RESULTS: &str = "results.json";
pub(super) const TRACES: &str = "traces";
/// Folder for files that are not complete yet.
const NEW: &str = ".swiftwater-new";
/// Folder of complete files that replace those from before.
const READY: &str = ".swiftwater-ready";
/// File in [`READY`] while traces of an earlier run have to be removed.
const FIRST: &str = "first";

/// Description of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: String,
    pub(super) kernel: String,
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) date: String,
    /// The command line.
    pub(super) command: Vec<String>,
    pub(super) experiments: Vec<String>,
    pub(super) seed: u64,
    /// Number of processors that other programs kept busy during the run; `None` until the command has ended.
    pub(super) others_busy_processors: Option<f64>,
    pub(super) elapsed_s: f64,
    #[serde(default)]
    pub(super) settings: RunSettings,
    /// Restrictions of this host, a sentence each.
    #[serde(default)]
    pub(super) limits: Vec<String>,
    /// Transports that this host lacks, with the reason.
    #[serde(default)]
    pub(super) left_out: Vec<String>,
}

/// Settings of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RunSettings {
    /// Text in the names of the cases.
    pub(super) case: String,
    /// Seconds of each measurement; `None` is the experiment's default.
    pub(super) seconds: Option<f64>,
    /// Number of runs of each measurement.
    pub(super) repeat: u32,
    pub(super) quick: bool,
    pub(super) full: bool,
}

/// The folder of one run of the command.
pub(super) struct Archive {
    folder: PathBuf,
    manifest: Manifest,
    began: Instant,
    busy_before: Duration,
    /// Number of traces of all experiments so far.
    traces: usize,
    /// Whether the folder has results of this run.
    has_results: bool,
}

impl Archive {
    /// Makes the folder at the start, so that a long command fails early.
    pub(super) fn create(folder: &Path, seed: u64) -> Result<Self, LabError> {
        let manifest = Manifest {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: host::kernel(),
            processor: host::processor_model(),
            processors: host::allowed_processors().len(),
            date: host::now_rfc3339(),
            command: std::env::args().skip(1).collect(),
            seed,
            ..Manifest::default()
        };
        finish(folder).map_err(|error| write_error(folder, &error))?;
        check_owner(folder)?;
        let traces = folder.join(TRACES);
        // The error names the folder that the user has named.
        for made in [folder, &traces] {
            fs::create_dir_all(made).map_err(|error| write_error(made, &error))?;
        }
        if traces.is_symlink() {
            return Err(LabError::Foreign { path: traces });
        }
        for folder in [folder, &traces] {
            check_writable(folder).map_err(|error| write_error(folder, &error))?;
        }
        let folder = folder.to_owned();
        let busy_before = host::others_busy_time();
        Ok(Archive { folder, manifest, began: Instant::now(), busy_before, traces: 0, has_results: false })
    }

    /// Describes the settings of the run and the conditions on this host.
    pub(super) fn describe(&mut self, settings: &live::Settings<'_>, conditions: &live::Conditions) {
        self.manifest.settings = RunSettings {
            case: settings.case.to_owned(),
            seconds: settings.seconds,
            repeat: settings.repeat(),
            quick: settings.quick,
            full: settings.full,
        };
        self.manifest.limits = conditions.limits.clone();
        self.manifest.left_out = conditions.left_out();
    }

    /// Keeps an experiment: all rows so far, and its traces.
    pub(super) fn keep(
        &mut self,
        experiment: &str,
        rows: &[impl Serialize],
        traces: &[Trace],
    ) -> Result<(), LabError> {
        let written = self.write(experiment, rows, traces).and_then(|()| {
            let ready = self.folder.join(READY);
            fs::rename(self.folder.join(NEW), &ready).map_err(|error| write_error(&ready, &error))
        });
        if let Err(error) = written {
            // What is not complete only takes room.
            let _ = remove_folder(&self.folder.join(NEW));
            return Err(error);
        }
        self.traces += traces.len();
        self.has_results = true;
        finish(&self.folder).map_err(|error| write_error(&self.folder, &error))
    }

    /// Writes the files of an experiment into the folder [`NEW`].
    fn write(&mut self, experiment: &str, rows: &[impl Serialize], traces: &[Trace]) -> Result<(), LabError> {
        let folder = self.folder.join(NEW);
        let made = remove_folder(&folder).and_then(|()| fs::create_dir_all(folder.join(TRACES)));
        made.map_err(|error| write_error(&folder, &error))?;
        self.manifest.experiments.push(experiment.to_owned());
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let busy = host::others_busy_time().saturating_sub(self.busy_before).as_secs_f64();
        self.manifest.elapsed_s = elapsed_s;
        self.manifest.others_busy_processors = Some(busy / elapsed_s.max(1e-9));
        write(&folder.join(MANIFEST), &self.manifest)?;
        write(&folder.join(RESULTS), &rows)?;
        for (number, trace) in (self.traces + 1..).zip(traces) {
            write(&folder.join(TRACES).join(trace_name(number, experiment)), trace)?;
        }
        if !self.has_results {
            write(&folder.join(FIRST), &())?;
        }
        Ok(())
    }
}

fn write(path: &Path, what: &impl Serialize) -> Result<(), LabError> {
    let text = serde_json::to_vec_pretty(what).map_err(io::Error::from);
    text.and_then(|text| regular_file::replace(path, &text)).map_err(|error| write_error(path, &error))
}

/// Moves complete files in place of those from before, if the command that has written them could not.
pub(super) fn finish(folder: &Path) -> io::Result<()> {
    let ready = folder.join(READY);
    if ready.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        move_all(&ready, folder)?;
    }
    Ok(())
}

/// Moves all files of the folder [`READY`], so that the end of the command at any moment leaves what remains to be done.
fn move_all(ready: &Path, folder: &Path) -> io::Result<()> {
    let first = ready.join(FIRST);
    let traces = folder.join(TRACES);
    fs::create_dir_all(&traces)?;
    if traces.is_symlink() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "the folder of the traces is a link"));
    }
    if first.exists() {
        trace_files(&traces)?.iter().try_for_each(fs::remove_file)?;
        fs::remove_file(&first)?;
    }
    for trace in trace_files(&ready.join(TRACES))? {
        let name = trace.file_name().unwrap_or_default();
        fs::rename(&trace, traces.join(name))?;
    }
    for name in [RESULTS, MANIFEST] {
        match fs::rename(ready.join(name), folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // A folder of which a part is removed is not ready.
    let rest = folder.join(NEW);
    remove_folder(&rest)?;
    fs::rename(ready, &rest)?;
    remove_folder(&rest)
}

/// Removes a folder, or a link in its place.
fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Fails if a folder has files under the names of the laboratory's that are not its own.
fn check_owner(folder: &Path) -> Result<(), LabError> {
    let manifest = regular_file::read(&folder.join(MANIFEST));
    if manifest.is_ok_and(|text| serde_json::from_slice::<Manifest>(&text).is_ok()) {
        return Ok(());
    }
    let traces = trace_files(&folder.join(TRACES)).unwrap_or_default();
    let mut taken = [MANIFEST, RESULTS].map(|name| folder.join(name)).into_iter().chain(traces);
    match taken.find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(LabError::Foreign { path }),
        None => Ok(()),
    }
}

/// Returns the traces in a folder of traces, in their order: files with such a name as [`trace_name`] returns.
pub(super) fn trace_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_trace = |name: &str| {
        let parts = name.strip_suffix(".json").and_then(|stem| stem.split_once('-'));
        parts.is_some_and(|(number, experiment)| {
            number.parse().is_ok_and(|number| trace_name(number, experiment) == name)
                && live::is_experiment(experiment)
        })
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name().to_str().is_some_and(is_trace) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns the name of the file of a trace.
fn trace_name(number: usize, experiment: &str) -> String {
    format!("{number:04}-{experiment}.json")
}

/// Fails early if nothing can be made in a folder.
fn check_writable(folder: &Path) -> io::Result<()> {
    let probe = folder.join(NEW);
    remove_folder(&probe)?;
    fs::create_dir(&probe)?;
    fs::remove_dir(probe)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::symlink;

    use super::*;

    const NO_ROWS: [&str; 0] = [];

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("swiftwater-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join(TRACES)).expect("a folder");
        folder
    }

    #[test]
    fn a_folder_keeps_whole_files_and_no_traces_of_before_and_those_of_others() {
        let folder = scratch("archive");
        let traces = folder.join(TRACES);
        for name in ["thesis.txt", "my.json", "0002-old.json", "2-lossy.json"] {
            fs::write(traces.join(name), "mine").expect("room");
        }
        fs::create_dir_all(traces.join("0003-lossy.json")).expect("a folder of others");
        let mut archive = Archive::create(&folder, 7).expect("a folder");
        archive.keep("lossy", &NO_ROWS, &[]).expect("room");
        let text = fs::read_to_string(folder.join(MANIFEST)).expect("written");
        let manifest: Manifest = serde_json::from_str(&text).expect("JSON");
        assert_eq!((manifest.seed, manifest.experiments), (7, vec!["lossy".to_owned()]));
        assert!(manifest.others_busy_processors.is_some());
        fs::write(traces.join("0001-lossy.json"), "{}").expect("room");
        let mut archive = Archive::create(&folder, 8).expect("ours");
        assert_eq!(trace_files(&traces).expect("a folder").len(), 1, "it remains until there are results");
        archive.keep("lossy", &NO_ROWS, &[]).expect("room");
        assert_eq!(names(&folder), [MANIFEST, RESULTS, TRACES], "nothing half written");
        let others = ["0002-old.json", "0003-lossy.json", "2-lossy.json", "my.json", "thesis.txt"];
        assert_eq!(names(&traces), others);
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn links_in_a_folder_are_not_followed() {
        let folder = scratch("links");
        let victim = folder.join("victim");
        fs::create_dir(&victim).expect("room");
        fs::write(victim.join(RESULTS), "mine").expect("room");
        let mut archive = Archive::create(&folder, 1).expect("a folder");
        for name in [NEW, READY] {
            symlink(&victim, folder.join(name)).expect("room");
        }
        archive.keep("lossy", &NO_ROWS, &[]).expect_err("a link is in the way");
        assert_eq!(fs::read_to_string(victim.join(RESULTS)).expect("it remains"), "mine");
        fs::remove_file(folder.join(READY)).expect("it remains");
        symlink(&victim, folder.join(NEW)).expect("room");
        archive.keep("lossy", &NO_ROWS, &[]).expect("room");
        assert_eq!(fs::read_to_string(victim.join(RESULTS)).expect("it remains"), "mine");
        fs::remove_dir_all(folder.join(TRACES)).expect("ours");
        symlink("/tmp", folder.join(TRACES)).expect("room");
        let Err(error) = Archive::create(&folder, 1) else { panic!("the traces would go elsewhere") };
        assert!(error.to_string().contains(TRACES), "{error}");
        fs::remove_dir_all(&folder).expect("ours");
    }

    /// Results of a run, told apart by the seed.
    struct Kept {
        seed: u64,
        results: usize,
        traces: Vec<OsString>,
    }

    fn kept(folder: &Path) -> Kept {
        let read = |name| fs::read(folder.join(name)).expect("written");
        let manifest: Manifest = serde_json::from_slice(&read(MANIFEST)).expect("JSON");
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&read(RESULTS)).expect("JSON");
        Kept { seed: manifest.seed, results: rows.len(), traces: names(&folder.join(TRACES)) }
    }

    fn trace() -> Trace {
        let (case, transport) = ("a".into(), "tcp".into());
        let (curves, published) = (Vec::new(), Vec::new());
        Trace { experiment: "lossy".into(), case, transport, paths: 1, seconds: 1.0, curves, published }
    }

    /// Writes a first run of two traces without rows, and the files of a second one, of a trace and a row, up to [`NEW`].
    fn two_runs(name: &str) -> PathBuf {
        let folder = scratch(name);
        let mut first = Archive::create(&folder, 1).expect("a folder");
        first.keep("lossy", &NO_ROWS, &[trace(), trace()]).expect("room");
        let mut second = Archive::create(&folder, 2).expect("ours");
        second.write("failover", &["a row"], &[trace()]).expect("room");
        folder
    }

    #[test]
    fn a_run_that_ends_before_its_files_are_complete_leaves_those_from_before() {
        let folder = two_runs("incomplete");
        let found = kept(&folder);
        assert_eq!((found.seed, found.results), (1, 0));
        assert_eq!(found.traces, ["0001-lossy.json", "0002-lossy.json"]);
        finish(&folder).expect("nothing is ready");
        assert_eq!(kept(&folder).seed, 1);
        Archive::create(&folder, 3).expect("ours");
        assert_eq!(names(&folder), [MANIFEST, RESULTS, TRACES], "what is not complete has gone");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn files_that_were_complete_when_their_run_ended_replace_those_from_before() {
        // The run has ended before it moved a file, after the old traces, the trace and the results, or only the folder remains.
        for moved in 0..=4 {
            let folder = two_runs(&format!("ready-{moved}"));
            let (ready, traces) = (folder.join(READY), folder.join(TRACES));
            fs::rename(folder.join(NEW), &ready).expect("room");
            let steps: [&dyn Fn() -> io::Result<()>; 4] = [
                &|| {
                    trace_files(&traces)?.iter().try_for_each(fs::remove_file)?;
                    fs::remove_file(ready.join(FIRST))
                },
                &|| {
                    fs::rename(
                        ready.join(TRACES).join("0001-failover.json"),
                        traces.join("0001-failover.json"),
                    )
                },
                &|| fs::rename(ready.join(RESULTS), folder.join(RESULTS)),
                &|| fs::rename(ready.join(MANIFEST), folder.join(MANIFEST)),
            ];
            steps[..moved].iter().try_for_each(|step| step()).expect("it is there");
            finish(&folder).expect("room");
            let found = kept(&folder);
            assert_eq!((found.seed, found.results), (2, 1), "{moved}");
            assert_eq!(found.traces, ["0001-failover.json"], "{moved}");
            assert_eq!(names(&folder), [MANIFEST, RESULTS, TRACES], "{moved}");
            fs::remove_dir_all(&folder).expect("ours");
        }
    }

    #[test]
    fn a_run_that_cannot_write_leaves_the_results_from_before() {
        let folder = two_runs("unwritable");
        let mut archive = Archive::create(&folder, 3).expect("ours");
        // Files take the place of no folder.
        fs::create_dir_all(folder.join(READY)).expect("room");
        fs::write(folder.join(READY).join("in the way"), "").expect("room");
        archive.keep("lossy", &NO_ROWS, &[trace()]).expect_err("it cannot be renamed");
        let found = kept(&folder);
        assert_eq!((found.seed, found.traces.len()), (1, 2));
        assert!(!folder.join(NEW).exists());
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn files_of_others_under_the_names_of_the_laboratory_are_not_overwritten() {
        let folder = scratch("foreign");
        for name in [MANIFEST, RESULTS, "traces/0001-lossy.json"] {
            fs::write(folder.join(name), "{\"name\": \"a web page\"}").expect("room");
            let Err(error) = Archive::create(&folder, 1) else { panic!("{name} is not ours") };
            let said = error.to_string();
            assert!(said.contains(name) && said.contains("another folder"), "{said}");
            fs::remove_file(folder.join(name)).expect("it remains");
        }
        Archive::create(&folder, 1).expect("nothing is in the way");
        assert_eq!(names(&folder), [TRACES], "nothing before there are results");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_what_to_do() {
        let Err(error) = Archive::create(Path::new("/dev/null/folder"), 1) else { panic!("it is no folder") };
        let said = error.to_string();
        assert!(said.contains("/dev/null/folder") && said.contains("choose another"), "{said}");
    }
}
