//! Starts a daemon for a program that opens an SCTP socket where there is none, as `swiftwater run` would: for programs that link
//! with `libswiftwater`, and for those whose daemon has ended because nobody needed it.
//!
//! The daemon is no child of the program: a program that waits for any child, or handles `SIGCHLD`, notices nothing. Between the
//! fork and the new program the child makes system calls only, since other threads may hold any lock.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use carrier::name::DAEMON;
use libc::{c_char, c_int, c_long};

use crate::environment;
use crate::system_call::system_call;

/// Time within which a started daemon must answer.
const START_WAIT: Duration = Duration::from_secs(5);
/// Number of descriptors that are closed one by one where the kernel cannot close a range.
const CLOSED_ONE_BY_ONE: c_int = 65_536;
const START_LOOK_MS: c_int = 10;
/// Seconds without a socket after which the daemon ends.
const IDLE_EXIT_S: &CStr = c"60";
const COMMAND: &str = "swiftwater";

static WANTED: AtomicBool = AtomicBool::new(false);

/// Makes this program start a daemon where there is none, however the program was started.
pub fn always() {
    WANTED.store(true, Relaxed);
}

/// Returns whether this process may start a daemon: it must not replace a daemon that an administrator has set up.
fn is_wanted() -> bool {
    WANTED.load(Relaxed) || environment::is_on_demand()
}

/// Starts a daemon where one is wanted and waits until `answers`; returns false if there will be none.
pub(crate) fn daemon(answers: impl Fn() -> bool) -> bool {
    is_wanted() && start(&answers)
}

fn start(answers: &dyn Fn() -> bool) -> bool {
    let Some(command) = find_command() else { return false };
    let Some(address) = daemon_address() else { return false };
    let words = [&command, c"daemon", c"--detach", c"--idle-exit", IDLE_EXIT_S, c"--place", &address];
    let Some(lifeline) = Lifeline::begin(&words) else { return false };
    let deadline = Instant::now() + START_WAIT;
    loop {
        let has_ended = lifeline.has_ended();
        // Another process may have been quicker; then its daemon answers.
        if answers() {
            return true;
        }
        if has_ended || Instant::now() > deadline {
            return false;
        }
    }
}

/// Returns the address of the daemon that the environment names.
fn daemon_address() -> Option<CString> {
    environment::daemon().map(CStr::to_owned).or_else(|| CString::new(format!("@{DAEMON}")).ok())
}

/// Returns the path of the command, which lies beside this library or where packages put it. A program with more rights than its
/// user starts none.
fn find_command() -> Option<CString> {
    // SAFETY: the call takes no pointer.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    let library = library_file()?.canonicalize().ok()?;
    let folder = library.parent().unwrap_or(Path::new("."));
    let candidates = ["", "../bin", "../../bin"].map(|below| folder.join(below).join(COMMAND));
    let found = candidates.into_iter().find(|file| file.is_file())?;
    CString::new(found.into_os_string().as_bytes()).ok()
}

/// Returns the file of this library, or of the program that it is linked into.
fn library_file() -> Option<PathBuf> {
    let me: fn(&dyn Fn() -> bool) -> bool = start;
    // SAFETY: the destination is writable, and the name found stays valid while the library is loaded.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let is_found = libc::dladdr(me as *const _, &raw mut found) != 0 && !found.dli_fname.is_null();
        is_found.then(|| OsStr::from_bytes(CStr::from_ptr(found.dli_fname).to_bytes()).into())
    }
}

/// A pipe whose other end the daemon holds while it lives.
struct Lifeline(c_int);

