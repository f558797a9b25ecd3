//! `--out`: a folder that keeps the measurements of an experiment, and their conditions.
//!
//! `manifest.json` describes the run, `results.json` has the rows of `--json`, and `traces/` has runs as curves. Files that are
//! not of the laboratory remain.
//!
//! The three belong together. So all files of an experiment are first written into the folder [`NEW`], which is renamed to
//! [`READY`] once it is complete, and then moved out of it. A full disk or the end of the command before the renaming leaves the
//! results from before; the next command of the same user moves what the end of the command has left in [`READY`].
//!
//! The folder may belong to another user, who may put links and folders of its own into it at any time. So no name in it is
//! followed, and [`NEW`] and [`READY`] are used only if the user of this command has made them: nobody else can change what they
//! have.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::live;
use super::live::trace::Trace;
use super::{LabError, write_error};
use crate::folder::Folder;
use crate::host::{self, OthersBusy};

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const RESULTS: &str = "results.json";
pub(super) const TRACES: &str = "traces";
/// Folder for files that are not complete yet.
const NEW: &str = ".swiftwater-new";
/// Folder of complete files that replace those from before.
const READY: &str = ".swiftwater-ready";
/// Limit for the length of a manifest that is read: another user may have made it.
pub(super) const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// File in [`READY`] while traces of an earlier run have to be removed.
const FIRST: &str = "first";

/// Description of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: String,
    /// The commit from which the program was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) commit: Option<String>,
    pub(super) kernel: String,
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) date: String,
    /// The command line.
    pub(super) command: Vec<String>,
    pub(super) experiments: Vec<String>,
    pub(super) seed: u64,
    /// Number of processors that other programs kept busy during the run; `None` if it is unknown.
    pub(super) others_busy_processors: Option<f64>,
    pub(super) elapsed_s: f64,
    #[serde(default)]
    pub(super) settings: RunSettings,
    /// The experiment that was still being measured, or the next one if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unfinished: Option<String>,
    /// Number of runs that were measured, and of those that the user has asked for.
    #[serde(default)]
    pub(super) runs: usize,
    #[serde(default)]
    pub(super) planned_runs: usize,
    /// Number of traces.
    #[serde(default)]
    pub(super) traces: usize,
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
    path: PathBuf,
    folder: Folder,
    manifest: Manifest,
    began: Instant,
    others: OthersBusy,
    /// Number of traces of all experiments that have ended.
    traces: usize,
    /// Whether the folder has results of this run.
    has_results: bool,
    /// Whether this command has made the folder of traces.
    made_traces: bool,
}

impl Archive {
    /// Makes the folder at the start, so that a long command fails early.
    pub(super) fn create(path: &Path, seed: u64) -> Result<Self, LabError> {
        let manifest = Manifest {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: host::COMMIT.map(str::to_owned),
            kernel: host::kernel(),
            processor: host::processor_model(),
            processors: host::allowed_processors().len(),
            date: host::now_rfc3339(),
            command: std::env::args().skip(1).collect(),
            seed,
            ..Manifest::default()
        };
        // The error names the folder that the user has named.
        let failed = |error| write_error(path, &error);
        let folder = Folder::create(path).map_err(failed)?;
        finish(&folder).map_err(failed)?;
        check_owner(path, &folder)?;
        let made_traces = folder.make_missing_folder(TRACES).map_err(failed)?;
        let Ok(traces) = folder.folder(TRACES) else {
            return Err(LabError::Foreign { path: path.join(TRACES) });
        };
        check_writable(&folder).map_err(failed)?;
        check_writable(&traces).map_err(|error| write_error(&path.join(TRACES), &error))?;
        let path = path.to_owned();
        let others = OthersBusy::begin();
        Ok(Archive {
            path,
            folder,
            manifest,
            began: Instant::now(),
            others,
            traces: 0,
            has_results: false,
            made_traces,
        })
    }

