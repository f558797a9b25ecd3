//! A program that is about to be executed, and whether it gets the shim. No function here allocates, because they run between
//! `vfork` and `exec`, too.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use libc::{c_char, c_int};
use linking::{GAINS_RIGHTS, Ids, Linking, PATH_BYTES_MAX};

use crate::{environment, files, system};

/// The name of the shim's file.
const SHIM: &[u8] = b"libswiftwater_preload.so";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Extended attribute that holds the capabilities of a file.
const CAPABILITIES: &CStr = c"security.capability";
/// Number of times that the interpreter of a script may itself be a script, as in the kernel.
const INTERPRETERS_MAX: usize = 5;

/// A program without the shim.
#[derive(Clone, Copy)]
pub(crate) struct UnshimmedProgram {
    /// Whether it fails to start where its environment names the shim.
    pub(crate) fails_with_preload: bool,
}

/// The open file of a program without the shim.
pub(crate) struct UnshimmedFile {
    /// Reason for which it can never have the shim, in words that follow its name; `None` if the environment does not preload the
    /// shim.
    trouble: Option<&'static str>,
    fails_with_preload: bool,
    file: File,
}

/// Returns the program at this path, unless it gets the shim in this environment or the answer is unknown.
///
/// # Safety
///
/// `environment` is an [`EnvironmentPointer`].
pub(crate) unsafe fn open_unshimmed(path: &CStr, environment: EnvironmentPointer) -> Option<UnshimmedFile> {
    let mut buffer = [0_u8; PATH_BYTES_MAX];
    let mut file = File::open(path)?;
    for _ in 0..INTERPRETERS_MAX {
        if file.changes_rights() {
            return Some(UnshimmedFile { trouble: Some(GAINS_RIGHTS), fails_with_preload: false, file });
        }
        if let Some(linking) = Linking::of(&|offset, buffer| file.read(offset, buffer)) {
            let trouble = linking.trouble();
            // SAFETY: the caller guarantees it.
            let is_preloaded = trouble.is_none() && unsafe { preloads(environment) };
            let fails_with_preload = linking.fails_with_preload();
            return (!is_preloaded).then_some(UnshimmedFile { trouble, fails_with_preload, file });
        }
        let bytes = file.read(0, &mut buffer);
        let name_bytes = linking::interpreter(&buffer[..bytes])?.as_ptr_range();
        let start = name_bytes.start.addr() - buffer.as_ptr().addr();
        let end = name_bytes.end.addr() - buffer.as_ptr().addr();
        *buffer.get_mut(end)? = 0;
        file = File::open(CStr::from_bytes_until_nul(&buffer[start..]).ok()?)?;
    }
    None
}

/// An array of pointers to NUL-terminated strings that ends with a null pointer, as `execve(2)` takes it.
///
/// Functions with such an argument require that it is null or points to an array of this kind, which does not change during the
/// call.
pub(crate) type EnvironmentPointer = *const *const c_char;

/// Returns the variable number `n` of an environment; `None` behind the last.
///
/// # Safety
///
/// `environment` is an [`EnvironmentPointer`] with at least `n` variables, and is not null. The variable does not change for
/// `'a`.
unsafe fn variable<'a>(environment: EnvironmentPointer, n: usize) -> Option<&'a CStr> {
    // SAFETY: the caller guarantees it: a null pointer ends the environment, and strings come before it.
    unsafe {
        let variable = *environment.add(n);
        (!variable.is_null()).then(|| CStr::from_ptr(variable))
    }
}

/// Returns the libraries that the value of `LD_PRELOAD` names.
fn libraries(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b' ' | b':')).filter(|library| !library.is_empty())
}

fn is_shim(library: &[u8]) -> bool {
    library.rsplit(|byte| *byte == b'/').next() == Some(SHIM)
}

