//! A file of results: opened when a command begins, and written when there are results.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::folder::{Made, MadeFolders, Missing, Opened, open_file};

/// A file that keeps its content until the first write, so that a command that fails does not affect it. It is opened at the
/// start, so that a long command fails early if the file cannot be written. A new file is removed again until then, so that a
/// command that is killed leaves none without results.
#[derive(Debug)]
pub(crate) struct ResultFile {
    path: PathBuf,
    /// The file; `None` if it is new and has no results yet.
    file: Option<File>,
    /// Whether results are in the file.
    begun: bool,
    /// Whether a write has failed, so that the file is not whole.
    failed: bool,
    /// Whether the beginning of the results is kept if the rest cannot be written.
    keeps_beginning: bool,
    /// The file, if this command has made it.
    new: Option<Made>,
    /// Folders that this command has made for the file.
    new_folders: MadeFolders,
}

impl ResultFile {
    /// Opens a file in a folder that exists.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::open_in(path, Missing::Fail)
    }

    /// Opens a file, and makes the folders that it needs.
    pub(crate) fn open_with_folders(path: &Path) -> io::Result<Self> {
        Self::open_in(path, Missing::Make)
    }

    /// Opens a file for results that are of use without their end. Works as [`ResultFile::open`], but keeps the beginning of the
    /// file after a failed write.
    pub(crate) fn open_for_records(path: &Path) -> io::Result<Self> {
        let mut file = Self::open(path)?;
        file.keeps_beginning = true;
        Ok(file)
    }

    fn open_in(path: &Path, missing: Missing) -> io::Result<Self> {
        let Opened { file, new, new_folders } = open_file(path, missing)?;
        let is_removed = new.as_ref().is_some_and(|new| new.remove_file().is_ok());
        let file = (!is_removed).then_some(file);
        Ok(Self {
            path: path.to_owned(),
            file,
            begun: false,
            failed: false,
            keeps_beginning: false,
            new,
            new_folders,
        })
    }

    /// Returns where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file, or empties it for results, once. Does nothing to devices and pipes.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.begun().map(drop)
    }

    /// Begins the file and returns it.
    fn begun(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            // The path may lead elsewhere by now, or nowhere: in a user namespace, links that root has made seem to be of another
            // user.
            None => self.new.as_ref().ok_or(io::ErrorKind::NotFound)?.make_file()?,
        };
        let file = self.file.insert(file);
        if !self.begun && file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        self.begun = true;
        Ok(file)
    }
}

impl Write for ResultFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.begun().and_then(|file| file.write(bytes));
        self.failed |= written.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

