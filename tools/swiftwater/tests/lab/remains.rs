//! The remains of a command: its processes, under any name, and its namespaces.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use swiftwater_tests::wait;

/// Kinds of namespaces that the laboratory makes.
const KINDS: [&str; 3] = ["net", "mnt", "user"];

/// Namespaces of a command that this test is not in. While this value exists no later namespace gets their numbers.
pub(crate) struct Namespaces {
    names: BTreeSet<PathBuf>,
    _files: Vec<File>,
}

/// Returns the folders of all processes.
fn processes() -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir("/proc").expect("proc").flatten().map(|entry| entry.path());
    all.filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit()))
}

/// Returns the command line of a process; empty if the process has ended.
fn command_line(process: &Path) -> String {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Returns the namespaces that a process is in, as `net:[4026531840]`, with a file of each.
fn namespaces(process: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let files = KINDS.map(|kind| process.join("ns").join(kind)).into_iter();
    files.filter_map(|file| Some((fs::read_link(&file).ok()?, file)))
}

impl Namespaces {
    /// Returns the namespaces of the processes whose command line has this word.
    pub(crate) fn of(word: &str) -> Self {
        let own: BTreeSet<PathBuf> = namespaces(Path::new("/proc/self")).map(|(name, _)| name).collect();
        let found = processes().filter(|process| command_line(process).contains(word));
        let found = found.flat_map(|process| namespaces(&process).collect::<Vec<_>>());
        let (mut names, mut files) = (BTreeSet::new(), Vec::new());
        for (name, file) in found.filter(|(name, _)| !own.contains(name)) {
            // A process may have ended meanwhile.
            if let Ok(file) = File::open(file)
                && names.insert(name)
            {
                files.push(file);
            }
        }
        Namespaces { names, _files: files }
    }

    /// Waits until no process is in them, and fails if one of them is mounted.
    pub(crate) fn await_end(&self, at: &str) {
        let is_inside = |process: &PathBuf| namespaces(process).any(|(name, _)| self.names.contains(&name));
        wait::until(&format!("{at}: the end of all processes in its namespaces"), || {
            !processes().any(|process| is_inside(&process))
        });
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("proc");
        for name in &self.names {
            assert!(!mounts.contains(&*name.to_string_lossy()), "{at}: {} is mounted", name.display());
        }
    }
}

#[test]
fn a_process_in_a_namespace_of_its_own_is_found_whatever_it_is_called() {
    let word = format!("9{}.25", std::process::id());
    let mut command = std::process::Command::new("unshare");
    let Ok(mut child) = command.args(["--map-root-user", "--net", "sleep", &word]).spawn() else { return };
    let found = || Namespaces::of(&word);
    let is_inside = || !found().names.is_empty();
    // A system may forbid such namespaces.
    wait::until("the namespace or the end", || is_inside() || child.try_wait().expect("a child").is_some());
    let namespaces = found();
    if !namespaces.names.is_empty() {
        let of_child = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(self::namespaces(&of_child).any(|(name, _)| namespaces.names.contains(&name)));
    }
    let _ = child.kill();
    child.wait().expect("a child");
    namespaces.await_end("after its end");
}
