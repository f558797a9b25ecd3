use crate::cause::empty_cause;

/// Out of Resource: the sender has not the means for the association (RFC 9260 §3.3.10.4).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 4         |        Cause Length = 4       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OutOfResource;

empty_cause!(OutOfResource, 4, "out of resource");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(OutOfResource), [0, 4, 0, 4]);
        assert_eq!(OutOfResource.to_string(), "out of resource");
    }
}
