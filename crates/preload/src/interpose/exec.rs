//! Programs that are executed. One that does not get the shim, and whose standard input is a socket of ours, is to read what peers
//! send, and not records: see [`form`].
//!
//! Only standard input is looked at. A program that is given a socket under another number knows that it is SCTP, and cannot do
//! without the shim; and records that lie there have what plain content has not, which their other sharers need.
//!
//! All this is done without an allocation, because it is done between `vfork` and `exec`, too.

use std::ffi::CStr;
use std::os::fd::RawFd;

use libc::{c_char, c_int, c_void, pid_t};

use crate::form::{self, Plain};
use crate::system::{self, Errno};
use crate::{files, lock, next, setup, table, target};

/// The longest path of a program.
const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;

/// What was done for a program that is about to be executed.
enum Prepared {
    /// Nothing, or nothing that must be undone.
    Nothing,
    /// A carrier is plain.
    Plain(RawFd),
    /// The program is to have this file as its standard input. It is ours to close.
    Rest(RawFd),
}

/// Prepares for a program whose standard input will be `stdin`.
///
/// # Safety
///
/// `environment` is one, or null.
unsafe fn prepare(path: &CStr, environment: *const *const c_char, stdin: RawFd) -> Prepared {
    let may_read = files::may_be_carrier(stdin);
    // SAFETY: as the caller says.
    if !may_read && !unsafe { target::preloads(environment) } {
        return Prepared::Nothing;
    }
    // SAFETY: as the caller says.
    let Some(stranger) = (unsafe { target::stranger(path, environment) }) else { return Prepared::Nothing };
    stranger.warn_of(path);
    if may_read { make_plain(path, stdin) } else { Prepared::Nothing }
}

fn make_plain(path: &CStr, stdin: RawFd) -> Prepared {
    // A child of `vfork` has the thread's memory, but another identifier.
    lock::forget_thread();
    let plain = setup::attach(stdin).and_then(|descriptor| form::to_plain(stdin, &descriptor));
    lock::forget_thread();
    match plain {
        Ok(Plain::Carrier) => Prepared::Plain(stdin),
        Ok(Plain::Rest(file)) => Prepared::Rest(file),
        Err(Errno(libc::EINVAL | libc::EOPNOTSUPP)) => {
            target::say(path, "cannot read from its standard input, an SCTP socket that is not connected");
            Prepared::Nothing
        }
        // It is none of ours, or nobody can do anything.
        Err(_) => Prepared::Nothing,
    }
}

impl Prepared {
    /// The program is not executed after all.
    fn undo(self) {
        if let Prepared::Plain(fd) = self {
            lock::forget_thread();
            if let Ok(descriptor) = setup::attach(fd) {
                form::back_to_records(fd, &descriptor);
            }
            lock::forget_thread();
        }
    }
}

/// Calls `execute`, which returns only if it fails.
///
/// # Safety
///
/// `path` ends with a zero byte or is null, and `environment` is one, or null.
unsafe fn executing(
    path: *const c_char,
    environment: *const *const c_char,
    execute: impl FnOnce() -> c_int,
) -> c_int {
    let is_inherited = !path.is_null() && !files::closes_on_exec(libc::STDIN_FILENO);
    let prepared = match is_inherited {
        // SAFETY: as the caller says.
        true => unsafe { prepare(CStr::from_ptr(path), environment, libc::STDIN_FILENO) },
        false => Prepared::Nothing,
    };
    if let Prepared::Rest(file) = prepared {
        files::replace(libc::STDIN_FILENO, file);
        table::forget(libc::STDIN_FILENO);
    }
    let failed = execute();
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
/// As `execve(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { executing(path, environment, || next::execve(path, arguments, environment)) }
}

/// # Safety
///
/// As `execv(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: as the caller says.
    unsafe { executing(path, environ, || next::execv(path, arguments)) }
}

/// # Safety
///
/// As `execvp(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    let mut place = [0; PATH_BYTES_MAX];
    // SAFETY: as the caller says.
    unsafe {
        let path = found(file, &mut place);
        executing(path, environ, || next::execvp(file, arguments))
    }
}

/// # Safety
///
/// As `execvpe(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let mut place = [0; PATH_BYTES_MAX];
    // SAFETY: as the caller says.
    unsafe {
        let path = found(file, &mut place);
        executing(path, environment, || next::execvpe(file, arguments, environment))
    }
}

/// # Safety
///
/// As `fexecve(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fexecve(
    fd: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let mut place = [0; 32];
    files::path_of_descriptor(fd, &mut place);
    // SAFETY: as the caller says.
    unsafe { executing(place.as_ptr(), environment, || next::fexecve(fd, arguments, environment)) }
}

