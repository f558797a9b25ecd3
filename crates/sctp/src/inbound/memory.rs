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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sctp_message::RecvInfo;
    use sctp_wire::Tsn;

    use super::super::window::Window;
    use super::*;
    use crate::config::AssociationConfig;
    use crate::extensions::Extensions;
    use crate::reassembly::{Assembled, Fragment};
    use crate::receive_buffer::RECEIVED_OVERHEAD_BYTES;
    use crate::receive_pool::ReceivePool;
    use crate::statistics::Statistics;

    const MESSAGE_BYTES: usize = 10_000;
    const MESSAGES: usize = 8;
    /// What the messages of [`full`] take.
    const FULL_BYTES: usize = MESSAGES * (MESSAGE_BYTES + RECEIVED_OVERHEAD_BYTES);

    fn receiver(streams: u16, receive_buffer_bytes: usize, receive_pool: Option<ReceivePool>) -> Inbound {
        let config = AssociationConfig { receive_buffer_bytes, receive_pool, ..AssociationConfig::default() };
        Inbound::new(Tsn(101), streams, &config, Extensions::default())
    }

    /// Returns a receiver with a pool of this size.
    fn with_pool(bytes: usize) -> Inbound {
        receiver(1, 1 << 20, Some(ReceivePool::with_limit(bytes)))
    }

    /// Adds unread data with a charge of this many bytes.
    fn hold(inbound: &mut Inbound, total_bytes: usize) {
        inbound.held.add(Held::of(total_bytes - RECEIVED_OVERHEAD_BYTES, 1));
    }

    /// Returns a receiver that has filled its pool with messages beyond a gap.
    fn full() -> Inbound {
        let mut inbound = with_pool(FULL_BYTES);
        for n in 0..MESSAGES as u32 {
            let info = RecvInfo { ssn: 5 + n as u16, tsn: 105 + n, ..RecvInfo::default() };
            let parts = smallvec::smallvec![Bytes::from(vec![0; MESSAGE_BYTES])];
            let message = Assembled { info, parts, bytes: MESSAGE_BYTES, chunks: 1, rest: false };
            let tsn = inbound.first_tsn(&message);
            inbound.beyond.insert(tsn);
            inbound.held.add(Held::of(MESSAGE_BYTES, 1));
            inbound.hold_until_in_order(message, &mut Statistics::default());
        }
        assert!(inbound.charge.grow_from_reserve_to(FULL_BYTES));
        inbound
    }

    #[test]
    fn the_numbers_of_used_streams_are_charged_once_and_those_of_no_streams_never() {
        const PAGES: u16 = 20;
        const STREAMS: u16 = 256 * (PAGES + 1);
        let mut inbound = receiver(STREAMS, 1 << 20, Some(ReceivePool::with_limit(1 << 20)));
        for page in 1..=PAGES {
            assert!(inbound.reserve_stream(256 * page));
            *inbound.next_ssn.get_mut(256 * page) += 1;
        }
        let taken_bytes = inbound.next_ssn.heap_bytes() - STREAMS_FREE_BYTES;
        assert_eq!(inbound.streams_charge.bytes(), taken_bytes);
        for stream in [0, 256, STREAMS - 256, STREAMS, STREAMS + 256] {
            assert!(inbound.reserve_stream(stream));
            assert_eq!(inbound.streams_charge.bytes(), taken_bytes, "stream {stream}");
        }
    }

    #[test]
    fn only_data_in_order_may_use_the_memory_outside_the_pool() {
        let mut inbound = with_pool(0);
        let most = POOL_FREE_BYTES - RECEIVED_OVERHEAD_BYTES;
        assert!(inbound.has_memory(true, most) && !inbound.has_memory(true, most + 1));
        assert!(!inbound.has_memory(false, 1));
        assert!(inbound.charge_in_order(POOL_FREE_BYTES) && !inbound.charge_in_order(POOL_FREE_BYTES + 1));
    }

    #[test]
    fn as_many_chunks_beyond_a_gap_give_way_as_a_chunk_in_order_needs_and_at_least_a_quarter() {
        let left_for = |payload_bytes| {
            let mut inbound = full();
            let is_found = inbound.find_memory(true, payload_bytes);
            (is_found, inbound.held.total_bytes() * MESSAGES / FULL_BYTES)
        };
        assert_eq!(left_for(5_000), (true, 6));
        assert_eq!(left_for(4 * MESSAGE_BYTES), (true, 4));
        assert_eq!(left_for(FULL_BYTES + MESSAGE_BYTES), (false, 0), "more than all have");
        assert!(!full().find_memory(false, 1));
    }

    #[test]
    fn the_reserve_is_for_those_that_hold_little() {
        const PAYLOAD_BYTES: usize = 1000;
        for (held_bytes, is_little) in [(POOL_LITTLE_BYTES, true), (POOL_LITTLE_BYTES + 1, false)] {
            let pool = ReceivePool::with_limit(40_000);
            let _others = pool.charge(30_000).expect("it is empty");
            let mut inbound = receiver(1, 1 << 20, Some(pool));
            hold(&mut inbound, held_bytes);
            assert_eq!(inbound.find_memory(true, PAYLOAD_BYTES), is_little);
            let taken_bytes = if is_little { inbound.held_with(PAYLOAD_BYTES) } else { 0 };
            assert_eq!(inbound.charge.bytes(), taken_bytes);
        }
        let pool = ReceivePool::with_limit(40_000);
        let _others = pool.charge(40_000).expect("it is empty");
        let mut inbound = receiver(1, 1 << 20, Some(pool));
        hold(&mut inbound, POOL_LITTLE_BYTES);
        assert!(!inbound.find_memory(true, PAYLOAD_BYTES), "the reserve is used up");
    }

    #[test]
    fn held_data_is_charged_if_the_pool_has_memory() {
        for (pool_bytes, is_charged) in [(1 << 20, true), (100, false)] {
            let mut inbound = with_pool(pool_bytes);
            assert!(inbound.charge_held(), "nothing is held");
            hold(&mut inbound, 1000);
            assert_eq!(inbound.charge_held(), is_charged);
            assert_eq!(inbound.charge.bytes() >= 1000, is_charged);
        }
    }

    #[test]
    fn a_full_pool_makes_a_window_update_due_once_a_packet_fits_and_all_was_read() {
        let has_opened = |pool: Option<usize>, held_bytes, advertised_bytes, room_bytes| {
            let mut inbound = receiver(1, room_bytes, pool.map(ReceivePool::with_limit));
            inbound.window = Window::new(advertised_bytes);
            if held_bytes > 0 {
                hold(&mut inbound, held_bytes);
            }
            inbound.pool_window_has_opened()
        };
        const STEP: usize = WINDOW_STEP_BYTES;
        let large = Some(1 << 20);
        assert!(has_opened(large, 0, STEP - 1, STEP));
        assert!(!has_opened(None, 0, STEP - 1, STEP));
        assert!(!has_opened(large, 100, STEP - 1, 10 * STEP));
        assert!(!has_opened(large, 0, STEP, STEP));
        assert!(!has_opened(large, 0, STEP - 1, STEP - 1));
    }

    #[test]
    fn what_is_unread_at_the_end_keeps_its_charge_and_no_more() {
        let pool = ReceivePool::with_limit(1 << 20);
        let mut inbound = receiver(1, 1 << 20, Some(pool.clone()));
        hold(&mut inbound, 1000);
        let payload = Bytes::from_static(b"unfinished");
        inbound.held.add(Held::of(payload.len(), 1));
        let fragment = Fragment { info: RecvInfo::default(), beginning: true, ending: false, payload };
        assert!(matches!(inbound.reassembly.in_order(inbound.cumulative + 1, fragment), Ok(None)));
        assert!(inbound.charge_held());
        let charge = inbound.take_unread_charge().expect("something is unread");
        assert_eq!(charge.bytes(), 1000);
        assert!(pool.has((1 << 20) - 1000));
        assert!(receiver(1, 1 << 20, Some(pool)).take_unread_charge().is_none(), "all was read");
        let mut unlimited = receiver(1, 1 << 20, None);
        hold(&mut unlimited, 1000);
        assert!(unlimited.take_unread_charge().is_none());
    }
}
