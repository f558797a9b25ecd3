//! The form of a carrier's content: records, or plain content for programs without the shim.
//!
//! A sharer changes the form while it holds the read lock: it takes out all waiting messages, and the daemon puts them back in
//! the other form. No function here allocates, because some run between `vfork` and `exec`.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use carrier::record::{Flags, HEADER_BYTES, Header, Kind, PLAIN_BYTES_MAX};
use carrier::request::{PUT_BACK_BYTES_MAX, SocketRequest};

use crate::descriptor::{Descriptor, Pages};
use crate::lock::{self, Patience};
use crate::system::{self, Buffers, Errno, Result};
use crate::{files, receive, setup};

/// Error for a carrier whose content stays plain because its end has already been queued behind it: the descriptor then behaves
/// like any other AF_UNIX socket.
pub(crate) const STAYS_PLAIN: Errno = Errno(libc::ESTALE);

/// Name of the file with what is left to read.
const MESSAGE: &CStr = c"swiftwater-message";

/// Pause before a message is put back again that could not be.
const PUT_BACK_PAUSE: Duration = Duration::from_millis(5);

/// A standard descriptor of a program without the shim, in place of a carrier with records.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    /// The carrier, in plain form.
    Carrier,
    /// For standard input, a file with all unread content, since the peer sends no more.
    Rest(RawFd),
}

/// Makes the carrier's content plain, for a program without the shim that has it as standard input, or otherwise as standard
/// output or error.
///
/// # Errors
///
/// `EINVAL` and `EOPNOTSUPP`: the socket has no association, or many. `ESHUTDOWN`: the peer sends no more, and the carrier is not
/// standard input.
pub(crate) fn to_plain(fd: RawFd, descriptor: &Descriptor, is_input: bool) -> Result<Plain> {
    let page = descriptor.pages();
    let _held = receive::hold_any_form(fd, page, &Patience::of_a_request()).map_err(lock::as_told)?;
    match setup::request(fd, &SocketRequest::Hold) {
        Err(Errno(libc::ESHUTDOWN)) if is_input => return rest(fd, descriptor).map(Plain::Rest),
        held => held?,
    }
    let moved = match page.status.plain.load(Relaxed) {
        0 => each_message(fd, descriptor, |record, _| put_back(fd, record)),
        _ => Ok(()),
    };
    // Records that stay in the carrier are read as records.
    setup::request(fd, &SocketRequest::SetForm { plain: moved.is_ok() })?;
    moved.map(|()| Plain::Carrier)
}

/// Makes the carrier's content records. The caller holds the lock.
///
/// # Errors
///
/// [`STAYS_PLAIN`].
pub(crate) fn to_records(fd: RawFd) -> Result<()> {
    match setup::request(fd, &SocketRequest::Hold) {
        Err(Errno(libc::ESHUTDOWN)) => return Err(STAYS_PLAIN),
        held => held?,
    }
    let moved = each_packet(fd, |record| put_back(fd, record));
    setup::request(fd, &SocketRequest::SetForm { plain: false })?;
    moved
}

/// Returns a descriptor that was found, once its carrier brings records.
///
/// # Errors
///
/// [`STAYS_PLAIN`].
pub(crate) fn of_records(fd: RawFd, descriptor: Descriptor) -> Result<Descriptor> {
    if descriptor.pages().status.plain.load(Relaxed) != 0 {
        receive::hold(fd, descriptor.pages(), &Patience::of_a_request()).map_err(lock::as_told)?;
    }
    Ok(descriptor)
}

/// Makes the carrier's content records, if possible.
pub(crate) fn back_to_records(fd: RawFd, descriptor: &Descriptor) {
    // If this fails, the next reader tries again.
    let _ = receive::hold(fd, descriptor.pages(), &Patience::of_a_request());
}

/// Tells the daemon to go on after a holder of the lock has died in the middle of a change of form. The daemon refuses this if no
/// change was under way.
pub(crate) fn let_go(fd: RawFd, page: Pages<'_>) {
    let _ = setup::request(fd, &SocketRequest::SetForm { plain: page.status.plain.load(Relaxed) != 0 });
}

/// Puts back a message that is in the carrier no more. Tries until the daemon has it: the message is nowhere else.
fn put_back(fd: RawFd, record: &[u8]) -> Result<()> {
    loop {
        match setup::request(fd, &SocketRequest::PutBack(record)) {
            // The process, its child or the daemon lacks descriptors or room for requests.
            Err(Errno(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::EAGAIN | libc::EINTR)) => {
                // A signal handler shortens the pause.
                let _ = Patience::of_a_request().pause(PUT_BACK_PAUSE);
            }
            put => return put,
        }
    }
}

/// Returns a file with the content of all waiting messages.
fn rest(fd: RawFd, descriptor: &Descriptor) -> Result<RawFd> {
    let file = system::memfd(MESSAGE)?;
    let mut end = 0;
    let filled = each_message(fd, descriptor, |_, content| {
        files::write_at(file, content, end)?;
        end += content.len();
        Ok(())
    });
    filled.and_then(|()| system::seal(file)).map(|()| file).inspect_err(|_| system::close(file))
}

/// Takes out all messages, and calls `f` with each as a record and with its content; long messages come in parts.
fn each_message(
    fd: RawFd,
    descriptor: &Descriptor,
    mut f: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut record = [0; PUT_BACK_BYTES_MAX];
    loop {
        let place = [Buffers::of(&mut record[HEADER_BYTES..])];
        // SAFETY: the destination is writable.
        let place = unsafe { Buffers::new(&place) };
        let message = match receive::take_held(fd, descriptor, place, libc::MSG_DONTWAIT) {
            Err(Errno(libc::EAGAIN | libc::ENOTCONN)) => return Ok(()),
            message => message?,
        };
        match message.header {
            None => return Ok(()),
            Some(header) if header.kind == Kind::Data => {
                let all = HEADER_BYTES + message.bytes;
                let mut flags = if message.whole { Flags::END } else { Flags::default() };
                if header.flags.contains(Flags::UNORDERED) {
                    flags = flags.with(Flags::UNORDERED);
                }
                let header = Header { flags, bytes: message.bytes as u32, ..header };
                record[..HEADER_BYTES].copy_from_slice(&header.encode());
                f(&record[..all], &record[HEADER_BYTES..all])?;
            }
            Some(_) => {}
        }
    }
}

/// Takes out all packets of plain content, and calls `f` with each as a record.
fn each_packet(fd: RawFd, mut f: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut record = [0; HEADER_BYTES + PLAIN_BYTES_MAX];
    loop {
        let place = [Buffers::of(&mut record[HEADER_BYTES..])];
        // SAFETY: the destination is writable.
        let bytes = match unsafe { system::receive::<0>(fd, &place, libc::MSG_DONTWAIT) } {
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
