//! `swiftwater lab report`: one page of the results that `--out` has kept. The page is self-contained: it includes styles,
//! drawings and the script that shows values under the pointer.

mod figures;
pub(super) mod limits;
mod strsctp;
mod table;

use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::{Map, Value};
use thiserror::Error;

use super::archive::{self, MANIFEST, MANIFEST_BYTES_MAX, Manifest, RESULTS, TRACES, is_trace_name};
use super::live;
use super::live::trace::Trace;
use super::paths;
use crate::folder::Folder;
use crate::host;
use crate::lab::args::ReportArgs;
use crate::output::note;
use crate::plot::{escape, fill, style};
use crate::result_file::ResultFile;
use limits::Total;

const TEMPLATE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
/// Name of the page in the folder of results.
const PAGE: &str = "report.html";
/// Number of rows beyond which a table is folded, so that the drawings below it are in sight.
const ROWS_SHOWN: usize = 60;

/// A row of the results.
type Row = Map<String, Value>;

/// All rows of the results.
#[derive(Deserialize)]
struct Rows(#[serde(deserialize_with = "limits::at_most::<_, _, { limits::ROWS_MAX }>")] Vec<Row>);

/// Error of making the page.
#[derive(Debug, Error)]
pub(crate) enum ReportError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}; name a folder that `swiftwater lab --live NAME --out DIR` has written", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The folder has no results.
    #[error("{} has no results: name a folder that `swiftwater lab --live NAME --out DIR` has written; a command that was ended before its first measurement leaves none", folder.display())]
    NoResults { folder: PathBuf },
    /// A file is damaged.
    #[error("{} is damaged: {what}; measure again", path.display())]
    Damaged { path: PathBuf, what: String },
    /// There is more than a page can hold.
    #[error("{} has more than {what}, too much for one page; keep fewer cases, or shorter ones, in a folder", folder.display())]
    TooMuch { folder: PathBuf, what: String },
    /// Complete results cannot be moved to their places.
    #[error("cannot move the results in {} to their places, which a command that was ended has left: {source}; {advice}", folder.display(), advice = finish_advice(source))]
    Finish { folder: PathBuf, source: io::Error },
    /// The page cannot be written.
    #[error("cannot write {}: {source}; choose another file with --html", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Runs the command.
pub(super) fn run(args: &ReportArgs) -> Result<(), ReportError> {
    let path = &args.folder;
    let folder = Folder::open(path).map_err(|source| ReportError::Read { path: path.clone(), source })?;
    archive::finish(&folder).map_err(|source| ReportError::Finish { folder: path.clone(), source })?;
    if !folder.has(MANIFEST) {
        return Err(ReportError::NoResults { folder: path.clone() });
    }
    let place = args.html.clone().unwrap_or_else(|| path.join(PAGE));
    let failed = |source| ReportError::Write { path: place.clone(), source };
    let named = args.html.as_deref().map(ResultFile::open).transpose().map_err(failed)?;
    let manifest: Manifest = read(path, &folder, MANIFEST, MANIFEST_BYTES_MAX)?;
    let Rows(rows) = read(path, &folder, RESULTS, limits::RESULTS_BYTES_MAX)?;
    let traces = read_traces(path, &folder)?;
    check(path.join(RESULTS), &rows)?;
    let missing = manifest.traces.saturating_sub(traces.len());
    if missing > 0 {
        note(format_args!(
            "{missing} of {} traces are missing: the page lacks their drawings",
            manifest.traces
        ));
    }
    let page = render(&manifest, &rows, &traces);
    let written = match named {
        Some(mut file) => file.write_all(page.as_bytes()),
        None => folder.replace(PAGE, page.as_bytes()),
    };
    written.map_err(failed)?;
    note(format_args!("written: {}", place.display()));
    Ok(())
}

/// Reads a file of a folder, which has this path in errors.
fn read<T: DeserializeOwned>(
    path: &Path,
    folder: &Folder,
    name: &str,
    bytes_max: u64,
) -> Result<T, ReportError> {
    parse(path.join(name), &read_bytes(path, folder, name, bytes_max)?)
}

fn read_bytes(path: &Path, folder: &Folder, name: &str, bytes_max: u64) -> Result<Vec<u8>, ReportError> {
    folder.read(name, bytes_max).map_err(|source| ReportError::Read { path: path.join(name), source })
}

fn parse<T: DeserializeOwned>(path: PathBuf, text: &[u8]) -> Result<T, ReportError> {
    serde_json::from_slice(text).map_err(|error| ReportError::Damaged { path, what: damage(&error) })
}

