//! Error numbers of the system call interface.

use std::fmt;

use sctp_message::SendError;

/// An error number of the operating system, with the values of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $sentence:literal;)*) => {
        impl Errno {
            $(#[doc = $sentence] pub const $name: Self = Self($value);)*

            /// Returns the symbolic name if Swiftwater itself reports this number.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(stringify!($name)),)* _ => None }
            }

            fn sentence(self) -> Option<&'static str> {
                match self.0 { $($value => Some($sentence),)* _ => None }
            }
        }
    };
}

errnos! {
    EPERM = 1, "the operation is not permitted";
    EINTR = 4, "the call was interrupted";
    EIO = 5, "input or output failed";
    ENXIO = 6, "there is no such device";
    EBADF = 9, "this is not an open stream";
    EAGAIN = 11, "the call would block; try again when it is ready";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "permission denied";
    EFAULT = 14, "an address is not valid";
    EBUSY = 16, "the resource is busy";
    EEXIST = 17, "the object exists already";
    ENODEV = 19, "there is no such device";
    EINVAL = 22, "an argument is not valid";
    ENOSPC = 28, "no space is left";
    EPIPE = 32, "the other end no longer reads";
    ERANGE = 34, "a number is out of range";
    ENOSTR = 60, "this is not a stream";
    ETIME = 62, "the time limit has passed";
    EPROTO = 71, "the protocol was violated";
    EBADMSG = 74, "the next message is not of the requested kind";
    EMSGSIZE = 90, "the message is too long";
    EPROTONOSUPPORT = 93, "the protocol is not supported";
    EOPNOTSUPP = 95, "the operation is not supported";
    EADDRINUSE = 98, "the address is in use";
    EADDRNOTAVAIL = 99, "the address is not local to this host";
    ENETDOWN = 100, "the network is down";
    ENETUNREACH = 101, "no route leads to the network";
    ECONNABORTED = 103, "the connection was aborted";
    ECONNRESET = 104, "the peer has reset the connection";
    ENOBUFS = 105, "no buffer space is left";
    EISCONN = 106, "the connection exists already";
    ENOTCONN = 107, "there is no connection";
    ESHUTDOWN = 108, "the connection has been shut down";
    ETIMEDOUT = 110, "the peer did not answer in time";
    ECONNREFUSED = 111, "no socket listens at the peer's address";
    EHOSTUNREACH = 113, "no route leads to the host";
    EALREADY = 114, "the operation is already in progress";
    EINPROGRESS = 115, "the operation is now in progress";
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.sentence(), self.name()) {
            (Some(sentence), Some(name)) => write!(f, "{sentence} ({name})"),
            _ => write!(f, "system error number {}", self.0),
        }
    }
}

impl std::error::Error for Errno {}

impl From<SendError> for Errno {
    /// Returns the number that the sockets API reports for a refused message (RFC 6458).
    fn from(error: SendError) -> Self {
        match error {
            SendError::Closed => Errno::EPIPE,
            SendError::PeerShutdown => Errno::ESHUTDOWN,
            SendError::NoSuchStream { .. } | SendError::Empty | SendError::RecordOpen { .. } => Errno::EINVAL,
            SendError::TooLong { .. } => Errno::EMSGSIZE,
        }
    }
}
