//! The form of what a carrier brings: records, or plain content for programs without the shim.
//!
//! A sharer changes it while it holds the lock for reading: it takes out what lies there, and the daemon puts that back in the other
//! form. All this is done without an allocation, because it is done between `vfork` and `exec`, too.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use carrier::page::Page;
use carrier::record::{Flags, HEADER_BYTES, Header, Kind, PLAIN_BYTES_MAX};
use carrier::request::{PUT_BACK_BYTES_MAX, Request};

use crate::descriptor::Descriptor;
use crate::lock::{self, Patience};
use crate::system::{self, Buffers, Errno, Result};
use crate::{files, receive, setup};

/// What lies in a carrier stays plain, because its end lies behind it already: the descriptor is one of AF_UNIX like any other.
pub(crate) const STAYS_PLAIN: Errno = Errno(libc::ESTALE);

/// What a program without the shim gets in place of a carrier.
pub(crate) enum Plain {
    /// The carrier, in plain form.
    Carrier,
    /// A file with all that was unread, since the peer sends no more.
    Rest(RawFd),
}

/// Sees to it that a program without the shim can read.
///
/// # Errors
///
/// `EINVAL`, `EOPNOTSUPP`: the socket has not one association.
pub(crate) fn to_plain(fd: RawFd, descriptor: &Descriptor) -> Result<Plain> {
    let page = descriptor.page();
    let _held = receive::hold_any_form(fd, page, &Patience::of_a_request()).map_err(lock::as_told)?;
    match setup::request(fd, &Request::Hold) {
        Err(Errno(libc::ESHUTDOWN)) => return rest(fd, descriptor).map(Plain::Rest),
        held => held?,
    }
    let moved = match page.plain.load(Relaxed) {
        0 => each_message(fd, descriptor, |record, _| put_back(fd, record)),
        _ => Ok(()),
    };
    setup::request(fd, &Request::SetForm { plain: true })?;
    moved.map(|()| Plain::Carrier)
}

/// Sees to it that records are read. The caller holds the lock.
///
/// # Errors
///
/// [`STAYS_PLAIN`].
pub(crate) fn to_records(fd: RawFd) -> Result<()> {
    match setup::request(fd, &Request::Hold) {
        Err(Errno(libc::ESHUTDOWN)) => return Err(STAYS_PLAIN),
        held => held?,
    }
    let moved = each_packet(fd, |record| put_back(fd, record));
    setup::request(fd, &Request::SetForm { plain: false })?;
    moved
}

/// Returns a descriptor that was found, once records are read from it.
///
/// # Errors
///
/// [`STAYS_PLAIN`].
pub(crate) fn of_records(fd: RawFd, descriptor: Descriptor) -> Result<Descriptor> {
    if descriptor.page().plain.load(Relaxed) != 0 {
        receive::hold(fd, descriptor.page(), &Patience::of_a_request()).map_err(lock::as_told)?;
    }
    Ok(descriptor)
}

/// Sees to it that records are read, unless that is impossible.
pub(crate) fn back_to_records(fd: RawFd, descriptor: &Descriptor) {
    // Where it stays as it is, the next reader tries again.
    let _ = receive::hold(fd, descriptor.page(), &Patience::of_a_request());
}

/// Whoever held the lock has died, and may have kept the daemon from going on. Where it has not, the daemon refuses this.
pub(crate) fn let_go(fd: RawFd, page: &Page) {
    let _ = setup::request(fd, &Request::SetForm { plain: page.plain.load(Relaxed) != 0 });
}

fn put_back(fd: RawFd, record: &[u8]) -> Result<()> {
    setup::request(fd, &Request::PutBack(record))
}

/// A file with the content of all messages that lie there.
fn rest(fd: RawFd, descriptor: &Descriptor) -> Result<RawFd> {
    let file = system::memfd()?;
    let mut end = 0;
    let filled = each_message(fd, descriptor, |_, content| {
        files::write_at(file, content, end)?;
        end += content.len();
        Ok(())
    });
    filled.and_then(|()| system::seal(file)).map(|()| file).inspect_err(|_| system::close(file))
}

/// Takes all messages out, and calls `f` with each as a record and with its content; long ones come in parts.
fn each_message(
    fd: RawFd,
    descriptor: &Descriptor,
    mut f: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut record = [0; PUT_BACK_BYTES_MAX];
    loop {
        let place = [Buffers::of(&mut record[HEADER_BYTES..])];
        // SAFETY: the place may be written.
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

/// Takes all packets of plain content out, and calls `f` with each as a record.
fn each_packet(fd: RawFd, mut f: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut record = [0; HEADER_BYTES + PLAIN_BYTES_MAX];
    loop {
        let place = [Buffers::of(&mut record[HEADER_BYTES..])];
        // SAFETY: the place may be written.
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
