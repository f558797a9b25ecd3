//! What the kernel's SCTP sockets answer to every option, with lengths, associations and values right and wrong, is what ours
//! answer (`oracle/*.txt`; `tests/tests/kernel_sockets.rs` of the tests asks the kernel).
#![allow(missing_docs)]

mod daemon;

use std::path::Path;
use std::process::{Command, Stdio};

use daemon::Daemon;

/// What the kernel's packets hold more: ours have a header of UDP, too.
const FRAGMENTS: (&str, &str) = (" ffcc", " ffc4");

fn says_the_same(name: &str, but: &[(&str, &str)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("oracle-{name}"));
    let source = folder.join(name).with_extension("c");
    let compiled = Command::new("cc").args(["-w", "-O1", "-o"]).args([&program, &source]).output();
    let compiled = compiled.expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut expected = std::fs::read_to_string(folder.join(name).with_extension("txt")).expect("a text");
    for (theirs, ours) in but {
        expected = expected.replace(theirs, ours);
    }
    let daemon = Daemon::start(&format!("oracle-{name}"));
    let output = daemon.run(&program).stdin(Stdio::null()).output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let differences: Vec<_> = expected.lines().zip(said.lines()).filter(|(a, b)| a != b).take(20).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(differences.is_empty() && expected.len() == said.len(), "{differences:#?}\n{error}");
}

#[test]
fn every_option_with_lengths_and_associations() {
    says_the_same("options", &[FRAGMENTS]);
}

#[test]
fn values_of_options() {
    says_the_same("values", &[]);
}
