//! A trace file that is written while a program runs.

use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use swiftwater::trace::{Event, Record, TraceSink};
use thiserror::Error;

use super::writer::{Origin, Writer};
use crate::result_file::ResultFile;

/// Number of records that may wait to be written. If the program produces more than the file takes, some are lost, and the file
/// records their number: tracing must not slow the traced program down.
const WAITING_MAX: usize = 1 << 16;
/// Number of bytes that are written to the file at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// Error of a trace file.
#[derive(Debug, Error)]
pub(crate) enum TraceFileError {
    /// The file cannot be made.
    #[error("cannot write the trace to {path}: {source}; name another file with --qlog", path = path.display())]
    Create { path: PathBuf, source: io::Error },
    /// Nothing could be written.
    #[error("the trace was not written to {path}: {source}; make room there, or name another file with --qlog", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The file has the beginning of the trace.
    #[error("the trace in {path} ends early: {source}; make room there, or name another file with --qlog", path = path.display())]
    Cut { path: PathBuf, source: io::Error },
}

impl TraceFileError {
    /// Returns the error of a write to a file that is closed now.
    fn of_write(path: PathBuf, source: io::Error) -> Self {
        match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() > 0 => TraceFileError::Cut { path, source },
            _ => TraceFileError::Write { path, source },
        }
    }
}

enum Item {
    Record(Record),
    End,
}

/// A file with a thread that writes it.
pub(crate) struct TraceFile {
    path: PathBuf,
    items: SyncSender<Item>,
    sink: TraceSink,
    thread: JoinHandle<io::Result<()>>,
}

impl TraceFile {
    /// Opens a file, which is written once there is a record. `side` is `client` or `server`.
    pub(crate) fn create(path: &Path, title: &str, side: &'static str) -> Result<Self, TraceFileError> {
        let create = |source| TraceFileError::Create { path: path.to_owned(), source };
        let (items, arrivals) = sync_channel(WAITING_MAX);
        let missed = Arc::new(AtomicU64::new(0));
        let sink = TraceSink::new({
            let (items, missed) = (items.clone(), Arc::clone(&missed));
            move |record| {
                if items.try_send(Item::Record(record)).is_err() {
                    missed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let origin = Origin { title: title.to_owned(), side, zero: Some(SystemTime::now()) };
        let file = ResultFile::open_for_records(path).map_err(create)?;
        let thread = thread::Builder::new().name("trace".into());
        let thread = thread.spawn(move || write_all(file, &origin, &arrivals, &missed)).map_err(create)?;
        Ok(Self { path: path.to_owned(), items, sink, thread })
    }

    /// Returns the function that stacks pass their records to.
    pub(crate) fn sink(&self) -> TraceSink {
        self.sink.clone()
    }

    /// Writes the remaining records and closes the file.
    pub(crate) fn finish(self) -> Result<(), TraceFileError> {
        // If the thread has ended, `join` below returns its error.
        let _ = self.items.send(Item::End);
        let written = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writer failed")));
        written.map_err(|source| TraceFileError::of_write(self.path, source))
    }
}

/// A trace of events on a virtual clock, which waits for the disk.
#[derive(Clone)]
pub(crate) struct VirtualTrace {
    path: PathBuf,
    writing: Arc<Mutex<Writing>>,
}

struct Writing {
    writer: Writer<BufWriter<ResultFile>>,
    /// Result of the writes so far.
    written: io::Result<()>,
}

impl VirtualTrace {
    /// Begins a file.
    pub(crate) fn create(path: &Path, title: &str) -> Result<Self, TraceFileError> {
        let create = |source| TraceFileError::Create { path: path.to_owned(), source };
        let out = BufWriter::with_capacity(BUFFER_BYTES, ResultFile::open_for_records(path).map_err(create)?);
        let origin = Origin { title: title.to_owned(), side: "client", zero: None };
        let writer = Writer::new(out, &origin).map_err(create)?;
        Ok(Self { path: path.to_owned(), writing: Arc::new(Mutex::new(Writing { writer, written: Ok(()) })) })
    }

    /// Returns the function that takes the records.
    pub(crate) fn taker(&self) -> Box<dyn FnMut(Record) + Send> {
        let writing = Arc::clone(&self.writing);
        Box::new(move |record| {
            let mut writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
            if writing.written.is_ok() {
                writing.written = writing.writer.write(&record);
            }
        })
    }

    /// Writes the remaining records.
    pub(crate) fn finish(self) -> Result<(), TraceFileError> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let written = std::mem::replace(&mut writing.written, Ok(())).and_then(|()| writing.writer.flush());
        written.map_err(|source| TraceFileError::of_write(self.path.clone(), source))
    }
}

/// Writes records until the end. A file without a record is not begun.
fn write_all(
    file: ResultFile,
    origin: &Origin,
    arrivals: &Receiver<Item>,
    missed: &AtomicU64,
) -> io::Result<()> {
    let records = arrivals.iter().map_while(|item| match item {
        Item::Record(record) => Some(record),
        Item::End => None,
    });
    let mut records = records.peekable();
    if records.peek().is_none() {
        return Ok(());
    }
    let mut writer = Writer::new(BufWriter::with_capacity(BUFFER_BYTES, file), origin)?;
    for record in records {
        match missed.swap(0, Ordering::Relaxed) {
            0 => {}
            // Some of the missing records may belong to associations other than the named one.
            records => {
                writer.write(&Record { event: Event::Dropped { records }, path: None, ..record.clone() })?;
            }
        }
        writer.write(&record)?;
    }
    writer.flush()
}
