//! `swiftwater run`: starts a program with our SCTP sockets.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use swiftwater_daemon::{DaemonAddress, Description, NoDaemon};

use crate::daemon::stop::explain;
use crate::failure::Failure;
use crate::host;
use crate::output::note;
use crate::program::{fails_with_preload, is_elf, is_static, trouble_with};

/// The name of the shim's file.
pub(crate) const SHIM: &str = "libswiftwater_preload.so";
/// Variable that names the shim to the dynamic linker.
pub(crate) const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// Characters between two files of that variable (ld.so(8)).
const PRELOAD_SEPARATORS: &[u8] = b" :";
/// Variable that allows the shim to start a daemon itself if the earlier one has ended for lack of sockets.
const ON_DEMAND_VARIABLE: &str = "SWIFTWATER_ON_DEMAND";
/// Variable that makes the shim turn TCP sockets into SCTP sockets.
const TCP_AS_SCTP_VARIABLE: &str = "SWIFTWATER_TCP_AS_SCTP";
/// Variable that keeps the shim from warning of programs that scripts execute.
const QUIET_VARIABLE: &str = "SWIFTWATER_QUIET";
/// Variable with AddressSanitizer's options. The sanitizer insists on being the first library of a program, and the shim is.
const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";
const ANY_LINK_ORDER: &str = "verify_asan_link_order=0";
/// Variable that names the daemon's address to the shim.
pub(crate) const ADDRESS_VARIABLE: &str = "SWIFTWATER_DAEMON";
/// Time within which a started daemon must answer.
const START_WAIT: Duration = Duration::from_secs(5);
const START_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Seconds without a socket after which a daemon that was started here ends.
const IDLE_EXIT_S: &str = "60";

/// Exit status if there is no such program.
pub(crate) const EXIT_NO_PROGRAM: u8 = 127;
/// Exit status if the system cannot execute the program.
pub(crate) const EXIT_NOT_EXECUTABLE: u8 = 126;

/// Program to run.
#[derive(Debug, Args)]
#[command(after_help = "\
The program, and what it starts in turn, gets SCTP sockets, one-to-one and one-to-many, from the daemon of \
this network namespace, which is started if there is none. All other calls work as without it.

Both ends need SCTP in UDP port 9899, or directly over IP: see `swiftwater daemon --help`.

Examples:
  swiftwater run -- socat SCTP-LISTEN:6001,reuseaddr,fork EXEC:cat  a server that echoes
  swiftwater run -- socat - SCTP:127.0.0.1:6001                     a client of it
  swiftwater run -- iperf3 -s
  swiftwater run -- iperf3 -c HOST --sctp                           on the client")]
pub(crate) struct RunArgs {
    /// Do not print which daemon is used, and do not warn of programs that PROGRAM executes without the shim and whose
    /// files contain the name SCTP [default: print both].
    #[arg(short, long)]
    pub quiet: bool,
    /// Make TCP sockets one-to-one SCTP sockets, as `withsctp` of lksctp-tools does: both ends need this. `read` and `recv` go on
    /// with the next message while the buffer has room, as with TCP; options of TCP that only say when data leaves have no
    /// effect. There is no half close: `shutdown` of one direction ends both [default: TCP stays TCP].
    #[arg(long)]
    pub tcp_as_sctp: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Returns the address of a daemon with an absolute path. Programs often go to another folder before they open sockets,
/// and a daemon that is started leaves this one.
fn absolute(place: DaemonAddress) -> DaemonAddress {
    match place {
        DaemonAddress::Path(path) => DaemonAddress::Path(std::path::absolute(&path).unwrap_or(path)),
        other => other,
    }
}

/// Replaces this process by the program. Returns only if that fails.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (program, arguments) = args.program.split_first().ok_or("no program is named".to_owned())?;
    let path = find_program(program)?;
    // Before a daemon is started for it.
    access(&path, Access::EXEC_OK).map_err(|error| not_executable(&path, &error.into()))?;
    if path.is_dir() {
        return Err(not_executable(&path, &ErrorKind::PermissionDenied.into()));
    }
    let shim = find_shim()?;
    let place = absolute(DaemonAddress::from_environment());
    let daemon = match place.describe() {
        Err(NoDaemon::Absent) => start_daemon(&place)?,
        answer => answer
            .map_err(|error| format!("cannot use the daemon at {place}: {}", explain(&place, &error)))?,
    };
    if !args.quiet {
        note(format_args!("swiftwater: daemon {} at {place}: {}", daemon.process, daemon.carries));
    }
    if let Err(down) = host::check_loopback()
        && !args.quiet
    {
        note(format_args!("swiftwater: {down}"));
    }
    if let Some(trouble) = trouble_with(&path) {
        note(format_args!("swiftwater: {} {trouble}", program.display()));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    if !fails_with_preload(&path) {
        command.env(PRELOAD_VARIABLE, preload(&shim));
    }
    command.env(SANITIZER_VARIABLE, sanitizer_options());
    if let DaemonAddress::Path(path) = &place {
        command.env(ADDRESS_VARIABLE, path);
    }
    if args.quiet {
        command.env(QUIET_VARIABLE, "1");
    }
    if args.tcp_as_sctp {
        command.env(TCP_AS_SCTP_VARIABLE, "1");
    }
    if daemon.on_demand {
        command.env(ON_DEMAND_VARIABLE, "1");
    }
    Err(not_executable(&path, &command.exec()))
}

fn not_executable(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => "; `ls -l` shows whether it is an executable file",
        ErrorKind::NotFound => "; the interpreter that it names is missing",
        _ => "",
    };
    Failure::WithStatus(format!("cannot run {}: {error}{advice}", path.display()), EXIT_NOT_EXECUTABLE)
}

