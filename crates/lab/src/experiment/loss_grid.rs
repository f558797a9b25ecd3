//! Throughput by loss rate, round trip and algorithm.

use std::time::Duration;

use netsim::{Loss, PipeConfig};
use sctp::congestion::Algorithm;

use super::bulk::{Bulk, Load};
use super::limit::{limit_bits_per_s, round_trip_bytes};
use super::response::predicted_bits_per_s;
use super::{Case, Options};

const RATE_BITS_PER_S: u64 = 100_000_000;
const LOSSES: [f64; 5] = [0.0, 0.0001, 0.001, 0.01, 0.02];
const ROUND_TRIPS_MS: [u64; 3] = [10, 50, 120];
/// Long enough for a hundred losses if losses limit the rate.
const TIME: Duration = Duration::from_secs(120);
const BUFFER_BYTES: usize = 8 << 20;

/// Returns one cell of the grid: a queue of one bandwidth-delay product, and loss on the way there only.
pub(super) fn case(
    seed: u64,
    time: Duration,
    (algorithm, round_trip_ms, loss): (Algorithm, u64, f64),
) -> Bulk {
    let round_trip = Duration::from_millis(round_trip_ms);
    let line = PipeConfig {
        rate_bits_per_s: Some(RATE_BITS_PER_S),
        delay: round_trip / 2,
        queue_bytes: round_trip_bytes(RATE_BITS_PER_S, round_trip.as_secs_f64()),
        loss: if loss > 0.0 { Loss::Random { probability: loss } } else { Loss::Never },
        ..PipeConfig::default()
    };
    let predicted = predicted_bits_per_s(algorithm, loss, round_trip.as_secs_f64(), limit_bits_per_s(&line));
    Bulk {
        name: format!("{}, {round_trip_ms} ms, {} % lost", algorithm.name(), loss * 100.0),
        seed,
        line,
        algorithm,
        send_buffer_bytes: BUFFER_BYTES,
        receive_buffer_bytes: BUFFER_BYTES,
        load: Load::Endless(vec![time]),
        predicted_bits_per_s: predicted,
        published: |_, _| Vec::new(),
    }
}

/// Returns the whole grid.
pub(super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for algorithm in Algorithm::ALL {
        for round_trip_ms in ROUND_TRIPS_MS {
            for loss in LOSSES {
                let cell = (algorithm, round_trip_ms, loss);
                cases.push(Box::new(case(options.seed, options.time.unwrap_or(TIME), cell)));
            }
        }
    }
    cases
}
