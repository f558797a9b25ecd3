//! Files that must be regular, since a pipe may have no other end and a device no limit; and files under a name that a command
//! chooses, which another user may have given to a link that leads anywhere.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::folder::open_folder_of;

/// Opens a regular file for reading. Fails at once for everything else.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // To open a pipe waits for its writer otherwise.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Writes a new file in place of what has this name; see [`Folder::replace`](crate::folder::Folder::replace).
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let (folder, name) = open_folder_of(path)?;
    folder.replace(name, content)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn a_link_and_a_pipe_are_replaced() {
        let folder = std::env::temp_dir().join(format!("swiftwater-replace-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for temporary files");
        let [victim, link, pipe] = ["victim", "link", "pipe"].map(|name| folder.join(name));
        fs::write(&victim, "mine").expect("room");
        symlink(&victim, &link).expect("a folder of our own");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a folder of our own");
        for path in [&link, &pipe] {
            replace(path, b"new").expect("room");
            assert_eq!(fs::read(path).expect("a file"), b"new");
        }
        assert_eq!(fs::read(&victim).expect("a file"), b"mine");
        fs::remove_dir_all(&folder).expect("it was made");
    }
}
