use crate::cause::empty_cause;

/// Cookie Received While Shutting Down: a COOKIE ECHO came in the state SHUTDOWN-ACK-SENT (RFC 9260 §3.3.10.10).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 10        |        Cause Length = 4       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CookieReceivedWhileShuttingDown;

empty_cause!(CookieReceivedWhileShuttingDown, 10, "cookie received while shutting down");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(CookieReceivedWhileShuttingDown), [0, 10, 0, 4]);
        assert_eq!(CookieReceivedWhileShuttingDown.to_string(), "cookie received while shutting down");
    }
}
