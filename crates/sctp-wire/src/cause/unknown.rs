use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;

/// A cause of a kind that this crate does not know (RFC 9260 §3.3.10).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |          Cause Code           |         Cause Length          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                  Cause-Specific Information                   /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unknown<'a> {
    /// The cause code.
    pub kind: u16,
    /// The value, without padding.
    pub value: &'a [u8],
}

impl<'a> Unknown<'a> {
    /// Takes the cause as it is.
    pub fn parse(raw: &RawCause<'a>) -> Result<Self, CauseError> {
        Ok(Self { kind: raw.kind, value: raw.value })
    }

    /// Appends header, value and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, self.kind.to_be_bytes(), |out| out.extend_from_slice(self.value));
    }

    /// Returns the number of bytes that [`Unknown::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.value.len())
    }
}

impl fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cause code={} value_bytes={}", self.kind, self.value.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let unknown = Unknown { kind: 0xc000, value: b"ab" };
        assert_eq!(round_trip(unknown), *b"\xc0\0\0\x06ab\0\0");
        assert_eq!(unknown.to_string(), "cause code=49152 value_bytes=2");
    }
}
