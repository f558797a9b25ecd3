//! The two pages of a socket, mapped.

use carrier::sharers_page::SharersPage;
use carrier::status_page::StatusPage;

/// The two pages of a socket.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'a> {
    /// Written by the daemon alone.
    pub(crate) status: &'a StatusPage,
    /// Written by all sharers.
    pub(crate) sharers: &'a SharersPage,
}

impl Pages<'_> {
    /// Takes the pending error: an errno, or zero.
    pub(crate) fn take_error(self) -> i32 {
        self.sharers.take_error(self.status)
    }

    /// Returns the pending error, and leaves it pending.
    pub(crate) fn pending_error(self) -> i32 {
        self.sharers.pending_error(self.status)
    }
}
