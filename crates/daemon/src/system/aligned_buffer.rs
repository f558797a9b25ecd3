//! Memory for copies by the kernel, which begins at a cache line.
//!
//! AMD processors of the Zen 3 and Zen 4 kind copy at less than half their speed (`rep movsb`) where the destination lies up to 31
//! bytes behind the source within their pages. The kernel's data begins at a page or cache line, and a large allocation 16 bytes
//! behind a page: reading a record of 16 KB into one took 6.4 µs in place of 2.5.

/// Length of a cache line.
const ALIGNMENT: usize = 64;

/// A zeroed buffer of a fixed length.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    pub(crate) fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        AlignedBuffer { memory, start }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.memory.len() - ALIGNMENT + self.start;
        &mut self.memory[self.start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_cache_line_and_has_its_length() {
        for bytes in [1, 64, 100_000] {
            let mut buffer = AlignedBuffer::new(bytes);
            assert_eq!(buffer.bytes_mut().len(), bytes);
            assert_eq!(buffer.bytes_mut().as_ptr() as usize % ALIGNMENT, 0);
        }
    }
}
