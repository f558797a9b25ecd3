//! The data of a message: a chain of blocks that are never copied on their way.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// The data of one message: a chain of reference-counted blocks.
///
/// Nearly every message has one block, which is stored inline; a longer chain is boxed. Empty blocks are never kept.
#[derive(Clone, Default)]
pub struct Chain(Blocks);

#[derive(Clone)]
enum Blocks {
    /// One block; an empty one is the empty chain.
    One(Bytes),
    Many(Box<Many>),
}

/// Two or more blocks; the first few may be consumed already.
#[derive(Clone)]
struct Many {
    blocks: Vec<Bytes>,
    first: usize,
    len_bytes: usize,
}

/// The memory of a longer chain, without its blocks.
pub(crate) struct ChainMemory(Box<Many>);

/// The memory of a chain with more blocks than this is freed, not reused.
const KEPT_BLOCKS_MAX: usize = 256;

impl fmt::Debug for ChainMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory for {} blocks", self.0.blocks.capacity())
    }
}

impl ChainMemory {
    /// Allocates memory for this many blocks.
    pub(crate) fn new(blocks: usize) -> Self {
        ChainMemory(Box::new(Many { blocks: Vec::with_capacity(blocks), first: 0, len_bytes: 0 }))
    }

    /// Returns the number of blocks that it has room for.
    pub(crate) fn blocks(&self) -> usize {
        self.0.blocks.capacity()
    }
}

