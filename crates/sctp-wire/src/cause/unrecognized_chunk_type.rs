use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;

/// Unrecognized Chunk Type: the peer does not know this kind of chunk and was asked to say so (RFC 9260 §3.3.10.6).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 6         |          Cause Length         |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                       Unrecognized Chunk                      /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnrecognizedChunkType<'a> {
    /// The chunk as it came: type, flags, length and value.
    pub chunk: &'a [u8],
}

impl<'a> UnrecognizedChunkType<'a> {
    /// The cause code.
    pub const KIND: u16 = 6;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'a>) -> Result<Self, CauseError> {
        Ok(Self { chunk: raw.value })
    }

    /// Appends header, information and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.chunk));
    }

    /// Returns the number of bytes that [`UnrecognizedChunkType::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.chunk.len())
    }
}

impl fmt::Display for UnrecognizedChunkType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unrecognized chunk {} bytes", self.chunk.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = UnrecognizedChunkType { chunk: b"\xc5\0\0\x05a" };
        assert_eq!(cause.to_string(), "unrecognized chunk 5 bytes");
        assert_eq!(round_trip(cause), *b"\0\x06\0\x09\xc5\0\0\x05a\0\0\0");
    }
}
