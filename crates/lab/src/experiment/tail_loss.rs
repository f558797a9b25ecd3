//! Losses that no later packet reveals: the last packet of a burst, and a retransmission.

use std::time::Duration;

use bytes::Bytes;
use netsim::{CaptureError, Network, PipeConfig};
use sctp::congestion::Algorithm;
use sctp::{AssociationConfig, AssociationId, Time};
use sctp_wire::Packet;
use sctp_wire::chunk::Data;

use super::limit::{limit_bits_per_s, payload_bytes, round_trip_bytes};
use super::{Case, Options, Outcome, Watch};
use crate::simulation::Simulation;
use crate::traffic::{Source, Traffic};
use crate::wire::{Outgoing, Wire};

const RATE_BITS_PER_S: u64 = 100_000_000;
const ROUND_TRIP: Duration = Duration::from_millis(50);
const BURST_PACKETS: u64 = 4;
/// Time from the burst that measures the round-trip time to the measured burst.
const APART: Duration = Duration::from_millis(500);
/// Packets of the file whose retransmission is lost, and the number of that retransmission.
const FILE_PACKETS: u64 = 2000;
const LOST_PACKET: u64 = 700;
/// Time after which every repair is done.
const PATIENCE: Duration = Duration::from_secs(60);

/// The packets that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The last packet of a burst.
    Last,
    /// A packet of a file, and its retransmission.
    Twice,
}

/// One loss and its repair.
#[derive(Clone, Copy, Debug)]
struct Repair {
    seed: u64,
    lost: Lost,
}

pub(super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    [Lost::Last, Lost::Twice]
        .map(|lost| Box::new(Repair { seed: options.seed, lost }) as Box<dyn Case>)
        .into()
}

impl Case for Repair {
    fn name(&self) -> String {
        match self.lost {
            Lost::Last => "last packet of a burst of 4 lost, 50 ms".to_owned(),
            Lost::Twice => "a packet and its retransmission lost, 50 ms".to_owned(),
        }
    }

    fn run(&self, watch: &mut Watch<'_>) -> Result<Vec<Outcome>, CaptureError> {
        let mut simulation: Simulation<Traffic> = Simulation::new(self.seed);
        watch.start_trace(&mut simulation);
        let hosts = [1, 2].map(|last| simulation.add_host(&[[10, 0, 0, last].into()], Traffic::default()));
        simulation.node_mut(hosts[1]).app.keeps_times = true;
        simulation.join(hosts[0], hosts[1], &line());
        simulation.listen(hosts[1], 5001, AssociationConfig::default());
        let id = simulation.connect(hosts[0], hosts[1], (5000, 5001), AssociationConfig::default());
        watch.start_capture(&mut simulation)?;
        let outcome = match self.lost {
            Lost::Last => self.last(&mut simulation, id),
            Lost::Twice => self.twice(&mut simulation, id),
        };
        simulation.network.stop_capture()?;
        Ok(vec![outcome])
    }
}

fn line() -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(RATE_BITS_PER_S),
        delay: ROUND_TRIP / 2,
        queue_bytes: round_trip_bytes(RATE_BITS_PER_S, ROUND_TRIP.as_secs_f64()),
        ..PipeConfig::default()
    }
}

impl Repair {
    /// Runs two bursts, each a message of four packets; the first burst arrives whole.
    fn last(&self, simulation: &mut Simulation<Traffic>, id: AssociationId) -> Outcome {
        let first = Time::ZERO + APART;
        let bytes = payload_bytes() * BURST_PACKETS as usize;
        simulation.node_mut(0).app.start(id, Source::bursts(2, first, APART, 1, bytes));
        let mut losing = Losing { packet: BURST_PACKETS * 2 - 1, left: 1, first_tsn: None };
        let seconds = self.complete(simulation, &mut losing, 2, first + APART);
        self.outcome(simulation, id, seconds, bytes as u64)
    }

    fn twice(&self, simulation: &mut Simulation<Traffic>, id: AssociationId) -> Outcome {
        let bytes = FILE_PACKETS * payload_bytes() as u64;
        simulation.node_mut(0).app.start(id, Source::file(bytes, payload_bytes()));
        let mut losing = Losing { packet: LOST_PACKET, left: 2, first_tsn: None };
        let seconds = self.complete(simulation, &mut losing, FILE_PACKETS, Time::ZERO);
        Outcome { round_trips: None, ..self.outcome(simulation, id, seconds, bytes) }
    }

    /// Returns the seconds from `start` until this many messages have arrived.
    fn complete(
        &self,
        simulation: &mut Simulation<Traffic>,
        losing: &mut Losing,
        messages: u64,
        start: Time,
    ) -> f64 {
        let end = Time::ZERO + PATIENCE;
        while simulation.node(1).app.received().messages < messages && simulation.step(end, losing) {}
        let done = simulation.node(1).app.received().last_at.unwrap_or(end);
        done.saturating_since(start).as_secs_f64()
    }

    fn outcome(
        &self,
        simulation: &Simulation<Traffic>,
        id: AssociationId,
        seconds: f64,
        bytes: u64,
    ) -> Outcome {
        let outcome = Outcome {
            case: self.name(),
            transport: "sctp".to_owned(),
            algorithm: Some(Algorithm::default().name()),
            seconds,
            bits_per_s: bytes as f64 * 8.0 / seconds,
            limit_bits_per_s: limit_bits_per_s(&line()),
            round_trips: Some(seconds / ROUND_TRIP.as_secs_f64()),
            ..Outcome::default()
        };
        outcome.counted(&simulation.statistics(0, id))
    }
}

/// Loses the packets that carry one DATA chunk, this many times.
#[derive(Debug)]
struct Losing {
    /// The number of the chunk, from 0.
    packet: u64,
    left: u32,
    first_tsn: Option<u32>,
}

impl Losing {
    fn loses(&mut self, packet: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(packet) else { return false };
        let mut hit = false;
        for chunk in packet.chunks().flatten().filter(|chunk| chunk.kind == Data::KIND) {
            let Ok(data) = Data::parse(&chunk) else { continue };
            let first = *self.first_tsn.get_or_insert(data.tsn.0);
            hit |= u64::from(data.tsn.0.wrapping_sub(first)) == self.packet;
        }
        hit
    }
}

impl Wire for Losing {
    fn emit(&mut self, packet: Outgoing, network: &mut Network<Bytes>) {
        if packet.by == 0 && self.left > 0 && self.loses(&packet.packet) {
            self.left -= 1;
        } else {
            packet.enter(network);
        }
    }
}
