use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// State Cookie: all that the responder must know, so that it need not remember it (RFC 9260 §3.3.3.1.1).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Type = 7            |            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                             Cookie                            /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StateCookie<'a> {
    /// The cookie.
    pub cookie: &'a [u8],
}

impl<'a> StateCookie<'a> {
    /// The parameter type.
    pub const KIND: u16 = 7;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { cookie: raw.value })
    }

    /// Appends header, value and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.cookie));
    }

    /// Returns the number of bytes that [`StateCookie::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.cookie.len())
    }
}

impl fmt::Display for StateCookie<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state cookie {} bytes", self.cookie.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let parameter = StateCookie { cookie: b"\x01\x02\x03" };
        assert_eq!(round_trip(parameter), [0, 7, 0, 7, 1, 2, 3, 0]);
        assert_eq!(parameter.to_string(), "state cookie 3 bytes");
    }
}
