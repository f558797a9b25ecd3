//! The structure of the crates: no files of a crate form a cycle of uses, and each layer of the daemon uses only those below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// From the top to the bottom.
const LAYERS: [&str; 10] =
    ["server", "client", "dispatch", "tasks", "calls", "relay", "state", "channel", "users", "system"];

/// The modules of crates in which a parent and its children form no cycle either.
const WITHOUT_FAMILIES: [(&str, &str); 1] = [("crates/daemon", "channel")];

/// Folders of crates whose files form no cycle of uses.
const WITHOUT_CIRCLES: [&str; 21] = [
    "crates/capi",
    "crates/channel-protocol",
    "crates/daemon",
    "crates/emulator",
    "crates/fuzz-cases",
    "crates/lab",
    "crates/linking",
    "crates/links",
    "crates/netns",
    "crates/netsim",
    "crates/preload",
    "crates/providers",
    "crates/ring",
    "crates/sctp",
    "crates/sctp-message",
    "crates/sctp-wire",
    "crates/shared-memory",
    "crates/streams",
    "crates/swiftwater",
    "crates/tpi",
    "tools/swiftwater",
];

/// Modules of the daemon that report counters. Elsewhere, counters may not decide anything, so no other code reads them.
const REPORTS: [&str; 3] = ["calls::status", "calls::report", "calls::options::status"];

/// Functions of the core that keep totals, each with the one file that may call it: the totals follow from the state that the
/// file owns. Rust cannot say that, because the function and the file have no parent in common but the crate.
const CALLED_BY_ONE_FILE: [(&str, &str); 2] =
    [("enter_flight", "outbound::run::in_flight"), ("leave_flight", "outbound::run::in_flight")];

/// Counters of what has moved, and the only module that they steer: it waits for work that no owner reports the end of
/// (`docs/daemon.md`, "Within the call").
const PROGRESS: [&str; 2] = ["batches_moved(", ".records()"];
const STEERED_BY_PROGRESS: &str = "calls::pending";

/// Files of the daemon above all layers: its front, and the helpers of unit tests.
const FRONT: [&str; 3] = ["lib", "shutdown", "testing"];

/// Returns a source file without comments, the contents of literals, and each item behind `#[cfg(test)]`.
fn code(text: &str) -> String {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let text = without_literals(text);
    let (mut code, mut rest) = (String::new(), &*text);
    while let Some((before, item)) = rest.split_once(ATTRIBUTE) {
        code.push_str(before);
        rest = &item[item_bytes(item)..];
    }
    code + rest
}

/// Returns the length of the item at the beginning: to its matching brace, its semicolon or comma, or the brace around it.
fn item_bytes(text: &str) -> usize {
    let (mut depth, mut angles, mut last) = (0_usize, 0_usize, ' ');
    for (at, c) in text.char_indices() {
        match c {
            // A list of imports ends with a semicolon behind its brace.
            '}' if depth == 1 => return at + 1 + usize::from(text[at + 1..].starts_with(';')),
            '}' | ')' | ']' if depth == 0 => return at,
            ';' if depth == 0 => return at + 1,
            ',' if depth == 0 && angles == 0 => return at + 1,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '<' if depth == 0 => angles += 1,
            '>' if depth == 0 && !matches!(last, '-' | '=') => angles = angles.saturating_sub(1),
            _ => {}
        }
        last = c;
    }
    text.len()
}

/// Returns a source file without comments and the contents of strings and characters, whose braces match nothing.
fn without_literals(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        let is_in_word = code.ends_with(|c: char| is_path(c) && c != ':' && c != 'b');
        let hidden = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => end_of(rest, 2, "*/"),
            'r' if !is_in_word => raw_string_bytes(rest),
            '"' => escaped_bytes(rest, '"'),
            '\'' if rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\'') => {
                escaped_bytes(rest, '\'')
            }
            _ => 0,
        };
        if hidden == 0 {
            code.push(c);
        }
        rest = &rest[hidden.max(c.len_utf8())..];
    }
    code
}

/// Returns the index behind the first `mark` from `start`.
fn end_of(text: &str, start: usize, mark: &str) -> usize {
    text[start..].find(mark).map_or(text.len(), |at| start + at + mark.len())
}

/// Returns the length of a raw string; 0 if the text does not begin with one.
fn raw_string_bytes(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    if !text[1 + hashes..].starts_with('"') {
        return 0;
    }
    end_of(text, hashes + 2, &format!("\"{}", "#".repeat(hashes)))
}

