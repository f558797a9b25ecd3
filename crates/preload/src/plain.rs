//! Changes the form of a pair's content for a program that it is handed to: plain content for one without the shim, and
//! records again for one with it (see [`form`]). No function here allocates, because some run between `vfork` and `exec`.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use channel_protocol::record::{Flags, HEADER_BYTES, Header, Kind};
use channel_protocol::request::{PUT_BACK_BYTES_MAX, SocketRequest};

use crate::ask::request;
use crate::descriptor::Descriptor;
use crate::form::ReadError;
use crate::lock::Patience;
use crate::owned::Owned;
use crate::reader::Reader;
use crate::system::{self, Buffers, Destination, Errno, Result};
use crate::{files, form};

/// Name of the file with what is left to read.
const MESSAGE: &CStr = c"swiftwater-message";

/// A standard descriptor of a program without the shim, in place of a pair with records.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    /// The pair, in plain form.
    Pair,
    /// For standard input, a file with all unread content, since the peer sends no more.
    Rest(RawFd),
}

/// Makes the pair's content plain, for a program without the shim that has it as standard input, or otherwise as standard
/// output or error.
///
/// # Errors
///
/// `EINVAL` and `EOPNOTSUPP`: the socket has no association, or many. `ESHUTDOWN`: the peer sends no more, and the pair is not
/// standard input.
pub(crate) fn to_plain(fd: RawFd, descriptor: &Descriptor, is_input: bool) -> Result<Plain> {
    let pages = descriptor.pages();
    let reader = Reader::lock_in_any_form(fd, pages, &Patience::of_a_request())?;
    match request(fd, &SocketRequest::Hold) {
        Err(Errno(libc::ESHUTDOWN)) if is_input => {
            return rest(&reader).map(|file| Plain::Rest(file.release()));
        }
        held => held?,
    }
    let moved = match pages.status.plain.load(Relaxed) {
        0 => each_message(&reader, |record, _| form::put_back(fd, record)),
        _ => Ok(()),
    };
    // Records that stay in the pair are read as records.
    request(fd, &SocketRequest::SetForm { plain: moved.is_ok() })?;
    moved.map(|()| Plain::Pair)
}

/// Returns a descriptor that was found, once its pair brings records.
pub(crate) fn of_records(fd: RawFd, descriptor: Descriptor) -> Result<Descriptor, ReadError> {
    if descriptor.pages().status.plain.load(Relaxed) != 0 {
        Reader::lock(fd, descriptor.pages(), &Patience::of_a_request())?;
    }
    Ok(descriptor)
}

/// Makes the pair's content records, if possible.
pub(crate) fn back_to_records(fd: RawFd, descriptor: &Descriptor) {
    // If this fails, the next reader tries again.
    let _ = Reader::lock(fd, descriptor.pages(), &Patience::of_a_request());
}

/// Returns a file with the content of all waiting messages.
fn rest(reader: &Reader<'_>) -> Result<Owned> {
    let file = system::memfd(MESSAGE)?;
    let mut end = 0;
    each_message(reader, |_, content| {
        files::write_at(file.raw(), content, end)?;
        end += content.len();
        Ok(())
    })?;
    system::seal(file.raw())?;
    Ok(file)
}

/// Takes out all messages, and calls `f` with each as a record and with its content; long messages come in parts.
fn each_message(reader: &Reader<'_>, mut f: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut record = [0; PUT_BACK_BYTES_MAX];
    loop {
        let place = [Destination::of(&mut record[HEADER_BYTES..])];
        let message = match reader.take(Buffers::new(&place), libc::MSG_DONTWAIT) {
            Err(Errno(libc::EAGAIN)) => return Ok(()),
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
