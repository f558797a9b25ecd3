//! Calls that execute programs. A program without the shim whose standard input, output or error is an SCTP descriptor must read
//! the content that peers send, not records: see [`form`].
//!
//! Only these three are converted. A program that inherits a socket under another number uses SCTP knowingly and needs the
//! shim; and records carry information beyond plain content that their other sharers need.
//!
//! No function here allocates, because these calls run between `vfork` and `exec`, too.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::naked_asm;
use std::ffi::CStr;
use std::io::Write;
use std::os::fd::RawFd;

use libc::{c_char, c_int};

use crate::plain::{self, Plain};
use crate::system::{Errno, Result};
use crate::target::{Environment, EnvironmentPointer};
use crate::{child, files, lock, next, recognition, table, target};

/// Longest path of a program.
pub(super) const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;

/// Numbers of standard input, output and error.
pub(super) const STANDARD: [RawFd; 3] = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];
/// Descriptors of this process that become standard input, output and error of a program.
pub(super) type Standard = [Option<RawFd>; STANDARD.len()];

/// Preparation for a program that is about to be executed.
#[derive(Default)]
pub(super) struct Prepared {
    /// Pairs whose content is plain.
    plain: Standard,
    /// This file, which we own, becomes the program's standard input.
    pub(super) rest: Option<RawFd>,
}

/// Prepares the execution of a program with these standard descriptors. One that would fail because of the shim gets an
/// environment without it, in `room`.
///
/// # Safety
///
/// `environment` is an [`EnvironmentPointer`].
pub(super) unsafe fn prepare(
    path: &CStr,
    environment: &mut EnvironmentPointer,
    room: &mut Environment,
    standard: Standard,
) -> Prepared {
    let pairs = standard.map(|fd| fd.filter(|fd| files::may_be_program_end(*fd)));
    let has_pair = pairs.iter().any(Option::is_some);
    // SAFETY: the caller guarantees it.
    let preloads = unsafe { target::preloads(*environment) };
    if !has_pair && !preloads {
        return Prepared::default();
    }
    let look = || {
        // SAFETY: the caller guarantees it.
        unsafe { target::open_unshimmed(path, *environment) }.map(|program| program.warn_and_close(path))
    };
    let found = match pairs.into_iter().flatten().next() {
        // A look at the program's file takes a descriptor.
        Some(fd) if !files::has_free_descriptors(fd) => child::with_room(fd, || Ok(look())).ok().flatten(),
        _ => look(),
    };
    let Some(program) = found else { return Prepared::default() };
    if preloads && program.fails_with_preload {
        // SAFETY: the caller guarantees it; one that names the shim is not null.
        match unsafe { room.without_shim(*environment) } {
            Some(without) => *environment = without,
            None => {
                target::say(path, "fails to start with the shim, and has too many variables to remove it")
            }
        }
    }
    if has_pair { make_plain(path, pairs) } else { Prepared::default() }
}

fn make_plain(path: &CStr, pairs: Standard) -> Prepared {
    let mut prepared = Prepared::default();
    // A child of `vfork` shares the thread's memory, but has another identifier.
    lock::forget_thread();
    for (number, pair) in pairs.into_iter().enumerate() {
        let is_input = STANDARD[number] == libc::STDIN_FILENO;
        let is_known = |fd| pairs[..number].iter().flatten().any(|before| files::are_same(*before, fd));
        let Some(fd) = pair.filter(|fd| !is_known(*fd)) else { continue };
        match to_plain(fd, is_input) {
            Ok(Plain::Pair) => prepared.plain[number] = Some(fd),
            Ok(Plain::Rest(file)) => prepared.rest = Some(file),
            Err(Errno(libc::EINVAL | libc::EOPNOTSUPP)) if is_input => {
                target::say(
                    path,
                    "cannot read from its standard input, an SCTP socket that is not connected",
                );
            }
            // The descriptor is not an SCTP socket, or the conversion is impossible.
            Err(_) => {}
        }
    }
    lock::forget_thread();
    prepared
}

/// Makes the content of a pair plain. Where this process has too few free descriptors, a child does it in its own table.
fn to_plain(fd: RawFd, is_input: bool) -> Result<Plain> {
    let convert = |is_input| plain::to_plain(fd, &recognition::attach(fd)?, is_input);
    if files::has_free_descriptors(fd) {
        return convert(is_input);
    }
    let converted = child::with_room(fd, || {
        lock::forget_thread();
        // A file with the rest would stay in the child.
        convert(false)
    });
    match converted {
        Err(Errno(libc::ESHUTDOWN)) if is_input => convert(true),
        converted => converted,
    }
}

impl Prepared {
    /// Undoes the preparation after the program was not executed.
    pub(super) fn undo(self) {
        lock::forget_thread();
        for fd in self.plain.into_iter().flatten() {
            if let Ok(descriptor) = recognition::attach(fd) {
                plain::back_to_records(fd, &descriptor);
            }
        }
        lock::forget_thread();
    }
}

/// Returns which of this process's standard descriptors a program inherits.
pub(super) fn inherited() -> Standard {
    STANDARD.map(|fd| (!files::closes_on_exec(fd)).then_some(fd))
}

/// Prepares for the program and calls `execute` with its environment, which returns only if it fails.
///
/// # Safety
///
/// `path` is NUL-terminated or null, and `environment` is an environment or null.
unsafe fn executing(
    path: *const c_char,
    mut environment: *const *const c_char,
    execute: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    let mut room = Environment::room();
    let prepared = match path.is_null() {
        // SAFETY: the caller guarantees it.
        false => unsafe { prepare(CStr::from_ptr(path), &mut environment, &mut room, inherited()) },
        true => Prepared::default(),
    };
    if let Some(file) = prepared.rest {
        files::replace(libc::STDIN_FILENO, file);
        table::forget(libc::STDIN_FILENO);
    }
    let failed = execute(environment);
    let errno = Errno::last();
    prepared.undo();
    errno.set();
    failed
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// # Safety
///
/// The caller meets the requirements of `execve(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { executing(path, environment, |environment| next::execve(path, arguments, environment)) }
}

