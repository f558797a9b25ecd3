use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// Host Name Address: deprecated. Endpoints must not send it, and abort on receipt (RFC 9260 §3.3.2.1.4).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Type = 11           |            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                           Host Name                           /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostName<'a> {
    /// The host name with its zero byte.
    pub host_name: &'a [u8],
}

impl<'a> HostName<'a> {
    /// The parameter type.
    pub const KIND: u16 = 11;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { host_name: raw.value })
    }

    /// Appends header, value and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.host_name));
    }

    /// Returns the number of bytes that [`HostName::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.host_name.len())
    }
}

impl fmt::Display for HostName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host name {} bytes", self.host_name.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let parameter = HostName { host_name: b"\x01\x02\x03" };
        assert_eq!(round_trip(parameter), [0, 11, 0, 7, 1, 2, 3, 0]);
        assert_eq!(parameter.to_string(), "host name 3 bytes");
    }
}
