//! Reads and writes the words of a primitive and the data that follows them.

use super::{DecodeError, address};
use crate::{Addresses, PrimitiveCode};

const WORD_BYTES: usize = 4;

/// Writes one primitive: its words, then the data that they point to.
pub(super) struct Writer {
    words: Vec<u32>,
    /// The data that follows the words; each entry has the position of its length and offset.
    behind: Vec<(usize, Vec<u8>)>,
}

impl Writer {
    pub(super) fn new(code: PrimitiveCode) -> Self {
        Self { words: vec![code as u32], behind: Vec::new() }
    }

    pub(super) fn word(&mut self, word: u32) {
        self.words.push(word);
    }

    pub(super) fn signed(&mut self, word: i32) {
        self.words.push(word as u32);
    }

    /// Writes a length and offset, and the addresses that they locate.
    pub(super) fn addresses(&mut self, addresses: &Addresses) {
        self.options(address::encode(addresses));
    }

    /// Writes a length and offset, and the bytes that they locate.
    pub(super) fn options(&mut self, bytes: Vec<u8>) {
        self.behind.push((self.words.len(), bytes));
        self.words.extend([0, 0]);
    }

    /// Writes words that the interface does not define. They are omitted if all are zero.
    pub(super) fn appended(&mut self, words: &[u32]) {
        if words.iter().any(|word| *word != 0) {
            self.words.extend(words);
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let mut offset_bytes = self.words.len() * WORD_BYTES;
        for (at, bytes) in &self.behind {
            if !bytes.is_empty() {
                self.words[*at] = size(bytes.len());
                self.words[at + 1] = size(offset_bytes);
                offset_bytes += bytes.len().next_multiple_of(WORD_BYTES);
            }
        }
        let mut out: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for (_, bytes) in &self.behind {
            out.extend(bytes);
            out.resize(out.len().next_multiple_of(WORD_BYTES), 0);
        }
        out
    }
}

/// Converts a size within one primitive, which always fits a word.
fn size(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reads one primitive.
pub(super) struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(whole: &'a [u8]) -> Self {
        Self { whole, at: 0 }
    }

    pub(super) fn word(&mut self) -> Result<u32, DecodeError> {
        let bytes = self.whole.get(self.at..).and_then(|rest| rest.first_chunk());
        self.at += WORD_BYTES;
        bytes.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(DecodeError::Truncated)
    }

    pub(super) fn signed(&mut self) -> Result<i32, DecodeError> {
        self.word().map(|word| word as i32)
    }

    /// Reads a length and offset, and the addresses that they locate.
    pub(super) fn addresses(&mut self) -> Result<Box<Addresses>, DecodeError> {
        address::decode(self.options()?).map(Box::new)
    }

    /// Reads a length and offset, and returns the bytes that they locate.
    pub(super) fn options(&mut self) -> Result<&'a [u8], DecodeError> {
        let (len, offset) = (self.word()? as usize, self.word()? as usize);
        if len == 0 {
            return Ok(&[]);
        }
        let end = offset.checked_add(len).ok_or(DecodeError::OutOfBounds)?;
        self.whole.get(offset..end).ok_or(DecodeError::OutOfBounds)
    }

    /// Reads words that the interface does not define; they are zero if all are omitted.
    pub(super) fn appended<const N: usize>(&mut self) -> Result<[u32; N], DecodeError> {
        let mut words = [0; N];
        if self.at < self.whole.len() {
            for word in &mut words {
                *word = self.word()?;
            }
        }
        Ok(words)
    }
}
