use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing;

/// User-Initiated Abort: the user of the association ended it (RFC 9260 §3.3.10.12).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 12        |          Cause Length         |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                    Upper Layer Abort Reason                   /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UserInitiatedAbort<'a> {
    /// Reason that the user gives, in words of its own.
    pub reason: &'a [u8],
}

impl<'a> UserInitiatedAbort<'a> {
    /// The cause code.
    pub const KIND: u16 = 12;

    /// Reads the cause. The caller has checked the kind.
    pub fn parse(raw: &RawCause<'a>) -> Result<Self, CauseError> {
        Ok(Self { reason: raw.value })
    }

    /// Appends header, information and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.reason));
    }

    /// Returns the number of bytes that [`UserInitiatedAbort::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.reason.len())
    }
}

impl fmt::Display for UserInitiatedAbort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user-initiated abort \"{}\"", self.reason.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = UserInitiatedAbort { reason: b"bye\n" };
        assert_eq!(cause.to_string(), "user-initiated abort \"bye\\n\"");
        assert_eq!(round_trip(cause), *b"\0\x0c\0\x08bye\n");
    }
}
