//! A moment that processes of this machine name to each other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment by two clocks, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// Time since 1970, for people. The time of day may be set meanwhile.
    pub(crate) unix_s: f64,
    /// Time of `CLOCK_MONOTONIC`, for other processes of this machine: it is never set.
    pub(crate) monotonic_s: f64,
}

impl Moment {
    /// Returns the present.
    pub(crate) fn now() -> Self {
        let of_day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { unix_s: of_day.as_secs_f64(), monotonic_s: monotonic().as_secs_f64() }
    }

    /// Returns the moment this long ago.
    pub(crate) fn ago(self, time: Duration) -> Self {
        let time_s = time.as_secs_f64();
        Moment { unix_s: self.unix_s - time_s, monotonic_s: self.monotonic_s - time_s }
    }

    /// Converts a time of day from soon after this moment, by which the clock was not set, to `CLOCK_MONOTONIC`.
    pub(crate) fn monotonic_s_of(self, unix_s: f64) -> f64 {
        self.monotonic_s + (unix_s - self.unix_s)
    }
}

/// Returns the time of `CLOCK_MONOTONIC`, which every kernel has.
fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_monotonic_clock_advances_as_instants_do() {
        let (before, first, inner) = (Instant::now(), Moment::now(), Instant::now());
        let (inner_time, last) = (inner.elapsed().as_secs_f64(), Moment::now());
        let advanced_s = last.monotonic_s - first.monotonic_s;
        assert!(first.monotonic_s > 0.0);
        assert!((inner_time - 1e-6..=before.elapsed().as_secs_f64() + 1e-6).contains(&advanced_s));
    }

    #[test]
    fn a_time_of_day_is_converted_by_its_distance() {
        let moment = Moment { unix_s: 1000.0, monotonic_s: 7.0 };
        assert_eq!(moment.monotonic_s_of(1000.25), 7.25);
        assert_eq!(moment.ago(Duration::from_secs(2)), Moment { unix_s: 998.0, monotonic_s: 5.0 });
    }
}
