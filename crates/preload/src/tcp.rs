//! Programs that know TCP only, and whose TCP sockets are to be one-to-one SCTP sockets (`swiftwater run --tcp-as-sctp`).

use carrier::name::TCP_AS_SCTP_VARIABLE;
use libc::c_int;

const SCTP_NODELAY: c_int = 3;

/// Returns whether TCP sockets are to be SCTP sockets in this program.
pub(crate) fn is_sctp() -> bool {
    // SAFETY: the name ends with a zero byte.
    unsafe { !libc::getenv(TCP_AS_SCTP_VARIABLE.as_ptr()).is_null() }
}

/// Returns the option that means the same to SCTP as an option of TCP, if there is one; others stay as they are.
pub(crate) fn as_sctp(level: c_int, name: c_int) -> (c_int, c_int) {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) if is_sctp() => (libc::IPPROTO_SCTP, SCTP_NODELAY),
        same => same,
    }
}
