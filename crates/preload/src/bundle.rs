//! Records that hold several messages.
//!
//! A bundle stays at the front of the carrier until its last message was read, so the descriptor polls readable until then. Each
//! reader copies the bundle once and then takes messages without system calls. The shared page counts how far all sharers have
//! read, and tells a reader whether its copy is still of the bundle at the front.
//!
//! The lock of the page guards all of this.

use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use carrier::bundle::Unread;
use carrier::record::{BUNDLE_BYTES_MAX, Flags, HEADER_BYTES, Header};

use crate::descriptor::{Descriptor, Pages};
use crate::mapping;
use crate::receive::{self, Message};
use crate::system::{self, Buffers, Errno, Result};

/// Peeks at the record at the front, and notes in the page if it is a bundle.
pub(crate) fn begin(fd: RawFd, descriptor: &Descriptor) -> Result<bool> {
    let page = descriptor.pages();
    let mut copy = descriptor.copy.lend()?;
    let bytes = copy.look(fd, page)?;
    let Some(header) = copy.content.get(..bytes).and_then(Header::parse) else { return Ok(false) };
    if header.flags.contains(Flags::IN_MEMFD) || HEADER_BYTES + header.bytes as usize >= bytes {
        return Ok(false);
    }
    copy.bytes = bytes;
    page.sharers.set_front(&header);
    page.sharers.bundle_at.store(0, Relaxed);
    page.sharers.bundle_bytes.store(bytes as u32, Relaxed);
    Ok(true)
}

/// Returns whether the record at the front is a bundle with messages already read.
pub(crate) fn is_begun(page: Pages<'_>) -> bool {
    page.sharers.bundle_bytes.load(Relaxed) > 0
}

/// Makes the next call peek again at the bundle at the front.
pub(crate) fn forget(page: Pages<'_>) {
    page.sharers.bundle_bytes.store(0, Relaxed);
    page.sharers.bundles_taken.fetch_add(1, Relaxed);
}

/// Notes that a bundle of this length is at the front and that its first message was read in part.
pub(crate) fn resume(page: Pages<'_>, bytes: u32) {
    page.sharers.bundle_at.store(0, Relaxed);
    page.sharers.bundle_bytes.store(bytes, Relaxed);
}

/// Takes the next message, or its next part if it is longer than `place`. With `peeks` the message stays.
pub(crate) fn take(fd: RawFd, descriptor: &Descriptor, place: Buffers<'_>, peeks: bool) -> Result<Message> {
    let page = descriptor.pages();
    let copy = copy(fd, descriptor)?;
    let (at, consumed) =
        (page.sharers.bundle_at.load(Relaxed) as usize, page.sharers.consumed.load(Relaxed) as usize);
    let Unread { header, rest, next } = Unread::of(copy.record(), at, consumed).ok_or(BROKEN)?;
    let bytes = place.write(rest)?;
    let until = consumed + bytes;
    let whole = bytes == rest.len();
    if !peeks && !whole {
        page.sharers.consumed.store(until as u32, Relaxed);
    }
    if !peeks && whole {
        if next < copy.bytes {
            page.sharers.consumed.store(0, Relaxed);
            page.sharers.bundle_at.store(next as u32, Relaxed);
        } else {
            // If this fails, the message is still there, as far as it was read.
            system::discard(fd)?;
            page.sharers.consumed.store(0, Relaxed);
            forget(page);
        }
        receive::count(page, &header);
    }
    Ok(Message { bytes, header: Some(header), whole: whole && header.flags.contains(Flags::END) })
}

/// Returns the header of the next message.
pub(crate) fn header(fd: RawFd, descriptor: &Descriptor) -> Result<Header> {
    let at = descriptor.pages().sharers.bundle_at.load(Relaxed) as usize;
    let copy = copy(fd, descriptor)?;
    Unread::of(copy.record(), at, 0).map(|unread| unread.header).ok_or(BROKEN)
}

/// The page and the record disagree.
const BROKEN: Errno = Errno(libc::EPROTO);

/// Returns a copy of the bundle at the front.
fn copy(fd: RawFd, descriptor: &Descriptor) -> Result<Lent<'_>> {
    let page = descriptor.pages();
    let mut copy = descriptor.copy.lend()?;
    let bytes = page.sharers.bundle_bytes.load(Relaxed) as usize;
    if copy.bytes != bytes || copy.of != page.sharers.bundles_taken.load(Relaxed) {
        copy.bytes = copy.look(fd, page)?;
    }
    if copy.bytes == bytes && bytes <= BUNDLE_BYTES_MAX {
        return Ok(copy);
    }
    // The next call peeks again.
    forget(page);
    page.sharers.consumed.store(0, Relaxed);
    Err(BROKEN)
}

/// Copy of the record at the front of a carrier. Its memory is mapped on first use: a signal handler may read, and must not
/// allocate.
pub(crate) struct RecordCopy(AtomicPtr<Copied>);

/// A copy in fresh memory, which is zero, is a copy of nothing.
///
/// The content comes first, at the beginning of a page: many processors copy from the kernel at less than half their speed to
/// the bytes behind it.
#[repr(C)]
pub(crate) struct Copied {
    content: [u8; BUNDLE_BYTES_MAX],
    /// Number of bundles taken before the one copied here.
    of: u32,
    /// Length of the bundle; 0 if the record is none.
    bytes: usize,
}

impl Copied {
    fn record(&self) -> &[u8] {
        &self.content[..self.bytes]
    }

    /// Copies the record and returns its length. The record counts as a bundle only once the caller has noted it.
    fn look(&mut self, fd: RawFd, page: Pages<'_>) -> Result<usize> {
        (self.of, self.bytes) = (page.sharers.bundles_taken.load(Relaxed), 0);
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let place = [Buffers::of(&mut self.content)];
        // SAFETY: the destination is writable.
        Ok(unsafe { system::receive::<0>(fd, &place, flags) }?.bytes)
    }
}

/// A copy while a call uses it. A child that forks meanwhile finds no copy, and makes another.
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
            None => mapping::map_private(size_of::<Copied>())?.cast(),
        };
        Ok(Lent { owner: self, copied })
    }
}

impl Deref for Lent<'_> {
    type Target = Copied;

    fn deref(&self) -> &Copied {
        // SAFETY: the memory is mapped, and this thread alone has taken it.
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
        // SAFETY: the memory was mapped with this size, and no reference to it remains.
        unsafe { mapping::unmap(copied.cast(), size_of::<Copied>()) };
    }
}
