use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};
use crate::{UnknownAction, unknown_parameter_action};

/// A parameter of a kind that this crate does not know (RFC 9260 §3.2.1).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Parameter Type         |       Parameter Length        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /                        Parameter Value                        /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unknown<'a> {
    /// The parameter type.
    pub kind: u16,
    /// The value, without padding.
    pub value: &'a [u8],
}

impl<'a> Unknown<'a> {
    /// Takes the parameter as it is.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { kind: raw.kind, value: raw.value })
    }

    /// Returns the treatment that the parameter's sender asks for.
    pub fn action(&self) -> UnknownAction {
        unknown_parameter_action(self.kind)
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
        write!(f, "parameter type={} value_bytes={}", self.kind, self.value.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let unknown = Unknown { kind: 0xc000, value: b"ab" };
        assert_eq!(round_trip(unknown), *b"\xc0\0\0\x06ab\0\0");
        assert_eq!(unknown.to_string(), "parameter type=49152 value_bytes=2");
        assert_eq!(unknown.action(), UnknownAction { stop: false, report: true });
    }
}
