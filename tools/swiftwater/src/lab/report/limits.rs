//! Limits of what a page is made of: another user may have made the folder of results. All experiments together fill a quarter of
//! each, `--full` included.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use crate::units::grouped;

/// Length of the rows, and their number.
pub(super) const RESULTS_BYTES_MAX: u64 = 8 << 20;
pub(super) const ROWS_MAX: usize = 20_000;
/// Beginning of the error of an array that is too long.
pub(super) const TOO_MANY: &str = "more than ";
/// Size of a message: more than any program can send at once.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1 << 32;
/// Curves of a trace.
pub(in crate::lab) const CURVES_MAX: usize = 256;
/// Number of all traces, their length, and the numbers of their curves and points.
const TRACES_MAX: usize = 4_096;
pub(super) const TRACES_BYTES_MAX: u64 = 32 << 20;
const CURVES_SUM_MAX: usize = 20_000;
pub(in crate::lab) const POINTS_MAX: usize = 1_000_000;

/// All traces so far.
#[derive(Debug, Default)]
pub(super) struct Total {
    bytes: u64,
    curves: usize,
    points: usize,
}

impl Total {
    /// Fails with words if there are too many traces.
    pub(super) fn on_names(&self, traces: usize) -> Result<(), String> {
        check(traces as u64, TRACES_MAX as u64, "traces")
    }

    /// Adds a trace that was read. Fails with words if all are too long.
    pub(super) fn on_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes as u64;
        check(self.bytes, TRACES_BYTES_MAX, "bytes of traces")
    }

    /// Adds the curves of a trace and all their points. Fails with words if there are too many.
    pub(super) fn on_curves(&mut self, curves: usize, points: usize) -> Result<(), String> {
        self.curves += curves;
        self.points += points;
        check(self.curves as u64, CURVES_SUM_MAX as u64, "curves")?;
        check(self.points as u64, POINTS_MAX as u64, "points")
    }
}

fn check(count: u64, most: u64, what: &str) -> Result<(), String> {
    if count > most { Err(format!("{} {what}", grouped(most))) } else { Ok(()) }
}

/// Deserializes at most so many entries.
pub(in crate::lab) fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Entries<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Entries<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(entry) = entries.next_element()? {
                if all.len() == MOST {
                    return Err(A::Error::custom(format_args!("{TOO_MANY}{MOST} entries")));
                }
                all.push(entry);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_seq(Entries::<T, MOST>(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_traces_is_limited() {
        assert_eq!(Total::default().on_names(TRACES_MAX), Ok(()));
        assert_eq!(Total::default().on_names(TRACES_MAX + 1), Err("4,096 traces".to_owned()));
        let mut total = Total::default();
        assert_eq!(total.on_bytes(TRACES_BYTES_MAX as usize), Ok(()));
        assert_eq!(total.on_bytes(1), Err("33,554,432 bytes of traces".to_owned()));
        for _ in 0..100 {
            assert_eq!(total.on_curves(200, 0), Ok(()));
        }
        assert_eq!(total.on_curves(1, 0), Err("20,000 curves".to_owned()));
    }
}
