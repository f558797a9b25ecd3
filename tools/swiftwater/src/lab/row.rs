//! Outcomes as JSON.

use ::lab::experiment::Outcome;
use serde::Serialize;

use super::live::Figures;

/// Clock of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Virtual,
    Live,
}

impl Clock {
    fn name(self) -> &'static str {
        match self {
            Clock::Virtual => "virtual",
            Clock::Live => "live",
        }
    }
}

/// Where an outcome comes from, with what it has beside the outcome.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Measured in real time.
    Live(Box<Figures>),
    /// Simulated, with the seed of all random numbers.
    Virtual { seed: u64 },
    /// Published by others, and shown beside an experiment on this clock.
    Published(Clock),
}

impl Source {
    /// Returns the figures of a measurement.
    pub(super) fn figures(&self) -> Option<&Figures> {
        match self {
            Source::Live(figures) => Some(figures),
            Source::Virtual { .. } | Source::Published(_) => None,
        }
    }

    fn seed(&self) -> Option<u64> {
        match *self {
            Source::Virtual { seed } => Some(seed),
            Source::Live(_) | Source::Published(_) => None,
        }
    }

    fn clock(&self) -> Clock {
        match *self {
            Source::Live(_) => Clock::Live,
            Source::Virtual { .. } => Clock::Virtual,
            Source::Published(clock) => clock,
        }
    }
}

/// One outcome; docs/json.md describes the keys.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    experiment: &'static str,
    clock: &'static str,
    case: &'a str,
    transport: &'a str,
    published: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    bits_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bits_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_limit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_bits_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_predicted: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jain_index: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trips: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_paths: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_path_bits_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_best_path: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum_of_paths_bits_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_sum_of_paths: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_in_10_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_ms_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    back_ms_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returns: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returns_missed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_missing: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retransmissions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_recoveries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeouts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_tcp: Option<f64>,
    #[serde(flatten)]
    figures: Option<&'a Figures>,
    interrupted: bool,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
}

impl<'a> Row<'a> {
    /// Returns the row of an outcome.
    pub(super) fn new(experiment: &'static str, outcome: &'a Outcome, source: &'a Source) -> Self {
        let figures = source.figures();
        Row {
            experiment,
            clock: source.clock().name(),
            case: &outcome.case,
            transport: &outcome.transport,
            published: matches!(source, Source::Published(_)),
            algorithm: outcome.algorithm,
            seconds: (outcome.seconds > 0.0).then_some(outcome.seconds),
            bits_per_s: outcome.bits_per_s,
            limit_bits_per_s: outcome.has_limit().then_some(outcome.limit_bits_per_s),
            ratio_to_limit: outcome.has_limit().then(|| outcome.share()),
            predicted_bits_per_s: outcome.predicted_bits_per_s,
            ratio_to_predicted: outcome.predicted_bits_per_s.map(|predicted| outcome.bits_per_s / predicted),
            jain_index: outcome.fairness,
            round_trips: outcome.round_trips,
            message_bytes: outcome.message_bytes,
            mode: outcome.mode,
            paths: outcome.paths,
            path: outcome.path,
            used_paths: outcome.paths_text(),
            best_path_bits_per_s: outcome.best_path_bits_per_s,
            ratio_to_best_path: outcome.ratio_to_best_path(),
            sum_of_paths_bits_per_s: outcome.sum_of_paths_bits_per_s,
            ratio_to_sum_of_paths: outcome.ratio_to_sum_of_paths(),
            messages_in_10_s: outcome.messages_in_10_s,
            latency_us: outcome.latency_s.map(|seconds| seconds * 1e6),
            gap_ms_max: outcome.gap_s_max.map(|seconds| seconds * 1e3),
            back_ms_max: outcome.returns.and_then(|returns| returns.back_s_max).map(|seconds| seconds * 1e3),
            returns: outcome.returns.map(|returns| returns.count),
            returns_missed: outcome.returns.map(|returns| returns.missed),
            messages_missing: outcome.missing_messages,
            retransmissions: outcome.retransmissions,
            fast_recoveries: outcome.fast_recoveries,
            timeouts: outcome.timeouts,
            seed: source.seed(),
            ratio_to_tcp: figures.and_then(|figures| figures.ratio_to_tcp(outcome.bits_per_s)),
            figures,
            interrupted: outcome.interrupted,
            version: env!("CARGO_PKG_VERSION"),
            commit: crate::host::COMMIT,
        }
    }
}

#[cfg(test)]
mod tests {
    use ::lab::experiment::Returns;

    use super::*;

    #[test]
    fn a_row_has_the_clock_and_the_seed_of_its_source() {
        let outcome = Outcome::default();
        let row = |source: Source| {
            let row = serde_json::to_value(Row::new("datatag", &outcome, &source)).expect("JSON");
            (row["clock"].clone(), row["published"].clone(), row.get("seed").cloned())
        };
        assert_eq!(row(Source::Virtual { seed: 7 }), ("virtual".into(), false.into(), Some(7.into())));
        assert_eq!(row(Source::Published(Clock::Virtual)), ("virtual".into(), true.into(), None));
        assert_eq!(row(Source::Published(Clock::Live)), ("live".into(), true.into(), None));
    }

    #[test]
    fn a_line_that_was_not_used_again_differs_from_one_that_did_not_come_back() {
        let keys = |returns: Option<Returns>| {
            let outcome = Outcome { returns, ..Outcome::default() };
            let source = Source::Virtual { seed: 7 };
            let row = serde_json::to_value(Row::new("failover", &outcome, &source)).expect("JSON");
            ["returns", "returns_missed", "back_ms_max"].map(|key| row.get(key).cloned())
        };
        assert_eq!(keys(Returns::new([])), [None, None, None]);
        assert_eq!(keys(Returns::new([None])), [Some(1.into()), Some(1.into()), None]);
        assert_eq!(keys(Returns::new([Some(0.5)])), [Some(1.into()), Some(0.into()), Some(500.0_f64.into())]);
    }
}
