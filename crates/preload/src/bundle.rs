//! Records that hold several messages.
//!
//! Such a record stays at the front of the carrier until its last message was read, so that the descriptor polls readable as
//! long. Whoever reads of it copies it once; then a message costs no system call. The page says how far all who share the
//! descriptor have come, and whether a copy is still of what is at the front.
//!
//! All of this is done under the lock of the page.

use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use carrier::bundle::Unread;
use carrier::page::Page;
use carrier::record::{BUNDLE_BYTES_MAX, Flags, HEADER_BYTES, Header};

use crate::descriptor::Descriptor;
use crate::receive::{self, Message};
use crate::system::{self, Buffers, Errno, Result};

/// Looks at the record at the front, and notes if it is a bundle.
pub(crate) fn begin(fd: RawFd, descriptor: &Descriptor) -> Result<bool> {
    let page = descriptor.page();
    let mut copy = descriptor.copy.lend()?;
    let bytes = copy.look(fd, page)?;
    let Some(header) = copy.content.get(..bytes).and_then(Header::parse) else { return Ok(false) };
    if header.flags.contains(Flags::IN_MEMFD) || HEADER_BYTES + header.bytes as usize >= bytes {
        return Ok(false);
    }
    copy.bytes = bytes;
    page.set_front(&header);
    page.bundle_at.store(0, Relaxed);
    page.bundle_bytes.store(bytes as u32, Relaxed);
    Ok(true)
}

/// Whether the record at the front is a bundle of which somebody has read.
pub(crate) fn is_begun(page: &Page) -> bool {
    page.bundle_bytes.load(Relaxed) > 0
}

/// What is left of the bundle at the front is looked at anew.
pub(crate) fn forget(page: &Page) {
    page.bundle_bytes.store(0, Relaxed);
    page.bundles_taken.fetch_add(1, Relaxed);
}

/// A bundle of this length is at the front, whose first message was read in part.
pub(crate) fn resume(page: &Page, bytes: u32) {
    page.bundle_at.store(0, Relaxed);
    page.bundle_bytes.store(bytes, Relaxed);
}

/// Takes the next message, or of one that is longer than `place` the next part. With `peeks` it stays.
pub(crate) fn take(fd: RawFd, descriptor: &Descriptor, place: Buffers<'_>, peeks: bool) -> Result<Message> {
    let page = descriptor.page();
    let copy = copy(fd, descriptor)?;
    let (at, consumed) = (page.bundle_at.load(Relaxed) as usize, page.consumed.load(Relaxed) as usize);
    let Unread { header, rest, next } = Unread::of(copy.record(), at, consumed).ok_or(BROKEN)?;
    let bytes = place.write(rest)?;
    let until = consumed + bytes;
    let whole = bytes == rest.len();
    if !peeks && !whole {
        page.consumed.store(until as u32, Relaxed);
    }
    if !peeks && whole {
        page.consumed.store(0, Relaxed);
        if next < copy.bytes {
            page.bundle_at.store(next as u32, Relaxed);
        } else {
            system::discard(fd)?;
            forget(page);
        }
        receive::count(page, &header);
    }
    Ok(Message { bytes, header: Some(header), whole: whole && header.flags.contains(Flags::END) })
}

/// The header of the next message.
pub(crate) fn header(fd: RawFd, descriptor: &Descriptor) -> Result<Header> {
    let at = descriptor.page().bundle_at.load(Relaxed) as usize;
    let copy = copy(fd, descriptor)?;
    Unread::of(copy.record(), at, 0).map(|unread| unread.header).ok_or(BROKEN)
}

/// The page says something else than the record.
const BROKEN: Errno = Errno(libc::EPROTO);

/// The bundle at the front.
fn copy(fd: RawFd, descriptor: &Descriptor) -> Result<Lent<'_>> {
    let page = descriptor.page();
    let mut copy = descriptor.copy.lend()?;
    let bytes = page.bundle_bytes.load(Relaxed) as usize;
    if copy.bytes != bytes || copy.of != page.bundles_taken.load(Relaxed) {
        copy.bytes = copy.look(fd, page)?;
    }
    if copy.bytes == bytes && bytes <= BUNDLE_BYTES_MAX {
        return Ok(copy);
    }
    // The next call looks anew.
    forget(page);
    page.consumed.store(0, Relaxed);
    Err(BROKEN)
}

/// A copy of the record at the front of a carrier, in memory of its own once it is needed: a signal handler may read, and must
/// not allocate.
pub(crate) struct RecordCopy(AtomicPtr<Copied>);

/// As fresh memory is zero, it is a copy of nothing.
pub(crate) struct Copied {
    /// It is of the bundle behind so many that were taken away.
    of: u32,
    /// 0: it is no bundle.
    bytes: usize,
    content: [u8; BUNDLE_BYTES_MAX],
}

impl Copied {
    fn record(&self) -> &[u8] {
        &self.content[..self.bytes]
    }

    /// Copies the record; says how long it is. Unless that is noted then, it is no bundle.
    fn look(&mut self, fd: RawFd, page: &Page) -> Result<usize> {
        (self.of, self.bytes) = (page.bundles_taken.load(Relaxed), 0);
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let place = [Buffers::of(&mut self.content)];
        // SAFETY: the place may be written.
        Ok(unsafe { system::receive::<0>(fd, &place, flags) }?.bytes)
    }
}

/// The copy, in use. The child of a `fork` in the middle of that finds none, and makes another.
pub(crate) struct Lent<'a> {
    owner: &'a RecordCopy,
    copied: NonNull<Copied>,
}

impl RecordCopy {
    pub(crate) const fn new() -> RecordCopy {
        RecordCopy(AtomicPtr::new(null_mut()))
    }

    fn lend(&self) -> Result<Lent<'_>> {
        let copied = match NonNull::new(self.0.swap(null_mut(), AcqRel)) {
            Some(copied) => copied,
            None => system::map_private(size_of::<Copied>())?.cast(),
        };
        Ok(Lent { owner: self, copied })
    }
}

impl Deref for Lent<'_> {
    type Target = Copied;

    fn deref(&self) -> &Copied {
        // SAFETY: it is mapped, and nobody else has it.
        unsafe { self.copied.as_ref() }
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Copied {
        // SAFETY: as above.
        unsafe { self.copied.as_mut() }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        unmap(self.owner.0.swap(self.copied.as_ptr(), AcqRel));
    }
}

impl Drop for RecordCopy {
    fn drop(&mut self) {
        unmap(*self.0.get_mut());
    }
}

fn unmap(copied: *mut Copied) {
    if let Some(copied) = NonNull::new(copied) {
        // SAFETY: it was mapped with this size, and nobody refers to it any more.
        unsafe { system::unmap(copied.cast(), size_of::<Copied>()) };
    }
}
