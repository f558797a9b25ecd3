//! Little-endian numbers, read from and written to bytes.

use crate::assoc_id::AssocId;

/// Takes from the front of a slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn assoc_id(&mut self) -> Option<AssocId> {
        self.u32().map(AssocId::new)
    }

    /// Ends the parse: bytes after a complete frame are an error.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Fills a buffer from its front. A value that does not fit makes the whole fail.
pub(crate) struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
    overflown: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Writer { buffer, at: 0, overflown: false }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        match self.buffer.get_mut(self.at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            None => self.overflown = true,
        }
        self
    }

    pub(crate) fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes(&[number])
    }

    pub(crate) fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn i32(&mut self, number: i32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn assoc_id(&mut self, id: AssocId) -> &mut Self {
        self.u32(id.get())
    }

    /// Returns the number of bytes written.
    pub(crate) fn finish(&self) -> Option<usize> {
        (!self.overflown).then_some(self.at)
    }
}
