//! The error numbers of the sockets API for errors of the executive.

use rustix::io::Errno;
use swiftwater::{BindError, ConnectError, LossKind};

/// Returns the errno that the kernel's `connect` would return.
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

/// Returns the errno that the kernel's `listen` would return.
pub(crate) fn of_listen(error: &BindError) -> Errno {
    match error {
        BindError::PortInUse { .. } => Errno::ADDRINUSE,
        _ => Errno::NOBUFS,
    }
}

/// Returns the errno that the kernel would return for a lost association.
pub(crate) fn of_loss(kind: LossKind) -> Errno {
    match kind {
        LossKind::TimedOut => Errno::TIMEDOUT,
        LossKind::PeerAborted => Errno::CONNRESET,
        LossKind::Refused => Errno::CONNREFUSED,
        LossKind::Unreachable => Errno::HOSTUNREACH,
        _ => Errno::CONNABORTED,
    }
}
