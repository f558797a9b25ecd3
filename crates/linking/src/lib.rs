//! Finds out from a program's file how it gets its libraries: whether a library can be preloaded into it.
//!
//! This crate allocates nothing and makes no system calls, since the shim uses it between `fork` and `exec`. The caller reads the
//! file.
#![forbid(unsafe_code)]

/// Description of a program into which the system preloads nothing.
pub const GAINS_RIGHTS: &str = "gains rights when it starts (set-user-id, set-group-id or file capabilities): the system preloads \
                                nothing into it, and its SCTP is the kernel's";

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The number of the user.
    pub user: u32,
    /// The number of the group.
    pub group: u32,
}

/// Returns whether a program whose file has this mode and these owners changes the user or the group of the caller. Only then
/// does the system preload nothing into it; a file of the caller's own changes nothing.
///
/// ```
/// use linking::{Ids, changes_ids};
///
/// let (root, caller) = (Ids { user: 0, group: 0 }, Ids { user: 1000, group: 1000 });
/// assert!(changes_ids(0o4755, root, caller));
/// assert!(!changes_ids(0o4755, caller, caller));
/// assert!(changes_ids(0o2755, Ids { group: 0, ..caller }, caller));
/// assert!(!changes_ids(0o0755, root, caller));
/// ```
#[must_use]
pub fn changes_ids(mode: u32, file: Ids, caller: Ids) -> bool {
    const SET_USER: u32 = 0o4000;
    // Without the right of the group to execute, the bit has another meaning.
    const SET_GROUP: u32 = 0o2010;
    let has = |bits| mode & bits == bits;
    (has(SET_USER) && file.user != caller.user) || (has(SET_GROUP) && file.group != caller.group)
}

/// The longest path of a dynamic linker or an interpreter that is examined.
pub const PATH_BYTES_MAX: usize = 256;
/// Beginning of an ELF file.
const MAGIC: &[u8; 4] = b"\x7fELF";
const HEADER_BYTES: usize = 64;
/// Number of bytes of a program header, and of a section header, that are examined.
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: usize = 64;
/// A program header that names the dynamic linker (`PT_INTERP`).
const INTERPRETER: u32 = 3;
/// The section that the Go linker writes into every program.
const GO_SECTION: &[u8] = b".go.buildinfo\0";
/// Number of bytes of a file that are searched at once.
const SEARCH_BYTES: usize = 8192;

/// The way in which a program gets its libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// Through a dynamic linker that preloads libraries on request; also stands for a malformed file, which is not judged.
    Ordinary,
    /// The program loads no libraries.
    Static,
    /// An ELF file of 32 bits, into which a 64-bit library cannot be loaded.
    Narrow,
    /// Through the dynamic linker of musl.
    Musl,
    /// Through a dynamic linker; but its own code makes system calls past them.
    Go,
}

/// Reads a file: copies bytes from an offset and returns their number.
pub type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> usize;

impl Linking {
    /// Examines a file; returns `None` if it is no ELF file, such as a script.
    ///
    /// ```
    /// use linking::Linking;
    ///
    /// assert_eq!(Linking::of(&|_, _| 0), None, "an empty file");
    /// ```
    pub fn of(file: Read<'_>) -> Option<Linking> {
        const WIDE: u8 = 2;
        let start: [u8; 5] = read(file, 0)?;
        match start[4] {
            _ if !start.starts_with(MAGIC) => None,
            WIDE => Some(Linking::of_elf(file).unwrap_or(Linking::Ordinary)),
            _ => Some(Linking::Narrow),
        }
    }

    /// Returns `None` if the file is malformed.
    fn of_elf(file: Read<'_>) -> Option<Linking> {
        let header: [u8; HEADER_BYTES] = read(file, 0)?;
        let (table, entry_bytes, entries) =
            (u64_at(&header, 32)?, u16_at(&header, 54)?, u16_at(&header, 56)?);
        for entry in 0..u64::from(entries) {
            let entry: [u8; PROGRAM_HEADER_BYTES] = read(file, at(table, entry, entry_bytes)?)?;
            if u32_at(&entry, 0)? == INTERPRETER {
                let mut path = [0; PATH_BYTES_MAX];
                let bytes = usize::try_from(u64_at(&entry, 32)?).ok()?.min(path.len());
                let bytes = file(u64_at(&entry, 8)?, &mut path[..bytes]);
                let is_musl = path[..bytes].windows(7).any(|part| part == b"ld-musl");
                return Some(match is_musl {
                    true => Linking::Musl,
                    false if has_go_section(file, &header) == Some(true) => Linking::Go,
                    false => Linking::Ordinary,
                });
            }
        }
        Some(Linking::Static)
    }

    /// Returns the reason for which the shim cannot work in the program; `None` if it can.
    pub fn trouble(self) -> Option<&'static str> {
        match self {
            Linking::Ordinary => None,
            Linking::Static => {
                Some("is linked statically: nothing can be preloaded into it, and its SCTP is the kernel's")
            }
            Linking::Narrow => Some("is a program of 32 bits: the shim cannot be loaded into it"),
            Linking::Musl => {
                Some("is linked with musl: the shim is for the GNU C library and cannot be loaded into it")
            }
            Linking::Go => Some(
                "is written in Go, whose library makes system calls itself: its SCTP may be the kernel's",
            ),
        }
    }

    /// Returns whether a program fails to start where its dynamic linker is told to preload a library for the GNU C library.
    /// Others ignore a library that they cannot load.
    #[must_use]
    pub fn fails_with_preload(self) -> bool {
        self == Linking::Musl
    }
}

