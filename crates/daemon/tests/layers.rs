//! The layers of the daemon: each uses only those below it, and the files of a layer do not use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// From the top to the bottom.
const LAYERS: [&str; 10] =
    ["server", "client", "dispatch", "tasks", "calls", "relay", "state", "channel", "users", "system"];

/// Returns the modules that a source file names by `crate::` or `super::`, as paths such as `state::socket`.
fn uses(module: &str, text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let mut found = BTreeSet::new();
    for (prefix, base) in [("crate::", String::new()), ("super::", parent.to_owned())] {
        for (at, _) in code.match_indices(prefix) {
            let rest = &code[at + prefix.len()..];
            let rest = if base.is_empty() { rest.to_owned() } else { format!("{base}::{rest}") };
            // A list in braces names several modules of one.
            let (head, list) = match rest.split_once('{') {
                Some((head, list)) if head.chars().all(is_path) => {
                    (head, list.split('}').next().unwrap_or_default())
                }
                _ => (rest.as_str(), ""),
            };
            let head: String = head.chars().take_while(|c| is_path(*c)).collect();
            if list.is_empty() {
                found.insert(head);
            } else {
                found.extend(list.split(',').map(|name| format!("{head}{}", name.trim())));
            }
        }
    }
    found
}

fn is_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Reads the sources below a folder, by their module paths.
fn sources(folder: &Path, module: &str, all: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let inner = if module.is_empty() { name.clone() } else { format!("{module}::{name}") };
        if path.is_dir() {
            sources(&path, &inner, all);
        } else if name == "mod" {
            all.insert(module.to_owned(), fs::read_to_string(&path).expect("text"));
        } else {
            all.insert(inner, fs::read_to_string(&path).expect("text"));
        }
    }
}

fn all_sources() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut all);
    assert!(all.len() > 40, "the sources were found");
    all
}

fn layer(module: &str) -> Option<usize> {
    let first = module.split("::").next().unwrap_or_default();
    LAYERS.iter().position(|layer| *layer == first)
}

#[test]
fn each_layer_uses_only_those_below_it() {
    let mut upward = Vec::new();
    for (module, text) in all_sources() {
        let Some(own) = layer(&module) else { continue };
        for used in uses(&module, &text) {
            if layer(&used).is_some_and(|used| used < own) {
                upward.push(format!("{module} uses {used}"));
            }
        }
    }
    assert!(upward.is_empty(), "{upward:#?}");
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let all = all_sources();
    // The longest module path that a name begins with is the file that it is in.
    let file_of = |name: &str| {
        let mut path = name.trim_end_matches(':');
        loop {
            if all.contains_key(path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let edges: BTreeMap<&String, BTreeSet<String>> = all
        .iter()
        .map(|(module, text)| {
            let used = uses(module, text).iter().filter_map(|name| file_of(name)).collect::<BTreeSet<_>>();
            // A parent and its children are one thing in several files.
            let family = |other: &String| {
                other == module
                    || module.starts_with(&format!("{other}::"))
                    || other.starts_with(&format!("{module}::"))
            };
            (module, used.into_iter().filter(|other| !family(other)).collect())
        })
        .collect();
    for start in edges.keys() {
        let mut reached = BTreeSet::new();
        let mut next: Vec<String> = edges[start].iter().cloned().collect();
        while let Some(module) = next.pop() {
            assert!(&module != *start, "{start} uses itself by way of {reached:?}");
            if reached.insert(module.clone()) {
                next.extend(edges.get(&module).into_iter().flatten().cloned());
            }
        }
    }
}

#[test]
fn an_upward_use_is_found() {
    let text = "use crate::tasks::one_to_one;\nuse super::{relay, state::socket};\n// crate::server\n#[cfg(test)] use crate::server;";
    let found = uses("state::registry", text);
    assert!(found.contains("tasks::one_to_one") && !found.iter().any(|name| name.contains("server")));
    assert!(layer("tasks::one_to_one") < layer("state::registry"));
}
