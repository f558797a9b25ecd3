//! An SCTP descriptor, which is a pair of the daemon: its pages and its receive ring, mapped.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use channel_protocol::VERSION;
use channel_protocol::sharers_page::{SHARERS_BYTES, SharersPage};
use channel_protocol::status_page::{STATUS_BYTES, StatusPage};

use crate::mapping::{self, Mapping};
use crate::own_ring::OwnRing;
use crate::owned::Owned;
use crate::pages::{Pages, ReceiveRing};
use crate::sleepers::Sleepers;
use crate::system::{Errno, Result};

/// A socket's pages, which all sharers of the descriptor have mapped, and what this process knows of the socket.
pub(crate) struct Descriptor {
    status: Mapping,
    sharers: Mapping,
    /// The ring through which this process sends.
    pub(crate) ring: OwnRing,
    /// Number of receives from now on that expect to wait.
    patience: AtomicU32,
    /// Threads that sleep on this socket.
    pub(crate) sleepers: Sleepers,
}

/// Number of receives that expect to wait after one that had to.
const PATIENCE: u32 = 16;

// SAFETY: the pages consist of atomics.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// Maps the pages, and closes their files: that of the status page, and that of the sharers' page.
    pub(crate) fn map([status, sharers]: [Owned; 2]) -> Result<Descriptor> {
        // Their sizes never change.
        let descriptor = Descriptor {
            status: mapping::map_to_read(status.raw(), STATUS_BYTES)?,
            sharers: mapping::map_to_write(sharers.raw(), SHARERS_BYTES, false)?,
            ring: OwnRing::new(),
            patience: AtomicU32::new(0),
            sleepers: Sleepers::new(),
        };
        match descriptor.pages().status.version.load(Relaxed) == u32::from(VERSION) {
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

    /// Returns whether the next receive expects to wait.
    pub(crate) fn has_waited_lately(&self) -> bool {
        self.patience.load(Relaxed) > 0
    }

    /// Notes that a receive has waited.
    pub(crate) fn has_waited(&self) {
        self.patience.store(PATIENCE, Relaxed);
    }

    pub(crate) fn pages(&self) -> Pages<'_> {
        // SAFETY: the page is mapped for the lifetime of `self`, and consists of atomics that start as zero.
        let status: &StatusPage = unsafe { self.status.address().cast().as_ref() };
        // SAFETY: as above.
        let sharers: &SharersPage = unsafe { self.sharers.address().cast().as_ref() };
        // SAFETY: as above.
        let ring = unsafe { ReceiveRing::behind(self.status.address().cast()) };
        Pages { status, sharers, ring }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use std::os::fd::RawFd;

    use channel_protocol::status_page::FIELDS_BYTES;

    use super::*;

    /// Returns a file of this length with a number at an offset.
    fn file(bytes: usize, numbers: &[(u64, u32)]) -> Owned {
        // SAFETY: the name is NUL-terminated.
        let memfd = unsafe { libc::memfd_create(c"page".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the call takes no pointer.
        assert!(memfd >= 0 && unsafe { libc::ftruncate(memfd, bytes as libc::off_t) } == 0);
        numbers.iter().for_each(|(at, number)| set(memfd, *at, *number));
        Owned::new(memfd).expect("a descriptor")
    }

    /// Writes a number into a file.
    pub(crate) fn set(memfd: RawFd, at: u64, number: u32) {
        let number = number.to_ne_bytes();
        // SAFETY: the kernel reads the number.
        let written = unsafe { libc::pwrite(memfd, number.as_ptr().cast(), 4, at as libc::off_t) };
        assert_eq!(written, 4);
    }

    /// Returns the files of the pages of a socket that is not one-to-many.
    pub(crate) fn files() -> [Owned; 2] {
        let version = (StatusPage::IDENTITY_AT, u32::from(VERSION));
        [file(FIELDS_BYTES, &[version, (StatusPage::ENTRIES_USED_AT, u32::MAX)]), file(SHARERS_BYTES, &[])]
    }

    #[test]
    fn a_page_without_entries_is_mapped_with_zeros_behind_it() {
        let descriptor = Descriptor::map(files()).expect("pages of this version");
        let entries = descriptor.pages().status.entries();
        assert!(!entries.is_empty() && entries.iter().all(|entry| entry.assoc_id.load(Relaxed) == 0));
    }

    #[test]
    fn pages_of_another_version_or_length_are_refused() {
        let other = file(FIELDS_BYTES, &[(StatusPage::IDENTITY_AT, u32::from(VERSION) + 1)]);
        let [_, sharers] = files();
        assert_eq!(Descriptor::map([other, sharers]).err(), Some(Errno(libc::EPROTONOSUPPORT)));
        let ([status, _], short) = (files(), file(SHARERS_BYTES - 1, &[]));
        assert_eq!(Descriptor::map([status, short]).err(), Some(Errno(libc::EINVAL)));
    }
}
