//! Files of the system that describe it.

use std::fs;
use std::path::{Path, PathBuf};

/// A file system, from its root: the host's, or one that a test has made.
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn of_this_host() -> Self {
        Files("/".into())
    }

    /// The path of a file whose name is told without the leading slash.
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(super) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    /// A number that stands alone in a file, as those under `/proc/sys` do.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.read(name)?.trim().parse().ok()
    }

    /// Each line of the configuration files in a folder, and the file that it stands in.
    pub(super) fn lines_under(&self, folder: &str) -> Vec<(PathBuf, String)> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        entries.flat_map(|entry| self.lines_of(&entry.path())).collect()
    }

    fn lines_of(&self, file: &Path) -> Vec<(PathBuf, String)> {
        let name = Path::new("/").join(file.strip_prefix(&self.0).unwrap_or(file));
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().map(|line| (name.clone(), line.trim().to_owned())).collect()
    }

    /// Files with these contents, under a folder of their own.
    #[cfg(test)]
    pub(super) fn with(name: &str, contents: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("swiftwater-doctor-{name}-{}", std::process::id()));
        // One that an earlier run has left.
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
            // It lies among the temporary files.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
