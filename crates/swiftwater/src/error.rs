//! Errors, one enum per operation. Each message is complete by itself and states the remedy; `source` returns the cause
//! as a value.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use streams::Chain;
use tpi::Errno;

use crate::LinkBindError;
use crate::address::{Address, AddressError};

/// Reason why sockets could not be bound, or why a port could not be listened on.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// The text is not a valid address.
    Address(AddressError),
    /// The sockets could not be bound.
    Link(LinkBindError),
    /// Another listener or endpoint of this stack uses the SCTP port.
    PortInUse {
        /// The SCTP port.
        port: u16,
    },
    /// The stack can open no further listener or association.
    Unavailable {
        /// The reason.
        reason: String,
    },
    /// The system lacks what a stack needs besides its sockets.
    System {
        /// The part that failed: the random numbers, or the thread and the descriptors that it waits on.
        what: &'static str,
        /// The error of the system.
        error: io::Error,
    },
}

impl BindError {
    /// Returns the error of a stack that opens no further stream.
    pub(crate) fn unavailable(reason: impl fmt::Display) -> BindError {
        BindError::Unavailable { reason: reason.to_string() }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::Address(e) => e.fmt(f),
            BindError::Link(e) => e.fmt(f),
            BindError::PortInUse { port } => {
                write!(
                    f,
                    "SCTP port {port} is in use by this stack; close the other listener or choose another port"
                )
            }
            BindError::Unavailable { reason } => write!(
                f,
                "the stack can open no further listener or association: {reason}; close others, or bind another stack"
            ),
            BindError::System { what, error } => {
                write!(
                    f,
                    "cannot {what}: {error}; raise the limits of the process (`ulimit -n`, `ulimit -u`)"
                )
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BindError::Address(error) => Some(error),
            BindError::Link(error) => Some(error),
            BindError::System { error, .. } => Some(error),
            BindError::PortInUse { .. } | BindError::Unavailable { .. } => None,
        }
    }
}

impl From<AddressError> for BindError {
    fn from(e: AddressError) -> Self {
        BindError::Address(e)
    }
}

/// Reason why an association did not come up.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is not a valid address.
    Address(AddressError),
    /// The local sockets could not be bound.
    Bind(BindError),
    /// No server can have the address: its SCTP port is 0, or its host is a multicast or broadcast address.
    InvalidRemote(SocketAddr),
    /// No server can have the address: its UDP port is 0.
    InvalidUdpPort(Address),
    /// No server listens at the address: the host has answered with an ABORT without error cause, or with an ICMP message.
    Refused,
    /// The host has not answered (Max.Init.Retransmits), or not within the time limit of the call.
    TimedOut,
    /// No route to the host.
    Unreachable,
    /// No local address has the family (IPv4, IPv6) of any of the server's addresses.
    Family {
        /// The first of the server's addresses.
        host: IpAddr,
    },
    /// An association with this peer and these ports exists already.
    Exists,
    /// All local SCTP ports have an association with this peer.
    NoPort,
    /// The peer has aborted the handshake for an error cause, such as out of resource, or has violated the protocol
    /// ([`Loss::cause`]), or this side has failed.
    Lost(Loss),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Address(e) => e.fmt(f),
            ConnectError::Bind(e) => e.fmt(f),
            ConnectError::InvalidRemote(address) if address.port() == 0 => {
                write!(f, "cannot connect to {address}: no server has port 0; name the port on which the server listens")
            }
            ConnectError::InvalidUdpPort(address) => {
                write!(f, "cannot connect to {address}: no server has UDP port 0; name that of the server, or none for 9899")
            }
            ConnectError::InvalidRemote(address) => {
                write!(f, "cannot connect to {address}: it is the address of several hosts; name that of one host")
            }
            ConnectError::Refused => f.write_str(
                "connection refused: no server listens there; start the server, or check the SCTP port and the UDP port (/udp:PORT)",
            ),
            ConnectError::TimedOut => f.write_str(
                "no answer: check the address, that a server runs there, and that its UDP port (9899 unless /udp:PORT says otherwise), or with raw IP protocol 132, passes every firewall",
            ),
            ConnectError::Family { host } => {
                let family = if host.is_ipv6() { "IPv6" } else { "IPv4" };
                write!(f, "{host} cannot be reached from the local addresses: bind an {family} address, too, or none")
            }
            ConnectError::Unreachable => f.write_str("no route to the host: check the address and the routes"),
            ConnectError::Exists => {
                f.write_str("an association with this peer and these ports exists already; use it, or another local port")
            }
            ConnectError::NoPort => f.write_str(
                "all local SCTP ports have an association with this peer; close some of them, or connect from another stack",
            ),
            ConnectError::Lost(loss) => {
                let remedy = match loss.kind {
                    LossKind::PeerAborted => "ask its operator, or see its log",
                    LossKind::Violation => "compare the implementations of both ends",
                    LossKind::Fault => "connect again from another stack",
                    _ => "connect again",
                };
                write!(f, "the association was lost while it was set up: {loss}; {remedy}")
            }
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Address(error) => Some(error),
            ConnectError::Bind(error) => Some(error),
            ConnectError::Lost(loss) => Some(loss),
            _ => None,
        }
    }
}

