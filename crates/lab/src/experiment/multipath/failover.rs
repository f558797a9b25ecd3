//! One of two lines is cut at full load, and comes back.

use std::ops::Range;
use std::time::Duration;

use netsim::{PipeConfig, Schedule};

use super::super::{Case, Options};
use super::{Multipath, QUEUES, boxed, line};

const ROUND_TRIPS_MS: [u64; 2] = [10, 50];
const OUTAGE: Range<Duration> = Duration::from_secs(4)..Duration::from_secs(8);
const MEASURED: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(12);
/// Interval of the samples, short enough to see when a line is used again.
const SLICE: Duration = Duration::from_millis(10);
const NAMES: [&str; 2] = ["first", "second"];

/// Returns a case in which the line with this number, 0 or 1, is cut for a part of the run.
pub(super) fn case(
    options: &Options,
    cut: usize,
    about: &str,
    whole: &PipeConfig,
    (outage, measured): (Range<Duration>, Range<Duration>),
) -> Multipath {
    let mut lines = vec![whole.clone(); 2];
    lines[cut].schedule = Schedule::Listed(vec![outage]);
    let name = format!("the {} dies, {about}", NAMES[cut]);
    Multipath { slice: SLICE, drains: true, ..Multipath::new(name, options.seed, lines, measured) }
}

/// Returns cases for either line, near and far, with both queues.
pub(in super::super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    let mut cases = Vec::new();
    for cut in [0, 1] {
        for round_trip_ms in ROUND_TRIPS_MS {
            cases.extend(QUEUES.map(|queue| {
                let whole = line(100, Duration::from_millis(round_trip_ms), queue);
                let about = format!("{round_trip_ms} ms, queue of {queue} BDP");
                case(options, cut, &about, &whole, (OUTAGE, MEASURED))
            }));
        }
    }
    boxed(cases)
}
