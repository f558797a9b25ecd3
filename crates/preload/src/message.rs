//! A message that a program receives.

use std::sync::atomic::Ordering::Relaxed;

use carrier::record::{Flags, Header, Kind};

use crate::pages::Pages;

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
