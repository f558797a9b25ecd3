use std::fmt;

use crate::Tsn;
use crate::chunk::{ChunkError, RawChunk};
use crate::framing::{self, Reader};

const FIXED_BYTES: usize = 4;

/// CWR: the sender of data has heard of the marks and slowed down (draft-stewart-tsvwg-sctpecn §4.3).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 13   |  Flags        |    Chunk Length = 8           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                      Lowest TSN Number                        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cwr {
    /// The TSN of the ECNE that it answers.
    pub lowest_tsn: Tsn,
}

impl Cwr {
    /// The chunk type.
    pub const KIND: u8 = 13;

    /// Reads the chunk. The caller has checked the kind.
    pub fn parse(raw: &RawChunk<'_>) -> Result<Self, ChunkError> {
        let lowest_tsn = Reader(raw.value).u32().ok_or(ChunkError::too_short(raw, FIXED_BYTES))?;
        Ok(Self { lowest_tsn: Tsn(lowest_tsn) })
    }

    /// Appends the chunk.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [Self::KIND, 0], |out| {
            out.extend_from_slice(&self.lowest_tsn.0.to_be_bytes());
        });
    }

    /// Returns the number of bytes that [`Cwr::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(FIXED_BYTES)
    }
}

impl fmt::Display for Cwr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CWR lowest_tsn={}", self.lowest_tsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    #[test]
    fn round_trips() {
        let cwr = Cwr { lowest_tsn: Tsn(0x0102_0304) };
        assert_eq!(round_trip(cwr), [13, 0, 0, 8, 1, 2, 3, 4]);
        assert_eq!(cwr.to_string(), "CWR lowest_tsn=16909060");
    }

    #[test]
    fn the_tsn_must_be_there() {
        let error = ChunkError::ValueTooShort { kind: 13, bytes: 0, needed: 4 };
        assert_eq!(Cwr::parse(&only(&[13, 0, 0, 4])), Err(error));
    }
}
