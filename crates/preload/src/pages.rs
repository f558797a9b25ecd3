//! The pages of a socket and its receive ring, mapped.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use channel_protocol::record::Extent;
use channel_protocol::sharers_page::SharersPage;
use channel_protocol::status_page::{RING_AT, StatusPage};

/// The two pages of a socket, and its receive ring.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'a> {
    /// Written by the daemon alone.
    pub(crate) status: &'a StatusPage,
    /// Written by all sharers.
    pub(crate) sharers: &'a SharersPage,
    /// Written by the daemon alone.
    pub(crate) ring: ReceiveRing<'a>,
}

/// The receive ring of a socket.
#[derive(Clone, Copy)]
pub(crate) struct ReceiveRing<'a> {
    begin: NonNull<u8>,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> ReceiveRing<'a> {
    /// # Safety
    ///
    /// The memory of a status page is mapped for reading with [`channel_protocol::status_page::STATUS_BYTES`] for the lifetime.
    pub(crate) unsafe fn behind(status: NonNull<StatusPage>) -> ReceiveRing<'a> {
        // SAFETY: the ring is within the mapping.
        ReceiveRing { begin: unsafe { status.cast::<u8>().add(RING_AT) }, lifetime: PhantomData }
    }

    /// Returns the bundle that the record at the front of the pair, or the sharers' page, describes; `None` if it cannot lie
    /// in the ring.
    pub(crate) fn bundle(self, extent: Extent) -> Option<&'a [u8]> {
        let place = extent.range()?;
        // SAFETY: the place is within the ring, which is mapped. The daemon writes there only once no record in the pair
        // describes it. If a sharer names another place, the daemon may write while the bytes are copied; nothing else
        // depends on their values.
        Some(unsafe { slice::from_raw_parts(self.begin.as_ptr().add(place.start), place.len()) })
    }
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
