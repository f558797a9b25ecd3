//! One of our descriptors: its shared page, mapped.

use std::os::fd::RawFd;
use std::ptr::NonNull;

use carrier::VERSION;
use carrier::shared_page::{PAGE_BYTES, SharedPage};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use ring::Ring;

use crate::bundle::RecordCopy;
use crate::mapping;
use crate::sleepers::Sleepers;
use crate::system::{self, Errno, Result};

/// A socket's page, shared with everybody who shares the descriptor.
pub(crate) struct Descriptor {
    page: NonNull<SharedPage>,
    ring: NonNull<[AtomicU64; ring::WORDS]>,
    /// Copy of the bundle at the front of the carrier.
    pub(crate) copy: RecordCopy,
    /// Number of receives from now on that expect to wait.
    patience: AtomicU32,
    /// Threads that sleep on this socket.
    pub(crate) sleepers: Sleepers,
}

/// Number of receives that expect to wait after one that had to.
const PATIENCE: u32 = 16;

// SAFETY: the page consists of atomics.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// Maps a page and closes its memfd.
    pub(crate) fn map(memfd: RawFd) -> Result<Descriptor> {
        // The memfd is sealed, so its size never changes.
        let place = mapping::map_page_and_ring(PAGE_BYTES, ring::BYTES, memfd);
        system::close(memfd);
        let page = place?;
        // SAFETY: the mapping reaches beyond its first part.
        let ring = unsafe { page.byte_add(PAGE_BYTES) }.cast();
        let (copy, patience) = (RecordCopy::new(), AtomicU32::new(0));
        let sleepers = Sleepers::new();
        let descriptor = Descriptor { page: page.cast(), ring, copy, patience, sleepers };
        match descriptor.page().version.load(Relaxed) == u32::from(VERSION) {
            true => Ok(descriptor),
            false => Err(Errno(libc::EPROTONOSUPPORT)),
        }
    }

    /// Returns whether this receive will probably wait: in a dialogue, looking first costs a call and finds nothing.
    pub(crate) fn expects_to_wait(&self) -> bool {
        let left = self.patience.load(Relaxed);
        // A lost update by concurrent readers is harmless.
        self.patience.store(left.saturating_sub(1), Relaxed);
        left > 0
    }

    /// Notes that a receive has waited.
    pub(crate) fn has_waited(&self) {
        self.patience.store(PATIENCE, Relaxed);
    }

    /// Returns the ring for messages to the daemon.
    pub(crate) fn ring(&self) -> Ring<'_> {
        // SAFETY: the ring is mapped for the lifetime of `self`, and consists of atomics.
        Ring::new(unsafe { self.ring.as_ref() })
    }

    pub(crate) fn page(&self) -> &SharedPage {
        // SAFETY: the page is mapped for the lifetime of `self`, and consists of atomics that start as zero.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the page was mapped with this size, and no reference to it remains.
        unsafe { mapping::unmap(self.page.cast(), PAGE_BYTES + ring::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use carrier::shared_page::FIELDS_BYTES;

    use super::*;

    #[test]
    fn a_page_without_entries_is_mapped_with_zeros_behind_it() {
        let version = u32::from(VERSION).to_ne_bytes();
        // Everybody who shares the page may claim entries.
        let (at, claimed) = (SharedPage::ENTRIES_USED_AT as libc::off_t, u32::MAX.to_ne_bytes());
        // SAFETY: the name is NUL-terminated, and the kernel reads the numbers.
        let memfd = unsafe {
            let memfd = libc::memfd_create(c"page".as_ptr(), libc::MFD_CLOEXEC);
            assert!(memfd >= 0 && libc::ftruncate(memfd, (FIELDS_BYTES + ring::BYTES) as libc::off_t) == 0);
            assert_eq!(
                libc::pwrite(memfd, version.as_ptr().cast(), 4, SharedPage::IDENTITY_AT as libc::off_t),
                4
            );
            assert_eq!(libc::pwrite(memfd, claimed.as_ptr().cast(), 4, at), 4);
            memfd
        };
        let descriptor = Descriptor::map(memfd).expect("a page of this version");
        let entries = descriptor.page().entries();
        assert!(!entries.is_empty() && entries.iter().all(|entry| entry.association.load(Relaxed) == 0));
    }
}
