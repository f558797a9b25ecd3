use std::fmt;

use crate::chunk::{ChunkError, RawChunk};
use crate::framing::{self, LENGTH_MAX, TLV_HEADER_BYTES};

/// PAD: pads a packet (RFC 4820 §3). Receivers that do not support it ignore it.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |  Type = 0x84  |   Flags=0     |             Length            |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /                         Padding Data                          /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pad {
    /// Number of bytes of padding behind the header.
    pub padding_bytes: u16,
}

impl Pad {
    /// The chunk type.
    pub const KIND: u8 = 0x84;
    /// The most padding data that one chunk can carry.
    pub const PADDING_BYTES_MAX: u16 = (LENGTH_MAX - TLV_HEADER_BYTES) as u16;

    /// Returns the chunk that takes `bytes` bytes of a packet altogether. There is none under 4 bytes, over 65,532 or of a size
    /// that is not a multiple of 4.
    pub fn filling(bytes: usize) -> Option<Self> {
        let padding_bytes = bytes.checked_sub(TLV_HEADER_BYTES)?;
        if !bytes.is_multiple_of(4) || bytes > LENGTH_MAX {
            return None;
        }
        u16::try_from(padding_bytes).ok().map(|padding_bytes| Self { padding_bytes })
    }

    /// Reads the chunk. The caller has checked the kind. Accepts any padding bytes.
    pub fn parse(raw: &RawChunk<'_>) -> Result<Self, ChunkError> {
        // The length field bounds the value far below what could overflow.
        let padding_bytes = u16::try_from(raw.value.len()).unwrap_or(Self::PADDING_BYTES_MAX);
        Ok(Self { padding_bytes })
    }

    /// Appends the chunk, padded with zeros.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [Self::KIND, 0], |out| {
            out.resize(out.len() + usize::from(self.padding_bytes), 0)
        });
    }

    /// Returns the number of bytes that [`Pad::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(usize::from(self.padding_bytes))
    }
}

impl fmt::Display for Pad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PAD padding_bytes={}", self.padding_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::round_trip;

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(Pad { padding_bytes: 4 }), [0x84, 0, 0, 8, 0, 0, 0, 0]);
        assert_eq!(round_trip(Pad { padding_bytes: 1 }), [0x84, 0, 0, 5, 0, 0, 0, 0]);
        assert_eq!(Pad { padding_bytes: 4 }.to_string(), "PAD padding_bytes=4");
        round_trip(Pad { padding_bytes: Pad::PADDING_BYTES_MAX });
    }

    #[test]
    fn fills_exactly_what_is_asked_for() {
        for bytes in [4, 8, 1000, 65532] {
            assert_eq!(Pad::filling(bytes).unwrap().wire_bytes(), bytes);
        }
        for bytes in [0, 3, 5, 65533, 65536, usize::MAX] {
            assert_eq!(Pad::filling(bytes), None);
        }
    }
}
