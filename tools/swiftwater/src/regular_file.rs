//! Files that must be regular, since a pipe may have no other end and a device no limit; and files to write, whose names another
//! user may have given to a link that leads anywhere.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::folder::{Missing, Opened, open_file, open_folder_of};

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

/// Writes a file that the user of this command has named; see [`open_file`].
pub(crate) fn write_named(path: &Path, content: &[u8]) -> io::Result<()> {
    let Opened { mut file, new, .. } = open_file(path, Missing::Fail)?;
    if new.is_none() && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use rustix::fs::{CWD, Mode, mkfifoat};
    use rustix::process::geteuid;
    use swiftwater_tests::tools;

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

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("swiftwater-linked-files-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for temporary files");
        let [victim, own, other, chain] = ["victim", "own", "other", "chain"].map(|name| folder.join(name));
        fs::write(&victim, "mine, and long").expect("room");
        symlink("victim", &own).expect("a folder of our own");
        write_named(&own, b"new").expect("the link is ours");
        assert_eq!(fs::read(&victim).expect("a file"), b"new");
        write_named(Path::new("/dev/null"), b"new").expect("every Linux has it");
        symlink("/proc/self/fd/2", &chain).expect("a folder of our own");
        write_named(&chain, b"").expect("standard error is open");
        if !geteuid().is_root() {
            fs::remove_dir_all(&folder).expect("it was made");
            return tools::skip("only root makes links of another user");
        }
        symlink(&victim, &other).expect("a folder of our own");
        lchown(&other, Some(41_001), None).expect("root may");
        fs::remove_file(&chain).expect("it was made");
        symlink(&other, &chain).expect("a folder of our own");
        for path in [&other, &chain] {
            let error = write_named(path, b"theirs").expect_err("it is not ours");
            assert_eq!(error.to_string(), "other is a link that user 41001 has made");
        }
        fs::remove_file(&victim).expect("it was made");
        assert!(write_named(&other, b"").is_err() && !victim.exists(), "nor is a file made");
        assert_eq!(fs::read_link(&other).expect("it stays"), victim);
        fs::remove_dir_all(&folder).expect("it was made");
    }
}