/// Returns the length of a literal between two quotes.
fn escaped_bytes(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// Returns the modules that a source file names by `crate::` or `super::`, as paths such as `state::socket`.
fn uses(module: &str, text: &str) -> BTreeSet<String> {
    let code = code(text);
    let mut found = BTreeSet::new();
    for prefix in ["crate::", "super::"] {
        for (at, _) in code.match_indices(prefix) {
            // `super::super::x` is found at its beginning.
            if prefix == "super::" && code[..at].ends_with("super::") {
                continue;
            }
            let mut rest = &code[at..];
            let mut base = module;
            while let Some(after) = rest.strip_prefix("super::") {
                base = base.rsplit_once("::").map_or("", |(parent, _)| parent);
                rest = after;
            }
            if let Some(after) = rest.strip_prefix("crate::") {
                (base, rest) = ("", after);
            }
            let base = if base.is_empty() { String::new() } else { format!("{base}::") };
            names(rest, &base, &mut found);
        }
    }
    found
}

/// Reads a path, or a list of paths in braces, relative to `base`. Returns the text behind it.
fn names<'a>(text: &'a str, base: &str, found: &mut BTreeSet<String>) -> &'a str {
    let end = text.find(|c| !is_path(c)).unwrap_or(text.len());
    let (path, mut rest) = text.split_at(end);
    let base = format!("{base}{path}");
    let Some(list) = rest.strip_prefix('{').filter(|_| path.is_empty() || path.ends_with("::")) else {
        found.insert(base);
        return rest;
    };
    rest = list.trim_start();
    while !rest.is_empty() && !rest.starts_with('}') {
        rest = names(rest, &base, found).trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        if !rest.starts_with(|c| is_path(c) || c == '}' || c == '{') {
            break;
        }
    }
    rest.strip_prefix('}').unwrap_or(rest)
}

fn is_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Reads the sources in a folder but for those of tests, by their module paths.
fn sources(folder: &Path, module: &str, all: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let inner = if module.is_empty() { name.clone() } else { format!("{module}::{name}") };
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            sources(&path, &inner, all);
        } else if name == "mod" {
            all.insert(module.to_owned(), fs::read_to_string(&path).expect("text"));
        } else {
            all.insert(inner, fs::read_to_string(&path).expect("text"));
        }
    }
}

/// Reads all sources of the crate in a folder of this project.
fn sources_of(folder: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    sources(&project.join(folder).join("src"), "", &mut all);
    assert!(!all.is_empty(), "the sources in {folder} were found");
    all
}

/// Returns the index of a module's layer; `None` for the front of the crate, which is above all layers.
fn layer(module: &str) -> Option<usize> {
    let first = module.split("::").next().unwrap_or_default();
    LAYERS.iter().position(|layer| *layer == first)
}

/// Returns the uses of a layer above the module's own.
fn upward(sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (module, text) in sources {
        let Some(own) = layer(module) else { continue };
        for used in uses(module, text) {
            if FRONT.contains(&&*used) || layer(&used).is_some_and(|used| used < own) {
                found.push(format!("{module} uses {used}"));
            }
        }
    }
    found
}

#[test]
fn each_layer_of_the_daemon_uses_only_those_below_it() {
    let all = sources_of("crates/daemon");
    for module in all.keys() {
        assert!(layer(module).is_some() || FRONT.contains(&&**module), "{module} belongs to no layer");
    }
    assert_eq!(upward(&all), Vec::<String>::new());
}

/// Returns the modules that read counters and are not reports.
fn steered_by_counters(sources: &BTreeMap<String, String>) -> Vec<&str> {
    let steers = |module: &str, text: &str| {
        let code = code(text);
        code.contains("statistics()") && !REPORTS.contains(&module)
            || PROGRESS.iter().any(|counter| code.contains(counter)) && module != STEERED_BY_PROGRESS
    };
    sources.iter().filter(|(module, text)| steers(module, text)).map(|(module, _)| &**module).collect()
}

#[test]
fn only_reports_of_the_daemon_read_counters() {
    let all = sources_of("crates/daemon");
    for report in REPORTS {
        assert!(code(&all[report]).contains("statistics()"), "{report} is a report");
    }
    for counter in PROGRESS {
        assert!(code(&all[STEERED_BY_PROGRESS]).contains(counter), "{counter} steers {STEERED_BY_PROGRESS}");
    }
    assert_eq!(steered_by_counters(&all), Vec::<&str>::new());
}

#[test]
fn one_file_keeps_the_bytes_in_flight() {
    let all = sources_of("crates/sctp");
    for (function, owner) in CALLED_BY_ONE_FILE {
        let call = format!(".{function}(");
        let callers = all.iter().filter(|(_, text)| code(text).contains(&call)).map(|(module, _)| module);
        assert_eq!(callers.collect::<Vec<_>>(), [owner], "{function}");
    }
}

