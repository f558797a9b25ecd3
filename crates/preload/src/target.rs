//! A program that is about to be executed: whether it gets the shim. All this is done without an allocation, because it is done
//! between `vfork` and `exec`, too.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use libc::{c_char, c_int};
use linking::{GAINS_RIGHTS, Linking, PATH_BYTES_MAX};

use crate::{files, system};

/// The name of the shim's file.
const SHIM: &[u8] = b"libswiftwater_preload.so";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// What the system keeps the capabilities of a file in.
const CAPABILITIES: &CStr = c"security.capability";
/// So often the interpreter of a script may be a script, as for the kernel.
const INTERPRETERS_MAX: usize = 5;

/// A program without the shim.
pub(crate) struct Stranger {
    /// Why, if that is for good: in words that follow its name. `None`: it is not told to preload the shim.
    trouble: Option<&'static str>,
    file: File,
}

/// Returns what is executed by this path with this environment, unless it gets the shim, or nobody knows.
///
/// # Safety
///
/// `environment` is one, or null.
pub(crate) unsafe fn stranger(path: &CStr, environment: *const *const c_char) -> Option<Stranger> {
    let mut place = [0_u8; PATH_BYTES_MAX];
    let mut file = File::open(path)?;
    for _ in 0..INTERPRETERS_MAX {
        if file.changes_rights() {
            return Some(Stranger { trouble: Some(GAINS_RIGHTS), file });
        }
        if let Some(linking) = Linking::of(&|offset, place| file.read(offset, place)) {
            let trouble = linking.trouble();
            // SAFETY: as the caller says.
            let is_preloaded = trouble.is_none() && unsafe { preloads(environment) };
            return (!is_preloaded).then_some(Stranger { trouble, file });
        }
        let bytes = file.read(0, &mut place);
        let name_bytes = linking::interpreter(&place[..bytes])?.as_ptr_range();
        let start = name_bytes.start.addr() - place.as_ptr().addr();
        let end = name_bytes.end.addr() - place.as_ptr().addr();
        *place.get_mut(end)? = 0;
        file = File::open(CStr::from_bytes_until_nul(&place[start..]).ok()?)?;
    }
    None
}

/// Returns whether an environment names the shim to the dynamic linker.
///
/// # Safety
///
/// As of [`stranger`].
pub(crate) unsafe fn preloads(environment: *const *const c_char) -> bool {
    if environment.is_null() {
        return false;
    }
    for n in 0.. {
        // SAFETY: as the caller says: the last is null.
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

impl Stranger {
    /// Warns of a program that would use SCTP without the shim, once for all processes that this one has begun.
    pub(crate) fn warn_of(&self, path: &CStr) {
        let Some(trouble) = self.trouble.filter(|_| is_new(&self.file)) else { return };
        if linking::names_sctp(&|offset, place| self.file.read(offset, place)) {
            say(path, trouble);
        }
    }
}

/// Says something of a program on standard error, unless that is not wanted, or is a socket of ours.
pub(crate) fn say(path: &CStr, what: &str) {
    // SAFETY: the name ends with a zero byte.
    let is_quiet = unsafe { !libc::getenv(carrier::name::QUIET_VARIABLE.as_ptr()).is_null() };
    if is_quiet || files::may_be_carrier(libc::STDERR_FILENO) {
        return;
    }
    let parts: [&[u8]; 5] = [b"swiftwater: ", path.to_bytes(), b" ", what.as_bytes(), b"\n"];
    files::write_together(libc::STDERR_FILENO, parts);
}

/// Programs that were looked at, in memory that is shared with children. Those beyond that are not warned of.
const SEEN_MAX: usize = 64;
type Seen = [AtomicU64; SEEN_MAX];
static SEEN: AtomicPtr<Seen> = AtomicPtr::new(ptr::null_mut());

/// Returns whether this is the first look at a program.
fn is_new(file: &File) -> bool {
    let seen = SEEN.load(Relaxed);
    // SAFETY: it is null, or mapped for good, and zero is a number.
    let Some(seen) = (unsafe { seen.as_ref() }) else { return true };
    let key = file.key();
    for place in seen {
        match place.compare_exchange(0, key, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(other) if other == key => return false,
            Err(_) => {}
        }
    }
    false
}

/// Runs before the program begins: what is mapped later, its children would not share.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn share_what_was_seen() {
        if let Ok(place) = system::map_shared(size_of::<Seen>()) {
            SEEN.store(place.as_ptr().cast(), Relaxed);
        }
    }
    share_what_was_seen
};

/// A file that may be executed. It is closed when this is dropped.
struct File(c_int);

impl File {
    fn open(path: &CStr) -> Option<File> {
        files::open_to_read(path).ok().map(File)
    }

    fn read(&self, offset: u64, place: &mut [u8]) -> usize {
        i64::try_from(offset).map_or(0, |offset| system::read_file(self.0, place, offset).unwrap_or(0))
    }

    fn changes_rights(&self) -> bool {
        const SET_USER_OR_GROUP: u32 = 0o6000;
        let mode = files::status(self.0).map_or(0, |status| status.st_mode);
        mode & SET_USER_OR_GROUP != 0 || files::has_attribute(self.0, CAPABILITIES)
    }

    /// A number of this file, which is not zero.
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
