//! Memory for messages to send that several associations share.
//!
//! The send buffer bounds one association, and grows with its rate. A pool bounds the buffers of all associations that share
//! it, so that a few peers which take nothing more do not keep the memory of all others: an association may fill its buffer
//! only as far as the pool has room besides the reserve, and up to [`SEND_LITTLE_BYTES`] as long as it has any.
//!
//! Short messages are copied into blocks of the association, and the pool is charged for these blocks. Other messages wait as
//! references to their owners' memory. The pool is charged for their length until that memory is released, unless the owners
//! charge it themselves ([`SendBudget::owners_charge`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

/// Size up to which an association may fill its send buffer although only the reserve of the pool is left.
pub const SEND_LITTLE_BYTES: usize = 64 * 1024;
/// Divisor of the pool's size: this part is the reserve, for associations that hold little.
pub const SEND_RESERVED_PART: usize = 4;
/// Cost of a message of [`SendPool::copy`] in addition to its bytes, wherever it waits.
const COPIED_COST_BYTES: usize = 256;

/// The memory behind a [`SendPool`].
pub trait SendBudget: fmt::Debug + Send + Sync {
    /// Charges bytes that are in use already, whatever the limit.
    fn charge(&self, bytes: usize);
    /// Returns charged memory.
    fn release(&self, bytes: usize);
    /// Returns the number of bytes that are free besides the reserve ([`SEND_RESERVED_PART`]).
    fn free_bytes(&self) -> usize;
    /// Returns whether the owners of messages charge their memory to this budget, so that associations charge only copies.
    fn owners_charge(&self) -> bool {
        false
    }
}

/// Memory for messages to send that several associations share, whatever their endpoint. Copies stand for the same memory.
///
/// ```
/// # use sctp::SendPool;
/// let pool = SendPool::with_limit(64 << 20);
/// assert_eq!(pool.clone(), pool, "the copy stands for the same memory");
/// assert_ne!(pool, SendPool::with_limit(64 << 20));
/// ```
#[derive(Clone, Debug)]
pub struct SendPool(Arc<dyn SendBudget>);

impl SendPool {
    /// Returns a pool of this many bytes.
    pub fn with_limit(bytes: usize) -> Self {
        SendPool::new(Arc::new(Limit { bytes, charged_bytes: AtomicUsize::new(0) }))
    }

    /// Returns a pool whose memory `budget` counts.
    pub fn new(budget: Arc<dyn SendBudget>) -> Self {
        SendPool(budget)
    }

    /// Returns the size up to which an association may fill its send buffer now.
    #[inline]
    pub(crate) fn buffer_bytes_max(&self) -> usize {
        self.0.free_bytes().max(SEND_LITTLE_BYTES)
    }

    /// Charges a block.
    pub(crate) fn charge(&self, bytes: usize) -> BlockCharge {
        BlockCharge(Arc::new(self.charge_to_drop(bytes)))
    }

    /// Copies a message that was received into memory of the pool, where it waits to be sent on. The charge, with
    /// `COPIED_COST_BYTES`, ends with the last reference to the copy. If owners do not charge their messages, the send buffer
    /// charges the message a second time.
    pub fn copy(&self, message: &[u8]) -> Bytes {
        let charge = self.charge_to_drop(message.len() + COPIED_COST_BYTES);
        Bytes::from_owner(Copied { message: message.into(), _charge: charge })
    }

    /// Charges bytes that take the place of others, whatever the limit. The send buffer charges them a second time, as those of
    /// [`SendPool::copy`].
    pub fn charge_bytes(&self, bytes: usize) {
        self.0.charge(bytes);
    }

    /// Returns memory of [`SendPool::charge_bytes`].
    pub fn release_bytes(&self, bytes: usize) {
        self.0.release(bytes);
    }

    fn charge_to_drop(&self, bytes: usize) -> Charge {
        self.0.charge(bytes);
        Charge { pool: self.clone(), bytes }
    }
}

impl PartialEq for SendPool {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SendPool {}

/// The charge for a block, which ends with its last copy: each part of the block has one.
#[derive(Clone, Debug)]
pub(crate) struct BlockCharge(#[expect(dead_code, reason = "dropping it returns the memory")] Arc<Charge>);

/// The charge for messages that an association keeps as references to their owners' memory. Dropping the charge returns it.
#[derive(Debug, Default)]
pub(crate) struct OwnedCharge {
    pool: Option<SendPool>,
    bytes: usize,
}

impl OwnedCharge {
    /// Returns a charge of nothing.
    pub(crate) fn new(pool: Option<SendPool>) -> Self {
        OwnedCharge { pool, bytes: 0 }
    }

    /// Returns whether the owners of messages charge them.
    #[inline]
    pub(crate) fn owners_charge(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.0.owners_charge())
    }

    /// Charges bytes that are kept from now on.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize) {
        if let Some(pool) = self.pool.as_ref().filter(|_| bytes > 0) {
            pool.0.charge(bytes);
            self.bytes += bytes;
        }
    }

    /// Returns the charge for bytes that are released.
    #[inline]
    pub(crate) fn release(&mut self, bytes: usize) {
        if let Some(pool) = self.pool.as_ref().filter(|_| bytes > 0) {
            pool.0.release(bytes);
            self.bytes -= bytes;
        }
    }

    /// Splits off the charge for these bytes.
    pub(crate) fn split_off(&mut self, bytes: usize) -> OwnedCharge {
        if self.pool.is_none() {
            return OwnedCharge::default();
        }
        self.bytes -= bytes;
        OwnedCharge { pool: self.pool.clone(), bytes }
    }

    /// Compares the charge with a recount; for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn assert_bytes(&self, bytes: usize) {
        assert!(self.pool.is_none() || self.bytes == bytes, "{} bytes are charged for {bytes}", self.bytes);
    }
}

impl Drop for OwnedCharge {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

/// A message in memory of a pool.
struct Copied {
    message: Box<[u8]>,
    _charge: Charge,
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

#[derive(Debug)]
struct Charge {
    pool: SendPool,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.pool.0.release(self.bytes);
    }
}

/// A budget with a fixed limit.
#[derive(Debug)]
struct Limit {
    bytes: usize,
    charged_bytes: AtomicUsize,
}

impl SendBudget for Limit {
    fn charge(&self, bytes: usize) {
        self.charged_bytes.fetch_add(bytes, Relaxed);
    }

    fn release(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, Relaxed);
    }

    fn free_bytes(&self) -> usize {
        (self.bytes - self.bytes / SEND_RESERVED_PART).saturating_sub(self.charged_bytes.load(Relaxed))
    }
}
