//! Memory of the pool that an association shares with others ([`ReceivePool`](crate::ReceivePool)).

use super::Inbound;
use super::window::WINDOW_STEP_BYTES;
use crate::receive_buffer::Held;
use crate::receive_pool::{POOL_FREE_BYTES, POOL_LITTLE_BYTES, ReceiveCharge};

/// Memory for the numbers of streams that each association has outside the pool: for messages on 12 times 256 streams or
/// more.
const STREAMS_FREE_BYTES: usize = 8 * 1024;

impl Inbound {
    /// Takes memory from the pool for the number of a stream, if necessary. Returns whether there is memory: a peer that uses
    /// each 256th stream makes a message of a byte cost 512 bytes as long as the association lives.
    #[inline]
    pub(super) fn reserve_stream(&mut self, stream: u16) -> bool {
        self.next_ssn.has_place(stream) || stream >= self.streams || self.reserve_far_stream(stream)
    }

    #[cold]
    fn reserve_far_stream(&mut self, stream: u16) -> bool {
        let bytes = self.next_ssn.far_bytes_with(stream).saturating_sub(STREAMS_FREE_BYTES);
        self.streams_charge.grow_exactly_to(bytes)
    }

    /// Returns whether the memory taken from the pool covers a chunk with this payload. Only a chunk in order may use the memory
    /// that each association has outside the pool, because the reader can take it, or it closes a gap.
    #[inline]
    pub(super) fn has_memory(&self, in_order: bool, payload_bytes: usize) -> bool {
        let free_bytes = if in_order { POOL_FREE_BYTES } else { 0 };
        self.held_with(payload_bytes) <= self.charge.bytes().saturating_add(free_bytes)
    }

    /// Takes memory from the pool for this many bytes of data in order, if necessary. Returns whether they may be held.
    #[inline]
    pub(super) fn charge_in_order(&mut self, held_bytes: usize) -> bool {
        held_bytes <= self.charge.bytes().saturating_add(POOL_FREE_BYTES) || self.charge.grow_to(held_bytes)
    }

    fn held_with(&self, payload_bytes: usize) -> usize {
        self.held.total_bytes() + Held::of(payload_bytes, 1).total_bytes()
    }

    /// Takes memory from the pool for a chunk with this payload. If the pool has none, chunks with higher TSNs are dropped for a
    /// chunk in order, and a packet may use the reserve while little is held. Returns whether there is memory now.
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
            // Freeing more than one chunk needs leaves room for those that follow.
            let most_bytes = self.held.total_bytes() / 4 * 3;
            self.renege_while(|inbound| {
                inbound.held.total_bytes() > most_bytes || !inbound.has_memory(true, payload_bytes)
            });
            if self.has_memory(true, payload_bytes) {
                return true;
            }
        }
        self.held.total_bytes() <= POOL_LITTLE_BYTES
            && self.charge.grow_from_reserve_to(self.held_with(payload_bytes))
    }

    /// Takes memory from the pool for all data that is held, if necessary. Returns false if the pool has none: the reader must
    /// take an unfinished message as a part, because it would never be complete.
    #[inline]
    pub(super) fn charge_held(&mut self) -> bool {
        let held_bytes = self.held.total_bytes();
        held_bytes <= self.charge.bytes() || self.charge.grow_to(held_bytes)
    }

    /// Returns the room in the pool.
    #[inline]
    pub(super) fn pool_room_bytes(&self) -> usize {
        self.charge.room_bytes(self.held.total_bytes())
    }

    /// Returns whether a window update for one packet is due: the pool is so full that the window does not grow by quarters of
    /// the buffer, and all data was read.
    #[inline]
    pub(super) fn pool_window_has_opened(&self) -> bool {
        self.charge.is_limited()
            && self.held.total_bytes() == 0
            && self.window.advertised_bytes() < WINDOW_STEP_BYTES
            && self.window_bytes() >= WINDOW_STEP_BYTES
    }

    /// Takes the charge of the unread messages; `None` without a pool, or if all messages were read.
    pub(crate) fn take_unread_charge(&mut self) -> Option<ReceiveCharge> {
        let unread_bytes = self.unread_at_restart().total_bytes();
        let mut charge = std::mem::take(&mut self.charge);
        charge.shrink_to(unread_bytes);
        (charge.is_limited() && unread_bytes > 0).then_some(charge)
    }
}
