//! `lab check`: measures the lines on this host.

mod load;
mod probe;
mod progress;
mod tcp;

use std::fmt::Write as _;
use std::time::Duration;

use emulator::FlowKey;
use netns::private::Limits;
use netsim::{Jitter, Loss, Reorder};
use serde::Serialize;

use super::args::CheckArgs;
use super::hosts::{End, Hosts, LineOf, UNLIMITED_BITS_PER_S, one_way_delay};
use super::report::{HOST_DROP_SHARE_MAX, LATE_MAX, LATE_P50_MAX, advice, ms, us};
use super::spec::PathSpec;
use super::{LineError, build};
use crate::interrupt;
use crate::output::note;
use crate::units::{grouped, mbits};
use load::{Carried, DIRECTIONS, Load, Loaded};
use probe::{Delays, Direction, Flood, ProbePlan};
use progress::{Progress, note_unmeasured};

/// Minimum share of its rate that a line must carry.
const RATE_SHARE_MIN: f64 = 0.99;
/// The flood exceeds what fills a line by this factor.
const FLOOD_FACTOR: f64 = 1.03;
/// Largest share of losses that the flood makes up for.
const LOSS_SHARE_MAX: f64 = 0.5;
/// Minimum number of packets whose random losses are close to their mean.
const MEAN_PACKETS_MIN: f64 = 2_000.0;
/// Minimum number of packets for a rate.
const RATE_PACKETS_MIN: f64 = 3.0;
/// Largest difference between the median delay and that of the line.
const DELAY_MS_MAX: f64 = 0.2;
/// Time of a flood without `--seconds`.
const FLOOD_SECONDS: f64 = 2.0;
/// Protocol number of the flood's flow.
const UDP: u8 = 17;

/// Measurements of one direction of a path under a load.
#[derive(Clone, Debug, Serialize)]
struct Row {
    clock: &'static str,
    load: Load,
    path: usize,
    line: String,
    to: &'static str,
    /// `None` for a line without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bits_per_s: Option<u64>,
    bits_per_s: f64,
    /// That of TCP, by its name in the kernel. `None` for datagrams.
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_control: Option<String>,
    delay_ms: f64,
    /// Largest median of the delays below that this host may have. `None` where they are not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms_p50_limit: Option<f64>,
    /// Measured before the load of this path alone. `None` if no datagram arrived, and for the loads of all paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms_p99: Option<f64>,
    /// The same while the other direction is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_delay_ms_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_delay_ms_p99: Option<f64>,
    /// Datagrams that the host took. TCP does not count its packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_packets: Option<u64>,
    /// Packets that the line delivered undamaged, with copies.
    delivered_packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_packets: Option<u64>,
    line_packets: u64,
    line_dropped_packets: u64,
    line_lost_packets: u64,
    host_dropped_packets: u64,
    late_us_p50: f64,
    late_us_p99: f64,
    emulator_cpu: f64,
    /// Whether the emulator had a real-time priority.
    realtime: bool,
    #[serde(skip)]
    expected: Expected,
}

/// Expected measurements of a line that the host holds.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    /// Rate of undamaged packets; `None` where the line has no limit, losses leave it idle at times, or the time is too short for
    /// a rate.
    bits_per_s: Option<f64>,
    /// Packets that the host sends at least, where the line has a limit.
    packets_sent: f64,
}

