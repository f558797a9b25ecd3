use std::fmt;

use crate::Tsn;
use crate::chunk::{ChunkError, RawChunk};
use crate::framing::{self, Reader};

const FIXED_BYTES: usize = 4;

/// ECNE: a router has marked packets because it is congested (draft-stewart-tsvwg-sctpecn §4.2).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 12   | Flags = 0     |    Chunk Length = 12          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                      Lowest TSN Number                        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |          Number of CE Marked Packets Seen since CWR           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EcnEcho {
    /// The lowest TSN in the first marked packet.
    pub lowest_tsn: Tsn,
    /// Packets with a mark since the last CWR. Peers that follow RFC 2960 do not count, and one is taken.
    pub marked_packets: u32,
}

impl EcnEcho {
    /// The chunk type.
    pub const KIND: u8 = 12;

    /// Reads the chunk. The caller has checked the kind.
    pub fn parse(raw: &RawChunk<'_>) -> Result<Self, ChunkError> {
        let mut reader = Reader(raw.value);
        let lowest_tsn = reader.u32().ok_or(ChunkError::too_short(raw, FIXED_BYTES))?;
        Ok(Self { lowest_tsn: Tsn(lowest_tsn), marked_packets: reader.u32().unwrap_or(1) })
    }

    /// Appends the chunk.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [Self::KIND, 0], |out| {
            out.extend_from_slice(&self.lowest_tsn.0.to_be_bytes());
            out.extend_from_slice(&self.marked_packets.to_be_bytes());
        });
    }

    /// Returns the number of bytes that [`EcnEcho::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(2 * FIXED_BYTES)
    }
}

impl fmt::Display for EcnEcho {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ECNE lowest_tsn={} marked_packets={}", self.lowest_tsn, self.marked_packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    #[test]
    fn round_trips() {
        let echo = EcnEcho { lowest_tsn: Tsn(0x0102_0304), marked_packets: 5 };
        assert_eq!(round_trip(echo), [12, 0, 0, 12, 1, 2, 3, 4, 0, 0, 0, 5]);
        assert_eq!(echo.to_string(), "ECNE lowest_tsn=16909060 marked_packets=5");
    }

    #[test]
    fn the_short_form_of_rfc_2960_counts_one() {
        let echo = EcnEcho { lowest_tsn: Tsn(7), marked_packets: 1 };
        assert_eq!(EcnEcho::parse(&only(&[12, 0, 0, 8, 0, 0, 0, 7])), Ok(echo));
    }

    #[test]
    fn the_tsn_must_be_there() {
        let error = ChunkError::ValueTooShort { kind: 12, bytes: 0, needed: 4 };
        assert_eq!(EcnEcho::parse(&only(&[12, 0, 0, 4])), Err(error));
    }
}
