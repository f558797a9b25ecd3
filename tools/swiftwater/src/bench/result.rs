//! Rows of results: medians, and ratios within each round.

use std::ops::Not;

use serde::Serialize;

use super::plan::{Cell, Group};
use super::run::Run;
use super::series::Series;
use crate::host;
use crate::perf::client::{Outcome, per};
use crate::stats::median;

/// Conditions of the experiment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conditions {
    /// The version of this program.
    pub version: String,
    /// The commit from which this program was built.
    pub commit: Option<&'static str>,
    /// The release of the kernel.
    pub kernel: String,
    /// The model of the processors.
    pub processor: String,
    /// Number of processors that this program may use.
    pub processors: usize,
    /// The largest packet of the loopback device.
    pub loopback_packet_bytes: usize,
    /// Date of the start.
    pub date: String,
    /// Duration of each run.
    pub seconds_per_run: f64,
    /// The user has ended the command before all runs were done.
    pub stopped_early: bool,
}

impl Conditions {
    /// Returns the conditions on this machine, now.
    pub(crate) fn here(seconds_per_run: f64) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: host::COMMIT,
            kernel: host::kernel(),
            processor: host::processor_model(),
            processors: host::allowed_processors().len(),
            loopback_packet_bytes: host::loopback_packet_bytes(),
            date: host::now_rfc3339(),
            seconds_per_run,
            stopped_early: false,
        }
    }

    /// Returns the version and the commit of this program.
    pub(crate) fn build(&self) -> String {
        let commit = self.commit.map(|commit| format!(", commit {commit}"));
        self.version.clone() + &commit.unwrap_or_default()
    }
}

/// One measured cell: an object of the JSON array, a row of the table, a point of the figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub series: &'static str,
    pub cpus: usize,
    pub packet_bytes: usize,
    pub parallel: usize,
    pub message_bytes: usize,
    pub messages_per_s: f64,
    pub bits_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_tcp: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_tcp_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_tcp_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_udp_limit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us_p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us_mean: Option<f64>,
    pub sender_cpu_ns_per_message: f64,
    pub receiver_cpu_ns_per_message: f64,
    pub sender_cpu_ns_per_byte: f64,
    pub receiver_cpu_ns_per_byte: f64,
    pub sender_nice: i32,
    pub receiver_nice: i32,
    pub runs: usize,
    pub others_busy_processors: Option<f64>,
    pub seconds_per_run: f64,
    pub kernel: String,
    pub processor: String,
    pub date: String,
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<&'static str>,
    #[serde(skip_serializing_if = "Not::not")]
    pub stopped_early: bool,
}

/// The runs of one cell, one for each round; `None` where a run failed.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The cell.
    pub cell: Cell,
    /// One for each round.
    pub runs: Vec<Option<Run>>,
}

/// The cells of a group with their runs.
pub(crate) struct Results(Vec<Measured>);

impl Results {
    /// Returns results without measurements.
    pub(crate) fn new(group: &Group) -> Self {
        Self(group.cells.iter().map(|&cell| Measured { cell, runs: Vec::new() }).collect())
    }

    /// Adds a run of the cell of this index to the round. A run that failed leaves a gap.
    pub(crate) fn add(&mut self, index: usize, round: usize, run: Option<Run>) {
        let runs = &mut self.0[index].runs;
        runs.resize(round, None);
        runs.push(run);
    }

    /// Returns a row for each cell that has at least one run.
    pub(crate) fn rows(&self, conditions: &Conditions) -> Vec<Row> {
        self.0.iter().filter_map(|measured| self.row(measured, conditions)).collect()
    }

    fn row(&self, measured: &Measured, conditions: &Conditions) -> Option<Row> {
        let Cell { series, cpus, packet_cap, parallel, message_bytes, .. } = measured.cell;
        let runs: Vec<&Outcome> = measured.runs.iter().flatten().map(|run| &run.outcome).collect();
        let others_busy: Vec<f64> =
            measured.runs.iter().flatten().filter_map(|run| run.others_busy).collect();
        let last = runs.last()?;
        let middle = |value: &dyn Fn(&Outcome) -> f64| {
            median(&runs.iter().map(|run| value(run)).collect::<Vec<f64>>()).unwrap_or(0.0)
        };
        let latency = |value: &dyn Fn(&crate::perf::client::Latency) -> f64| {
            let values: Vec<f64> = runs.iter().filter_map(|run| run.latency.as_ref().map(value)).collect();
            median(&values)
        };
        let to_tcp = match series.has_messages() {
            true => self.ratios(measured, |cell| cell.series == series.baseline()),
            false => Vec::new(),
        };
        let to_limit =
            self.ratios(measured, |cell| cell.series == Series::UdpLimit && cell.packet_cap == packet_cap);
        Some(Row {
            series: series.name(),
            cpus,
            packet_bytes: packet_cap.unwrap_or(conditions.loopback_packet_bytes),
            parallel,
            message_bytes,
            messages_per_s: middle(&Outcome::messages_per_s),
            bits_per_s: middle(&Outcome::bits_per_s),
            ratio_to_tcp: median(&to_tcp),
            ratio_to_tcp_min: to_tcp.iter().copied().reduce(f64::min),
            ratio_to_tcp_max: to_tcp.iter().copied().reduce(f64::max),
            ratio_to_udp_limit: if series.is_over_udp() { median(&to_limit) } else { None },
            latency_us_p50: latency(&|l| l.p50_us),
            latency_us_p99: latency(&|l| l.p99_us),
            latency_us_mean: latency(&|l| l.mean_us),
            sender_cpu_ns_per_message: middle(&|r| per(r.client.cpu_s * 1e9, r.server.messages as f64)),
            receiver_cpu_ns_per_message: middle(&|r| per(r.server.cpu_s * 1e9, r.server.messages as f64)),
            sender_cpu_ns_per_byte: middle(&|r| per(r.client.cpu_s * 1e9, r.server.bytes as f64)),
            receiver_cpu_ns_per_byte: middle(&|r| per(r.server.cpu_s * 1e9, r.server.bytes as f64)),
            sender_nice: last.client.nice,
            receiver_nice: last.server.nice,
            runs: runs.len(),
            others_busy_processors: median(&others_busy),
            seconds_per_run: conditions.seconds_per_run,
            kernel: conditions.kernel.clone(),
            processor: conditions.processor.clone(),
            date: conditions.date.clone(),
            version: conditions.version.clone(),
            commit: conditions.commit,
            stopped_early: conditions.stopped_early,
        })
    }

