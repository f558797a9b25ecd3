//! Programs that know TCP only, whose TCP sockets become one-to-one SCTP sockets (`swiftwater run --tcp-as-sctp`).

use libc::c_int;

use crate::environment;

const SCTP_NODELAY: c_int = 3;

/// Returns the SCTP option that is equivalent to a TCP option, if there is one; other options stay as they are.
pub(crate) fn as_sctp(level: c_int, name: c_int) -> (c_int, c_int) {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) if environment::is_tcp_as_sctp() => {
            (libc::IPPROTO_SCTP, SCTP_NODELAY)
        }
        same => same,
    }
}