#[test]
fn a_reader_of_counters_is_found() {
    let text = "fn is_dry(a: &Association) -> bool { a.statistics().is_none() }";
    let of = |module: &str, text: &str| BTreeMap::from([(module.to_owned(), text.to_owned())]);
    assert_eq!(steered_by_counters(&of("calls::bind", text)), ["calls::bind"]);
    assert!(steered_by_counters(&of("calls::status", text)).is_empty());
    for text in
        ["fn f(s: &Stack) -> u64 { batches_moved(s) }", "fn f(b: &BusyPolling) -> u64 { b.records() }"]
    {
        assert_eq!(steered_by_counters(&of("calls::status", text)), ["calls::status"]);
        assert!(steered_by_counters(&of("calls::pending", text)).is_empty());
    }
    assert!(steered_by_counters(&of("calls::bind", "// statistics()\n#[cfg(test)] statistics()")).is_empty());
    assert_eq!(
        steered_by_counters(&of("calls::bind", &format!("#[cfg(test)] use x::y;\n{text}"))),
        ["calls::bind"]
    );
}

/// The layers that write the pages of a socket: the owners of the state that the pages show.
const WRITERS_OF_PAGES: [&str; 2] = ["state", "channel"];

/// Returns the modules of other layers that reach the pages of a socket.
fn strangers_to_pages(sources: &BTreeMap<String, String>) -> Vec<&str> {
    let reaches = |text: &str| code(text).contains("shared_pages()");
    let is_writer = |module: &str| WRITERS_OF_PAGES.contains(&module.split("::").next().unwrap_or_default());
    let others = sources.iter().filter(|(module, _)| !is_writer(module) && *module != "testing");
    others.filter(|(_, text)| reaches(text)).map(|(module, _)| &**module).collect()
}

#[test]
fn only_owners_of_state_write_the_pages_of_a_socket() {
    let all = sources_of("crates/daemon");
    assert!(code(&all["state::socket"]).contains("shared_pages()"), "the socket writes its pages");
    assert_eq!(strangers_to_pages(&all), Vec::<&str>::new());
    let of = |module: &str, text: &str| BTreeMap::from([(module.to_owned(), text.to_owned())]);
    let text = "fn f(socket: &Socket) { socket.channel().shared_pages().set_linger(1) }";
    assert_eq!(strangers_to_pages(&of("relay::inbound", text)), ["relay::inbound"]);
    assert!(strangers_to_pages(&of("state::socket", text)).is_empty());
}

/// Returns the names that a module imports from the crate, with their paths. Its children can use them as names of the module.
fn imports(module: &str, all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let text = code(&all[module]);
    let inner = if module == "lib" { String::new() } else { format!("{module}::") };
    let mut found = BTreeSet::new();
    for statement in text.split_inclusive(';').filter_map(|text| Some(text.rsplit_once("use ")?.1)) {
        let statement = statement.strip_prefix("self::").unwrap_or(statement);
        if statement.starts_with("crate::") || statement.starts_with("super::") {
            found.extend(uses(module, statement));
        } else if all.contains_key(&format!("{inner}{}", statement.split("::").next().unwrap_or_default())) {
            names(statement, &inner, &mut found);
        }
    }
    found
        .into_iter()
        .filter_map(|path| path.rsplit_once("::").map(|(_, name)| (name.to_owned(), path.clone())))
        .collect()
}

/// Re-exports that lie between a use and the file of a name.
const REEXPORTS_MAX: usize = 8;

/// Returns the file that contains a name: the longest module path that the name begins with, after all re-exports.
fn file_of(
    name: &str,
    all: &BTreeMap<String, String>,
    imports: &BTreeMap<&String, BTreeMap<String, String>>,
) -> Option<String> {
    let mut path = name.trim_end_matches(':').to_owned();
    for _ in 0..REEXPORTS_MAX {
        let mut module = &*path;
        while !all.contains_key(module) {
            module = module.rsplit_once("::").map_or("lib", |(parent, _)| parent);
        }
        let rest = path.strip_prefix(module).unwrap_or(&path).trim_start_matches("::");
        let first = rest.split("::").next().unwrap_or_default();
        let Some(target) = imports.get(&module.to_owned()).and_then(|names| names.get(first)) else {
            return (module != "lib").then(|| module.to_owned());
        };
        path = format!("{target}{}", &rest[first.len()..]);
    }
    None
}