/// Returns whether an environment names the shim to the dynamic linker.
///
/// # Safety
///
/// `environment` is an [`EnvironmentPointer`].
pub(crate) unsafe fn preloads(environment: EnvironmentPointer) -> bool {
    if environment.is_null() {
        return false;
    }
    for n in 0.. {
        // SAFETY: the caller guarantees it, and the variables before this one were not the end.
        let Some(variable) = (unsafe { variable(environment, n) }) else { return false };
        if let Some(value) = variable.to_bytes().strip_prefix(PRELOAD) {
            return libraries(value).any(is_shim);
        }
    }
    false
}

/// Maximum number of variables of an environment that is copied.
const VARIABLES_MAX: usize = 500;
/// Maximum length of the variable that names libraries without the shim; a longer one is left out.
const PRELOAD_BYTES_MAX: usize = 1024;

/// Room for a copy of an environment.
pub(crate) struct Environment {
    variables: [*const c_char; VARIABLES_MAX],
    preload: [u8; PRELOAD_BYTES_MAX],
}

impl Environment {
    pub(crate) const fn room() -> Environment {
        Environment { variables: [ptr::null(); VARIABLES_MAX], preload: [0; PRELOAD_BYTES_MAX] }
    }

    /// Copies an environment, and leaves the shim out of the libraries that it names to the dynamic linker. Returns `None` if the
    /// environment has too many variables.
    ///
    /// # Safety
    ///
    /// `environment` is an [`EnvironmentPointer`], and is not null. Its variables do not change while the copy is in use.
    pub(crate) unsafe fn without_shim(
        &mut self,
        environment: EnvironmentPointer,
    ) -> Option<EnvironmentPointer> {
        let mut copied = 0;
        for n in 0.. {
            // SAFETY: the caller guarantees it, and the variables before this one were not the end.
            let variable = unsafe { variable(environment, n) };
            let entry = match variable {
                None => ptr::null(),
                Some(variable) => match variable.to_bytes().strip_prefix(PRELOAD) {
                    None => variable.as_ptr(),
                    Some(value) if write_others(value, &mut self.preload) => self.preload.as_ptr().cast(),
                    Some(_) => continue,
                },
            };
            *self.variables.get_mut(copied)? = entry;
            copied += 1;
            if variable.is_none() {
                break;
            }
        }
        Some(self.variables.as_ptr())
    }
}

/// Writes the variable that names the libraries of `value` other than the shim; returns false if there are none, or too many.
fn write_others(value: &[u8], out: &mut [u8; PRELOAD_BYTES_MAX]) -> bool {
    out[..PRELOAD.len()].copy_from_slice(PRELOAD);
    let mut end = PRELOAD.len();
    for library in libraries(value).filter(|library| !is_shim(library)) {
        // In place of the colon behind the last one, the variable ends with a NUL.
        let Some(place) = out.get_mut(end..=end + library.len()) else { return false };
        place[..library.len()].copy_from_slice(library);
        place[library.len()] = b':';
        end += place.len();
    }
    out[end - 1] = 0;
    end > PRELOAD.len()
}

impl UnshimmedFile {
    /// Warns of a program that would use SCTP without the shim, once for this process and its descendants, and closes its file.
    pub(crate) fn warn_and_close(self, path: &CStr) -> UnshimmedProgram {
        if let Some(trouble) = self.trouble.filter(|_| is_new(&self.file))
            && linking::names_sctp(&|offset, buffer| self.file.read(offset, buffer))
        {
            say(path, trouble);
        }
        UnshimmedProgram { fails_with_preload: self.fails_with_preload }
    }
}

/// Prints a message about a program on standard error, unless the user has silenced it or standard error is an SCTP descriptor.
pub(crate) fn say(path: &CStr, what: &str) {
    if environment::is_quiet() || files::may_be_program_end(libc::STDERR_FILENO) {
        return;
    }
    let parts: [&[u8]; 5] = [b"swiftwater: ", path.to_bytes(), b" ", what.as_bytes(), b"\n"];
    files::write_together(libc::STDERR_FILENO, parts);
}

