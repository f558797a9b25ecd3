use std::fmt;

use crate::chunk::{ChunkError, RawChunk};
use crate::framing;
use crate::{UnknownAction, unknown_chunk_action};

/// A chunk of a kind that this crate does not know (RFC 9260 §3.2).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |  Chunk Type   |  Chunk Flags  |         Chunk Length          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /                          Chunk Value                          /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unknown<'a> {
    /// The chunk type.
    pub kind: u8,
    /// The chunk flags.
    pub flags: u8,
    /// The value, without padding.
    pub value: &'a [u8],
}

impl<'a> Unknown<'a> {
    /// Takes the chunk as it is.
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        Ok(Self { kind: raw.kind, flags: raw.flags, value: raw.value })
    }

    /// Returns the treatment that the chunk's sender asks for.
    pub fn action(&self) -> UnknownAction {
        unknown_chunk_action(self.kind)
    }

    /// Appends header, value and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [self.kind, self.flags], |out| out.extend_from_slice(self.value));
    }

    /// Returns the number of bytes that [`Unknown::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.value.len())
    }
}

impl fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk type={} flags={:#04x} value_bytes={}", self.kind, self.flags, self.value.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::round_trip;

    #[test]
    fn round_trips() {
        let unknown = Unknown { kind: 0xfe, flags: 0x81, value: b"abc" };
        assert_eq!(round_trip(unknown), *b"\xfe\x81\0\x07abc\0");
        assert_eq!(unknown.to_string(), "chunk type=254 flags=0x81 value_bytes=3");
        assert_eq!(unknown.action(), UnknownAction { stop: false, report: true });
    }
}
