//! What has no TSN yet, in the order in which it will get one.
//!
//! This is where a stream scheduler sits (RFC 8260 §3): it names the chunk that goes next. The one here is
//! first come, first served, whatever the stream. The parts of a message stay together, because their TSNs must be
//! consecutive (RFC 9260 §6.9).

use std::collections::VecDeque;

use sctp_wire::chunk::DataFlags;

use super::{Chunk, wire_bytes};

#[derive(Debug, Default)]
pub(super) struct Pending {
    queue: VecDeque<Chunk>,
    /// Wire bytes of all as if no message had to be cut.
    wire_bytes: usize,
}

impl Pending {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    pub(super) fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }

    #[inline]
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.wire_bytes += chunk.wire_bytes();
        self.queue.push_back(chunk);
    }

    /// The last that came in.
    #[inline]
    pub(super) fn last_mut(&mut self) -> Option<&mut Chunk> {
        self.queue.back_mut()
    }

    /// What goes next.
    #[inline]
    pub(super) fn next(&self) -> Option<&Chunk> {
        self.queue.front()
    }

    /// Takes what goes next, or no more than `payload_bytes` of it.
    #[inline]
    pub(super) fn take(&mut self, payload_bytes: usize) -> Option<Chunk> {
        let front = self.queue.front_mut()?;
        let whole = front.wire_bytes();
        if payload_bytes >= front.payload.len() {
            self.wire_bytes -= whole;
            return self.queue.pop_front();
        }
        self.wire_bytes = self.wire_bytes + wire_bytes(front.payload.len() - payload_bytes) - whole;
        let beginning = std::mem::replace(&mut front.flags.beginning, false);
        Some(Chunk {
            payload: front.payload.split_to(payload_bytes),
            flags: DataFlags { beginning, ending: false, immediate: false, ..front.flags },
            charged: false,
            ..*front
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.queue.iter()
    }
}
