//! Recognizes the descriptors of SCTP sockets.
//!
//! When the shim sees a number for the first time, and it is a socket of the carriers' type whose peer has a carrier's name, the shim
//! asks the daemon. The name alone proves nothing: anybody can take such a name.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use carrier::request::SocketRequest;

use crate::ask::{ask, is_trusted};
use crate::descriptor::Descriptor;
use crate::system::{Errno, Result};
use crate::table::{self, Entered};
use crate::{files, form, plain, target};

/// Returns the descriptor, if it is an SCTP socket that can be used.
pub(crate) fn find(fd: RawFd) -> Option<Arc<Descriptor>> {
    look_up(fd).ok().flatten()
}

/// Returns whether a descriptor is an SCTP socket, or may be one.
pub(crate) fn concerns(fd: RawFd) -> bool {
    !matches!(look_up(fd), Ok(None))
}

/// Returns the descriptor if it is an SCTP socket, and `None` if it is none.
///
/// # Errors
///
/// The descriptor may be an SCTP socket, but the daemon could not tell, or no daemon answers that knows it (`ENETDOWN`). Its content
/// has headers that the program must not see.
pub(crate) fn look_up(fd: RawFd) -> Result<Option<Arc<Descriptor>>> {
    match table::look_up(fd) {
        Entered::Socket(descriptor) => Ok(Some(descriptor)),
        Entered::Foreign => Ok(None),
        Entered::Unknown => recognize(fd),
    }
}

/// Asks the daemon about an unknown number: a new one, or one that came from elsewhere.
#[cold]
fn recognize(fd: RawFd) -> Result<Option<Arc<Descriptor>>> {
    let attached = if files::may_be_carrier(fd) { attach(fd) } else { Err(Errno(libc::ENOTSOCK)) };
    // A program without the shim may have held the descriptor.
    let attached = attached.and_then(|descriptor| plain::of_records(fd, descriptor));
    let descriptor = match attached {
        Ok(descriptor) => Some(Arc::new(descriptor)),
        Err(error) if is_of_others(error, || files::may_be_carrier(fd) && is_trusted(fd)) => None,
        // The next call asks again.
        Err(Errno(libc::ENOTSOCK | libc::ENETDOWN)) => {
            warn_of_another_daemon();
            return Err(Errno(libc::ENETDOWN));
        }
        Err(error) => return Err(error),
    };
    table::learn(fd, descriptor.as_ref());
    Ok(descriptor)
}

/// Asks for the pages of a descriptor that the process got from elsewhere.
pub(crate) fn attach(fd: RawFd) -> Result<Descriptor> {
    let reply = ask(&SocketRequest::Attach, fd)?;
    let [status, sharers, _] = reply.descriptors;
    Descriptor::map([status, sharers])
}

/// Returns whether the daemon's answer about a descriptor says that it is no SCTP socket for the shim. A carrier of another daemon is
/// one: the daemon that answers does not know it, and it was made by somebody who may be a daemon.
fn is_of_others(error: Errno, is_made_by_daemon: impl FnOnce() -> bool) -> bool {
    error == form::STAYS_PLAIN || error == Errno(libc::ENOTSOCK) && !is_made_by_daemon()
}

/// Says once that an SCTP socket cannot be used here.
fn warn_of_another_daemon() {
    static IS_WARNED: AtomicBool = AtomicBool::new(false);
    if !IS_WARNED.swap(true, Relaxed) {
        let cause = "is of a daemon that does not answer here: another network namespace sees only a daemon at a path \
                     (SWIFTWATER_DAEMON=/PATH)";
        target::say(c"an inherited or passed SCTP socket", cause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certainly_no_sctp_socket_is_left_to_the_c_library() {
        let is_of_others = |error, by_daemon| is_of_others(Errno(error), || by_daemon);
        assert!(is_of_others(libc::ENOTSOCK, false) && is_of_others(libc::ESTALE, true));
        // Another daemon's, no daemon, another version, and no room for now.
        assert!(!is_of_others(libc::ENOTSOCK, true));
        for error in [libc::ENETDOWN, libc::EPROTONOSUPPORT, libc::EBUSY, libc::EMFILE, libc::ENOBUFS] {
            assert!(!is_of_others(error, false), "{error}");
        }
    }
}
