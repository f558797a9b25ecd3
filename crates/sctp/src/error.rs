//! Errors, one enum for each operation.

use std::fmt;
use std::io;
use std::net::IpAddr;

pub use sctp_message::SendError;
use sctp_wire::cause::UserInitiatedAbort;

/// Reason why an association was not started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// The address list is empty.
    NoAddress,
    /// An association between these ports and this address exists already.
    Exists,
    /// No permitted local address has the family of any of the peer's addresses.
    NoSource,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::NoAddress => f.write_str("name at least one address of the peer"),
            ConnectError::NoSource => f.write_str(
                "none of the local addresses reaches the peer's; name one of the same family in local_addresses",
            ),
            ConnectError::Exists => {
                f.write_str("an association with this peer and these ports exists already; use it or choose another local port")
            }
        }
    }
}

impl std::error::Error for ConnectError {}

/// Reason why an operation on a path of an association failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PathError {
    /// The association has ended.
    Closed,
    /// The peer has no such address.
    NoSuchPath {
        /// The requested address.
        address: IpAddr,
    },
    /// The address is not confirmed as the peer's yet (RFC 9260 §5.4).
    Unconfirmed {
        /// The requested address.
        address: IpAddr,
    },
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Closed => f.write_str("the association is gone; connect again"),
            PathError::NoSuchPath { address } => {
                write!(
                    f,
                    "the peer has no address {address}; choose one of the paths that the statistics list"
                )
            }
            PathError::Unconfirmed { address } => write!(
                f,
                "the peer has not answered at {address} yet; wait until the statistics show that path as active, then ask again"
            ),
        }
    }
}

impl std::error::Error for PathError {}

impl From<PathError> for io::Error {
    fn from(error: PathError) -> Self {
        let kind = match error {
            PathError::Closed => io::ErrorKind::NotConnected,
            PathError::NoSuchPath { .. } | PathError::Unconfirmed { .. } => io::ErrorKind::AddrNotAvailable,
        };
        io::Error::new(kind, error)
    }
}

/// Reason why an association has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Both sides have shut down, and everything was delivered.
    Shutdown,
    /// The peer has sent an ABORT.
    PeerAborted {
        /// Code of the first error cause in the ABORT (RFC 9260 §3.3.10); `None` if it has none.
        cause: Option<u16>,
        /// The user-initiated abort reason in the ABORT, or the name of the error cause.
        text: String,
    },
    /// The local user has aborted the association.
    Aborted,
    /// The peer did not answer the INIT.
    NoAnswer,
    /// No listener has the port: the host has answered with an ICMP message or with an ABORT in reply to the INIT.
    Refused,
    /// There is no route to the peer.
    Unreachable,
    /// The peer's host does not support the protocol, or no longer does.
    NoProtocol,
    /// The peer no longer answers.
    Timeout,
    /// The peer has violated the protocol.
    ProtocolViolation {
        /// Code of the error cause of the violation, which the ABORT to the peer has (RFC 9260 §3.3.10).
        cause: u16,
        /// A description of the violation.
        how: &'static str,
    },
    /// An internal fault has occurred.
    Fault,
}

impl CloseReason {
    /// Returns the code of the error cause that ended the association, sent by either side (RFC 9260 §3.3.10); 0 for
    /// none, also for a peer that no longer answers: the ABORT to it only ends its side.
    pub fn cause(&self) -> u16 {
        match self {
            CloseReason::PeerAborted { cause, .. } => cause.unwrap_or(0),
            CloseReason::Aborted => UserInitiatedAbort::KIND,
            CloseReason::ProtocolViolation { cause, .. } => *cause,
            CloseReason::Shutdown
            | CloseReason::NoAnswer
            | CloseReason::Refused
            | CloseReason::Unreachable
            | CloseReason::NoProtocol
            | CloseReason::Timeout
            | CloseReason::Fault => 0,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Shutdown => f.write_str("the association was shut down"),
            CloseReason::PeerAborted { text, .. } if text.is_empty() => {
                f.write_str("the peer aborted the association")
            }
            CloseReason::PeerAborted { text, .. } => write!(f, "the peer aborted the association: {text}"),
            CloseReason::Aborted => f.write_str("the association was aborted on this side"),
            CloseReason::NoAnswer => f.write_str(
                "the peer did not answer; check the address, that a server runs there, and that UDP port 9899 (or the one named) passes the firewall",
            ),
            CloseReason::Refused => {
                f.write_str("the peer refused the association; start a server on that port, or check the SCTP and UDP port")
            }
            CloseReason::Unreachable => f.write_str("there is no route to the peer; check the address and the routes"),
            CloseReason::NoProtocol => f.write_str(
                "the peer's host says that it does not speak SCTP; start SCTP there, or check the address",
            ),
            CloseReason::Timeout => f.write_str("the peer stopped answering; the association was given up"),
            CloseReason::ProtocolViolation { how, .. } => write!(f, "the peer broke the protocol: {how}"),
            CloseReason::Fault => f.write_str("this side had an internal fault and aborted the association; please report it"),
        }
    }
}

impl std::error::Error for CloseReason {}

/// Displays a type by its `name`, and parses it from the names of its values (`ALL`).
macro_rules! by_name {
    ($type:ident, $unknown:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let found = $type::ALL.into_iter().find(|value| value.name() == name);
                found.ok_or($crate::error::UnknownName($unknown))
            }
        }
    };
}
pub(crate) use by_name;

/// A name that denotes none of the choices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownName(pub(crate) &'static str);

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for UnknownName {}
