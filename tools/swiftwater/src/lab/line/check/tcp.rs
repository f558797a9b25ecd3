//! `lab check --tcp`: the rate of the kernel's TCP on lines that lose packets at random, beside that of theory.
//!
//! A line that loses too little or too much shows here, and so does one that treats a super-packet as one packet: TCP then meets
//! fewer losses than theory says.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use lab::experiment::predicted_window_packets;
use netns::private::Limits;
use netsim::{Loss, PipeConfig};

use serde::Serialize;
use socket2::SockRef;
use swiftwater::CongestionControl;

use super::numbered;
use super::probe::CHECK_INTERVAL;
use super::progress::{Progress, note_unmeasured};
use crate::interrupt;
use crate::lab::line::args::CheckArgs;
use crate::lab::line::hosts::{End, Hosts, address, one_way_delay};
use crate::lab::line::report::{LATE_MAX, advice, ms, us};
use crate::lab::line::spec::PathSpec;
use crate::lab::line::{LineError, build};
use crate::output::note;
use crate::sockets;
use crate::stats::confidence_interval;
use crate::units::{grouped, mbits};

/// Congestion controls whose rate theory predicts, by their names in the kernel.
const CONTROLS: [(&str, CongestionControl); 2] =
    [("reno", CongestionControl::NewReno), ("cubic", CongestionControl::Cubic)];
/// Largest difference from theory.
const DIFFERENCE_MAX: f64 = 0.1;
/// Losses that a measurement waits for, in both directions together. Theory is given the losses that happened, so chance has
/// little part in the ratio.
const LOSSES: f64 = 400.0;
/// Losses below which a ratio may be chance.
const LOSSES_MIN: u64 = 200;
/// Standard deviations by which the number of losses may differ from its mean.
const DEVIATIONS_MAX: f64 = 4.0;
/// Losses of a direction after which the slow start is forgotten.
const WARM_UP_LOSSES: f64 = 20.0;
/// Share of a line's rate above which the queue, and not the losses, determine the rate.
const RATE_SHARE_MAX: f64 = 0.7;
/// Smallest window that theory describes: with fewer packets, timeouts repair losses.
const WINDOW_PACKETS_MIN: f64 = 4.0;
/// Parts of a measurement of a direction, whose rates give the confidence interval.
const PARTS: usize = 5;
/// Headers of IPv4, and of TCP with timestamps.
const HEADERS_BYTES: usize = 20 + 32;
/// Bytes of a write or a read.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// Measurement of a congestion control on a path: the mean of both directions.
#[derive(Clone, Debug, Serialize)]
struct Row {
    clock: &'static str,
    path: usize,
    line: String,
    transport: String,
    seconds: f64,
    loss: f64,
    /// Packets of data, and those of them that the lines lost: the prediction is that for their share, and for the round-trip
    /// time that the senders saw on average.
    data_packets: u64,
    lost_packets: u64,
    round_trip_ms: f64,
    bits_per_s: f64,
    bits_per_s_low: f64,
    bits_per_s_high: f64,
    /// `None` if no packet was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_bits_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_predicted: Option<f64>,
    /// Counts of both lines.
    line_packets: u64,
    line_lost_packets: u64,
    line_dropped_packets: u64,
    host_dropped_packets: u64,
    late_us_p99: f64,
    realtime: bool,
}

/// Theory of a congestion control on a line.
#[derive(Clone, Copy, Debug)]
struct Theory {
    algorithm: CongestionControl,
    loss: f64,
    payload_bytes: usize,
    /// Time between two losses of a direction, at the round-trip time of the empty line.
    loss_interval: Duration,
}

