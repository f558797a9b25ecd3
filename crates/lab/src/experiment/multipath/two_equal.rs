//! Two lines of 100 Mbit/s: small and large messages, with boundaries and as a stream.

use std::time::Duration;

use super::super::limit::Mode;
use super::super::{Case, Options, Outcome, published};
use super::{Multipath, QUEUES, ROUND_TRIP, boxed, line};

const SIZES: [usize; 12] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
/// Time when slow start is over.
const SETTLED: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(4);

pub(super) fn case(options: &Options, mode: Mode, message_bytes: usize, queue: f64) -> Multipath {
    let name = format!("{}, {message_bytes} bytes, queue of {queue} BDP", mode.name());
    let end = SETTLED + options.time.unwrap_or(TIME);
    let lines = vec![line(100, ROUND_TRIP, queue); 2];
    Multipath {
        mode,
        message_bytes,
        published: published::openss7(mode, message_bytes),
        ..Multipath::new(name, options.seed, lines, SETTLED..end)
    }
}

/// Returns a case for every size, in both modes, with both queues.
pub(in super::super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    let mut cases = Vec::new();
    for mode in [Mode::Stream, Mode::Message] {
        for message_bytes in SIZES {
            cases.extend(QUEUES.map(|queue| case(options, mode, message_bytes, queue)));
        }
    }
    boxed(cases)
}

/// Returns the published results of OpenSS7 for messages of this size, in both modes, with one path and with two.
pub fn published_two_equal(message_bytes: usize) -> Vec<Outcome> {
    let of_mode = |mode| {
        let case = case(&Options::default(), mode, message_bytes, 1.0);
        case.published.iter().map(|figure| case.published_outcome(figure)).collect::<Vec<_>>()
    };
    [Mode::Stream, Mode::Message].into_iter().flat_map(of_mode).collect()
}