/// Returns a file that uses itself through others, with the files that it reaches. A parent and its children count as one module
/// in several files, except for `strict` and its children.
fn circle(all: &BTreeMap<String, String>, strict: &str) -> Option<(String, BTreeSet<String>)> {
    let is_below = |module: &str, parent: &str| module.starts_with(&format!("{parent}::"));
    let has_children =
        |module: &str| module == "lib" || all.keys().any(|other| other.starts_with(&format!("{module}::")));
    let imports = all.keys().filter(|module| has_children(module)).map(|m| (m, imports(m, all))).collect();
    let edges: BTreeMap<&String, BTreeSet<String>> = all
        .iter()
        .filter(|(module, _)| *module != "lib")
        .map(|(module, text)| {
            let used = uses(module, text);
            let used: BTreeSet<_> = used.iter().filter_map(|name| file_of(name, all, &imports)).collect();
            let is_strict = !strict.is_empty() && (module == strict || is_below(module, strict));
            let family = |other: &String| {
                other == module || !is_strict && (is_below(module, other) || is_below(other, module))
            };
            (module, used.into_iter().filter(|other| !family(other)).collect())
        })
        .collect();
    for start in edges.keys() {
        let mut reached = BTreeSet::new();
        let mut next: Vec<String> = edges[start].iter().cloned().collect();
        while let Some(module) = next.pop() {
            if &module == *start {
                return Some((module, reached));
            }
            if reached.insert(module.clone()) {
                next.extend(edges.get(&module).into_iter().flatten().cloned());
            }
        }
    }
    None
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    for folder in WITHOUT_CIRCLES {
        let strict = WITHOUT_FAMILIES.iter().find(|(strict, _)| *strict == folder);
        assert_eq!(circle(&sources_of(folder), strict.map_or("", |(_, module)| module)), None, "{folder}");
    }
}

#[test]
fn a_circle_is_found() {
    let all =
        |texts: [(&str, &str); 3]| BTreeMap::from(texts.map(|(module, text)| (module.into(), text.into())));
    let found =
        circle(&all([("a", "use crate::b::B;"), ("b", "use super::c::C;"), ("c", "use crate::a::A;")]), "");
    assert_eq!(found.map(|(start, _)| start).as_deref(), Some("a"));
    let exported = circle(
        &all([
            ("lib", "pub use a::{\n    A, B,\n};\npub use b::C;"),
            ("a", "use crate::C;"),
            ("b", "use crate::{B, c::D};"),
        ]),
        "",
    );
    assert!(exported.is_some(), "through names that the root exports");
    let family = all([("a", "use crate::a::b::B;"), ("a::b", "use super::A;"), ("c", "use crate::a::A;")]);
    assert_eq!(circle(&family, ""), None, "a parent and its child");
    assert_eq!(circle(&family, "a").map(|(start, _)| start).as_deref(), Some("a"));
    assert_eq!(circle(&family, "c"), None, "others may");
    for parent in ["pub use a::A; pub(crate) use b::{B, C};", "use self::a::A; use crate::p::b::B;"] {
        let siblings =
            circle(&all([("p", parent), ("p::a", "use super::B;"), ("p::b", "use super::A;")]), "");
        assert_eq!(siblings.map(|(start, _)| start).as_deref(), Some("p::a"), "{parent}");
        let one_way = circle(&all([("p", parent), ("p::a", "use super::B;"), ("p::b", "use std::fmt;")]), "");
        assert_eq!(one_way, None, "siblings without a circle");
    }
}

#[test]
fn an_upward_use_is_found() {
    let of = |module: &str, text: &str| upward(&BTreeMap::from([(module.to_owned(), text.to_owned())]));
    assert_eq!(
        of("state::registry", "use crate::channel::Channel;\nuse super::ports;"),
        Vec::<String>::new()
    );
    let texts = [
        "use crate::tasks::one_to_one;",
        "use super::super::tasks::one_to_one;",
        "use crate::{channel::{endpoint, style}, tasks};",
        "fn f() { crate::tasks::start() }",
        "#[cfg(test)]\nuse std::os::fd::AsFd;\nuse crate::tasks::one_to_one;",
    ];
    for text in texts {
        assert_eq!(of("state::registry", text).len(), 1, "{text}");
    }
    assert_eq!(
        of("state::registry", "// crate::tasks\n#[cfg(test)] use crate::tasks;"),
        Vec::<String>::new()
    );
}

#[test]
fn only_items_of_tests_are_left_out() {
    let after = |item: &str| code(&format!("#[cfg(test)]\n{item}\nuse crate::tasks;"));
    let items = [
        "use std::os::fd::AsFd;",
        "use std::{fs, io};",
        "mod tests { fn f() { if x { \"}\\\"\" } } const OPEN: char = '{'; }",
        "#[derive(Debug)]\nstruct Pair<A, B>(A, B);",
        "fn f<'a, T: Fn(u8) -> &'a str>(x: [u8; 2]) -> T { r#\"\"}\"# /* } */ }",
        "count: usize,",
    ];
    for item in items {
        assert_eq!(
            code(&format!("use crate::users; #[cfg(test)] {item}")).trim(),
            "use crate::users;",
            "{item}"
        );
        assert_eq!(after(item).trim(), "use crate::tasks;", "{item}");
    }
    assert!(code("struct A { #[cfg(test)] last: u8 }\nuse crate::tasks;").ends_with("}\nuse crate::tasks;"));
    assert!(code("#[cfg(not(test))] use crate::tasks;").contains("crate::tasks"));
}
