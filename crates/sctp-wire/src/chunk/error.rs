use std::fmt;

use crate::cause::Causes;
use crate::chunk::{ChunkError, RawChunk};
use crate::framing;

/// ERROR: tells the peer what is wrong; not fatal in itself (RFC 9260 §3.3.10).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 9    |  Chunk Flags  |            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /                   one or more Error Causes                    /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error<'a> {
    /// The errors that the sender reports.
    pub causes: Causes<'a>,
}

impl<'a> Error<'a> {
    /// The chunk type.
    pub const KIND: u8 = 9;

    /// Reads the chunk. The caller has checked the kind. The causes are looked at when they are asked for.
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        Ok(Self { causes: Causes::new(raw.value) })
    }

    /// Returns the causes, one after the other.
    pub fn causes(&self) -> Causes<'a> {
        self.causes.clone()
    }

    /// Appends header and causes.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [Self::KIND, 0], |out| out.extend_from_slice(self.causes.as_bytes()));
    }

    /// Returns the number of bytes that [`Error::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.causes.as_bytes().len())
    }
}

impl fmt::Display for Error<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR{}", self.causes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::StaleCookie;
    use crate::chunk::testing::round_trip;

    #[test]
    fn round_trips() {
        let mut causes = Vec::new();
        StaleCookie { staleness_us: 9 }.write(&mut causes);
        let error = Error { causes: Causes::new(&causes) };
        assert_eq!(error.to_string(), "ERROR [stale cookie 9 us]");
        assert_eq!(round_trip(error), [9, 0, 0, 12, 0, 3, 0, 8, 0, 0, 0, 9]);
    }
}
