use std::fmt;

use crate::cause::Causes;
use crate::chunk::{ChunkError, RawChunk};
use crate::framing;

pub(super) const REFLECTED: u8 = 0x01;

/// ABORT: ends the association at once (RFC 9260 §3.3.7).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 6    |  Reserved   |T|            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /                   zero or more Error Causes                   /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abort<'a> {
    /// T: the verification tag is the one of the packet that this answers, because the sender knows no better.
    pub reflected_tag: bool,
    /// The error causes.
    pub causes: Causes<'a>,
}

impl<'a> Abort<'a> {
    /// The chunk type.
    pub const KIND: u8 = 6;

    /// Reads the chunk. The caller has checked the kind. The causes are looked at when they are asked for.
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        Ok(Self { reflected_tag: raw.flags & REFLECTED != 0, causes: Causes::new(raw.value) })
    }

    /// Returns the causes, one after the other.
    pub fn causes(&self) -> Causes<'a> {
        self.causes.clone()
    }

    /// Appends header and causes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let flags = if self.reflected_tag { REFLECTED } else { 0 };
        framing::write_tlv(out, [Self::KIND, flags], |out| out.extend_from_slice(self.causes.as_bytes()));
    }

    /// Returns the number of bytes that [`Abort::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.causes.as_bytes().len())
    }
}

impl fmt::Display for Abort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ABORT{}{}", if self.reflected_tag { " T" } else { "" }, self.causes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::{Cause, UserInitiatedAbort};
    use crate::chunk::testing::{only, round_trip};

    #[test]
    fn round_trips() {
        let mut causes = Vec::new();
        let cause = UserInitiatedAbort { reason: b"bye" };
        cause.write(&mut causes);
        let abort = Abort { reflected_tag: false, causes: Causes::new(&causes) };
        assert!(abort.causes().eq([Ok(Cause::UserInitiatedAbort(cause))]));
        assert_eq!(abort.to_string(), "ABORT [user-initiated abort \"bye\"]");
        assert_eq!(round_trip(abort), *b"\x06\0\0\x0b\0\x0c\0\x07bye\0");
        let reflected = Abort { reflected_tag: true, causes: Causes::new(&[]) };
        assert_eq!(reflected.to_string(), "ABORT T");
        assert_eq!(round_trip(reflected), [6, 1, 0, 4]);
    }

    #[test]
    fn reserved_flags_are_ignored() {
        assert!(!Abort::parse(&only(&[6, 0xfe, 0, 4])).unwrap().reflected_tag);
    }
}