impl Default for Blocks {
    #[inline]
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl Chain {
    /// Returns an empty chain.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of bytes in the chain.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Blocks::One(block) => block.len(),
            Blocks::Many(many) => many.len_bytes,
        }
    }

    /// Returns whether the chain is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the blocks in order; none of them is empty.
    #[inline]
    pub fn blocks(&self) -> &[Bytes] {
        match &self.0 {
            Blocks::One(block) if block.is_empty() => &[],
            Blocks::One(block) => std::slice::from_ref(block),
            Blocks::Many(many) => &many.blocks[many.first..],
        }
    }

    /// Returns whether the chain has more than one block, and memory of its own for them.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.0, Blocks::Many(_))
    }

    /// Drops the blocks of a longer chain and returns its memory.
    pub(crate) fn into_memory(self) -> Option<ChainMemory> {
        let Blocks::Many(mut many) = self.0 else { return None };
        if many.blocks.capacity() > KEPT_BLOCKS_MAX {
            return None;
        }
        many.blocks.clear();
        Some(ChainMemory(many))
    }

    /// Moves blocks into a chain that uses this memory.
    pub(crate) fn in_memory(ChainMemory(mut many): ChainMemory, blocks: &mut Vec<Bytes>) -> Self {
        many.blocks.extend(blocks.drain(..).filter(|block| !block.is_empty()));
        if many.blocks.len() < 2 {
            return Self(Blocks::One(many.blocks.pop().unwrap_or_default()));
        }
        many.first = 0;
        many.len_bytes = many.blocks.iter().map(Bytes::len).sum();
        Self(Blocks::Many(many))
    }

    /// Links a block to the end (`linkb`).
    pub fn push(&mut self, block: Bytes) {
        if block.is_empty() {
            return;
        }
        match &mut self.0 {
            Blocks::One(only) if only.is_empty() => *only = block,
            Blocks::One(only) => {
                let len_bytes = only.len() + block.len();
                let blocks = vec![std::mem::take(only), block];
                self.0 = Blocks::Many(Box::new(Many { blocks, first: 0, len_bytes }));
            }
            Blocks::Many(many) => {
                many.len_bytes += block.len();
                many.blocks.push(block);
            }
        }
    }

    /// Links all blocks of `other` to the end.
    pub fn append(&mut self, other: Chain) {
        for block in other {
            self.push(block);
        }
    }

    /// Copies bytes from the front into `out`, as many as fit, and returns their number. The chain keeps its bytes.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        match &self.0 {
            Blocks::One(block) => copy_block(block, out),
            Blocks::Many(many) => {
                let mut copied_bytes = 0;
                for block in &many.blocks[many.first..] {
                    if copied_bytes == out.len() {
                        break;
                    }
                    copied_bytes += copy_block(block, &mut out[copied_bytes..]);
                }
                copied_bytes
            }
        }
    }

    /// Drops the first `n` bytes.
    ///
    /// # Panics
    ///
    /// If the chain has fewer bytes.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.len(), "{n} bytes were to be taken from a chain of {}", self.len());
        match &mut self.0 {
            Blocks::One(block) => block.advance(n),
            Blocks::Many(_) => drop(self.split_to(n)),
        }
    }

    /// Splits the first `n` bytes off as a chain of their own, without copying (`dupb` and `adjmsg`).
    ///
    /// # Panics
    ///
    /// If the chain has fewer bytes.
    pub fn split_to(&mut self, mut n: usize) -> Chain {
        assert!(n <= self.len(), "{n} bytes were to be taken from a chain of {}", self.len());
        let mut front = Chain::new();
        while n > 0 {
            let Some(mut block) = self.pop_front() else { break };
            if block.len() > n {
                let taken = block.split_to(n);
                self.push_front(block);
                block = taken;
            }
            n -= block.len();
            front.push(block);
        }
        front
    }

    /// Copies the bytes into one block of their own.
    pub fn copy_out(&mut self) {
        *self = self.to_vec().into();
    }

    /// Moves the bytes into one block at the front of `room`, which has room for them.
    pub(crate) fn move_into(&mut self, room: &mut BytesMut) {
        self.blocks().iter().for_each(|block| room.extend_from_slice(block));
        self.0 = Blocks::One(room.split().freeze());
    }

    /// Removes and returns the first block.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Blocks::One(block) if block.is_empty() => None,
            Blocks::One(block) => Some(std::mem::take(block)),
            Blocks::Many(many) => {
                let block = std::mem::take(many.blocks.get_mut(many.first)?);
                many.first += 1;
                many.len_bytes -= block.len();
                if many.first == many.blocks.len() {
                    self.0 = Blocks::default();
                }
                Some(block)
            }
        }
    }

    /// Links a block to the front.
    pub fn push_front(&mut self, block: Bytes) {
        if block.is_empty() {
            return;
        }
        match &mut self.0 {
            Blocks::Many(many) if many.first > 0 => {
                many.first -= 1;
                many.len_bytes += block.len();
                many.blocks[many.first] = block;
            }
            _ => {
                let rest = std::mem::take(self);
                self.push(block);
                self.append(rest);
            }
        }
    }

    /// Returns all bytes in one block: the block itself if there is only one, a copy otherwise (`pullupmsg`).
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Blocks::One(block) => block,
            Blocks::Many(many) => {
                let mut whole = Vec::with_capacity(many.len_bytes);
                for block in &many.blocks[many.first..] {
                    whole.extend_from_slice(block);
                }
                whole.into()
            }
        }
    }

    /// Returns a copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut whole = vec![0; self.len()];
        self.copy_to(&mut whole);
        whole
    }
}

#[inline]
fn copy_block(block: &[u8], out: &mut [u8]) -> usize {
    let n = block.len().min(out.len());
    out[..n].copy_from_slice(&block[..n]);
    n
}

impl From<Bytes> for Chain {
    #[inline]
    fn from(block: Bytes) -> Self {
        Self(Blocks::One(block))
    }
}

/// Moves the blocks; drops empty ones.
impl From<Vec<Bytes>> for Chain {
    fn from(mut blocks: Vec<Bytes>) -> Self {
        blocks.retain(|block| !block.is_empty());
        if blocks.len() < 2 {
            return Self(Blocks::One(blocks.pop().unwrap_or_default()));
        }
        let len_bytes = blocks.iter().map(Bytes::len).sum();
        Self(Blocks::Many(Box::new(Many { blocks, first: 0, len_bytes })))
    }
}

