use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// ECN Capable: the sender of an INIT or INIT ACK reacts to marked packets (draft-stewart-tsvwg-sctpecn §4.1).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |     Parameter Type = 32768    |     Parameter Length = 4      |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EcnCapable;

impl EcnCapable {
    /// The parameter type.
    pub const KIND: u16 = 0x8000;

    /// Reads the parameter. The caller has checked the kind. Bytes behind the header are ignored.
    pub fn parse(_raw: &RawParameter<'_>) -> Result<Self, ParameterError> {
        Ok(Self)
    }

    /// Appends the parameter.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |_| ());
    }

    /// Returns the number of bytes that [`EcnCapable::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(0)
    }
}

impl fmt::Display for EcnCapable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ECN capable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(EcnCapable), [0x80, 0, 0, 4]);
        assert_eq!(EcnCapable.to_string(), "ECN capable");
    }
}
