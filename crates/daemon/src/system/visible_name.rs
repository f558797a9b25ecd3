//! Names that show in `ss -x` and `lsof` which AF_UNIX socket belongs to which SCTP socket, such as
//! `@sctp:10.0.0.1:5000>10.0.0.2:6000#3fa29c`.
//!
//! The names are for administrators. The daemon trusts none of them, and a socket works without one: any program may
//! take a name first, and a socket keeps its name if it connects elsewhere after a failed connect.

use std::fmt::Display;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::net::{SocketAddrUnix, bind};

/// Number of random bytes at the end of a name, which distinguish two sockets with the same addresses. The longest
/// addresses leave room for their digits.
const RANDOM_BYTES: usize = 3;

/// Names the program's end of a listener's pair.
pub(crate) fn of_listener(program_end: BorrowedFd<'_>, local: SocketAddr) {
    give(program_end, &local);
}

/// Names the program's end of an association's pair.
pub(crate) fn of_association(program_end: BorrowedFd<'_>, local: SocketAddr, peer: SocketAddr) {
    give(program_end, &format_args!("{local}>{peer}"));
}

fn give(program_end: BorrowedFd<'_>, what: &dyn Display) {
    let mut random = [0; 1 + RANDOM_BYTES];
    if getrandom::fill(&mut random[1..]).is_err() {
        return;
    }
    let name = format!("sctp:{what}#{:06x}", u32::from_be_bytes(random));
    if let Ok(address) = SocketAddrUnix::new_abstract_name(name.as_bytes()) {
        // The socket works without a name, so a failure is ignored.
        let _ = bind(program_end, &address);
    }
}
