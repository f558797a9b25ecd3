//! Registration of descriptors with the runtime, tests for their readiness, and sending them to other processes.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Maximum number of descriptors that the daemon sends with one message: a pair and its two pages.
pub(crate) const SENT_DESCRIPTORS_MAX: usize = 3;

/// Registers a non-blocking descriptor with the runtime.
pub(crate) fn register<D: AsRawFd>(descriptor: D, interest: Interest) -> Result<AsyncFd<D>, Errno> {
    #[expect(
        deprecated,
        reason = "its unsafe successor asks for what an owned descriptor keeps: it is the same as long as it lives"
    )]
    let registered = AsyncFd::with_interest(descriptor, interest);
    registered.map_err(|_| Errno::NOMEM)
}

/// Returns the errno of an I/O error of the runtime.
pub(crate) fn errno_of(error: std::io::Error) -> Errno {
    match error.kind() {
        // The runtime creates this error itself, without an errno.
        std::io::ErrorKind::WouldBlock => Errno::AGAIN,
        _ => Errno::from_io_error(&error).unwrap_or(Errno::IO),
    }
}

/// Returns whether the descriptor has one of these events.
pub(crate) fn polls(descriptor: impl AsFd, what: PollFlags) -> bool {
    let mut fds = [PollFd::new(&descriptor, what)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0) && fds[0].revents().intersects(what)
}

/// Sends one message of these parts, with up to [`SENT_DESCRIPTORS_MAX`] descriptors.
pub(crate) fn send_with_descriptors(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT_DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let has_room = control.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(has_room, "no message of the daemon has more descriptors");
    }
    sendmsg(socket, parts, &mut control, flags).map(drop)
}
