//! Programs that know TCP only, whose TCP sockets become one-to-one SCTP sockets (`swiftwater run --tcp-as-sctp`).

use carrier::name::TCP_AS_SCTP_VARIABLE;
use libc::c_int;

const SCTP_NODELAY: c_int = 3;

/// Returns whether this program's TCP sockets become SCTP sockets.
pub(crate) fn is_sctp() -> bool {
    // SAFETY: the name is NUL-terminated.
    unsafe { !libc::getenv(TCP_AS_SCTP_VARIABLE.as_ptr()).is_null() }
}

/// Returns the SCTP option that is equivalent to a TCP option, if there is one; other options stay as they are.
pub(crate) fn as_sctp(level: c_int, name: c_int) -> (c_int, c_int) {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) if is_sctp() => (libc::IPPROTO_SCTP, SCTP_NODELAY),
        same => same,
    }
}
