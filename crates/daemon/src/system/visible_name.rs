//! Names by which `ss -x` and `lsof` show which AF_UNIX socket is which SCTP socket, such as
//! `@sctp:10.0.0.1:5000>10.0.0.2:6000#3fa29c`.
//!
//! They are for people. Nothing trusts one, and a socket without one is as good: any program may have taken the name, and a name
//! stays when a socket that could not connect connects elsewhere.

use std::fmt::Display;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::net::{SocketAddrUnix, bind};

/// Bytes at the end of a name, so that two sockets with the same addresses have different names. The longest addresses leave room
/// for as many digits.
const RANDOM_BYTES: usize = 3;

/// Names the program's end of a listener's carrier.
pub(crate) fn of_listener(theirs: BorrowedFd<'_>, local: SocketAddr) {
    give(theirs, &local);
}

/// Names the program's end of an association's carrier.
pub(crate) fn of_association(theirs: BorrowedFd<'_>, local: SocketAddr, peer: SocketAddr) {
    give(theirs, &format_args!("{local}>{peer}"));
}

fn give(theirs: BorrowedFd<'_>, what: &dyn Display) {
    let mut random = [0; 1 + RANDOM_BYTES];
    if getrandom::fill(&mut random[1..]).is_err() {
        return;
    }
    let name = format!("sctp:{what}#{:06x}", u32::from_be_bytes(random));
    if let Ok(address) = SocketAddrUnix::new_abstract_name(name.as_bytes()) {
        // Without a name it does what it does.
        let _ = bind(theirs, &address);
    }
}
