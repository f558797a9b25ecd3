use std::fmt;
use std::net::Ipv4Addr;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// IPv4 Address: an address at which the sender of an INIT or INIT ACK can be reached (RFC 9260 §3.3.2.1.1).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |           Type = 5            |          Length = 8           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                         IPv4 Address                          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4 {
    /// The address.
    pub address: Ipv4Addr,
}

impl Ipv4 {
    /// The parameter type.
    pub const KIND: u16 = 5;

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'_>) -> Result<Self, ParameterError> {
        Ok(Self { address: raw.value_array::<4>()?.into() })
    }

    /// Appends header and address.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&self.address.octets())
        });
    }

    /// Returns the number of bytes that [`Ipv4::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(4)
    }
}

impl fmt::Display for Ipv4 {
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
        let parameter = Ipv4 { address: Ipv4Addr::new(192, 0, 2, 1) };
        assert_eq!(round_trip(parameter), [0, 5, 0, 8, 192, 0, 2, 1]);
        assert_eq!(parameter.to_string(), "192.0.2.1");
    }

    #[test]
    fn only_four_bytes_are_an_address() {
        let raw = RawParameter { kind: 5, value: &[1, 2, 3, 4, 5], whole: &[] };
        assert_eq!(Ipv4::parse(&raw), Err(ParameterError::WrongSize { kind: 5, bytes: 5, needed: 4 }));
    }
}
