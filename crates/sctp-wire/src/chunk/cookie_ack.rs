use crate::chunk::empty_chunk;

/// COOKIE ACK: the cookie was good, the association is up (RFC 9260 §3.3.12).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 11   |  Chunk Flags  |          Length = 4           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CookieAck;

empty_chunk!(CookieAck, 11, "COOKIE ACK");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(CookieAck), [11, 0, 0, 4]);
        assert_eq!(CookieAck.to_string(), "COOKIE ACK");
    }

    #[test]
    fn reserved_flags_are_ignored() {
        assert_eq!(CookieAck::parse(&only(&[11, 0xff, 0, 4])), Ok(CookieAck));
    }
}