/// Measures each path alone and then all at the same time, and fails if this host cannot hold them.
pub(super) fn run(args: &CheckArgs, limits: &Limits) -> Result<(), LineError> {
    if args.tcp {
        return tcp::run(args, limits);
    }
    let mut json = args.json.open()?;
    let mut hosts = build(&args.line, limits)?;
    let paths = &args.line.paths;
    let time = Duration::from_secs_f64(args.seconds.unwrap_or(FLOOD_SECONDS));
    let mut plan: Vec<Step<'_>> =
        paths.iter().enumerate().map(|(number, spec)| Step::Path(number, spec)).collect();
    plan.extend(loads_of_all(paths.len()).map(Step::All));
    let progress = Progress::begin(paths.len(), plan.iter().map(|step| step.duration(paths, time)).sum());
    let (mut rows, mut unmeasured) = (Vec::new(), plan.iter());
    for step in &plan {
        match step {
            Step::Path(number, spec) => progress.show_path(*number, &spec.text),
            Step::All(_) => progress.show(step.name().to_owned()),
        }
        let measured = step.measure(&mut hosts, paths, time, args.line.seed)?;
        if interrupt::requested() {
            break;
        }
        unmeasured.next();
        rows.extend(measured);
    }
    drop(progress);
    note_unmeasured(unmeasured.map(Step::name));
    for spec in paths.iter().filter(|spec| flood(spec, time).packets() < RATE_PACKETS_MIN) {
        note(format_args!("{}: too few packets for a rate; measure longer with --seconds", spec.text));
    }
    match rows.is_empty() {
        true => json.write_nothing()?,
        false => json.write_beside(&table(&rows, hosts.device), &rows)?,
    }
    verdict(&rows)
}

/// Fails if a row has a defect.
fn verdict(rows: &[Row]) -> Result<(), LineError> {
    let complaints: Vec<String> = rows.iter().filter_map(Row::complaint).collect();
    if complaints.is_empty() {
        return Ok(());
    }
    let advice = advice(rows.iter().all(|row| row.realtime));
    Err(LineError::TooMuch(format!("{}; {advice}", complaints.join("; "))))
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// The path with this number, alone.
    Path(usize, &'a PathSpec),
    /// All paths at the same time.
    All(Load),
}

/// Returns the loads of all paths. The datagrams of one path are those of all.
fn loads_of_all(paths: usize) -> impl Iterator<Item = Load> {
    [Load::UdpAll, Load::TcpAll].into_iter().filter(move |load| paths > 1 || *load != Load::UdpAll)
}

impl Step<'_> {
    /// Returns what is measured.
    fn name(&self) -> &str {
        match self {
            Step::Path(_, spec) => &spec.text,
            Step::All(Load::TcpAll) => "all paths with TCP",
            Step::All(_) => "all paths together",
        }
    }

    /// Returns the approximate duration.
    fn duration(&self, paths: &[PathSpec], time: Duration) -> Duration {
        let flooded = |spec| probe::flood_duration(spec, time);
        match self {
            Step::Path(_, spec) => duration(spec, time),
            Step::All(Load::TcpAll) => time,
            Step::All(_) => paths.iter().map(flooded).max().unwrap_or_default(),
        }
    }

    fn measure(
        &self,
        hosts: &mut Hosts,
        paths: &[PathSpec],
        time: Duration,
        seed: u64,
    ) -> Result<Vec<Row>, LineError> {
        hosts.restart(seed)?;
        match self {
            Step::Path(number, spec) => measure(hosts, *number, spec, time, seed),
            Step::All(load) => {
                let floods: Vec<_> = paths.iter().map(|spec| flood(spec, time)).enumerate().collect();
                let loaded = match load {
                    Load::TcpAll => load::tcp(hosts, paths, time)?,
                    _ => load::flood(hosts, &floods)?,
                };
                let paths = paths.iter().enumerate().zip(&loaded.carried);
                let rows = paths.flat_map(|((number, spec), carried)| {
                    let row = |(to, carried): (End, &Carried)| {
                        row(LineOf { number, spec, to }, *load, None, carried, &loaded)
                    };
                    DIRECTIONS.into_iter().zip(carried).map(row).collect::<Vec<_>>()
                });
                Ok(rows.collect())
            }
        }
    }
}

/// Returns the approximate duration of the measurement of a path.
fn duration(spec: &PathSpec, time: Duration) -> Duration {
    let plan = ProbePlan::new(spec);
    let one_direction = plan.duration(spec) + probe::flood_duration(spec, plan.sending_time());
    one_direction * DIRECTIONS.len() as u32 + probe::flood_duration(spec, time)
}

