use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// Unrecognized Parameter: a parameter of the INIT that the responder did not know (RFC 9260 §3.3.3.1.2).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Type = 8            |            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                     Unrecognized Parameter                    /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnrecognizedParameter<'a> {
    /// The parameter as it came: type, length and value.
    pub parameter: &'a [u8],
}

impl<'a> UnrecognizedParameter<'a> {
    /// The parameter type.
    pub const KIND: u16 = 8;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { parameter: raw.value })
    }

    /// Appends header, value and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.parameter));
    }

    /// Returns the number of bytes that [`UnrecognizedParameter::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.parameter.len())
    }
}

impl fmt::Display for UnrecognizedParameter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unrecognized parameter {} bytes", self.parameter.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let parameter = UnrecognizedParameter { parameter: b"\x01\x02\x03" };
        assert_eq!(round_trip(parameter), [0, 8, 0, 7, 1, 2, 3, 0]);
        assert_eq!(parameter.to_string(), "unrecognized parameter 3 bytes");
    }
}
