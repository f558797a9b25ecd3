//! The core's clock: a point in time that the caller passes.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time in nanoseconds since an epoch of the caller's choice. It must never run backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// The epoch itself.
    pub const ZERO: Time = Time(0);

    /// Returns the point `ns` nanoseconds after the epoch.
    #[inline]
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns)
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the earliest of these times, if there is one.
    #[inline]
    pub(crate) fn earliest(times: impl IntoIterator<Item = Option<Time>>) -> Option<Time> {
        // The largest number stands for no time, so that the minimum needs no branch.
        let at = times.into_iter().fold(u64::MAX, |at, time| at.min(time.map_or(u64::MAX, Time::as_nanos)));
        (at != u64::MAX).then_some(Time(at))
    }

    /// Returns the time from `earlier` to `self`, zero if `earlier` is later.
    #[inline]
    pub const fn saturating_since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    #[inline]
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Time) -> Duration {
        self.saturating_since(earlier)
    }
}
