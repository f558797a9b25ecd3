//! Examination of a program's file: whether the shim can work in it.

use std::env;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use linking::{GAINS_RIGHTS, Ids, Linking, changes_ids};
use rustix::process::{getgid, getuid};

/// Extended attribute in which the system keeps the capabilities of a file.
const CAPABILITIES: &str = "security.capability";

/// Returns the reason for which the shim cannot work in the program of a file, if there is one. A malformed file has none.
pub(crate) fn trouble_with(program: &Path) -> Option<&'static str> {
    if changes_rights(program, &fs::metadata(program).ok()?) {
        return Some(GAINS_RIGHTS);
    }
    linking_of(program)?.trouble()
}

/// Returns whether a program fails to start where `LD_PRELOAD` names the shim.
pub(crate) fn fails_with_preload(program: &Path) -> bool {
    linking_of(program).is_some_and(Linking::fails_with_preload)
}

/// Returns whether a program is linked statically.
pub(crate) fn is_static(program: &Path) -> bool {
    linking_of(program) == Some(Linking::Static)
}

/// Returns whether a file is an ELF file, as programs and libraries are.
pub(crate) fn is_elf(file: &Path) -> bool {
    linking_of(file).is_some()
}

/// Returns whether a program is in a folder of the PATH.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns `None` if the file is no ELF file, such as a script, or cannot be read.
fn linking_of(program: &Path) -> Option<Linking> {
    let file = File::open(program).ok()?;
    Linking::of(&|offset, place| file.read_at(place, offset).unwrap_or(0))
}

/// Returns whether the system takes a program for one that gains rights: its user or group would change, or it has capabilities.
fn changes_rights(program: &Path, metadata: &Metadata) -> bool {
    let caller = Ids { user: getuid().as_raw(), group: getgid().as_raw() };
    let file = Ids { user: metadata.uid(), group: metadata.gid() };
    // The longest form of the attribute has 24 bytes (linux/capability.h).
    let mut room = [0_u8; 24];
    let has_capabilities = rustix::fs::getxattr(program, CAPABILITIES, &mut room).is_ok();
    has_capabilities || changes_ids(metadata.mode(), file, caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_in_the_folders_of_the_path() {
        assert!(is_installed("sh") && !is_installed("no-such-program"));
    }

    #[test]
    fn set_user_programs_are_named_unless_they_change_nothing() {
        use std::os::unix::fs::{PermissionsExt, chown};

        let file = std::env::temp_dir().join(format!("swiftwater-setuid-{}", std::process::id()));
        fs::write(&file, "#!/bin/sh\n").expect("a file");
        assert_eq!(trouble_with(&file), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).expect("our own file");
        assert_eq!(trouble_with(&file), None, "it is this user's");
        // Only root gives files away.
        if chown(&file, Some(getuid().as_raw() + 1), None).is_ok() {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).expect("root may");
            assert!(trouble_with(&file).expect("it has the bit").contains("set-user-id"));
        }
        fs::remove_file(&file).expect("our own file");
    }
}