impl Lifeline {
    fn begin(words: &[&CStr]) -> Option<Lifeline> {
        let mut ends = [-1; 2];
        // SAFETY: the kernel writes two numbers.
        call(unsafe { system_call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
        let lifeline = Lifeline(ends[0]);
        // The copy avoids the standard descriptors, which a program may have closed.
        // SAFETY: the call takes no pointer.
        let child_end = unsafe { system_call!(libc::SYS_fcntl, ends[1], libc::F_DUPFD_CLOEXEC, 3) };
        close(ends[1]);
        let child_end = call(child_end)?;
        let begun = spawn(words, child_end as c_int);
        close(child_end as c_int);
        begun.map(|()| lifeline)
    }

    /// Returns whether the daemon has ended, after a short wait.
    fn has_ended(&self) -> bool {
        let mut entry = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
        let moment = libc::timespec { tv_sec: 0, tv_nsec: c_long::from(START_LOOK_MS) * 1_000_000 };
        let no_mask: *const libc::sigset_t = ptr::null();
        // SAFETY: one entry and a time, both writable.
        let ready = unsafe {
            system_call!(libc::SYS_ppoll, &raw mut entry, 1_usize, &raw const moment, no_mask, 8_usize,)
        };
        ready > 0
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Returns `None` if the call has failed.
fn call(returned: c_long) -> Option<c_long> {
    (returned >= 0).then_some(returned)
}

fn close(fd: c_int) {
    // SAFETY: the call takes no pointer.
    unsafe { system_call!(libc::SYS_close, fd) };
}

/// Starts a program that is no child of this process, with `lifeline` as its standard output.
fn spawn(words: &[&CStr], lifeline: c_int) -> Option<()> {
    let mut arguments: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    arguments.push(ptr::null());
    // The program's signal handlers must not run in the child.
    let mask = SignalMask::block_all();
    let child = fork();
    if child == Some(0) {
        match fork() {
            Some(0) => become_daemon(&arguments, lifeline),
            // SAFETY: the call does not return.
            _ => unsafe { libc::_exit(0) },
        }
    }
    let ended = child.map(|child| await_end(child as c_int));
    drop(mask);
    ended
}

/// Waits for a child of [`fork`].
pub(crate) fn await_end(child: c_int) {
    let (status, usage): (*mut c_int, *mut libc::rusage) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call writes nothing.
    unsafe { system_call!(libc::SYS_wait4, child, status, libc::__WALL, usage) };
}

/// The signals that this thread blocked before it blocked all.
pub(crate) struct SignalMask(u64);

impl SignalMask {
    pub(crate) fn block_all() -> SignalMask {
        let mut before = 0;
        set_mask(&u64::MAX, Some(&mut before));
        SignalMask(before)
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        set_mask(&self.0, None);
    }
}

/// Forks a child that sends no signal when it ends, and that a wait for any child does not find. The C library does not know of
/// it.
pub(crate) fn fork() -> Option<c_long> {
    // SAFETY: the child runs in a copy of the memory, and only makes system calls.
    call(unsafe { system_call!(libc::SYS_clone, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize) })
}

fn set_mask(mask: &u64, before: Option<&mut u64>) {
    let before = before.map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the kernel's mask has 64 bits.
    unsafe {
        system_call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, ptr::from_ref(mask), before, 8_usize,)
    };
}

/// Detaches the child from the program and executes the daemon in it.
fn become_daemon(arguments: &[*const c_char], lifeline: c_int) -> ! {
    const SIGNALS: c_int = 64;
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: these are system calls and `signal`, which makes one; what they read lives until the daemon is executed.
    unsafe {
        for signal in 1..=SIGNALS {
            libc::signal(signal, libc::SIG_DFL);
        }
        let nothing = system_call!(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR);
        system_call!(libc::SYS_dup3, lifeline, 1, 0);
        for standard in [0, 2].into_iter().filter(|fd| nothing >= 0 && *fd != nothing) {
            system_call!(libc::SYS_dup3, nothing, standard, 0);
        }
        if system_call!(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) != 0 {
            // Before Linux 5.9. Descriptors beyond this number stay open in the daemon.
            for fd in 3..CLOSED_ONE_BY_ONE {
                system_call!(libc::SYS_close, fd);
            }
        }
        system_call!(libc::SYS_chdir, c"/".as_ptr());
        set_mask(&0, None);
        system_call!(libc::SYS_execve, arguments[0], arguments.as_ptr(), environ);
        libc::_exit(127)
    }
}
