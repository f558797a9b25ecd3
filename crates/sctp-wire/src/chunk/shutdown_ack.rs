use crate::chunk::empty_chunk;

/// SHUTDOWN ACK: acknowledges a SHUTDOWN when nothing is outstanding (RFC 9260 §3.3.9).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 8    |  Chunk Flags  |          Length = 4           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShutdownAck;

empty_chunk!(ShutdownAck, 8, "SHUTDOWN ACK");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(ShutdownAck), [8, 0, 0, 4]);
        assert_eq!(ShutdownAck.to_string(), "SHUTDOWN ACK");
    }

    #[test]
    fn reserved_flags_are_ignored() {
        assert_eq!(ShutdownAck::parse(&only(&[8, 0xff, 0, 4])), Ok(ShutdownAck));
    }
}