/// Number of programs that are remembered, in memory shared with children. Further ones cause no warning.
const SEEN_MAX: usize = 64;
type Seen = [AtomicU64; SEEN_MAX];
static SEEN: AtomicPtr<Seen> = AtomicPtr::new(ptr::null_mut());

/// Returns whether this is the first look at a program.
fn is_new(file: &File) -> bool {
    let seen = SEEN.load(Relaxed);
    // SAFETY: the pointer is null or mapped for good, and any bytes are a valid number.
    let Some(seen) = (unsafe { seen.as_ref() }) else { return true };
    let key = file.key();
    for slot in seen {
        match slot.compare_exchange(0, key, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(other) if other == key => return false,
            Err(_) => {}
        }
    }
    false
}

/// Runs before `main`: children would not share memory that is mapped later.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn share_what_was_seen() {
        let errno = system::Errno::last();
        if let Ok(buffer) = crate::mapping::map_shared(size_of::<Seen>()) {
            SEEN.store(buffer.release().as_ptr().cast(), Relaxed);
        }
        errno.set();
    }
    share_what_was_seen
};

/// An executable file, closed when this is dropped.
struct File(c_int);

impl File {
    fn open(path: &CStr) -> Option<File> {
        files::open_to_read(path).ok().map(File)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        i64::try_from(offset).map_or(0, |offset| system::read_file(self.0, buffer, offset).unwrap_or(0))
    }

    fn changes_rights(&self) -> bool {
        // SAFETY: these calls have no preconditions.
        let caller = unsafe { Ids { user: libc::getuid(), group: libc::getgid() } };
        let changes_ids = files::status(self.0).is_some_and(|status| {
            let file = Ids { user: status.st_uid, group: status.st_gid };
            linking::changes_ids(status.st_mode, file, caller)
        });
        changes_ids || files::has_attribute(self.0, CAPABILITIES)
    }

    /// Returns a number that identifies this file and is not zero.
    fn key(&self) -> u64 {
        let (device, file) = files::status(self.0).map_or((0, 0), |status| (status.st_dev, status.st_ino));
        (device.rotate_left(32) ^ file).max(1)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        system::close(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// Returns the variables of an environment without the shim.
    fn without_shim(variables: &[&str]) -> Option<Vec<String>> {
        let variables: Vec<CString> =
            variables.iter().map(|variable| CString::new(*variable).expect("no NUL")).collect();
        let mut pointers: Vec<_> = variables.iter().map(|variable| variable.as_ptr()).collect();
        pointers.push(ptr::null());
        let mut room = Environment::room();
        // SAFETY: the array ends with a null pointer, and lives longer than the copy.
        unsafe {
            let copy = room.without_shim(pointers.as_ptr())?;
            let text = |n| variable(copy, n).map(|variable| variable.to_string_lossy().into_owned());
            Some((0..).map_while(text).collect())
        }
    }

    #[test]
    fn the_shim_leaves_the_libraries_of_others_in_place() {
        let left = |value: &str| without_shim(&["A=1", value, "B=2"]).expect("few variables");
        assert_eq!(left("LD_PRELOAD=/opt/a/libswiftwater_preload.so"), ["A=1", "B=2"]);
        let others = "LD_PRELOAD=libasan.so /opt/libswiftwater_preload.so:/x/mylibswiftwater_preload.so";
        assert_eq!(left(others), ["A=1", "LD_PRELOAD=libasan.so:/x/mylibswiftwater_preload.so", "B=2"]);
        let long = format!("LD_PRELOAD=/{}:libswiftwater_preload.so", "x".repeat(PRELOAD_BYTES_MAX));
        assert_eq!(left(&long), ["A=1", "B=2"]);
        let longest = format!("LD_PRELOAD={}", "x".repeat(PRELOAD_BYTES_MAX - PRELOAD.len() - 1));
        assert_eq!(left(&format!("{longest}:libswiftwater_preload.so")), ["A=1", &longest, "B=2"]);
        assert_eq!(without_shim(&["A=1"; VARIABLES_MAX]), None, "there is no room for the end");
    }
}
