//! Recognizes the descriptors of SCTP sockets.
//!
//! When the shim sees a number for the first time, and it is a socket of the pairs' type whose peer has a pair's
//! name, the shim asks the daemon. The name alone proves nothing: anybody can take such a name.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use channel_protocol::request::SocketRequest;

use crate::ask::ask;
use crate::descriptor::Descriptor;
use crate::form::ReadError;
use crate::system::{Errno, Result};
use crate::table::{self, Entry};
use crate::{files, plain, target};

/// Returns the descriptor, if it is an SCTP socket that can be used.
pub(crate) fn find(fd: RawFd) -> Option<Arc<Descriptor>> {
    look_up(fd).ok().flatten()
}

/// Returns whether a descriptor is an SCTP socket, or may be one.
pub(crate) fn may_be_sctp_socket(fd: RawFd) -> bool {
    !matches!(look_up(fd), Ok(None))
}

/// Returns the descriptor if it is an SCTP socket, and `None` if it is none.
///
/// # Errors
///
/// The descriptor may be an SCTP socket, but the daemon could not tell, or none answers (`ENETDOWN`). Its content has
/// headers that the program must not see.
pub(crate) fn look_up(fd: RawFd) -> Result<Option<Arc<Descriptor>>> {
    match table::look_up(fd) {
        Entry::Socket(descriptor) => Ok(Some(descriptor)),
        Entry::Foreign => Ok(None),
        Entry::Unknown => recognize(fd),
    }
}

/// Asks the daemon about an unknown number: a new one, or one that came from elsewhere.
#[cold]
fn recognize(fd: RawFd) -> Result<Option<Arc<Descriptor>>> {
    let attached = if files::may_be_program_end(fd) { attach(fd) } else { Err(Errno(libc::ENOTSOCK)) };
    // A program without the shim may have held the descriptor.
    let attached = attached.map_err(ReadError::Errno);
    let descriptor = match attached.and_then(|descriptor| plain::of_records(fd, descriptor)) {
        Ok(descriptor) => Some(Arc::new(descriptor)),
        Err(error) => match unless_of_others(error) {
            None => None,
            // The next call asks again.
            Some(error) => {
                if error == Errno(libc::ENETDOWN) {
                    warn_of_another_daemon();
                }
                return Err(error);
            }
        },
    };
    table::learn(fd, descriptor.as_ref());
    Ok(descriptor)
}

/// Asks for the pages of a descriptor that the process got from elsewhere.
pub(crate) fn attach(fd: RawFd) -> Result<Descriptor> {
    let [Some(status), Some(sharers), _] = ask(&SocketRequest::Attach, fd)?.descriptors else {
        return Err(Errno(libc::EPROTO));
    };
    Descriptor::map([status, sharers])
}

/// Returns the error of a descriptor that may be an SCTP socket; `None` if the error says that it is none for the shim.
fn unless_of_others(error: ReadError) -> Option<Errno> {
    match error {
        ReadError::StaysPlain | ReadError::Errno(Errno(libc::ENOTSOCK)) => None,
        ReadError::Errno(error) => Some(error),
    }
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
        assert_eq!(unless_of_others(ReadError::StaysPlain), None);
        assert_eq!(unless_of_others(ReadError::Errno(Errno(libc::ENOTSOCK))), None);
        // No daemon, another version, and no room for now.
        for error in [libc::ENETDOWN, libc::EPROTONOSUPPORT, libc::EBUSY, libc::EMFILE, libc::ENOBUFS] {
            assert_eq!(unless_of_others(ReadError::Errno(Errno(error))), Some(Errno(error)));
        }
    }
}
