//! A program in namespaces of its own, which leaves nothing behind.
//!
//! [`run_again`] starts this program once more as the first process of new namespaces: of users, unless it is root already,
//! of mounts, of networks and of processes. When that process ends, the kernel ends all that it has started, and with the
//! last of them go the namespaces, their interfaces and their mounts. It ends with its parent, however that ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, openat};
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, close, geteuid, getpgrp, pipe, tcgetpgrp, tcsetpgrp};
use thiserror::Error;

use crate::user::{NotAllowed, become_root};

/// Tells the process inside which descriptor is the end of a pipe whose other end its parent holds.
const LIFELINE_VARIABLE: &str = "SWIFTWATER_NETNS_LIFELINE";

/// Reason why a program does not run in namespaces of its own.
#[derive(Debug, Error)]
pub enum PrivateError {
    /// This user may not make user namespaces.
    #[error(
        "{0}; run this as root, or allow user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, \
         sysctl user.max_user_namespaces=1000 elsewhere"
    )]
    User(#[from] NotAllowed),
    /// The system refuses other namespaces, although this process is root, or root of a user namespace.
    #[error(
        "cannot make namespaces of mounts, networks and processes: {source}; {advice}",
        advice = unshare_advice(*source, *was_root)
    )]
    Unshare {
        /// Error of the system.
        source: Errno,
        /// Whether the process was root before, so that this user needs no more advice to become root.
        was_root: bool,
    },
    /// The program cannot be started again.
    #[error("cannot start this program again: {0}")]
    Start(io::Error),
    /// The parent has ended meanwhile.
    #[error("the process that has started this one is gone")]
    Orphaned,
}

/// Returns what the user can do when the system refuses namespaces with this error to a process that `was_root` already.
fn unshare_advice(error: Errno, was_root: bool) -> &'static str {
    match error {
        // The kernel has no other error for its limits of namespaces.
        Errno::ENOSPC => {
            "a limit is reached or zero: sysctl user.max_mnt_namespaces, user.max_net_namespaces and \
             user.max_pid_namespaces show them"
        }
        _ if was_root => {
            "the container or a security module such as AppArmor forbids it, or this root lacks CAP_SYS_ADMIN: run this outside"
        }
        _ => "the container or a security module such as AppArmor forbids it: run this outside, or as root",
    }
}

/// Returns whether this process was started by [`run_again`].
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(LIFELINE_VARIABLE).is_some()
}

/// Lets a program that is started inside make namespaces of its own in turn.
pub fn forget_inside(command: &mut Command) {
    command.env_remove(LIFELINE_VARIABLE);
}

/// Starts this program again with the same arguments, in namespaces of its own, and waits until it ends. Call it before a
/// thread is started.
///
/// The calling process changes, too, and can do nothing afterwards but end. Signals of other processes are passed on. A terminal
/// sends SIGINT and SIGQUIT to the process inside as well.
///
/// # Errors
///
/// The system refuses the namespaces, or the program cannot be started.
pub fn run_again() -> Result<ExitStatus, PrivateError> {
    start_again(false)
}

/// Works as [`run_again`], for a program that starts an interactive shell. If this process has the terminal, the process inside
/// gets it, in a process group of its own, and this process takes it back at the end. A shell gives the terminal back to the
/// group that had it, and cannot do so if that group is outside of its namespace of processes.
///
/// # Errors
///
/// The errors of [`run_again`].
pub fn run_again_with_terminal() -> Result<ExitStatus, PrivateError> {
    let has_terminal = tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp());
    let ended = start_again(has_terminal);
    if has_terminal {
        // If that fails, the terminal is gone.
        let _ = give_terminal_to(getpgrp());
    }
    ended
}

/// Makes a process group of this session that of the foreground.
fn give_terminal_to(group: Pid) -> nix::Result<()> {
    // The signal stops a process that does so from the background.
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTTOU);
    stops.thread_block()?;
    let given = tcsetpgrp(io::stdin(), group);
    stops.thread_unblock()?;
    given
}

