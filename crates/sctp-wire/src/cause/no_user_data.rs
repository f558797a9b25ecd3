use std::fmt;

use crate::Tsn;
use crate::cause::{CauseError, RawCause};
use crate::framing;

/// No User Data: a DATA chunk came without data (RFC 9260 §3.3.10.9).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 9         |        Cause Length = 8       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                              TSN                              |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NoUserData {
    /// The TSN of that chunk.
    pub tsn: Tsn,
}

impl NoUserData {
    /// The cause code.
    pub const KIND: u16 = 9;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'_>) -> Result<Self, CauseError> {
        Ok(Self { tsn: Tsn(u32::from_be_bytes(raw.value_array()?)) })
    }

    /// Appends the cause.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&self.tsn.0.to_be_bytes());
        });
    }

    /// Returns the number of bytes that [`NoUserData::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(4)
    }
}

impl fmt::Display for NoUserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no user data tsn={}", self.tsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = NoUserData { tsn: Tsn(0x0102_0304) };
        assert_eq!(round_trip(cause), [0, 9, 0, 8, 1, 2, 3, 4]);
        assert_eq!(cause.to_string(), "no user data tsn=16909060");
    }

    #[test]
    fn the_size_must_be_right() {
        let raw = RawCause { kind: 9, value: &[1, 2, 3], whole: &[] };
        let error = CauseError::WrongSize { kind: 9, bytes: 3, needed: 4 };
        assert_eq!(NoUserData::parse(&raw), Err(error));
    }
}
