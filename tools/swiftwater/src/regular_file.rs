//! Files that must be regular, since a pipe may have no other end and a device no limit; and files to write, whose names another
//! user may have given to a link that leads anywhere.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum number of links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;

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

/// Opens the file that the user of this command has named, for writing, and makes it if there is none. Returns whether it is new:
/// one that a link has named counts as old. A link is followed only if this user or root has made it: another user may have put
/// it into a shared folder or its own.
pub(crate) fn open_named(path: &Path) -> io::Result<(File, bool)> {
    let mut path = path.to_owned();
    for links in 0..LINKS_MAX {
        match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, links == 0)),
            // A link to a file that does not exist yet is there already, too.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        match open_without_links(&path) {
            Err(error) if is_of_link(&error) => match followed(&path)? {
                Link::To(target) => path = target,
                Link::Opened(file) => return Ok((file, false)),
            },
            opened => return opened.map(|file| (file, false)),
        }
    }
    Err(Errno::LOOP.into())
}

/// Writes a file that the user of this command has named; see [`open_named`].
pub(crate) fn write_named(path: &Path, content: &[u8]) -> io::Result<()> {
    let (mut file, is_new) = open_named(path)?;
    if !is_new && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(content)
}

fn open_without_links(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NOCTTY;
    File::options().write(true).custom_flags(flags.bits() as i32).open(path)
}

fn is_of_link(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// A link that may be followed.
enum Link {
    To(PathBuf),
    /// The link is an open file of a process (`/dev/stdout`), and names no path.
    Opened(File),
}

/// Follows a link. Fails if another user has made it.
fn followed(path: &Path) -> io::Result<Link> {
    let link = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let owner = fstat(&link)?.st_uid;
    if owner != 0 && owner != geteuid().as_raw() {
        let why = format!("it is a link that user {owner} has made");
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    // Nobody else can make links there.
    if fstatfs(&link)?.f_type == PROC_SUPER_MAGIC {
        return File::options().write(true).open(path).map(Link::Opened);
    }
    let target = OsString::from_vec(readlinkat(&link, "", Vec::new())?.into_bytes());
    Ok(Link::To(path.parent().unwrap_or(Path::new("")).join(target)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

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

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("swiftwater-links-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for temporary files");
        let [victim, own, other, chain] = ["victim", "own", "other", "chain"].map(|name| folder.join(name));
        fs::write(&victim, "mine, and long").expect("room");
        symlink("victim", &own).expect("a folder of our own");
        write_named(&own, b"new").expect("the link is ours");
        assert_eq!(fs::read(&victim).expect("a file"), b"new");
        write_named(Path::new("/dev/null"), b"new").expect("every Linux has it");
        symlink("/proc/self/fd/2", &chain).expect("a folder of our own");
        write_named(&chain, b"").expect("standard error is open");
        if geteuid().is_root() {
            symlink(&victim, &other).expect("a folder of our own");
            lchown(&other, Some(41_001), None).expect("root may");
            fs::remove_file(&chain).expect("it was made");
            symlink(&other, &chain).expect("a folder of our own");
            for path in [&other, &chain] {
                let error = write_named(path, b"theirs").expect_err("it is not ours");
                assert_eq!(error.to_string(), "it is a link that user 41001 has made");
            }
            fs::remove_file(&victim).expect("it was made");
            assert!(open_named(&other).is_err() && !victim.exists(), "nor is a file made");
            assert_eq!(fs::read_link(&other).expect("it stays"), victim);
        }
        fs::remove_dir_all(&folder).expect("it was made");
    }
}
