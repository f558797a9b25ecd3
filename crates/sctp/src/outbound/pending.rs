//! Messages that have no TSN yet, in the order in which they will get one.
//!
//! A stream scheduler (RFC 8260 §3) belongs here: it selects the next chunk. This one serves streams in the order of
//! arrival. The fragments of a message stay together, because their TSNs must be consecutive (RFC 9260 §6.9).

use std::collections::VecDeque;

use super::{Chunk, wire_bytes};
use crate::time::Time;

#[derive(Debug, Default)]
pub(super) struct Pending {
    queue: VecDeque<Chunk>,
    /// Wire bytes of all messages, as if none were fragmented.
    wire_bytes: usize,
    /// Number of chunks that have left the queue.
    gone: u64,
    /// Lifetimes of messages that have not begun to be sent, in the order of the queue.
    expiries: VecDeque<Expiry>,
}

#[derive(Debug)]
struct Expiry {
    /// Index of the message's first chunk among all chunks ever queued.
    before: u64,
    at: Time,
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

    /// Sets the end of the lifetime of the message that is queued next.
    #[cold]
    pub(super) fn expect_expiry(&mut self, at: Time) {
        self.expiries.push_back(Expiry { before: self.gone + self.queue.len() as u64, at });
    }

    /// Returns when the lifetime of the next message ends.
    #[inline]
    pub(super) fn expires_at(&self) -> Option<Time> {
        self.expiries.front().filter(|expiry| expiry.before == self.gone).map(|expiry| expiry.at)
    }

    /// Drops the lifetime of the next message, because a part of it is sent.
    #[cold]
    fn forget_expiry(&mut self) {
        if self.expires_at().is_some() {
            self.expiries.pop_front();
        }
    }

    /// Removes the messages at the front whose lifetime has ended. With `keeps` they stay and lose their lifetimes.
    pub(super) fn take_expired(&mut self, now: Time, keeps: bool) -> Vec<Chunk> {
        let mut expired = Vec::new();
        while self.expires_at().is_some_and(|at| at <= now) {
            self.expiries.pop_front();
            let mut goes_on = !keeps;
            while goes_on && let Some(chunk) = self.queue.pop_front() {
                self.gone += 1;
                self.wire_bytes -= chunk.wire_bytes();
                goes_on = !chunk.flags.ending;
                expired.push(chunk);
            }
        }
        expired
    }

    /// Returns the chunk that was queued last.
    #[inline]
    pub(super) fn last_mut(&mut self) -> Option<&mut Chunk> {
        self.queue.back_mut()
    }

    /// Returns the chunk that is sent next.
    #[inline]
    pub(super) fn next(&self) -> Option<&Chunk> {
        self.queue.front()
    }

    /// Removes the chunk that is sent next, or its first `payload_bytes`.
    #[inline]
    pub(super) fn take(&mut self, payload_bytes: usize) -> Option<Chunk> {
        if !self.expiries.is_empty() {
            self.forget_expiry();
        }
        let front = self.queue.front_mut()?;
        let whole = front.wire_bytes();
        if payload_bytes >= front.payload.len() {
            self.wire_bytes -= whole;
            self.gone += 1;
            return self.queue.pop_front();
        }
        self.wire_bytes = self.wire_bytes + wire_bytes(front.payload.len() - payload_bytes) - whole;
        Some(front.split_front(payload_bytes))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.queue.iter()
    }
}
