use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;

/// Protocol Violation: the peer broke a rule that no other cause names (RFC 9260 §3.3.10.13).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 13        |          Cause Length         |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                     Additional Information                    /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProtocolViolation<'a> {
    /// Additional information, often text.
    pub information: &'a [u8],
}

impl<'a> ProtocolViolation<'a> {
    /// The cause code.
    pub const KIND: u16 = 13;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'a>) -> Result<Self, CauseError> {
        Ok(Self { information: raw.value })
    }

    /// Appends header, information and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.information));
    }

    /// Returns the number of bytes that [`ProtocolViolation::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.information.len())
    }
}

impl fmt::Display for ProtocolViolation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "protocol violation \"{}\"", self.information.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = ProtocolViolation { information: b"why" };
        assert_eq!(cause.to_string(), "protocol violation \"why\"");
        assert_eq!(round_trip(cause), *b"\0\x0d\0\x07why\0");
    }
}
