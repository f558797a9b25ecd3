//! Report on the packets of each flow.

use std::time::Duration;

use emulator::{EmulatorCounts, FlowCounts, FlowKey, LineCounts};
use serde::Serialize;

use super::hosts::{End, address};
use super::spec::PathSpec;
use crate::output::note;
use crate::units::{grouped, milliseconds};

/// Limit for the lateness of 99 of 100 packets.
pub(in crate::lab) const LATE_MAX: Duration = Duration::from_millis(1);
/// Limit for the lateness of the median packet: the promise for the delay of each way.
const LATE_P50_MAX: Duration = Duration::from_micros(200);
/// Largest share of packets that the hosts may lose.
pub(super) const HOST_DROP_SHARE_MAX: f64 = 0.001;
/// Number of a line's flows in the text; the JSON has all.
const FLOWS_TOLD: usize = 10;

/// A flow on a path, and its line.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    clock: &'static str,
    path: usize,
    line: String,
    to: &'static str,
    /// `None` for other than IP packets, and for flows beyond those with counters of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<String>,
    packets: u64,
    delivered_packets: u64,
    delivered_bytes: u64,
    in_flight_packets: u64,
    lost_packets: u64,
    dropped_packets: u64,
    down_packets: u64,
    refused_packets: u64,
    damaged_packets: u64,
    copied_packets: u64,
    wait_ms_mean: f64,
    wait_ms_max: f64,
    line_packets: u64,
    line_dropped_packets: u64,
    line_lost_packets: u64,
    host_dropped_packets: u64,
    queue_ms_p50: f64,
    queue_ms_p95: f64,
    late_us_p50: f64,
    late_us_p99: f64,
    emulator_cpu: f64,
    long_turns: u64,
}

/// Returns the flows of all paths, the largest first.
pub(super) fn rows(paths: &[PathSpec], counts: &EmulatorCounts, host_dropped: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((number, spec), path) in paths.iter().enumerate().zip(&counts.paths) {
        for (line, to) in path.lines.iter().zip([End::Server, End::Client]) {
            let mut flows: Vec<&(Option<FlowKey>, FlowCounts)> = line.flows.iter().collect();
            flows.sort_by_key(|(_, flow)| std::cmp::Reverse(flow.bytes_delivered));
            let row = |(key, flow): &(Option<FlowKey>, FlowCounts)| {
                Row::new((number, spec, to), (*key, flow), line, counts, host_dropped)
            };
            rows.extend(flows.into_iter().map(row));
        }
    }
    rows
}

impl Row {
    fn new(
        (number, spec, to): (usize, &PathSpec, End),
        (key, flow): (Option<FlowKey>, &FlowCounts),
        line: &LineCounts,
        counts: &EmulatorCounts,
        host_dropped: u64,
    ) -> Self {
        Row {
            clock: "live",
            path: number + 1,
            line: spec.text.clone(),
            to: if to == End::Server { "server" } else { "client" },
            flow: key.map(|key| key.to_string()),
            packets: flow.packets_offered,
            delivered_packets: flow.packets_delivered,
            delivered_bytes: flow.bytes_delivered,
            in_flight_packets: flow.packets_in_flight,
            lost_packets: flow.packets_lost,
            dropped_packets: flow.packets_overflowed,
            down_packets: flow.packets_down,
            refused_packets: flow.packets_refused,
            damaged_packets: flow.packets_corrupted,
            copied_packets: flow.packets_duplicated,
            wait_ms_mean: ms(flow.waited_mean()),
            wait_ms_max: ms(flow.waited_max),
            line_packets: line.pipe.packets_offered,
            line_dropped_packets: line.pipe.packets_overflowed,
            line_lost_packets: line.pipe.packets_lost,
            host_dropped_packets: host_dropped,
            queue_ms_p50: ms(line.waited.p50),
            queue_ms_p95: ms(line.waited.p95),
            late_us_p50: us(counts.late.p50),
            late_us_p99: us(counts.late.p99),
            emulator_cpu: processors(counts),
            long_turns: counts.long_turns,
        }
    }

    /// Renders the row as a line of text.
    fn text(&self) -> String {
        let waited = |ms: f64| milliseconds((ms * 1e3) as u64);
        // Most lines neither damage nor copy packets.
        let odd = [(self.damaged_packets, "damaged"), (self.copied_packets, "copied")];
        let odd = odd.iter().filter(|(packets, _)| *packets > 0);
        let odd: String = odd.map(|(packets, what)| format!(", {} {what}", grouped(*packets))).collect();
        format!(
            "  {}: {} of {} packets delivered, {} bytes; {} lost, {} dropped at the full queue, {} while the line was down, \
             {} still on the way{odd}; waited {} on average, {} at most",
            self.flow.as_deref().unwrap_or("others"),
            grouped(self.delivered_packets),
            grouped(self.packets),
            grouped(self.delivered_bytes),
            grouped(self.lost_packets),
            grouped(self.dropped_packets),
            grouped(self.down_packets),
            grouped(self.in_flight_packets),
            waited(self.wait_ms_mean),
            waited(self.wait_ms_max),
        )
    }
}

