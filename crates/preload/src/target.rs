//! A program that is about to be executed, and whether it gets the shim. No function here allocates, because they run between
//! `vfork` and `exec`, too.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use libc::{c_char, c_int};
use linking::{GAINS_RIGHTS, Linking, PATH_BYTES_MAX};

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
pub(crate) struct Stranger {
    /// Whether it fails to start where its environment names the shim.
    pub(crate) fails_with_preload: bool,
}

/// The open file of a program without the shim.
pub(crate) struct StrangerFile {
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
/// `environment` is an environment, or null.
pub(crate) unsafe fn stranger(path: &CStr, environment: *const *const c_char) -> Option<StrangerFile> {
    let mut buffer = [0_u8; PATH_BYTES_MAX];
    let mut file = File::open(path)?;
    for _ in 0..INTERPRETERS_MAX {
        if file.changes_rights() {
            return Some(StrangerFile { trouble: Some(GAINS_RIGHTS), fails_with_preload: false, file });
        }
        if let Some(linking) = Linking::of(&|offset, buffer| file.read(offset, buffer)) {
            let trouble = linking.trouble();
            // SAFETY: the caller guarantees it.
            let is_preloaded = trouble.is_none() && unsafe { preloads(environment) };
            let fails_with_preload = linking.fails_with_preload();
            return (!is_preloaded).then_some(StrangerFile { trouble, fails_with_preload, file });
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

/// Returns whether an environment names the shim to the dynamic linker.
///
/// # Safety
///
/// The caller meets the requirements of [`stranger`].
pub(crate) unsafe fn preloads(environment: *const *const c_char) -> bool {
    if environment.is_null() {
        return false;
    }
    for n in 0.. {
        // SAFETY: the caller guarantees that the last entry is null.
        let variable = unsafe {
            let variable = *environment.add(n);
            if variable.is_null() {
                return false;
            }
            CStr::from_ptr(variable).to_bytes()
        };
        if let Some(libraries) = variable.strip_prefix(PRELOAD) {
            return libraries.windows(SHIM.len()).any(|name| name == SHIM);
        }
    }
    false
}

/// Maximum number of variables of an environment that is copied.
const VARIABLES_MAX: usize = 500;

/// Room for a copy of an environment.
pub(crate) struct Environment([*const c_char; VARIABLES_MAX]);

impl Environment {
    pub(crate) const fn room() -> Environment {
        Environment([ptr::null(); VARIABLES_MAX])
    }

    /// Copies an environment without the variable that names the shim to the dynamic linker. Returns `environment` itself if it
    /// is too long.
    ///
    /// # Safety
    ///
    /// The caller meets the requirements of [`stranger`], and `environment` is not null.
    pub(crate) unsafe fn without_preload(
        &mut self,
        environment: *const *const c_char,
    ) -> *const *const c_char {
        let mut copied = 0;
        for n in 0.. {
            // SAFETY: the caller guarantees it: a null pointer ends the environment, and strings come before it.
            let (variable, names_libraries) = unsafe {
                let variable = *environment.add(n);
                (variable, !variable.is_null() && CStr::from_ptr(variable).to_bytes().starts_with(PRELOAD))
            };
            if names_libraries {
                continue;
            }
            let Some(buffer) = self.0.get_mut(copied) else { return environment };
            *buffer = variable;
            if variable.is_null() {
                break;
            }
            copied += 1;
        }
        self.0.as_ptr()
    }
}

impl StrangerFile {
    /// Warns of a program that would use SCTP without the shim, once for this process and its descendants, and closes its file.
    pub(crate) fn warn_and_close(self, path: &CStr) -> Stranger {
        if let Some(trouble) = self.trouble.filter(|_| is_new(&self.file))
            && linking::names_sctp(&|offset, buffer| self.file.read(offset, buffer))
        {
            say(path, trouble);
        }
        Stranger { fails_with_preload: self.fails_with_preload }
    }
}

/// Prints a message about a program on standard error, unless the user has silenced it or standard error is an SCTP descriptor.
pub(crate) fn say(path: &CStr, what: &str) {
    if environment::is_quiet() || files::may_be_carrier(libc::STDERR_FILENO) {
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
    for buffer in seen {
        match buffer.compare_exchange(0, key, Relaxed, Relaxed) {
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
        let caller = unsafe { (libc::getuid(), libc::getgid()) };
        let changes_ids = files::status(self.0).is_some_and(|status| {
            linking::changes_ids(status.st_mode, (status.st_uid, status.st_gid), caller)
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
