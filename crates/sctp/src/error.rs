//! Errors, one enum per operation.

use std::fmt;
use std::net::IpAddr;

use sctp_wire::cause::{ProtocolViolation, UserInitiatedAbort};

/// Why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The association is gone or going.
    Closed,
    /// The peer has shut the association down (RFC 9260 §9.2).
    PeerShutdown,
    /// No such outbound stream.
    NoSuchStream {
        /// The stream asked for.
        stream: u16,
        /// How many outbound streams the association has.
        streams: u16,
    },
    /// The message is longer than the limit.
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit (`message_bytes_max`).
        limit_bytes: usize,
    },
    /// SCTP has no empty messages.
    Empty,
    /// A record is being sent in parts on another stream, and nothing may come between its parts.
    RecordOpen {
        /// Stream of the open record.
        stream: u16,
    },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Closed => {
                f.write_str("the association is closed or closing; connect again to send more")
            }
            SendError::PeerShutdown => f.write_str(
                "the peer has shut the association down and takes no more; connect again to send more",
            ),
            SendError::NoSuchStream { stream, streams } => write!(
                f,
                "stream {stream} does not exist: this association has outbound streams 0 to {}; ask for more with streams_out before connecting",
                streams.saturating_sub(1)
            ),
            SendError::TooLong { bytes, limit_bytes } => write!(
                f,
                "a message of {bytes} bytes is over the limit of {limit_bytes}; split it or raise message_bytes_max"
            ),
            SendError::RecordOpen { stream } => write!(
                f,
                "a record is still open on stream {stream}; end it with a message that has no `more` before sending another"
            ),
            SendError::Empty => f.write_str("a message must have at least one byte (RFC 9260 §3.3.1)"),
        }
    }
}

impl std::error::Error for SendError {}

/// Why an association could not even be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// No peer address was given.
    NoAddress,
    /// An association between these two ports and this address exists already.
    Exists,
    /// None of the local addresses that it may use is of the family of one of the peer's.
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

/// Why what was asked of a path of an association was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrimaryError {
    /// The association is gone.
    Closed,
    /// The peer has no such address.
    NoSuchPath {
        /// The address asked for.
        address: IpAddr,
    },
    /// It is not shown yet that the address is the peer's.
    Unconfirmed {
        /// The address asked for.
        address: IpAddr,
    },
}

impl fmt::Display for PrimaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrimaryError::Closed => f.write_str("the association is gone; connect again"),
            PrimaryError::NoSuchPath { address } => {
                write!(
                    f,
                    "the peer has no address {address}; choose one of the paths that the statistics list"
                )
            }
            PrimaryError::Unconfirmed { address } => write!(
                f,
                "the peer has not answered at {address} yet; wait until the statistics show that path as active, then ask again"
            ),
        }
    }
}

impl std::error::Error for PrimaryError {}

/// Why an association ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Both sides shut down; everything was delivered.
    Shutdown,
    /// The peer aborted.
    PeerAborted {
        /// The code of the first error cause that it named (RFC 9260 §3.3.10); 0 if it named none.
        cause: u16,
        /// Its user-initiated abort reason, or the name of the error cause.
        text: String,
    },
    /// We aborted on the user's behalf.
    Aborted,
    /// The INIT was not answered.
    NoAnswer,
    /// The host answered that nobody listens (ICMP port unreachable, or an ABORT in reply to the INIT).
    Refused,
    /// No route to the peer.
    Unreachable,
    /// The peer's host does not speak the protocol (any more).
    NoProtocol,
    /// The peer stopped answering.
    Timeout,
    /// The peer broke the protocol; the text says how.
    ProtocolViolation(&'static str),
    /// Messages wait for streams that the peer does not allow.
    TooFewStreams {
        /// How many it allows.
        streams: u16,
    },
    /// A fault of our own.
    Fault,
}

impl CloseReason {
    /// Returns the error cause that has ended the association, reported by the peer or to it (RFC 9260 §3.3.10); 0 for none.
    pub fn cause(&self) -> u16 {
        match self {
            CloseReason::PeerAborted { cause, .. } => *cause,
            CloseReason::Aborted | CloseReason::TooFewStreams { .. } => UserInitiatedAbort::KIND,
            CloseReason::ProtocolViolation(_) => ProtocolViolation::KIND,
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
            CloseReason::ProtocolViolation(how) => write!(f, "the peer broke the protocol: {how}"),
            CloseReason::TooFewStreams { streams } => write!(
                f,
                "messages were sent on streams that the peer does not allow; it takes {streams}, so send on streams below that, or wait until the association is up"
            ),
            CloseReason::Fault => f.write_str("this side had an internal fault and aborted the association; please report it"),
        }
    }
}

impl std::error::Error for CloseReason {}

/// The name of a choice that there is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownName(pub(crate) &'static str);

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for UnknownName {}
