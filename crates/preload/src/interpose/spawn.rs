//! Calls that spawn programs: `posix_spawn(3)`, whose actions decide which descriptors become standard input, output and
//! error of the child. [`super::exec`] prepares them for the program.

use std::ffi::CStr;
use std::os::fd::RawFd;

use libc::{c_char, c_int, c_void, pid_t};

use super::exec::{PATH_BYTES_MAX, Prepared, STANDARD, Standard, found, inherited, prepare};
use crate::next;
use crate::system::{self, Errno};
use crate::target::Environment;

/// `posix_spawn_file_actions_t` of the GNU C library, whose layout has been the same since 2.2.
#[repr(C)]
#[derive(Clone, Copy)]
struct FileActions {
    allocated: c_int,
    used: c_int,
    actions: *mut Action,
    padding: [c_int; 16],
}

/// One action on a descriptor in the child, as the C library stores it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    what: c_int,
    padding: c_int,
    fd: c_int,
    /// The other descriptor of a `dup2`.
    to: c_int,
    /// Path and further arguments of other actions.
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
/// Largest number of actions to which one more, for the file, is added.
const ACTIONS_MAX: usize = 32;

impl FileActions {
    /// # Safety
    ///
    /// The C library has made the actions.
    unsafe fn list(&self) -> &[Action] {
        match self.used {
            1.. if !self.actions.is_null() => {
                // SAFETY: the caller guarantees it.
                unsafe { std::slice::from_raw_parts(self.actions, self.used as usize) }
            }
            _ => &[],
        }
    }

    /// Returns the descriptors of this process that become the child's standard descriptors.
    ///
    /// # Safety
    ///
    /// The caller meets the requirements of [`FileActions::list`].
    unsafe fn standard(&self) -> Standard {
        let own = inherited();
        // The kernel closes a descriptor of the shim on `execve` unless an action has made it anew.
        let mut standard = STANDARD.map(Some);
        let mut is_own = [true; STANDARD.len()];
        let index = |fd| STANDARD.iter().position(|standard| *standard == fd);
        // SAFETY: the caller guarantees it.
        for action in unsafe { self.list() } {
            match (action.what, index(action.fd), index(action.to)) {
                (DUP2, from, Some(to)) => {
                    // The child may have given this number to another descriptor before.
                    standard[to] = from.map_or(Some(action.fd), |from| standard[from]);
                    is_own[to] = false;
                }
                (CLOSE | OPEN, Some(closed), _) => standard[closed] = None,
                _ => {}
            }
        }
        for ((standard, is_own), own) in standard.iter_mut().zip(is_own).zip(own) {
            *standard = standard.filter(|_| !is_own || own.is_some());
        }
        standard
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
/// The caller meets the requirements of `posix_spawn(3)`, and `path` is where `spawn` finds `file`, or null.
#[allow(clippy::too_many_arguments, reason = "the function has as many")]
unsafe fn spawning(
    spawn: Spawn,
    path: *const c_char,
    child: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    mut environment: *const *const c_char,
) -> c_int {
    let mut room = Environment::room();
    let none = FileActions { allocated: 0, used: 0, actions: std::ptr::null_mut(), padding: [0; 16] };
    // SAFETY: the caller guarantees it.
    let given = unsafe { actions.cast::<FileActions>().as_ref() }.copied().unwrap_or(none);
    let before = Errno::last();
    // SAFETY: the caller guarantees it.
    let standard = unsafe { given.standard() };
    let prepared = match path.is_null() {
        // SAFETY: the caller guarantees it.
        false => unsafe { prepare(CStr::from_ptr(path), &mut environment, &mut room, standard) },
        true => Prepared::default(),
    };
    before.set();
    // SAFETY: the caller guarantees it.
    let spawned = unsafe {
        match prepared.rest {
            Some(rest) if given.list().len() < ACTIONS_MAX => {
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
    prepared.rest.into_iter().for_each(system::close);
    if spawned != 0 {
        prepared.undo();
    }
    spawned
}

/// # Safety
///
/// The caller meets the requirements of `posix_spawn(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { spawning(next::posix_spawn, path, child, path, actions, attributes, arguments, environment) }
}

/// # Safety
///
/// The caller meets the requirements of `posix_spawnp(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let mut buffer = [0; PATH_BYTES_MAX];
    // SAFETY: the caller guarantees it.
    unsafe {
        let path = found(file, &mut buffer);
        spawning(next::posix_spawnp, path, child, file, actions, attributes, arguments, environment)
    }
}
