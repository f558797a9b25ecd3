use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;
use crate::parameter::Parameters;

/// Restart of an Association with New Addresses: an INIT for an association named addresses that the association does not have
/// (RFC 9260 §3.3.10.11).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 11        |          Cause Length         |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                        New Address TLVs                       /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartWithNewAddresses<'a> {
    /// The new addresses as they came.
    pub addresses: Parameters<'a>,
}

impl<'a> RestartWithNewAddresses<'a> {
    /// The cause code.
    pub const KIND: u16 = 11;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'a>) -> Result<Self, CauseError> {
        Ok(Self { addresses: Parameters::new(raw.value) })
    }

    /// Appends header, information and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(self.addresses.as_bytes())
        });
    }

    /// Returns the number of bytes that [`RestartWithNewAddresses::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.addresses.as_bytes().len())
    }
}

impl fmt::Display for RestartWithNewAddresses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "restart with new addresses{}", self.addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = RestartWithNewAddresses { addresses: Parameters::new(b"\0\x05\0\x08\x7f\0\0\x01") };
        assert_eq!(cause.to_string(), "restart with new addresses [127.0.0.1]");
        assert_eq!(round_trip(cause), *b"\0\x0b\0\x0c\0\x05\0\x08\x7f\0\0\x01");
    }
}
