//! `docs/dependencies.md` lists each crate that Swiftwater depends on, with the crates that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates of the workspace that use a dependency: in what they build, and in their tests alone.
#[derive(Default)]
struct Users {
    builds: BTreeSet<String>,
    tests: BTreeSet<String>,
}

impl Users {
    /// Returns the text of the table's column.
    fn column(&self) -> String {
        let join = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        let only_tests: BTreeSet<String> = self.tests.difference(&self.builds).cloned().collect();
        match (self.builds.is_empty(), only_tests.is_empty()) {
            (false, true) => join(&self.builds),
            (true, _) => format!("tests of {}", join(&only_tests)),
            (false, false) => format!("{}; tests of {}", join(&self.builds), join(&only_tests)),
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the manifests of the workspace's crates.
fn manifests() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).expect("the crates");
    let crates = folders.map(|entry| entry.expect("a crate").path());
    crates
        .chain([root().join("tools/swiftwater"), root().join("tests")])
        .filter_map(|folder| fs::read_to_string(folder.join("Cargo.toml")).ok())
        .collect()
}

/// Adds the dependencies in a manifest.
fn add(manifest: &str, all: &mut BTreeMap<String, Users>) {
    let package = manifest.lines().find_map(|line| line.strip_prefix("name = \"")).expect("a name");
    let package = match package.trim_end_matches('"').trim_start_matches("swiftwater-") {
        "cli" => "command",
        "tests" => "workspace",
        name => name,
    };
    let mut section = "";
    for line in manifest.lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            continue;
        }
        let Some((name, _)) = line.split_once(['.', ' ', '=']) else { continue };
        if !section.ends_with("dependencies") || name.is_empty() || name.starts_with('#') {
            continue;
        }
        let users = all.entry(name.into()).or_default();
        let is_of_tests =
            section.ends_with("dev-dependencies") || section.contains("cfg(loom)") || package == "workspace";
        let names = if is_of_tests { &mut users.tests } else { &mut users.builds };
        names.insert(package.into());
    }
}

#[test]
fn the_table_of_dependencies_names_those_that_use_each() {
    let mut all = BTreeMap::new();
    manifests().iter().for_each(|manifest| add(manifest, &mut all));
    let workspace = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    // A crate of this workspace has a path there.
    all.retain(|name, _| !workspace.lines().any(|line| line.starts_with(&format!("{name} = {{ path = "))));
    assert!(all.contains_key("bytes") && !all.contains_key("sctp"), "{:?}", all.keys());

    let text = fs::read_to_string(root().join("docs/dependencies.md")).expect("the table");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")).map(|line| line.split(" | "));
    let mut listed = BTreeMap::new();
    for mut row in rows {
        let (names, column) = (row.next().expect("names"), row.next().expect("a column"));
        names.split(", ").for_each(|name| drop(listed.insert(name.to_string(), column.to_string())));
    }
    // The fuzzers are a workspace of their own.
    listed.retain(|name, _| name != "crate" && name != "libfuzzer-sys");
    let used: BTreeMap<String, String> =
        all.into_iter().map(|(name, users)| (name, users.column())).collect();
    let differ: Vec<_> = used.iter().filter(|(name, column)| listed.get(*name) != Some(column)).collect();
    assert!(differ.is_empty(), "the table must say: {differ:#?}");
    let unknown: Vec<_> = listed.keys().filter(|name| !used.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "no crate uses {unknown:?}");
}