/// Delays of one direction.
#[derive(Clone, Debug)]
struct DelaysOf {
    /// Those on an idle path.
    idle: Delays,
    /// Those while the other direction is full. The queue of this one is empty, so the line still has its own delay.
    loaded: Delays,
}

impl DelaysOf {
    fn measure(direction: Direction<'_>, spec: &PathSpec) -> std::io::Result<Self> {
        let plan = ProbePlan::new(spec);
        let idle = probe::delays(direction, plan)?;
        let loaded = probe::delays_beside_flood(direction, plan, flood(spec, plan.sending_time()))?;
        Ok(DelaysOf { idle, loaded })
    }
}

/// Measures a path alone: its delays, and then its rates. The lines are empty.
fn measure(
    hosts: &mut Hosts,
    number: usize,
    spec: &PathSpec,
    time: Duration,
    seed: u64,
) -> Result<Vec<Row>, LineError> {
    let mut delays = Vec::new();
    for to in DIRECTIONS {
        let direction = Direction { hosts, path: number, to };
        delays.push(DelaysOf::measure(direction, spec).map_err(LineError::Probe)?);
    }
    hosts.restart(seed)?;
    let loaded = load::flood(hosts, &[(number, flood(spec, time))])?;
    let lines = DIRECTIONS.into_iter().zip(&loaded.carried[0]).zip(&delays);
    let rows = lines.map(|((to, carried), delays)| {
        row(LineOf { number, spec, to }, Load::Udp, Some(delays), carried, &loaded)
    });
    Ok(rows.collect())
}

/// Returns a flood that fills a line: a little more than it carries, and more again for its losses.
fn flood(spec: &PathSpec, time: Duration) -> Flood {
    let loss = spec.pipe.loss.mean_share().min(LOSS_SHARE_MAX);
    let rate = spec.pipe.rate_bits_per_s.unwrap_or(UNLIMITED_BITS_PER_S) as f64;
    Flood { bits_per_s: (rate * FLOOD_FACTOR / (1.0 - loss)) as u64, mtu_bytes: spec.mtu_bytes, time }
}

fn row(
    LineOf { number, spec, to }: LineOf<'_>,
    load: Load,
    delays: Option<&DelaysOf>,
    carried: &Carried,
    loaded: &Loaded,
) -> Row {
    let Loaded { counts, host_dropped, processors, .. } = loaded;
    let line = &counts.paths[number].lines[to.line()];
    let delay_ms = |delays: Option<&Delays>, share| delays?.quantile(share).map(ms);
    let (idle, under_load) = (delays.map(|of| &of.idle), delays.map(|of| &of.loaded));
    let is_flood = |key: &Option<FlowKey>| key.is_some_and(|key| key.protocol == UDP);
    let others = line.flows.iter().filter(|(key, _)| !is_flood(key)).map(|(_, flow)| flow.packets_delivered);
    // A receiver drops damaged packets.
    let undamaged = line.pipe.packets_delivered.saturating_sub(line.pipe.packets_corrupted);
    let undamaged_share = undamaged as f64 / (line.pipe.packets_delivered as f64).max(1.0);
    let row = Row {
        clock: "live",
        load,
        path: number + 1,
        line: spec.text.clone(),
        to: to.name(),
        rate_bits_per_s: spec.pipe.rate_bits_per_s,
        bits_per_s: 0.0,
        congestion_control: None,
        delay_ms: ms(one_way_delay(spec, probe::PROBE_BYTES)),
        delay_ms_p50_limit: delays.map(|_| delay_ms_max(spec)),
        delay_ms_p50: delay_ms(idle, 0.5),
        delay_ms_p99: delay_ms(idle, 0.99),
        loaded_delay_ms_p50: delay_ms(under_load, 0.5),
        loaded_delay_ms_p99: delay_ms(under_load, 0.99),
        sent_packets: None,
        delivered_packets: undamaged,
        received_packets: None,
        line_packets: line.pipe.packets_offered,
        line_dropped_packets: line.pipe.packets_overflowed,
        line_lost_packets: line.pipe.packets_lost,
        host_dropped_packets: *host_dropped,
        late_us_p50: us(counts.late.p50),
        late_us_p99: us(counts.late.p99),
        emulator_cpu: *processors,
        realtime: counts.realtime,
        expected: Expected::default(),
    };
    match carried {
        Carried::Tcp { bits_per_s, congestion_control } => {
            Row { bits_per_s: *bits_per_s, congestion_control: Some(congestion_control.clone()), ..row }
        }
        Carried::Flood(flood, received) => {
            // Time in which the line was down does not count.
            let down = spec.pipe.schedule.time_down(received.first..received.last);
            let time = (received.last - received.first).saturating_sub(down).as_secs_f64();
            Row {
                bits_per_s: received.bits_on_line as f64 / time.max(1e-9),
                sent_packets: Some(received.packets_sent),
                delivered_packets: undamaged.saturating_sub(others.sum()),
                received_packets: Some(received.packets_received),
                expected: Expected::new(spec, *flood, undamaged_share),
                ..row
            }
        }
    }
}

