use std::fmt;

use crate::Tsn;
use crate::chunk::{ChunkError, RawChunk};
use crate::framing::{self, Reader};

const FIXED_BYTES: usize = 4;

/// SHUTDOWN: asks for a graceful end (RFC 9260 §3.3.8).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 7    |  Chunk Flags  |          Length = 8           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                      Cumulative TSN Ack                       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shutdown {
    /// Every DATA chunk up to this one has arrived.
    pub cum_tsn: Tsn,
}

impl Shutdown {
    /// The chunk type.
    pub const KIND: u8 = 7;

    /// Reads the chunk. The caller has checked the kind.
    pub fn parse(raw: &RawChunk<'_>) -> Result<Self, ChunkError> {
        let cum_tsn = Reader(raw.value).u32().ok_or(ChunkError::too_short(raw, FIXED_BYTES))?;
        Ok(Self { cum_tsn: Tsn(cum_tsn) })
    }

    /// Appends the chunk.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [Self::KIND, 0], |out| out.extend_from_slice(&self.cum_tsn.0.to_be_bytes()));
    }

    /// Returns the number of bytes that [`Shutdown::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(FIXED_BYTES)
    }
}

impl fmt::Display for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHUTDOWN cum_tsn={}", self.cum_tsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    #[test]
    fn round_trips() {
        let shutdown = Shutdown { cum_tsn: Tsn(0x0102_0304) };
        assert_eq!(round_trip(shutdown), [7, 0, 0, 8, 1, 2, 3, 4]);
        assert_eq!(shutdown.to_string(), "SHUTDOWN cum_tsn=16909060");
    }

    #[test]
    fn the_tsn_must_be_there() {
        let error = ChunkError::ValueTooShort { kind: 7, bytes: 0, needed: 4 };
        assert_eq!(Shutdown::parse(&only(&[7, 0, 0, 4])), Err(error));
    }
}
