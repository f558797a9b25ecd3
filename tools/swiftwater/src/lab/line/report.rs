//! Report on the packets of each flow.

use std::time::Duration;

use emulator::{EmulatorCounts, FlowCounts, FlowKey, LineCounts};
use netsim::{Loss, Schedule};
use serde::Serialize;

use super::hosts::{End, LineOf, address};
use super::spec::PathSpec;
use crate::output::note;
use crate::units::{grouped, milliseconds};

/// Limit for the lateness of 99 of 100 packets.
pub(in crate::lab) const LATE_MAX: Duration = Duration::from_millis(1);
/// Limit for the lateness of the median packet: the promise for the delay of each way.
pub(super) const LATE_P50_MAX: Duration = Duration::from_micros(200);
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
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_bytes_mean: Option<f64>,
    in_flight_packets: u64,
    lost_packets: u64,
    dropped_packets: u64,
    down_packets: u64,
    refused_packets: u64,
    damaged_packets: u64,
    copied_packets: u64,
    marked_packets: u64,
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
    write_us_max: f64,
}

/// Returns the flows of all paths, the largest first.
pub(super) fn rows(paths: &[PathSpec], counts: &EmulatorCounts, host_dropped: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((number, spec), path) in paths.iter().enumerate().zip(&counts.paths) {
        for (line, to) in path.lines.iter().zip([End::Server, End::Client]) {
            let mut flows: Vec<&(Option<FlowKey>, FlowCounts)> = line.flows.iter().collect();
            flows.sort_by_key(|(_, flow)| std::cmp::Reverse(flow.bytes_delivered));
            let row = |(key, flow): &(Option<FlowKey>, FlowCounts)| {
                Row::new(LineOf { number, spec, to }, *key, flow, line, counts, host_dropped)
            };
            rows.extend(flows.into_iter().map(row));
        }
    }
    rows
}

impl Row {
    fn new(
        LineOf { number, spec, to }: LineOf<'_>,
        key: Option<FlowKey>,
        flow: &FlowCounts,
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
            packet_bytes_mean: (flow.packets_delivered > 0)
                .then(|| flow.bytes_delivered as f64 / flow.packets_delivered as f64),
            in_flight_packets: flow.packets_in_flight,
            lost_packets: flow.packets_lost,
            dropped_packets: flow.packets_overflowed,
            down_packets: flow.packets_down,
            refused_packets: flow.packets_refused,
            damaged_packets: flow.packets_corrupted,
            copied_packets: flow.packets_duplicated,
            marked_packets: flow.packets_marked,
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
            write_us_max: us(counts.write_max),
        }
    }

    /// Renders the row as a line of text. A zero is told if the path could have made it another number.
    fn text(&self, spec: &PathSpec) -> String {
        let waited = |ms: f64| milliseconds((ms * 1e3) as u64);
        let pipe = &spec.pipe;
        let fates = [
            (self.lost_packets, pipe.loss != Loss::Never, "lost"),
            (self.dropped_packets, pipe.rate_bits_per_s.is_some(), "dropped at the full queue"),
            (self.down_packets, pipe.schedule != Schedule::AlwaysUp, "while the line was down"),
            (self.marked_packets, pipe.mark_above_bytes.is_some(), "marked"),
            (self.damaged_packets, pipe.corrupt_probability > 0.0, "damaged"),
            (self.copied_packets, pipe.duplicate_probability > 0.0, "copied"),
            (self.refused_packets, false, "refused by the host"),
            (self.in_flight_packets, false, "still on the way"),
        ];
        let fates = fates.into_iter().filter(|(packets, possible, _)| *packets > 0 || *possible);
        let fates: Vec<_> = fates.map(|(packets, _, fate)| format!("{} {fate}", grouped(packets))).collect();
        let fates = if fates.is_empty() { String::new() } else { format!("; {}", fates.join(", ")) };
        let mean =
            self.packet_bytes_mean.map(|bytes| format!(", {} in a packet", grouped(bytes.round() as u64)));
        let waited = match [self.wait_ms_mean, self.wait_ms_max].map(waited) {
            [_, most] if most == milliseconds(0) => String::new(),
            [mean, most] => format!("; waited {mean} on average, {most} at most"),
        };
        format!(
            "  {}: {} of {} packets delivered, {} bytes{}{fates}{waited}",
            self.flow.as_deref().unwrap_or("others"),
            grouped(self.delivered_packets),
            grouped(self.packets),
            grouped(self.delivered_bytes),
            mean.unwrap_or_default(),
        )
    }
}

