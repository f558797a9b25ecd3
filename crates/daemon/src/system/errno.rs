//! The numbers that the sockets API fails with, and what they are for errors of the executive.

use rustix::io::Errno;
use swiftwater::{BindError, ConnectError, LossKind};

/// As the kernel would say it of `connect`.
pub(crate) fn of_connect(error: &ConnectError) -> Errno {
    match error {
        ConnectError::Refused => Errno::CONNREFUSED,
        ConnectError::TimedOut => Errno::TIMEDOUT,
        ConnectError::Unreachable => Errno::HOSTUNREACH,
        ConnectError::Exists => Errno::ADDRINUSE,
        ConnectError::Family { .. } => Errno::ADDRNOTAVAIL,
        ConnectError::Address(_) => Errno::INVAL,
        _ => Errno::CONNABORTED,
    }
}

/// As the kernel would say it of `listen`.
pub(crate) fn of_listen(error: &BindError) -> Errno {
    match error {
        BindError::PortInUse { .. } => Errno::ADDRINUSE,
        _ => Errno::NOBUFS,
    }
}

/// As the kernel would say it of an association that is gone.
pub(crate) fn of_loss(kind: LossKind) -> Errno {
    match kind {
        LossKind::TimedOut => Errno::TIMEDOUT,
        LossKind::PeerAborted => Errno::CONNRESET,
        LossKind::Refused => Errno::CONNREFUSED,
        LossKind::Unreachable => Errno::HOSTUNREACH,
        _ => Errno::CONNABORTED,
    }
}