/// Returns the path of the shim, which lies beside this command or where packages put it.
pub(crate) fn find_shim() -> Result<PathBuf, String> {
    let command =
        std::env::current_exe().map_err(|error| format!("cannot locate the own executable: {error}"))?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(SHIM), folder.join("../lib/swiftwater").join(SHIM)];
    let found = places.iter().find(|place| place.is_file()).and_then(|place| place.canonicalize().ok());
    let shim = found.ok_or_else(|| {
        format!(
            "the shim {SHIM} is neither in {} nor in ../lib/swiftwater from there: `cargo install` installs the command alone; \
             `packaging/install` in the source installs both (--prefix ~/.cargo beside a command that is there already), as the packages do",
            folder.display()
        )
    })?;
    match trouble_with_shim(&shim) {
        Some(trouble) => Err(format!("the shim {} cannot be preloaded: {trouble}", shim.display())),
        None => Ok(shim),
    }
}

/// Returns the path of the shim for a measurement that runs this command under it.
pub(crate) fn find_shim_for_itself() -> Result<PathBuf, String> {
    let command =
        std::env::current_exe().map_err(|error| format!("cannot locate the own executable: {error}"))?;
    check_dynamic(&command)?;
    find_shim()
}

/// Fails if a program is linked statically.
fn check_dynamic(command: &Path) -> Result<(), String> {
    match is_static(command) {
        false => Ok(()),
        true => Err("this command is linked statically, and the shim works only in programs that are linked dynamically: \
             use the command of a package or of `cargo build`"
            .into()),
    }
}

/// Returns the reason for which the dynamic linker would not load the shim. It would run the program without SCTP all the same.
fn trouble_with_shim(shim: &Path) -> Option<String> {
    if shim.as_os_str().as_bytes().iter().any(|byte| PRELOAD_SEPARATORS.contains(byte)) {
        return Some(
            "LD_PRELOAD names no file with a space or a colon in its path: move the folder, or rename it"
                .into(),
        );
    }
    match File::open(shim) {
        Err(error) => Some(format!("{error}; make the file readable for all")),
        Ok(_) if !is_elf(shim) => Some("it is no shared library; install it again".into()),
        Ok(_) => None,
    }
}

/// Returns the value that preloads the shim before libraries that are preloaded already.
pub(crate) fn preload(shim: &Path) -> OsString {
    let mut all = shim.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Returns AddressSanitizer's options for a program with the shim. The last option of a name counts.
fn sanitizer_options() -> OsString {
    let mut all = OsString::from(ANY_LINK_ORDER);
    if let Some(others) = std::env::var_os(SANITIZER_VARIABLE) {
        all.push(":");
        all.push(others);
    }
    all
}

fn start_daemon(place: &DaemonAddress) -> Result<Description, String> {
    let command =
        std::env::current_exe().map_err(|error| format!("cannot locate the own executable: {error}"))?;
    // The daemon is no child of the program that follows, which may wait for all of its children.
    let mut starter = Command::new(command)
        .args(["daemon", "--orphan", "--detach", "--idle-exit", IDLE_EXIT_S, "--place", &place.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start a daemon: {error}"))?;
    // Its other end is the daemon's while it lives.
    let lifeline = starter.stdout.take();
    starter.wait().map_err(|error| format!("cannot start a daemon: {error}"))?;
    let deadline = Instant::now() + START_WAIT;
    loop {
        // Another process may have been quicker; then its daemon answers.
        if let Ok(found) = place.describe() {
            return Ok(found);
        }
        if has_ended(lifeline.as_ref()) && place.describe().is_err() {
            return Err(format!(
                "a daemon was started at {place} and has ended: `swiftwater daemon` says why, such as a UDP port in use; \
                 `swiftwater daemon --place {place} --udp-port PORT` uses another port, which every peer must use, too"
            ));
        }
        if Instant::now() > deadline {
            return Err(format!("the daemon that was started at {place} does not answer"));
        }
        thread::sleep(START_CHECK_INTERVAL);
    }
}

/// Returns whether nobody holds the other end of a pipe.
fn has_ended(lifeline: Option<&ChildStdout>) -> bool {
    let Some(lifeline) = lifeline else { return true };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(lifeline, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Returns the file for a name, as `execvp` finds it.
fn find_program(name: &OsStr) -> Result<PathBuf, Failure> {
    let has_folder = Path::new(name).components().count() > 1;
    let (found, reason) = if has_folder {
        (Some(PathBuf::from(name)).filter(|file| file.exists()), "there is no such file")
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
        (files.find(|file| file.is_file()), "no folder in PATH has it; install it, or give its path")
    };
    found.ok_or_else(|| {
        Failure::WithStatus(format!("cannot run {}: {reason}", name.display()), EXIT_NO_PROGRAM)
    })
}
