//! Tells the command from which commit it was built, for the JSON of measurements.

use std::env;
use std::process::Command;

/// Place of this package in the repository.
const PREFIX: &str = "tools/swiftwater/";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Other builds give no figures, and need not be repeated after each commit.
    if env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    // A copy of the sources may lie in another repository.
    if git(&["rev-parse", "--show-prefix"]).as_deref() != Some(PREFIX) {
        return;
    }
    let (Some(commit), Some(log)) =
        (git(&["rev-parse", "HEAD"]), git(&["rev-parse", "--git-path", "logs/HEAD"]))
    else {
        return;
    };
    println!("cargo::rerun-if-changed={log}");
    println!("cargo::rustc-env=SWIFTWATER_COMMIT={commit}");
}

/// Returns what git prints; `None` if it fails or is missing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