/// Returns the largest median delay of a line that this host holds.
fn delay_ms_max(spec: &PathSpec) -> f64 {
    let jitter = match spec.pipe.jitter {
        Jitter::Uniform { max, .. } => max,
        _ => Duration::ZERO,
    };
    let reordered = match spec.pipe.reorder {
        Reorder::Late { probability, by } if probability >= 0.5 => by,
        _ => Duration::ZERO,
    };
    ms(one_way_delay(spec, probe::PROBE_BYTES) + jitter + reordered) + DELAY_MS_MAX
}

impl Expected {
    fn new(spec: &PathSpec, flood: Flood, undamaged_share: f64) -> Self {
        let rate = spec.pipe.rate_bits_per_s;
        let stays_full = match &spec.pipe.loss {
            Loss::Never => true,
            Loss::Random { probability } => {
                *probability <= LOSS_SHARE_MAX && flood.packets() >= MEAN_PACKETS_MIN
            }
            // A burst of losses is as long as it happens to be.
            _ => false,
        };
        Expected {
            bits_per_s: rate
                .filter(|_| stays_full && flood.packets() >= RATE_PACKETS_MIN)
                .map(|rate| rate as f64 * undamaged_share),
            packets_sent: if rate.is_some() { flood.packets() / FLOOD_FACTOR } else { 0.0 },
        }
    }
}

impl Row {
    /// Describes the line's defects, if it has any.
    fn complaint(&self) -> Option<String> {
        let Row { path, line, to, .. } = self;
        let name = format!("path {path} ({line}) to the {to}{}", self.load.circumstance());
        let defects = [self.rate_defect(), self.drop_defect(), self.time_defect()];
        let defects: Vec<String> = defects.into_iter().flatten().collect();
        (!defects.is_empty()).then(|| format!("{name} {}", defects.join(", and ")))
    }

    fn rate_defect(&self) -> Option<String> {
        match self.expected.bits_per_s {
            Some(expected) if self.bits_per_s < expected * RATE_SHARE_MIN => {
                // A rounded rate might be that which suffices.
                let least = RATE_SHARE_MIN * 100.0;
                let rates = [self.bits_per_s, expected].map(|rate| rate / 1e6);
                Some(format!(
                    "carries {:.2} of {:.2} Mbit/s on this host, less than {least:.0} %",
                    rates[0], rates[1]
                ))
            }
            None if (self.sent_packets? as f64) < self.expected.packets_sent * RATE_SHARE_MIN => {
                let [sent, expected] = [self.sent_packets?, self.expected.packets_sent as u64].map(grouped);
                Some(format!("is not filled by this host, which sends {sent} of {expected} packets"))
            }
            _ => None,
        }
    }

