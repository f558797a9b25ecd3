use std::fmt;

use crate::StreamId;
use crate::cause::{CauseError, RawCause};
use crate::framing;

/// Invalid Stream Identifier: a DATA chunk named a stream that does not exist (RFC 9260 §3.3.10.1).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 1         |        Cause Length = 8       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |       Stream Identifier       |           (Reserved)          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InvalidStreamIdentifier {
    /// The stream that it named.
    pub stream: StreamId,
}

impl InvalidStreamIdentifier {
    /// The cause code.
    pub const KIND: u16 = 1;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'_>) -> Result<Self, CauseError> {
        let [high, low, _, _] = raw.value_array()?;
        Ok(Self { stream: StreamId(u16::from_be_bytes([high, low])) })
    }

    /// Appends the cause.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&self.stream.0.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
        });
    }

    /// Returns the number of bytes that [`InvalidStreamIdentifier::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(4)
    }
}

impl fmt::Display for InvalidStreamIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid stream identifier {}", self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = InvalidStreamIdentifier { stream: StreamId(0x0102) };
        assert_eq!(round_trip(cause), [0, 1, 0, 8, 1, 2, 0, 0]);
        assert_eq!(cause.to_string(), "invalid stream identifier 258");
    }

    #[test]
    fn the_size_must_be_right() {
        let raw = RawCause { kind: 1, value: &[1, 2, 3], whole: &[] };
        let error = CauseError::WrongSize { kind: 1, bytes: 3, needed: 4 };
        assert_eq!(InvalidStreamIdentifier::parse(&raw), Err(error));
    }
}
