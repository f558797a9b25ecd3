//! `lab check`: measures the lines on this host.

mod probe;

use std::fmt::Write as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emulator::EmulatorCounts;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use netns::private::Limits;
use netsim::Loss;
use serde::Serialize;

use super::args::CheckArgs;
use super::hosts::{End, Hosts, UNLIMITED_BITS_PER_S, one_way_delay};
use super::report::{HOST_DROP_SHARE_MAX, LATE_MAX, ms, processors, us};
use super::spec::PathSpec;
use super::{LineError, build};
use crate::interrupt;
use crate::lab::progress_bar;
use crate::output::note;
use crate::units::mbits;
use probe::{Flood, Received};

/// Minimum share of its rate that a line must carry.
const RATE_SHARE_MIN: f64 = 0.99;
/// Number of directions of a path, each with a row.
const DIRECTIONS: usize = 2;
/// Interval between movements of the bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Measurements of one direction of a path.
#[derive(Debug, Serialize)]
struct Row {
    clock: &'static str,
    path: usize,
    line: String,
    to: &'static str,
    /// `None` for a line without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bits_per_s: Option<u64>,
    bits_per_s: f64,
    delay_ms: f64,
    delay_ms_p50: f64,
    delay_ms_p99: f64,
    line_packets: u64,
    line_dropped_packets: u64,
    line_lost_packets: u64,
    host_dropped_packets: u64,
    late_us_p50: f64,
    late_us_p99: f64,
    emulator_cpu: f64,
    /// Whether the emulator had a real-time priority.
    realtime: bool,
}

/// Measures each path, and fails if this host cannot hold one of them.
pub(super) fn run(args: &CheckArgs, limits: &Limits) -> Result<(), LineError> {
    let mut json = args.json.open()?;
    let mut hosts = build(&args.line, limits)?;
    let mut rows = Vec::new();
    let flood = Duration::from_secs_f64(args.seconds);
    let whole = args.line.paths.iter().map(|spec| duration(spec, flood)).sum();
    let progress = Progress::begin(args.line.paths.len(), whole);
    for (number, spec) in args.line.paths.iter().enumerate() {
        progress.show(number, &spec.text);
        let measured = measure(&mut hosts, number, spec, flood, args.line.seed)?;
        if interrupt::requested() {
            break;
        }
        rows.extend(measured);
    }
    drop(progress);
    // Figures of a measurement that was cut short say nothing about the host.
    let unmeasured = &args.line.paths[rows.len() / DIRECTIONS..];
    if !unmeasured.is_empty() {
        note(format_args!("interrupted: {}", names_of(unmeasured)));
    }
    match rows.is_empty() {
        true => json.write_nothing()?,
        false => json.write_beside(&table(&rows, hosts.device), &rows)?,
    }
    let complaints: Vec<String> = rows.iter().filter_map(Row::complaint).collect();
    if complaints.is_empty() {
        return Ok(());
    }
    let advice = if rows.iter().all(|row| row.realtime) {
        "end what else runs, or lower the rate"
    } else {
        "end what else runs, lower the rate, or run this as root, for real-time priority"
    };
    Err(LineError::TooMuch(format!("{}; {advice}", complaints.join("; "))))
}

/// Returns the approximate duration of the measurement of a path.
fn duration(spec: &PathSpec, flood: Duration) -> Duration {
    let delay = one_way_delay(spec, spec.mtu_bytes);
    DIRECTIONS as u32 * probe::delays_duration(delay) + probe::flood_duration(flood, delay)
}

/// A bar on the terminal that moves with the time while paths are measured. Dropping it removes the bar.
struct Progress {
    bar: ProgressBar,
    paths: usize,
    /// The thread that moves the bar ends when this is closed.
    done: Option<Sender<()>>,
    mover: Option<JoinHandle<()>>,
}

impl Progress {
    /// Prints how long so many paths take together, and shows the bar.
    fn begin(paths: usize, whole: Duration) -> Self {
        let named = if paths == 1 { "1 path".to_owned() } else { format!("{paths} paths") };
        note(format_args!("{named}: about {:.0} s", whole.as_secs_f64().ceil()));
        let bar = progress_bar(whole.as_millis() as u64);
        let (done, is_done) = channel();
        let (moved, began) = (bar.clone(), Instant::now());
        let mover = thread::spawn(move || {
            while is_done.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                moved.set_position(began.elapsed().min(whole).as_millis() as u64);
            }
        });
        Progress { bar, paths, done: Some(done), mover: Some(mover) }
    }

    /// Shows which path is measured.
    fn show(&self, number: usize, name: &str) {
        self.bar.set_message(format!("path {} of {}: {name}", number + 1, self.paths));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done = None;
        if let Some(mover) = self.mover.take() {
            let _ = mover.join();
        }
        self.bar.finish_and_clear();
    }
}

/// Names paths without a measurement.
fn names_of(paths: &[PathSpec]) -> String {
    let names: Vec<&str> = paths.iter().map(|path| path.text.as_str()).collect();
    format!("no measurement of {}", names.join(" and "))
}

