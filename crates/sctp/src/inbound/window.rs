//! The advertised receive window, and when it is worth a SACK of its own (RFC 9260 §6.2).

use super::Inbound;
use crate::receive_buffer::{Held, OVERHEAD_FREE_BYTES};

/// Minimum increase of the advertised window, if a quarter of the buffer is not less (RFC 1122 §4.2.3.3).
pub(super) const WINDOW_STEP_BYTES: usize = 1452;

/// Part of the buffer by which the window opens at most without an update. An unfinished message may hold half of the buffer
/// until its next chunk; the peer must still hear of a window that is long enough for that chunk.
const UNANNOUNCED_PART: usize = 4;

/// Rest of the advertised window below which the peer may have no room for its next packet.
const WINDOW_LITTLE_BYTES: usize = 4 * WINDOW_STEP_BYTES;

/// The window as the peer knows it, and the credit that the reader keeps.
#[derive(Debug)]
pub(super) struct Window {
    /// The last advertised window, less the data received since.
    advertised_bytes: usize,
    /// Payload that the reader has taken without releasing its credit.
    withheld_bytes: usize,
    /// Whether the reader has made enough room for a window update.
    has_opened: bool,
}

impl Window {
    pub(super) fn new(advertised_bytes: usize) -> Self {
        Window { advertised_bytes, withheld_bytes: 0, has_opened: false }
    }

    #[inline]
    pub(super) fn advertised_bytes(&self) -> usize {
        self.advertised_bytes
    }

    #[inline]
    pub(super) fn withheld_bytes(&self) -> usize {
        self.withheld_bytes
    }

    #[inline]
    pub(super) fn has_opened(&self) -> bool {
        self.has_opened
    }

    /// Handles chunks that were taken.
    #[inline]
    pub(super) fn on_taken(&mut self, payload_bytes: usize) {
        self.advertised_bytes = self.advertised_bytes.saturating_sub(payload_bytes);
    }

    /// Handles a SACK that leaves with this window.
    pub(super) fn on_advertised(&mut self, bytes: usize) {
        self.advertised_bytes = bytes;
        self.has_opened = false;
    }
}

impl Inbound {
    /// Records that the reader took `bytes`, and the charge of `charges` messages in addition. Returns whether a window update is
    /// due.
    #[inline]
    pub(crate) fn consumed(&mut self, bytes: usize, charges: usize) -> bool {
        let read = Held::of(bytes, charges);
        self.held.remove(read);
        self.charge.trim(self.held.total_bytes());
        self.buffer.on_taken(read.total_bytes());
        self.window.has_opened |= self.window_has_opened();
        self.window.has_opened
    }

    /// Keeps the credit of `bytes` that the reader has just taken.
    pub(crate) fn hold_window(&mut self, bytes: usize) {
        self.window.withheld_bytes += bytes;
        self.window.has_opened &= self.window_has_opened();
    }

    /// Releases credit that the reader has kept. Returns whether a window update is due.
    pub(crate) fn release_window(&mut self, bytes: usize) -> bool {
        self.window.withheld_bytes = self.window.withheld_bytes.saturating_sub(bytes);
        self.window.has_opened |= self.window_has_opened();
        self.window.has_opened
    }

    /// Returns the number of bytes that occupy the receive buffer.
    #[inline]
    pub(super) fn taken_bytes(&self) -> usize {
        self.held.window_bytes() + self.window.withheld_bytes
    }

    /// Returns whether data of this size leaves no room for more: its payload fills twice the buffer, or payload and overhead do.
    /// The peer does not count overhead, so a small buffer has more room for it: a whole window of messages of four bytes fits,
    /// each in a packet of its own.
    #[inline]
    pub(super) fn is_full_with(&self, held: Held) -> bool {
        let (limit_bytes, withheld_bytes) = (2 * self.buffer.bytes(), self.window.withheld_bytes);
        held.payload_bytes() + withheld_bytes >= limit_bytes
            || held.window_bytes() + withheld_bytes >= limit_bytes.max(OVERHEAD_FREE_BYTES)
    }

    /// Returns whether the window has opened by a quarter of the buffer: window updates in such steps avoid the silly window
    /// syndrome.
    #[inline]
    fn window_has_opened(&self) -> bool {
        let opened_bytes = self.window.advertised_bytes + self.buffer.bytes() / UNANNOUNCED_PART;
        (self.buffer_room_bytes() >= opened_bytes && self.pool_room_bytes() >= opened_bytes)
            || self.pool_window_has_opened()
    }

    /// Returns whether the rest of the advertised window is less than half of the buffer, and than a few packets. A peer that
    /// avoids the silly window syndrome may then wait for a SACK before it sends more (RFC 1122 §4.2.3.4).
    #[inline]
    pub(super) fn may_stop_peer(&self) -> bool {
        self.window.advertised_bytes < WINDOW_LITTLE_BYTES.min(self.buffer.bytes() / 2)
    }

    fn buffer_room_bytes(&self) -> usize {
        self.buffer.bytes().saturating_sub(self.taken_bytes())
    }

    pub(super) fn window_bytes(&self) -> usize {
        self.buffer_room_bytes().min(self.pool_room_bytes())
    }

    /// Returns the window to advertise. If the reader has made less room than one step, the advertised window does not grow:
    /// otherwise the peer would send ever smaller packets (the silly window syndrome).
    pub(super) fn window_to_advertise_bytes(&self) -> usize {
        let (window, advertised) = (self.window_bytes(), self.window.advertised_bytes);
        let step = WINDOW_STEP_BYTES.min(self.buffer.bytes() / UNANNOUNCED_PART);
        if window < advertised + step { window.min(advertised) } else { window }
    }
}