fn start_again(passes_terminal: bool) -> Result<ExitStatus, PrivateError> {
    let was_root = geteuid().is_root();
    become_root()?;
    // The new process mounts a /proc of its own, which this process then sees, too.
    let processes = File::open("/proc").map_err(PrivateError::Start)?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID)
        .map_err(|source| PrivateError::Unshare { source, was_root })?;
    let start = || {
        let (inside, lifeline) = pipe()?;
        // The one end is inherited, the other closes with this process.
        fcntl(&lifeline, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).env(LIFELINE_VARIABLE, inside.as_raw_fd().to_string());
        if passes_terminal {
            command.process_group(0);
        }
        let child = command.spawn()?;
        if passes_terminal {
            let group = Pid::from_raw(child.id() as i32);
            give_terminal_to(group)?;
            // A process that has read from the terminal before has stopped.
            killpg(group, Signal::SIGCONT)?;
        }
        Ok((child, lifeline))
    };
    let (child, _lifeline) = start().map_err(PrivateError::Start)?;
    wait(child, &processes).map_err(PrivateError::Start)
}

/// Waits for a process, and passes signals on to it. `processes` is the /proc that knows its number.
fn wait(mut child: Child, processes: &File) -> io::Result<ExitStatus> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    // Blocked signals wait until they are taken here. A child that ended before has left none.
    signals.thread_block()?;
    let taken = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    let mut killed_for = None;
    loop {
        if let Some(status) = child.try_wait()? {
            let is_killed = status.signal() == Some(Signal::SIGKILL as i32);
            let instead = killed_for.filter(|_| is_killed);
            return Ok(instead.map_or(status, |signal| ExitStatus::from_raw(signal as i32)));
        }
        let Some(info) = taken.read_signal()? else { continue };
        let signal = Signal::try_from(info.ssi_signo as i32)?;
        // The kernel's own codes are positive; a terminal's signals have one.
        let sender = if info.ssi_code > 0 { Sender::Kernel } else { Sender::Process };
        if let Some(passed) = passed_on(signal, sender, handling(processes, child.id(), signal)) {
            // The child is not waited for yet, so that the number is still its own.
            let _ = kill(Pid::from_raw(child.id() as i32), passed);
            killed_for = Some(signal).filter(|_| passed == Signal::SIGKILL);
        }
    }
}

/// Treatment of a signal by a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handling {
    Default,
    Ignored,
    Caught,
}

/// Returns what a process does with a signal, according to its masks in `processes`, a /proc.
fn handling(processes: &File, process: u32, signal: Signal) -> Handling {
    let path = format!("{process}/status");
    let status = openat(processes, path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|status| io::read_to_string(File::from(status)));
    handling_in(&status.unwrap_or_default(), signal)
}

fn handling_in(status: &str, signal: Signal) -> Handling {
    let has = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
    };
    match (has("SigCgt:"), has("SigIgn:")) {
        (true, _) => Handling::Caught,
        (false, true) => Handling::Ignored,
        (false, false) => Handling::Default,
    }
}

/// Origin of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Process,
    /// A terminal, which sends to both processes.
    Kernel,
}

/// Returns the signal that the first process of a PID namespace gets for one that came here. The kernel drops signals
/// that it does not catch, so before it does it is killed.
fn passed_on(signal: Signal, sender: Sender, handling: Handling) -> Option<Signal> {
    match (signal, sender, handling) {
        (Signal::SIGCHLD, ..) | (_, _, Handling::Ignored) => None,
        (_, _, Handling::Default) => Some(Signal::SIGKILL),
        (Signal::SIGTERM | Signal::SIGHUP, _, Handling::Caught) | (_, Sender::Process, Handling::Caught) => {
            Some(signal)
        }
        (_, Sender::Kernel, Handling::Caught) => None,
    }
}

/// Returns the status with which a shell tells how a process has ended.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Restrictions of the process inside, as a sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits(pub Vec<String>);

/// Sets up the new namespaces. [`is_inside`] is true; call it before anything else is done.
///
/// # Errors
///
/// The process that has started this one has ended.
pub fn set_up() -> Result<Limits, PrivateError> {
    // From here on this process ends with its parent.
    set_pdeathsig(Signal::SIGKILL).map_err(|error| PrivateError::Start(error.into()))?;
    // The parent may have ended before.
    let lifeline = std::env::var_os(LIFELINE_VARIABLE);
    if lifeline_has_ended(lifeline.as_deref()) {
        return Err(PrivateError::Orphaned);
    }
    close_lifeline(lifeline.as_deref());
    let mut limits = Limits::default();
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mounted = mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .and_then(|()| mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>));
    if let Err(error) = mounted {
        limits
            .0
            .push(format!("/proc shows the processes of this machine, not those of the laboratory: {error}"));
    }
    Ok(limits)
}

