//! Blocks for short messages that were filled, and can be filled again.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Size of the blocks that are kept.
pub(crate) const BLOCK_BYTES: usize = 64 * 1024;
/// Maximum number of blocks, 1 MiB in all: twice what an association on one host keeps in its send buffer.
const BLOCKS_MAX: usize = 16;
/// Maximum number of blocks that are looked at for one that is free. Messages mostly leave in the order in which they came,
/// so the oldest block is free first.
const LOOKS_MAX: usize = 4;

/// The blocks of all associations of an endpoint, the oldest first. Their messages may still be in flight. So messages in a
/// steady stream, or in bursts, allocate nothing, and an idle association has no large block.
#[derive(Debug, Default)]
pub(crate) struct SpareBlocks(VecDeque<BytesMut>);

impl SpareBlocks {
    /// Keeps a block. Drops the oldest one beyond the limit.
    pub(crate) fn put(&mut self, mut block: BytesMut) {
        block.clear();
        if self.0.len() == BLOCKS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(block);
    }

    /// Takes a block that nothing refers to any more.
    pub(crate) fn take(&mut self) -> Option<BytesMut> {
        for _ in 0..self.0.len().min(LOOKS_MAX) {
            let mut block = self.0.pop_front()?;
            if block.try_reclaim(BLOCK_BYTES) {
                return Some(block);
            }
            self.0.push_back(block);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> (BytesMut, BytesMut) {
        let mut block = BytesMut::with_capacity(BLOCK_BYTES);
        block.resize(BLOCK_BYTES - 7, 1);
        let messages = block.split();
        (block, messages)
    }

    #[test]
    fn a_block_is_filled_again_once_its_messages_are_gone() {
        let mut spare = SpareBlocks::default();
        let (block, messages) = filled();
        let place = messages.as_ptr();
        spare.put(block);
        assert!(spare.take().is_none());
        drop(messages);
        let block = spare.take().expect("nothing refers to it");
        assert_eq!((block.len(), block.capacity(), block.as_ptr()), (0, BLOCK_BYTES, place));
        assert!(spare.take().is_none());
    }

    #[test]
    fn blocks_in_use_are_passed_over_and_the_oldest_ones_dropped() {
        let mut spare = SpareBlocks::default();
        let mut blocks: Vec<_> = (0..BLOCKS_MAX + 1).map(|_| filled()).collect();
        let messages: Vec<_> = blocks.iter_mut().map(|(_, messages)| std::mem::take(messages)).collect();
        blocks.into_iter().for_each(|(block, _)| spare.put(block));
        assert_eq!(spare.0.len(), BLOCKS_MAX);
        let fourth = messages[1 + LOOKS_MAX - 1].as_ptr();
        let in_use: Vec<_> = messages.into_iter().filter(|messages| messages.as_ptr() != fourth).collect();
        assert_eq!(spare.take().map(|block| block.as_ptr()), Some(fourth));
        assert!(spare.take().is_none());
        drop(in_use);
        assert!(spare.take().is_some());
    }
}
