//! Files that must be regular: a pipe may have no other end, and a device no limit; and a link may lead anywhere.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

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

/// Maximum length of a file that is read whole: another user may have made it.
const BYTES_MAX: u64 = 1 << 30;

/// Reads a regular file to its end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if file.metadata()?.len() > BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 1 GiB"));
    }
    let mut content = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// Writes a new file in place of what has this name. So neither a link nor a pipe that another user has put into a shared folder
/// under a name that this command chooses is written to.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path)?.write_all(content),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn a_device_a_pipe_and_a_folder_are_refused_at_once() {
        let pipe = std::env::temp_dir().join(format!("swiftwater-pipe-{}", std::process::id()));
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a folder for temporary files");
        let errors =
            [Path::new("/dev/zero"), &pipe, Path::new("/")].map(|path| read(path).map_err(|e| e.to_string()));
        fs::remove_file(&pipe).expect("it was made");
        for error in errors {
            assert_eq!(error.err().as_deref(), Some("it is not a regular file"));
        }
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let path = std::env::temp_dir().join(format!("swiftwater-sparse-{}", std::process::id()));
        let file = File::create(&path).expect("a folder for temporary files");
        file.set_len(BYTES_MAX + 1).expect("a sparse file");
        let error = read(&path).expect_err("it is too long");
        fs::remove_file(&path).expect("it was made");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_regular_file_is_read_whole() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert_eq!(read(&path).ok(), fs::read(&path).ok());
    }

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
