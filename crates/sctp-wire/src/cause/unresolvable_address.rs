use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;

/// Unresolvable Address: the sender has no use for an address, or for a host name (RFC 9260 §3.3.10.5).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 5         |          Cause Length         |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                      Unresolvable Address                     /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnresolvableAddress<'a> {
    /// The parameter as it came: type, length and value.
    pub parameter: &'a [u8],
}

impl<'a> UnresolvableAddress<'a> {
    /// The cause code.
    pub const KIND: u16 = 5;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'a>) -> Result<Self, CauseError> {
        Ok(Self { parameter: raw.value })
    }

    /// Appends header, information and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.parameter));
    }

    /// Returns the number of bytes that [`UnresolvableAddress::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.parameter.len())
    }
}

impl fmt::Display for UnresolvableAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unresolvable address {} bytes", self.parameter.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = UnresolvableAddress { parameter: b"\0\x0b\0\x06a\0" };
        assert_eq!(cause.to_string(), "unresolvable address 6 bytes");
        assert_eq!(round_trip(cause), *b"\0\x05\0\x0a\0\x0b\0\x06a\0\0\0");
    }
}
