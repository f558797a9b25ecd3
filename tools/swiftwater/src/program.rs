//! Whether a program is one that the shim can help: what its file says.

use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind};

/// The section that the Go linker writes into every program.
const GO_SECTION: &[u8] = b".go.buildinfo";
/// Extended attribute in which the system keeps the capabilities of a file.
const CAPABILITIES: &str = "security.capability";

/// Why the shim cannot help the program in a file, if so. What makes no sense is not for us to judge.
pub(crate) fn trouble_with(program: &Path) -> Option<&'static str> {
    if changes_rights(program, &fs::metadata(program).ok()?) {
        return Some(
            "gains rights when it starts (set-user-id, set-group-id or file capabilities): the system preloads nothing into it, \
             and its SCTP is the kernel's",
        );
    }
    match Linking::of(&fs::read(program).ok()?)? {
        Linking::Static => {
            Some("is linked statically: nothing can be preloaded into it, and its SCTP is the kernel's")
        }
        Linking::Narrow => Some("is a program of 32 bits: the shim cannot be loaded into it"),
        Linking::Musl => {
            Some("is linked with musl: the shim is for the GNU C library and cannot be loaded into it")
        }
        Linking::Go => {
            Some("is written in Go, whose library makes system calls itself: its SCTP may be the kernel's")
        }
        Linking::Ordinary => None,
    }
}

/// Whether it is linked statically.
pub(crate) fn is_static(program: &Path) -> bool {
    fs::read(program).is_ok_and(|file| Linking::of(&file) == Some(Linking::Static))
}

fn changes_rights(program: &Path, metadata: &Metadata) -> bool {
    const SET_USER_OR_GROUP: u32 = 0o6000;
    // Their longest form has 24 bytes (linux/capability.h).
    let mut room = [0_u8; 24];
    let has_capabilities = rustix::fs::getxattr(program, CAPABILITIES, &mut room).is_ok();
    has_capabilities || metadata.permissions().mode() & SET_USER_OR_GROUP != 0
}

/// How a program comes to its libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linking {
    /// Through a dynamic linker that preloads our shim.
    Ordinary,
    Static,
    /// It is an ELF file of 32 bits.
    Narrow,
    Musl,
    /// Through a dynamic linker, and past them.
    Go,
}

impl Linking {
    /// `None`: it is no ELF file, such as a script.
    fn of(file: &[u8]) -> Option<Linking> {
        match FileKind::parse(file) {
            Ok(FileKind::Elf32) => Some(Linking::Narrow),
            Ok(FileKind::Elf64) => Some(Linking::of_elf(file).unwrap_or(Linking::Ordinary)),
            _ => None,
        }
    }

    fn of_elf(file: &[u8]) -> object::Result<Linking> {
        let header = FileHeader64::<Endianness>::parse(file)?;
        let endian = header.endian()?;
        let mut linker = None;
        for segment in header.program_headers(endian, file)? {
            linker = linker.or(segment.interpreter(endian, file)?);
        }
        let Some(linker) = linker else { return Ok(Linking::Static) };
        if linker.windows(b"ld-musl".len()).any(|part| part == b"ld-musl") {
            return Ok(Linking::Musl);
        }
        let sections = header.sections(endian, file)?;
        let is_go = sections.iter().any(|section| sections.section_name(endian, section) == Ok(GO_SECTION));
        Ok(if is_go { Linking::Go } else { Linking::Ordinary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small program like most.
    fn shell() -> Vec<u8> {
        fs::read("/bin/sh").expect("it can be read")
    }

    /// It with other bytes at all places that have these.
    fn changed(from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut file = shell();
        let places = file.windows(from.len()).enumerate().filter(|(_, part)| *part == from);
        for at in places.map(|(at, _)| at).collect::<Vec<_>>() {
            file[at..at + to.len()].copy_from_slice(to);
        }
        file
    }

    #[test]
    fn a_shell_is_ordinary_and_a_script_is_no_elf() {
        assert_eq!(Linking::of(&shell()), Some(Linking::Ordinary));
        assert_eq!(Linking::of(b"#!/bin/sh"), None);
        assert_eq!(
            Linking::of(&shell()[..40]),
            Some(Linking::Ordinary),
            "what is cut short is not for us to judge"
        );
    }

    #[test]
    fn programs_that_cannot_be_helped_are_known() {
        let mut fixed = shell();
        // No program headers.
        fixed[56..58].copy_from_slice(&[0, 0]);
        assert_eq!(Linking::of(&fixed), Some(Linking::Static));
        let mut narrow = shell();
        narrow[4] = 1;
        assert_eq!(Linking::of(&narrow), Some(Linking::Narrow));
        assert_eq!(Linking::of(&changed(b"ld-linux", b"ld-musl-")), Some(Linking::Musl));
        assert_eq!(Linking::of(&changed(b".note.gnu.build-id", b".go.buildinfo\0")), Some(Linking::Go));
    }

    #[test]
    fn set_user_programs_are_named() {
        let file = std::env::temp_dir().join(format!("swiftwater-setuid-{}", std::process::id()));
        fs::write(&file, "#!/bin/sh\n").expect("a file");
        assert_eq!(trouble_with(&file), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).expect("our own file");
        assert!(trouble_with(&file).expect("it has the bit").contains("set-user-id"));
        fs::remove_file(&file).expect("our own file");
    }
}
