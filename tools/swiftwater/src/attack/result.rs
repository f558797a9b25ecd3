//! Rows of results: medians, and ratios within each pair.

use std::ops::Not;

use serde::Serialize;

use super::run::{Case, Processors, Run};
use crate::bench::Conditions;
use crate::stats::median;

/// One case: an object of the JSON array and a line of the table.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub flood: &'static str,
    pub packets_per_s: u64,
    #[serde(flatten)]
    pub live: Side,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    pub runs: usize,
    pub seconds_per_run: f64,
    pub victim_processors: String,
    pub peer_processors: String,
    pub flood_processors: String,
    pub kernel: String,
    pub processor: String,
    pub date: String,
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<&'static str>,
    #[serde(skip_serializing_if = "Not::not")]
    pub stopped_early: bool,
}

/// Measurements while the flood met the server, or nothing flooded.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Side {
    pub goodput_bits_per_s: f64,
    pub connects: usize,
    pub connects_failed: usize,
    pub connect_ms_p50: Option<f64>,
    pub connect_ms_p95: Option<f64>,
    pub associations_max: usize,
    pub resident_bytes_max: u64,
    pub resident_growth_bytes: f64,
}

/// The flood, and the comparison with its baseline.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Against {
    pub sent_packets_per_s: f64,
    pub packet_bytes: f64,
    pub received_packets: u64,
    pub dropped_packets: u64,
    pub answers: u64,
    pub answer_bytes: u64,
    pub amplification: f64,
    pub dead_port_sent_packets_per_s: f64,
    pub dead_port_goodput_bits_per_s: f64,
    pub dead_port_connect_ms_p50: Option<f64>,
    pub dead_port_connect_ms_p95: Option<f64>,
    pub dead_port_connects_failed: usize,
    pub dead_port_resident_growth_bytes: f64,
    pub ratio_to_dead_port: Option<f64>,
    pub ratio_to_dead_port_min: Option<f64>,
    pub ratio_to_dead_port_max: Option<f64>,
}

/// The rounds of one case: with the flood at the server, and if there is a flood, also at the dead port.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// The case.
    pub case: Case,
    /// Each round that gave a result.
    pub rounds: Vec<(Run, Option<Run>)>,
}

impl Measured {
    /// Returns a row, if there is at least one round.
    pub(super) fn row(&self, processors: &Processors, conditions: &Conditions) -> Option<Row> {
        let live: Vec<&Run> = self.rounds.iter().map(|(live, _)| live).collect();
        if live.is_empty() {
            return None;
        }
        Some(Row {
            flood: self.case.flood.map_or("none", super::flood::Flood::name),
            packets_per_s: self.case.packets_per_s,
            live: side(&live),
            against: self.case.flood.map(|_| self.against(&live)),
            runs: live.len(),
            seconds_per_run: conditions.seconds_per_run,
            victim_processors: list(&processors.victim),
            peer_processors: list(&processors.peers),
            flood_processors: list(&processors.flood),
            kernel: conditions.kernel.clone(),
            processor: conditions.processor.clone(),
            date: conditions.date.clone(),
            version: conditions.version.clone(),
            commit: conditions.commit,
            stopped_early: conditions.stopped_early,
        })
    }

    fn against(&self, live: &[&Run]) -> Against {
        let dead: Vec<&Run> = self.rounds.iter().filter_map(|(_, dead)| dead.as_ref()).collect();
        let ratios: Vec<f64> = self
            .rounds
            .iter()
            .filter_map(|(live, dead)| Some((live.goodput_bits_per_s, dead.as_ref()?.goodput_bits_per_s)))
            .filter(|&(_, dead)| dead > 0.0)
            .map(|(live, dead)| live / dead)
            .collect();
        let total = |count: fn(&Run) -> u64| live.iter().map(|run| count(run)).sum::<u64>();
        let (answer_bytes, received_bytes) = (total(Run::answer_bytes), total(Run::received_bytes));
        let baseline = side(&dead);
        Against {
            sent_packets_per_s: middle(live, Run::sent_packets_per_s),
            packet_bytes: middle(live, |run| run.sent.bytes as f64 / run.sent.packets.max(1) as f64),
            received_packets: total(Run::received_packets),
            dropped_packets: total(Run::dropped_packets),
            answers: total(Run::answers),
            answer_bytes,
            amplification: answer_bytes as f64 / received_bytes.max(1) as f64,
            dead_port_sent_packets_per_s: middle(&dead, Run::sent_packets_per_s),
            dead_port_goodput_bits_per_s: baseline.goodput_bits_per_s,
            dead_port_connect_ms_p50: baseline.connect_ms_p50,
            dead_port_connect_ms_p95: baseline.connect_ms_p95,
            dead_port_connects_failed: baseline.connects_failed,
            dead_port_resident_growth_bytes: baseline.resident_growth_bytes,
            ratio_to_dead_port: median(&ratios),
            ratio_to_dead_port_min: ratios.iter().copied().reduce(f64::min),
            ratio_to_dead_port_max: ratios.iter().copied().reduce(f64::max),
        }
    }
}

