use std::fmt;

use crate::chunk::{ChunkError, RawChunk};
use crate::framing;
use crate::parameter::{PARAMETER_HEADER_BYTES, ParameterError, Parameters, RawParameter};

/// Heartbeat Info: data of a HEARTBEAT that its HEARTBEAT ACK returns (RFC 9260 §3.3.5).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Type = 1            |            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                 Sender-Specific Heartbeat Info                /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HeartbeatInfo<'a> {
    /// It means something to its sender alone.
    pub info: &'a [u8],
}

impl<'a> HeartbeatInfo<'a> {
    /// The parameter type.
    pub const KIND: u16 = 1;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { info: raw.value })
    }

    /// Returns the information at the beginning of a HEARTBEAT or HEARTBEAT ACK.
    pub(crate) fn first_of(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        match Parameters::new(raw.value).next_raw() {
            Some(Ok(parameter)) if parameter.kind == Self::KIND => {
                Self::parse(&parameter).map_err(ChunkError::Parameter)
            }
            Some(Err(error)) => Err(ChunkError::Parameter(error)),
            _ => Err(ChunkError::MissingParameter { kind: raw.kind, parameter: Self::KIND }),
        }
    }

    /// Appends header and value. RFC 9260 §3.2: the padding of the last parameter is that of the chunk.
    pub(crate) fn write_last(&self, out: &mut Vec<u8>) {
        let end = out.len() + PARAMETER_HEADER_BYTES + self.info.len();
        self.write(out);
        out.truncate(end);
    }

    /// Appends header, value and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.info));
    }

    /// Returns the number of bytes that [`HeartbeatInfo::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.info.len())
    }
}

impl fmt::Display for HeartbeatInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "heartbeat info {} bytes", self.info.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let parameter = HeartbeatInfo { info: b"\x01\x02\x03" };
        assert_eq!(round_trip(parameter), [0, 1, 0, 7, 1, 2, 3, 0]);
        assert_eq!(parameter.to_string(), "heartbeat info 3 bytes");
    }
}
