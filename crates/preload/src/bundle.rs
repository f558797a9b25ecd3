//! Several messages to the program that share a record: a bundle.
//!
//! The messages of a bundle lie in the receive ring, which the daemon writes and the program maps, and the record says where.
//! The record stays at the front of the pair until the last message was read, so the descriptor polls readable until then,
//! and the daemon leaves the memory as it is. Readers take messages without system calls; the sharers' page counts how far
//! all of them have read.
//!
//! The lock for reading guards all of this.

use std::os::fd::RawFd;

use channel_protocol::bundle::{Unread, messages};
use channel_protocol::read_position::InBundle;
use channel_protocol::record::Extent;
use channel_protocol::record::{Flags, Header};

use crate::message::{self, Message};
use crate::pages::Pages;
use crate::system::{self, Buffers, Errno, Result};

/// Peeks at the record at the front, and begins it if it is a bundle, of whose first message `consumed` bytes were read.
pub(crate) fn begin(fd: RawFd, pages: Pages<'_>, consumed: u32) -> Result<Option<InBundle>> {
    let (Some(record), _) = message::measure(fd)? else { return Ok(None) };
    let Some(extent) = record.bundle() else { return Ok(None) };
    let first = first(pages, extent).ok_or(BROKEN)?;
    pages.sharers.position().on_bundle_begun(extent, &first, consumed);
    Ok(Some(InBundle { extent, next: 0, consumed }))
}

/// Returns the header of the first message of a bundle.
pub(crate) fn first(pages: Pages<'_>, extent: Extent) -> Option<Header> {
    Header::parse(pages.ring.bundle(extent)?)
}

/// Takes the message at `position`, or its next part if it is longer than `buffers`. With `peeks` the message stays.
pub(crate) fn take(
    fd: RawFd,
    pages: Pages<'_>,
    position: InBundle,
    buffers: Buffers<'_>,
    peeks: bool,
) -> Result<Message> {
    let bundle = content(pages, position)?;
    let Unread { header, rest, next } = position.unread(bundle).ok_or(BROKEN)?;
    let bytes = buffers.write(rest)?;
    let whole = bytes == rest.len();
    let noted = pages.sharers.position();
    if !peeks && !whole {
        noted.on_part_read(position.consumed + bytes as u32);
    }
    if !peeks && whole {
        if next < bundle.len() {
            noted.on_bundled_message_read(next as u32);
        } else {
            // If this fails, the message is still there, as far as it was read.
            system::discard(fd)?;
            noted.on_record_removed();
        }
        pages.sharers.on_message_taken(&header);
    }
    Ok(Message { bytes, header: Some(header), whole: whole && header.flags.contains(Flags::END) })
}

/// Returns the header of the message at `position`.
pub(crate) fn next_header(pages: Pages<'_>, position: InBundle) -> Result<Header> {
    let message = InBundle { consumed: 0, ..position };
    message.unread(content(pages, position)?).map(|unread| unread.header).ok_or(BROKEN)
}

/// Returns the length of the messages of a bundle from offset `from` on.
pub(crate) fn unread_bytes(pages: Pages<'_>, extent: Extent, from: usize) -> usize {
    let bundle = pages.ring.bundle(extent).unwrap_or_default();
    let unread = messages(bundle).filter(|(at, _)| *at >= from);
    unread.map(|(_, header)| header.bytes as usize).sum()
}

/// The page and the record disagree.
const BROKEN: Errno = Errno(libc::EPROTO);

/// Returns the bundle that a reader has begun.
fn content(pages: Pages<'_>, position: InBundle) -> Result<&[u8]> {
    pages.ring.bundle(position.extent).ok_or_else(|| {
        // The next call peeks again.
        pages.sharers.position().on_record_removed();
        BROKEN
    })
}
