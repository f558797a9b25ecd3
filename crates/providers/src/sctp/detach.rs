//! When what waits is copied out of the blocks that it was received in.
//!
//! A payload is handed up as a slice of its receive block, and most are read before more arrives. One that is not would hold
//! the whole block, 256 KB for a single byte. So what still waits when enough has arrived since, or after some time, gets
//! memory of its own. The core itself copies at once whatever waits beyond a gap.

use std::time::Duration;

use ::sctp::Time;
use streams::Cx;

use super::SctpDriver;

/// Once so much has been received, what waits is copied before more is received: together, all associations hold no more of
/// the receive blocks than that and one receive.
const RECEIVED_BYTES_MAX: usize = 256 * 1024;
/// What waits is copied after this time, if little else is received.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// What was received since the last copying.
#[derive(Debug, Default)]
pub(super) struct Attached {
    received_bytes: usize,
    until: Option<Time>,
}

impl Attached {
    /// Returns when waiting slices must be copied, if there may be any.
    pub(super) fn until(&self) -> Option<Time> {
        self.until
    }

    /// A batch was received that takes so many bytes of a block. A small packet that counted for more would have all that waits
    /// copied the sooner: in a flood, several times as often.
    #[inline]
    pub(super) fn on_batch(&mut self, block_bytes: usize) {
        self.received_bytes += block_bytes;
    }
}

impl SctpDriver {
    /// Something was received and handled: if some of it may wait, that ends in time.
    #[inline]
    pub(super) fn note_attached(&mut self, cx: &Cx<'_>, now: Time) {
        if self.attached.until.is_none() && (cx.is_attached() || self.endpoint.is_attached()) {
            self.attached.until = Some(now + WAIT_MAX);
        }
    }

    /// Before more is received: copies what waits if enough was received since the last time.
    #[inline]
    pub(super) fn detach_before_more(&mut self, cx: &mut Cx<'_>) {
        if self.attached.received_bytes >= RECEIVED_BYTES_MAX {
            self.detach(cx, false);
        }
    }

    /// Copies what waits if the time for that has come.
    pub(super) fn detach_after_pause(&mut self, cx: &mut Cx<'_>, now: Time) {
        if self.attached.until.is_some_and(|until| until <= now) {
            self.attached.until = None;
            self.detach(cx, true);
            self.note_attached(cx, now);
        }
    }

    fn detach(&mut self, cx: &mut Cx<'_>, pause: bool) {
        self.attached.received_bytes = 0;
        self.endpoint.detach();
        cx.detach(pause);
    }
}
