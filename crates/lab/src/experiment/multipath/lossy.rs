//! A clean line and one that loses packets.

use std::time::Duration;

use netsim::{Loss, PipeConfig};
use sctp::congestion::Algorithm;

use super::super::{Case, Options};
use super::{Multipath, QUEUES, ROUND_TRIP, boxed, line};

const LOSS: f64 = 0.02;
const SETTLED: Duration = Duration::from_secs(2);
/// Long enough for a hundred losses with the smallest window.
const TIME: Duration = Duration::from_secs(20);

pub(super) fn case(options: &Options, algorithm: Algorithm, queue: f64) -> Multipath {
    let clean = line(100, ROUND_TRIP, queue);
    let lossy = PipeConfig { loss: Loss::Random { probability: LOSS }, ..clean.clone() };
    let name = format!("clean + {} % lost, {}, queue of {queue} BDP", LOSS * 100.0, algorithm.name());
    let end = SETTLED + options.time.unwrap_or(TIME);
    Multipath { algorithm, ..Multipath::new(name, options.seed, vec![clean, lossy], SETTLED..end) }
}

/// Returns a case for every congestion control, with both queues.
pub(in super::super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    let with = |algorithm| QUEUES.map(|queue| case(options, algorithm, queue));
    boxed(Algorithm::ALL.into_iter().flat_map(with))
}