impl Theory {
    /// Returns what theory says about a path, or why it says nothing.
    fn new(spec: &PathSpec, algorithm: CongestionControl) -> Result<Self, String> {
        let Loss::Random { probability: loss } = spec.pipe.loss else {
            return Err("it has no random losses; add loss=0.1%".into());
        };
        let PipeConfig { rate_bits_per_s, delay, queue_bytes, queue_packets, .. } = spec.pipe;
        let plain = PipeConfig {
            rate_bits_per_s,
            delay,
            queue_bytes,
            queue_packets,
            loss: spec.pipe.loss.clone(),
            ..PipeConfig::default()
        };
        if spec.pipe != plain {
            return Err(
                "theory knows a rate, a delay and random losses only; leave the other words out".into()
            );
        }
        // One way a full packet, the other an acknowledgement.
        let round_trip = one_way_delay(spec, spec.mtu_bytes) + one_way_delay(spec, HEADERS_BYTES);
        let packets_per_s = predicted_window_packets(algorithm, loss, round_trip.as_secs_f64())
            .filter(|window| *window >= WINDOW_PACKETS_MIN && !spec.pipe.delay.is_zero())
            .map(|window| window / round_trip.as_secs_f64())
            .ok_or("theory needs a delay and losses of at most some percent")?;
        let line_packets_per_s =
            rate_bits_per_s.map_or(f64::INFINITY, |rate| rate as f64 / 8.0 / spec.mtu_bytes as f64);
        if packets_per_s > line_packets_per_s * RATE_SHARE_MAX {
            return Err("its rate is a limit as well; raise the rate, the delay or the loss".into());
        }
        Ok(Theory {
            algorithm,
            loss,
            payload_bytes: spec.mtu_bytes - HEADERS_BYTES,
            loss_interval: Duration::from_secs_f64(1.0 / (packets_per_s * loss)),
        })
    }

    /// Returns the rate of payload at a round-trip time and a share of losses, unless there are none.
    fn bits_per_s(&self, round_trip: Duration, loss: f64) -> Option<f64> {
        let round_trip_s = round_trip.as_secs_f64();
        let window = predicted_window_packets(self.algorithm, loss, round_trip_s)?;
        Some(window * self.payload_bytes as f64 * 8.0 / round_trip_s)
    }

    /// Returns the part of the transfers that is measured: `seconds` or, without them, the time of [`LOSSES`].
    fn window(&self, seconds: Option<f64>) -> Range<Duration> {
        let begin = self.loss_interval.mul_f64(WARM_UP_LOSSES);
        let time = seconds.map_or(self.loss_interval.mul_f64(LOSSES / 2.0), Duration::from_secs_f64);
        begin..begin + time
    }
}

/// Measures each path with each congestion control, and fails if a rate is not that of theory.
pub(super) fn run(args: &CheckArgs, limits: &Limits) -> Result<(), LineError> {
    let mut json = args.json.open()?;
    let mut plans = Vec::new();
    for (number, spec) in args.line.paths.iter().enumerate() {
        for (control, algorithm) in CONTROLS {
            let theory = Theory::new(spec, algorithm)
                .map_err(|reason| LineError::NoTheory { path: spec.text.clone(), reason })?;
            match sockets::offers(None, Some(control)) {
                Ok(()) => plans.push((number, control, theory)),
                Err(error) => note(format_args!("without {control}: {error}")),
            }
        }
    }
    let mut hosts = build(&args.line, limits)?;
    let whole = plans.iter().map(|(.., theory)| theory.window(args.seconds).end).sum();
    let progress = Progress::begin(args.line.paths.len(), whole);
    let mut rows = Vec::new();
    for &(number, control, theory) in &plans {
        let spec = &args.line.paths[number];
        progress.show_path(number, &format!("{}, {control}", spec.text));
        hosts.restart(args.line.seed)?;
        let window = theory.window(args.seconds);
        let transfers = transfers(&hosts, number, control, &window).map_err(LineError::Probe)?;
        if interrupt::requested() {
            break;
        }
        rows.push(row(&hosts, number, spec, control, theory, &window, &transfers)?);
    }
    drop(progress);
    let unmeasured = plans.get(rows.len()).map_or(&[][..], |(number, ..)| &args.line.paths[*number..]);
    note_unmeasured(unmeasured.iter().map(|spec| spec.text.as_str()));
    match rows.is_empty() {
        true => json.write_nothing()?,
        false => json.write_beside(&table(&rows), &rows)?,
    }
    let complaints: Vec<String> = rows.iter().filter_map(Row::complaint).collect();
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(LineError::TooMuch(complaints.join("; "))),
    }
}

/// Measurement of one direction.
#[derive(Clone, Debug)]
struct Transfer {
    /// Rates in the parts of the window, as the receiver sees them.
    rates: [f64; PARTS],
    /// Mean of the round-trip times that the sender saw.
    round_trip: Duration,
}

/// Transfers data in both directions of a path at the same time.
fn transfers(
    hosts: &Hosts,
    path: usize,
    control: &str,
    window: &Range<Duration>,
) -> io::Result<[Transfer; 2]> {
    thread::scope(|scope| {
        let both = [End::Server, End::Client]
            .map(|to| scope.spawn(move || transfer(hosts, path, to, control, window)));
        let [first, second] =
            both.map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        Ok([first?, second?])
    })
}

