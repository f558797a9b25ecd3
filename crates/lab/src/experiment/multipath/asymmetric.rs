//! A fast line and a slow one; a near one and a far one.

use std::time::Duration;

use super::super::{Case, Options};
use super::{Multipath, QUEUES, ROUND_TRIP, boxed, line};

/// A receive buffer smaller than the capacity of the lines.
const SMALL_BUFFER_BYTES: usize = 64 << 10;
const FAR_ROUND_TRIP: Duration = Duration::from_millis(200);
/// Time when slow start is over, on near lines and on far ones.
const SETTLED: Duration = Duration::from_secs(2);
const FAR_SETTLED: Duration = Duration::from_secs(10);
const TIME: Duration = Duration::from_secs(10);
const FAR_TIME: Duration = Duration::from_secs(30);

/// Returns lines of 100 and 10 Mbit/s.
pub(super) fn rate_case(options: &Options, queue: f64, small_buffer: bool) -> Multipath {
    let buffer = if small_buffer { ", 64 KB of receive buffer" } else { "" };
    let name = format!("100 + 10 Mbit/s, queue of {queue} BDP{buffer}");
    let lines = vec![line(100, ROUND_TRIP, queue), line(10, ROUND_TRIP, queue)];
    let end = SETTLED + options.time.unwrap_or(TIME);
    Multipath {
        receive_buffer_bytes: small_buffer.then_some(SMALL_BUFFER_BYTES),
        ..Multipath::new(name, options.seed, lines, SETTLED..end)
    }
}

/// Returns cases with a receive buffer that grows, and with a small one.
pub(in super::super) fn rate_cases(options: &Options) -> Vec<Box<dyn Case>> {
    boxed([false, true].into_iter().flat_map(|small| QUEUES.map(|queue| rate_case(options, queue, small))))
}

/// Returns cases with lines of 100 Mbit/s and 10 and 200 ms.
pub(super) fn delay_case(options: &Options, queue: f64) -> Multipath {
    let name = format!("10 ms + 200 ms, queue of {queue} BDP");
    let lines = vec![line(100, ROUND_TRIP, queue), line(100, FAR_ROUND_TRIP, queue)];
    let end = FAR_SETTLED + options.time.unwrap_or(FAR_TIME);
    Multipath::new(name, options.seed, lines, FAR_SETTLED..end)
}

pub(in super::super) fn delay_cases(options: &Options) -> Vec<Box<dyn Case>> {
    boxed(QUEUES.map(|queue| delay_case(options, queue)))
}