impl Drop for ResultFile {
    /// Removes a file that this command has made and that is empty or not whole, as on a full disk, and its folders. Empties a
    /// file from before that is not whole: nobody takes that for results.
    fn drop(&mut self) {
        let Some(file) = &self.file else { return self.new_folders.remove_empty() };
        let is_cut = self.failed && !self.keeps_beginning;
        let length = file.metadata().ok().filter(|found| found.is_file()).map(|found| found.len());
        match &self.new {
            Some(new) if (is_cut || length == Some(0)) && new.remove_file().is_ok() => {
                self.new_folders.remove_empty();
            }
            None if is_cut && self.begun && length.is_some() => drop(file.set_len(0)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use rustix::process::geteuid;
    use swiftwater_tests::tools;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("swiftwater-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder");
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_keeps_its_content_until_there_are_results() {
        let folder = Folder::new("keep");
        let path = folder.0.join("rows.json");
        fs::write(&path, "of before, and long").expect("room");
        drop(ResultFile::open(&path).expect("it can be written"));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "of before, and long");
        let mut file = ResultFile::open(&path).expect("it can be written");
        file.write_all(b"new").expect("room");
        file.write_all(b", twice").expect("room");
        drop(file);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "new, twice");
    }

    #[test]
    fn nothing_is_left_of_a_file_without_results() {
        let folder = Folder::new("nothing");
        let (new, path) = (folder.0.join("new"), folder.0.join("new/deep/rows.json"));
        let unwritten = ResultFile::open_with_folders(&path).expect("a new file");
        assert!(new.exists() && !path.exists(), "this process may be killed now");
        drop(unwritten);
        assert!(!new.exists() && folder.0.exists());
        ResultFile::open_with_folders(&path).expect("a new file").write_all(b"[]").expect("room");
        assert!(path.exists());
        let mut full = ResultFile::open(&folder.0.join("full")).expect("a new file");
        full.begin().expect("a file");
        drop(full);
        assert!(!folder.0.join("full").exists(), "nothing was written");
        fs::write(folder.0.join("plain"), "").expect("room");
        assert!(ResultFile::open_with_folders(&folder.0.join("plain/rows.json")).is_err());
        assert!(ResultFile::open_with_folders(&folder.0.join("fresh").join("..")).is_err());
        assert!(!folder.0.join("fresh").exists(), "no folder for a file that cannot be made");
    }

    #[test]
    fn a_file_that_is_not_whole_is_removed_or_emptied() {
        let folder = Folder::new("cut-off");
        let (new, old) = (folder.0.join("deep/new.json"), folder.0.join("old.json"));
        fs::write(&old, "of before").expect("room");
        for path in [&new, &old] {
            let mut file = ResultFile::open_with_folders(path).expect("it can be written");
            file.write_all(b"[1,").expect("room");
            // The kernel refuses to write to a file that is open for reading, as it would on a full disk.
            file.file = Some(File::open(path).expect("it is there"));
            file.write_all(b" 2]").expect_err("it is open for reading");
            file.file = Some(File::options().write(true).open(path).expect("it is there"));
        }
        assert!(!folder.0.join("deep").exists(), "neither the file nor its folder");
        assert_eq!(fs::read_to_string(&old).expect("it was there before"), "");
    }

    #[test]
    fn results_are_in_the_folder_that_was_opened_and_in_a_file_of_this_command() {
        let folder = Folder::new("replaced");
        let [named, moved, other] = ["named", "moved", "other"].map(|name| folder.0.join(name));
        for path in [&named, &other] {
            fs::create_dir(path).expect("room");
        }
        let mut file = ResultFile::open(&named.join("rows.json")).expect("a new file");
        fs::rename(&named, &moved).expect("a folder of our own");
        symlink(&other, &named).expect("a folder of our own");
        file.write_all(b"[]").expect("room");
        assert_eq!(fs::read_to_string(moved.join("rows.json")).expect("written"), "[]");
        assert!(!other.join("rows.json").exists());
        let path = moved.join("more.json");
        let mut file = ResultFile::open(&path).expect("a new file");
        symlink(other.join("theirs"), &path).expect("a folder of our own");
        let error = file.write_all(b"[]").expect_err("there is a link");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        drop(file);
        assert!(path.is_symlink() && !other.join("theirs").exists(), "the link is not of this command");
    }

    #[test]
    fn a_device_is_written_as_it_is() {
        ResultFile::open(Path::new("/dev/null")).expect("every Linux has it").write_all(b"[]").expect("room");
    }

    fn write(path: &Path, content: &[u8]) -> io::Result<()> {
        ResultFile::open(path)?.write_all(content)
    }

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("swiftwater-linked-files-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for temporary files");
        let [victim, own, other, chain] = ["victim", "own", "other", "chain"].map(|name| folder.join(name));
        fs::write(&victim, "mine, and long").expect("room");
        symlink("victim", &own).expect("a folder of our own");
        write(&own, b"new").expect("the link is ours");
        assert_eq!(fs::read(&victim).expect("a file"), b"new");
        write(Path::new("/dev/null"), b"new").expect("every Linux has it");
        symlink("/proc/self/fd/2", &chain).expect("a folder of our own");
        write(&chain, b"").expect("standard error is open");
        if !geteuid().is_root() {
            fs::remove_dir_all(&folder).expect("it was made");
            return tools::skip("only root makes links of another user");
        }
        symlink(&victim, &other).expect("a folder of our own");
        lchown(&other, Some(41_001), None).expect("root may");
        fs::remove_file(&chain).expect("it was made");
        symlink(&other, &chain).expect("a folder of our own");
        for path in [&other, &chain] {
            let error = write(path, b"theirs").expect_err("it is not ours");
            assert_eq!(error.to_string(), "other is a link that user 41001 has made");
        }
        fs::remove_file(&victim).expect("it was made");
        assert!(write(&other, b"").is_err() && !victim.exists(), "nor is a file made");
        assert_eq!(fs::read_link(&other).expect("it stays"), victim);
        fs::remove_dir_all(&folder).expect("it was made");
    }
}
