//! Reading files that must be regular: a pipe may have no writer, and a device no end.

use std::fs::File;
use std::io::{self, Read};
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

/// Reads a regular file to its end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn a_regular_file_is_read_whole() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert_eq!(read(&path).ok(), fs::read(&path).ok());
    }
}
