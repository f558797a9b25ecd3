//! `--out`: a folder that keeps the measurements of an experiment, and their conditions.
//!
//! `manifest.json` describes the run, `results.json` has the rows of `--json`, and `traces/` has runs as curves. Every file is
//! first written under another name, so that a full disk or the end of the command leaves the last complete one. Results of an
//! earlier run remain until there are new ones; files that are not of the laboratory remain in any case.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::live;
use super::live::trace::Trace;
use super::row::Row;
use super::{LabError, write_error};
use crate::host;
use crate::regular_file;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const RESULTS: &str = "results.json";
pub(super) const TRACES: &str = "traces";

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
    begun: bool,
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
        check_owner(folder)?;
        let traces = folder.join(TRACES);
        fs::create_dir_all(&traces).map_err(|error| write_error(&traces, &error))?;
        if traces.is_symlink() {
            return Err(LabError::Foreign { path: traces });
        }
        for folder in [folder, &traces] {
            check_writable(folder).map_err(|error| write_error(folder, &error))?;
        }
        let folder = folder.to_owned();
        let busy_before = host::others_busy_time();
        Ok(Archive { folder, manifest, began: Instant::now(), busy_before, traces: 0, begun: false })
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

    /// Removes the traces of an earlier run, which must not remain beside those of this one.
    fn begin(&mut self) -> Result<(), LabError> {
        if !self.begun {
            let paths = trace_files(&self.folder.join(TRACES));
            let removed = paths.and_then(|paths| paths.iter().try_for_each(fs::remove_file));
            removed.map_err(|error| write_error(&self.folder.join(TRACES), &error))?;
            self.begun = true;
        }
        Ok(())
    }

    /// Keeps an experiment: all rows so far, and its traces.
    pub(super) fn keep(
        &mut self,
        experiment: &str,
        rows: &[Row<'_>],
        traces: &[Trace],
    ) -> Result<(), LabError> {
        self.begin()?;
        self.write(RESULTS, &rows)?;
        for trace in traces {
            self.traces += 1;
            self.write(&format!("{TRACES}/{}", trace_name(self.traces, experiment)), trace)?;
        }
        self.manifest.experiments.push(experiment.to_owned());
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let busy = host::others_busy_time().saturating_sub(self.busy_before).as_secs_f64();
        self.manifest.elapsed_s = elapsed_s;
        self.manifest.others_busy_processors = Some(busy / elapsed_s.max(1e-9));
        self.write(MANIFEST, &self.manifest)
    }

    fn write(&self, name: &str, what: &impl Serialize) -> Result<(), LabError> {
        let path = self.folder.join(name);
        let new = new(&path);
        let written = serde_json::to_vec_pretty(what)
            .map_err(io::Error::from)
            .and_then(|text| regular_file::replace(&new, &text))
            .and_then(|()| fs::rename(&new, &path));
        written.map_err(|error| {
            let _ = fs::remove_file(&new);
            write_error(&path, &error)
        })
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

/// Returns the name under which a file is written before it is complete.
fn new(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Fails early if no files can be made in a folder.
fn check_writable(folder: &Path) -> io::Result<()> {
    let probe = new(&folder.join(MANIFEST));
    regular_file::replace(&probe, &[])?;
    fs::remove_file(probe)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::symlink;

    use super::*;

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
        archive.keep("lossy", &[], &[]).expect("room");
        let text = fs::read_to_string(folder.join(MANIFEST)).expect("written");
        let manifest: Manifest = serde_json::from_str(&text).expect("JSON");
        assert_eq!((manifest.seed, manifest.experiments), (7, vec!["lossy".to_owned()]));
        assert!(manifest.others_busy_processors.is_some());
        fs::write(traces.join("0001-lossy.json"), "{}").expect("room");
        let mut archive = Archive::create(&folder, 8).expect("ours");
        assert_eq!(trace_files(&traces).expect("a folder").len(), 1, "it remains until there are results");
        archive.keep("lossy", &[], &[]).expect("room");
        assert_eq!(names(&folder), [MANIFEST, RESULTS, TRACES], "nothing half written");
        let others = ["0002-old.json", "0003-lossy.json", "2-lossy.json", "my.json", "thesis.txt"];
        assert_eq!(names(&traces), others);
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn links_in_a_folder_are_not_followed() {
        let folder = scratch("links");
        let victim = folder.join("victim");
        fs::write(&victim, "mine").expect("room");
        for name in [MANIFEST, RESULTS] {
            symlink(&victim, new(&folder.join(name))).expect("room");
        }
        let mut archive = Archive::create(&folder, 1).expect("a folder");
        archive.keep("lossy", &[], &[]).expect("room");
        assert_eq!(fs::read_to_string(&victim).expect("it remains"), "mine");
        fs::remove_dir_all(folder.join(TRACES)).expect("ours");
        symlink("/tmp", folder.join(TRACES)).expect("room");
        let Err(error) = Archive::create(&folder, 1) else { panic!("the traces would go elsewhere") };
        assert!(error.to_string().contains(TRACES), "{error}");
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
