//! Accounting for the memory of packets on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the records of a packet beside its content: its reference counts, and the headers of two allocations.
const PACKET_OVERHEAD_BYTES: usize =
    size_of::<Shared>() + 2 * size_of::<usize>() + 2 * ALLOCATION_HEADER_BYTES;
const ALLOCATION_HEADER_BYTES: usize = 16;
/// Bytes that each reference to a packet stands for: a place on a line. The line checks that its records are no larger.
pub(crate) const REFERENCE_BYTES: usize = 512;

/// Memory of all packets that were made with it and are on the way. Clones share one budget.
///
/// A packet counts with its content and its records until its last segment has arrived: a flood of empty datagrams costs memory,
/// too.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    bytes_max: usize,
    used_bytes: AtomicUsize,
}

impl Default for MemoryBudget {
    /// Makes a budget without a limit.
    fn default() -> Self {
        MemoryBudget::new(usize::MAX)
    }
}

impl MemoryBudget {
    /// Makes a budget of `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        MemoryBudget(Arc::new(Budget { bytes_max, used_bytes: AtomicUsize::new(0) }))
    }

    /// Returns the number of bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether more is in use than allowed.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.used_bytes() > self.0.bytes_max
    }

    /// Copies the bytes, which are in use until the last reference is dropped.
    pub(crate) fn copy(&self, bytes: &[u8]) -> PacketBytes {
        self.take(PACKET_OVERHEAD_BYTES + bytes.len() + REFERENCE_BYTES);
        PacketBytes(Arc::new(Shared { bytes: bytes.into(), budget: self.clone() }))
    }

    fn take(&self, bytes: usize) {
        self.0.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.0.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Reference to the bytes of a packet, which count against a budget, as each reference does.
#[derive(Debug)]
pub(crate) struct PacketBytes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes: Box<[u8]>,
    budget: MemoryBudget,
}

impl Clone for PacketBytes {
    fn clone(&self) -> Self {
        self.0.budget.take(REFERENCE_BYTES);
        PacketBytes(Arc::clone(&self.0))
    }
}

impl std::ops::Deref for PacketBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Drop for PacketBytes {
    fn drop(&mut self) {
        self.0.budget.give_back(REFERENCE_BYTES);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.budget.give_back(PACKET_OVERHEAD_BYTES + self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_counts_with_its_records_until_its_last_reference_is_dropped() {
        let budget = MemoryBudget::new(2 * (PACKET_OVERHEAD_BYTES + REFERENCE_BYTES) + 3);
        let first = budget.copy(&[1, 2, 3]);
        let second = budget.copy(&[]);
        assert!(!budget.is_exceeded());
        let clone = first.clone();
        assert_eq!(&*clone, &[1, 2, 3]);
        assert!(budget.is_exceeded());
        drop(first);
        assert!(!budget.is_exceeded());
        assert_eq!(budget.used_bytes(), 2 * (PACKET_OVERHEAD_BYTES + REFERENCE_BYTES) + 3);
        drop((clone, second));
        assert_eq!(budget.used_bytes(), 0);
    }
}
