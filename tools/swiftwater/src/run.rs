//! `swiftwater run`: starts a program whose SCTP sockets are ours.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use swiftwater_daemon::{Description, NoDaemon, Place};

/// The name of the shim's file.
pub(crate) const SHIM: &str = "libswiftwater_preload.so";
/// What names the shim to the dynamic linker.
pub(crate) const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// What tells the shim that it may start a daemon itself when this one has ended because nobody needed it.
const ON_DEMAND_VARIABLE: &str = "SWIFTWATER_ON_DEMAND";
/// What names the daemon's place to the shim.
pub(crate) const PLACE_VARIABLE: &str = "SWIFTWATER_DAEMON";
/// A daemon that is started answers within this time.
const START_WAIT: Duration = Duration::from_secs(5);
const START_LOOK: Duration = Duration::from_millis(10);
/// Seconds for which a daemon that was started here stays without a socket.
const IDLE_EXIT_S: &str = "60";

/// The program.
#[derive(Debug, Args)]
#[command(after_help = "\
The program, and what it starts in turn, gets SCTP sockets (SOCK_STREAM) from the daemon of this network
namespace, which is started if there is none. Everything else is as without.

Both ends need SCTP in UDP port 9899, or directly over IP: see `swiftwater daemon --help`.

Examples:
  swiftwater run -- socat SCTP-LISTEN:6001,reuseaddr,fork EXEC:cat
  swiftwater run -- socat - SCTP:127.0.0.1:6001
  swiftwater run -- iperf3 -s                  and on the client: swiftwater run -- iperf3 -c HOST --sctp")]
pub(crate) struct RunArgs {
    /// Do not say which daemon it is.
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Becomes the program. Returns only if that fails.
pub(crate) fn run(args: &RunArgs) -> Result<(), String> {
    let shim = find_shim()?;
    let place = Place::from_environment();
    let daemon = match place.describe() {
        Err(NoDaemon::Absent) => start_daemon(&place)?,
        answer => answer.map_err(|error| format!("the daemon at {place} is of no use: {error}"))?,
    };
    if !args.quiet {
        eprintln!("swiftwater: daemon {} at {place}: {}", daemon.process, daemon.carries);
    }
    let (program, arguments) = args.program.split_first().ok_or("no program is named")?;
    if let Some(trouble) = find_program(program).and_then(|path| trouble_with(&path)) {
        eprintln!("swiftwater: {} {trouble}", program.display());
    }
    let mut command = Command::new(program);
    command.args(arguments).env(PRELOAD_VARIABLE, preload(&shim));
    if daemon.on_demand {
        command.env(ON_DEMAND_VARIABLE, "1");
    }
    let error = command.exec();
    Err(format!("cannot run {}: {error}", program.display()))
}

/// The shim stands beside this command, or where packages put it.
pub(crate) fn find_shim() -> Result<PathBuf, String> {
    let command = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(SHIM), folder.join("../lib/swiftwater").join(SHIM)];
    let found = places.iter().find(|place| place.is_file()).and_then(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        format!(
            "{SHIM} is neither in {} nor in ../lib/swiftwater from there: install it, or build it with `cargo build --release -p swiftwater-preload`",
            folder.display()
        )
    })
}

/// The shim before what is preloaded already.
pub(crate) fn preload(shim: &Path) -> OsString {
    let mut all = shim.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

fn start_daemon(place: &Place) -> Result<Description, String> {
    let command = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let mut daemon = Command::new(command)
        .args(["daemon", "--detach", "--idle-exit", IDLE_EXIT_S, "--place", &place.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start a daemon: {error}"))?;
    let deadline = Instant::now() + START_WAIT;
    loop {
        // Should another have been quicker, that one answers.
        if let Ok(found) = place.describe() {
            return Ok(found);
        }
        if has_ended(&mut daemon) && place.describe().is_err() {
            return Err(format!(
                "a daemon was started at {place} and has ended: `swiftwater daemon` says why, such as a UDP port in use"
            ));
        }
        if Instant::now() > deadline {
            return Err(format!("the daemon that was started at {place} does not answer"));
        }
        thread::sleep(START_LOOK);
    }
}

fn has_ended(daemon: &mut Child) -> bool {
    matches!(daemon.try_wait(), Ok(Some(_)) | Err(_))
}

/// The file that a name stands for, as `execvp` finds it.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Why the shim cannot help a program, if so.
fn trouble_with(program: &Path) -> Option<&'static str> {
    const SET_USER_OR_GROUP: u32 = 0o6000;
    let mode = fs::metadata(program).ok()?.permissions().mode();
    if mode & SET_USER_OR_GROUP != 0 {
        return Some(
            "changes its user or group when it starts: the system preloads nothing into it, and its SCTP is the kernel's",
        );
    }
    is_static(program)
        .then_some("is linked statically: nothing can be preloaded into it, and its SCTP is the kernel's")
}

/// Whether it is linked statically.
pub(crate) fn is_static(program: &Path) -> bool {
    fs::read(program).is_ok_and(|file| is_elf(&file) && !has_interpreter(&file))
}

fn is_elf(file: &[u8]) -> bool {
    file.starts_with(b"\x7fELF\x02\x01")
}

/// Whether a 64-bit little-endian ELF file names a dynamic linker. What makes no sense is not for us to judge.
fn has_interpreter(file: &[u8]) -> bool {
    const PROGRAM_HEADERS_AT: usize = 32;
    const HEADER_BYTES_AT: usize = 54;
    const HEADERS_AT: usize = 56;
    const PT_INTERP: [u8; 4] = 3_u32.to_le_bytes();
    let half = |at: usize| file.get(at..at + 2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let start = file.get(PROGRAM_HEADERS_AT..).and_then(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b));
    let (Some(start), Some(bytes), Some(count)) = (start, half(HEADER_BYTES_AT), half(HEADERS_AT)) else {
        return true;
    };
    let headers = usize::try_from(start).ok().and_then(|start| file.get(start..));
    headers.is_none_or(|headers| headers.chunks(bytes.max(1)).take(count).any(|h| h.starts_with(&PT_INTERP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_dynamic_and_a_script_is_no_elf() {
        let me = fs::read(std::env::current_exe().expect("a path")).expect("it can be read");
        assert!(is_elf(&me) && has_interpreter(&me));
        assert!(!is_elf(b"#!/bin/sh"));
        let mut fixed = me[..64].to_vec();
        fixed[56..58].copy_from_slice(&[0, 0]);
        assert!(!has_interpreter(&fixed), "without program headers there is none");
    }

    #[test]
    fn set_user_programs_are_named() {
        let file = std::env::temp_dir().join(format!("swiftwater-setuid-{}", std::process::id()));
        fs::write(&file, "#!/bin/sh\n").expect("a file");
        assert_eq!(trouble_with(&file), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).expect("our own file");
        assert!(trouble_with(&file).expect("it has the bit").contains("its user or group"));
        fs::remove_file(&file).expect("our own file");
    }
}
