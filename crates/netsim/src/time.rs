//! Durations as the clock counts them.

use std::time::Duration;

/// In nanoseconds; what is longer than the clock can count is for ever.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
