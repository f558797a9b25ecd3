//! `swiftwater daemon stop`, and the identification of a daemon's process.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
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

/// Daemon to end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swiftwater daemon stop                  end the daemon that `swiftwater run` has started
  swiftwater daemon stop --place @lab     end another one")]
pub(crate) struct StopArgs {
    /// Address of the daemon: @ and an abstract name, or a path [default: SWIFTWATER_DAEMON, or @swiftwater].
    #[arg(long, value_name = "PLACE", value_parser = NonEmptyStringValueParser::new())]
    pub place: Option<String>,
}

/// Sends SIGTERM to the daemon and waits until its process has ended.
pub(super) fn run(args: &StopArgs) -> Result<(), Failure> {
    let place = args.place.as_deref().map_or_else(DaemonAddress::from_environment, DaemonAddress::from);
    let daemon = peer(&place).map_err(|error| match error.kind() {
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
    let handle = pidfd_open(daemon.pid, PidfdFlags::empty()).map_err(|e| failed(io::Error::from(e)))?;
    // The descriptor now pins the process, so check that the number still belongs to it and that it still listens.
    if !is_daemon(&place, process.get()) || peer(&place).ok().map(|now| now.pid) != Some(daemon.pid) {
        let name =
            crate::host::process_name(process.get()).unwrap_or_else(|| "a process that is gone".into());
        return Err(format!(
            "the socket at {place} is held by {name}, process {process}, which is not a daemon of this command: \
             if a service manager started it, use `systemctl stop swiftwater.socket swiftwater.service`"
        )
        .into());
    }
    pidfd_send_signal(&handle, Signal::TERM).map_err(|e| failed(e.into()))?;
    let mut interest = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(STOP_WAIT).unwrap_or(PollTimeout::NONE);
    match poll(&mut interest, timeout).map_err(|e| failed(e.into()))? {
        0 => Err(format!(
            "the daemon at {place}, process {process}, was asked to end {} s ago and still runs; `kill -9 {process}` ends it at once",
            STOP_WAIT.as_secs()
        )
        .into()),
        _ => Ok(print(&format!("the daemon at {place}, process {process}, has ended\n"))?),
    }
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

/// Returns the credentials of the process that listens at an address.
fn peer(place: &DaemonAddress) -> io::Result<UCred> {
    let address = match place {
        DaemonAddress::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        DaemonAddress::Path(path) => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket_peercred(&socket)?)
}

/// Describes why this user cannot use the daemon at an address, and the remedy.
pub(crate) fn explain(place: &DaemonAddress, error: &NoDaemon) -> String {
    match (error, peer(place)) {
        (NoDaemon::Stranger { user }, Ok(daemon)) => format!(
            "it is process {} of user {user}, and only programs and commands of that user trust it: run this as that user; \
             or end it with `swiftwater daemon stop`, as root or as that user; or start one for yourself with \
             `swiftwater daemon --place @NAME --udp-port PORT`, with the same PORT at every peer, and set SWIFTWATER_DAEMON=@NAME. \
             A daemon of root serves all users",
            daemon.pid.as_raw_nonzero()
        ),
        (NoDaemon::Absent, _) if *place == DaemonAddress::from_environment() => {
            format!("{error}; `swiftwater run` starts one")
        }
        (NoDaemon::Absent, _) => format!("{error}; `swiftwater daemon --place {place}` starts one"),
        _ => error.to_string(),
    }
}
