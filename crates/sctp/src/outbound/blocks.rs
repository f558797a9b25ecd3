//! The blocks that short messages are written into, which are used again once the peer has acknowledged what they held.

use std::collections::VecDeque;

use bytes::BytesMut;

use crate::send_pool::BlockCharge;

/// Limits of the size of a block, which is as large as what the association buffers.
pub(super) const BLOCK_BYTES_MIN: usize = 2 * 1024;
pub(super) const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of used-up blocks that an association keeps; those beyond are freed with their last message.
const SPENT_BLOCKS_MAX: usize = 256;
/// Maximum size of all blocks that an endpoint keeps for associations that have messages again.
const FREE_BYTES_MAX: usize = 1024 * 1024;

/// The room for messages that is left of a block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The room. The messages before it have the other references to the memory.
    pub(super) wire: BytesMut,
    /// The charge for the whole block.
    pub(super) charge: Option<BlockCharge>,
    /// Size of the whole block.
    pub(super) bytes: usize,
}

impl Block {
    /// Allocates a block.
    pub(super) fn allocate(bytes: usize) -> Self {
        Block { wire: BytesMut::with_capacity(bytes), charge: None, bytes }
    }

    /// Begins the block again if no message refers to it. Returns whether it did.
    fn reclaim(&mut self) -> bool {
        self.wire.try_reclaim(self.bytes)
    }
}

/// The used-up blocks of an association, oldest first.
#[derive(Debug, Default)]
pub(super) struct SpentBlocks(VecDeque<Block>);

impl SpentBlocks {
    /// Returns whether it keeps none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a block that is used up.
    pub(super) fn push(&mut self, block: Block) {
        if self.0.len() < SPENT_BLOCKS_MAX && block.bytes > 0 {
            self.0.push_back(block);
        }
    }

    /// Takes the oldest block of at least this size, with its charge, if the messages before it are gone. Gives away others of
    /// which the same is true: smaller ones, and one more, so that few are left when less is in flight.
    pub(super) fn take(&mut self, bytes: usize, free: &mut FreeBlocks) -> Option<Block> {
        let mut taken = self.pop_reclaimed()?;
        while taken.bytes < bytes {
            free.give(taken);
            taken = self.pop_reclaimed()?;
        }
        if let Some(surplus) = self.pop_reclaimed() {
            free.give(surplus);
        }
        Some(taken)
    }

    fn pop_reclaimed(&mut self) -> Option<Block> {
        if self.0.front_mut().is_some_and(Block::reclaim) { self.0.pop_front() } else { None }
    }

    /// Gives all blocks away, because nothing waits or is outstanding. Returns one of the smallest size if there is one.
    pub(super) fn give_all(&mut self, free: &mut FreeBlocks) -> Option<Block> {
        let mut smallest = None;
        for mut block in self.0.drain(..) {
            if block.bytes > BLOCK_BYTES_MIN {
                free.give(block);
            } else if smallest.is_none() && block.reclaim() {
                smallest = Some(block);
            }
        }
        smallest
    }
}

/// The blocks that associations of an endpoint have given away. They are charged to no pool.
#[derive(Debug, Default)]
pub(crate) struct FreeBlocks {
    blocks: Vec<Block>,
    /// Size of all.
    bytes: usize,
}

impl FreeBlocks {
    /// Keeps a block, unless it is of the smallest size or there are enough. A packet that is being sent may still refer to it.
    pub(super) fn give(&mut self, block: Block) {
        if block.bytes > BLOCK_BYTES_MIN && self.bytes + block.bytes <= FREE_BYTES_MAX {
            self.bytes += block.bytes;
            self.blocks.push(Block { charge: None, ..block });
        }
    }

    /// Takes the smallest block that has at least this size, without a charge.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Block> {
        let blocks = self.blocks.iter_mut().enumerate();
        let fits = |(_, block): &(usize, &mut Block)| block.bytes >= bytes;
        let (at, _) = blocks
            .filter(fits)
            .filter_map(|(at, block)| block.reclaim().then_some((at, block.bytes)))
            .min_by_key(|(_, bytes)| *bytes)?;
        let block = self.blocks.swap_remove(at);
        self.bytes -= block.bytes;
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Returns a block that is used up, and the messages in it.
    fn used_up(bytes: usize) -> (Block, Bytes) {
        let mut block = Block::allocate(bytes);
        block.wire.resize(bytes, 7);
        let messages = block.wire.split().freeze();
        (block, messages)
    }

    #[test]
    fn a_block_whose_messages_are_outstanding_stays_where_it_is() {
        let (mut spent, mut free) = (SpentBlocks::default(), FreeBlocks::default());
        let (block, messages) = used_up(4096);
        spent.push(block);
        assert!(spent.take(4096, &mut free).is_none());
        drop(messages);
        assert_eq!(spent.take(4096, &mut free).map(|block| block.wire.capacity()), Some(4096));
        assert!(spent.is_empty());
    }

    #[test]
    fn one_block_more_than_is_needed_is_given_away_and_smaller_ones_are() {
        let (mut spent, mut free) = (SpentBlocks::default(), FreeBlocks::default());
        for bytes in [4096, 8192, 16_384, 16_384, 16_384] {
            spent.push(used_up(bytes).0);
        }
        assert_eq!(spent.take(16_384, &mut free).map(|block| block.bytes), Some(16_384));
        let given: Vec<_> =
            [1, 1, 1].iter().map(|bytes| free.take(*bytes).map(|block| block.bytes)).collect();
        assert_eq!(given, [Some(4096), Some(8192), Some(16_384)]);
        assert!(free.take(1).is_none());
        assert!(spent.take(1, &mut free).is_some() && spent.is_empty());
    }

    #[test]
    fn an_association_and_an_endpoint_keep_a_bounded_number_of_blocks() {
        let (mut spent, mut free) = (SpentBlocks::default(), FreeBlocks::default());
        for _ in 0..SPENT_BLOCKS_MAX + 10 {
            spent.push(used_up(BLOCK_BYTES_MAX).0);
        }
        assert_eq!(spent.0.len(), SPENT_BLOCKS_MAX);
        assert!(spent.give_all(&mut free).is_none());
        assert_eq!((free.blocks.len(), free.bytes), (FREE_BYTES_MAX / BLOCK_BYTES_MAX, FREE_BYTES_MAX));
    }

    #[test]
    fn the_smallest_block_stays_with_its_association() {
        let (mut spent, mut free) = (SpentBlocks::default(), FreeBlocks::default());
        for bytes in [BLOCK_BYTES_MIN, 4096, BLOCK_BYTES_MIN] {
            spent.push(used_up(bytes).0);
        }
        let kept = spent.give_all(&mut free);
        assert_eq!(kept.map(|block| block.wire.capacity()), Some(BLOCK_BYTES_MIN));
        assert_eq!(free.bytes, 4096);
    }

    #[test]
    fn a_free_block_is_the_smallest_that_no_packet_refers_to() {
        let mut free = FreeBlocks::default();
        let (block, packet) = used_up(4096);
        free.give(block);
        free.give(used_up(16_384).0);
        free.give(used_up(8192).0);
        assert_eq!(free.take(1).map(|block| block.bytes), Some(8192));
        drop(packet);
        assert_eq!(free.take(1).map(|block| block.bytes), Some(4096));
        assert!(free.take(16_385).is_none());
    }
}
