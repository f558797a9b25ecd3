use std::fmt;
use std::net::Ipv6Addr;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// IPv6 Address: an address at which the sender of an INIT or INIT ACK can be reached (RFC 9260 §3.3.2.1.2).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Type = 6            |          Length = 20          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                                                               |
/// |                         IPv6 Address                          |
/// |                                                               |
/// |                                                               |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6 {
    /// The address.
    pub address: Ipv6Addr,
}

impl Ipv6 {
    /// The parameter type.
    pub const KIND: u16 = 6;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'_>) -> Result<Self, ParameterError> {
        Ok(Self { address: raw.value_array::<16>()?.into() })
    }

    /// Appends header and address.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&self.address.octets())
        });
    }

    /// Returns the number of bytes that [`Ipv6::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(16)
    }
}

impl fmt::Display for Ipv6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        let parameter = Ipv6 { address: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1) };
        assert_eq!(
            round_trip(parameter),
            [0, 6, 0, 20, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(parameter.to_string(), "2001:db8::1");
    }

    #[test]
    fn only_sixteen_bytes_are_an_address() {
        let raw = RawParameter { kind: 6, value: &[1, 2, 3, 4], whole: &[] };
        assert_eq!(Ipv6::parse(&raw), Err(ParameterError::WrongSize { kind: 6, bytes: 4, needed: 16 }));
    }
}
