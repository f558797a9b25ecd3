//! Recognizes the descriptors of SCTP sockets.
//!
//! When the shim sees a number for the first time, and it is a socket of the carriers' type whose peer has a carrier's name, the shim
//! asks the daemon. The name alone proves nothing: anybody can take such a name.

use std::os::fd::RawFd;
use std::sync::Arc;

use carrier::request::SocketRequest;

use crate::ask::ask;
use crate::descriptor::Descriptor;
use crate::system::{Errno, Result};
use crate::table::{self, Entered};
use crate::{files, form, plain};

/// Returns the descriptor, if it is an SCTP socket.
pub(crate) fn find(fd: RawFd) -> Option<Arc<Descriptor>> {
    match table::look_up(fd) {
        Entered::Socket(descriptor) => Some(descriptor),
        Entered::Foreign => None,
        Entered::Unknown => recognize(fd),
    }
}

/// Asks the daemon about an unknown number: a new one, or one that came from elsewhere.
#[cold]
fn recognize(fd: RawFd) -> Option<Arc<Descriptor>> {
    let attached = if files::may_be_carrier(fd) { attach(fd) } else { Err(Errno(libc::ENOTSOCK)) };
    // A program without the shim may have held the descriptor.
    let attached = attached.and_then(|descriptor| plain::of_records(fd, descriptor));
    let descriptor = match attached {
        Ok(descriptor) => Some(Arc::new(descriptor)),
        Err(error) if is_for_good(error) => None,
        // The daemon could not tell; the next call asks again.
        Err(_) => return None,
    };
    table::learn(fd, descriptor.as_ref());
    descriptor
}

/// Asks for the pages of a descriptor that the process got from elsewhere.
pub(crate) fn attach(fd: RawFd) -> Result<Descriptor> {
    let reply = ask(&SocketRequest::Attach, fd)?;
    let [status, sharers, _] = reply.descriptors;
    Descriptor::map([status, sharers])
}

/// Returns whether the daemon's answer about a descriptor is final.
fn is_for_good(error: Errno) -> bool {
    let Errno(error) = error;
    let Errno(stays_plain) = form::STAYS_PLAIN;
    [libc::ENOTSOCK, libc::ENETDOWN, libc::EPROTO, libc::EPROTONOSUPPORT, stays_plain].contains(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_daemon_has_said_for_good_is_kept() {
        let is_kept = |error| is_for_good(Errno(error));
        assert!(is_kept(libc::ENOTSOCK) && is_kept(libc::ENETDOWN));
        // The next call may find room.
        assert!(!is_kept(libc::EBUSY) && !is_kept(libc::EMFILE) && !is_kept(libc::ENOBUFS));
    }
}