impl From<AddressError> for ConnectError {
    fn from(e: AddressError) -> Self {
        ConnectError::Address(e)
    }
}

impl From<BindError> for ConnectError {
    fn from(e: BindError) -> Self {
        ConnectError::Bind(e)
    }
}

/// Reason why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The send buffer is full, and the call must not wait.
    WouldBlock,
    /// The send buffer did not have room in time. Nothing was sent.
    TimedOut,
    /// The association is closed or closing.
    Closed,
    /// The peer has shut the association down and accepts no more messages (RFC 9260 §9.2).
    PeerShutdown,
    /// The association has no such outbound stream.
    NoSuchStream {
        /// The requested stream.
        stream: u16,
        /// The number of outbound streams.
        streams: u16,
    },
    /// The message is longer than [`AssociationOptions::message_bytes_max`](crate::AssociationOptions::message_bytes_max).
    TooLong {
        /// The length of the message in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// The message is empty (RFC 9260 §3.3.1: a DATA chunk has at least one byte).
    Empty,
    /// A record ([`SendInfo::more`](crate::SendInfo::more)) is open on another stream.
    RecordOpen {
        /// The stream of the open record.
        stream: u16,
    },
    /// The sockets or the modules of the stream have failed, for the reason given.
    Failed(Box<str>),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::WouldBlock => {
                f.write_str("the send buffer is full; wait until it is writable and send again")
            }
            SendError::TimedOut => {
                f.write_str("the send buffer stayed full; send again, or abort if the peer no longer reads")
            }
            SendError::Closed => {
                f.write_str("the association is closed or closing; connect again to send more")
            }
            SendError::PeerShutdown => f.write_str(
                "the peer has shut the association down and accepts no more messages; connect again to send more",
            ),
            SendError::NoSuchStream { stream, streams } => write!(
                f,
                "stream {stream} does not exist; this association has streams 0 to {}: set streams_out (and the peer's streams_in_max) before connecting",
                streams.saturating_sub(1)
            ),
            SendError::TooLong { bytes, limit_bytes } => {
                write!(
                    f,
                    "a message of {bytes} bytes is over the limit of {limit_bytes}; split it or raise message_bytes_max"
                )
            }
            SendError::Empty => f.write_str("an empty message cannot be sent; send at least one byte"),
            SendError::RecordOpen { stream } => write!(
                f,
                "a record is open on stream {stream}; end it there with a message without `more` first"
            ),
            SendError::Failed(why) => write!(f, "the message was not sent: {why}; connect again to send more"),
        }
    }
}

impl std::error::Error for SendError {}

impl From<sctp::SendError> for SendError {
    fn from(refusal: sctp::SendError) -> Self {
        match refusal {
            sctp::SendError::Closed => SendError::Closed,
            sctp::SendError::PeerShutdown => SendError::PeerShutdown,
            sctp::SendError::NoSuchStream { stream, streams } => SendError::NoSuchStream { stream, streams },
            sctp::SendError::TooLong { bytes, limit_bytes } => SendError::TooLong { bytes, limit_bytes },
            sctp::SendError::Empty => SendError::Empty,
            sctp::SendError::RecordOpen { stream } => SendError::RecordOpen { stream },
        }
    }
}

/// The kinds of loss of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossKind {
    /// The peer no longer answers (Association.Max.Retrans; `ETIMEDOUT`).
    TimedOut,
    /// The peer has aborted the association (`ECONNRESET`).
    PeerAborted,
    /// This side has aborted the association (`ECONNABORTED`).
    Aborted,
    /// This side has aborted the association because the peer violated the protocol (`EPROTO`).
    Violation,
    /// No server listens at the address (`ECONNREFUSED`).
    Refused,
    /// There is no route to the peer (`EHOSTUNREACH`).
    Unreachable,
    /// The sockets have failed, or an internal fault has occurred.
    Fault,
}

impl LossKind {
    fn of(errno: Errno) -> Self {
        match errno {
            Errno::ETIMEDOUT => LossKind::TimedOut,
            Errno::ECONNRESET => LossKind::PeerAborted,
            Errno::ECONNABORTED => LossKind::Aborted,
            Errno::EPROTO => LossKind::Violation,
            Errno::ECONNREFUSED => LossKind::Refused,
            Errno::EHOSTUNREACH => LossKind::Unreachable,
            _ => LossKind::Fault,
        }
    }

