//! `libswiftwater`: SCTP sockets for C programs that link with it; other programs run under `swiftwater run`.
//!
//! The library has two parts. The first is the shim: `socket`, `bind`, `send` and others take precedence over those of the C
//! library in every program that links with this library. The second part is the functions of RFC 6458 §9, which use socket
//! options and ancillary data, as in every library of this kind.
//!
//! | file | part |
//! |---|---|
//! | `address` | lists of addresses, one behind the other |
//! | `associations` | `sctp_bindx`, `sctp_connectx`, `sctp_peeloff`, `sctp_getpaddrs`, `sctp_getladdrs`, `sctp_opt_info` |
//! | `control` | ancillary data |
//! | `sending` | `sctp_sendmsg`, `sctp_send`, `sctp_sendx`, `sctp_sendv` |
//! | `receiving` | `sctp_recvmsg`, `sctp_recvv` |
//!
//! The first socket starts a daemon if there is none, since the program may not have been started by `swiftwater run`.
#![cfg(target_os = "linux")]

mod address;
pub mod associations;
mod control;
pub mod receiving;
pub mod sending;

use libc::c_int;
use swiftwater_preload::start;

/// `IPPROTO_SCTP`, which is also the level of SCTP's options and ancillary data.
const SCTP: c_int = libc::IPPROTO_SCTP;

/// Runs before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn on_demand() {
        start::always();
    }
    on_demand
};

/// Sets `errno` and returns -1.
fn fail<N: From<i8>>(errno: c_int) -> N {
    // SAFETY: each thread has its own errno.
    unsafe { *libc::__errno_location() = errno };
    N::from(-1)
}

/// Returns the errno of the last failed call.
fn last_errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