/// Transfers data to an end of a path.
fn transfer(
    hosts: &Hosts,
    path: usize,
    to: End,
    control: &str,
    window: &Range<Duration>,
) -> io::Result<Transfer> {
    let listener = hosts.host(to).run(|| TcpListener::bind((address(path, to), 0)))??;
    let server = listener.local_addr()?;
    let sender = hosts.host(to.other()).run(|| TcpStream::connect(server))??;
    let (receiver, _) = listener.accept()?;
    SockRef::from(&sender).set_tcp_congestion(control.as_bytes())?;
    sender.set_write_timeout(Some(CHECK_INTERVAL))?;
    receiver.set_read_timeout(Some(CHECK_INTERVAL))?;
    let start = Instant::now();
    thread::scope(|scope| {
        let sending = scope.spawn(move || send(sender, start, window));
        // The sender ends when the receiver closes.
        let rates = receive(receiver, start, window)?;
        let round_trip = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Transfer { rates, round_trip })
    })
}

/// Sends until the receiver closes or Ctrl-C. Returns the mean round-trip time within the window.
fn send(mut sender: TcpStream, start: Instant, window: &Range<Duration>) -> Duration {
    let buffer = vec![0; BUFFER_BYTES];
    let (mut sum, mut count) = (Duration::ZERO, 0);
    while !interrupt::requested() && sender.write(&buffer).is_ok_or_waits() {
        if window.contains(&start.elapsed())
            && let Ok(state) = links::tcp_window(sender.as_fd())
        {
            sum += state.srtt;
            count += 1;
        }
    }
    sum / count.max(1)
}

/// Whether a call may be repeated.
pub(super) trait Repeats {
    fn is_ok_or_waits(&self) -> bool;
}

impl Repeats for io::Result<usize> {
    fn is_ok_or_waits(&self) -> bool {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        self.as_ref()
            .map_or_else(|error| matches!(error.kind(), WouldBlock | TimedOut | Interrupted), |_| true)
    }
}

fn receive(mut receiver: TcpStream, start: Instant, window: &Range<Duration>) -> io::Result<[f64; PARTS]> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let part = (window.end - window.start) / PARTS as u32;
    let mut bytes = [0; PARTS];
    while !interrupt::requested() {
        let read = receiver.read(&mut buffer);
        let at = start.elapsed();
        if at >= window.end {
            break;
        }
        match read {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                if let Some(since) = at.checked_sub(window.start) {
                    let place = (since.as_nanos() / part.as_nanos().max(1)) as usize;
                    bytes[place.min(PARTS - 1)] += count;
                }
            }
            Err(_) if read.is_ok_or_waits() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.map(|bytes| bytes as f64 * 8.0 / part.as_secs_f64()))
}

fn row(
    hosts: &Hosts,
    number: usize,
    spec: &PathSpec,
    control: &str,
    theory: Theory,
    window: &Range<Duration>,
    transfers: &[Transfer; 2],
) -> Result<Row, LineError> {
    let (counts, host_dropped_packets) = hosts.counts()?;
    let lines = &counts.paths[number].lines;
    let sum = |count: fn(&netsim::PipeStats) -> u64| lines.iter().map(|line| count(&line.pipe)).sum();
    let rates: Vec<f64> = transfers.iter().flat_map(|transfer| transfer.rates).collect();
    let round_trip = transfers.iter().map(|transfer| transfer.round_trip).sum::<Duration>() / 2;
    let data = [End::Server, End::Client].map(|to| {
        let flows = lines[to.line()].flows.iter().map(|(_, flow)| *flow);
        flows.max_by_key(|flow| flow.bytes_delivered).unwrap_or_default()
    });
    let data_packets: u64 = data.iter().map(|flow| flow.packets_offered).sum();
    let lost_packets: u64 = data.iter().map(|flow| flow.packets_lost).sum();
    let share = lost_packets as f64 / data_packets.max(1) as f64;
    let predicted_bits_per_s = theory.bits_per_s(round_trip, share);
    let bits_per_s = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let (low, high) = confidence_interval(&rates).unwrap_or((bits_per_s, bits_per_s));
    Ok(Row {
        clock: "live",
        path: number + 1,
        line: spec.text.clone(),
        transport: format!("tcp-{control}"),
        seconds: (window.end - window.start).as_secs_f64(),
        loss: theory.loss,
        data_packets,
        lost_packets,
        round_trip_ms: ms(round_trip),
        bits_per_s,
        bits_per_s_low: low,
        bits_per_s_high: high,
        predicted_bits_per_s,
        ratio_to_predicted: predicted_bits_per_s.map(|predicted| bits_per_s / predicted),
        line_packets: sum(|pipe| pipe.packets_offered),
        line_lost_packets: sum(|pipe| pipe.packets_lost),
        line_dropped_packets: sum(|pipe| pipe.packets_overflowed),
        host_dropped_packets,
        late_us_p99: us(counts.late.p99),
        realtime: counts.realtime,
    })
}

