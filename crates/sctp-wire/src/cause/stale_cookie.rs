use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;

/// Stale Cookie: the state cookie is good but came too late (RFC 9260 §3.3.10.3).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 3         |        Cause Length = 8       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                  Measure of Staleness (usec.)                 |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StaleCookie {
    /// Time since the end of the cookie's lifetime in microseconds; 0 if the sender does not state it.
    pub staleness_us: u32,
}

impl StaleCookie {
    /// The cause code.
    pub const KIND: u16 = 3;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'_>) -> Result<Self, CauseError> {
        Ok(Self { staleness_us: u32::from_be_bytes(raw.value_array()?) })
    }

    /// Appends the cause.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&self.staleness_us.to_be_bytes());
        });
    }

    /// Returns the number of bytes that [`StaleCookie::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(4)
    }
}

impl fmt::Display for StaleCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stale cookie {} us", self.staleness_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = StaleCookie { staleness_us: 0x0102_0304 };
        assert_eq!(round_trip(cause), [0, 3, 0, 8, 1, 2, 3, 4]);
        assert_eq!(cause.to_string(), "stale cookie 16909060 us");
    }

    #[test]
    fn the_size_must_be_right() {
        let raw = RawCause { kind: 3, value: &[1, 2, 3], whole: &[] };
        let error = CauseError::WrongSize { kind: 3, bytes: 3, needed: 4 };
        assert_eq!(StaleCookie::parse(&raw), Err(error));
    }
}