    /// Returns the ratios to the cell that `is_base` finds, one for each round in which both have a run: of rates, or of median
    /// latencies if the series measures those.
    fn ratios(&self, measured: &Measured, is_base: impl Fn(&Cell) -> bool) -> Vec<f64> {
        let Some(base) = self.0.iter().find(|other| is_base(&other.cell)) else { return Vec::new() };
        let value = |run: &Run| match &run.outcome.latency {
            Some(latency) => latency.p50_us,
            None => run.outcome.messages_per_s(),
        };
        let rounds = measured.runs.iter().zip(&base.runs);
        rounds
            .filter_map(|(ours, base)| Some((value(ours.as_ref()?), value(base.as_ref()?))))
            .filter(|&(_, base)| base > 0.0)
            .map(|(ours, base)| ours / base)
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::perf::control::Totals;

    fn outcome(messages_per_s: u64) -> Option<Run> {
        let totals = Totals {
            messages: messages_per_s,
            bytes: messages_per_s * 64,
            seconds: 1.0,
            cpu_s: 0.5,
            nice: 0,
        };
        let outcome = Outcome {
            client: totals,
            server: totals,
            latency: None,
            paths: Vec::new(),
            began: Default::default(),
            interrupted: false,
            link: None,
        };
        Some(Run { outcome, others_busy: Some(0.5) })
    }

    pub(crate) fn conditions() -> Conditions {
        Conditions {
            version: "0.1.0".into(),
            commit: Some("0123456789abcdef"),
            kernel: "6.18".into(),
            processor: "a </script> processor".into(),
            processors: 2,
            loopback_packet_bytes: 65_536,
            date: "2026-11-21T00:00:00Z".into(),
            seconds_per_run: 1.0,
            stopped_early: false,
        }
    }

    /// Returns rows of `tcp`, `tcp-batched` and `udp-limit` at some sizes.
    pub(crate) fn rows(sizes: &[usize]) -> Vec<Row> {
        let mut rows = Vec::new();
        for &message_bytes in sizes {
            let cell = |series, packet_cap| Cell {
                series,
                cpus: 2,
                packet_cap,
                buffer_bytes: None,
                parallel: 1,
                message_bytes,
            };
            let cells = vec![
                cell(Series::Tcp, None),
                cell(Series::TcpBatched, None),
                cell(Series::UdpLimit, None),
                cell(Series::UdpLimit, Some(1500)),
            ];
            let mut results = Results::new(&Group { cells });
            for (round, factor) in [1, 2, 3].into_iter().enumerate() {
                results.add(0, round, outcome(1_000_000 * factor));
                results.add(1, round, outcome(4_000_000 * factor));
                results.add(2, round, outcome(8_000_000));
                results.add(3, round, if round == 1 { None } else { outcome(2_000_000) });
            }
            rows.extend(results.rows(&conditions()));
        }
        rows
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let rows = rows(&[64]);
        assert_eq!(rows[0].ratio_to_tcp, Some(1.0));
        assert_eq!(rows[0].messages_per_s, 2_000_000.0);
        // The machine became three times as fast from round to round, which leaves the ratio unchanged.
        assert_eq!((rows[1].ratio_to_tcp, rows[1].ratio_to_tcp_max), (Some(4.0), Some(4.0)));
        assert_eq!((rows[2].ratio_to_tcp, rows[2].ratio_to_tcp_max), (None, None), "it has no messages");
        assert_eq!(rows[2].ratio_to_udp_limit, Some(1.0));
    }

    #[test]
    fn a_failed_run_is_left_out_of_its_round_only() {
        let rows = rows(&[64]);
        assert_eq!((rows[3].runs, rows[3].packet_bytes), (2, 1500));
        assert_eq!((rows[3].messages_per_s, rows[3].ratio_to_udp_limit), (2_000_000.0, Some(1.0)));
    }

    #[test]
    fn rows_are_flat_and_have_the_documented_keys() {
        let documented = include_str!("../../../../docs/json.md");
        for row in rows(&[64]) {
            let value = serde_json::to_value(&row).expect("a row is JSON");
            for (key, value) in value.as_object().expect("an object") {
                assert!(!value.is_object() && !value.is_array(), "{key} is not flat");
                assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
            }
            for key in ["series", "cpus", "packet_bytes", "message_bytes", "messages_per_s", "bits_per_s"] {
                assert!(value.get(key).is_some(), "{key} is missing");
            }
            let object = value.as_object().expect("an object");
            assert!(object.values().all(|value| !value.is_null()), "a key that does not apply is missing");
            assert_eq!(object.contains_key("ratio_to_tcp"), row.series != "udp-limit");
        }
    }
}
