use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;
use crate::parameter::Parameters;

/// Unrecognized Parameters: the peer does not know these parameters and was asked to say so (RFC 9260 §3.3.10.8).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 8         |          Cause Length         |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                    Unrecognized Parameters                    /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnrecognizedParameters<'a> {
    /// The parameters as they came.
    pub parameters: Parameters<'a>,
}

impl<'a> UnrecognizedParameters<'a> {
    /// The cause code.
    pub const KIND: u16 = 8;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'a>) -> Result<Self, CauseError> {
        Ok(Self { parameters: Parameters::new(raw.value) })
    }

    /// Appends header, information and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(self.parameters.as_bytes())
        });
    }

    /// Returns the number of bytes that [`UnrecognizedParameters::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.parameters.as_bytes().len())
    }
}

impl fmt::Display for UnrecognizedParameters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unrecognized parameters{}", self.parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = UnrecognizedParameters { parameters: Parameters::new(b"\xc0\x01\0\x04") };
        assert_eq!(cause.to_string(), "unrecognized parameters [parameter type=49153 value_bytes=0]");
        assert_eq!(round_trip(cause), *b"\0\x08\0\x08\xc0\x01\0\x04");
    }
}