fn lifeline_number(number: Option<&OsStr>) -> Option<RawFd> {
    number?.to_str()?.parse().ok().filter(|number| *number > 2)
}

/// Closes the lifeline, which has served its purpose: programs that are started here would inherit it.
fn close_lifeline(number: Option<&OsStr>) {
    let _ = lifeline_number(number).map(close);
}

/// Returns whether the other end of the pipe is closed, or the pipe unknown.
fn lifeline_has_ended(number: Option<&OsStr>) -> bool {
    let number = lifeline_number(number);
    let Some(Ok(pipe)) = number.map(|number| File::open(format!("/proc/self/fd/{number}"))) else {
        return true;
    };
    let mut polled = [PollFd::new(std::os::fd::AsFd::as_fd(&pipe), PollFlags::POLLIN)];
    // Nothing is ever written: an event is the end.
    poll(&mut polled, PollTimeout::ZERO) != Ok(0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    // No test here starts a process: it would hold the lifeline, too, until it executes its program.

    #[test]
    fn a_lifeline_ends_with_its_other_end() {
        let (inside, lifeline) = pipe().expect("a pipe");
        let number = inside.as_raw_fd().to_string();
        assert!(!lifeline_has_ended(Some(OsStr::new(&number))));
        drop(lifeline);
        assert!(lifeline_has_ended(Some(OsStr::new(&number))));
        assert!(lifeline_has_ended(Some(OsStr::new("none"))) && lifeline_has_ended(None));
    }

    #[test]
    fn a_lifeline_is_closed_once_it_has_served() {
        let (inside, lifeline) = pipe().expect("a pipe");
        let number = inside.into_raw_fd().to_string();
        close_lifeline(Some(OsStr::new(&number)));
        // The pipe has no reader.
        assert_eq!(nix::unistd::write(&lifeline, &[0]), Err(Errno::EPIPE));
        close_lifeline(Some(OsStr::new("none")));
    }

    #[test]
    fn a_used_up_limit_of_namespaces_is_told_from_a_refusal() {
        for was_root in [false, true] {
            let said = |source| PrivateError::Unshare { source, was_root }.to_string();
            let limit = said(Errno::ENOSPC);
            assert!(limit.contains("user.max_net_namespaces") && !limit.contains("AppArmor"), "{limit}");
            let refusal = said(Errno::EPERM);
            assert!(refusal.contains("AppArmor") && refusal.contains("as root") != was_root, "{refusal}");
        }
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        // As wait(2) reports them: `exit 3`, and the end by SIGKILL.
        assert_eq!([3 << 8, 9].map(ExitStatus::from_raw).map(exit_code), [3, 137]);
    }

    #[test]
    fn a_signal_that_the_process_inside_would_not_get_kills_it() {
        let masks = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000004002\n";
        let of = |signal| handling_in(masks, signal);
        assert_eq!(of(Signal::SIGTERM), Handling::Caught);
        assert_eq!(of(Signal::SIGHUP), Handling::Ignored);
        assert_eq!(of(Signal::SIGQUIT), Handling::Default);
        let (terminal, process) = (Sender::Kernel, Sender::Process);
        assert_eq!(passed_on(Signal::SIGTERM, process, Handling::Caught), Some(Signal::SIGTERM));
        assert_eq!(passed_on(Signal::SIGHUP, terminal, Handling::Caught), Some(Signal::SIGHUP));
        assert_eq!(passed_on(Signal::SIGINT, process, Handling::Caught), Some(Signal::SIGINT));
        assert_eq!(passed_on(Signal::SIGINT, terminal, Handling::Caught), None, "it has both");
        assert_eq!(passed_on(Signal::SIGHUP, process, Handling::Ignored), None);
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT] {
            assert_eq!(passed_on(signal, terminal, Handling::Default), Some(Signal::SIGKILL));
        }
        assert_eq!(passed_on(Signal::SIGCHLD, terminal, Handling::Default), None);
        let processes = File::open("/proc").expect("processes");
        assert_eq!(handling(&processes, std::process::id(), Signal::SIGUSR2), Handling::Default);
    }
}
