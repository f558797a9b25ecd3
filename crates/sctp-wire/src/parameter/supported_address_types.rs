use std::fmt;

use crate::framing;
use crate::parameter::{KindList, ParameterError, RawParameter};

/// Supported Address Types: the kinds of addresses that the sender of an INIT can use (RFC 9260 §3.3.2.1.5). Without the
/// parameter, the sender can use all.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Type = 12           |            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Address Type #1        |        Address Type #2        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                            ......                             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SupportedAddressTypes<'a> {
    /// The types of the address parameters: 5 for IPv4, 6 for IPv6.
    pub kinds: KindList<'a>,
}

impl<'a> SupportedAddressTypes<'a> {
    /// The parameter type.
    pub const KIND: u16 = 12;

    /// Reads the parameter. The caller has checked the kind. An odd byte at the end is ignored.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { kinds: KindList::new(raw.value.as_chunks().0) })
    }

    /// Appends header, types and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.kinds.as_bytes()));
    }

    /// Returns the number of bytes that [`SupportedAddressTypes::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.kinds.as_bytes().len())
    }
}

impl fmt::Display for SupportedAddressTypes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "supported address types {}", self.kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let both = SupportedAddressTypes { kinds: KindList::new(&[[0, 5], [0, 6]]) };
        assert_eq!(round_trip(both), [0, 12, 0, 8, 0, 5, 0, 6]);
        assert_eq!(both.to_string(), "supported address types 5 6");
        let one = SupportedAddressTypes { kinds: KindList::new(&[[0, 5]]) };
        assert_eq!(round_trip(one), [0, 12, 0, 6, 0, 5, 0, 0]);
        assert!(!one.kinds.contains(6));
    }
}
