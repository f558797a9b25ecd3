//! Blocks of memory for messages that wait for their reader.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Size of the blocks that waiting messages are copied into; longer messages get their own. Queues whose messages share blocks
/// are read from the front, so the remaining messages hold at most one block too many.
const BLOCK_BYTES: usize = 16 * 1024;
/// Maximum number of used-up blocks that are kept for reuse: those of two default receive buffers.
const SPENT_BLOCKS_MAX: usize = 128;
/// Number of used-up blocks that are tried before a new one is allocated.
const TRIES: usize = 4;

/// The blocks that waiting messages are copied into.
///
/// Only messages of one queue share a block. A used-up block is reused when its messages have been read: memory that the
/// allocator has returned to the system costs a page fault for each 4 KB when it is taken again.
#[derive(Debug, Default)]
pub(crate) struct DetachedBlocks {
    current: BytesMut,
    /// Whether the current block has the size of those that are reused.
    is_reusable: bool,
    /// Oldest first.
    spent: VecDeque<BytesMut>,
    /// Whether a block was wanted since the last pause.
    is_in_use: bool,
}

impl DetachedBlocks {
    /// Returns room for the next `bytes` of the `left_bytes` that a queue copies.
    pub(crate) fn room(&mut self, bytes: usize, left_bytes: usize) -> &mut BytesMut {
        if self.current.capacity() < bytes {
            self.end_queue();
            self.is_in_use = true;
            self.is_reusable = bytes <= BLOCK_BYTES && left_bytes >= BLOCK_BYTES;
            self.current = match self.is_reusable {
                true => self.reclaim().unwrap_or_else(|| BytesMut::with_capacity(BLOCK_BYTES)),
                false => BytesMut::with_capacity(left_bytes.min(BLOCK_BYTES).max(bytes)),
            };
        }
        &mut self.current
    }

    /// Ends the copying of a queue.
    pub(crate) fn end_queue(&mut self) {
        let used = std::mem::take(&mut self.current);
        if std::mem::take(&mut self.is_reusable) {
            self.spent.push_back(used);
        }
        if self.spent.len() > SPENT_BLOCKS_MAX {
            self.spent.pop_front();
        }
    }

    fn reclaim(&mut self) -> Option<BytesMut> {
        for _ in 0..self.spent.len().min(TRIES) {
            let mut block = self.spent.pop_front()?;
            if block.try_reclaim(BLOCK_BYTES) {
                return Some(block);
            }
            self.spent.push_back(block);
        }
        None
    }

    /// Returns whether used-up blocks are kept.
    pub(crate) fn is_bulky(&self) -> bool {
        !self.spent.is_empty()
    }

    /// Gives up the used-up blocks in the second pause in a row without a copy: those without messages are freed.
    pub(crate) fn on_pause(&mut self) {
        if !std::mem::take(&mut self.is_in_use) {
            self.spent = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Copies messages of 1,000 bytes, as a queue does.
    fn copy(blocks: &mut DetachedBlocks, messages: usize) -> Vec<Bytes> {
        let copied = (0..messages).map(|n| {
            let room = blocks.room(1000, (messages - n) * 1000);
            room.extend_from_slice(&[7; 1000]);
            room.split().freeze()
        });
        let copied = copied.collect();
        blocks.end_queue();
        copied
    }

    #[test]
    fn blocks_are_reused_once_their_messages_have_been_read() {
        let mut blocks = DetachedBlocks::default();
        let mut places = std::collections::BTreeSet::new();
        let mut waiting = VecDeque::new();
        for _ in 0..100 {
            let copied = copy(&mut blocks, 64);
            places.extend(copied.iter().map(|message| message.as_ptr() as usize));
            waiting.push_back(copied);
            if waiting.len() > 2 {
                waiting.pop_front();
            }
        }
        assert!(places.len() <= 4 * 64, "{} places for 192 messages that wait at most", places.len());
        assert!(waiting.iter().flatten().all(|message| message.iter().all(|byte| *byte == 7)));
    }

    #[test]
    fn a_few_messages_hold_their_own_size_and_a_long_one_has_its_own_block() {
        let mut blocks = DetachedBlocks::default();
        assert!(blocks.room(1000, 3000).capacity() < 4000);
        blocks.end_queue();
        assert!(blocks.room(BLOCK_BYTES + 1, BLOCK_BYTES + 1).capacity() > BLOCK_BYTES);
        blocks.end_queue();
        assert!(blocks.spent.is_empty());
    }

    #[test]
    fn no_more_blocks_are_kept_than_the_limit_and_none_after_two_pauses() {
        let mut blocks = DetachedBlocks::default();
        let kept = copy(&mut blocks, 40 * SPENT_BLOCKS_MAX);
        assert_eq!(blocks.spent.len(), SPENT_BLOCKS_MAX);
        blocks.on_pause();
        assert!(blocks.is_bulky(), "a copy was made since the last pause");
        blocks.on_pause();
        assert!(!blocks.is_bulky() && kept.iter().all(|message| message.len() == 1000));
    }
}
