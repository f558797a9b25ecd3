//! Messages that have no TSN yet, in the order in which they get one.
//!
//! A stream scheduler (RFC 8260 §3) belongs here: it selects the next chunk. This one serves streams in the order of
//! arrival. The fragments of a message stay together, because their TSNs must be consecutive (RFC 9260 §6.9).

use std::collections::VecDeque;

use super::{Chunk, wire_bytes};
use crate::time::Time;

#[derive(Debug, Default)]
pub(super) struct Pending {
    queue: VecDeque<Chunk>,
    /// Wire bytes of all as if no message had to be cut.
    wire_bytes: usize,
    /// How many have left the queue.
    gone: u64,
    /// Messages of which none was sent and that are to be by some time, in the order of the queue.
    expiries: VecDeque<Expiry>,
}

#[derive(Debug)]
struct Expiry {
    /// How many come before the message's first chunk, counted from the beginning of all.
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

    /// What comes in next begins a message that is to be sent by then.
    #[cold]
    pub(super) fn expect_expiry(&mut self, at: Time) {
        self.expiries.push_back(Expiry { before: self.gone + self.queue.len() as u64, at });
    }

    /// When the message that goes next is to be discarded.
    #[inline]
    pub(super) fn expires_at(&self) -> Option<Time> {
        self.expiries.front().filter(|expiry| expiry.before == self.gone).map(|expiry| expiry.at)
    }

    /// The message that goes next is sent, or will be however late it is.
    #[cold]
    fn forget_expiry(&mut self) {
        if self.expires_at().is_some() {
            self.expiries.pop_front();
        }
    }

    /// Takes the messages at the front whose time is over. `keeps`: they are to be sent all the same.
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
