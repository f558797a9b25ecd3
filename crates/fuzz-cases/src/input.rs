//! The input of a case, read as numbers and choices.

use std::collections::VecDeque;

use arbitrary::Unstructured;

/// Settings take this much of an input, so that one more does not change what the rest of it means. The last byte is
/// switches.
const SETTINGS_BYTES: usize = 16;

/// Reads the bytes of an input from the first to the last, and then zeros.
pub(crate) struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Input(Unstructured::new(bytes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub(crate) fn short(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Reads the bytes that choose the settings.
    pub(crate) fn settings(&mut self) -> [u8; SETTINGS_BYTES] {
        self.0.arbitrary().unwrap_or_default()
    }

    /// Reads a number from a byte, below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    /// Reads a length from a byte: the small ones each, then ever wider apart up to `limit`.
    pub(crate) fn length(&mut self, limit: usize) -> usize {
        let byte = usize::from(self.byte());
        if byte < 64 { byte } else { ((byte - 63) * limit / 192).max(64) }.min(limit)
    }

    /// Reads fewer than `bound` bytes as they are.
    pub(crate) fn bytes(&mut self, bound: usize) -> Vec<u8> {
        let length = self.below(bound).min(self.0.len());
        self.0.bytes(length).map_or_else(|_| Vec::new(), <[u8]>::to_vec)
    }

    /// Chooses one of several, counted from the last.
    pub(crate) fn choose<'b, T>(&mut self, from: &'b VecDeque<T>) -> Option<&'b T> {
        let back = self.below(256).checked_rem(from.len())?;
        from.iter().nth_back(back)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