/// The path of a program as `execvp` finds it; null if it does not.
///
/// # Safety
///
/// `file` ends with a zero byte, or is null.
unsafe fn found(file: *const c_char, place: &mut [c_char; PATH_BYTES_MAX]) -> *const c_char {
    if file.is_null() {
        return file;
    }
    // SAFETY: as the caller says, and variables end with a zero byte.
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
        if folder.len() + name.len() + 2 > place.len() {
            continue;
        }
        place.iter_mut().zip(path).for_each(|(place, byte)| *place = byte.cast_signed() as c_char);
        // SAFETY: it ends with a zero byte.
        if files::may_execute(unsafe { CStr::from_ptr(place.as_ptr()) }) {
            return place.as_ptr();
        }
    }
    std::ptr::null()
}

/// `posix_spawn_file_actions_t` of the GNU C library, whose layout has been the same since 2.2.
#[repr(C)]
#[derive(Clone, Copy)]
struct FileActions {
    allocated: c_int,
    used: c_int,
    actions: *mut Action,
    padding: [c_int; 16],
}

/// What is done to a descriptor in the child, as the C library keeps it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    what: c_int,
    padding: c_int,
    fd: c_int,
    /// Of `dup2` the other descriptor.
    to: c_int,
    /// Of others a path and more.
    rest: [*mut c_void; 2],
}

impl Action {
    fn dup2(fd: RawFd, to: RawFd) -> Action {
        Action { what: DUP2, padding: 0, fd, to, rest: [std::ptr::null_mut(); 2] }
    }
}

const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
/// Most actions with which a file is given to the child as one more.
const ACTIONS_MAX: usize = 32;

impl FileActions {
    /// # Safety
    ///
    /// They are what the C library has made.
    unsafe fn list(&self) -> &[Action] {
        match self.used {
            1.. if !self.actions.is_null() => {
                // SAFETY: as the caller says.
                unsafe { std::slice::from_raw_parts(self.actions, self.used as usize) }
            }
            _ => &[],
        }
    }

    /// Returns which descriptor of this process becomes the standard input of the child, if one does.
    ///
    /// # Safety
    ///
    /// As of [`FileActions::list`].
    unsafe fn standard_input(&self) -> Option<RawFd> {
        let own = (!files::closes_on_exec(libc::STDIN_FILENO)).then_some(libc::STDIN_FILENO);
        // SAFETY: as the caller says.
        let list = unsafe { self.list() }.iter();
        list.fold(own, |stdin, action| match (action.what, action.fd, action.to) {
            (DUP2, fd, libc::STDIN_FILENO) => Some(fd),
            (CLOSE | OPEN, libc::STDIN_FILENO, _) => None,
            _ => stdin,
        })
    }
}

type Spawn = unsafe fn(
    *mut pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

/// # Safety
///
/// As `posix_spawn(3)`, and `path` is where `spawn` finds `file`, or null.
#[allow(clippy::too_many_arguments, reason = "the function has as many")]
unsafe fn spawning(
    spawn: Spawn,
    path: *const c_char,
    child: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let none = FileActions { allocated: 0, used: 0, actions: std::ptr::null_mut(), padding: [0; 16] };
    // SAFETY: as the caller says.
    let given = unsafe { actions.cast::<FileActions>().as_ref() }.copied().unwrap_or(none);
    let before = Errno::last();
    // SAFETY: as the caller says.
    let stdin = unsafe { given.standard_input() }.filter(|_| !path.is_null());
    let prepared = match stdin {
        // SAFETY: as the caller says.
        Some(stdin) => unsafe { prepare(CStr::from_ptr(path), environment, stdin) },
        None => Prepared::Nothing,
    };
    before.set();
    // SAFETY: as the caller says.
    let spawned = unsafe {
        match prepared {
            Prepared::Rest(rest) if given.list().len() < ACTIONS_MAX => {
                let mut list = [Action::dup2(rest, libc::STDIN_FILENO); ACTIONS_MAX];
                let used = given.list().len();
                list[..used].copy_from_slice(given.list());
                let count = used as c_int + 1;
                let more = FileActions { allocated: count, used: count, actions: list.as_mut_ptr(), ..given };
                spawn(child, file, (&raw const more).cast(), attributes, arguments, environment)
            }
            _ => spawn(child, file, actions, attributes, arguments, environment),
        }
    };
    match prepared {
        Prepared::Rest(rest) => system::close(rest),
        prepared if spawned != 0 => prepared.undo(),
        _ => {}
    }
    spawned
}

/// # Safety
///
/// As `posix_spawn(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { spawning(next::posix_spawn, path, child, path, actions, attributes, arguments, environment) }
}

/// # Safety
///
/// As `posix_spawnp(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let mut place = [0; PATH_BYTES_MAX];
    // SAFETY: as the caller says.
    unsafe {
        let path = found(file, &mut place);
        spawning(next::posix_spawnp, path, child, file, actions, attributes, arguments, environment)
    }
}
