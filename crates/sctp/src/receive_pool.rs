//! Memory for received data that several associations share.
//!
//! The receive buffer bounds one association. A pool bounds all associations that have it, so that a peer with a thousand
//! associations does not make its receiver hold a thousand buffers. An association takes memory from the pool in steps, and gives
//! it back when the reader has taken the data.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::receive_buffer::{Held, RECEIVED_OVERHEAD_BYTES};

/// An association takes memory from its pool in steps of this size, so that few messages touch the pool.
pub const POOL_STEP_BYTES: usize = 64 * 1024;
/// An association may hold this much without the pool: one packet of Ethernet with its overhead. So each association makes
/// progress, and one that exchanges short messages never touches the pool.
pub const POOL_FREE_BYTES: usize = 2048;
/// An association that holds no more than this may use the reserve of the pool.
pub const POOL_LITTLE_BYTES: usize = 8 * 1024;
/// One in so many bytes of a pool is the reserve, for associations that hold little.
pub const POOL_RESERVED_PART: usize = 4;

/// The memory behind a [`ReceivePool`].
pub trait ReceiveBudget: fmt::Debug + Send + Sync {
    /// Charges so many bytes, or returns false. With `is_reserve`, the reserve may be used, too
    /// ([`POOL_RESERVED_PART`]).
    fn take(&self, bytes: usize, is_reserve: bool) -> bool;
    /// Gives back what was charged.
    fn release(&self, bytes: usize);
    /// Returns how many bytes may be charged now, with the reserve or without it.
    fn free_bytes(&self, is_reserve: bool) -> usize;
}

/// Memory for received data that several associations share, whatever their endpoint. Copies stand for the same memory.
///
/// ```
/// let pool = sctp::ReceivePool::with_limit(64 << 20);
/// let config = sctp::AssociationConfig { receive_pool: Some(pool), ..Default::default() };
/// assert_eq!(config.clone(), config);
/// ```
#[derive(Clone, Debug)]
pub struct ReceivePool(Arc<dyn ReceiveBudget>);

impl ReceivePool {
    /// Makes a pool of so many bytes.
    pub fn with_limit(bytes: usize) -> Self {
        ReceivePool::new(Arc::new(Limit { bytes, charged_bytes: AtomicUsize::new(0) }))
    }

    /// Makes a pool whose memory is counted elsewhere.
    pub fn new(budget: Arc<dyn ReceiveBudget>) -> Self {
        ReceivePool(budget)
    }
}

impl PartialEq for ReceivePool {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ReceivePool {}

/// A plain limit.
#[derive(Debug)]
struct Limit {
    bytes: usize,
    charged_bytes: AtomicUsize,
}

impl Limit {
    fn most_bytes(&self, is_reserve: bool) -> usize {
        if is_reserve { self.bytes } else { self.bytes - self.bytes / POOL_RESERVED_PART }
    }
}

impl ReceiveBudget for Limit {
    fn take(&self, bytes: usize, is_reserve: bool) -> bool {
        let most = self.most_bytes(is_reserve);
        let more = |charged: usize| charged.checked_add(bytes).filter(|charged| *charged <= most);
        self.charged_bytes.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, Relaxed);
    }

    fn free_bytes(&self, is_reserve: bool) -> usize {
        self.most_bytes(is_reserve).saturating_sub(self.charged_bytes.load(Relaxed))
    }
}

/// Memory that one association has taken from its pool. Dropping it returns the memory.
#[derive(Debug, Default)]
pub struct ReceiveCharge {
    pool: Option<ReceivePool>,
    bytes: usize,
}

impl ReceiveCharge {
    /// Charges nothing yet. Without a pool, any number of bytes may be held.
    pub(crate) fn new(pool: Option<ReceivePool>) -> Self {
        ReceiveCharge { pool, bytes: 0 }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.pool.is_some()
    }

