use crate::cause::empty_cause;

/// Invalid Mandatory Parameter: a mandatory field of an INIT or INIT ACK has a value that it must not have (RFC 9260 §3.3.10.7).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 7         |        Cause Length = 4       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InvalidMandatoryParameter;

empty_cause!(InvalidMandatoryParameter, 7, "invalid mandatory parameter");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(InvalidMandatoryParameter), [0, 7, 0, 4]);
        assert_eq!(InvalidMandatoryParameter.to_string(), "invalid mandatory parameter");
    }
}
