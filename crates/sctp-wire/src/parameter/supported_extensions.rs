use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// Supported Extensions: chunk types beyond those of RFC 9260 that the sender of an INIT or INIT ACK understands
/// (RFC 5061 §4.2.7).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |     Parameter Type = 0x8008   |      Parameter Length         |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// | CHUNK TYPE 1  |  CHUNK TYPE 2 |  CHUNK TYPE 3 |  CHUNK TYPE 4 |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                             ....                              |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SupportedExtensions<'a> {
    /// The chunk types.
    pub chunk_kinds: &'a [u8],
}

impl<'a> SupportedExtensions<'a> {
    /// The parameter type.
    pub const KIND: u16 = 0x8008;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { chunk_kinds: raw.value })
    }

    /// Appends header, chunk types and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.chunk_kinds));
    }

    /// Returns the number of bytes that [`SupportedExtensions::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.chunk_kinds.len())
    }
}

impl fmt::Display for SupportedExtensions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("supported extensions")?;
        self.chunk_kinds.iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let extensions = SupportedExtensions { chunk_kinds: &[0x10, 0xc1] };
        assert_eq!(round_trip(extensions), [0x80, 8, 0, 6, 0x10, 0xc1, 0, 0]);
        assert_eq!(extensions.to_string(), "supported extensions 16 193");
    }
}
