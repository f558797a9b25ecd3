//! Memory for received data that several associations share.
//!
//! The receive buffer bounds one association. A pool bounds all associations that share it, so that a peer with a
//! thousand associations does not make the receiver hold a thousand buffers. An association takes memory from the pool
//! in steps, and returns it when the reader has taken the data.

mod made_data;

pub use made_data::{MadeData, Notify, ReleaseWaiters};

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use crate::receive_buffer::{Held, RECEIVED_OVERHEAD_BYTES};

/// Size of the steps in which an association takes memory from its pool, so that few messages access the pool.
pub const POOL_STEP_BYTES: usize = 64 * 1024;
/// Memory that each association may hold without the pool: one packet of Ethernet with its overhead. So each
/// association makes progress, and an association with short messages never accesses the pool.
pub const POOL_FREE_BYTES: usize = 2048;
/// Memory up to which an association may use the reserve of the pool.
pub const POOL_LITTLE_BYTES: usize = 8 * 1024;
/// Divisor of the pool's size: this part is the reserve, for associations that hold little.
pub const POOL_RESERVED_PART: usize = 4;

/// The memory behind a [`ReceivePool`].
pub trait ReceiveBudget: fmt::Debug + Send + Sync {
    /// Charges this many bytes, or returns false. `is_reserve` permits the use of the reserve ([`POOL_RESERVED_PART`]).
    fn take(&self, bytes: usize, is_reserve: bool) -> bool;
    /// Returns charged memory.
    fn release(&self, bytes: usize);
    /// Returns the number of bytes that may be charged now, with the reserve or without it.
    fn free_bytes(&self, is_reserve: bool) -> usize;
    /// Charges this many bytes, whatever the limit.
    fn charge(&self, bytes: usize);
    /// Returns the data that was made of received data.
    fn made(&self) -> &MadeData;
    /// Calls `notify` once when memory is released.
    fn when_released(&self, notify: Weak<Notify>) {
        self.made().waiting.add(notify);
    }
    /// Counts work on the data of associations with this pool that is not the endpoint's: that of modules.
    fn count_work(&self, _work: usize) {}
}

/// Memory for received data that several associations share, whatever their endpoint. Copies stand for the same memory.
///
/// ```
/// # use sctp::ReceivePool;
/// let pool = ReceivePool::with_limit(64 << 20);
/// assert!(pool.has(64 << 20) && !pool.has(65 << 20));
/// assert_eq!(pool.clone(), pool, "the copy stands for the same memory");
/// ```
#[derive(Clone, Debug)]
pub struct ReceivePool(Arc<dyn ReceiveBudget>);

impl ReceivePool {
    /// Returns a pool of this many bytes.
    pub fn with_limit(bytes: usize) -> Self {
        ReceivePool::new(Arc::new(Limit {
            bytes,
            charged_bytes: AtomicUsize::new(0),
            made: MadeData::default(),
        }))
    }

    /// Returns a pool whose memory `budget` counts.
    pub fn new(budget: Arc<dyn ReceiveBudget>) -> Self {
        ReceivePool(budget)
    }

    /// Returns whether this many bytes are free, with the reserve.
    pub fn has(&self, bytes: usize) -> bool {
        self.0.free_bytes(true) >= bytes
    }

    /// Charges this many bytes, for memory that is not received data, also from the reserve. `None`: they are not free.
    ///
    /// ```
    /// # use sctp::ReceivePool;
    /// let pool = ReceivePool::with_limit(1 << 20);
    /// let charge = pool.charge(600_000).expect("it is empty");
    /// assert!(pool.charge(600_000).is_none());
    /// drop(charge);
    /// assert!(pool.has(600_000));
    /// ```
    pub fn charge(&self, bytes: usize) -> Option<ReceiveCharge> {
        let mut charge = ReceiveCharge::new(Some(self.clone()));
        charge.grow_from_reserve_to(bytes).then_some(charge)
    }

    /// Charges this many bytes for data that is made of received data, or returns false. While nothing else is made, the bytes
    /// may exceed the limit.
    ///
    /// ```
    /// # use sctp::ReceivePool;
    /// let pool = ReceivePool::with_limit(1 << 20);
    /// let _received = pool.charge(1 << 20).expect("it is empty");
    /// assert!(pool.take_made(60_000) && !pool.take_made(60_000), "one message at a time");
    /// pool.release_made(60_000);
    /// assert!(pool.take_made(60_000));
    /// ```
    pub fn take_made(&self, bytes: usize) -> bool {
        let made = self.0.made();
        if self.0.take(bytes, false) {
            made.add(bytes);
            return true;
        }
        let is_first = made.begin(bytes);
        if is_first {
            self.0.charge(bytes);
        }
        is_first
    }

