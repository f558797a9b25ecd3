//! A table by stream.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use streams::StreamId;

/// A table by stream. No program chooses the identifiers of streams, so their hash need not resist attacks.
pub(super) type ByStream<V> = HashMap<StreamId, V, BuildHasherDefault<IdentifierHasher>>;

/// Hashes the numbers of an identifier.
#[derive(Default)]
pub(super) struct IdentifierHasher(u64);

impl Hasher for IdentifierHasher {
    #[inline]
    fn write_u32(&mut self, number: u32) {
        // The golden ratio spreads small numbers over all bits (Knuth, The Art of Computer Programming, §6.4).
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