/// Describes the damage of a file of JSON. The errors of the parser name types of this program.
fn damage(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match error.classify() {
        Category::Data if text.starts_with(limits::TOO_MANY) => text,
        Category::Io => text,
        Category::Data | Category::Syntax | Category::Eof => format!(
            "line {}, column {} is not what `swiftwater lab --live NAME --out DIR` writes",
            error.line(),
            error.column()
        ),
    }
}

/// Fails if there are no rows, or if a row has a value that the page does not draw. `path` is that of the results.
fn check(path: PathBuf, rows: &[Row]) -> Result<(), ReportError> {
    let wrong = |(number, row): (usize, &Row)| {
        table::wrong_value(row)
            .map(|key| format!("`{key}` of row {} has a value that no run has", number + 1))
    };
    let none = || rows.is_empty().then(|| "it has no rows".to_owned());
    match rows.iter().enumerate().find_map(wrong).or_else(none) {
        Some(what) => Err(ReportError::Damaged { path, what }),
        None => Ok(()),
    }
}

/// Returns what to do about results that cannot be moved to their places.
fn finish_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::DirectoryNotEmpty => "remove them",
        ErrorKind::InvalidData => "remove it",
        _ => "run this as their owner",
    }
}

/// Reads the traces of a folder of results. A link or a pipe with the name of a trace is an error.
fn read_traces(path: &Path, folder: &Folder) -> Result<Vec<Trace>, ReportError> {
    let place = path.join(TRACES);
    let failed = |source| ReportError::Read { path: place.clone(), source };
    let folder = folder.folder(TRACES).map_err(failed)?;
    let names = folder.names(is_trace_name).map_err(failed)?;
    let mut total = Total::default();
    let too_much = |what| ReportError::TooMuch { folder: path.to_owned(), what };
    total.on_names(names.len()).map_err(too_much)?;
    let read = |name: &String| {
        let text = read_bytes(&place, &folder, name, limits::TRACES_BYTES_MAX)?;
        total.on_bytes(text.len()).map_err(too_much)?;
        let trace: Trace = parse(place.join(name), &text)?;
        let points = trace.curves.iter().map(|curve| curve.points.len()).sum();
        total.on_curves(trace.curves.len(), points).map_err(too_much)?;
        Ok(trace)
    };
    names.iter().map(read).collect()
}

fn render(manifest: &Manifest, rows: &[Row], traces: &[Trace]) -> String {
    let mut sections = String::new();
    // Rows of an experiment are consecutive and keep the number of their place in the results.
    let numbered: Vec<(usize, &Row)> = rows.iter().enumerate().collect();
    for group in numbered.chunk_by(|one, other| name(one.1) == name(other.1)) {
        let Some(name) = group.first().map(|(_, row)| name(row)) else { continue };
        let own: Vec<&Trace> = traces.iter().filter(|trace| trace.experiment == name).collect();
        let open = if group.len() > ROWS_SHOWN { "" } else { " open" };
        sections += &format!(
            "<section><h2>{}</h2><details{open}><summary>Table of {} {}</summary><div class=\"scroll\">{}{}</div></details>{}\
             <div class=\"figures\">{}{}</div></section>\n",
            escape(name),
            group.len(),
            if group.len() == 1 { "row" } else { "rows" },
            table::render(group),
            below(name, group),
            strsctp::render(group),
            figures::by_size(group),
            figures::over_time(&own),
        );
    }
    let parts = [
        ("style", style()),
        ("manifest", of_manifest(manifest)),
        ("sections", sections),
        ("script", SCRIPT.to_owned()),
    ];
    fill(TEMPLATE, &parts)
}

/// Sentence below a table with disturbed rows.
const DISTURBED: &str = "host: a run of the row counts although this machine lost packets (lost), was late (late), or other \
                         programs kept its processors busy (busy). Compare nothing before you have repeated these.";

/// Returns the sentences below the table of an experiment: the lines behind the numbers of paths, published counters, and the
/// meaning of disturbed rows.
fn below(name: &str, group: &[(usize, &Row)]) -> String {
    let word = table::word;
    let numbered = group
        .iter()
        .filter_map(|(_, row)| Some((word(row, "case")?, word(row, "used_paths")?, word(row, "lines")?)));
    let legend = paths::legend(numbered);
    let lines = legend.iter().flat_map(|legend| legend.lines()).map(str::to_owned);
    let disturbed = group.iter().any(|(_, row)| table::is_disturbed(row)).then(|| DISTURBED.to_owned());
    let sentences = lines.chain(live::published_counters(name)).chain(disturbed);
    sentences.map(|text| format!("<p>{}</p>", escape(&text))).collect()
}

