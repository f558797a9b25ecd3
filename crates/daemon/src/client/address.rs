//! Addresses at which programs reach a daemon.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use carrier::name::{DAEMON, DAEMON_VARIABLE};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Time for a daemon to have room for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

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
    use super::*;

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
