//! The socket on which the daemon listens, and its file.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A listening socket. Its file is removed when this is dropped, while the socket still listens: so no other daemon takes the
/// place meanwhile.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// `None` if the socket has an abstract name, or a service manager has created it.
    file: Option<Arc<SocketFile>>,
}

impl Listener {
    /// Returns a listener whose file is at `path`.
    pub(crate) fn at(socket: OwnedFd, path: &Path) -> io::Result<Listener> {
        Ok(Listener { socket, file: Some(Arc::new(SocketFile::at(path)?)) })
    }

    /// Returns the file, to be removed where the process exits without dropping the listener.
    pub(crate) fn file(&self) -> Option<Arc<SocketFile>> {
        self.file.clone()
    }
}

impl From<OwnedFd> for Listener {
    fn from(socket: OwnedFd) -> Self {
        Listener { socket, file: None }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The file of a socket, known by its number.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    number: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), number: number(path)? })
    }

    /// Removes the file, unless another has taken its place.
    pub(crate) fn remove(&self) {
        if number(&self.path).is_ok_and(|number| number == self.number) {
            // A daemon without the right to remove the file leaves it, and the next one replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn number(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_removed_and_one_in_its_place_is_not() {
        let path = std::env::temp_dir().join(format!("swiftwater-listener-{}", std::process::id()));
        fs::write(&path, "").expect("our own file");
        let file = SocketFile::at(&path).expect("it exists");
        // The number of a file that exists is not given to another.
        let aside = path.with_extension("aside");
        fs::rename(&path, &aside).expect("our own file");
        fs::write(&path, "").expect("our own file");
        file.remove();
        assert!(path.exists(), "another file");
        fs::rename(&aside, &path).expect("our own file");
        file.remove();
        assert!(!path.exists());
        file.remove();
    }
}
