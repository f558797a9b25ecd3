//! Between CERN and Chicago: 1 Gbit/s and a round trip of 120 ms.

use std::time::Duration;

use netsim::PipeConfig;
use sctp::congestion::Algorithm;

use super::bulk::{Bulk, Load, published};
use super::limit::round_trip_bytes;
use super::{Case, Options, Outcome, published as figures};

const RATE_BITS_PER_S: u64 = 1_000_000_000;
const ROUND_TRIP: Duration = Duration::from_millis(120);
/// Interval of the samples in seconds.
const MARKS_S: [u64; 2] = [10, 60];
const HOUR_S: u64 = 3600;
/// More than the capacity of the line and its queue.
const BUFFER_BYTES: usize = 64 << 20;

/// Returns a queue of this part of the bandwidth-delay product.
fn case(options: &Options, queue: f64) -> Bulk {
    let queue_bytes = (round_trip_bytes(RATE_BITS_PER_S, ROUND_TRIP.as_secs_f64()) as f64 * queue) as usize;
    let hour = options.full.then_some(HOUR_S);
    let marks = MARKS_S.into_iter().chain(hour).map(Duration::from_secs).collect();
    let products = if queue == 1.0 { "product" } else { "products" };
    Bulk {
        name: format!("queue of {queue} bandwidth-delay {products}"),
        seed: options.seed,
        line: PipeConfig {
            rate_bits_per_s: Some(RATE_BITS_PER_S),
            delay: ROUND_TRIP / 2,
            queue_bytes,
            ..PipeConfig::default()
        },
        algorithm: Algorithm::default(),
        send_buffer_bytes: BUFFER_BYTES,
        receive_buffer_bytes: BUFFER_BYTES,
        load: Load::Endless(options.time.map_or(marks, |time| vec![time])),
        predicted_bits_per_s: None,
        published: |bulk, seconds| published(bulk, figures::datatag(seconds.round() as u64)),
    }
}

/// Returns a deep and a shallow queue; with `full` for an hour.
pub(super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    [1.0, 0.1].map(|queue| Box::new(case(options, queue)) as Box<dyn Case>).into()
}

/// Returns the case with a deep queue, whose outcomes are ours alone, one after each of these seconds.
pub fn datatag_marks(seed: u64, marks_s: &[u64]) -> Box<dyn Case> {
    let options = Options { seed, ..Options::default() };
    let marks = marks_s.iter().map(|&seconds| Duration::from_secs(seconds)).collect();
    Box::new(Bulk { load: Load::Endless(marks), published: |_, _| Vec::new(), ..case(&options, 1.0) })
}

/// Returns the published outcomes of a run of this many seconds.
pub fn published_datatag(seconds: u64) -> Vec<Outcome> {
    published(&case(&Options::default(), 1.0), figures::datatag(seconds))
}

#[cfg(test)]
mod tests {
    use super::super::Watch;
    use super::*;

    #[test]
    fn a_run_is_recorded_at_a_mark_without_what_was_published() {
        let outcomes = datatag_marks(1, &[1]).run(&mut Watch::default()).expect("there is no capture");
        let seconds: Vec<f64> = outcomes.iter().map(|outcome| outcome.seconds).collect();
        assert_eq!(seconds, [1.0]);
        assert!(outcomes.iter().all(|outcome| !outcome.published && outcome.bits_per_s > 0.0));
    }
}
