use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// Adaptation Layer Indication: describes the layer above SCTP at the sender of an INIT or INIT ACK (RFC 5061 §4.2.6).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |         Type = 0xC006         |          Length = 8           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                  Adaptation Code point                        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AdaptationLayer {
    /// The code point, whose meaning the layer above defines.
    pub code_point: u32,
}

impl AdaptationLayer {
    /// The parameter type.
    pub const KIND: u16 = 0xc006;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'_>) -> Result<Self, ParameterError> {
        Ok(Self { code_point: u32::from_be_bytes(raw.value_array()?) })
    }

    /// Appends header and value.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&self.code_point.to_be_bytes());
        });
    }

    /// Returns the number of bytes that [`AdaptationLayer::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(4)
    }
}

impl fmt::Display for AdaptationLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "adaptation layer {}", self.code_point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let parameter = AdaptationLayer { code_point: 0x0102_0304 };
        assert_eq!(round_trip(parameter), [0xc0, 6, 0, 8, 1, 2, 3, 4]);
        assert_eq!(parameter.to_string(), "adaptation layer 16909060");
    }
}
