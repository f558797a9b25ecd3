//! The command under test, its users and folders.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use swiftwater_tests::tools;

pub(crate) const SWIFTWATER: &str = env!("CARGO_BIN_EXE_swiftwater");
/// A user that is not root.
pub(crate) const NOBODY: u32 = 65534;
/// Program that executes another, to which the kernel refuses system calls.
const REFUSE: &str = include_str!("refuse.py");

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Returns every user that this test can be: the present one, and if that is root, another.
pub(crate) fn users() -> Vec<Option<u32>> {
    if is_root() { vec![None, Some(NOBODY)] } else { vec![None] }
}

/// Returns a command for `swiftwater lab` as a user, with these words.
pub(crate) fn lab(user: Option<u32>, words: &[&str]) -> Command {
    lab_of(Path::new(SWIFTWATER), user, words)
}

/// Returns a command for the laboratory of a copy of `swiftwater`, as a user.
pub(crate) fn lab_of(program: &Path, user: Option<u32>, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg("lab").args(words).stdin(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

/// Returns a command for `swiftwater lab` as a user, to which the kernel refuses what these names of `refuse.py` stand for.
pub(crate) fn lab_refused(user: Option<u32>, names: &str, words: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", REFUSE, names, SWIFTWATER, "lab"]).args(words).stdin(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

/// Runs a command. Returns its outcome and its error output.
pub(crate) fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

/// Returns whether the tools are installed, and this system lets its users make namespaces. Otherwise the test is skipped.
pub(crate) fn possible(programs: &[&str]) -> bool {
    if programs.iter().chain(&["ip"]).any(|program| tools::program(program).is_none()) {
        return false;
    }
    let (output, said) = output(&mut lab(users()[0], &["run", "--", "true"]));
    if !output.status.success() && said.contains("namespaces") {
        tools::skip(&said);
        return false;
    }
    true
}

/// A folder that every user may write to, removed with this value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("swiftwater-lab-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("our folder");
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the number under a key.
pub(crate) fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

/// Returns the error output of a command that fails.
pub(crate) fn complaint(command: &mut Command) -> String {
    let (output, said) = output(command);
    assert!(!output.status.success(), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// Runs `lab --live` with these words and keeps its results in a folder.
pub(crate) fn live(user: Option<u32>, words: &[&str], folder: &Folder) -> (Vec<Value>, String) {
    let out = folder.file("out");
    let words = [&["--live"], words, &["--out", out.to_str().expect("ours")]].concat();
    let (output, said) = output(&mut lab(user, &words));
    assert!(output.status.success(), "{words:?}: {said}");
    let rows = fs::read(out.join("results.json")).expect("written");
    (serde_json::from_slice(&rows).expect("JSON"), String::from_utf8_lossy(&output.stdout).into_owned())
}
