//! `libswiftwater`: SCTP sockets for C programs that link, where others are run under `swiftwater run`.
//!
//! The library has two parts. One is the shim: `socket`, `bind`, `send` and the others stand before those of the C library
//! in every program that links with this one. The other are the functions of RFC 6458 §9, which are made of socket options
//! and ancillary data, as in every library of this kind.
//!
//! | file | part |
//! |---|---|
//! | `address` | lists of addresses, one behind the other |
//! | `associations` | `sctp_bindx`, `sctp_connectx`, `sctp_peeloff`, `sctp_getpaddrs`, `sctp_getladdrs`, `sctp_opt_info` |
//! | `control` | ancillary data |
//! | `sending` | `sctp_sendmsg`, `sctp_send`, `sctp_sendx`, `sctp_sendv` |
//! | `receiving` | `sctp_recvmsg`, `sctp_recvv` |
//!
//! The first socket starts a daemon where there is none: nobody has run the program under `swiftwater run`.
#![cfg(target_os = "linux")]

mod address;
pub mod associations;
mod control;
pub mod receiving;
pub mod sending;

use libc::c_int;
use swiftwater_preload::start;

/// `IPPROTO_SCTP`, which is also the level of its options and of its ancillary data.
const SCTP: c_int = libc::IPPROTO_SCTP;

/// Runs before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn on_demand() {
        start::always();
    }
    on_demand
};

/// Fails a call.
fn fail<N: From<i8>>(errno: c_int) -> N {
    // SAFETY: the C library keeps one for each thread.
    unsafe { *libc::__errno_location() = errno };
    N::from(-1)
}

/// The errno of the call that has failed last.
fn last_errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
