//! `swiftwater daemon stop`, and the identification of a daemon's process.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerPidfd;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred};
use rustix::process::{PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use swiftwater_daemon::{DaemonAddress, NoDaemon, trusts_daemon_of};

use crate::failure::Failure;
use crate::output::print;

/// Time within which a daemon must end after the request.
const STOP_WAIT: Duration = Duration::from_secs(15);
/// Beginning of the name that the kernel gives to processes of this command.
const COMMAND: &str = "swiftwater";
/// Remedy where a service manager holds the socket of the daemon.
const STOP_SERVICE: &str =
    "a service manager has started it; use `systemctl stop swiftwater.socket swiftwater.service`";

/// Daemon to end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swiftwater daemon stop                  end the daemon that `swiftwater run` has started
  swiftwater daemon stop --place @lab     end another one")]
pub(crate) struct StopArgs {
    /// Address of the daemon: @ and an abstract name, or a path [default: SWIFTWATER_DAEMON, or @swiftwater].
    #[arg(long, value_name = "ADDRESS", value_parser = NonEmptyStringValueParser::new())]
    pub place: Option<String>,
}

/// Sends SIGTERM to the daemon and waits until its process has ended.
pub(super) fn run(args: &StopArgs) -> Result<(), Failure> {
    let place = args.place.as_deref().map_or_else(DaemonAddress::from_environment, DaemonAddress::from);
    let (socket, daemon) = peer(&place).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            format!(
                "no daemon is running at {place}; name another place with --place, or in SWIFTWATER_DAEMON"
            )
        }
        _ => format!("no daemon answers at {place}: {error}"),
    })?;
    let process = daemon.pid.as_raw_nonzero();
    let user = daemon.uid.as_raw();
    if !may_end(user) {
        return Err(format!(
            "the daemon at {place}, process {process}, is user {user}'s: only root and that user end it"
        )
        .into());
    }
    let failed = |error| format!("cannot end the daemon at {place}, process {process}: {error}");
    let handle = handle_of(&socket, &daemon).map_err(|error| match error.raw_os_error() {
        // The number may be another process's by now.
        Some(libc::ESRCH | libc::EINVAL) => ended(&place, process.get()),
        _ => failed(error),
    })?;
    if ends_within(&handle, PollTimeout::ZERO).map_err(|e| failed(e.into()))? {
        return Err(ended(&place, process.get()).into());
    }
    // The descriptor now pins the process, so check that the number still belongs to it and that it still listens.
    if !is_daemon(&place, process.get()) || peer(&place).ok().map(|(_, now)| now.pid) != Some(daemon.pid) {
        return Err(held_by_another(&place, process.get()).into());
    }
    pidfd_send_signal(&handle, Signal::TERM).map_err(|e| failed(e.into()))?;
    let timeout = PollTimeout::try_from(STOP_WAIT).unwrap_or(PollTimeout::NONE);
    match ends_within(&handle, timeout).map_err(|e| failed(e.into()))? {
        false => Err(format!(
            "the daemon at {place}, process {process}, was asked to end {} s ago and still runs; `kill -9 {process}` ends it at once",
            STOP_WAIT.as_secs()
        )
        .into()),
        true => Ok(print(&format!("the daemon at {place}, process {process}, has ended\n"))?),
    }
}

/// Describes the process that holds a daemon's socket and is no daemon of this command, with the remedy.
fn held_by_another(place: &DaemonAddress, process: i32) -> String {
    let name = crate::host::printable_process_name(process);
    let remedy = match name.as_deref() {
        Some(name) if is_service_manager(name) => STOP_SERVICE.to_owned(),
        Some(_) => format!("`kill {process}` ends it"),
        None => "try again".to_owned(),
    };
    let name = name.as_deref().unwrap_or("a process that is gone");
    format!(
        "the socket at {place} is held by {name}, process {process}, which is not a daemon of this command: {remedy}"
    )
}

/// Returns whether a process of this name makes sockets for services.
fn is_service_manager(name: &str) -> bool {
    name == "systemd"
}

/// Returns whether `user`'s daemon may be ended by this user: root may end any.
fn may_end(user: u32) -> bool {
    geteuid().is_root() || trusts_daemon_of(user)
}

/// Returns whether a process is the daemon at an address, rather than a service manager that made its socket.
fn is_daemon(place: &DaemonAddress, process: i32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.is_ok_and(|name| name.starts_with(COMMAND))
        // A copy of this command may have any name.
        || place.describe().is_ok_and(|description| description.process == process)
}

