//! The buffer that a receiver of any transport reads into.

use std::ops::{Deref, DerefMut};

/// Length of a cache line.
const ALIGNMENT: usize = 64;

/// A zeroed buffer that begins at a cache line.
///
/// Some processors copy from the kernel at less than half their speed to an address 16 bytes behind a page, where large
/// allocations begin. Programs meet both cases; here every transport has the fast one.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl ReadBuffer {
    /// Returns a buffer of this length.
    pub(crate) fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start }
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.memory.len() - ALIGNMENT + self.start]
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let end = self.memory.len() - ALIGNMENT + self.start;
        &mut self.memory[self.start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_cache_line_and_has_its_length() {
        for bytes in [0, 1, 64, 131_072] {
            let mut buffer = ReadBuffer::new(bytes);
            buffer.fill(7);
            assert_eq!((buffer.len(), buffer.as_ptr() as usize % ALIGNMENT), (bytes, 0));
        }
    }
}
