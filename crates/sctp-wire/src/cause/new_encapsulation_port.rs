use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;

/// Restart of an Association with New Encapsulation Port: the peer's address and SCTP port have an association through
/// another UDP port (draft-tuexen-tsvwg-sctp-udp-encaps-cons-03 §4.4).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 14        |        Cause Length = 8       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Current Encapsulation Port  |     New Encapsulation Port    |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NewEncapsulationPort {
    /// The UDP port of the existing association; 0 if the sender does not state it.
    pub current_port: u16,
    /// The UDP port that the INIT came from.
    pub new_port: u16,
}

impl NewEncapsulationPort {
    /// The cause code.
    pub const KIND: u16 = 14;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'_>) -> Result<Self, CauseError> {
        let [c, d, n, m] = raw.value_array()?;
        Ok(Self { current_port: u16::from_be_bytes([c, d]), new_port: u16::from_be_bytes([n, m]) })
    }

    /// Appends the cause.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&self.current_port.to_be_bytes());
            out.extend_from_slice(&self.new_port.to_be_bytes());
        });
    }

    /// Returns the number of bytes that [`NewEncapsulationPort::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(4)
    }
}

impl fmt::Display for NewEncapsulationPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "new encapsulation port {} in place of {}", self.new_port, self.current_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = NewEncapsulationPort { current_port: 0x0102, new_port: 0x0304 };
        assert_eq!(round_trip(cause), [0, 14, 0, 8, 1, 2, 3, 4]);
        assert_eq!(cause.to_string(), "new encapsulation port 772 in place of 258");
    }

    #[test]
    fn the_size_must_be_right() {
        let raw = RawCause { kind: 14, value: &[1, 2, 3], whole: &[] };
        let error = CauseError::WrongSize { kind: 14, bytes: 3, needed: 4 };
        assert_eq!(NewEncapsulationPort::parse(&raw), Err(error));
    }
}