    /// Returns the kind of I/O error that a socket of the kernel would report, but for [`LossKind::TimedOut`]:
    /// [`ConnectionAborted`](io::ErrorKind::ConnectionAborted), because [`TimedOut`](io::ErrorKind::TimedOut) is only ever the
    /// time limit of a call, after which the call may be repeated.
    pub fn io_kind(self) -> io::ErrorKind {
        match self {
            LossKind::PeerAborted => io::ErrorKind::ConnectionReset,
            LossKind::TimedOut | LossKind::Aborted | LossKind::Violation | LossKind::Fault => {
                io::ErrorKind::ConnectionAborted
            }
            LossKind::Refused => io::ErrorKind::ConnectionRefused,
            LossKind::Unreachable => io::ErrorKind::HostUnreachable,
        }
    }
}

/// The loss of an association: its kind and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The kind of the loss.
    pub kind: LossKind,
    /// Code of the error cause in the ABORT that was sent or received (RFC 9260 §3.3.10); 0 for none.
    pub cause: u16,
    /// The reason as text, with the text of the peer's ABORT if it contains one.
    pub text: String,
    /// The error causes of the peer's ABORT as received (`sac_info`).
    pub information: Bytes,
}

/// The code of the error cause User-Initiated Abort (RFC 9260 §3.3.10.12).
const USER_INITIATED_ABORT: u16 = 12;

impl Loss {
    /// Returns the bytes that the peer has given as its reason ([`Association::abort`](crate::Association::abort)); `None` if the
    /// peer's ABORT has no such reason, or there was none.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener, RecvError};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// server.abort(b"\x01\xff\x80\0");
    /// let Err(RecvError::Lost(loss)) = client.recv() else { panic!("it was aborted") };
    /// assert_eq!(loss.reason(), Some(&b"\x01\xff\x80\0"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reason(&self) -> Option<&[u8]> {
        let (&[kind_high, kind_low, length_high, length_low], content) =
            self.information.split_first_chunk()?;
        let content_bytes = u16::from_be_bytes([length_high, length_low]).saturating_sub(4).into();
        let is_of_user = u16::from_be_bytes([kind_high, kind_low]) == USER_INITIATED_ABORT;
        // Of a longer cause there is only the beginning.
        is_of_user.then(|| content.get(..content_bytes).unwrap_or(content))
    }

    /// Returns the loss that a `T_DISCON_IND` reports; `None` if both sides have shut down.
    pub(crate) fn of(reason: u32, cause: u16, data: &Chain) -> Option<Loss> {
        let errno = Errno(reason as i32);
        if errno == Errno(0) {
            return None;
        }
        let [text, information] = [0, 1].map(|at| data.blocks().get(at).cloned().unwrap_or_default());
        let text = String::from_utf8_lossy(&text).into_owned();
        Some(Loss { kind: LossKind::of(errno), cause, text, information })
    }

    /// Returns a loss caused by a failure of this side.
    pub(crate) fn fault(why: impl Into<String>) -> Loss {
        Loss { kind: LossKind::Fault, cause: 0, text: why.into(), information: Bytes::new() }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Loss {}

/// Reason why an association has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both sides have shut down (RFC 9260 §9.2): everything was delivered.
    Shutdown,
    /// The association was aborted or lost.
    Lost(Loss),
}

impl CloseReason {
    pub(crate) fn of(reason: u32, cause: u16, data: &Chain) -> CloseReason {
        Loss::of(reason, cause, data).map_or(CloseReason::Shutdown, CloseReason::Lost)
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Shutdown => f.write_str("both sides have shut down"),
            CloseReason::Lost(loss) => loss.fmt(f),
        }
    }
}

/// Reason why no association was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptError {
    /// No association waits, and the call must not wait.
    WouldBlock,
    /// No association arrived in time.
    TimedOut,
    /// The listener or its sockets have failed; the kind of the loss is [`LossKind::Fault`].
    Failed(Loss),
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::WouldBlock => {
                f.write_str("no association waits; wait until the listener is readable and accept again")
            }
            AcceptError::TimedOut => f.write_str("no association came in time; accept again"),
            AcceptError::Failed(why) => write!(f, "cannot accept more associations: {why}; listen again"),
        }
    }
}

impl std::error::Error for AcceptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AcceptError::Failed(loss) => Some(loss),
            AcceptError::WouldBlock | AcceptError::TimedOut => None,
        }
    }
}

