use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// Cookie Preservative: after a stale cookie, a wish for a longer life of the next one (RFC 9260 §3.3.2.1.3).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Type = 9            |          Length = 8           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |         Suggested Cookie Life-Span Increment (msec.)          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CookiePreservative {
    /// Requested extension in milliseconds.
    pub increment_ms: u32,
}

impl CookiePreservative {
    /// The parameter type.
    pub const KIND: u16 = 9;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'_>) -> Result<Self, ParameterError> {
        Ok(Self { increment_ms: u32::from_be_bytes(raw.value_array()?) })
    }

    /// Appends header and value.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&self.increment_ms.to_be_bytes());
        });
    }

    /// Returns the number of bytes that [`CookiePreservative::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(4)
    }
}

impl fmt::Display for CookiePreservative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cookie preservative {} ms", self.increment_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let parameter = CookiePreservative { increment_ms: 0x0102_0304 };
        assert_eq!(round_trip(parameter), [0, 9, 0, 8, 1, 2, 3, 4]);
        assert_eq!(parameter.to_string(), "cookie preservative 16909060 ms");
    }
}
