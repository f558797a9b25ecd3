//! Reasons why a link could not be bound.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use crate::SCTP_TUNNELING_PORT;

/// Reason why a link could not be bound.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// Another program has the port.
    AddressInUse {
        /// The address that could not be bound.
        address: SocketAddr,
    },
    /// The address is not one of this host's.
    AddressNotAvailable {
        /// The address that could not be bound.
        address: SocketAddr,
    },
    /// The port needs a privilege that the program lacks.
    PermissionDenied {
        /// The address that could not be bound.
        address: SocketAddr,
    },
    /// The address occurs twice in the configuration.
    Duplicate {
        /// The address.
        address: IpAddr,
    },
    /// Raw IP needs a privilege that the program lacks.
    RawNotPermitted {
        /// The address that could not be bound.
        address: IpAddr,
    },
    /// The host does not support the address family.
    FamilyNotSupported {
        /// The address that could not be bound.
        address: SocketAddr,
    },
    /// The system refused for another reason.
    System {
        /// The address that could not be bound.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::AddressInUse { address } => write!(
                f,
                "UDP port {} on {} is in use: stop the program that has it, or bind another port (0 takes a free \
                 one) and have the peers name it with /udp:PORT in the address",
                address.port(),
                address.ip()
            ),
            BindError::AddressNotAvailable { address } => {
                write!(
                    f,
                    "{} is not an address of this host: choose one that `ip address` lists",
                    address.ip()
                )
            }
            BindError::PermissionDenied { address } => write!(
                f,
                "UDP port {} on {} may not be bound by this user: choose a port from 1024 up, such as {}",
                address.port(),
                address.ip(),
                SCTP_TUNNELING_PORT
            ),
            BindError::Duplicate { address } => {
                write!(f, "the local address {address} is named twice: name each address once")
            }
            BindError::RawNotPermitted { address } => write!(
                f,
                "SCTP directly over IP on {address} is not permitted: run as root, give the program the capability \
                 (`setcap cap_net_raw+ep PROGRAM`), or let UDP carry SCTP, which needs no privilege"
            ),
            BindError::FamilyNotSupported { address } => {
                let (has_not, other) = if address.is_ipv6() { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
                write!(f, "this host has no {has_not}, which {} needs: bind an {other} address", address.ip())
            }
            BindError::System { address, source } if address.port() == 0 => {
                write!(f, "no socket can be bound to {}: {source}", address.ip())
            }
            BindError::System { address, source } => {
                write!(f, "UDP port {} on {} cannot be bound: {source}", address.port(), address.ip())
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BindError::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl BindError {
    pub(crate) fn new(address: SocketAddr, errno: Errno) -> Self {
        match errno {
            Errno::EADDRINUSE => BindError::AddressInUse { address },
            Errno::EADDRNOTAVAIL => BindError::AddressNotAvailable { address },
            Errno::EACCES | Errno::EPERM => BindError::PermissionDenied { address },
            Errno::EAFNOSUPPORT => BindError::FamilyNotSupported { address },
            errno => BindError::System { address, source: errno.into() },
        }
    }
}