/// Reason why nothing was received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// No message is available, and the call must not wait.
    WouldBlock,
    /// No message arrived in time. The association is unchanged.
    TimedOut,
    /// The association was aborted or lost.
    Lost(Loss),
    /// The peer has restarted and has set the association up anew (RFC 9260 §5.2): the following messages begin a new
    /// dialogue, and the text describes the loss of messages in transit. The association is up, and receiving
    /// continues; the error is returned once.
    Restarted(String),
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::WouldBlock => f.write_str("no message is available; wait for one and receive again"),
            RecvError::TimedOut => f.write_str("no message came in time; receive again"),
            RecvError::Lost(why) => write!(f, "{why}; set up another association to go on"),
            RecvError::Restarted(what) => {
                write!(f, "{what}; the association continues: begin the dialogue again, or close it")
            }
        }
    }
}

impl std::error::Error for RecvError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecvError::Lost(loss) => Some(loss),
            _ => None,
        }
    }
}

/// Reason why the options of an association were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    /// The handshake has negotiated this option, which cannot change any more.
    Fixed {
        /// The option's name in [`AssociationOptions`](crate::AssociationOptions).
        option: &'static str,
    },
    /// The association has ended, or an internal fault has closed the listener.
    Closed,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionsError::Fixed { option } => write!(
                f,
                "{option} cannot change once the association is up; keep its value, or set up another association"
            ),
            OptionsError::Closed => f.write_str(
                "the association or the listener has ended; give the options to another one when it is set up",
            ),
        }
    }
}

impl std::error::Error for OptionsError {}

impl BindError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            BindError::PortInUse { .. } => io::ErrorKind::AddrInUse,
            BindError::Link(LinkBindError::AddressInUse { .. }) => io::ErrorKind::AddrInUse,
            BindError::Address(_) => io::ErrorKind::InvalidInput,
            BindError::System { error, .. } => error.kind(),
            BindError::Unavailable { .. } => io::ErrorKind::OutOfMemory,
            BindError::Link(
                LinkBindError::RawNotPermitted { .. } | LinkBindError::PermissionDenied { .. },
            ) => io::ErrorKind::PermissionDenied,
            BindError::Link(LinkBindError::AddressNotAvailable { .. }) => io::ErrorKind::AddrNotAvailable,
            BindError::Link(LinkBindError::Duplicate { .. }) => io::ErrorKind::InvalidInput,
            BindError::Link(LinkBindError::FamilyNotSupported { .. }) => io::ErrorKind::Unsupported,
            BindError::Link(LinkBindError::System { source, .. }) => source.kind(),
            BindError::Link(_) => io::ErrorKind::Other,
        }
    }
}

impl ConnectError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            ConnectError::Refused => io::ErrorKind::ConnectionRefused,
            ConnectError::TimedOut => io::ErrorKind::TimedOut,
            ConnectError::Unreachable => io::ErrorKind::HostUnreachable,
            ConnectError::Family { .. } => io::ErrorKind::AddrNotAvailable,
            ConnectError::Exists => io::ErrorKind::AddrInUse,
            ConnectError::Address(_) | ConnectError::InvalidRemote(_) | ConnectError::InvalidUdpPort(_) => {
                io::ErrorKind::InvalidInput
            }
            ConnectError::Bind(e) => e.kind(),
            ConnectError::NoPort => io::ErrorKind::AddrNotAvailable,
            ConnectError::Lost(loss) => loss.kind.io_kind(),
        }
    }
}

impl SendError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            SendError::WouldBlock => io::ErrorKind::WouldBlock,
            SendError::TimedOut => io::ErrorKind::TimedOut,
            SendError::Closed | SendError::PeerShutdown => io::ErrorKind::BrokenPipe,
            SendError::Failed(_) => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::InvalidInput,
        }
    }
}

impl AcceptError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            AcceptError::WouldBlock => io::ErrorKind::WouldBlock,
            AcceptError::TimedOut => io::ErrorKind::TimedOut,
            AcceptError::Failed(loss) => loss.kind.io_kind(),
        }
    }
}

impl OptionsError {
    fn kind(self) -> io::ErrorKind {
        match self {
            OptionsError::Fixed { .. } => io::ErrorKind::InvalidInput,
            OptionsError::Closed => io::ErrorKind::NotConnected,
        }
    }
}

impl RecvError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            RecvError::WouldBlock => io::ErrorKind::WouldBlock,
            RecvError::TimedOut => io::ErrorKind::TimedOut,
            RecvError::Lost(loss) => loss.kind.io_kind(),
            RecvError::Restarted(_) => io::ErrorKind::ConnectionReset,
        }
    }
}

impl From<AddressError> for io::Error {
    fn from(e: AddressError) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, e)
    }
}

macro_rules! into_io {
    ($($error:ty),*) => {
        $(impl From<$error> for io::Error {
            fn from(e: $error) -> Self {
                io::Error::new(e.kind(), e)
            }
        })*
    };
}

into_io!(BindError, AcceptError, ConnectError, SendError, RecvError, OptionsError);