    /// Returns memory of [`ReceivePool::take_made`].
    pub fn release_made(&self, bytes: usize) {
        self.0.made().remove(bytes);
        self.0.release(bytes);
    }

    /// Calls `notify` once when memory is released, from any thread. Memory that is released before this call returns may be
    /// missed, so the caller tries again afterwards.
    pub fn when_released(&self, notify: Weak<Notify>) {
        self.0.when_released(notify);
    }

    /// Counts work on the data of associations with this pool that is not the endpoint's: that of modules.
    pub fn count_work(&self, work: usize) {
        self.0.count_work(work);
    }

    /// Returns a number that no other pool has while this one exists.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl PartialEq for ReceivePool {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ReceivePool {}

/// A budget with a fixed limit.
#[derive(Debug)]
struct Limit {
    bytes: usize,
    charged_bytes: AtomicUsize,
    made: MadeData,
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
        self.charged_bytes.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, SeqCst);
        self.made.waiting.notify();
    }

    fn free_bytes(&self, is_reserve: bool) -> usize {
        self.most_bytes(is_reserve).saturating_sub(self.charged_bytes.load(SeqCst))
    }

    fn charge(&self, bytes: usize) {
        self.charged_bytes.fetch_add(bytes, SeqCst);
    }

    fn made(&self) -> &MadeData {
        &self.made
    }
}

/// Memory that one association has taken from its pool. Dropping the charge returns the memory.
#[derive(Debug, Default)]
pub struct ReceiveCharge {
    pool: Option<ReceivePool>,
    bytes: usize,
}

impl ReceiveCharge {
    /// Returns a charge of nothing. Without a pool, the charge permits any number of bytes.
    pub(crate) fn new(pool: Option<ReceivePool>) -> Self {
        ReceiveCharge { pool, bytes: 0 }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.pool.is_some()
    }

    /// Returns the number of bytes that the association may hold.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        if self.pool.is_some() { self.bytes } else { usize::MAX }
    }

    /// Returns the number of bytes that may arrive while `held_bytes` are held.
    #[inline]
    pub(crate) fn room_bytes(&self, held_bytes: usize) -> usize {
        let Some(pool) = &self.pool else { return usize::MAX };
        // All data has the overhead of at least one message.
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

    /// Takes memory until `held_bytes` may be held, and no more. Returns whether there was enough.
    pub(crate) fn grow_exactly_to(&mut self, held_bytes: usize) -> bool {
        let more = held_bytes.saturating_sub(self.bytes());
        more == 0 || self.take(more, false)
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

    /// Returns memory if much less is held than was taken, or nothing.
    #[inline]
    pub(crate) fn trim(&mut self, held_bytes: usize) {
        if self.bytes > 0 && (held_bytes == 0 || self.bytes >= held_bytes + 2 * POOL_STEP_BYTES) {
            let kept_bytes = if held_bytes == 0 { 0 } else { held_bytes + POOL_STEP_BYTES };
            self.shrink_to(kept_bytes);
        }
    }

    /// Returns the memory beyond `bytes` to the pool.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(pool) = &self.pool
            && self.bytes > bytes
        {
            pool.0.release(self.bytes - bytes);
            self.bytes = bytes;
        }
    }

    /// Returns memory of messages whose association has ended: the reader has taken `bytes`, and the overhead charged
    /// with them ([`Endpoint::consumed`](crate::Endpoint::consumed)). Returns whether no memory is charged any more.
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
    fn memory_read_after_the_end_returns_to_the_pool() {
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

    #[test]
    fn those_who_wait_are_told_once_and_those_who_are_gone_are_forgotten() {
        let pool = ReceivePool::with_limit(1000);
        let _received = pool.charge(1000).expect("it is empty");
        assert!(pool.take_made(5000), "the first one may exceed the limit");
        let told = Arc::new(AtomicUsize::new(0));
        let tell = Arc::clone(&told);
        let notify: Arc<Notify> = Arc::new(move || tell.store(tell.load(SeqCst) + 1, SeqCst));
        for _ in 0..100 {
            pool.when_released(Arc::downgrade(&notify));
            let gone: Arc<Notify> = Arc::new(|| panic!("it is gone"));
            pool.when_released(Arc::downgrade(&gone));
        }
        assert!(!pool.take_made(1));
        pool.release_made(5000);
        assert!(pool.take_made(1));
        pool.release_made(1);
        assert_eq!(told.load(SeqCst), 1);
    }
}
