//! Files of the taps that rules push, in a folder of the administrator.
//!
//! A thread writes them: the module puts its records into a buffer of fixed size and never waits for the disk. Records
//! without room are dropped, and the tap counts them in the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use swiftwater::modules::RecordSink;

use crate::system::journal::{Cause, log};
use crate::system::lock::lock;

/// Maximum number of bytes of records that wait for the disk, for one file.
const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum number of files that are written at a time. Each takes a descriptor and a buffer.
const FILES_MAX: usize = 256;
/// Time limit for writing the remaining records when the daemon ends.
const REST_WAIT: Duration = Duration::from_secs(5);

/// Number of open files.
static FILES: AtomicUsize = AtomicUsize::new(0);
/// The list of work of the writing thread, once a file was opened.
static WRITER: Mutex<Option<Sender<Work>>> = Mutex::new(None);

enum Work {
    /// The file has records to write.
    Write(Arc<Shared>),
    /// All earlier work is done when this is answered.
    Tell(SyncSender<()>),
}

/// A file of records.
pub(crate) struct TapFile {
    shared: Arc<Shared>,
    writer: Sender<Work>,
}

struct Shared {
    path: PathBuf,
    /// The user whose association has the tap.
    cause: Cause,
    file: File,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: Vec<u8>,
    /// Whether the writing thread knows of the records.
    is_listed: bool,
    /// The disk has refused records: the file ends there.
    has_failed: bool,
}

impl TapFile {
    /// Creates a file with this name in a folder, for an association of a user. It must not exist, and is for the daemon's user
    /// alone.
    ///
    /// # Errors
    ///
    /// The file cannot be created, or too many are open.
    pub(crate) fn create(folder: &Path, name: &str, user: u32) -> io::Result<TapFile> {
        if FILES.load(Ordering::Relaxed) >= FILES_MAX {
            return Err(io::Error::other(format!("{FILES_MAX} taps write files already")));
        }
        let path = folder.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let writer = writer()?;
        FILES.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared { path, cause: Cause::User(user), file, state: Mutex::default() });
        Ok(TapFile { shared, writer })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Writes the waiting records.
    fn write(&self, records: &mut Vec<u8>) {
        records.clear();
        let mut state = self.state();
        std::mem::swap(&mut state.records, records);
        state.is_listed = false;
        drop(state);
        if let Err(error) = (&self.file).write_all(records) {
            self.state().has_failed = true;
            log(self.cause, format_args!("cannot write {}: {error}", self.path.display()));
        }
    }
}

impl RecordSink for TapFile {
    fn take(&mut self, pieces: &[&[u8]]) -> bool {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut state = self.shared.state();
        if state.has_failed || state.records.len() + bytes > BUFFER_BYTES {
            return false;
        }
        pieces.iter().for_each(|piece| state.records.extend_from_slice(piece));
        if !std::mem::replace(&mut state.is_listed, true) {
            drop(state);
            // The thread ends with the process.
            let _ = self.writer.send(Work::Write(Arc::clone(&self.shared)));
        }
        true
    }

    fn is_closed(&self) -> bool {
        self.shared.state().has_failed
    }
}

/// Returns the way to the writing thread, which the first call starts.
fn writer() -> io::Result<Sender<Work>> {
    let mut writer = lock(&WRITER);
    if writer.is_none() {
        let (sender, work) = mpsc::channel();
        thread::Builder::new().name("tap files".into()).spawn(move || write_files(&work))?;
        *writer = Some(sender);
    }
    writer.clone().ok_or_else(|| io::Error::other("the writing thread has ended"))
}

fn write_files(work: &Receiver<Work>) {
    let mut records = Vec::new();
    for work in work {
        match work {
            Work::Write(file) => file.write(&mut records),
            // No task waits for the answer any more.
            Work::Tell(done) => drop(done.send(())),
        }
    }
}

/// Waits until the records of all files are written, for a limited time.
pub(crate) fn finish() {
    let Some(writer) = lock(&WRITER).clone() else { return };
    let (done, told) = mpsc::sync_channel(1);
    if writer.send(Work::Tell(done)).is_ok() && told.recv_timeout(REST_WAIT).is_err() {
        log(Cause::Daemon, format_args!("the files of taps may lack their last records"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_written_in_order_to_a_file_that_was_not_there() {
        let folder = std::env::temp_dir().join(format!("swiftwater-test-tap-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder of our own");
        let mut file = TapFile::create(&folder, "tap", 1).expect("a new file");
        assert!(TapFile::create(&folder, "tap", 1).is_err(), "it exists");
        for number in 0u32..1000 {
            assert!(file.take(&[&number.to_le_bytes()[..2], &number.to_le_bytes()[2..]]));
        }
        finish();
        let written = std::fs::read(folder.join("tap")).expect("our own file");
        assert_eq!(written, (0u32..1000).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
        assert!(!file.take(&[&[0; BUFFER_BYTES + 1]]), "more than the buffer holds");
        assert!(!file.is_closed());
        std::fs::remove_dir_all(&folder).expect("our own folder");
    }
}
