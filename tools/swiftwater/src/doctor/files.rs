//! Files of the system that describe it.

use std::fs;
use std::path::{Path, PathBuf};

/// A file system with its root: the host's, or one that a test has made.
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn of_this_host() -> Self {
        Files("/".into())
    }

    /// Returns the path of a file, whose name comes without the leading slash.
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(super) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    /// Reads a file with a single number, such as those under `/proc/sys`.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.read(name)?.trim().parse().ok()
    }

    /// Returns each line of the configuration files in a folder, with the file's path.
    pub(super) fn lines_under(&self, folder: &str) -> Vec<(PathBuf, String)> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        entries.flat_map(|entry| self.lines_of(&entry.path())).collect()
    }

    fn lines_of(&self, file: &Path) -> Vec<(PathBuf, String)> {
        let name = Path::new("/").join(file.strip_prefix(&self.0).unwrap_or(file));
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().map(|line| (name.clone(), line.trim().to_owned())).collect()
    }

    /// Makes files with these contents, under a folder of their own.
    #[cfg(test)]
    pub(super) fn with(name: &str, contents: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("swiftwater-doctor-{name}-{}", std::process::id()));
        // An earlier run may have left the folder.
        let _ = fs::remove_dir_all(&root);
        for (file, text) in contents {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder of our own");
            fs::write(path, text).expect("a file of our own");
        }
        Files(root)
    }
}

#[cfg(test)]
impl Drop for Files {
    fn drop(&mut self) {
        if self.0 != Path::new("/") {
            // The folder is a temporary one, so a failure is harmless.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