fn name(row: &Row) -> &str {
    row.get("experiment").and_then(Value::as_str).unwrap_or_default()
}

fn of_manifest(manifest: &Manifest) -> String {
    let busy = manifest.others_busy_processors.map_or("unknown".to_owned(), |busy| {
        let advice = host::busy_advice(busy).map(|advice| format!(": {advice}")).unwrap_or_default();
        format!("{busy:.2} processors{advice}")
    });
    let mut lines = vec![
        ("command", format!("swiftwater {}", quoted(&manifest.command))),
        ("version", manifest.version.clone()),
        ("date", manifest.date.clone()),
        ("kernel", manifest.kernel.clone()),
        ("processor", format!("{} of {}", manifest.processors, manifest.processor)),
        ("other programs kept busy", busy),
        ("took", format!("{:.0} s", manifest.elapsed_s)),
        ("seed", manifest.seed.to_string()),
    ];
    lines.extend(manifest.commit.iter().map(|commit| ("commit", commit.clone())));
    let unfinished = manifest.unfinished.as_ref();
    // A folder of an earlier version has no number.
    let runs = Some((manifest.runs, manifest.planned_runs)).filter(|(_, planned)| *planned > 0);
    let runs = runs.map(|(runs, planned)| format!("; {runs} of {planned} runs")).unwrap_or_default();
    lines.extend(unfinished.map(|name| ("unfinished", format!("{name}: what it had measured{runs}"))));
    lines.extend(manifest.limits.iter().map(|limit| ("limit", limit.clone())));
    lines.extend(manifest.left_out.iter().map(|left_out| ("left out", left_out.clone())));
    lines.iter().map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>", escape(text))).collect()
}

