//! Reading a trace file, record by record.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::names;
use super::schema::{
    Closed, DataAcked, Dropped, EventIn, FILE_SCHEMA, Header, MetricsUpdated, NAMESPACE, Packet, PacketLost,
    PathAssigned, Started, StateUpdated, TimerExpired, Triggered,
};
use super::writer::RECORD_SEPARATOR;
use crate::regular_file;

/// Longest line that is accepted.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Error of reading a file.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    /// The file does not exist, or the disk failed.
    #[error("cannot read {path}: {source}; name a file that `--qlog` has written", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// It is another kind of file.
    #[error(
        "{path}, line 1: {what}; a trace begins with the header of a sequential qlog file, as `swiftwater perf client --qlog FILE` writes it",
        path = path.display()
    )]
    Header { path: PathBuf, what: String },
    /// A line is malformed.
    #[error("{path}, line {line}: {what}", path = path.display())]
    Line {
        path: PathBuf,
        /// Its number, from 1.
        line: u64,
        what: String,
    },
    /// The file has no known event.
    #[error("{path} has no SCTP events: no association began, or it is the trace of another protocol", path = path.display())]
    Nothing { path: PathBuf },
}

/// An event, as the file describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Started(Started),
    State(StateUpdated),
    Closed(Closed),
    Path(PathAssigned),
    PathState(StateUpdated),
    Sent(Packet),
    Received(Packet),
    Acked(DataAcked),
    Lost(PacketLost),
    Congestion(StateUpdated),
    Timer(TimerExpired),
    Probe(Triggered),
    Undone(Triggered),
    Metrics(Box<MetricsUpdated>),
    Dropped(Dropped),
}

/// One event of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Seconds since the file's time zero.
    pub time_s: f64,
    /// The association.
    pub group: String,
    /// The path.
    pub path: Option<String>,
    /// Name without the namespace.
    pub name: &'static str,
    pub body: Body,
}

/// Reader of a trace file.
pub(crate) struct Reader {
    path: PathBuf,
    lines: BufReader<File>,
    number: u64,
    line: Vec<u8>,
    header: Header,
    /// The last line is incomplete: the program that wrote it was stopped.
    cut_off: bool,
}

impl Reader {
    /// Opens a file, or a pipe, and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        Self::of(path, File::open(path))
    }

    /// Opens a file that can be read again, and reads its header. Fails at once for a pipe or a device.
    pub(crate) fn open_regular(path: &Path) -> Result<Self, ReadError> {
        Self::of(path, regular_file::open(path))
    }

    fn of(path: &Path, opened: io::Result<File>) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { path: path.to_owned(), source };
        let mut lines = BufReader::new(opened.map_err(io)?);
        let mut line = Vec::new();
        read_line(&mut lines, &mut line).map_err(io)?;
        let wrong = |what: &str| ReadError::Header { path: path.to_owned(), what: what.into() };
        if line.is_empty() {
            return Err(wrong("the file is empty"));
        }
        let header: Header =
            serde_json::from_slice(text(&line)).map_err(|error| wrong(&format!("no header ({error})")))?;
        if header.file_schema != FILE_SCHEMA {
            return Err(wrong(&format!("`{}` is another kind of file", header.file_schema)));
        }
        Ok(Self { path: path.to_owned(), lines, number: 1, line, header, cut_off: false })
    }

    /// Returns the header of the file.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Returns whether the file ends in the middle of a record. The records before that are valid.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Returns the next known event; skips those of other namespaces.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            self.line.clear();
            let io = |source| ReadError::Io { path: self.path.clone(), source };
            read_line(&mut self.lines, &mut self.line).map_err(io)?;
            if self.line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            let ended = self.line.ends_with(b"\n");
            let content = text(&self.line);
            if content.is_empty() {
                continue;
            }
            match parse(content) {
                Ok(Some(entry)) => return Ok(Some(entry)),
                Ok(None) => {}
                // RFC 7464 §2.4: a record without its end may have been cut off, which is no error.
                Err(_) if !ended && self.line.len() < LINE_BYTES_MAX => {
                    self.cut_off = true;
                    return Ok(None);
                }
                Err(what) => {
                    return Err(ReadError::Line { path: self.path.clone(), line: self.number, what });
                }
            }
        }
    }
}

fn read_line(lines: &mut BufReader<File>, line: &mut Vec<u8>) -> io::Result<usize> {
    io::Read::take(lines, LINE_BYTES_MAX as u64).read_until(b'\n', line)
}

/// Strips separator and end from a line.
fn text(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(&[RECORD_SEPARATOR]).unwrap_or(line);
    line.trim_ascii()
}

fn parse(line: &[u8]) -> Result<Option<Entry>, String> {
    let event: EventIn<'_> = serde_json::from_slice(line).map_err(|error| format!("no event: {error}"))?;
    if !event.time.is_finite() {
        return Err("the time is not a number".into());
    }
    let data = event.data.get();
    let parsed = match &*event.name {
        names::STARTED => body(data, names::STARTED, Body::Started),
        names::STATE => body(data, names::STATE, Body::State),
        names::CLOSED => body(data, names::CLOSED, Body::Closed),
        names::PATH => body(data, names::PATH, Body::Path),
        names::PATH_STATE => body(data, names::PATH_STATE, Body::PathState),
        names::SENT => body(data, names::SENT, Body::Sent),
        names::RECEIVED => body(data, names::RECEIVED, Body::Received),
        names::ACKED => body(data, names::ACKED, Body::Acked),
        names::LOST => body(data, names::LOST, Body::Lost),
        names::CONGESTION => body(data, names::CONGESTION, Body::Congestion),
        names::TIMER => body(data, names::TIMER, Body::Timer),
        names::PROBE => body(data, names::PROBE, Body::Probe),
        names::UNDONE => body(data, names::UNDONE, Body::Undone),
        names::METRICS => body(data, names::METRICS, |metrics| Body::Metrics(Box::new(metrics))),
        names::DROPPED => body(data, names::DROPPED, Body::Dropped),
        _ => return Ok(None),
    };
    let (name, body) = parsed.map_err(|error| format!("the data of `{}`: {error}", event.name))?;
    Ok(Some(Entry {
        time_s: event.time / 1e3,
        group: event.group_id.unwrap_or_default().into_owned(),
        path: event.tuple.map(|path| path.into_owned()),
        name: &name[NAMESPACE.len()..],
        body,
    }))
}

fn body<'a, D: Deserialize<'a>>(
    data: &'a str,
    name: &'static str,
    wrap: impl FnOnce(D) -> Body,
) -> serde_json::Result<(&'static str, Body)> {
    Ok((name, wrap(serde_json::from_str(data)?)))
}