fn side(runs: &[&Run]) -> Side {
    let mut took_ms: Vec<f64> = runs.iter().flat_map(|run| run.connects.took_ms.iter().copied()).collect();
    took_ms.sort_by(f64::total_cmp);
    let failed = runs.iter().map(|run| run.connects.failed).sum();
    Side {
        goodput_bits_per_s: middle(runs, |run| run.goodput_bits_per_s),
        connects: took_ms.len() + failed,
        connects_failed: failed,
        connect_ms_p50: percentile(&took_ms, failed, 0.50),
        connect_ms_p95: percentile(&took_ms, failed, 0.95),
        associations_max: runs.iter().map(|run| run.after.associations).max().unwrap_or(0),
        resident_bytes_max: runs.iter().map(|run| run.after.resident_bytes_max).max().unwrap_or(0),
        resident_growth_bytes: middle(runs, |run| {
            run.after.resident_bytes as f64 - run.before.resident_bytes as f64
        }),
    }
}

fn middle(runs: &[&Run], value: impl Fn(&Run) -> f64) -> f64 {
    median(&runs.iter().map(|run| value(run)).collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// Returns the percentile, counting failures as longer than any success; `None` if it falls on a failure.
fn percentile(sorted: &[f64], failed: usize, share: f64) -> Option<f64> {
    let count = sorted.len() + failed;
    let rank = (count as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

fn list(processors: &[usize]) -> String {
    processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::caller::Connects;
    use super::super::flood::Flood;
    use super::super::generator::Sent;
    use super::super::victim::VictimState;
    use super::*;
    use crate::bench::result::tests::conditions;

    fn run(goodput_bits_per_s: f64, failed: usize) -> Run {
        let look = |attack_packets, answers| VictimState {
            attack_packets,
            attack_bytes: attack_packets * 60,
            answers,
            answer_bytes: answers * 120,
            associations: 7,
            resident_bytes: 1 << 20,
            resident_bytes_max: 2 << 20,
            ..VictimState::default()
        };
        Run {
            goodput_bits_per_s,
            connects: Connects { took_ms: vec![1.0, 2.0, 3.0], failed },
            sent: Sent { packets: 2000, bytes: 120_000, seconds: 2.0 },
            before: look(500, 100),
            after: look(2500, 1100),
        }
    }

    /// Returns a row without a flood, and one with a flood.
    pub(crate) fn rows() -> Vec<Row> {
        let processors = Processors { victim: vec![0], peers: vec![1, 2], flood: vec![0] };
        let idle = Case { flood: None, packets_per_s: 0 };
        let data = Case { flood: Some(Flood::Data), packets_per_s: 100_000 };
        let rounds = vec![
            (run(2e9, 0), Some(run(4e9, 0))),
            (run(3e9, 1), Some(run(3e9, 0))),
            (run(1e9, 0), Some(run(5e9, 0))),
        ];
        let measured =
            [Measured { case: idle, rounds: vec![(run(6e9, 0), None)] }, Measured { case: data, rounds }];
        measured.iter().filter_map(|measured| measured.row(&processors, &conditions())).collect()
    }

    #[test]
    fn ratios_are_of_pairs_and_counters_of_the_run_alone() {
        let rows = rows();
        assert!(rows[0].against.is_none());
        let against = rows[1].against.as_ref().expect("a flood");
        assert_eq!(
            (against.ratio_to_dead_port, against.ratio_to_dead_port_min, against.ratio_to_dead_port_max),
            (Some(0.5), Some(0.2), Some(1.0))
        );
        assert_eq!((against.received_packets, against.answers), (3 * 2000, 3 * 1000));
        assert_eq!(
            (against.amplification, against.sent_packets_per_s, against.packet_bytes),
            (1.0, 1000.0, 60.0)
        );
    }

    #[test]
    fn a_peer_that_never_connected_took_longer_than_all_others() {
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0, 0.5), Some(2.0));
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0, 0.95), Some(3.0));
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 1, 0.95), None);
        assert_eq!(percentile(&[], 0, 0.95), None);
        let rows = rows();
        assert_eq!((rows[1].live.connects, rows[1].live.connects_failed), (10, 1));
        assert_eq!((rows[1].live.connect_ms_p50, rows[1].live.connect_ms_p95), (Some(2.0), None));
    }

    #[test]
    fn rows_are_flat_and_have_the_documented_keys() {
        let documented = include_str!("../../../../docs/json.md");
        for row in rows() {
            let value = serde_json::to_value(&row).expect("a row is JSON");
            for (key, value) in value.as_object().expect("an object") {
                assert!(!value.is_object() && !value.is_array(), "{key} is not flat");
                assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
            }
        }
    }
}
