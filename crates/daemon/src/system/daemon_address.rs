//! Addresses at which a daemon listens and programs reach it.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use channel_protocol::name::{DAEMON, DAEMON_VARIABLE};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::listener::Listener;

/// Time for a daemon to have room for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of connections that wait in the kernel, in one line for all users: a user that connects without pause delays
/// another user's request by the time that the daemon takes to accept this number. The socket of a service manager has its own.
const BACKLOG: i32 = 64;

/// The address at which programs reach the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonAddress {
    /// An abstract AF_UNIX name, which belongs to the network namespace and to no file system.
    Abstract(String),
    /// A socket in a file system.
    Path(PathBuf),
}

impl Default for DaemonAddress {
    /// Returns the address of the one daemon of a network namespace.
    fn default() -> Self {
        DaemonAddress::Abstract(DAEMON.into())
    }
}

impl fmt::Display for DaemonAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonAddress::Abstract(name) => write!(f, "@{name}"),
            DaemonAddress::Path(path) => path.display().fmt(f),
        }
    }
}

impl From<&str> for DaemonAddress {
    /// Parses `@NAME` as an abstract name, anything else as a path.
    fn from(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some(name) => DaemonAddress::Abstract(name.into()),
            None => DaemonAddress::Path(text.into()),
        }
    }
}

impl DaemonAddress {
    /// Returns the address in the environment variable `SWIFTWATER_DAEMON`, or the default. An empty value counts as none.
    pub fn from_environment() -> DaemonAddress {
        let named = std::env::var(DAEMON_VARIABLE.to_string_lossy().as_ref());
        DaemonAddress::from_variable(&named.unwrap_or_default())
    }

    fn from_variable(value: &str) -> DaemonAddress {
        if value.is_empty() { DaemonAddress::default() } else { DaemonAddress::from(value) }
    }

    pub(crate) fn to_unix(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            DaemonAddress::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            DaemonAddress::Path(path) => SocketAddrUnix::new(path),
        }
    }

    /// Listens at this address. Takes the place of a daemon that has crashed, and of nothing else.
    pub(crate) fn listen(&self) -> Result<Listener, DaemonAddressError> {
        let failed = |error: Errno| match (error, self) {
            (Errno::ADDRINUSE, DaemonAddress::Path(path)) if !is_socket(path) => {
                DaemonAddressError::System(self.clone(), Errno::EXIST.into())
            }
            (Errno::ADDRINUSE, _) => DaemonAddressError::Taken(self.clone()),
            _ => DaemonAddressError::System(self.clone(), error.into()),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(failed)?;
        if let DaemonAddress::Path(path) = self
            && is_socket(path)
            && self.connect().is_err_and(|error| error == Errno::CONNREFUSED)
        {
            // Remove the socket of a crashed daemon, on which no process listens. If that fails, so does the bind.
            let _ = std::fs::remove_file(path);
        }
        rustix::net::bind(&socket, &self.to_unix().map_err(failed)?).map_err(failed)?;
        rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
        match self {
            DaemonAddress::Path(path) => {
                Listener::at(socket, path).map_err(|error| DaemonAddressError::System(self.clone(), error))
            }
            DaemonAddress::Abstract(_) => Ok(socket.into()),
        }
    }

    /// Connects to the process that listens at this address. Fails with `EAGAIN` if that accepts no connection for
    /// [`CONNECT_WAIT`]: any user can listen there first.
    pub(crate) fn connect(&self) -> Result<OwnedFd, Errno> {
        self.connect_within(CONNECT_WAIT)
    }

    fn connect_within(&self, wait: Duration) -> Result<OwnedFd, Errno> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(wait))?;
        rustix::net::connect(&socket, &self.to_unix()?)?;
        Ok(socket)
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Reason why a daemon cannot listen at an address.
#[derive(Debug)]
pub enum DaemonAddressError {
    /// Another daemon listens there.
    Taken(DaemonAddress),
    /// A system call failed.
    System(DaemonAddress, io::Error),
}

impl fmt::Display for DaemonAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonAddressError::Taken(place) => {
                write!(f, "a daemon already listens at {place}")
            }
            DaemonAddressError::System(place, error) => write!(f, "cannot listen at {place}: {error}"),
        }
    }
}

impl std::error::Error for DaemonAddressError {}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_daemon_takes_the_place_of_a_dead_one_and_of_nothing_else() {
        let path = std::env::temp_dir().join(format!("swiftwater-address-{}", std::process::id()));
        let place = DaemonAddress::Path(path.clone());
        fs::write(&path, "another program's file").expect("a file");
        let refusal = place.listen().expect_err("the file is not a socket");
        assert!(matches!(refusal, DaemonAddressError::System(..)), "no daemon listens there: {refusal}");
        assert_eq!(fs::read(&path).expect("the file remains"), b"another program's file");
        fs::remove_file(&path).expect("the file exists");
        let daemon = place.listen().expect("the address is free");
        assert!(matches!(place.listen(), Err(DaemonAddressError::Taken(_))), "a daemon listens there");
        drop(daemon);
        assert!(!path.exists(), "a daemon removes its file");
        let killed = place.listen().expect("the address is free");
        let aside = path.with_extension("aside");
        fs::rename(&path, &aside).expect("the file exists");
        drop(killed);
        fs::rename(&aside, &path).expect("the file exists");
        drop(place.listen().expect("the socket of a dead daemon is removed"));
    }

    #[test]
    fn an_address_is_written_as_it_is_read() {
        let named = DaemonAddress::from("@name");
        assert_eq!(named, DaemonAddress::Abstract("name".into()));
        let path = DaemonAddress::from("/run/name");
        assert_eq!(path, DaemonAddress::Path("/run/name".into()));
        assert_eq!((named.to_string(), path.to_string()), ("@name".into(), "/run/name".into()));
    }

    #[test]
    fn an_empty_variable_names_no_address() {
        assert_eq!(DaemonAddress::from_variable(""), DaemonAddress::default());
        assert_eq!(DaemonAddress::from_variable("@name"), DaemonAddress::from("@name"));
    }

    #[test]
    fn a_process_that_accepts_no_connections_is_not_awaited_for_ever() {
        let name = DaemonAddress::from(format!("@silent-{}", std::process::id()).as_str());
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        rustix::net::bind(&listener, &name.to_unix().expect("short")).expect("a free name");
        rustix::net::listen(&listener, 0).expect("it is bound");
        let _waiting = name.connect().expect("one may wait");
        let refused = name.connect_within(Duration::from_millis(20));
        assert_eq!(refused.expect_err("the backlog is full"), Errno::AGAIN);
    }

    #[test]
    fn an_error_names_the_address_and_the_cause() {
        let named = || DaemonAddress::from("@name");
        let taken = DaemonAddressError::Taken(named()).to_string();
        assert!(taken.contains("a daemon already listens at @name"), "{taken}");
        let denied = DaemonAddressError::System(named(), Errno::ACCESS.into()).to_string();
        assert!(denied.starts_with("cannot listen at @name: Permission denied"), "{denied}");
    }
}
