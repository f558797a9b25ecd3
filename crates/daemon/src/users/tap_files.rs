//! Files of the taps that rules push, in a folder of the administrator.
//!
//! A thread creates, writes and closes them: the folder may lie on a disk or in a network file system that makes its callers
//! wait, and neither the module nor the daemon's thread waits for it. Records that find no room are dropped, and the tap counts
//! them in the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use swiftwater::modules::RecordSink;

use super::record_buffer::RecordBuffer;
use super::user_permits::{Permit, UserPermits};
use crate::system::journal::{Cause, log};
use crate::system::lock::lock;

/// Maximum number of bytes of records that wait for the disk, for one file.
const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum number of files that are written at a time. Each takes a descriptor and a buffer.
const FILES_MAX: usize = 256;
/// Maximum number of these files with associations of one user.
const USER_FILES_MAX: usize = FILES_MAX / 4 * 3;
/// Time limit for writing the remaining records when the daemon ends.
const REST_WAIT: Duration = Duration::from_secs(5);

/// The files of a daemon, and the thread that writes them.
#[derive(Debug)]
pub(crate) struct TapFiles {
    /// Limits the number of open files. A file takes its permit before the thread creates it.
    permits: Arc<UserPermits>,
    /// The list of work of the writing thread, once there was a file.
    writer: Mutex<Option<Sender<Work>>>,
}

enum Work {
    Create(Arc<Shared>, Permit),
    /// The file has records to write.
    Write(Arc<Shared>),
    /// The tap has ended.
    Close(Arc<Shared>),
    /// All earlier work is done when this is answered.
    Answer(SyncSender<()>),
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
    /// Closed when the file ends, because the disk has refused records or the file.
    buffer: RecordBuffer,
    /// The file while it is open. Only the writing thread locks it.
    file: Mutex<Option<(File, Permit)>>,
}

impl TapFiles {
    pub(crate) fn new() -> TapFiles {
        TapFiles { permits: UserPermits::new(FILES_MAX, USER_FILES_MAX), writer: Mutex::default() }
    }

    /// Creates a file with this path, for an association of a user. It must not exist, and is for the daemon's user alone. If it
    /// cannot be created, the log says so, and the file takes no records.
    ///
    /// # Errors
    ///
    /// Too many files are open, of this user or of all, or there is no thread to write them.
    pub(crate) fn create(&self, path: PathBuf, user: u32) -> io::Result<TapFile> {
        let too_many = || {
            io::Error::other(format!(
                "taps write {FILES_MAX} files already, or {USER_FILES_MAX} of the associations of this user"
            ))
        };
        let permit = self.permits.take_unused(user).ok_or_else(too_many)?;
        let writer = self.writer()?;
        let (buffer, file) = (RecordBuffer::new(BUFFER_BYTES), Mutex::default());
        let shared = Arc::new(Shared { path, cause: Cause::User(user), buffer, file });
        writer.send(Work::Create(Arc::clone(&shared), permit)).map_err(|_| no_writer())?;
        Ok(TapFile { shared, writer })
    }

    /// Returns the way to the writing thread, which the first call starts.
    fn writer(&self) -> io::Result<Sender<Work>> {
        let mut writer = lock(&self.writer);
        if writer.is_none() {
            let (sender, work) = mpsc::channel();
            thread::Builder::new().name("tap files".into()).spawn(move || write_files(&work))?;
            *writer = Some(sender);
        }
        writer.clone().ok_or_else(no_writer)
    }

    /// Waits until the records of all files are written, for a limited time.
    pub(crate) fn finish(&self) {
        let Some(writer) = lock(&self.writer).clone() else { return };
        let (done, answered) = mpsc::sync_channel(1);
        if writer.send(Work::Answer(done)).is_ok() && answered.recv_timeout(REST_WAIT).is_err() {
            log(Cause::Daemon, format_args!("the files of taps may lack their last records"));
        }
    }
}

fn no_writer() -> io::Error {
    io::Error::other("the writing thread has ended")
}

