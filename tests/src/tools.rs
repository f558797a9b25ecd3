//! Tests that need a program beyond Rust: finds the program, or reports the test as skipped.
//!
//! Such a test carries `#[ignore = "needs NAME: ./test --all"]`, so that `./test` leaves it out, and starts with
//!
//! ```no_run
//! # fn a_test() {
//! let Some(tshark) = swiftwater_tests::tools::program("tshark") else { return };
//! # }
//! ```
//!
//! With `SWIFTWATER_REQUIRE_TOOLS=1` in the environment, as in CI, a missing program fails the test instead.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, thread};

/// Folders of Debian's programs that are not always on a user's `PATH`.
const EXTRA_FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/lib/usrsctp", "/usr/local/bin"];

/// Returns the full path of a program, or `None` once the test has been reported as skipped.
///
/// # Panics
/// If the program is missing and `SWIFTWATER_REQUIRE_TOOLS=1` is set.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip(&format!("the program {name} is not installed"));
    }
    found
}

/// Returns the file that `./test --all` has fetched under this name, or `None` once the test has been reported as skipped.
///
/// # Panics
/// As [`program`] does.
#[must_use]
pub fn fetched(name: &str) -> Option<PathBuf> {
    let place = env::var_os("SWIFTWATER_PROGRAMS").map(|folder| Path::new(&folder).join(name));
    let found = place.filter(|place| place.exists());
    if found.is_none() {
        skip(&format!("{name} has not been fetched"));
    }
    found
}

/// Reports the running test as skipped, for `reason`. The caller then returns.
///
/// The reason goes to the test's output and, for the summary of `./test`, to the file that
/// `SWIFTWATER_SKIP_LOG` names.
///
/// # Panics
/// If `SWIFTWATER_REQUIRE_TOOLS=1` is set: where everything can be installed, a skip hides a failure.
pub fn skip(reason: &str) {
    let current = thread::current();
    let test = current.name().unwrap_or("a test");
    assert!(
        env::var_os("SWIFTWATER_REQUIRE_TOOLS").is_none_or(|v| v != "1"),
        "{test} may not be skipped here: {reason}"
    );
    println!("skipped: {reason}");
    if let Some(path) = env::var_os("SWIFTWATER_SKIP_LOG")
        && let Ok(mut log) = OpenOptions::new().append(true).create(true).open(path)
    {
        // One write for the whole line: test programs append to this file at the same time. A log that cannot be
        // written loses a line of the summary and nothing else.
        let _ = log.write_all(format!("{test}: {reason}\n").as_bytes());
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(EXTRA_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_program_of_every_unix() {
        assert!(find("sh").is_some());
    }

    #[test]
    fn does_not_find_what_is_not_there() {
        assert_eq!(find("no-such-program-as-this"), None);
    }

    #[test]
    fn a_file_that_cannot_run_is_no_program() {
        assert!(!is_program(Path::new("/etc/passwd")));
        assert!(!is_program(Path::new("/etc")));
    }
}