fn measure(
    hosts: &mut Hosts,
    number: usize,
    spec: &PathSpec,
    time: Duration,
    seed: u64,
) -> Result<Vec<Row>, LineError> {
    hosts.restart(seed)?;
    let directions = [End::Server, End::Client];
    let delay = one_way_delay(spec, spec.mtu_bytes);
    let mut delays = Vec::new();
    for to in directions {
        delays.push(probe::delays(hosts, number, to, delay).map_err(LineError::Probe)?);
    }
    hosts.restart(seed)?;
    let flood = Flood { bits_per_s: offered_rate(spec), mtu_bytes: spec.mtu_bytes, time, delay };
    let received = thread::scope(|scope| {
        let both = directions.map(|to| {
            let hosts = &*hosts;
            scope.spawn(move || probe::flood(hosts, number, to, flood))
        });
        both.map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (counts, host_dropped) = hosts.counts()?;
    let mut rows = Vec::new();
    for ((to, received), delays) in directions.into_iter().zip(received).zip(&delays) {
        let received = received.map_err(LineError::Probe)?;
        rows.push(row((number, spec, to), delays, received, &counts, host_dropped));
    }
    Ok(rows)
}

/// Returns the rate to send at to fill a line: a little more than it carries, and more again for its losses.
fn offered_rate(spec: &PathSpec) -> u64 {
    const MORE: f64 = 1.03;
    let loss = match &spec.pipe.loss {
        Loss::Random { probability } => probability.min(0.5),
        _ => 0.0,
    };
    (spec.pipe.rate_bits_per_s.unwrap_or(UNLIMITED_BITS_PER_S) as f64 * MORE / (1.0 - loss)) as u64
}

fn row(
    (number, spec, to): (usize, &PathSpec, End),
    delays: &Histogram<u64>,
    received: Received,
    counts: &EmulatorCounts,
    host_dropped: u64,
) -> Row {
    let line = &counts.paths[number].lines[if to == End::Server { 0 } else { 1 }];
    let delay_ms = |quantile| delays.value_at_quantile(quantile) as f64 / 1e6;
    // Time in which the line was down does not count.
    let down = spec.pipe.schedule.time_down(received.first..received.last);
    let time = (received.last - received.first).saturating_sub(down).as_secs_f64();
    Row {
        clock: "live",
        path: number + 1,
        line: spec.text.clone(),
        to: if to == End::Server { "server" } else { "client" },
        rate_bits_per_s: spec.pipe.rate_bits_per_s,
        bits_per_s: received.bits_on_line as f64 / time.max(1e-9),
        delay_ms: ms(one_way_delay(spec, probe::PROBE_BYTES)),
        delay_ms_p50: delay_ms(0.5),
        delay_ms_p99: delay_ms(0.99),
        line_packets: line.pipe.packets_offered,
        line_dropped_packets: line.pipe.packets_overflowed,
        line_lost_packets: line.pipe.packets_lost,
        host_dropped_packets: host_dropped,
        late_us_p50: us(counts.late.p50),
        late_us_p99: us(counts.late.p99),
        emulator_cpu: processors(counts),
        realtime: counts.realtime,
    }
}

impl Row {
    /// Describes the line's defect, if it has one.
    fn complaint(&self) -> Option<String> {
        let name = format!("path {} ({}) to the {}", self.path, self.line, self.to);
        if let Some(rate) = self.rate_bits_per_s
            && self.bits_per_s < rate as f64 * RATE_SHARE_MIN
        {
            let rates = [self.bits_per_s, rate as f64].map(mbits);
            return Some(format!("{name} carries {} of {} Mbit/s on this host", rates[0], rates[1]));
        }
        if self.late_us_p99 > us(LATE_MAX) {
            return Some(format!(
                "{name}: a packet in a hundred is {:.0} µs late on this host",
                self.late_us_p99
            ));
        }
        let delivered = self.line_packets - self.line_dropped_packets - self.line_lost_packets;
        if self.host_dropped_packets as f64 > delivered as f64 * HOST_DROP_SHARE_MAX {
            return Some(format!("{name}: this host itself dropped {} packets", self.host_dropped_packets));
        }
        None
    }
}

fn table(rows: &[Row], device: &str) -> String {
    let mut text = format!(
        "{:24} {:6} {:>14} {:>20} {:>14} {:>12} {:>12} {:>9}\n",
        "path",
        "to",
        "Mbit/s",
        "delay p50, p99 ms",
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
            "{:24} {:6} {:>14} {:>20} {:>14} {:>12.0} {:>12.0} {:>9.2}",
            row.line,
            row.to,
            format!("{} of {rate}", mbits(row.bits_per_s)),
            format!("{:.3}, {:.3}", row.delay_ms_p50, row.delay_ms_p99),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            clock: "live",
            path: 1,
            line: "100mbit".into(),
            to: "server",
            rate_bits_per_s: Some(100_000_000),
            bits_per_s: 99.9e6,
            delay_ms: 0.0,
            delay_ms_p50: 0.0,
            delay_ms_p99: 0.0,
            line_packets: 20_000,
            line_dropped_packets: 10_000,
            line_lost_packets: 0,
            host_dropped_packets: 5,
            late_us_p50: 5.0,
            late_us_p99: 900.0,
            emulator_cpu: 0.1,
            realtime: true,
        }
    }

    #[test]
    fn a_line_that_this_host_cannot_hold_is_named_with_the_reason() {
        assert_eq!(row().complaint(), None);
        let slow = Row { bits_per_s: 98.0e6, ..row() };
        let late = Row { late_us_p99: 1_001.0, ..row() };
        let lossy = Row { host_dropped_packets: 11, ..row() };
        for (row, word) in
            [(slow, "98.0 of 100 Mbit/s"), (late, "1001 µs late"), (lossy, "itself dropped 11")]
        {
            let complaint = row.complaint().expect("a complaint");
            assert!(complaint.contains(word) && complaint.contains("path 1 (100mbit)"), "{complaint}");
        }
    }

    #[test]
    fn a_lossy_line_is_offered_what_it_loses_on_top() {
        let rate = |text: &str| offered_rate(&text.parse().expect("a path"));
        assert_eq!(rate("100mbit"), 103_000_000);
        assert_eq!(rate("100mbit,loss=50%"), 206_000_000);
    }
}
