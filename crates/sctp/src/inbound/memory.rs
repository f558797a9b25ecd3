//! The memory of the pool that an association shares with others ([`ReceivePool`](crate::ReceivePool)).

use super::{Inbound, WINDOW_STEP_BYTES};
use crate::receive_buffer::Held;
use crate::receive_pool::{POOL_FREE_BYTES, POOL_LITTLE_BYTES, ReceiveCharge};

impl Inbound {
    /// Returns whether a chunk with so much payload fits what was taken from the pool. Only one in order may use the memory that
    /// every association has without the pool: it is what the reader can take, or what closes a gap.
    #[inline]
    pub(super) fn has_memory(&self, in_order: bool, payload_bytes: usize) -> bool {
        let free_bytes = if in_order { POOL_FREE_BYTES } else { 0 };
        self.held_with(payload_bytes) <= self.charge.bytes().saturating_add(free_bytes)
    }

    /// Returns whether so much may be held of what is in order, after taking memory from the pool if need be.
    #[inline]
    pub(super) fn finds_memory_for(&mut self, held_bytes: usize) -> bool {
        held_bytes <= self.charge.bytes().saturating_add(POOL_FREE_BYTES) || self.charge.grow_to(held_bytes)
    }

    fn held_with(&self, payload_bytes: usize) -> usize {
        self.held.total_bytes() + Held::of(payload_bytes, 1).total_bytes()
    }

    /// Takes memory from the pool for a chunk with so much payload. Where the pool has none, higher TSNs make room for a chunk in
    /// order; and a packet may use the reserve while little is held. Returns whether there is
    /// memory now.
    #[cold]
    pub(super) fn find_memory(&mut self, in_order: bool, payload_bytes: usize) -> bool {
        if self.charge.grow_to(self.held_with(payload_bytes)) {
            return true;
        }
        if !in_order {
            return false;
        }
        if self.charge.grow_to(self.held_with(payload_bytes).saturating_sub(POOL_FREE_BYTES)) {
            return true;
        }
        if !self.beyond.is_empty() {
            // To free more than one chunk needs keeps the cost of the search low for each.
            let most_bytes = self.held.total_bytes() / 4 * 3;
            self.drop_beyond_while(|inbound| {
                inbound.held.total_bytes() > most_bytes || !inbound.has_memory(true, payload_bytes)
            });
            if self.has_memory(true, payload_bytes) {
                return true;
            }
        }
        self.held.total_bytes() <= POOL_LITTLE_BYTES
            && self.charge.grow_from_reserve_to(self.held_with(payload_bytes))
    }

    /// Returns whether the pool has no memory for what waits for the end of its message: the reader must take it as a part, or it
    /// would wait for ever.
    #[inline]
    pub(super) fn is_short_of_memory(&mut self) -> bool {
        let held_bytes = self.held.total_bytes();
        held_bytes > self.charge.bytes() && !self.charge.grow_to(held_bytes)
    }

    /// Returns what the pool has room for.
    #[inline]
    pub(super) fn pool_room_bytes(&self) -> usize {
        self.charge.room_bytes(self.held.total_bytes())
    }

    /// Returns whether the peer should hear that a packet fits again: the pool is so full that the window does not grow by
    /// quarters of the buffer, and all was read.
    #[inline]
    pub(super) fn pool_window_has_opened(&self) -> bool {
        self.charge.is_limited()
            && self.held.total_bytes() == 0
            && self.advertised_bytes < WINDOW_STEP_BYTES
            && self.window_bytes() >= WINDOW_STEP_BYTES
    }

    /// Takes out what the messages are charged that the reader has yet to take. `None`: there is no pool, or nothing to take.
    pub(crate) fn take_unread_charge(&mut self) -> Option<ReceiveCharge> {
        let unread_bytes = self.end().total_bytes();
        let mut charge = std::mem::take(&mut self.charge);
        charge.shrink_to(unread_bytes);
        (charge.is_limited() && unread_bytes > 0).then_some(charge)
    }
}