fn write_files(work: &Receiver<Work>) {
    let mut records = Vec::new();
    for work in work {
        match work {
            Work::Create(file, permit) => file.create(permit),
            Work::Write(file) => file.write(&mut records),
            Work::Close(file) => drop(lock(&file.file).take()),
            // No task waits for the answer any more.
            Work::Answer(done) => drop(done.send(())),
        }
    }
}

/// The work of the writing thread.
impl Shared {
    fn create(&self, permit: Permit) {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path) {
            Ok(file) => *lock(&self.file) = Some((file, permit)),
            Err(error) => self.fail(&error),
        }
    }

    /// Writes the waiting records.
    fn write(&self, records: &mut Vec<u8>) {
        self.buffer.drain(records);
        let mut file = lock(&self.file);
        if let Some(Err(error)) = file.as_ref().map(|(file, _)| { file }.write_all(records)) {
            *file = None;
            self.fail(&error);
        }
    }

    fn fail(&self, error: &io::Error) {
        self.buffer.close();
        log(self.cause, format_args!("cannot write {}: {error}", self.path.display()));
    }
}

impl RecordSink for TapFile {
    fn take(&mut self, pieces: &[&[u8]]) -> bool {
        // The thread ends with the process.
        let wake = || drop(self.writer.send(Work::Write(Arc::clone(&self.shared))));
        self.shared.buffer.take(pieces, wake)
    }

    fn is_closed(&self) -> bool {
        self.shared.buffer.is_closed()
    }
}

impl Drop for TapFile {
    fn drop(&mut self) {
        let _ = self.writer.send(Work::Close(Arc::clone(&self.shared)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Calls `f` with a folder that is removed afterwards.
    fn in_folder(name: &str, f: impl FnOnce(&Path)) {
        let folder = std::env::temp_dir().join(format!("swiftwater-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder of our own");
        f(&folder);
        std::fs::remove_dir_all(&folder).expect("our own folder");
    }

    #[test]
    fn records_are_written_in_order_to_a_file_that_was_not_there() {
        in_folder("tap", |folder| {
            let (files, path) = (TapFiles::new(), folder.join("tap"));
            let mut file = files.create(path.clone(), 1).expect("room");
            let second = files.create(path.clone(), 1).expect("room");
            for number in 0u32..1000 {
                assert!(file.take(&[&number.to_le_bytes()[..2], &number.to_le_bytes()[2..]]));
            }
            files.finish();
            assert!(second.is_closed(), "the file exists");
            let written = std::fs::read(path).expect("our own file");
            assert_eq!(written, (0u32..1000).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
            assert!(!file.take(&[&[0; BUFFER_BYTES + 1]]), "more than the buffer holds");
            assert!(!file.is_closed());
        });
    }

    #[test]
    fn a_file_counts_until_its_tap_has_ended() {
        in_folder("taps", |folder| {
            let files = TapFiles::new();
            let create = |n: usize| {
                let user = if n < USER_FILES_MAX { 1 } else { 2 };
                files.create(folder.join(n.to_string()), user)
            };
            let of_user = |n: usize, user| files.create(folder.join(format!("{n} of {user}")), user);
            let mut open: Vec<_> = (0..USER_FILES_MAX).map(|n| create(n).expect("room")).collect();
            assert!(of_user(0, 1).is_err(), "others may need the rest");
            open.extend((USER_FILES_MAX..FILES_MAX).map(|n| create(n).expect("room for another user")));
            assert!(create(FILES_MAX).is_err());
            files.finish();
            assert!(create(FILES_MAX).is_err(), "all are open");
            open.pop();
            files.finish();
            assert!(create(FILES_MAX).is_ok());
            // Nothing is created any more when the folder is removed.
            files.finish();
        });
    }

    #[test]
    fn a_file_that_cannot_be_created_takes_no_permit() {
        let files = TapFiles::new();
        for _ in 0..2 * FILES_MAX {
            let file = files.create("/nowhere/tap".into(), 1).expect("room");
            files.finish();
            assert!(file.is_closed());
        }
    }
}
