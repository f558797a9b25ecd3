//! `--out`: a folder that keeps the measurements of an experiment, and their conditions.
//!
//! `manifest.json` describes the run, `results.json` has the rows of `--json`, and `traces/` has runs as curves. Every file is
//! first written under another name, so that a full disk or the end of the command leaves the last complete one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::live::trace::Trace;
use super::row::Row;
use super::{LabError, write_error};
use crate::host;

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
}

/// The folder of one run of the command.
pub(super) struct Archive {
    folder: PathBuf,
    manifest: Manifest,
    began: Instant,
    busy_before: Duration,
    /// Number of traces of all experiments so far.
    traces: usize,
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
        let traces = folder.join(TRACES);
        // Traces of an earlier run must not remain beside these.
        let made = match fs::remove_dir_all(&traces) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&traces),
        };
        made.map_err(|error| write_error(&traces, &error))?;
        let folder = folder.to_owned();
        let busy_before = others_busy();
        let archive = Archive { folder, manifest, began: Instant::now(), busy_before, traces: 0 };
        archive.write(MANIFEST, &archive.manifest)?;
        archive.write(RESULTS, &Vec::<Row<'_>>::new())?;
        Ok(archive)
    }

    /// Keeps an experiment: all rows so far, and its traces.
    pub(super) fn keep(
        &mut self,
        experiment: &str,
        rows: &[Row<'_>],
        traces: &[Trace],
    ) -> Result<(), LabError> {
        self.write(RESULTS, &rows)?;
        for trace in traces {
            self.traces += 1;
            self.write(&format!("{TRACES}/{:04}-{experiment}.json", self.traces), trace)?;
        }
        self.manifest.experiments.push(experiment.to_owned());
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let busy = others_busy().saturating_sub(self.busy_before).as_secs_f64();
        self.manifest.elapsed_s = elapsed_s;
        self.manifest.others_busy_processors = Some(busy / elapsed_s.max(1e-9));
        self.write(MANIFEST, &self.manifest)
    }

    fn write(&self, name: &str, what: &impl Serialize) -> Result<(), LabError> {
        let (path, new) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        let written = serde_json::to_vec_pretty(what)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &path));
        written.map_err(|error| {
            let _ = fs::remove_file(&new);
            write_error(&path, &error)
        })
    }
}

/// Returns the time that processors were busy for other programs than this one and its finished children.
fn others_busy() -> Duration {
    host::busy_time().saturating_sub(host::processor_time() + host::processor_time_of_children())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_whole_files_and_no_traces_of_before() {
        let folder = std::env::temp_dir().join(format!("swiftwater-archive-{}", std::process::id()));
        fs::create_dir_all(folder.join(TRACES)).expect("a folder");
        fs::write(folder.join(TRACES).join("0001-old.json"), "{}").expect("room");
        let mut archive = Archive::create(&folder, 7).expect("a folder");
        archive.keep("lossy", &[], &[]).expect("room");
        let text = fs::read_to_string(folder.join(MANIFEST)).expect("written");
        let manifest: Manifest = serde_json::from_str(&text).expect("JSON");
        assert_eq!((manifest.seed, manifest.experiments), (7, vec!["lossy".to_owned()]));
        assert!(manifest.others_busy_processors.is_some());
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).expect("a folder").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&folder), [MANIFEST, RESULTS, TRACES], "nothing half written");
        assert!(names(&folder.join(TRACES)).is_empty());
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_what_to_do() {
        let Err(error) = Archive::create(Path::new("/dev/null/folder"), 1) else { panic!("it is no folder") };
        let said = error.to_string();
        assert!(said.contains("/dev/null/folder") && said.contains("choose another"), "{said}");
    }
}