impl From<Vec<u8>> for Chain {
    fn from(block: Vec<u8>) -> Self {
        Self::from(Bytes::from(block))
    }
}

impl From<&'static [u8]> for Chain {
    fn from(block: &'static [u8]) -> Self {
        Self::from(Bytes::from_static(block))
    }
}

impl FromIterator<Bytes> for Chain {
    fn from_iter<I: IntoIterator<Item = Bytes>>(blocks: I) -> Self {
        let mut chain = Self::new();
        chain.extend(blocks);
        chain
    }
}

impl Extend<Bytes> for Chain {
    fn extend<I: IntoIterator<Item = Bytes>>(&mut self, blocks: I) {
        for block in blocks {
            self.push(block);
        }
    }
}

impl IntoIterator for Chain {
    type Item = Bytes;
    type IntoIter = IntoBlocks;
    fn into_iter(self) -> IntoBlocks {
        IntoBlocks(self)
    }
}

/// The blocks of a chain, by value.
#[derive(Debug)]
pub struct IntoBlocks(Chain);

impl Iterator for IntoBlocks {
    type Item = Bytes;
    fn next(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }
}

impl PartialEq<[u8]> for Chain {
    fn eq(&self, other: &[u8]) -> bool {
        let mut rest = other;
        self.len() == other.len()
            && self.blocks().iter().all(|block| {
                let (front, back) = rest.split_at(block.len());
                rest = back;
                block[..] == *front
            })
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        match &other.0 {
            Blocks::One(block) => *self == **block,
            Blocks::Many(_) => *self == *other.to_vec(),
        }
    }
}

impl Eq for Chain {}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_BYTES_MAX: usize = 16;
        let mut start = [0; SHOWN_BYTES_MAX];
        let n = self.copy_to(&mut start);
        let dots = if self.len() > n { ".." } else { "" };
        write!(f, "Chain({} bytes: {:02x?}{dots})", self.len(), &start[..n])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(blocks: &[&'static str]) -> Chain {
        blocks.iter().map(|b| Bytes::from_static(b.as_bytes())).collect()
    }

    #[test]
    fn a_chain_is_four_words() {
        assert_eq!(size_of::<Chain>(), 32);
    }

    #[test]
    fn empty_blocks_are_not_kept() {
        let c = chain(&["", "a", "", "b", ""]);
        assert_eq!(c.blocks().len(), 2);
        assert_eq!(c.len(), 2);
        assert!(Chain::new().blocks().is_empty());
    }

    #[test]
    fn copies_across_blocks_and_stops_where_the_buffer_ends() {
        let c = chain(&["abc", "def", "gh"]);
        let mut out = [0; 5];
        assert_eq!(c.copy_to(&mut out), 5);
        assert_eq!(&out, b"abcde");
        let mut out = [0; 20];
        assert_eq!(c.copy_to(&mut out), 8);
        assert_eq!(&out[..8], b"abcdefgh");
    }

    #[test]
    fn splits_inside_and_between_blocks() {
        for n in 0..=8 {
            let mut back = chain(&["abc", "def", "gh"]);
            let front = back.split_to(n);
            assert_eq!(front, b"abcdefgh"[..n]);
            assert_eq!(back, b"abcdefgh"[n..]);
            assert_eq!(back.is_empty(), n == 8);
        }
    }

    #[test]
    fn data_put_back_comes_first() {
        let mut c = chain(&["abc", "def"]);
        let first = c.pop_front().unwrap();
        c.push_front(first);
        c.push_front(Bytes::from_static(b"_"));
        assert_eq!(c, b"_abcdef"[..]);
        assert_eq!(c.into_bytes(), &b"_abcdef"[..]);
    }

    #[test]
    #[should_panic(expected = "were to be taken from a chain of 3")]
    fn advancing_past_the_end_is_our_own_fault() {
        chain(&["abc"]).advance(4);
    }
}