/// Prints the rows of these paths beside the output of the programs.
pub(super) fn tell(
    paths: &[PathSpec],
    rows: &[Row],
    counts: &EmulatorCounts,
    host_dropped: u64,
    device: &str,
) {
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
            note(format_args!("{}", row.text(&paths[row.path - 1])));
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
    let late = [counts.late.p50, counts.late.p99];
    if let Some(sentence) = disturbance(late, host_dropped, delivered, counts.realtime) {
        note(format_args!("{sentence}"));
    }
}

/// Returns whether the line did not keep its promised delay, given the median and the 99th percentile of the packets' lateness.
pub(in crate::lab) fn is_late([p50, p99]: [Duration; 2]) -> bool {
    p50 > LATE_P50_MAX || p99 > LATE_MAX
}

/// Returns a sentence that says what to do if this host could not hold the lines.
fn disturbance(late: [Duration; 2], host_dropped: u64, delivered: u64, realtime: bool) -> Option<String> {
    let drops_too_much = host_dropped as f64 > delivered as f64 * HOST_DROP_SHARE_MAX;
    (is_late(late) || drops_too_much).then(|| {
        format!(
            "this machine could not hold these lines: {}; `swiftwater lab check` with the same paths measures what it can hold",
            advice(realtime)
        )
    })
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

    /// Returns the row of a flow on a path with this SPEC, as JSON and as text.
    fn told(spec: &str, flow: FlowCounts) -> (serde_json::Value, String) {
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
            write_max: Duration::ZERO,
            elapsed: Duration::from_secs(1),
            processor: Duration::ZERO,
            realtime: false,
        };
        let spec: PathSpec = spec.parse().expect("a path");
        let rows = rows(std::slice::from_ref(&spec), &counts, 0);
        (serde_json::to_value(&rows[0]).expect("JSON"), rows[0].text(&spec))
    }

    #[test]
    fn marked_damaged_and_copied_packets_of_a_flow_are_told() {
        let flow = FlowCounts {
            packets_offered: 3_000,
            packets_delivered: 2_000,
            bytes_delivered: 2_000_800,
            packets_corrupted: 1_200,
            packets_duplicated: 3,
            packets_marked: 558,
            packets_refused: 2,
            waited: Duration::from_secs(4),
            waited_max: Duration::from_millis(25),
            ..FlowCounts::default()
        };
        let (json, text) = told("1ms", flow);
        assert_eq!(json["damaged_packets"], 1_200);
        assert_eq!(json["copied_packets"], 3);
        assert_eq!(json["marked_packets"], 558);
        assert_eq!(json["refused_packets"], 2);
        assert_eq!(json["packet_bytes_mean"], 1_000.4);
        assert_eq!(
            text,
            "  others: 2,000 of 3,000 packets delivered, 2,000,800 bytes, 1,000 in a packet; 558 marked, 1,200 damaged, \
             3 copied, 2 refused by the host; waited 2.00 ms on average, 25.0 ms at most"
        );
    }

    #[test]
    fn zeros_are_told_of_what_the_path_can_do() {
        let (json, text) = told("1ms", FlowCounts::default());
        assert_eq!(text, "  others: 0 of 0 packets delivered, 0 bytes");
        assert_eq!(json.get("packet_bytes_mean"), None);
        let flow = FlowCounts { waited_max: Duration::from_nanos(400), ..FlowCounts::default() };
        assert_eq!(told("1ms", flow).1, text, "it would be printed as zero");
        let (_, text) =
            told("1mbit,loss=1%,down=1s/2s,ecn=20kB,corrupt=1%,duplicate=1%", FlowCounts::default());
        assert_eq!(
            text,
            "  others: 0 of 0 packets delivered, 0 bytes; 0 lost, 0 dropped at the full queue, 0 while the line was down, \
             0 marked, 0 damaged, 0 copied"
        );
    }

    #[test]
    fn a_host_that_is_late_or_loses_packets_is_told_what_to_do() {
        let (limits, more) = ([LATE_P50_MAX, LATE_MAX], Duration::from_micros(1));
        assert_eq!(disturbance(limits, 1, 1_000, false), None);
        for (late, dropped) in
            [([LATE_P50_MAX + more, LATE_MAX], 0), ([LATE_P50_MAX, LATE_MAX + more], 0), (limits, 2)]
        {
            for realtime in [false, true] {
                let sentence = disturbance(late, dropped, 1_000, realtime).expect("it is disturbed");
                assert!(sentence.contains("lower the rate"), "{sentence}");
                assert_eq!(sentence.contains("run this as root, for real-time priority"), !realtime);
            }
        }
    }
}
