use std::fmt;

use crate::chunk::{ChunkError, RawChunk};
use crate::framing;
use crate::parameter::HeartbeatInfo;

/// HEARTBEAT: asks whether a path is alive (RFC 9260 §3.3.5).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 4    |  Chunk Flags  |       Heartbeat Length        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /          Heartbeat Information TLV (Variable-Length)          /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Heartbeat<'a> {
    /// Opaque data that the receiver echoes; its sender alone understands it.
    pub info: &'a [u8],
}

impl<'a> Heartbeat<'a> {
    /// The chunk type.
    pub const KIND: u8 = 4;

    /// Reads the chunk. The caller has checked the kind. Ignores parameters after the heartbeat information.
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        let HeartbeatInfo { info } = HeartbeatInfo::first_of(raw)?;
        Ok(Self { info })
    }

    /// Appends header, information and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [Self::KIND, 0], |out| HeartbeatInfo { info: self.info }.write_last(out));
    }

    /// Returns the number of bytes that [`Heartbeat::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(HeartbeatInfo { info: self.info }.wire_bytes())
    }
}

impl fmt::Display for Heartbeat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HEARTBEAT info_bytes={}", self.info.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    #[test]
    fn round_trips() {
        let bytes = round_trip(Heartbeat { info: b"nonce" });
        assert_eq!(bytes, *b"\x04\0\0\x0d\0\x01\0\x09nonce\0\0\0");
        assert_eq!(Heartbeat { info: b"nonce" }.to_string(), "HEARTBEAT info_bytes=5");
    }

    #[test]
    fn the_information_must_be_there() {
        let error = ChunkError::MissingParameter { kind: 4, parameter: 1 };
        assert_eq!(Heartbeat::parse(&only(&[4, 0, 0, 4])), Err(error));
        assert_eq!(Heartbeat::parse(&only(&[4, 0, 0, 8, 0, 2, 0, 4])), Err(error));
        assert!(matches!(Heartbeat::parse(&only(&[4, 0, 0, 8, 0, 1, 0, 9])), Err(ChunkError::Parameter(_))));
    }
}
