//! Copies waiting data out of receive blocks.
//!
//! A payload is handed up as a slice of its receive block, and most payloads are read before more arrives. A payload
//! that waits would hold the whole block, 256 KB for a single byte. So payloads that still wait when enough has been
//! received since, or after some time, are copied to memory of their own. The core itself copies data beyond a gap at
//! once.

use std::time::Duration;

use ::sctp::Time;
use streams::Cx;

use super::SctpDriver;

/// After this much has been received, waiting payloads are copied before the next receive: together, all associations
/// hold no more of the receive blocks than this and one receive. A payload that came in the memory of its sender, on the same
/// stack, counts by its own length, and keeps the whole message until then.
const RECEIVED_BYTES_MAX: usize = 256 * 1024;
/// Waiting payloads are copied after this time, if little else is received.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Counts what was received since waiting payloads were last copied.
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

    /// Counts a received batch by the bytes of the block that it takes. Counting a small packet for more would copy
    /// waiting payloads earlier: in a flood, several times as often.
    #[inline]
    pub(super) fn on_batch(&mut self, block_bytes: usize) {
        self.received_bytes += block_bytes;
    }
}

impl SctpDriver {
    /// Starts the time limit after input was handled, if payloads may wait in receive blocks.
    #[inline]
    pub(super) fn note_attached(&mut self, cx: &Cx<'_>, now: Time) {
        if self.attached.until.is_none() && (cx.is_attached() || self.endpoint.is_attached()) {
            self.attached.until = Some(now + WAIT_MAX);
        }
    }

    /// Copies waiting payloads if enough was received since the last time. Call before receiving more.
    #[inline]
    pub(super) fn detach_before_more(&mut self, cx: &mut Cx<'_>) {
        if self.attached.received_bytes >= RECEIVED_BYTES_MAX {
            self.detach(cx, false);
        }
    }

    /// Copies waiting payloads if their time limit has passed.
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
