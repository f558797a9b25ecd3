//! Starts a daemon for a program that opens an SCTP socket where there is none, as `swiftwater run` would: for programs that link
//! with `libswiftwater`, and for those whose daemon has ended because no program needed it.
//!
//! The daemon is no child of the program: a program that waits for any child, or handles `SIGCHLD`, notices nothing. Between the
//! fork and the new program the child makes system calls only, since other threads may hold any lock.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use channel_protocol::name::DAEMON;
use libc::{c_char, c_int};

use crate::errno::check;
use crate::process::{self, AllSignalsBlocked};
use crate::system_call::system_call;
use crate::{environment, system};

/// Time within which a started daemon must answer.
const START_WAIT: Duration = Duration::from_secs(5);
/// Number of descriptors that are closed one by one where the kernel cannot close a range.
const CLOSED_ONE_BY_ONE: c_int = 65_536;
/// Pause between two attempts to reach a daemon that starts.
const START_PAUSE: Duration = Duration::from_millis(10);
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
        let has_ended = lifeline.wait(START_PAUSE);
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
struct Lifeline(RawFd);

impl Lifeline {
    fn begin(words: &[&CStr]) -> Option<Lifeline> {
        let mut ends = [-1; 2];
        // SAFETY: the kernel writes two numbers.
        check(unsafe { system_call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) }).ok()?;
        let lifeline = Lifeline(ends[0]);
        // The copy avoids the standard descriptors, which a program may have closed.
        // SAFETY: the call takes no pointer.
        let child_end = check(unsafe { system_call!(libc::SYS_fcntl, ends[1], libc::F_DUPFD_CLOEXEC, 3) });
        system::close(ends[1]);
        let child_end = child_end.ok()? as RawFd;
        let begun = spawn(words, child_end);
        system::close(child_end);
        begun.map(|()| lifeline)
    }

    /// Waits for the end of the daemon, at most for `time`. Returns whether the daemon has ended.
    fn wait(&self, time: Duration) -> bool {
        system::poll(self.0, libc::POLLIN, system::timespec(time)).is_ok_and(|events| events != 0)
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        system::close(self.0);
    }
}

/// Starts a program that is no child of this process, with `lifeline` as its standard output.
fn spawn(words: &[&CStr], lifeline: RawFd) -> Option<()> {
    let mut arguments: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    arguments.push(ptr::null());
    // The program's signal handlers must not run in the child.
    let mask = AllSignalsBlocked::new();
    let child = process::fork();
    if child == Some(0) {
        match process::fork() {
            Some(0) => become_daemon(&arguments, lifeline),
            // SAFETY: the call does not return.
            _ => unsafe { libc::_exit(0) },
        }
    }
    let ended = child.map(process::await_end);
    drop(mask);
    ended
}

/// Detaches the child from the program and executes the daemon in it.
fn become_daemon(arguments: &[*const c_char], lifeline: RawFd) -> ! {
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
        process::unblock_all_signals();
        system_call!(libc::SYS_execve, arguments[0], arguments.as_ptr(), environ);
        libc::_exit(127)
    }
}