/// Returns arguments as a shell reads them.
fn quoted(arguments: &[String]) -> String {
    // Only a NUL cannot be quoted, and no argument has one.
    shlex::try_join(arguments.iter().map(String::as_str)).unwrap_or_else(|_| arguments.join(" "))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let arguments = ["--case", "cubic, 1 + 1", "it's"].map(str::to_owned);
        assert_eq!(shlex::split(&quoted(&arguments)).expect("a line"), arguments);
    }

    use super::*;

    #[test]
    fn the_page_needs_nothing_else_and_believes_no_text() {
        let row = |case: &str| {
            let value = serde_json::json!({
                "experiment": "lossy", "case": case, "transport": "<b>", "bits_per_s": 5e6, "published": false
            });
            value.as_object().expect("an object").clone()
        };
        let page = render(&Manifest::default(), &[row("a < b")], &[]);
        for outside in ["src=", "href=", "@import", "url(", "http", "{{"] {
            assert!(!page.contains(outside), "the page has {outside}");
        }
        assert!(page.contains("a &lt; b") && page.contains("&lt;b&gt;") && !page.contains("<b>"));
        assert!(page.contains("Table of 1 row<"), "{page}");
    }

    #[test]
    fn the_page_says_what_disturbed_rows_mean() {
        let page = |disturbed: bool| {
            let row = serde_json::json!({"experiment": "lossy", "case": "a", "disturbed": disturbed});
            render(&Manifest::default(), &[row.as_object().expect("an object").clone()], &[])
        };
        assert!(page(true).contains(DISTURBED) && !page(false).contains(DISTURBED));
    }

    #[test]
    fn the_page_names_the_limits_of_the_host_and_the_transports_that_it_lacks() {
        let manifest = Manifest {
            others_busy_processors: Some(1.55),
            limits: vec!["net.core.* cannot be changed".into()],
            left_out: vec!["without mptcp: no <such> protocol".into()],
            unfinished: Some("datatag".into()),
            runs: 14,
            planned_runs: 23,
            ..Manifest::default()
        };
        let page = render(&manifest, &[], &[]);
        for part in [
            "<dd>1.55 processors: compare nothing before you have repeated this on a quiet machine</dd>",
            "<dt>limit</dt><dd>net.core.* cannot be changed</dd>",
            "<dt>left out</dt><dd>without mptcp: no &lt;such&gt; protocol</dd>",
            "<dt>unfinished</dt><dd>datatag: what it had measured; 14 of 23 runs</dd>",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        let old = render(&Manifest { planned_runs: 0, ..manifest }, &[], &[]);
        assert!(old.contains("<dd>datatag: what it had measured</dd>"), "{old}");
    }

    #[test]
    fn a_folder_without_results_and_a_damaged_file_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("swiftwater-no-results-{}", std::process::id()));
        fs::create_dir_all(folder.join(TRACES)).expect("room");
        let page = folder.join("page.html");
        let report = || run(&ReportArgs { folder: folder.clone(), html: Some(page.clone()) });
        let said = report().expect_err("nothing was measured").to_string();
        assert!(said.contains("has no results") && said.contains("ended before its first"), "{said}");
        fs::write(folder.join(MANIFEST), "{").expect("room");
        let said = report().expect_err("it is cut off").to_string();
        assert!(said.contains("manifest.json is damaged: line 1, column 1 is not what"), "{said}");
        assert!(said.ends_with("writes; measure again"), "{said}");
        assert!(!page.exists(), "there is no page of nothing");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn damaged_rows_are_named_and_no_names_of_this_program() {
        let rows = |text: &str| serde_json::from_str::<Vec<Row>>(text).expect("rows");
        let said = |rows: &[Row]| check(RESULTS.into(), rows).expect_err("damaged").to_string();
        let good = r#"{"experiment": "lossy", "case": "a", "bits_per_s": 5e6, "disturbed": false, "gap_ms_max": null, "message_bytes": 1}"#;
        check(RESULTS.into(), &rows(&format!("[{good}]"))).expect("all is well");
        assert_eq!(said(&[]), "results.json is damaged: it has no rows; measure again");
        for (other, key) in [
            (r#"{"experiment": "lossy", "bits_per_s": "x"}"#, "bits_per_s"),
            (r#"{"experiment": "lossy", "case": 1}"#, "case"),
            (r#"{"case": "a"}"#, "experiment"),
            (r#"{"experiment": "lossy", "published": 1}"#, "published"),
            (r#"{"experiment": "lossy", "message_bytes": 0}"#, "message_bytes"),
            (r#"{"experiment": "lossy", "message_bytes": 1.5}"#, "message_bytes"),
            (r#"{"experiment": "lossy", "message_bytes": 1e308}"#, "message_bytes"),
        ] {
            let said = said(&rows(&format!("[{good}, {other}]")));
            assert!(said.contains(&format!("`{key}` of row 2")), "{said}");
        }
        for text in ["[]", "{\"experiment\": \"lo", "\u{1}"] {
            let what = damage(&serde_json::from_str::<Trace>(text).expect_err("no trace"));
            assert!(
                what.starts_with("line 1, column ") && what.contains(" is not what `swiftwater "),
                "{what}"
            );
        }
    }

    #[test]
    fn rows_of_values_that_no_run_has_are_drawn_in_little_time() {
        let row = |experiment: &str, transport: &str, bytes: u64, bits_per_s: f64| {
            serde_json::json!({
                "experiment": experiment, "case": "1 processor", "transport": transport, "message_bytes": bytes,
                "bits_per_s": bits_per_s, "ratio_to_tcp": bits_per_s, "latency_us": bits_per_s,
            })
        };
        for bits_per_s in [f64::MAX, 5e-324, -f64::MAX] {
            let of = |experiment| {
                let sizes = [1, 2, limits::MESSAGE_BYTES_MAX].into_iter();
                sizes.flat_map(move |bytes| {
                    ["tcp", "sctp-stream"].map(|transport| row(experiment, transport, bytes, bits_per_s))
                })
            };
            let mut rows: Vec<Value> = of("lossy").chain(of("strsctp")).collect();
            for row in rows.iter_mut().filter(|row| row["experiment"] == "strsctp") {
                row["messages_in_10_s"] = 1.into();
            }
            let rows: Vec<Row> = rows.iter().filter_map(Value::as_object).cloned().collect();
            check(RESULTS.into(), &rows).expect("each value is a number");
            assert!(render(&Manifest::default(), &rows, &[]).contains("<svg"), "{bits_per_s}");
        }
    }

    #[test]
    fn a_device_in_place_of_results_is_refused() {
        let path = Path::new("/dev");
        let folder = Folder::open(path).expect("every Linux has it");
        let error = read::<Manifest>(path, &folder, "zero", MANIFEST_BYTES_MAX)
            .expect_err("it has no end")
            .to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[test]
    fn links_in_a_folder_are_not_read() {
        let folder = std::env::temp_dir().join(format!("swiftwater-report-{}", std::process::id()));
        fs::create_dir_all(folder.join("elsewhere")).expect("room");
        fs::write(folder.join("elsewhere/0001-lossy.json"), "secret").expect("room");
        fs::write(folder.join(RESULTS), "[]").expect("room");
        fs::write(folder.join("mine"), serde_json::to_vec(&Manifest::default()).expect("JSON"))
            .expect("room");
        symlink("mine", folder.join(MANIFEST)).expect("a folder of our own");
        symlink("elsewhere", folder.join(TRACES)).expect("a folder of our own");
        let said = || {
            let args = ReportArgs { folder: folder.clone(), html: None };
            run(&args).expect_err("a link is in the way").to_string()
        };
        assert!(said().contains("manifest.json: it is a link"), "{}", said());
        fs::rename(folder.join("mine"), folder.join(MANIFEST)).expect("room");
        assert!(said().contains("traces is a link or a file"), "{}", said());
        fs::remove_dir_all(&folder).expect("ours");
    }

    /// Makes a folder of results without rows, and returns its path.
    fn results(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("swiftwater-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join(TRACES)).expect("room");
        fs::write(folder.join(MANIFEST), serde_json::to_vec(&Manifest::default()).expect("JSON"))
            .expect("room");
        fs::write(folder.join(RESULTS), r#"[{"experiment": "lossy"}]"#).expect("room");
        folder
    }

    fn report_of(folder: &Path) -> Result<(), ReportError> {
        run(&ReportArgs { folder: folder.to_owned(), html: None })
    }

    #[test]
    fn what_is_no_file_among_traces_is_an_error() {
        let folder = results("odd-traces");
        let odd = folder.join(TRACES).join("0001-lossy.json");
        symlink("/etc/passwd", folder.join(TRACES).join("mine")).expect("a folder of our own");
        report_of(&folder).expect("a name of others");
        symlink("/etc/passwd", &odd).expect("a folder of our own");
        let said = report_of(&folder).expect_err("a link").to_string();
        assert!(said.contains("0001-lossy.json: it is a link"), "{said}");
        fs::remove_file(&odd).expect("ours");
        mkfifoat(CWD, &odd, Mode::RUSR | Mode::WUSR).expect("a folder of our own");
        let said = report_of(&folder).expect_err("a pipe").to_string();
        assert!(said.contains("0001-lossy.json: it is not a regular file"), "{said}");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn results_that_need_much_memory_are_refused() {
        let folder = results("much");
        let traces = folder.join(TRACES);
        let refused = |place: PathBuf, text: String| {
            let before = fs::read(&place).ok();
            fs::write(&place, text).expect("room");
            let said = report_of(&folder).expect_err("it is too much").to_string();
            match before {
                Some(before) => fs::write(&place, before).expect("room"),
                None => fs::remove_file(&place).expect("ours"),
            }
            said
        };
        let rows = format!("[{}{{}}]", "{},".repeat(limits::ROWS_MAX));
        let said = refused(folder.join(RESULTS), rows);
        assert!(said.contains("results.json is damaged: more than 20000 entries"), "{said}");
        let said = refused(folder.join(RESULTS), " ".repeat(limits::RESULTS_BYTES_MAX as usize + 1));
        assert!(said.contains("longer than 8,388,608 bytes"), "{said}");
        let said = refused(folder.join(MANIFEST), " ".repeat(MANIFEST_BYTES_MAX as usize + 1));
        assert!(said.contains("longer than 1,048,576 bytes"), "{said}");
        let trace = |curves: &str| {
            format!(
                "{{\"experiment\":\"lossy\",\"case\":\"\",\"transport\":\"\",\"paths\":1,\"seconds\":1,\"published\":[],\
                 \"curves\":[{curves}]}}"
            )
        };
        let curve = |points: &str| format!("{{\"measure\":\"rate\",\"name\":\"\",\"points\":[{points}]}}");
        let many = vec![curve(""); 257].join(",");
        let said = refused(traces.join("0001-lossy.json"), trace(&many));
        assert!(said.contains("0001-lossy.json is damaged: more than 256 entries"), "{said}");
        // Each file is within its limit.
        let half = trace(&curve(&vec!["[0,0]"; limits::POINTS_MAX / 2 + 1].join(",")));
        fs::write(traces.join("0001-lossy.json"), &half).expect("room");
        let said = refused(traces.join("0002-lossy.json"), half);
        assert!(said.contains("has more than 1,000,000 points"), "{said}");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_folder_without_results_is_named() {
        let args = ReportArgs { folder: "/nowhere".into(), html: None };
        let said = run(&args).expect_err("there is none").to_string();
        assert!(said.contains("/nowhere") && said.contains("--out DIR"), "{said}");
    }
}
