//! The list of mutations fits the sources and the groups of `docs/streams.md`. `./test --only mutations` makes them.

#![allow(missing_docs)]

use std::path::Path;
use std::process::Command;

use swiftwater_tests::tools;

#[test]
fn each_mutation_stands_in_the_sources() {
    if tools::program("python3").is_none() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutations/streams");
    let checked = Command::new("python3").arg("-B").arg(script).arg("--check").output().expect("it starts");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