    fn drop_defect(&self) -> Option<String> {
        let delivered = self.delivered_packets as f64;
        if let Some(received) = self.received_packets
            && (received as f64) < delivered * (1.0 - HOST_DROP_SHARE_MAX)
        {
            let [received, delivered] = [received, self.delivered_packets].map(grouped);
            return Some(format!("delivered {delivered} packets, and this host received {received} of them"));
        }
        (self.host_dropped_packets as f64 > delivered * HOST_DROP_SHARE_MAX)
            .then(|| format!("has good packets that this host itself dropped: {}", self.host_dropped_packets))
    }

    fn time_defect(&self) -> Option<String> {
        if self.late_us_p99 > us(LATE_MAX) {
            return Some(format!(
                "is late: a packet in a hundred by {:.0} µs on this host",
                self.late_us_p99
            ));
        }
        if self.late_us_p50 > us(LATE_P50_MAX) {
            return Some(format!(
                "is late: every second packet by {:.0} µs on this host, more than {:.0}",
                self.late_us_p50,
                us(LATE_P50_MAX)
            ));
        }
        let medians =
            [(self.delay_ms_p50, ""), (self.loaded_delay_ms_p50, " while the other direction is full")];
        let limit = self.delay_ms_p50_limit?;
        medians.into_iter().find_map(|(median, when)| {
            let median = median.filter(|median| *median > limit)?;
            Some(format!(
                "has a delay of {median:.3} ms{when} on this host, in place of {:.3}",
                self.delay_ms
            ))
        })
    }

    /// Renders delays, which only the load of a path alone has.
    fn delays_text(&self, p50: Option<f64>, p99: Option<f64>) -> String {
        match (p50, p99) {
            (Some(p50), Some(p99)) => format!("{p50:.3}, {p99:.3}"),
            _ if self.load == Load::Udp => "none arrived".to_owned(),
            _ => String::new(),
        }
    }
}

fn table(rows: &[Row], device: &str) -> String {
    let mut text = format!(
        "{:24} {:6} {:7} {:>14} {:>11} {:>17} {:>17} {:>17} {:>14} {:>12} {:>12} {:>9}\n",
        "path",
        "to",
        "load",
        "Mbit/s",
        "p50 at most",
        "delay p50, p99 ms",
        "under load",
        "received",
        "lost, dropped",
        "late p50 µs",
        "late p99 µs",
        "processor"
    );
    for row in rows {
        let rate = row.rate_bits_per_s.map_or("any".to_owned(), |rate| mbits(rate as f64));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:24} {:6} {:7} {:>14} {:>11} {:>17} {:>17} {:>17} {:>14} {:>12.0} {:>12.0} {:>9.2}",
            numbered(row.path, &row.line),
            row.to,
            row.load.name(),
            format!("{} of {rate}", mbits(row.bits_per_s)),
            row.delay_ms_p50_limit.map_or(String::new(), |limit| format!("{limit:.3}")),
            row.delays_text(row.delay_ms_p50, row.delay_ms_p99),
            row.delays_text(row.loaded_delay_ms_p50, row.loaded_delay_ms_p99),
            row.received_packets
                .zip(row.sent_packets)
                .map_or(String::new(), |(received, sent)| format!("{received} of {sent}")),
            format!("{}, {}", row.line_lost_packets, row.line_dropped_packets),
            row.late_us_p50,
            row.late_us_p99,
            row.emulator_cpu,
        );
    }
    if let Some(row) = rows.first() {
        let priority =
            if row.realtime { "real-time priority" } else { "no real-time priority: it is not permitted" };
        let _ = writeln!(text, "devices: {device}; {priority}");
    }
    text
}

/// Returns a path as the tables name it: paths may have the same line.
fn numbered(path: usize, line: &str) -> String {
    format!("{path}: {line}")
}

#[cfg(test)]
mod tests;
