//! The system call of extended BPF.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use crate::ebpf::Instruction;
use crate::syscalls::set_option;

// Commands and kinds (include/uapi/linux/bpf.h).
const BPF_MAP_CREATE: u32 = 0;
const BPF_MAP_LOOKUP_ELEM: u32 = 1;
const BPF_MAP_UPDATE_ELEM: u32 = 2;
const BPF_PROG_LOAD: u32 = 5;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// The helpers that programs of this crate call are not restricted to a licence.
const LICENCE: &std::ffi::CStr = c"MIT";

// Beginnings of `union bpf_attr`; the kernel takes the rest as zero.

#[repr(C)]
struct MapCreation {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
}

#[repr(C)]
struct MapElement {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl MapElement {
    fn new(table: BorrowedFd<'_>, key: &u32, value: usize) -> Self {
        let key = (&raw const *key).expose_provenance() as u64;
        MapElement { map: table.as_raw_fd() as u32, _padding: 0, key, value: value as u64, flags: 0 }
    }
}

#[repr(C)]
struct ProgramLoading {
    kind: u32,
    instructions_count: u32,
    instructions: u64,
    licence: u64,
}

/// A table of this many words, which programs read and write: an array with one element.
#[derive(Debug)]
pub(crate) struct Table<const WORDS: usize>(OwnedFd);

impl<const WORDS: usize> Table<WORDS> {
    /// Creates a table of zeros.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_BPF` (before Linux 5.8 `CAP_SYS_ADMIN`); `ENOMEM`.
    pub(crate) fn create() -> Result<Self, Errno> {
        let (key_bytes, value_bytes) = (size_of::<u32>() as u32, size_of::<[u64; WORDS]>() as u32);
        let creation = MapCreation { kind: BPF_MAP_TYPE_ARRAY, key_bytes, value_bytes, entries_max: 1 };
        // SAFETY: the attributes hold no address.
        let fd = unsafe { bpf(BPF_MAP_CREATE, &creation) }?;
        // SAFETY: the kernel has just created this descriptor, which nobody else knows.
        Ok(Table(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the place of a word for a program.
    pub(crate) fn word(&self, index: usize) -> (BorrowedFd<'_>, usize) {
        (self.0.as_fd(), index)
    }

    pub(crate) fn read(&self) -> Result<[u64; WORDS], Errno> {
        let (key, mut words) = (0_u32, [0; WORDS]);
        let element = MapElement::new(self.0.as_fd(), &key, words.as_mut_ptr().expose_provenance());
        // SAFETY: the addresses are of a key and of as many words as the table has, which live through the call.
        unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &element) }?;
        Ok(words)
    }

    pub(crate) fn write(&self, words: &[u64; WORDS]) -> Result<(), Errno> {
        let key = 0_u32;
        let element = MapElement::new(self.0.as_fd(), &key, words.as_ptr().expose_provenance());
        // SAFETY: as above; the kernel only reads them.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &element) }.map(drop)
    }
}

/// Loads a socket filter.
///
/// # Errors
///
/// As [`Table::create`]; `EACCES` or `EINVAL` for a program that the kernel refuses.
pub(crate) fn load_filter(program: &[Instruction]) -> Result<OwnedFd, Errno> {
    let loading = ProgramLoading {
        kind: BPF_PROG_TYPE_SOCKET_FILTER,
        instructions_count: program.len() as u32,
        instructions: program.as_ptr().expose_provenance() as u64,
        licence: LICENCE.as_ptr().expose_provenance() as u64,
    };
    // SAFETY: the addresses are of as many instructions and of a string, which the kernel copies during the call.
    let fd = unsafe { bpf(BPF_PROG_LOAD, &loading) }?;
    // SAFETY: the kernel has just created this descriptor, which nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the socket receive only the packets that the filter accepts (`SO_ATTACH_BPF`). It replaces another filter.
pub(crate) fn attach_loaded_filter(fd: BorrowedFd<'_>, filter: BorrowedFd<'_>) -> Result<(), Errno> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, filter.as_raw_fd())
}

/// Makes the system call.
///
/// # Safety
///
/// `attributes` must be those of the command, without padding, and the addresses in them of what it reads and writes.
unsafe fn bpf<A>(command: u32, attributes: &A) -> Result<i32, Errno> {
    let attributes: *const A = attributes;
    // SAFETY: the address is of the attributes, with their size behind it; the caller has checked those in them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<A>()) };
    Errno::result(result).map(|result| result as i32)
}
