//! Open folders, for files in folders of other users: a name is looked up in the folder that was opened, whatever another user
//! puts in place of that folder or of those on the way to it meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fcntl_getfl, fcntl_setfl, fstat, fstatfs,
    mkdirat, openat, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::units::grouped;

/// Maximum number of links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;
/// Rights of new files and folders, which the umask limits.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

/// A link, pipe or folder itself, which cannot be read or written.
const ITSELF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FOLDER: OFlags = ITSELF.union(OFlags::DIRECTORY);
const NEW_FILE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
/// To open a pipe waits for its other end without `NONBLOCK`.
const OLD_FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// An open folder. Its methods take names in the folder, not paths, and follow no links.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder. Fails if another user than that of the command or root has made a link on the way.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Walk::new(path, Missing::Fail)?.into_folder()
    }

    /// Opens a folder, and makes it, but none of those on the way to it.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let created = Walk::new(path, Missing::MakeLast).and_then(Walk::into_folder);
        created.map_err(|error| name_missing_folder(path, error))
    }

    /// Opens a folder in this one.
    pub(crate) fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Folder> {
        let name = name.as_ref();
        match openat(&self.0, name, FOLDER, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let why = format!("{} is a link or a file, not a folder", name.display());
                Err(io::Error::new(ErrorKind::NotADirectory, why))
            }
            opened => Ok(Folder(opened?)),
        }
    }

    /// Opens a folder in this one. Fails if another user has made it, who may change it at any time.
    pub(crate) fn own_folder(&self, name: impl AsRef<OsStr>) -> io::Result<Folder> {
        let folder = self.folder(&name)?;
        let owner = fstat(&folder.0)?.st_uid;
        if owner != geteuid().as_raw() {
            let why = format!("{} there belongs to user {owner}", name.as_ref().display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        Ok(folder)
    }

    /// Makes a folder in this one.
    pub(crate) fn make_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(mkdirat(&self.0, name.as_ref(), FOLDER_MODE)?)
    }

    /// Makes a folder in this one, unless there is something of this name. Returns whether it is new.
    pub(crate) fn make_missing_folder(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match self.make_folder(name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| true),
        }
    }

    /// Returns whether this folder has an entry of this name. A link that leads nowhere is one.
    pub(crate) fn has(&self, name: impl AsRef<OsStr>) -> bool {
        statat(&self.0, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Returns the names of the regular files that `is_wanted` selects, in their order.
    pub(crate) fn files(&self, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut names = self.names(is_wanted)?;
        let mut failure = Ok(());
        names.retain(|name| match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => FileType::from_raw_mode(found.st_mode) == FileType::RegularFile,
            Err(error) => {
                failure = Err(error);
                false
            }
        });
        Ok(failure.map(|()| names)?)
    }

    /// Returns the names that `is_wanted` selects, of files, folders, links and pipes, in their order.
    pub(crate) fn names(&self, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(&self.0, ".", readable, Mode::empty())?)? {
            let entry = entry?;
            names.extend(entry.file_name().to_str().ok().filter(|name| is_wanted(name)).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Reads a regular file of at most this length to its end: another user may have made it.
    pub(crate) fn read(&self, name: impl AsRef<OsStr>, bytes_max: u64) -> io::Result<Vec<u8>> {
        let file = match openat(&self.0, name.as_ref(), OFlags::RDONLY | OLD_FILE, Mode::empty()) {
            Err(Errno::LOOP) => return Err(io::Error::new(ErrorKind::InvalidInput, "it is a link")),
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
        }
        if found.len() > bytes_max {
            let why = format!("it is longer than {} bytes", grouped(bytes_max));
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        let mut content = Vec::new();
        file.take(bytes_max).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Writes a new file in place of what has this name. So neither a link nor a pipe that another user has put into a shared
    /// folder under a name that this command chooses is written to.
    pub(crate) fn replace(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<()> {
        self.remove_file(&name)?;
        let written = File::from(openat(&self.0, name.as_ref(), NEW_FILE, FILE_MODE)?).write_all(content);
        // A file that is not whole only takes room.
        written.inspect_err(|_| drop(self.remove_file(&name)))
    }

    /// Moves a file or a folder to another folder, in place of a file or an empty folder there.
    pub(crate) fn rename(&self, name: &str, to: &Folder, new_name: &str) -> io::Result<()> {
        Ok(renameat(&self.0, name, &to.0, new_name)?)
    }

    /// Removes a file or a link, if there is one.
    pub(crate) fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.remove(name.as_ref(), AtFlags::empty())
    }

    /// Removes an empty folder, if there is one.
    pub(crate) fn remove_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.remove(name.as_ref(), AtFlags::REMOVEDIR)
    }

    fn remove(&self, name: &OsStr, flags: AtFlags) -> io::Result<()> {
        match unlinkat(&self.0, name, flags) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Opens a file for writing that is there already.
    fn open_old(&self, name: &OsStr) -> io::Result<File> {
        let file = match openat(&self.0, name, OFlags::WRONLY | OLD_FILE, Mode::empty()) {
            Err(Errno::NXIO) => return self.open_unread_pipe(name),
            opened => opened?,
        };
        check_pipe(&file, name)?;
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(file.into())
    }

    /// Opens a pipe that no program reads yet, and waits for one.
    fn open_unread_pipe(&self, name: &OsStr) -> io::Result<File> {
        let pipe = openat(&self.0, name, ITSELF, Mode::empty())?;
        check_pipe(&pipe, name)?;
        File::options().write(true).open(format!("/proc/self/fd/{}", pipe.as_raw_fd()))
    }
}

/// Fails if another user has made a pipe: who reads it could keep this command waiting.
fn check_pipe(file: impl AsFd, name: &OsStr) -> io::Result<()> {
    let found = fstat(file)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Fifo => check_maker("pipe", name, found.st_uid),
        _ => Ok(()),
    }
}

/// Fails if neither the user of this command nor root has made what a name stands for.
fn check_maker(what: &str, name: &OsStr, maker: u32) -> io::Result<()> {
    if maker == 0 || maker == geteuid().as_raw() {
        return Ok(());
    }
    let why = format!("{} is a {what} that user {maker} has made", name.display());
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

/// A file or folder that this command has made.
#[derive(Debug)]
pub(crate) struct Made {
    folder: Folder,
    name: OsString,
}

impl Made {
    /// Makes the file again after it was removed, in the folder that was opened. Fails if something else has its name.
    pub(crate) fn make_file(&self) -> io::Result<File> {
        Ok(openat(&self.folder.0, &self.name, NEW_FILE, FILE_MODE)?.into())
    }

    pub(crate) fn remove_file(&self) -> io::Result<()> {
        self.folder.remove_file(&self.name)
    }
}

/// Folders that this command has made, the outermost first.
#[derive(Debug, Default)]
pub(crate) struct MadeFolders(Vec<Made>);

impl MadeFolders {
    /// Removes the folders, the innermost first, up to one that has other contents.
    pub(crate) fn remove_empty(&self) {
        let _ = self.0.iter().rev().try_for_each(|made| made.folder.remove_folder(&made.name));
    }
}

/// A file that is open for writing.
pub(crate) struct Opened {
    pub(crate) file: File,
    /// The file, if it is new. One that a link has named counts as old.
    pub(crate) new: Option<Made>,
    pub(crate) new_folders: MadeFolders,
}

/// Treatment of folders on the way that are missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Fail,
    /// Make the last folder, if all others on the way are there.
    MakeLast,
    Make,
}

/// Opens the file that the user of this command has named, for writing, and makes it if there is none. Links on the way and at
/// the name are followed, and a pipe is opened, only if this user or root has made them: another user may have put them into a
/// shared folder or its own.
pub(crate) fn open_file(path: &Path, missing: Missing) -> io::Result<Opened> {
    let mut walk = Walk::new(path, missing)?;
    match walk.reach_file() {
        Ok((file, name)) => {
            let Walk { folder, made: new_folders, .. } = walk;
            Ok(Opened { file, new: name.map(|name| Made { folder, name }), new_folders })
        }
        Err(error) => {
            walk.made.remove_empty();
            Err(name_missing_folder(path, error))
        }
    }
}

/// Says which folder on the way to a file or a folder is missing, if one is, and how to make it.
fn name_missing_folder(path: &Path, error: io::Error) -> io::Error {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    match path.parent().filter(is_missing) {
        Some(folder) if error.kind() == ErrorKind::NotFound => {
            let folder = folder.display();
            let why = format!("there is no folder {folder} (`mkdir -p {folder}` makes it)");
            io::Error::new(ErrorKind::NotFound, why)
        }
        _ => error,
    }
}

/// Opens the folder of a file, and returns the name of the file in it.
pub(crate) fn open_folder_of(path: &Path) -> io::Result<(Folder, OsString)> {
    let mut walk = Walk::new(path, Missing::Fail)?;
    let name = walk.reach_last()?;
    Ok((walk.folder, name))
}

/// The way to a file or folder, one component at a time.
struct Walk {
    folder: Folder,
    /// The components that remain, the next one last.
    rest: Vec<OsString>,
    links: usize,
    missing: Missing,
    made: MadeFolders,
}

impl Walk {
    fn new(path: &Path, missing: Missing) -> io::Result<Self> {
        let folder = Folder(openat(CWD, ".", FOLDER, Mode::empty())?);
        let mut walk = Self { folder, rest: Vec::new(), links: 0, missing, made: MadeFolders::default() };
        walk.push(path);
        Ok(walk)
    }

    fn push(&mut self, path: &Path) {
        // `components` leaves them out, although only a folder has such a path.
        if [&b"/"[..], b"/."].iter().any(|end| path.as_os_str().as_bytes().ends_with(end)) {
            self.rest.push(".".into());
        }
        self.rest.extend(path.components().rev().map(|component| component.as_os_str().to_owned()));
    }

    /// Enters all folders but the last component, and returns its name.
    fn reach_last(&mut self) -> io::Result<OsString> {
        while let Some(name) = self.rest.pop() {
            if self.rest.is_empty() {
                return Ok(name);
            }
            self.enter(&name)?;
        }
        Err(Errno::NOENT.into())
    }

    fn into_folder(mut self) -> io::Result<Folder> {
        if self.rest.is_empty() {
            return Err(Errno::NOENT.into());
        }
        while let Some(name) = self.rest.pop() {
            self.enter(&name)?;
        }
        Ok(self.folder)
    }

    /// Opens the file, and returns its name if it is new.
    fn reach_file(&mut self) -> io::Result<(File, Option<OsString>)> {
        let mut is_linked = false;
        loop {
            let name = self.reach_last()?;
            match openat(&self.folder.0, &name, NEW_FILE, FILE_MODE) {
                Ok(file) => return Ok((file.into(), (!is_linked).then_some(name))),
                // A link to a file that does not exist yet is there already, too.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            match self.folder.open_old(&name) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                    if let Some(file) = self.follow(&name, OFlags::WRONLY | OFlags::NOCTTY)? {
                        return Ok((file.into(), None));
                    }
                    is_linked = true;
                }
                opened => return opened.map(|file| (file, None)),
            }
        }
    }

    /// Enters a folder, or follows a link in its place.
    fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        match openat(&self.folder.0, name, FOLDER, Mode::empty()) {
            Ok(folder) => self.folder = Folder(folder),
            Err(Errno::NOTDIR) => {
                if let Some(folder) = self.follow(name, OFlags::PATH | OFlags::DIRECTORY)? {
                    self.folder = Folder(folder);
                }
            }
            Err(Errno::NOENT) if self.makes_missing() => {
                let is_new = self.folder.make_missing_folder(name)?;
                let inner = self.folder.folder(name)?;
                let folder = mem::replace(&mut self.folder, inner);
                if is_new {
                    self.made.0.push(Made { folder, name: name.to_owned() });
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns whether a missing folder is made, if it is the next on the way.
    fn makes_missing(&self) -> bool {
        match self.missing {
            Missing::Fail => false,
            Missing::MakeLast => self.rest.iter().all(|name| name == "."),
            Missing::Make => true,
        }
    }

    /// Follows a link: its path remains. A link that names no path but an open file of a process (`/dev/stdout`) is opened.
    fn follow(&mut self, name: &OsStr, flags: OFlags) -> io::Result<Option<OwnedFd>> {
        let link = openat(&self.folder.0, name, ITSELF, Mode::empty())?;
        let found = fstat(&link)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Err(Errno::NOTDIR.into());
        }
        check_maker("link", name, found.st_uid)?;
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        // Nobody else can make links there.
        if fstatfs(&link)?.f_type == PROC_SUPER_MAGIC {
            return Ok(Some(openat(&self.folder.0, name, flags | OFlags::CLOEXEC, Mode::empty())?));
        }
        let target = OsString::from_vec(readlinkat(&link, "", Vec::new())?.into_bytes());
        self.push(Path::new(&target));
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};
    use std::path::PathBuf;
    use std::thread;

    use rustix::fs::mkfifoat;
    use swiftwater_tests::tools;

    use super::*;

    /// A user who is neither root nor that of the tests.
    const OTHER: u32 = 41_001;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("swiftwater-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a folder for temporary files");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn make_pipe(path: &Path) {
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).expect("a folder of our own");
    }

    fn write(path: &Path, content: &[u8]) -> io::Result<()> {
        open_file(path, Missing::Fail)?.file.write_all(content)
    }

    #[test]
    fn only_regular_files_are_read_and_at_once() {
        let scratch = Scratch::new("regular");
        make_pipe(&scratch.0.join("pipe"));
        symlink("/etc/passwd", scratch.0.join("link")).expect("a folder of our own");
        fs::write(scratch.0.join("file"), "text").expect("room");
        let folder = Folder::open(&scratch.0).expect("it is there");
        assert_eq!(folder.read("file", 4).expect("a file"), b"text");
        let all = |_: &str| true;
        assert_eq!(folder.files(all).expect("a folder"), ["file"]);
        assert_eq!(
            folder.names(|name| name != "." && name != "..").expect("a folder"),
            ["file", "link", "pipe"]
        );
        let devices = Folder::open(Path::new("/dev")).expect("every Linux has it");
        let errors = [(&folder, "pipe"), (&folder, "."), (&devices, "zero")]
            .map(|(folder, name)| folder.read(name, 4).expect_err(name).to_string());
        assert_eq!(errors, ["it is not a regular file"; 3]);
        assert_eq!(folder.read("link", 4).expect_err("it leads elsewhere").to_string(), "it is a link");
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let scratch = Scratch::new("sparse");
        let file = File::create(scratch.0.join("file")).expect("room");
        file.set_len(1 << 40).expect("a sparse file");
        let error = Folder::open(&scratch.0).and_then(|folder| folder.read("file", 5_000));
        let error = error.expect_err("it is too long");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is longer than 5,000 bytes");
    }

    #[test]
    fn names_stay_in_the_folder_that_was_opened() {
        let scratch = Scratch::new("stay");
        let [named, moved, victim] = ["named", "moved", "victim"].map(|name| scratch.0.join(name));
        fs::create_dir(&victim).expect("room");
        fs::write(victim.join("file"), "mine").expect("room");
        let folder = Folder::create(&named).expect("room");
        fs::rename(&named, &moved).expect("a folder of our own");
        symlink(&victim, &named).expect("a folder of our own");
        folder.replace("file", b"new").expect("room");
        assert_eq!(fs::read(moved.join("file")).expect("written"), b"new");
        folder.remove_file("file").expect("it was written");
        assert_eq!(fs::read(victim.join("file")).expect("it remains"), b"mine");
    }

    #[test]
    fn links_of_this_user_and_root_are_followed() {
        let scratch = Scratch::new("own-links");
        let [folder, linked] = ["folder", "linked"].map(|name| scratch.0.join(name));
        fs::create_dir(&folder).expect("room");
        symlink("./folder/", &linked).expect("a folder of our own");
        symlink("../linked/../folder/file", folder.join("again")).expect("a folder of our own");
        write(&linked.join("again"), b"new").expect("the links are ours");
        assert_eq!(fs::read(folder.join("file")).expect("written"), b"new");
        symlink("circle", scratch.0.join("circle")).expect("a folder of our own");
        let error = write(&scratch.0.join("circle/file"), b"new").expect_err("it leads nowhere");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP));
        for path in ["file/", "file/.", ".", "..", ""] {
            write(&folder.join(path), b"new").expect_err(path);
        }
        write(Path::new(""), b"new").expect_err("no path");
        write(Path::new("/proc/self/cwd/no such folder/file"), b"new").expect_err("there is none");
        let open = File::open(&folder).expect("a folder");
        let here = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
        write(&here.join("file"), b"old").expect("it is open");
        assert_eq!(fs::read(folder.join("file")).expect("written"), b"old");
    }

    #[test]
    fn a_pipe_of_this_user_is_waited_for() {
        let scratch = Scratch::new("pipe");
        let pipe = scratch.0.join("pipe");
        make_pipe(&pipe);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut opened = open_file(&pipe, Missing::Fail)?;
                let flags = fcntl_getfl(&opened.file)?;
                opened.file.write_all(b"new").map(|()| flags)
            });
            assert_eq!(fs::read(&pipe).expect("a pipe"), b"new");
            let flags = writer.join().expect("no panic").expect("it has a reader");
            assert!(!flags.contains(OFlags::NONBLOCK), "writes wait for room");
        });
    }

    #[test]
    fn links_and_pipes_of_another_user_are_refused_wherever_they_are_on_the_way() {
        if !geteuid().is_root() {
            return tools::skip("only root makes links of another user");
        }
        let scratch = Scratch::new("foreign-links");
        let [victim, link, own, pipe] = ["victim", "link", "own", "pipe"].map(|name| scratch.0.join(name));
        fs::create_dir(&victim).expect("room");
        fs::write(victim.join("file"), "mine").expect("room");
        symlink(&victim, &link).expect("a folder of our own");
        symlink(&link, &own).expect("a folder of our own");
        make_pipe(&pipe);
        for path in [&link, &pipe] {
            lchown(path, Some(OTHER), None).expect("root may");
        }
        for name in ["link/file", "link/new", "link/deep/new", "own/file", "own", "link/../victim/file"] {
            let error = open_file(&scratch.0.join(name), Missing::Make).map(|_| ()).expect_err(name);
            assert_eq!(error.to_string(), "link is a link that user 41001 has made", "{name}");
        }
        let error = Folder::create(&own).expect_err("it is not ours").to_string();
        assert_eq!(error, "link is a link that user 41001 has made");
        assert!(open_folder_of(&link.join("file")).is_err());
        assert_eq!(fs::read(victim.join("file")).expect("it remains"), b"mine");
        assert_eq!(fs::read_dir(&victim).expect("it remains").count(), 1, "nothing was made");
        let is_refused = || {
            let error = write(&pipe, b"new").expect_err("it is not ours").to_string();
            assert_eq!(error, "pipe is a pipe that user 41001 has made");
        };
        is_refused();
        let _reader = openat(CWD, &pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("a pipe");
        is_refused();
    }
}
