//! Several messages to the program that share a record: a bundle.
//!
//! The messages of a bundle lie in the receive ring, which the daemon writes and the program maps, and the record says where.
//! The record stays at the front of the carrier until the last message was read, so the descriptor polls readable until then,
//! and the daemon leaves the memory as it is. Readers take messages without system calls; the sharers' page counts how far
//! all of them have read.
//!
//! The lock for reading guards all of this.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use carrier::bundle::{Extent, Unread, messages};
use carrier::record::{Flags, Header};

use crate::message::{self, Message};
use crate::pages::Pages;
use crate::system::{self, Buffers, Errno, Result};

/// Peeks at the record at the front, and notes in the page if it is a bundle.
pub(crate) fn begin(fd: RawFd, pages: Pages<'_>) -> Result<bool> {
    let (Some(record), _) = message::measure(fd)? else { return Ok(false) };
    let Some(extent) = record.bundle() else { return Ok(false) };
    let first = first(pages, extent).ok_or(BROKEN)?;
    pages.sharers.set_front(&first);
    pages.sharers.bundle_at.store(0, Relaxed);
    pages.sharers.bundle_place.store(extent.offset, Relaxed);
    pages.sharers.bundle_bytes.store(extent.bytes, Relaxed);
    Ok(true)
}

/// Returns the header of the first message of a bundle.
pub(crate) fn first(pages: Pages<'_>, extent: Extent) -> Option<Header> {
    Header::parse(pages.ring.bundle(extent)?)
}

/// Returns whether the record at the front is a bundle with messages already read.
pub(crate) fn is_begun(pages: Pages<'_>) -> bool {
    pages.sharers.bundle_bytes.load(Relaxed) > 0
}

/// Makes the next call peek again at the bundle at the front.
pub(crate) fn forget(pages: Pages<'_>) {
    pages.sharers.bundle_bytes.store(0, Relaxed);
}

/// Takes the next message, or its next part if it is longer than `buffers`. With `peeks` the message stays.
pub(crate) fn take(fd: RawFd, pages: Pages<'_>, buffers: Buffers<'_>, peeks: bool) -> Result<Message> {
    let bundle = front(pages)?;
    let (at, consumed) =
        (pages.sharers.bundle_at.load(Relaxed) as usize, pages.sharers.consumed.load(Relaxed) as usize);
    let Unread { header, rest, next } = Unread::of(bundle, at, consumed).ok_or(BROKEN)?;
    let bytes = buffers.write(rest)?;
    let until = consumed + bytes;
    let whole = bytes == rest.len();
    if !peeks && !whole {
        pages.sharers.consumed.store(until as u32, Relaxed);
    }
    if !peeks && whole {
        if next < bundle.len() {
            pages.sharers.consumed.store(0, Relaxed);
            pages.sharers.bundle_at.store(next as u32, Relaxed);
        } else {
            // If this fails, the message is still there, as far as it was read.
            system::discard(fd)?;
            pages.sharers.consumed.store(0, Relaxed);
            forget(pages);
        }
        message::count(pages, &header);
    }
    Ok(Message { bytes, header: Some(header), whole: whole && header.flags.contains(Flags::END) })
}

/// Returns the header of the next message.
pub(crate) fn header(pages: Pages<'_>) -> Result<Header> {
    let at = pages.sharers.bundle_at.load(Relaxed) as usize;
    Unread::of(front(pages)?, at, 0).map(|unread| unread.header).ok_or(BROKEN)
}

/// Returns the length of the messages of a bundle from offset `from` on.
pub(crate) fn unread_bytes(pages: Pages<'_>, extent: Extent, from: usize) -> usize {
    let bundle = pages.ring.bundle(extent).unwrap_or_default();
    let unread = messages(bundle).filter(|(at, _)| *at >= from);
    unread.map(|(_, header)| header.bytes as usize).sum()
}

/// The page and the record disagree.
const BROKEN: Errno = Errno(libc::EPROTO);

/// Returns the bundle at the front.
fn front(pages: Pages<'_>) -> Result<&[u8]> {
    let extent = Extent {
        offset: pages.sharers.bundle_place.load(Relaxed),
        bytes: pages.sharers.bundle_bytes.load(Relaxed),
    };
    pages.ring.bundle(extent).ok_or_else(|| {
        // The next call peeks again.
        forget(pages);
        pages.sharers.consumed.store(0, Relaxed);
        BROKEN
    })
}