    /// Returns how many bytes an association may hold that has taken so much.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        if self.pool.is_some() { self.bytes } else { usize::MAX }
    }

    /// Returns how many bytes may come while `held_bytes` are held.
    #[inline]
    pub(crate) fn room_bytes(&self, held_bytes: usize) -> usize {
        let Some(pool) = &self.pool else { return usize::MAX };
        // Whatever comes has the overhead of one message at least.
        let taken_bytes = held_bytes + RECEIVED_OVERHEAD_BYTES;
        let room_bytes =
            (self.bytes + POOL_FREE_BYTES).saturating_sub(taken_bytes) + pool.0.free_bytes(false);
        let little_bytes = POOL_LITTLE_BYTES.saturating_sub(taken_bytes);
        if little_bytes > room_bytes {
            pool.0.free_bytes(true).clamp(room_bytes, little_bytes)
        } else {
            room_bytes
        }
    }

    /// Takes memory until `held_bytes` may be held. Returns whether there was enough.
    pub(crate) fn grow_to(&mut self, held_bytes: usize) -> bool {
        let more = held_bytes.saturating_sub(self.bytes());
        more == 0 || self.take(more.max(POOL_STEP_BYTES), false) || self.take(more, false)
    }

    /// Takes memory, also from the reserve, until `held_bytes` may be held. Returns whether there was enough.
    pub(crate) fn grow_from_reserve_to(&mut self, held_bytes: usize) -> bool {
        let more = held_bytes.saturating_sub(self.bytes());
        more == 0 || self.take(more, true)
    }

    fn take(&mut self, bytes: usize, is_reserve: bool) -> bool {
        let is_taken = self.pool.as_ref().is_none_or(|pool| pool.0.take(bytes, is_reserve));
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Gives memory back if much less is held than was taken, or nothing.
    #[inline]
    pub(crate) fn trim(&mut self, held_bytes: usize) {
        if self.bytes > 0 && (held_bytes == 0 || self.bytes >= held_bytes + 2 * POOL_STEP_BYTES) {
            let kept_bytes = if held_bytes == 0 { 0 } else { held_bytes + POOL_STEP_BYTES };
            self.shrink_to(kept_bytes);
        }
    }

    /// Gives back what was taken beyond so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(pool) = &self.pool
            && self.bytes > bytes
        {
            pool.0.release(self.bytes - bytes);
            self.bytes = bytes;
        }
    }

    /// Gives back what messages were charged whose association is gone: the reader has taken `bytes`, and what is charged beside
    /// them ([`Endpoint::consumed`](crate::Endpoint::consumed)). Returns whether nothing is charged any more.
    pub fn consumed(&mut self, bytes: usize, charges: usize) -> bool {
        let taken_bytes = Held::of(bytes, charges).total_bytes();
        self.shrink_to(self.bytes.saturating_sub(taken_bytes));
        self.bytes == 0
    }
}

impl Drop for ReceiveCharge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_BYTES: usize = 4 * POOL_STEP_BYTES;

    fn free_bytes(pool: &ReceivePool) -> usize {
        pool.0.free_bytes(false)
    }

    #[test]
    fn an_association_takes_steps_and_gives_back_what_it_does_not_hold() {
        let pool = ReceivePool::with_limit(2 * LIMIT_BYTES);
        let all_bytes = free_bytes(&pool);
        let mut charge = ReceiveCharge::new(Some(pool.clone()));
        assert!(charge.grow_to(1) && charge.grow_to(POOL_STEP_BYTES));
        assert_eq!(free_bytes(&pool), all_bytes - POOL_STEP_BYTES);
        assert!(charge.grow_to(3 * POOL_STEP_BYTES));
        charge.trim(2 * POOL_STEP_BYTES);
        assert_eq!(charge.bytes(), 3 * POOL_STEP_BYTES, "a little less is no reason");
        charge.trim(POOL_STEP_BYTES);
        assert_eq!(charge.bytes(), 2 * POOL_STEP_BYTES);
        charge.trim(0);
        assert_eq!(free_bytes(&pool), all_bytes);
        assert!(charge.grow_to(1));
        drop(charge);
        assert_eq!(free_bytes(&pool), all_bytes);
    }

    #[test]
    fn the_reserve_is_for_single_packets() {
        let pool = ReceivePool::with_limit(LIMIT_BYTES);
        let (mut many, mut one) = (ReceiveCharge::new(Some(pool.clone())), ReceiveCharge::new(Some(pool)));
        assert!(many.grow_to(3 * POOL_STEP_BYTES));
        assert!(!many.grow_to(3 * POOL_STEP_BYTES + 1) && !one.grow_to(1));
        assert!(one.grow_from_reserve_to(POOL_STEP_BYTES));
        assert!(!many.grow_from_reserve_to(3 * POOL_STEP_BYTES + 1), "nothing is left at all");
        drop(one);
        assert!(many.grow_from_reserve_to(3 * POOL_STEP_BYTES + 1));
    }

    #[test]
    fn without_a_pool_nothing_is_limited() {
        let mut charge = ReceiveCharge::new(None);
        assert!(charge.grow_to(usize::MAX));
        assert_eq!((charge.bytes(), charge.room_bytes(1 << 40)), (usize::MAX, usize::MAX));
    }

    #[test]
    fn what_is_read_after_the_end_is_given_back() {
        let pool = ReceivePool::with_limit(LIMIT_BYTES);
        let mut charge = ReceiveCharge::new(Some(pool.clone()));
        let both = Held::of(3000, 2).total_bytes();
        assert!(charge.grow_to(both));
        charge.shrink_to(both);
        assert!(!charge.consumed(1000, 1));
        assert_eq!(charge.bytes(), Held::of(2000, 1).total_bytes());
        assert!(charge.consumed(2000, 1));
        assert_eq!(free_bytes(&pool), LIMIT_BYTES - LIMIT_BYTES / POOL_RESERVED_PART);
    }
}
