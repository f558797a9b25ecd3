//! One association that sends as much as possible over one line.

use std::time::Duration;

use netsim::{CaptureError, PipeConfig};
use sctp::congestion::Algorithm;
use sctp::{AssociationConfig, Statistics, Time};

use super::limit::{limit_bits_per_s, payload_bytes};
use super::transfer::{Setup, Transfer};
use super::{Case, Outcome, Watch};
use crate::traffic::Source;

/// Approximate number of samples of one run.
const SAMPLES: u32 = 400;
/// A file that has not arrived after this multiple of its ideal time is given up.
const PATIENCE: u32 = 20;

/// The data to send.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Load {
    /// A file of this many bytes.
    File(u64),
    /// Endless data, whose amount is recorded after each of these times.
    Endless(Vec<Duration>),
}

/// One association on one line.
#[derive(Clone, Debug)]
pub(super) struct Bulk {
    pub(super) name: String,
    pub(super) seed: u64,
    /// Both directions of the line.
    pub(super) line: PipeConfig,
    pub(super) algorithm: Algorithm,
    pub(super) send_buffer_bytes: usize,
    pub(super) receive_buffer_bytes: usize,
    pub(super) load: Load,
    pub(super) predicted_bits_per_s: Option<f64>,
    /// Published outcomes of the same test after this many seconds.
    pub(super) published: fn(&Bulk, f64) -> Vec<Outcome>,
}

impl Case for Bulk {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&self, watch: &mut Watch<'_>) -> Result<Vec<Outcome>, CaptureError> {
        let mut transfer = Transfer::start(self.setup(), watch)?;
        let outcomes = match &self.load {
            Load::File(bytes) => self.file(&mut transfer, *bytes, watch),
            Load::Endless(marks) => self.endless(&mut transfer, marks, watch),
        };
        transfer.stop()?;
        Ok(outcomes)
    }
}

impl Bulk {
    fn setup(&self) -> Setup<'_> {
        let config = AssociationConfig {
            send_buffer_bytes: self.send_buffer_bytes,
            receive_buffer_bytes: self.receive_buffer_bytes,
            congestion: self.algorithm,
            ..AssociationConfig::default()
        };
        let source = match self.load {
            Load::File(bytes) => Source::file(bytes, payload_bytes()),
            Load::Endless(_) => {
                Source::Endless { message_bytes: payload_bytes(), until: Time::from_nanos(u64::MAX) }
            }
        };
        let lines = std::slice::from_ref(&self.line);
        Setup { seed: self.seed, lines, config, source, gaps_from: Time::ZERO }
    }

    /// Returns an outcome of this case.
    fn outcome(&self, seconds: f64, bytes: u64, statistics: &Statistics) -> Outcome {
        let outcome = Outcome {
            case: self.name.clone(),
            transport: "sctp".to_owned(),
            algorithm: Some(self.algorithm.name()),
            seconds,
            bits_per_s: bytes as f64 * 8.0 / seconds,
            limit_bits_per_s: limit_bits_per_s(&self.line),
            predicted_bits_per_s: self.predicted_bits_per_s,
            ..Outcome::default()
        };
        outcome.counted(statistics)
    }

    fn file(&self, transfer: &mut Transfer, bytes: u64, watch: &mut Watch<'_>) -> Vec<Outcome> {
        let needed = Duration::from_secs_f64(bytes as f64 * 8.0 / limit_bits_per_s(&self.line));
        let slice = needed / SAMPLES;
        let mut interrupted = false;
        while transfer.received().bytes < bytes
            && !interrupted
            && transfer.now() < Time::ZERO + needed * PATIENCE
        {
            transfer.run_for(slice);
            interrupted = !watch.goes_on(transfer.received().bytes as f64 / bytes as f64);
        }
        let received = transfer.received();
        let seconds =
            received.last_at.map_or(transfer.now_s(), |at| at.saturating_since(Time::ZERO).as_secs_f64());
        let ours = self.outcome(seconds, received.bytes, &transfer.statistics());
        self.finish(transfer, ours, interrupted)
    }

    fn endless(&self, transfer: &mut Transfer, marks: &[Duration], watch: &mut Watch<'_>) -> Vec<Outcome> {
        let whole = marks.last().copied().unwrap_or_default();
        let slice = whole / SAMPLES;
        let mut outcomes = Vec::new();
        for &mark in marks {
            let mut interrupted = false;
            while transfer.now() < Time::ZERO + mark && !interrupted {
                let left = (Time::ZERO + mark).saturating_since(transfer.now());
                transfer.run_for(slice.min(left));
                interrupted = !watch.goes_on(transfer.now_s() / whole.as_secs_f64());
            }
            let bytes = transfer.received().bytes;
            let ours = self.outcome(transfer.now_s(), bytes, &transfer.statistics());
            outcomes.extend(self.finish(transfer, ours, interrupted));
            if interrupted {
                break;
            }
        }
        outcomes
    }

    fn finish(&self, transfer: &Transfer, ours: Outcome, interrupted: bool) -> Vec<Outcome> {
        let seconds = ours.seconds;
        let ours = Outcome { interrupted, trace: transfer.trace().to_vec(), ..ours };
        std::iter::once(ours).chain((self.published)(self, seconds)).collect()
    }
}

/// Outcomes of other authors.
pub(super) fn published(bulk: &Bulk, figures: Vec<super::published::Figure>) -> Vec<Outcome> {
    let outcome = |figure: super::published::Figure| Outcome {
        case: bulk.name.clone(),
        transport: figure.transport,
        seconds: figure.seconds,
        bits_per_s: figure.bits_per_s,
        limit_bits_per_s: limit_bits_per_s(&bulk.line),
        published: true,
        ..Outcome::default()
    };
    figures.into_iter().map(outcome).collect()
}