/// Prints the rows beside the output of the programs.
pub(super) fn tell(rows: &[Row], counts: &EmulatorCounts, host_dropped: u64, device: &str) {
    for group in rows.chunk_by(|one, other| (one.path, one.to) == (other.path, other.to)) {
        let Some(first) = group.first() else { continue };
        let end = if first.to == "server" { End::Server } else { End::Client };
        note(format_args!(
            "path {} ({}) to the {}, {}:",
            first.path,
            first.line,
            first.to,
            address(first.path - 1, end)
        ));
        for row in group.iter().take(FLOWS_TOLD) {
            note(format_args!("{}", row.text()));
        }
        if group.len() > FLOWS_TOLD {
            note(format_args!("  and {} more flows: --json has them", group.len() - FLOWS_TOLD));
        }
    }
    let priority = if counts.realtime { "" } else { "; real-time priority is not permitted here" };
    note(format_args!(
        "emulator ({device}): {:.2} of a processor, late by {:.0} µs (p50), {:.0} µs (p99); the hosts themselves dropped \
         {} packets{priority}",
        processors(counts),
        us(counts.late.p50),
        us(counts.late.p99),
        grouped(host_dropped),
    ));
    let delivered = rows.iter().map(|row| row.delivered_packets).sum();
    if let Some(sentence) = disturbance([counts.late.p50, counts.late.p99], host_dropped, delivered) {
        note(format_args!("{sentence}"));
    }
}

/// Returns whether packets of which the median and the 99th percentile are so late were not on a line of the promised delay.
pub(in crate::lab) fn is_late([p50, p99]: [Duration; 2]) -> bool {
    p50 > LATE_P50_MAX || p99 > LATE_MAX
}

/// Returns a sentence that says what to do if this host could not hold the lines.
fn disturbance(late: [Duration; 2], host_dropped: u64, delivered: u64) -> Option<&'static str> {
    let drops_too_much = host_dropped as f64 > delivered as f64 * HOST_DROP_SHARE_MAX;
    (is_late(late) || drops_too_much).then_some(
        "this machine could not hold these lines: end what else runs, or lower the rate; `swiftwater lab check` with the same \
         paths measures what it can hold",
    )
}

/// Returns what to do about a host that does not hold a line.
pub(super) fn advice(realtime: bool) -> &'static str {
    match realtime {
        true => "end what else runs, or lower the rate",
        false => "end what else runs, lower the rate, or run this as root, for real-time priority",
    }
}

/// Returns the emulator's load on a processor.
pub(in crate::lab) fn processors(counts: &EmulatorCounts) -> f64 {
    counts.processor.as_secs_f64() / counts.elapsed.as_secs_f64().max(1e-9)
}

pub(in crate::lab) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(in crate::lab) fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_packets_and_copies_are_told_where_there_are_some() {
        let text = |packets_corrupted, packets_duplicated| {
            let flow = FlowCounts { packets_corrupted, packets_duplicated, ..FlowCounts::default() };
            let line = LineCounts {
                pipe: netsim::PipeStats::default(),
                packets_read: 0,
                packets_written: 0,
                memory_drops: 0,
                waited: Default::default(),
                flows: vec![(None, flow)],
            };
            let path = emulator::PathCounts { lines: [line.clone(), line], write_drops: 0, read_drops: 0 };
            let counts = EmulatorCounts {
                paths: vec![path],
                late: Default::default(),
                long_turns: 0,
                elapsed: Duration::from_secs(1),
                processor: Duration::ZERO,
                realtime: false,
            };
            let rows = rows(&["1ms".parse().expect("a path")], &counts, 0);
            let json = serde_json::to_value(&rows[0]).expect("JSON");
            assert_eq!(json["damaged_packets"], packets_corrupted);
            assert_eq!(json["copied_packets"], packets_duplicated);
            rows[0].text()
        };
        assert!(
            text(1_200, 3).contains("0 still on the way, 1,200 damaged, 3 copied; waited"),
            "{}",
            text(1_200, 3)
        );
        assert!(text(0, 0).contains("0 still on the way; waited"), "{}", text(0, 0));
    }

    #[test]
    fn a_host_that_is_late_or_loses_packets_is_told_what_to_do() {
        let (limits, more) = ([LATE_P50_MAX, LATE_MAX], Duration::from_micros(1));
        assert_eq!(disturbance(limits, 1, 1_000), None);
        for (late, dropped) in
            [([LATE_P50_MAX + more, LATE_MAX], 0), ([LATE_P50_MAX, LATE_MAX + more], 0), (limits, 2)]
        {
            let sentence = disturbance(late, dropped, 1_000).expect("it is disturbed");
            assert!(sentence.contains("lower the rate"), "{sentence}");
        }
    }
}
