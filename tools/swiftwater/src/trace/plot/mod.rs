//! `swiftwater trace plot`: figures over time, one for each path.
//!
//! The file is read twice: first to survey its contents, then to sort them into as many columns as the figure has points. So a
//! trace of any length takes the memory of a figure.

mod columns;
mod draw;
mod page;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use super::args::{PlotArgs, Select};
use super::reader::{Body, Entry, Reader};
use super::{ReadError, TraceError, show};
use crate::output::print;
use crate::regular_file;
use crate::result_file::ResultFile;
use columns::Columns;

/// Width of a drawing.
const WIDTH: f64 = 1200.0;

/// Largest number of figures in one drawing; the paths with the most events get one.
const FIGURES_MAX: usize = 12;

/// A path of an association.
type Key = (String, String);

/// Survey of a path.
#[derive(Clone, Debug, Default)]
struct Found {
    events: u64,
    first_s: f64,
    last_s: f64,
}

/// Survey of the file.
#[derive(Debug, Default)]
struct Survey {
    paths: BTreeMap<Key, Found>,
    any: bool,
}

/// One figure.
#[derive(Debug)]
struct Figure {
    /// The association's tag.
    group: String,
    /// The path's number.
    path: String,
    /// Address of the peer, if the file has it.
    remote: Option<String>,
    /// The columns to draw.
    columns: Columns,
}

/// A whole drawing.
#[derive(Debug)]
struct Drawing {
    /// Title in the file.
    title: String,
    /// The figures, in the order of association and path.
    figures: Vec<Figure>,
    /// Number of paths without a figure.
    left_out: usize,
}

enum Format {
    Svg,
    Html,
}

/// Draws the selected events and prints the name of the file.
pub(super) fn run(args: &PlotArgs) -> Result<(), TraceError> {
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("svg"));
    let format = format_of(&output)?;
    let failed = |source| TraceError::Write { path: output.clone(), source };
    let named = args.output.as_deref().map(ResultFile::open).transpose().map_err(failed)?;
    let drawing = read(&args.file, &args.select)?;
    let svg = draw::render(&drawing);
    let text = match format {
        Format::Svg => svg,
        Format::Html => page::render(&drawing, &svg),
    };
    let written = match named {
        Some(mut file) => file.write_all(text.as_bytes()),
        None => regular_file::replace(&output, text.as_bytes()),
    };
    written.map_err(failed)?;
    let count = drawing.figures.len();
    let mut said = format!("{}: {count} path{}\n", output.display(), if count == 1 { "" } else { "s" });
    if drawing.left_out > 0 {
        said += &format!("{} more paths with fewer events; name one with --association\n", drawing.left_out);
    }
    Ok(print(&said)?)
}

fn format_of(output: &Path) -> Result<Format, TraceError> {
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(Format::Svg),
        Some("html" | "htm") => Ok(Format::Html),
        _ => Err(TraceError::Format { path: output.to_owned() }),
    }
}

/// Reads a file into figures.
fn read(file: &Path, select: &Select) -> Result<Drawing, TraceError> {
    let survey = survey(file, select)?;
    if survey.paths.is_empty() {
        return Err(match survey.any {
            true => TraceError::NothingSelected { path: file.to_owned() },
            false => ReadError::Nothing { path: file.to_owned() }.into(),
        });
    }
    let mut chosen: Vec<(Key, Found)> = survey.paths.into_iter().collect();
    chosen.sort_by_key(|(key, found)| (std::cmp::Reverse(found.events), key.clone()));
    let left_out = chosen.len().saturating_sub(FIGURES_MAX);
    chosen.truncate(FIGURES_MAX);
    let mut figures: BTreeMap<Key, Figure> = chosen
        .into_iter()
        .map(|(key, found)| {
            let (from_s, to_s) = (select.from.unwrap_or(found.first_s), select.to.unwrap_or(found.last_s));
            let columns = Columns::new(from_s, to_s);
            let figure = Figure { group: key.0.clone(), path: key.1.clone(), remote: None, columns };
            (key, figure)
        })
        .collect();
    let mut reader = Reader::open_regular(file)?;
    let title = reader.header().title.clone().unwrap_or_else(|| file.display().to_string());
    while let Some(entry) = reader.next()? {
        let Some(figure) = key_of(&entry).and_then(|key| figures.get_mut(&key)) else { continue };
        if let Body::Path(path) = &entry.body {
            figure.remote = Some(path.remote.clone());
        }
        // State before the first second of the drawing still applies in it.
        figure.columns.add(entry.time_s, &entry.body);
    }
    if reader.is_cut_off() {
        show::warn_cut_off(file);
    }
    Ok(Drawing { title, figures: figures.into_values().collect(), left_out })
}

fn survey(file: &Path, select: &Select) -> Result<Survey, TraceError> {
    let mut reader = Reader::open_regular(file)?;
    let mut survey = Survey::default();
    while let Some(entry) = reader.next()? {
        survey.any = true;
        let Some(key) = key_of(&entry).filter(|_| select.takes(&entry)) else { continue };
        let time_s = entry.time_s;
        let found = survey.paths.entry(key).or_insert(Found { events: 0, first_s: time_s, last_s: time_s });
        found.events += 1;
        found.first_s = found.first_s.min(time_s);
        found.last_s = found.last_s.max(time_s);
    }
    Ok(survey)
}

fn key_of(entry: &Entry) -> Option<Key> {
    entry.path.as_ref().map(|path| (entry.group.clone(), path.clone()))
}
