use std::fmt;

use crate::chunk::{ChunkError, RawChunk};
use crate::framing;

/// COOKIE ECHO: gives the state cookie of the INIT ACK back (RFC 9260 §3.3.11).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 10   |  Chunk Flags  |            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                            Cookie                             /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CookieEcho<'a> {
    /// The cookie, exactly as it came.
    pub cookie: &'a [u8],
}

impl<'a> CookieEcho<'a> {
    /// The chunk type.
    pub const KIND: u8 = 10;

    /// Reads the chunk. The caller has checked the kind.
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        Ok(Self { cookie: raw.value })
    }

    /// Appends header, cookie and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, [Self::KIND, 0], |out| out.extend_from_slice(self.cookie));
    }

    /// Returns the number of bytes that [`CookieEcho::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.cookie.len())
    }
}

impl fmt::Display for CookieEcho<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "COOKIE ECHO cookie_bytes={}", self.cookie.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::round_trip;

    #[test]
    fn round_trips() {
        let echo = CookieEcho { cookie: b"cookie" };
        assert_eq!(round_trip(echo), *b"\x0a\0\0\x0acookie\0\0");
        assert_eq!(echo.to_string(), "COOKIE ECHO cookie_bytes=6");
    }
}