/// Returns `None` if the file is malformed.
fn has_go_section(file: Read<'_>, header: &[u8; HEADER_BYTES]) -> Option<bool> {
    let (table, entry_bytes, entries) = (u64_at(header, 40)?, u16_at(header, 58)?, u16_at(header, 60)?);
    let section = |number: u16| -> Option<[u8; SECTION_HEADER_BYTES]> {
        read(file, at(table, number.into(), entry_bytes)?)
    };
    let names = u64_at(&section(u16_at(header, 62)?)?, 24)?;
    for number in 0..entries {
        let name = u32_at(&section(number)?, 0)?;
        let name: Option<[u8; GO_SECTION.len()]> = read(file, names.checked_add(name.into())?);
        if name.is_some_and(|name| name == GO_SECTION) {
            return Some(true);
        }
    }
    Some(false)
}

/// Returns the interpreter that the first line of a script names.
///
/// ```
/// assert_eq!(linking::interpreter(b"#! /bin/sh -e\necho\n"), Some(&b"/bin/sh"[..]));
/// assert_eq!(linking::interpreter(b"echo\n"), None);
/// ```
pub fn interpreter(start: &[u8]) -> Option<&[u8]> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    line.split(|byte| matches!(byte, b' ' | b'\t' | 0)).find(|word| !word.is_empty())
}

/// Returns whether a program contains the name SCTP, in capitals or not, as a program does that has an option, an error message
/// or a package for it.
pub fn names_sctp(file: Read<'_>) -> bool {
    const NAME: &[u8] = b"sctp";
    let mut place = [0; SEARCH_BYTES];
    let mut offset = 0;
    loop {
        let bytes = file(offset, &mut place);
        if place[..bytes].windows(NAME.len()).any(|part| part.eq_ignore_ascii_case(NAME)) {
            return true;
        }
        if bytes < place.len() {
            return false;
        }
        // The name may begin in one part and end in the next.
        offset += (bytes - NAME.len() + 1) as u64;
    }
}

fn read<const N: usize>(file: Read<'_>, offset: u64) -> Option<[u8; N]> {
    let mut place = [0; N];
    (file(offset, &mut place) == N).then_some(place)
}

fn at(table: u64, entry: u64, entry_bytes: u16) -> Option<u64> {
    table.checked_add(entry * u64::from(entry_bytes))
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a small program like most.
    fn shell() -> Vec<u8> {
        std::fs::read("/bin/sh").expect("it can be read")
    }

    /// Returns that program with these bytes changed.
    fn changed(from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut file = shell();
        let places = file.windows(from.len()).enumerate().filter(|(_, part)| *part == from);
        for at in places.map(|(at, _)| at).collect::<Vec<_>>() {
            file[at..at + to.len()].copy_from_slice(to);
        }
        file
    }

    fn read_from(file: &[u8]) -> impl Fn(u64, &mut [u8]) -> usize + '_ {
        |offset, place| {
            let rest = usize::try_from(offset).ok().and_then(|offset| file.get(offset..)).unwrap_or(&[]);
            let bytes = rest.len().min(place.len());
            place[..bytes].copy_from_slice(&rest[..bytes]);
            bytes
        }
    }

    fn linking(file: &[u8]) -> Option<Linking> {
        Linking::of(&read_from(file))
    }

    #[test]
    fn a_shell_is_ordinary_and_a_script_is_no_elf() {
        assert_eq!(linking(&shell()), Some(Linking::Ordinary));
        assert_eq!(linking(b"#!/bin/sh"), None);
        let cut = linking(&shell()[..40]);
        assert_eq!(cut, Some(Linking::Ordinary), "what is cut short is not judged");
    }

    #[test]
    fn programs_that_cannot_be_helped_are_known() {
        let mut fixed = shell();
        // A file without program headers.
        fixed[56..58].copy_from_slice(&[0, 0]);
        assert_eq!(linking(&fixed), Some(Linking::Static));
        let mut narrow = shell();
        narrow[4] = 1;
        assert_eq!(linking(&narrow), Some(Linking::Narrow));
        assert_eq!(linking(&changed(b"ld-linux", b"ld-musl-")), Some(Linking::Musl));
        assert_eq!(linking(&changed(b".note.gnu.build-id", b".go.buildinfo\0")), Some(Linking::Go));
    }

    /// The file may contain any numbers.
    #[test]
    fn no_number_in_a_header_makes_it_fail() {
        let shell = shell();
        for at in 5..HEADER_BYTES {
            let mut file = shell.clone();
            file[at..(at + 8).min(HEADER_BYTES)].fill(0xff);
            assert!(linking(&file).is_some(), "{at}");
        }
    }

    #[test]
    fn a_name_is_found_wherever_it_stands() {
        for before in [0, 1, SEARCH_BYTES - 2, SEARCH_BYTES - 1, 2 * SEARCH_BYTES] {
            let mut file = vec![b'.'; before];
            file.extend(b"SCtp");
            assert!(names_sctp(&read_from(&file)), "{before}");
            file.pop();
            assert!(!names_sctp(&read_from(&file)), "{before}");
        }
    }
}
