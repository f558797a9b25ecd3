//! A message that a program receives, and the record at the front of the carrier.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use carrier::record::{Flags, HEADER_BYTES, Header, Kind};

use crate::pages::Pages;
use crate::system::{self, Buffers, Result};

/// A received message, or the part of one that fits the program's buffer.
pub(crate) struct Message {
    pub(crate) bytes: usize,
    /// `None` is the end.
    pub(crate) header: Option<Header>,
    /// The message ends here.
    pub(crate) whole: bool,
}

/// Counts a message that was read to its end.
pub(crate) fn count(page: Pages<'_>, header: &Header) {
    if header.kind == Kind::Data {
        page.sharers.data_taken.fetch_add(1, Relaxed);
    }
    if header.flags.contains(Flags::IN_MEMFD) {
        page.sharers.long_taken.fetch_add(1, Relaxed);
    }
}

/// Returns the header of the record at the kernel's peek offset, and the record's length.
pub(crate) fn measure(fd: RawFd) -> Result<(Option<Header>, usize)> {
    let mut bytes = [0; HEADER_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the destination is writable.
    let received = unsafe { system::receive::<0>(fd, &[Buffers::of(&mut bytes)], flags) }?;
    Ok((Header::parse(&bytes), received.bytes))
}
