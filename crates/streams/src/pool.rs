//! Blocks of memory for the data that programs write.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::chain::{Chain, ChainMemory};

/// The blocks that written bytes are copied into.
///
/// Messages are cut off the front of one large block, so a message costs a reference and no allocation. A used-up block waits
/// until all messages cut from it are gone, and is then reused.
#[derive(Debug, Default)]
pub struct Pool {
    current: BytesMut,
    /// Blocks with room left that were lent and returned.
    open: Vec<BytesMut>,
    /// Oldest first.
    spent: VecDeque<BytesMut>,
    /// Memory of longer chains that were read.
    chains: Vec<ChainMemory>,
    /// Number of blocks that this memory has room for.
    chain_blocks: usize,
}

impl Pool {
    /// The size of one block. A larger message gets memory of its own.
    pub const BLOCK_BYTES: usize = 64 * 1024;
    /// Number of used-up blocks that are kept at most; others return to the allocator when their readers are gone.
    pub const SPENT_BLOCKS_MAX: usize = 256;
    /// Number of returned blocks with room left that are kept at most; as many heads can coalesce at a time without an
    /// allocation.
    const OPEN_BLOCKS_MAX: usize = 256;
    /// Number of blocks at most for which memory of chains is kept, 512 KiB.
    const CHAIN_BLOCKS_MAX: usize = 16 * 1024;
    /// Number of used-up blocks that are tried before a new one is allocated.
    const TRIES: usize = 4;

    /// Copies `bytes` into a block.
    #[inline]
    pub fn copy_in(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > self.current.capacity() {
            if bytes.len() > Self::BLOCK_BYTES {
                return Bytes::copy_from_slice(bytes);
            }
            self.replace_current();
        }
        self.current.extend_from_slice(bytes);
        self.current.split().freeze()
    }

    /// Copies several pieces into one block.
    pub fn join(&mut self, pieces: &[Bytes]) -> Bytes {
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        if bytes > self.current.capacity() {
            if bytes > Self::BLOCK_BYTES {
                return pieces.concat().into();
            }
            self.replace_current();
        }
        for piece in pieces {
            self.current.extend_from_slice(piece);
        }
        self.current.split().freeze()
    }

    /// Returns a chain of these blocks, in the memory of an earlier chain if there is any. The blocks are moved out.
    pub(crate) fn chain(&mut self, blocks: &mut Vec<Bytes>) -> Chain {
        let memory = match self.chains.pop() {
            Some(memory) => {
                self.chain_blocks -= memory.blocks();
                memory
            }
            None => ChainMemory::new(blocks.len()),
        };
        Chain::in_memory(memory, blocks)
    }

    /// Takes a longer chain that was read, to reuse its memory.
    pub(crate) fn recycle_chain(&mut self, chain: Chain) {
        if let Some(memory) = chain.into_memory()
            && self.chain_blocks + memory.blocks() <= Self::CHAIN_BLOCKS_MAX
        {
            self.chain_blocks += memory.blocks();
            self.chains.push(memory);
        }
    }

    /// Lends an empty block with room for at least `room_bytes`.
    pub fn take_block(&mut self, room_bytes: usize) -> BytesMut {
        if room_bytes > Self::BLOCK_BYTES {
            return BytesMut::with_capacity(room_bytes);
        }
        match self.open.pop() {
            Some(block) if block.capacity() >= room_bytes => block,
            Some(block) => {
                self.remember_spent(block);
                self.fresh_block()
            }
            None => self.fresh_block(),
        }
    }

    /// Takes back a lent block and forgets its content. Frees it if enough are kept.
    pub fn return_block(&mut self, mut block: BytesMut) {
        block.clear();
        if block.capacity() >= Self::BLOCK_BYTES / 2 {
            if self.open.len() < Self::OPEN_BLOCKS_MAX {
                self.open.push(block);
            }
        } else {
            self.remember_spent(block);
        }
    }

    #[cold]
    fn replace_current(&mut self) {
        let spent = std::mem::take(&mut self.current);
        self.remember_spent(spent);
        self.current = self.fresh_block();
    }

    fn remember_spent(&mut self, block: BytesMut) {
        if self.spent.len() < Self::SPENT_BLOCKS_MAX {
            self.spent.push_back(block);
        }
    }

    fn fresh_block(&mut self) -> BytesMut {
        // The oldest block is the most likely to have lost its readers; one that is held for long must not hide the others.
        for _ in 0..Self::TRIES.min(self.spent.len()) {
            let Some(mut block) = self.spent.pop_front() else { break };
            if block.try_reclaim(Self::BLOCK_BYTES) {
                return block;
            }
            self.spent.push_back(block);
        }
        BytesMut::with_capacity(Self::BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_use_the_memory_of_earlier_ones_and_a_burst_leaves_little_of_it() {
        let mut pool = Pool::default();
        let blocks = || vec![Bytes::from_static(b"block"); 100];
        let chains: Vec<Chain> = (0..1000).map(|_| pool.chain(&mut blocks())).collect();
        assert!(chains.iter().all(|chain| chain.blocks().len() == 100));
        let places: Vec<_> = chains.iter().map(|chain| chain.blocks().as_ptr()).collect();
        chains.into_iter().for_each(|chain| pool.recycle_chain(chain));
        assert_eq!(pool.chain_blocks, pool.chains.iter().map(ChainMemory::blocks).sum());
        assert!((Pool::CHAIN_BLOCKS_MAX / 2..=Pool::CHAIN_BLOCKS_MAX).contains(&pool.chain_blocks));
        let kept = pool.chains.len();
        let again: Vec<Chain> = (0..kept).map(|_| pool.chain(&mut blocks())).collect();
        assert!(again.iter().all(|chain| places.contains(&chain.blocks().as_ptr())));
        assert_eq!(pool.chain_blocks, 0);
    }

    #[test]
    fn a_burst_of_lent_blocks_leaves_few_of_them() {
        let mut pool = Pool::default();
        let lent: Vec<BytesMut> = (0..2 * Pool::OPEN_BLOCKS_MAX).map(|_| pool.take_block(1)).collect();
        lent.into_iter().for_each(|block| pool.return_block(block));
        assert_eq!(pool.open.len(), Pool::OPEN_BLOCKS_MAX);
        pool.take_block(1);
        assert_eq!(pool.open.len(), Pool::OPEN_BLOCKS_MAX - 1, "they are lent again");
    }
}