/// # Safety
///
/// The caller meets the requirements of `execv(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { executing(path, environ, |environment| next::execve(path, arguments, environment)) }
}

/// # Safety
///
/// The caller meets the requirements of `execvp(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { execvpe(file, arguments, environ) }
}

/// # Safety
///
/// The caller meets the requirements of `execvpe(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let mut buffer = [0; PATH_BYTES_MAX];
    // SAFETY: the caller guarantees it.
    unsafe {
        let path = found(file, &mut buffer);
        executing(path, environment, |environment| next::execvpe(file, arguments, environment))
    }
}

/// # Safety
///
/// The caller meets the requirements of `fexecve(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fexecve(
    fd: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let mut buffer = [0; 32];
    files::path_of_descriptor(fd, &mut buffer);
    // SAFETY: the caller guarantees it.
    unsafe {
        executing(buffer.as_ptr(), environment, |environment| next::fexecve(fd, arguments, environment))
    }
}

/// # Safety
///
/// As `execveat(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    flags: c_int,
) -> c_int {
    let mut buffer = [0; PATH_BYTES_MAX];
    // SAFETY: as the caller says.
    unsafe {
        let whole = from_folder(folder, path, flags, &mut buffer);
        executing(whole, environment, |environment| {
            next::execveat(folder, path, arguments, environment, flags)
        })
    }
}

/// Returns the path by which this process finds the file that `execveat` executes; null if it has none.
///
/// # Safety
///
/// `path` ends with a zero byte, or is null.
unsafe fn from_folder(
    folder: RawFd,
    path: *const c_char,
    flags: c_int,
    buffer: &mut [c_char; PATH_BYTES_MAX],
) -> *const c_char {
    if path.is_null() {
        return path;
    }
    // SAFETY: as the caller says.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    let is_the_descriptor = name.is_empty() && flags & libc::AT_EMPTY_PATH != 0;
    if !is_the_descriptor && (name.is_empty() || name[0] == b'/' || folder == libc::AT_FDCWD) {
        return path;
    }
    let mut bytes = [0_u8; PATH_BYTES_MAX];
    let last = bytes.len() - 1;
    let mut rest = &mut bytes[..last];
    let written = write!(rest, "/proc/self/fd/{folder}{}", if is_the_descriptor { "" } else { "/" });
    if written.and_then(|()| rest.write_all(name)).is_err() {
        return std::ptr::null();
    }
    *buffer = bytes.map(|byte| byte.cast_signed() as c_char);
    buffer.as_ptr()
}

/// Defines functions of the C library that take the arguments of a program one by one, up to a null pointer, and call another
/// with their first argument and the list of the others. On the stack the list begins with the arguments that did not fit
/// the registers; right below them, each function stores the registers that hold the first arguments.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! listing {
    ($($name:ident calls $with:ident;)*) => {$(
        /// # Safety
        ///
        /// As `execl(3)`.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                // The address to return to lies between the registers' place and the rest.
                "pop r11",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push r11",
                "call {with}",
                "pop r11",
                "add rsp, 40",
                "push r11",
                "ret",
                with = sym $with,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "sub sp, sp, #80",
                "stp x29, x30, [sp]",
                "mov x29, sp",
                "stp x1, x2, [sp, #24]",
                "stp x3, x4, [sp, #40]",
                "stp x5, x6, [sp, #56]",
                "str x7, [sp, #72]",
                "add x1, sp, #24",
                "bl {with}",
                "ldp x29, x30, [sp]",
                "add sp, sp, #80",
                "ret",
                with = sym $with,
            );
        }
    )*};
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
listing! {
    execl calls execv;
    execlp calls execvp;
    execle calls execv_and_environment;
}

/// Executes a program with a list of arguments that the environment follows.
///
/// # Safety
///
/// As `execle(3)`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe extern "C-unwind" fn execv_and_environment(
    path: *const c_char,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller says: a null pointer ends the list, and the environment comes behind it.
    unsafe {
        let mut end = arguments;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, arguments, end.add(1).cast::<*const *const c_char>().read())
    }
}

/// Writes the path of a program as `execvp` would find it; returns null if there is none.
///
/// # Safety
///
/// `file` is NUL-terminated or null.
pub(super) unsafe fn found(file: *const c_char, buffer: &mut [c_char; PATH_BYTES_MAX]) -> *const c_char {
    if file.is_null() {
        return file;
    }
    // SAFETY: the caller guarantees it, and environment variables are NUL-terminated.
    let (name, folders) = unsafe {
        let folders = libc::getenv(c"PATH".as_ptr());
        let folders = if folders.is_null() { c"/bin:/usr/bin" } else { CStr::from_ptr(folders) };
        (CStr::from_ptr(file).to_bytes(), folders.to_bytes())
    };
    if name.contains(&b'/') || name.is_empty() {
        return file;
    }
    for folder in folders.split(|byte| *byte == b':') {
        let separator: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        let path = folder.iter().chain(separator).chain(name).chain(&[0]);
        if folder.len() + name.len() + 2 > buffer.len() {
            continue;
        }
        buffer.iter_mut().zip(path).for_each(|(to, byte)| *to = byte.cast_signed() as c_char);
        // SAFETY: the path is NUL-terminated.
        if files::may_execute(unsafe { CStr::from_ptr(buffer.as_ptr()) }) {
            return buffer.as_ptr();
        }
    }
    std::ptr::null()
}
