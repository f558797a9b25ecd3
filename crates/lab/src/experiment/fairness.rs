//! Ten associations between twenty hosts, and one bottleneck.

use std::net::IpAddr;
use std::time::Duration;

use netsim::{CaptureError, PipeConfig};
use sctp::congestion::Algorithm;
use sctp::{AssociationConfig, AssociationId, Statistics, Time};

use super::limit::{limit_bits_per_s, payload_bytes, round_trip_bytes};
use super::{Case, Options, Outcome, Watch};
use crate::simulation::Simulation;
use crate::traffic::{Source, Traffic};

const ASSOCIATIONS: usize = 10;
const RATE_BITS_PER_S: u64 = 100_000_000;
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Time between the starts of two associations.
const APART: Duration = Duration::from_millis(500);
/// Time after the first start at which the measurement begins.
const BEFORE: Duration = Duration::from_secs(30);
/// Duration of the measurement.
const MEASURED: Duration = Duration::from_secs(30);
/// Duration of a step; the other durations are multiples of it.
const SLICE: Duration = Duration::from_millis(500);
const BUFFER_BYTES: usize = 4 << 20;

/// One algorithm against itself.
#[derive(Clone, Debug)]
pub(super) struct Fairness {
    pub(super) seed: u64,
    pub(super) algorithm: Algorithm,
    pub(super) rate_bits_per_s: u64,
    pub(super) measured: Duration,
}

/// Returns a case for every algorithm.
pub(super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    let case = |algorithm| Fairness {
        seed: options.seed,
        algorithm,
        rate_bits_per_s: RATE_BITS_PER_S,
        measured: options.time.unwrap_or(MEASURED),
    };
    Algorithm::ALL.map(|algorithm| Box::new(case(algorithm)) as Box<dyn Case>).into()
}

impl Case for Fairness {
    fn name(&self) -> String {
        let rate = self.rate_bits_per_s / 1_000_000;
        format!("{}, {ASSOCIATIONS} associations, {rate} Mbit/s, 50 ms", self.algorithm.name())
    }

    fn run(&self, watch: &mut Watch<'_>) -> Result<Vec<Outcome>, CaptureError> {
        let mut simulation: Simulation<Traffic> = Simulation::new(self.seed);
        watch.start_trace(&mut simulation);
        self.build(&mut simulation);
        watch.start_capture(&mut simulation)?;
        let end = Time::ZERO + BEFORE + self.measured;
        let whole = end.saturating_since(Time::ZERO).as_secs_f64();
        let mut ids = Vec::new();
        let mut before = vec![0; ASSOCIATIONS];
        let mut interrupted = false;
        while simulation.now() < end && !interrupted {
            let now = simulation.now().saturating_since(Time::ZERO);
            if ids.len() < ASSOCIATIONS && now >= APART * ids.len() as u32 {
                ids.push(self.start(&mut simulation, ids.len()));
            }
            if now <= BEFORE {
                before = received(&simulation);
            }
            simulation.run_for(SLICE);
            interrupted = !watch.goes_on(now.as_secs_f64() / whole);
        }
        simulation.network.stop_capture()?;
        let measured = simulation.now().saturating_since(Time::ZERO + BEFORE);
        if measured.is_zero() {
            // The user has ended it before the measurement began.
            return Ok(Vec::new());
        }
        let ours = Outcome { interrupted, ..self.outcome(&simulation, &before, measured.as_secs_f64()) };
        Ok(vec![ours.counted(&counters(&simulation, &ids))])
    }
}

impl Fairness {
    /// Returns the rates of the receivers in the seconds since they had `before`.
    fn outcome(&self, simulation: &Simulation<Traffic>, before: &[u64], seconds: f64) -> Outcome {
        let after = received(simulation);
        let rates: Vec<f64> =
            after.iter().zip(before).map(|(after, before)| (after - before) as f64 * 8.0 / seconds).collect();
        Outcome {
            case: self.name(),
            transport: "sctp".to_owned(),
            algorithm: Some(self.algorithm.name()),
            seconds,
            bits_per_s: rates.iter().sum(),
            limit_bits_per_s: limit_bits_per_s(&self.line()),
            fairness: Some(jain(&rates)),
            ..Outcome::default()
        }
    }

    fn line(&self) -> PipeConfig {
        PipeConfig {
            rate_bits_per_s: Some(self.rate_bits_per_s),
            delay: ROUND_TRIP / 2,
            queue_bytes: round_trip_bytes(self.rate_bits_per_s, ROUND_TRIP.as_secs_f64()),
            ..PipeConfig::default()
        }
    }

    /// Pairs of hosts whose packets share a pipe each way; the even ones send.
    fn build(&self, simulation: &mut Simulation<Traffic>) {
        let pipes = [simulation.network.add_pipe(&self.line()), simulation.network.add_pipe(&self.line())];
        for pair in 0..ASSOCIATIONS {
            let addresses: [IpAddr; 2] = [[10, 0, 1, pair as u8].into(), [10, 0, 2, pair as u8].into()];
            for address in addresses {
                simulation.add_host(&[address], Traffic::default());
            }
            simulation.route(addresses[0], addresses[1], &[pipes[0]]);
            simulation.route(addresses[1], addresses[0], &[pipes[1]]);
            simulation.listen(pair * 2 + 1, 5001, self.config());
        }
    }

    fn config(&self) -> AssociationConfig {
        AssociationConfig {
            send_buffer_bytes: BUFFER_BYTES,
            receive_buffer_bytes: BUFFER_BYTES,
            congestion: self.algorithm,
            ..AssociationConfig::default()
        }
    }

    fn start(&self, simulation: &mut Simulation<Traffic>, pair: usize) -> AssociationId {
        let id = simulation.connect(pair * 2, pair * 2 + 1, (5000, 5001), self.config());
        let until = Time::from_nanos(u64::MAX);
        let source = Source::Endless { message_bytes: payload_bytes(), until };
        simulation.node_mut(pair * 2).app.start(id, source);
        id
    }
}

/// Returns the counters of all senders together.
fn counters(simulation: &Simulation<Traffic>, ids: &[AssociationId]) -> Statistics {
    let mut all = Statistics::default();
    for (pair, &id) in ids.iter().enumerate() {
        let one = simulation.node(pair * 2).endpoint.statistics(id).unwrap_or_default();
        all.data_chunks_retransmitted += one.data_chunks_retransmitted;
        all.fast_recoveries += one.fast_recoveries;
        all.timeouts += one.timeouts;
    }
    all
}

/// Returns the number of bytes that each receiver has.
fn received(simulation: &Simulation<Traffic>) -> Vec<u64> {
    (0..simulation.hosts())
        .skip(1)
        .step_by(2)
        .map(|host| simulation.node(host).app.received().bytes)
        .collect()
}

/// Returns Jain's index (Jain, Chiu and Hawe, 1984): 1 if all are equal, 1/n if one has everything.
fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 { 0.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_before_the_measurement_has_no_outcome() {
        let case = &cases(&Options::default())[0];
        let mut progress = |_| false;
        let mut watch = Watch { progress: Some(&mut progress), ..Watch::default() };
        assert_eq!(case.run(&mut watch).expect("nothing is captured"), []);
    }

    #[test]
    fn the_index_is_jains() {
        assert_eq!(jain(&[5.0; 4]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert!((jain(&[1.0, 2.0]) - 0.9).abs() < 1e-12);
        assert_eq!(jain(&[0.0]), 0.0);
    }
}
