//! Where programs find a daemon.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use carrier::name::{DAEMON, DAEMON_VARIABLE};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Where programs find the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonAddress {
    /// A name of AF_UNIX that belongs to the network namespace and to no file system.
    Abstract(String),
    /// A socket in a file system.
    Path(PathBuf),
}

impl Default for DaemonAddress {
    /// Where the one daemon of a network namespace is.
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
    /// `@NAME` is an abstract name, anything else a path.
    fn from(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some(name) => DaemonAddress::Abstract(name.into()),
            None => DaemonAddress::Path(text.into()),
        }
    }
}

impl DaemonAddress {
    /// The one that `SWIFTWATER_DAEMON` names in the environment, or the usual one.
    pub fn from_environment() -> DaemonAddress {
        let named = std::env::var(DAEMON_VARIABLE.to_string_lossy().as_ref()).ok();
        named.as_deref().map(DaemonAddress::from).unwrap_or_default()
    }

    pub(crate) fn to_unix(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            DaemonAddress::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            DaemonAddress::Path(path) => SocketAddrUnix::new(path),
        }
    }

    /// A connection to whoever listens there.
    pub(crate) fn connect(&self) -> Result<OwnedFd, Errno> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &self.to_unix()?)?;
        Ok(socket)
    }
}

/// Why a place cannot be taken.
#[derive(Debug)]
pub enum DaemonAddressError {
    /// A daemon is there already.
    Taken(DaemonAddress),
    /// The system refused.
    System(DaemonAddress, io::Error),
}

impl fmt::Display for DaemonAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonAddressError::Taken(place) => {
                write!(f, "a daemon is at {place} already; `swiftwater run` uses it")
            }
            DaemonAddressError::System(place, error) => write!(f, "cannot listen at {place}: {error}"),
        }
    }
}

impl std::error::Error for DaemonAddressError {}
