//! Accounting for the memory of packets on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes of all packets that were made with it and are on the way. Clones share one count.
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<AtomicUsize>);

impl Held {
    /// Returns the number of bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Keeps a copy of the bytes, which counts until the last clone of it is dropped.
    pub(crate) fn keep(&self, bytes: &[u8]) -> HeldBytes {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        HeldBytes(Arc::new(Inner { bytes: bytes.into(), held: self.clone() }))
    }
}

/// Bytes that are counted.
#[derive(Clone, Debug)]
pub(crate) struct HeldBytes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: Box<[u8]>,
    held: Held,
}

impl std::ops::Deref for HeldBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_the_last_clone_is_gone() {
        let held = Held::default();
        let first = held.keep(&[1, 2, 3]);
        let clone = first.clone();
        let second = held.keep(&[4]);
        assert_eq!((held.bytes(), &*clone), (4, &[1, 2, 3][..]));
        drop(first);
        assert_eq!(held.bytes(), 4);
        drop((clone, second));
        assert_eq!(held.bytes(), 0);
    }
}
