//! Coalescing: turns writes with more to come into one message.

use bytes::{Bytes, BytesMut};

use crate::pool::Pool;
use crate::{SendInfo, Which};

/// Bytes of writes with more to come (`T_MORE`), which will go down as one message.
#[derive(Debug, Default)]
pub(crate) struct Coalesced {
    association: Which,
    info: SendInfo,
    /// Block lent by the pool; holds no memory while nothing is held.
    block: BytesMut,
    /// Maximum number of bytes that go down as one message: the driver refuses no message of this length.
    max_bytes: usize,
    /// The stream is in the scheduler's list of coalescing heads.
    listed: bool,
}

impl Coalesced {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.block.len()
    }

    #[inline]
    pub(crate) fn info(&self) -> (Which, SendInfo) {
        (self.association, self.info)
    }

    /// Records that the stream is in the list of coalescing heads. Returns whether it was already.
    #[inline]
    pub(crate) fn list(&mut self) -> bool {
        std::mem::replace(&mut self.listed, true)
    }

    /// Records that the stream is in the list of coalescing heads no longer.
    pub(crate) fn unlist(&mut self) {
        self.listed = false;
    }

    /// Returns whether these bytes can join those that are held.
    #[inline]
    pub(crate) fn joins(&self, association: Which, info: &SendInfo, bytes: usize) -> bool {
        let same = (self.association, self.info) == (association, *info);
        self.is_empty() || (same && self.block.len() + bytes <= self.max_bytes)
    }

    /// Begins a block for writes that go down as one message of at most `max_bytes`. The head must hold nothing.
    pub(crate) fn begin(&mut self, association: Which, info: &SendInfo, max_bytes: usize, pool: &mut Pool) {
        debug_assert!(self.is_empty());
        (self.association, self.info, self.max_bytes) = (association, *info, max_bytes);
        self.block = pool.take_block(max_bytes);
    }

    /// Appends bytes; [`Coalesced::joins`] must have returned true. Returns whether the block is full.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        self.block.extend_from_slice(bytes);
        self.block.len() >= self.max_bytes
    }

    /// Appends a write to those that are held if the block does not become full: the driver need not be asked. Returns whether
    /// the write was appended.
    #[inline]
    pub(crate) fn append_unasked(&mut self, association: Which, info: &SendInfo, bytes: &[u8]) -> bool {
        let joins = !self.is_empty()
            && !bytes.is_empty()
            && self.block.len() + bytes.len() < self.max_bytes
            && (self.association, &self.info) == (association, info)
            && info.lifetime.is_none();
        if joins {
            self.block.extend_from_slice(bytes);
        }
        joins
    }

    /// Takes the held bytes as one message of this association.
    pub(crate) fn take(&mut self, pool: &mut Pool) -> (Which, SendInfo, Bytes) {
        let data = self.block.split().freeze();
        pool.return_block(std::mem::take(&mut self.block));
        (self.association, self.info, data)
    }

    /// Discards the held bytes.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        pool.return_block(std::mem::take(&mut self.block));
    }
}
