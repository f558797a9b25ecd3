//! Durations as the clock counts them.

use std::time::Duration;

/// Returns a duration in nanoseconds; one beyond the range of the clock is infinite.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
