//! Blocks of memory that datagrams are received into.
//!
//! A batch is received at the end of a large block and split off without a copy; many small datagrams share a block. A full block
//! waits in a queue until all readers have released it, and is then reused.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::aligned_buffer::ALIGNMENT;

/// Size of a block that datagrams are received into. Each of them keeps the whole block in memory.
pub const BLOCK_BYTES: usize = 256 * 1024;
/// Room for one receive: the size of the largest batch that the kernel delivers.
pub(crate) const RECEIVE_BYTES: usize = 65_536;
/// Maximum number of full blocks that are kept for reuse; further ones belong to their readers only. So a link keeps 2.25 MB.
const SPENT_BLOCKS_MAX: usize = 8;
/// Maximum number of full blocks that are checked for reuse, the oldest first, before a new one is allocated, so that one slow
/// reader does not cost a block each time.
const RECLAIM_TRIES_MAX: usize = 4;
/// Number of filled blocks after which one idle block is released.
const TRIM_INTERVAL_BLOCKS: u64 = 64;

/// Returns an empty, aligned buffer with room for `RECEIVE_BYTES`.
pub(crate) fn aligned_room() -> BytesMut {
    let mut room = BytesMut::with_capacity(RECEIVE_BYTES + ALIGNMENT);
    align(&mut room);
    room
}

/// Moves the beginning of an empty buffer to the next multiple of [`ALIGNMENT`], if it has the room.
fn align(buffer: &mut BytesMut) {
    let padding = buffer.as_ptr().align_offset(ALIGNMENT);
    if padding > 0 && padding <= buffer.capacity() {
        buffer.resize(padding, 0);
        buffer.advance(padding);
    }
}

pub(crate) struct Blocks {
    current: BytesMut,
    spent: VecDeque<BytesMut>,
    filled: u64,
    pub(crate) allocated: u64,
    pub(crate) reused: u64,
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Blocks {
            current: BytesMut::new(),
            spent: VecDeque::with_capacity(SPENT_BLOCKS_MAX + 1),
            filled: 0,
            allocated: 0,
            reused: 0,
        }
    }

    /// Returns an empty buffer with room for `RECEIVE_BYTES`. [`Blocks::take`] takes the received bytes.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        if self.current.capacity() < RECEIVE_BYTES {
            self.next_block();
        }
        &mut self.current
    }

    /// Returns the same as [`Blocks::room`], aligned for a copy by the kernel.
    #[inline]
    pub(crate) fn aligned_room(&mut self) -> &mut BytesMut {
        if self.current.capacity() < RECEIVE_BYTES + ALIGNMENT {
            self.next_block();
        }
        align(&mut self.current);
        &mut self.current
    }

    /// Splits off the received bytes.
    #[inline]
    pub(crate) fn take(&mut self) -> Bytes {
        self.current.split().freeze()
    }

    /// Discards the received bytes; their room is reused.
    pub(crate) fn discard(&mut self) {
        self.current.clear();
    }

    fn next_block(&mut self) {
        let next = self.reclaim().unwrap_or_else(|| {
            self.allocated += 1;
            BytesMut::with_capacity(BLOCK_BYTES)
        });
        let full = std::mem::replace(&mut self.current, next);
        if full.capacity() > 0 {
            self.filled += 1;
            self.spent.push_back(full);
        }
        if self.spent.len() > SPENT_BLOCKS_MAX {
            self.spent.pop_front();
        }
        if self.filled.is_multiple_of(TRIM_INTERVAL_BLOCKS) {
            self.trim();
        }
    }

    fn reclaim(&mut self) -> Option<BytesMut> {
        for _ in 0..self.spent.len().min(RECLAIM_TRIES_MAX) {
            let mut block = self.spent.pop_front()?;
            if block.try_reclaim(BLOCK_BYTES) {
                self.reused += 1;
                return Some(block);
            }
            self.spent.push_back(block);
        }
        None
    }

    /// Releases one block if two are idle, so that a burst does not hold its memory for ever.
    fn trim(&mut self) {
        let idle =
            self.spent.iter_mut().take(2).filter_map(|block| block.try_reclaim(BLOCK_BYTES).then_some(()));
        if idle.count() == 2 {
            self.spent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches that a test receives: Miri takes a thousand times as long for each.
    const BATCHES: usize = if cfg!(miri) { 50 } else { 1000 };

    fn receive(blocks: &mut Blocks, bytes: usize) -> Bytes {
        let room = blocks.room();
        assert!(room.is_empty() && room.capacity() >= RECEIVE_BYTES);
        room.resize(bytes, 7);
        blocks.take()
    }

    #[test]
    fn prompt_readers_need_two_blocks() {
        let mut blocks = Blocks::new();
        for _ in 0..BATCHES {
            drop(receive(&mut blocks, 65_000));
        }
        assert!(blocks.allocated <= 2, "{}", blocks.allocated);
        assert!(blocks.reused > BATCHES as u64 / 5);
    }

    #[test]
    fn a_window_of_readers_needs_its_own_size() {
        let mut blocks = Blocks::new();
        let mut readers = VecDeque::new();
        for _ in 0..BATCHES {
            readers.push_back(receive(&mut blocks, 65_000));
            if readers.len() > 16 {
                readers.pop_front();
            }
        }
        // 17 batches of a quarter block each, and one block on either side.
        assert!(blocks.allocated <= 7, "{}", blocks.allocated);
    }

    #[test]
    fn the_kernel_gets_aligned_room_behind_any_datagram() {
        let mut blocks = Blocks::new();
        let mut kept = Vec::new();
        for bytes in (1..200).chain([65_000; 9]) {
            let room = blocks.aligned_room();
            assert_eq!(room.as_ptr() as usize % ALIGNMENT, 0, "behind {bytes}");
            assert!(room.is_empty() && room.capacity() >= RECEIVE_BYTES);
            room.resize(bytes, 7);
            kept.push(blocks.take());
        }
        let room = aligned_room();
        assert!((room.as_ptr() as usize).is_multiple_of(ALIGNMENT) && room.capacity() >= RECEIVE_BYTES);
    }

    #[test]
    fn small_datagrams_share_a_block() {
        let mut blocks = Blocks::new();
        let kept: Vec<_> = (0..BATCHES).map(|_| receive(&mut blocks, 100)).collect();
        assert_eq!(blocks.allocated, 1);
        assert!(kept.iter().all(|bytes| bytes.len() == 100 && bytes.iter().all(|byte| *byte == 7)));
    }

    #[test]
    fn one_slow_reader_does_not_stop_the_reuse() {
        let mut blocks = Blocks::new();
        let slow = receive(&mut blocks, 65_000);
        for _ in 0..BATCHES {
            drop(receive(&mut blocks, 65_000));
        }
        assert!(blocks.allocated <= 3, "{}", blocks.allocated);
        assert!(slow.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn readers_that_keep_everything_hold_their_memory_and_no_more_is_queued() {
        let mut blocks = Blocks::new();
        let kept: Vec<_> = (0..BATCHES / 2).map(|_| receive(&mut blocks, 65_000)).collect();
        assert!(blocks.spent.len() <= SPENT_BLOCKS_MAX);
        drop(kept);
        for _ in 0..20 * BATCHES {
            drop(receive(&mut blocks, 65_000));
        }
        assert!(blocks.spent.len() <= 2, "{}", blocks.spent.len());
    }
}
