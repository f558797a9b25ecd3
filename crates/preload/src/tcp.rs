//! Programs that know TCP only, whose TCP sockets become one-to-one SCTP sockets (`swiftwater run --tcp-as-sctp`).

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use channel_protocol::abi::SCTP_NODELAY;
use channel_protocol::read_position::Front;
use channel_protocol::record::{Flags, HEADER_BYTES, Kind};
use channel_protocol::status_page::RING_BYTES;
use libc::c_int;

use crate::descriptor::Descriptor;
use crate::environment;
use crate::form::ReadError;
use crate::lock::Patience;
use crate::message::{self, Message};
use crate::pages::Pages;
use crate::reader::Reader;
use crate::system::{self, Buffers, Content, Destination, Errno, Result};
use crate::{bundle, receive, table};

/// Returns the SCTP option that is equivalent to a TCP option, if there is one; other options stay as they are.
pub(crate) fn as_sctp(level: c_int, name: c_int) -> (c_int, c_int) {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) if environment::is_tcp_as_sctp() => {
            (libc::IPPROTO_SCTP, SCTP_NODELAY)
        }
        same => same,
    }
}

/// TCP options that only say when data or acknowledgements leave, or how long a silent peer is waited for. SCTP decides these
/// itself; a program that may not set them gives up its connection, as nginx does without `TCP_CORK`.
const HINTS: [c_int; 11] = [
    libc::TCP_CORK,
    libc::TCP_KEEPIDLE,
    libc::TCP_KEEPINTVL,
    libc::TCP_KEEPCNT,
    libc::TCP_SYNCNT,
    libc::TCP_LINGER2,
    libc::TCP_DEFER_ACCEPT,
    libc::TCP_QUICKACK,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_FASTOPEN,
    libc::TCP_NOTSENT_LOWAT,
];

/// Returns whether a program may set a TCP option, which then has no effect and reads as 0.
pub(crate) fn is_hint(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_TCP && HINTS.contains(&name) && environment::is_tcp_as_sctp()
}

/// Receives without ancillary data; where TCP sockets are SCTP sockets, as from a TCP socket, which has no messages. Such
/// programs take a short read for all that is there, and wait for an edge of `epoll` that came before.
pub(crate) fn receive(
    fd: RawFd,
    descriptor: &Descriptor,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Result<Message, ReadError> {
    let first = receive::receive(fd, descriptor, buffers, flags)?;
    if !is_stream(descriptor) || first.bytes == 0 || flags & libc::MSG_PEEK != 0 {
        return Ok(first);
    }
    let mut bytes = first.bytes;
    // Another thread may have closed the number meanwhile, and it may be another socket.
    while let Some(part) = buffers.part_at(bytes).filter(|_| table::is(fd, descriptor)) {
        match receive_more(fd, descriptor, part, flags) {
            Ok(more @ 1..) => bytes += more,
            // The next call finds the end, or the error.
            _ => break,
        }
    }
    Ok(Message { bytes, ..first })
}

/// Returns whether a socket is one of TCP for its program.
pub(crate) fn is_stream(descriptor: &Descriptor) -> bool {
    environment::was_tcp_as_sctp()
        && descriptor.pages().status.style.load(Relaxed) == libc::SOCK_STREAM as u32
}

/// Sends content in messages of at most `bytes_max`, each by `send`. Returns the number of bytes sent, which is less than
/// all if one of them fails, as with TCP.
#[cold]
#[inline(never)]
pub(crate) fn send_in_parts(
    content: Content<'_>,
    bytes_max: usize,
    send: impl Fn(Content<'_>) -> Result<usize>,
) -> Result<usize> {
    let mut sent = 0;
    while let Some(rest) = content.part_at(sent) {
        match send(Content::new(&[rest.up_to(bytes_max)])) {
            Ok(bytes) => sent += bytes,
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}

/// Number of records whose content is counted exactly.
const COUNTED_RECORDS_MAX: usize = 64;

/// Returns the number of bytes that a receive finds (`FIONREAD`), those of all messages where TCP sockets are SCTP sockets: nginx
/// takes what it has read as all that there was. With many messages the number is too large rather than too small.
pub(crate) fn available(fd: RawFd, descriptor: &Descriptor) -> Result<usize, ReadError> {
    if !is_stream(descriptor) {
        return receive::available(fd, descriptor);
    }
    let pages = descriptor.pages();
    if receive::available(fd, descriptor)? == 0 {
        return Ok(0);
    }
    let reader = Reader::lock(fd, pages, &Patience::of_a_look())?;
    let noted = pages.sharers.position().load();
    let counted = records(fd, pages, noted);
    reader.restore_peek_offset()?;
    Ok(counted?.saturating_sub(noted.consumed() as usize))
}

/// Returns the length of the content of all records, except for messages of a bundle at the front that were read, and leaves
/// the kernel's peek offset anywhere. The caller holds the read lock.
fn records(fd: RawFd, pages: Pages<'_>, noted: Front) -> Result<usize> {
    let begun = if let Front::Bundle(position) = noted { position.next as usize } else { 0 };
    let (mut at, mut content) = (0, 0);
    for _ in 0..COUNTED_RECORDS_MAX {
        system::set_peek_offset(fd, at as c_int)?;
        match message::measure(fd) {
            Ok((Some(header), bytes)) => {
                let is_long = header.flags.contains(Flags::IN_MEMFD);
                content += if is_long {
                    header.bytes as usize
                } else if let Some(extent) = header.bundle() {
                    bundle::unread_bytes(pages, extent, if at == 0 { begun } else { 0 })
                } else {
                    bytes.saturating_sub(HEADER_BYTES)
                };
                at += bytes;
            }
            Ok((None, _)) | Err(Errno(libc::EAGAIN)) => return Ok(content),
            Err(error) => return Err(error),
        }
    }
    // The others may be bundles.
    Ok(content + system::unread_bytes(fd)?.saturating_sub(at) + RING_BYTES)
}

/// Receives what is there already, or waits for it if the flags want all of a buffer. Returns the number of bytes.
fn receive_more(
    fd: RawFd,
    descriptor: &Descriptor,
    part: Destination<'_>,
    flags: c_int,
) -> Result<usize, ReadError> {
    let part = [part];
    let buffers = Buffers::new(&part);
    if flags & libc::MSG_WAITALL != 0 {
        return receive::receive(fd, descriptor, buffers, flags).map(|message| message.bytes);
    }
    let flags = libc::MSG_DONTWAIT;
    let reader = Reader::lock(fd, descriptor.pages(), &Patience::of_receive(fd, flags))?;
    match reader.front()? {
        Some(header) if header.kind == Kind::Data => Ok(reader.take(buffers, flags)?.bytes),
        _ => Ok(0),
    }
}
