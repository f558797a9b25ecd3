//! Records that hold several messages.
//!
//! A bundle stays at the front of the carrier until its last message was read, so the descriptor polls readable until then. Each
//! reader copies the bundle once and then takes messages without system calls. The sharers' page counts how far all sharers have
//! read, and tells a reader whether its copy is still of the bundle at the front.
//!
//! The lock for reading guards all of this.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use carrier::bundle::{Unread, messages};
use carrier::record::{BUNDLE_BYTES_MAX, Flags, Header};

use crate::descriptor::Descriptor;
use crate::message::{self, Message};
use crate::pages::Pages;
use crate::record_copy::Lent;
use crate::system::{self, Buffers, Errno, Result};

/// Peeks at the record at the front, and notes in the page if it is a bundle.
pub(crate) fn begin(fd: RawFd, descriptor: &Descriptor) -> Result<bool> {
    let pages = descriptor.pages();
    let mut copy = descriptor.copy.lend()?;
    let bytes = copy.look(fd, pages)?;
    let Some(header) = copy.content.get(..bytes).and_then(Header::parse) else { return Ok(false) };
    if header.flags.contains(Flags::IN_MEMFD) || header.record_bytes() >= bytes {
        return Ok(false);
    }
    copy.bytes = bytes;
    pages.sharers.set_front(&header);
    pages.sharers.bundle_at.store(0, Relaxed);
    pages.sharers.bundle_bytes.store(bytes as u32, Relaxed);
    Ok(true)
}

/// Returns whether the record at the front is a bundle with messages already read.
pub(crate) fn is_begun(pages: Pages<'_>) -> bool {
    pages.sharers.bundle_bytes.load(Relaxed) > 0
}

/// Makes the next call peek again at the bundle at the front.
pub(crate) fn forget(pages: Pages<'_>) {
    pages.sharers.bundle_bytes.store(0, Relaxed);
    pages.sharers.bundles_taken.fetch_add(1, Relaxed);
}

/// Notes that a bundle of this length is at the front and that its first message was read in part.
pub(crate) fn resume(pages: Pages<'_>, bytes: u32) {
    pages.sharers.bundle_at.store(0, Relaxed);
    pages.sharers.bundle_bytes.store(bytes, Relaxed);
}

/// Takes the next message, or its next part if it is longer than `buffers`. With `peeks` the message stays.
pub(crate) fn take(fd: RawFd, descriptor: &Descriptor, buffers: Buffers<'_>, peeks: bool) -> Result<Message> {
    let pages = descriptor.pages();
    let copy = copy(fd, descriptor)?;
    let (at, consumed) =
        (pages.sharers.bundle_at.load(Relaxed) as usize, pages.sharers.consumed.load(Relaxed) as usize);
    let Unread { header, rest, next } = Unread::of(copy.record(), at, consumed).ok_or(BROKEN)?;
    let bytes = buffers.write(rest)?;
    let until = consumed + bytes;
    let whole = bytes == rest.len();
    if !peeks && !whole {
        pages.sharers.consumed.store(until as u32, Relaxed);
    }
    if !peeks && whole {
        if next < copy.bytes {
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
pub(crate) fn header(fd: RawFd, descriptor: &Descriptor) -> Result<Header> {
    let at = descriptor.pages().sharers.bundle_at.load(Relaxed) as usize;
    let copy = copy(fd, descriptor)?;
    Unread::of(copy.record(), at, 0).map(|unread| unread.header).ok_or(BROKEN)
}

/// Returns the length of the messages from offset `from` on in the bundle that the next peek finds.
pub(crate) fn unread_bytes(fd: RawFd, descriptor: &Descriptor, from: usize) -> Result<usize> {
    let mut copy = descriptor.copy.lend()?;
    // Takes the place of the copy of the bundle at the front, which the next reader makes again.
    let bytes = copy.look(fd, descriptor.pages())?;
    let record = copy.content.get(..bytes).ok_or(BROKEN)?;
    let unread = messages(record).filter(|(at, _)| *at >= from);
    Ok(unread.map(|(_, header)| header.bytes as usize).sum())
}

/// The page and the record disagree.
const BROKEN: Errno = Errno(libc::EPROTO);

/// Returns a copy of the bundle at the front.
fn copy(fd: RawFd, descriptor: &Descriptor) -> Result<Lent<'_>> {
    let pages = descriptor.pages();
    let mut copy = descriptor.copy.lend()?;
    let bytes = pages.sharers.bundle_bytes.load(Relaxed) as usize;
    if copy.bytes != bytes || copy.of != pages.sharers.bundles_taken.load(Relaxed) {
        copy.bytes = copy.look(fd, pages)?;
    }
    if copy.bytes == bytes && bytes <= BUNDLE_BYTES_MAX {
        return Ok(copy);
    }
    // The next call peeks again.
    forget(pages);
    pages.sharers.consumed.store(0, Relaxed);
    Err(BROKEN)
}
