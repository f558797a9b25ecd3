use std::fmt;

use crate::chunk::{ChunkError, RawChunk};
use crate::framing;

use super::abort::REFLECTED;

/// SHUTDOWN COMPLETE: acknowledges a SHUTDOWN ACK; the association is gone (RFC 9260 §3.3.13).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 14   |  Reserved   |T|          Length = 4           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShutdownComplete {
    /// T: the verification tag is the one of the packet that this answers, because the sender knows no better.
    pub reflected_tag: bool,
}

impl ShutdownComplete {
    /// The chunk type.
    pub const KIND: u8 = 14;

    /// Reads the chunk. The caller has checked the kind.
    pub fn parse(raw: &RawChunk<'_>) -> Result<Self, ChunkError> {
        Ok(Self { reflected_tag: raw.flags & REFLECTED != 0 })
    }

    /// Appends the chunk.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [Self::KIND, if self.reflected_tag { REFLECTED } else { 0 }], |_| ());
    }

    /// Returns the number of bytes that [`ShutdownComplete::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(0)
    }
}

impl fmt::Display for ShutdownComplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHUTDOWN COMPLETE{}", if self.reflected_tag { " T" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(ShutdownComplete { reflected_tag: false }), [14, 0, 0, 4]);
        assert_eq!(round_trip(ShutdownComplete { reflected_tag: true }), [14, 1, 0, 4]);
        assert_eq!(ShutdownComplete { reflected_tag: true }.to_string(), "SHUTDOWN COMPLETE T");
    }

    #[test]
    fn reserved_flags_are_ignored() {
        assert!(!ShutdownComplete::parse(&only(&[14, 0xfe, 0, 4])).unwrap().reflected_tag);
    }
}
