//! Trials in a process of their own.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use netns::NotAllowed;
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use swiftwater::StackOptions;
use swiftwater_daemon::{Daemon, DaemonAddress, DaemonOptions};

use crate::host;
use crate::lab::line::{self, Attempt};
use crate::peer::print_line;
use crate::program::is_static;
use crate::run::{ADDRESS_VARIABLE, PRELOAD_VARIABLE, SHIM};

/// Limit for an association on loopback, which normally takes no time.
const WAIT: Duration = Duration::from_secs(5);

/// Kinds of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trial {
    /// Tries to get a user and a network namespace.
    Namespaces,
    /// Tries to join two hosts by a line, as the laboratory does.
    Laboratory,
    /// Tries to send itself a message over SCTP.
    Sockets,
}

/// Reason why the trial of the shim has failed.
pub(super) enum TrialError {
    /// There is no daemon for it.
    Daemon(String),
    /// The program of the trial has failed.
    Program(String),
}

impl Trial {
    pub(super) fn run(self) -> Result<(), String> {
        match self {
            Trial::Namespaces => enter_own_network(),
            Trial::Laboratory => {
                let attempt = line::attempt().map_err(|error| error.to_string())?;
                print_line(&attempt)
            }
            Trial::Sockets => {
                if !is_preloaded() {
                    return Err(format!("the dynamic linker has not loaded {SHIM}"));
                }
                send_to_myself().map_err(|error| format!("an SCTP socket under the shim: {error}"))
            }
        }
    }

    fn command(self) -> Result<Command, String> {
        let myself =
            std::env::current_exe().map_err(|error| format!("cannot locate the own executable: {error}"))?;
        let name = self.to_possible_value().ok_or("a trial has a name")?;
        let mut command = Command::new(myself);
        command.args(["doctor", "--trial", name.get_name()]);
        Ok(command)
    }
}

/// Enters a user namespace as its root, as the laboratory does for users, and a network of its own there.
fn enter_own_network() -> Result<(), String> {
    netns::enter_user_namespace().map_err(|error| match error {
        NotAllowed::Unshare(errno) => errno.desc().to_owned(),
        NotAllowed::Map { file, source } => format!("{file}: {source}"),
    })?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| errno.desc().to_owned())
}

fn is_preloaded() -> bool {
    fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains(SHIM))
}

fn send_to_myself() -> io::Result<()> {
    const TEXT: &[u8] = b"swiftwater";
    const SCTP: i32 = 132;
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(SCTP)))?;
        socket.set_read_timeout(Some(WAIT))?;
        socket.set_write_timeout(Some(WAIT))?;
        Ok::<_, io::Error>(socket)
    };
    let listener = open()?;
    listener.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
    listener.listen(1)?;
    let mut client = open()?;
    client.connect(&listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(TEXT)?;
    let mut read = [0; TEXT.len()];
    server.read_exact(&mut read)?;
    if read == TEXT { Ok(()) } else { Err(io::Error::other("another message came than was sent")) }
}

/// Tries whether an unprivileged process gets a network namespace of its own.
pub(super) fn in_namespaces() -> Result<(), String> {
    succeed(&mut Trial::Namespaces.command()?).map(drop)
}

/// Tries whether the laboratory can join two hosts by a line. Both are gone afterwards.
pub(super) fn in_laboratory() -> Result<Attempt, String> {
    let output = succeed(&mut Trial::Laboratory.command()?)?;
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// Tries whether a program with the shim gets SCTP sockets, from the daemon that runs if none can be started for the
/// trial; returns what it observed.
pub(super) fn preloaded(shim: &Path, running: Option<&DaemonAddress>) -> Result<&'static str, TrialError> {
    let mut command = Trial::Sockets.command().map_err(TrialError::Program)?;
    if is_static(Path::new(command.get_program())) {
        return shows_shim(shim).map_err(TrialError::Program);
    }
    // Other users could take a name that they can guess.
    let own = DaemonAddress::Abstract(format!("swiftwater-doctor-{:016x}", host::random()));
    let place = match (serve(&own), running) {
        (Ok(()), _) => &own,
        (Err(_), Some(running)) => running,
        (Err(error), None) => return Err(TrialError::Daemon(error)),
    };
    command.env(PRELOAD_VARIABLE, shim).env(ADDRESS_VARIABLE, place.to_string());
    let tried = succeed(&mut command).map_err(TrialError::Program);
    tried.map(|_| "a program under the shim made an association and sent itself a message")
}

/// Tries whether the shim is loaded into another program, because this command is linked statically.
fn shows_shim(shim: &Path) -> Result<&'static str, String> {
    let output = succeed(Command::new("cat").arg("/proc/self/maps").env(PRELOAD_VARIABLE, shim))?;
    let is_there = String::from_utf8_lossy(&output.stdout).contains(SHIM);
    is_there.then_some("the dynamic linker loads it").ok_or_else(|| {
        format!("the dynamic linker has not loaded it: {}", String::from_utf8_lossy(&output.stderr).trim())
    })
}

/// Starts a daemon that ends with this process.
fn serve(place: &DaemonAddress) -> Result<(), String> {
    let stack = StackOptions::default().with_udp_port(0);
    let options = DaemonOptions { address: place.clone(), stack, ..DaemonOptions::default() };
    let daemon = Daemon::bind(&options).map_err(|error| format!("no daemon can be started: {error}"))?;
    thread::spawn(move || daemon.run());
    Ok(())
}

/// Runs a command that must succeed, and returns its output.
fn succeed(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("swiftwater: ");
    Err(if said.is_empty() { output.status.to_string() } else { said.to_owned() })
}