impl Row {
    /// Describes the difference from theory, if it is too large.
    fn complaint(&self) -> Option<String> {
        let Row { path, line, transport, .. } = self;
        let name = format!("path {path} ({line}): {transport}");
        let expected = self.data_packets as f64 * self.loss;
        let deviation = (expected * (1.0 - self.loss)).sqrt();
        if (self.lost_packets as f64 - expected).abs() > DEVIATIONS_MAX * deviation {
            let [lost, all] = [self.lost_packets, self.data_packets].map(grouped);
            return Some(format!(
                "{name} lost {lost} of {all} packets, which is not the share that the line says"
            ));
        }
        let (Some(predicted), Some(ratio)) = (self.predicted_bits_per_s, self.ratio_to_predicted) else {
            return Some(format!("{name} lost no packet: measure longer with --seconds"));
        };
        if (ratio - 1.0).abs() <= DIFFERENCE_MAX {
            return None;
        }
        let rates = [self.bits_per_s, predicted].map(mbits);
        let reasons = self.reasons().join("; ");
        Some(format!("{name} has {} Mbit/s, and theory says {}; {reasons}", rates[0], rates[1]))
    }

    /// Returns all possible reasons of the difference, with what to do.
    fn reasons(&self) -> Vec<String> {
        let late = (self.late_us_p99 > us(LATE_MAX)).then(|| {
            format!("packets are late by up to {:.0} µs: {}", self.late_us_p99, advice(self.realtime))
        });
        let dropped = (self.line_dropped_packets > 0).then(|| {
            format!(
                "{} packets were dropped at the full queue, and theory counts random losses only: name a longer queue=",
                grouped(self.line_dropped_packets)
            )
        });
        let few = (self.lost_packets < LOSSES_MIN).then(|| {
            format!("with {} losses that may be chance: measure longer with --seconds", self.lost_packets)
        });
        let reasons: Vec<String> = [late, dropped, few].into_iter().flatten().collect();
        if reasons.is_empty() { vec!["the packets do not fare as the line says".to_owned()] } else { reasons }
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:28} {:10} {:>8} {:>8} {:>10} {:>16} {:>10} {:>9} {:>16} {:>8} {:>12}\n",
        "path",
        "transport",
        "seconds",
        "RTT ms",
        "Mbit/s",
        "95 % interval",
        "theory",
        "ratio",
        "lost packets",
        "dropped",
        "late p99 µs"
    );
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:28} {:10} {:>8.0} {:>8.2} {:>10} {:>16} {:>10} {:>9} {:>16} {:>8} {:>12.0}",
            numbered(row.path, &row.line),
            row.transport,
            row.seconds,
            row.round_trip_ms,
            mbits(row.bits_per_s),
            format!("{} .. {}", mbits(row.bits_per_s_low), mbits(row.bits_per_s_high)),
            row.predicted_bits_per_s.map_or("none".to_owned(), mbits),
            row.ratio_to_predicted.map_or("none".to_owned(), |ratio| format!("{ratio:.3}")),
            format!("{} of {}", row.lost_packets, row.data_packets),
            row.line_dropped_packets,
            row.late_us_p99,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theory(path: &str, algorithm: CongestionControl) -> Result<Theory, String> {
        Theory::new(&path.parse().expect("a path"), algorithm)
    }

    #[test]
    fn theory_says_what_mathis_and_rfc_9438_say() {
        for (_, algorithm) in CONTROLS {
            // 1.22 packets of 1448 bytes in 20.1 ms, by the root of a thousandth; CUBIC is in its Reno-friendly region.
            let theory = theory("100mbit,10ms,loss=0.1%", algorithm).expect("a prediction");
            let rate = theory.bits_per_s(Duration::from_micros(20_100), 0.001).expect("losses");
            assert!((rate / 22.32e6 - 1.0).abs() < 0.001, "{rate}");
            // Twice the losses: a rate lower by the root of two.
            let lower = theory.bits_per_s(Duration::from_micros(20_100), 0.002).expect("losses");
            assert!((rate / lower / 2f64.sqrt() - 1.0).abs() < 1e-9, "{lower}");
            assert!((theory.loss_interval.as_secs_f64() / 0.52 - 1.0).abs() < 0.01, "{theory:?}");
        }
        // CUBIC's own region: 1.054 · (0.2 / 0.0001)^0.75 packets in 0.2 s.
        let far = theory("1gbit,100ms,loss=0.01%", CongestionControl::Cubic).expect("a prediction");
        let rate = far.bits_per_s(Duration::from_millis(200), 0.0001).expect("losses");
        assert!((rate / 18.26e6 - 1.0).abs() < 0.001, "{rate}");
        assert_eq!(far.bits_per_s(Duration::from_millis(200), 0.0), None);
    }

    #[test]
    fn paths_that_theory_says_nothing_about_are_refused() {
        for (path, words) in [
            ("100mbit,10ms", "loss=0.1%"),
            ("100mbit,10ms,loss=1%,burst=3", "loss=0.1%"),
            ("100mbit,10ms,loss=0.1%,jitter=1ms", "leave the other words out"),
            ("10mbit,10ms,loss=0.1%", "raise the rate"),
            ("loss=1%", "needs a delay"),
            ("10ms,loss=50%", "some percent"),
        ] {
            let reason = theory(path, CongestionControl::NewReno).expect_err("refused");
            assert!(reason.contains(words), "{path}: {reason}");
        }
    }

    #[test]
    fn a_measurement_waits_for_as_many_losses_as_its_mean_needs() {
        let theory = theory("100mbit,10ms,loss=0.1%", CongestionControl::NewReno).expect("a prediction");
        let window = theory.window(None);
        let losses = |time: Duration| time.as_secs_f64() / theory.loss_interval.as_secs_f64();
        assert_eq!([window.start, window.end - window.start].map(losses).map(f64::round), [20.0, 200.0]);
        let short = theory.window(Some(7.0));
        assert_eq!(short.end - short.start, Duration::from_secs(7));
    }

    #[test]
    fn a_rate_far_from_theory_is_named_with_the_reason() {
        let row = |bits_per_s: f64, lost_packets: u64, late_us_p99| Row {
            clock: "live",
            path: 1,
            line: "100mbit,10ms,loss=0.1%".into(),
            transport: "tcp-reno".into(),
            seconds: 200.0,
            loss: 0.001,
            data_packets: 1_000 * lost_packets,
            lost_packets,
            round_trip_ms: 20.1,
            bits_per_s,
            bits_per_s_low: bits_per_s,
            bits_per_s_high: bits_per_s,
            predicted_bits_per_s: Some(20e6),
            ratio_to_predicted: Some(bits_per_s / 20e6),
            line_packets: 0,
            line_lost_packets: 0,
            line_dropped_packets: 0,
            host_dropped_packets: 0,
            late_us_p99,
            realtime: true,
        };
        for near in [18.1e6, 21.9e6] {
            assert_eq!(row(near, 200, 0.0).complaint(), None);
        }
        let lossy = Row { lost_packets: 260, ..row(20e6, 200, 0.0) };
        let full = Row { line_dropped_packets: 276, ..row(17e6, 70, 0.0) };
        let lossless = Row { predicted_bits_per_s: None, ratio_to_predicted: None, ..row(90e6, 0, 0.0) };
        for (row, words) in [
            (row(96e6, 200, 0.0), "96.0 Mbit/s, and theory says 20.0; the packets do not fare"),
            (row(23e6, 50, 0.0), "with 50 losses that may be chance"),
            (row(17e6, 200, 1_500.0), "late by up to 1500 µs"),
            (full, "276 packets were dropped at the full queue"),
            (lossy, "lost 260 of 200,000 packets, which is not the share"),
            (lossless, "lost no packet: measure longer"),
        ] {
            let complaint = row.complaint().expect("a complaint");
            assert!(complaint.contains(words) && complaint.contains("path 1"), "{complaint}");
        }
        let all = Row { line_dropped_packets: 276, ..row(17e6, 70, 1_500.0) };
        let complaint = all.complaint().expect("a complaint");
        for words in ["late by up to 1500 µs", "276 packets were dropped", "with 70 losses"] {
            assert!(complaint.contains(words), "{complaint}");
        }
    }
}
