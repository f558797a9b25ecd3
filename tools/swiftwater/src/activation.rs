//! The socket that a service manager passes (sd_listen_fds(3)): programs that connect before the daemon runs wait in it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

/// Number of the first descriptor that a service manager passes.
const FIRST: RawFd = 3;

/// Returns the socket, if this process was passed one.
pub(crate) fn listener() -> Result<Option<OwnedFd>, String> {
    let variable = |name| std::env::var(name).ok();
    match handed_over(variable("LISTEN_PID").as_deref(), variable("LISTEN_FDS").as_deref()) {
        0 => Ok(None),
        1 => take().map(Some).map_err(|error| format!("descriptor {FIRST}, which was handed over: {error}")),
        count => Err(format!("{count} sockets were handed over; one is of use")),
    }
}

/// Returns the number of descriptors that these variables pass to this process. They may be meant for a parent of it.
fn handed_over(process: Option<&str>, count: Option<&str>) -> usize {
    let is_mine = process.is_some_and(|process| process.parse() == Ok(std::process::id()));
    count.filter(|_| is_mine).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Returns the descriptor if it is what programs can connect to.
fn take() -> io::Result<OwnedFd> {
    let socket = duplicate(FIRST)?;
    let is_right = socket_domain(&socket)? == AddressFamily::UNIX
        && socket_type(&socket)? == SocketType::SEQPACKET
        && socket_acceptconn(&socket)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "no AF_UNIX SEQPACKET socket that listens");
    is_right.then_some(socket).ok_or_else(wrong)
}

/// Duplicates a descriptor by sending it to this process. Making an owner of the number needs unsafe code, and
/// `pidfd_getfd` fails in containers whose system calls are filtered, such as those of systemd-nspawn.
fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let rights = [ControlMessage::ScmRights(&[number])];
    sendmsg::<()>(near.as_raw_fd(), &[IoSlice::new(&[0])], &rights, MsgFlags::empty(), None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&far, &mut [IoSliceMut::new(&mut [0])], &mut received, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = received.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    descriptors.next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_for_another_process_are_left_alone() {
        let me = std::process::id().to_string();
        assert_eq!(handed_over(Some(&me), Some("1")), 1);
        for (process, count) in
            [(None, Some("1")), (Some("1"), Some("1")), (Some(me.as_str()), None), (Some(&me), Some("x"))]
        {
            assert_eq!(handed_over(process, count), 0, "{process:?} {count:?}");
        }
    }
}
