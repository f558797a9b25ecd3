//! The form of a pair's content: records, or plain content for programs without the shim.
//!
//! A sharer changes the form while it holds the read lock: it takes out all waiting messages, and the daemon puts them back in
//! the other form. No function here allocates, because some run between `vfork` and `exec`.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use channel_protocol::record::{Flags, HEADER_BYTES, Header, Kind, PLAIN_BYTES_MAX};
use channel_protocol::request::SocketRequest;

use crate::ask::request;
use crate::lock::Patience;
use crate::pages::Pages;
use crate::system::{self, Buffers, Destination, Errno, Result};

/// Error of a call that reads from a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The content stays plain because its end has already been queued behind it: the descriptor now behaves like any other
    /// AF_UNIX socket, and the C library serves the call.
    StaysPlain,
    /// The call fails.
    Errno(Errno),
}

impl From<Errno> for ReadError {
    fn from(error: Errno) -> ReadError {
        ReadError::Errno(error)
    }
}

/// Pause before a message is put back again that could not be.
const PUT_BACK_PAUSE: Duration = Duration::from_millis(5);
/// Number of times that a message is put back: for about a minute.
const PUT_BACK_TRIES: u32 = 12_000;

/// Makes the pair's content records. The caller holds the lock.
pub(crate) fn to_records(fd: RawFd) -> Result<(), ReadError> {
    match request(fd, &SocketRequest::Hold) {
        Err(Errno(libc::ESHUTDOWN)) => return Err(ReadError::StaysPlain),
        held => held?,
    }
    let moved = each_packet(fd, |record| put_back(fd, record));
    request(fd, &SocketRequest::SetForm { plain: false })?;
    Ok(moved?)
}

/// Lets the daemon continue after a holder of the lock has died in the middle of a change of form. The daemon refuses this if no
/// change was under way.
pub(crate) fn resume_daemon(fd: RawFd, page: Pages<'_>) {
    let _ = request(fd, &SocketRequest::SetForm { plain: page.status.plain.load(Relaxed) != 0 });
}

/// Puts back a message that is in the pair no more. The message is nowhere else, so this tries for long while descriptors or
/// room for requests are missing.
///
/// # Errors
///
/// The daemon has not taken the message, which is lost.
pub(crate) fn put_back(fd: RawFd, record: &[u8]) -> Result<()> {
    repeated(
        || request(fd, &SocketRequest::PutBack(record)),
        || {
            // A signal handler shortens the pause.
            let _ = Patience::of_a_request().pause(PUT_BACK_PAUSE);
        },
    )
}

/// Repeats `put` while the process, its child or the daemon lacks descriptors or room for requests, with a `pause` in between.
fn repeated(put: impl Fn() -> Result<()>, pause: impl Fn()) -> Result<()> {
    for _ in 1..PUT_BACK_TRIES {
        match put() {
            Err(Errno(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::EAGAIN | libc::EINTR)) => pause(),
            result => return result,
        }
    }
    put()
}

/// Takes out all packets of plain content, and calls `f` with each as a record.
fn each_packet(fd: RawFd, mut f: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut record = [0; HEADER_BYTES + PLAIN_BYTES_MAX];
    loop {
        let place = [Destination::of(&mut record[HEADER_BYTES..])];
        let bytes = match system::receive::<0>(fd, Buffers::new(&place), libc::MSG_DONTWAIT) {
            Err(Errno(libc::EAGAIN)) => return Ok(()),
            received => received?.bytes,
        };
        if bytes == 0 {
            return Ok(());
        }
        let header = Header { flags: Flags::END, bytes: bytes as u32, ..Header::new(Kind::Data) };
        record[..HEADER_BYTES].copy_from_slice(&header.encode());
        f(&record[..HEADER_BYTES + bytes])?;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_message_is_put_back_again_while_room_is_missing_but_not_for_ever() {
        let tries = Cell::new(0);
        let put_back = |results: &dyn Fn(u32) -> Result<()>| {
            tries.set(0);
            repeated(
                || {
                    tries.set(tries.get() + 1);
                    results(tries.get())
                },
                || (),
            )
        };
        let full = Err(Errno(libc::EMFILE));
        assert_eq!((put_back(&|tries| if tries < 7 { full } else { Ok(()) }), tries.get()), (Ok(()), 7));
        assert_eq!((put_back(&|_| full), tries.get()), (full, PUT_BACK_TRIES));
        let broken = Err(Errno(libc::ENETDOWN));
        assert_eq!((put_back(&|_| broken), tries.get()), (broken, 1));
    }
}