    /// Describes the settings of the run, its number of runs, and the conditions on this host.
    pub(super) fn describe(
        &mut self,
        settings: &live::Settings<'_>,
        planned_runs: usize,
        conditions: &live::Conditions,
    ) {
        self.manifest.planned_runs = planned_runs;
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

    /// Tells how many runs of all experiments were measured.
    pub(super) fn count(&mut self, runs: usize) {
        self.manifest.runs = runs;
    }

    /// Keeps an experiment that has ended: all rows so far, and its traces. `unfinished` is the experiment that is not complete
    /// or comes next, if the command has not measured all.
    pub(super) fn keep(
        &mut self,
        experiment: &str,
        rows: &[impl Serialize],
        traces: &[Trace],
        unfinished: Option<&str>,
    ) -> Result<(), LabError> {
        self.manifest.unfinished = unfinished.map(str::to_owned);
        self.replace(experiment, rows, traces)?;
        self.traces += traces.len();
        Ok(())
    }

    /// Keeps what an experiment that goes on has measured: all rows so far, and its traces.
    pub(super) fn keep_part(
        &mut self,
        experiment: &str,
        rows: &[impl Serialize],
        traces: &[Trace],
    ) -> Result<(), LabError> {
        self.manifest.unfinished = Some(experiment.to_owned());
        self.replace(experiment, rows, traces)
    }

    /// Replaces the rows, and the traces of an experiment.
    fn replace(
        &mut self,
        experiment: &str,
        rows: &[impl Serialize],
        traces: &[Trace],
    ) -> Result<(), LabError> {
        let written = self.write(experiment, rows, traces).and_then(|()| {
            let renamed = self.folder.rename(NEW, &self.folder, READY);
            renamed.map_err(|error| write_error(&self.path, &error))
        });
        if let Err(error) = written {
            // Incomplete results only take room.
            let _ = remove_new(&self.folder);
            return Err(error);
        }
        self.has_results = true;
        finish(&self.folder).map_err(|error| write_error(&self.path, &error))
    }

    /// Writes the files of an experiment into the folder [`NEW`].
    fn write(&mut self, experiment: &str, rows: &[impl Serialize], traces: &[Trace]) -> Result<(), LabError> {
        // Users do not know the names of the parts of a folder that is not complete.
        let failed = |error| write_error(&self.path, &error);
        let (new, new_traces) = make_new(&self.folder).map_err(failed)?;
        if self.manifest.experiments.last().is_none_or(|last| last != experiment) {
            self.manifest.experiments.push(experiment.to_owned());
        }
        let elapsed_s = self.began.elapsed().as_secs_f64();
        self.manifest.elapsed_s = elapsed_s;
        self.manifest.traces = self.traces + traces.len();
        self.manifest.others_busy_processors = self.others.processors();
        write(&new, MANIFEST, &self.manifest).map_err(failed)?;
        write(&new, RESULTS, &rows).map_err(failed)?;
        for (number, trace) in (self.traces + 1..).zip(traces) {
            write(&new_traces, &trace_name(number, experiment), trace).map_err(failed)?;
        }
        if !self.has_results {
            write(&new, FIRST, &()).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Archive {
    /// Removes the folder of traces if nothing was measured.
    fn drop(&mut self) {
        if self.made_traces && !self.has_results {
            // One that has files in it remains.
            let _ = self.folder.remove_folder(TRACES);
        }
    }
}

/// Writes a file into a folder.
fn write(folder: &Folder, name: &str, what: &impl Serialize) -> io::Result<()> {
    folder.replace(name, &serde_json::to_vec_pretty(what)?)
}

/// Moves complete files in place of those from before, if the command that has written them could not. Fails if that was a
/// command of another user.
pub(super) fn finish(folder: &Folder) -> io::Result<()> {
    match folder.own_folder(READY) {
        Ok(ready) => move_all(&ready, folder).map_err(name_ready),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Names the folder [`READY`] in the error of moving its files if it lacks a part, which no command of the laboratory leaves out.
fn name_ready(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::NotFound => {
            io::Error::new(ErrorKind::InvalidData, format!("{READY} there is not complete"))
        }
        _ => error,
    }
}

/// Moves all files of the folder [`READY`], so that the end of the command at any moment leaves what remains to be done.
fn move_all(ready: &Folder, folder: &Folder) -> io::Result<()> {
    folder.make_missing_folder(TRACES)?;
    let traces = folder.folder(TRACES)?;
    if ready.has(FIRST) {
        trace_names(&traces)?.iter().try_for_each(|name| traces.remove_file(name))?;
        ready.remove_file(FIRST)?;
    }
    let ready_traces = ready.own_folder(TRACES)?;
    for name in trace_names(&ready_traces)? {
        ready_traces.rename(&name, &traces, &name)?;
    }
    for name in [RESULTS, MANIFEST] {
        match ready.rename(name, folder, name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // A folder is not ready once a part of it is removed.
    remove_new(folder)?;
    folder.rename(READY, folder, NEW)?;
    remove_new(folder)
}

/// Makes the folder [`NEW`] and its folder of traces.
fn make_new(folder: &Folder) -> io::Result<(Folder, Folder)> {
    remove_new(folder)?;
    folder.make_folder(NEW)?;
    let new = folder.own_folder(NEW)?;
    new.make_folder(TRACES)?;
    let traces = new.own_folder(TRACES)?;
    Ok((new, traces))
}

/// Removes the folder [`NEW`] with the files that this command writes there, or a link in its place.
fn remove_new(folder: &Folder) -> io::Result<()> {
    let new = match folder.own_folder(NEW) {
        Ok(new) => new,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => return folder.remove_file(NEW),
        Err(error) => return Err(error),
    };
    if new.has(TRACES) {
        let traces = new.own_folder(TRACES)?;
        trace_names(&traces)?.iter().try_for_each(|name| traces.remove_file(name))?;
        new.remove_folder(TRACES).map_err(name_new)?;
    }
    [MANIFEST, RESULTS, FIRST].iter().try_for_each(|name| new.remove_file(name))?;
    folder.remove_folder(NEW).map_err(name_new)
}

/// Names the folder [`NEW`] in the error of its removal if it has other files than those of the laboratory.
fn name_new(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ ErrorKind::DirectoryNotEmpty => {
            io::Error::new(kind, format!("{NEW} there has files that are not of the laboratory"))
        }
        _ => error,
    }
}

/// Fails if a folder has files under the names of the laboratory's that are not its own.
fn check_owner(path: &Path, folder: &Folder) -> Result<(), LabError> {
    let manifest = folder.read(MANIFEST, MANIFEST_BYTES_MAX);
    if manifest.is_ok_and(|text| serde_json::from_slice::<Manifest>(&text).is_ok()) {
        return Ok(());
    }
    let traces = folder.folder(TRACES).and_then(|traces| trace_names(&traces)).unwrap_or_default();
    let taken = [MANIFEST, RESULTS].into_iter().find(|name| folder.has(name)).map(|name| path.join(name));
    match taken.or_else(|| traces.first().map(|name| path.join(TRACES).join(name))) {
        Some(path) => Err(LabError::Foreign { path }),
        None => Ok(()),
    }
}

/// Returns the names of the traces in a folder of traces, in their order.
fn trace_names(folder: &Folder) -> io::Result<Vec<String>> {
    folder.files(is_trace_name)
}

/// Returns whether a trace may have such a name, as [`trace_name`] returns.
pub(super) fn is_trace_name(name: &str) -> bool {
    let parts = name.strip_suffix(".json").and_then(|stem| stem.split_once('-'));
    parts.is_some_and(|(number, experiment)| {
        number.parse().is_ok_and(|number| trace_name(number, experiment) == name)
            && live::is_experiment(experiment)
    })
}

/// Returns the name of the file of a trace.
fn trace_name(number: usize, experiment: &str) -> String {
    format!("{number:04}-{experiment}.json")
}

/// Fails early if nothing can be made in a folder.
fn check_writable(folder: &Folder) -> io::Result<()> {
    remove_new(folder)?;
    folder.make_folder(NEW)?;
    folder.remove_folder(NEW)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use rustix::process::geteuid;
    use swiftwater_tests::tools;

    use super::*;

    const NO_ROWS: [&str; 0] = [];

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    fn open(folder: &Path) -> Folder {
        Folder::open(folder).expect("a folder")
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
        archive.keep("lossy", &NO_ROWS, &[], None).expect("room");
        let text = fs::read_to_string(folder.join(MANIFEST)).expect("written");
        let manifest: Manifest = serde_json::from_str(&text).expect("JSON");
        assert_eq!((manifest.seed, manifest.experiments), (7, vec!["lossy".to_owned()]));
        assert!(text.contains("\"others_busy_processors\": "), "{text}");
        fs::write(traces.join("0001-lossy.json"), "{}").expect("room");
        let mut archive = Archive::create(&folder, 8).expect("ours");
        assert_eq!(
            trace_names(&open(&traces)).expect("a folder").len(),
            1,
            "it remains until there are results"
        );
        archive.keep("lossy", &NO_ROWS, &[], None).expect("room");
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
        archive.keep("lossy", &NO_ROWS, &[], None).expect_err("a link is in the way");
        assert_eq!(fs::read_to_string(victim.join(RESULTS)).expect("it remains"), "mine");
        fs::remove_file(folder.join(READY)).expect("it remains");
        symlink(&victim, folder.join(NEW)).expect("room");
        archive.keep("lossy", &NO_ROWS, &[], None).expect("room");
        assert_eq!(fs::read_to_string(victim.join(RESULTS)).expect("it remains"), "mine");
        fs::remove_dir_all(folder.join(TRACES)).expect("ours");
        symlink("/tmp", folder.join(TRACES)).expect("room");
        let Err(error) = Archive::create(&folder, 1) else { panic!("the traces would go elsewhere") };
        assert!(error.to_string().contains(TRACES), "{error}");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_link_in_complete_files_is_not_followed() {
        let folder = two_runs("ready-link");
        let victim = folder.join("victim");
        fs::create_dir(&victim).expect("room");
        fs::write(victim.join("0001-lossy.json"), "mine").expect("room");
        for name in [READY, NEW] {
            let planted = folder.join(name);
            let _ = fs::remove_dir_all(folder.join(NEW));
            fs::create_dir(&planted).expect("room");
            symlink(&victim, planted.join(TRACES)).expect("room");
            let Err(error) = Archive::create(&folder, 3) else { panic!("{name} leads elsewhere") };
            assert!(error.to_string().contains("traces is a link"), "{error}");
            fs::remove_dir_all(&planted).expect("it remains");
        }
        assert_eq!(names(&victim), ["0001-lossy.json"]);
        let found = kept(&folder);
        assert_eq!((found.seed, found.traces.len()), (1, 2));
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn files_of_others_in_the_folder_of_incomplete_files_remain() {
        for place in ["", TRACES] {
            let folder = two_runs("incomplete-foreign");
            let place = folder.join(NEW).join(place);
            fs::write(place.join("mine"), "").expect("room");
            let Err(error) = Archive::create(&folder, 3) else { panic!("it cannot be removed") };
            let said = error.to_string();
            assert!(said.contains(NEW) && said.ends_with("remove them, or choose another place"), "{said}");
            assert!(names(&place).contains(&"mine".into()), "{said}");
            fs::remove_dir_all(&folder).expect("ours");
        }
    }

    #[test]
    fn folders_that_another_user_has_put_in_place_of_the_archives_are_refused() {
        if !geteuid().is_root() {
            return tools::skip("only root makes folders of another user");
        }
        let folder = two_runs("planted");
        let mut archive = Archive::create(&folder, 3).expect("ours");
        for (name, other) in [(READY, NEW), (NEW, READY)] {
            let planted = folder.join(name);
            fs::create_dir_all(planted.join(TRACES)).expect("room");
            fs::write(planted.join(RESULTS), "theirs").expect("room");
            chown(&planted, Some(41_001), None).expect("root may");
            let said = format!("{name} there belongs to user 41001");
            let Err(error) = Archive::create(&folder, 3) else { panic!("{name} is not ours") };
            assert!(error.to_string().contains(&said), "{error}");
            archive.keep("lossy", &NO_ROWS, &[trace()], None).expect_err("it is in the way");
            assert!(
                planted.join(RESULTS).exists() && !folder.join(other).exists(),
                "neither used nor removed"
            );
            fs::remove_dir_all(&planted).expect("it remains");
        }
        // Another user renames a folder of its own while a run writes.
        archive.write("failover", &NO_ROWS, &[]).expect("room");
        fs::rename(folder.join(NEW), folder.join("gone")).expect("room");
        fs::create_dir(folder.join(READY)).expect("room");
        symlink(folder.join("gone"), folder.join(READY).join(TRACES)).expect("room");
        chown(folder.join(READY), Some(41_001), None).expect("root may");
        let error = finish(&open(&folder)).expect_err("it is not ours");
        assert!(error.to_string().contains("belongs to user 41001"), "{error}");
        let found = kept(&folder);
        assert_eq!((found.seed, found.traces.len()), (1, 2));
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
        Trace {
            experiment: "lossy".into(),
            case,
            transport,
            paths: 1,
            used_paths: "1".into(),
            seconds: 1.0,
            curves,
            published,
        }
    }

    /// Writes a first run of two traces without rows, and the files of a second one, of a trace and a row, up to [`NEW`].
    fn two_runs(name: &str) -> PathBuf {
        let folder = scratch(name);
        let mut first = Archive::create(&folder, 1).expect("a folder");
        first.keep("lossy", &NO_ROWS, &[trace(), trace()], None).expect("room");
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
        finish(&open(&folder)).expect("nothing is ready");
        assert_eq!(kept(&folder).seed, 1);
        Archive::create(&folder, 3).expect("ours");
        assert_eq!(names(&folder), [MANIFEST, RESULTS, TRACES], "what is not complete has gone");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_run_that_ends_within_an_experiment_leaves_what_that_has_measured() {
        let folder = scratch("part");
        let mut archive = Archive::create(&folder, 1).expect("a folder");
        let manifest = || {
            let text = fs::read(folder.join(MANIFEST)).expect("written");
            serde_json::from_slice::<Manifest>(&text).expect("JSON")
        };
        archive.keep("lossy", &["a row"], &[trace()], None).expect("room");
        archive.keep_part("failover", &["a row"; 2], &[trace()]).expect("room");
        archive.keep_part("failover", &["a row"; 3], &[trace(), trace()]).expect("room");
        let found = kept(&folder);
        let traces = ["0001-lossy.json", "0002-failover.json", "0003-failover.json"];
        assert_eq!((found.results, found.traces), (3, traces.map(OsString::from).into()));
        assert_eq!((manifest().traces, manifest().unfinished.as_deref()), (3, Some("failover")));
        archive.keep("failover", &["a row"; 3], &[trace(), trace()], None).expect("room");
        archive.keep("datatag", &["a row"; 4], &[trace()], None).expect("room");
        assert_eq!(kept(&folder).traces.last(), Some(&OsString::from("0004-datatag.json")));
        assert_eq!(manifest().experiments, ["lossy", "failover", "datatag"]);
        assert_eq!((manifest().traces, manifest().unfinished), (4, None));
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
                    let names = trace_names(&open(&traces))?;
                    names.iter().try_for_each(|name| fs::remove_file(traces.join(name)))?;
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
            finish(&open(&folder)).expect("room");
            let found = kept(&folder);
            assert_eq!((found.seed, found.results), (2, 1), "{moved}");
            assert_eq!(found.traces, ["0001-failover.json"], "{moved}");
            assert_eq!(names(&folder), [MANIFEST, RESULTS, TRACES], "{moved}");
            fs::remove_dir_all(&folder).expect("ours");
        }
    }

    #[test]
    fn complete_files_that_lack_a_part_are_named_with_what_to_do() {
        let folder = two_runs("ready-part");
        let ready = folder.join(READY);
        fs::create_dir(&ready).expect("room");
        let Err(error) = Archive::create(&folder, 3) else { panic!("it has no traces") };
        let said = error.to_string();
        assert!(said.contains(READY) && said.ends_with("remove it, or choose another place"), "{said}");
        fs::remove_dir(&ready).expect("it remains");
        Archive::create(&folder, 3).expect("it was removed");
        assert_eq!(kept(&folder).seed, 1);
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_run_that_cannot_write_leaves_the_results_from_before() {
        let folder = two_runs("unwritable");
        let mut archive = Archive::create(&folder, 3).expect("ours");
        // Files take the place of no folder.
        fs::create_dir_all(folder.join(READY)).expect("room");
        fs::write(folder.join(READY).join("in the way"), "").expect("room");
        let error =
            archive.keep("lossy", &NO_ROWS, &[trace()], None).expect_err("it cannot be renamed").to_string();
        let named = format!("cannot write {}: ", folder.display());
        assert!(error.starts_with(&named), "only the folder is known to users: {error}");
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
        fs::remove_dir(folder.join(TRACES)).expect("it is empty");
        let archive = Archive::create(&folder, 1).expect("nothing is in the way");
        assert_eq!(names(&folder), [TRACES], "nothing before there are results");
        drop(archive);
        assert!(names(&folder).is_empty(), "nothing was measured");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_what_to_do() {
        let Err(error) = Archive::create(Path::new("/dev/null/folder"), 1) else { panic!("it is no folder") };
        let said = error.to_string();
        assert!(said.contains("/dev/null/folder") && said.contains("choose another"), "{said}");
    }
}