/// Waits for the end of a process; returns whether it has come.
fn ends_within(handle: &OwnedFd, timeout: PollTimeout) -> nix::Result<bool> {
    poll(&mut [PollFd::new(handle.as_fd(), PollFlags::POLLIN)], timeout).map(|ready| ready > 0)
}

/// Opens a handle of the process that listens, which has no number that may pass to another process. Linux before 6.5 knows only
/// the number.
fn handle_of(socket: &OwnedFd, listener: &UCred) -> io::Result<OwnedFd> {
    match getsockopt(socket, PeerPidfd) {
        Err(nix::errno::Errno::ENOPROTOOPT) => {
            let handle = pidfd_open(listener.pid, PidfdFlags::empty())?;
            let process = fs::metadata(format!("/proc/{}", listener.pid.as_raw_nonzero()))?;
            let is_same_user = process.uid() == listener.uid.as_raw();
            if is_same_user { Ok(handle) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
        }
        handle => Ok(handle?),
    }
}

/// Describes a socket whose maker has ended.
fn ended(place: &DaemonAddress, process: i32) -> String {
    format!(
        "the socket at {place} was made by process {process}, which has ended, and another one holds it: \
         `ss -xlp` as root names that one"
    )
}

/// Connects to a daemon; returns the connection, and the credentials of the process that listens.
fn peer(place: &DaemonAddress) -> io::Result<(OwnedFd, UCred)> {
    let address = match place {
        DaemonAddress::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        DaemonAddress::Path(path) => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    let credentials = socket_peercred(&socket)?;
    Ok((socket, credentials))
}

/// Describes why this user cannot use the daemon at an address, and the remedy.
pub(crate) fn explain(place: &DaemonAddress, error: &NoDaemon) -> String {
    match (error, peer(place)) {
        (NoDaemon::Stranger { user }, Ok((_, daemon))) => format!(
            "it is process {} of user {user}, and only programs and commands of that user trust it: run this as that user; \
             or end it with `swiftwater daemon stop`, as root or as that user; or start one for yourself with \
             `swiftwater daemon --place @NAME --udp-port PORT`, with the same PORT at every peer, and set SWIFTWATER_DAEMON=@NAME. \
             A daemon of root serves all users",
            daemon.pid.as_raw_nonzero()
        ),
        (NoDaemon::OtherVersion, Ok((_, daemon))) => other_version(place, daemon.pid.as_raw_nonzero().get()),
        (NoDaemon::Absent, _) if *place == DaemonAddress::from_environment() => {
            format!("{error}; `swiftwater run` starts one")
        }
        (NoDaemon::Absent, _) => format!("{error}; `swiftwater daemon --place {place}` starts one"),
        _ => error.to_string(),
    }
}

/// Describes a daemon of another version, with the remedy.
fn other_version(place: &DaemonAddress, process: i32) -> String {
    let name = crate::host::printable_process_name(process).unwrap_or_default();
    let option =
        if *place == DaemonAddress::from_environment() { String::new() } else { format!(" --place {place}") };
    let remedy = if is_service_manager(&name) {
        "`systemctl restart swiftwater.service` as root starts it in this version".to_owned()
    } else if name.starts_with(COMMAND) {
        format!(
            "end it with `swiftwater daemon stop{option}`, as its user or as root, when its programs may lose their associations; \
             the next `swiftwater run` starts one of this version"
        )
    } else {
        format!("end that program (`kill {process}`), or choose another place: SWIFTWATER_DAEMON=@NAME")
    };
    format!(
        "{}, process {process}, has another version of Swiftwater than this command: {remedy}",
        if name.is_empty() { "it" } else { &name }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_of_the_socket_has_its_remedy() {
        let place = DaemonAddress::from("@here");
        let process = i32::try_from(std::process::id()).expect("a process id");
        // The tests are processes of this command's name, or of another one.
        let said = held_by_another(&place, process);
        assert!(said.contains(&format!("kill {process}")) && !said.contains("systemctl"), "{said}");
        assert!(held_by_another(&place, i32::MAX).contains("that is gone"));
        assert!(is_service_manager("systemd") && !is_service_manager("own_modules"));
    }

    #[test]
    fn a_daemon_of_another_version_is_named_with_the_remedy() {
        let place = DaemonAddress::from("@here");
        let process = i32::try_from(std::process::id()).expect("a process id");
        let said = other_version(&place, process);
        let remedies = ["swiftwater daemon stop --place @here".to_owned(), format!("kill {process}")];
        assert!(remedies.iter().any(|remedy| said.contains(remedy)), "{said}");
        assert!(said.contains("another version"), "{said}");
    }
}
