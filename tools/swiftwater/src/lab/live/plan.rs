//! Loads, series and lines of each live experiment.

use ::lab::experiment::{self, Mode, Network, Outcome, message_limit_bits_per_s};

use super::Settings;
use crate::lab::args::LiveName;
use crate::lab::line::spec::PathSpec;

/// Sizes of small and large writes.
const SIZES: &[usize] = &[64, 16384];
/// Sizes in OpenSS7's measurements.
const SIZES_OPENSS7: &[usize] = &[8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
/// Size of writes that fill many packets.
const LARGE_BYTES: usize = 16384;
/// The dissertation gives no size. Its latencies match this size at 10 Mbit/s.
const FLAPPING_BYTES: usize = 1024;
/// Sizes of sctplib's files in MB of 2^20 bytes, each with the receive buffers used.
const FILES_SCTPLIB: [(f64, &[usize]); 2] = [(114.3, &[655_335, 67_107_840]), (228.7, &[655_335])];
const MB_BYTES: f64 = 1_048_576.0;
/// Buffer in the transfer between two continents: iperf's -w 32M.
const BUFFER_DATATAG_BYTES: usize = 32 << 20;
/// Lengths of the runs between two continents, as far as our runs last.
const MARKS_DATATAG_S: &[u64] =
    &[10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300, 400, 500, 600, 1200, 1800, 2400, 3000, 3600];
/// Limit for the measurement of a latency over lines that stay up with `--quick`: hundreds of answers in any case.
const LATENCY_SECONDS_QUICK: f64 = 2.0;
/// Headers of IPv4 and of TCP with timestamps.
const TCP_HEADERS_BYTES: f64 = 52.0;

/// Duration of measurements: by default, with `--quick` and with `--full`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seconds {
    usual: f64,
    quick: f64,
    full: f64,
}

impl Seconds {
    const fn new(usual: f64, quick: f64) -> Self {
        Seconds { usual, quick, full: usual }
    }

    /// Returns the duration that the user asks for.
    pub(super) fn of(self, quick: bool, full: bool) -> f64 {
        match (quick, full) {
            (true, _) => self.quick,
            (_, true) => self.full,
            _ => self.usual,
        }
    }
}

const SECONDS_SIZES: Seconds = Seconds::new(3.0, 0.9);
const SECONDS: Seconds = Seconds::new(3.0, 2.0);
const SECONDS_STEADY: Seconds = Seconds::new(20.0, 3.0);
/// Three times up and down, or once.
const SECONDS_FLAPPING: Seconds = Seconds::new(60.0, 20.0);
/// Almost four seconds up, four down, and up to the end. The test begins up to a second after the restart of its lines, and ends
/// before they are cut again.
const SECONDS_FAILOVER: Seconds = Seconds::new(11.0, 11.0);
/// The first quarter is not counted ([`START_BESIDE`](super::START_BESIDE)).
const SECONDS_COEXISTENCE: Seconds = Seconds::new(20.0, 20.0);
const SECONDS_DATATAG: Seconds = Seconds { usual: 60.0, quick: 20.0, full: 3600.0 };

/// Tool of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    /// By `swiftwater perf client` with these options.
    Perf(&'static [&'static str]),
    /// By `iperf3 --sctp` under `swiftwater run`.
    Iperf3,
}

/// A transport with its options, to be compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) tool: Tool,
    pub(super) paths: usize,
    /// Name of the series that measures the best path alone.
    pub(super) alone: &'static str,
}

const fn perf(
    name: &'static str,
    words: &'static [&'static str],
    paths: usize,
    alone: &'static str,
) -> Series {
    Series { name, tool: Tool::Perf(words), paths, alone }
}

const TCP_CUBIC: Series = perf("tcp-cubic", &["--proto", "tcp", "--congestion", "cubic"], 1, "tcp-cubic");
const TCP_BBR: Series = perf("tcp-bbr", &["--proto", "tcp", "--congestion", "bbr"], 1, "tcp-bbr");
const TCP_RENO: Series = perf("tcp-reno", &["--proto", "tcp", "--congestion", "reno"], 1, "tcp-reno");
/// TCP with this host's default congestion control.
const TCP: Series = perf("tcp", &["--proto", "tcp"], 1, "tcp");
/// MPTCP with the congestion control of SCTP beside it, and not with this host's default.
pub(super) const MPTCP: Series =
    perf("mptcp", &["--proto", "mptcp", "--congestion", "cubic"], 2, "tcp-cubic");
const MESSAGE: Series = perf("sctp-message", &["--mode", "message"], 2, "sctp-message");
const STREAM: Series = perf("sctp-stream", &["--mode", "stream"], 2, "sctp-stream");
/// A stream with the initial window of TCP (RFC 6928).
const STREAM_IW10: Series =
    perf("sctp-stream-iw10", &["--mode", "stream", "--initial-window", "10"], 1, "sctp-stream-iw10");
const SOCKETS: Series = Series { name: "sctp-sockets", tool: Tool::Iperf3, paths: 1, alone: "sctp-sockets" };
/// A stream with the congestion control of its TCP baseline.
const STREAM_BBR: Series =
    perf("sctp-stream", &["--mode", "stream", "--congestion", "bbr"], 1, "sctp-stream");
const STREAM_RENO: Series =
    perf("sctp-stream", &["--mode", "stream", "--congestion", "reno"], 1, "sctp-stream");

impl Series {
    pub(super) const fn on_one_path(self) -> Self {
        Series { paths: 1, ..self }
    }

    /// Returns whether this is TCP on one path, the baseline of others.
    pub(super) fn is_tcp(self) -> bool {
        self.name.starts_with("tcp")
    }

    /// Returns whether others are compared with this: TCP with the congestion controls that hosts use, on one path.
    pub(super) fn is_baseline(self) -> bool {
        self.is_tcp() && self.name != "tcp-reno"
    }

    pub(super) fn is_sctp(self) -> bool {
        self.name.starts_with("sctp")
    }

    fn mode(self) -> Mode {
        if self.name.starts_with(STREAM.name) || !self.is_sctp() { Mode::Stream } else { Mode::Message }
    }

    pub(super) fn mode_name(self) -> &'static str {
        self.mode().name()
    }
}

/// End of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Amount {
    Seconds(Seconds),
    /// A file of so many MB of 2^20 bytes. `--quick` leaves the larger ones out.
    File(f64),
}

/// Published figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Published {
    Nothing,
    TwoEqual,
    Flapping(Network),
    /// A file of so many MB.
    Sctplib(f64),
    Datatag,
}

/// Data to send, by series that are compared with each other.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Name for users.
    pub(super) case: String,
    pub(super) message_bytes: usize,
    /// Buffers of SCTP at both ends; `None` is the default.
    pub(super) buffer_bytes: Option<usize>,
    pub(super) amount: Amount,
    /// Number of associations or connections at a time.
    pub(super) parallel: usize,
    /// The first path that is used.
    pub(super) first: usize,
    /// Whether the time from a request to its answer is also measured.
    pub(super) latency: bool,
    /// A run is reported after each of these numbers of seconds.
    pub(super) marks_s: &'static [u64],
    pub(super) series: Vec<Series>,
    /// Series that shares the line with each series.
    pub(super) beside: Option<Series>,
    pub(super) published: Published,
}

impl Load {
    fn new(case: &str, message_bytes: usize, seconds: Seconds, series: &[Series]) -> Self {
        Load {
            case: case.to_owned(),
            message_bytes,
            buffer_bytes: None,
            amount: Amount::Seconds(seconds),
            parallel: 1,
            first: 0,
            latency: false,
            marks_s: &[],
            series: series.to_vec(),
            beside: None,
            published: Published::Nothing,
        }
    }

    /// Returns the case, the message size, and the buffers, if not the default.
    pub(super) fn name(&self) -> String {
        let buffer = self.buffer_bytes.map(|bytes| format!(", {bytes} bytes of buffer"));
        format!("{}, {} bytes{}", self.case, self.message_bytes, buffer.unwrap_or_default())
    }

    /// Returns the number of messages in the file of this load, if it is one.
    pub(super) fn messages(&self) -> Option<u64> {
        match self.amount {
            Amount::Seconds(_) => None,
            Amount::File(mbytes) => Some((mbytes * MB_BYTES / self.message_bytes as f64).round() as u64),
        }
    }

    /// Returns this load for so many seconds: of a file, they are a part.
    pub(super) fn shortened(&self, seconds: f64) -> Self {
        let is_file = matches!(self.amount, Amount::File(_));
        let case =
            if is_file { format!("the first {seconds} s of {}", self.case) } else { self.case.clone() };
        Load { case, ..self.clone() }
    }

    /// Returns whether `--quick` omits it.
    pub(super) fn is_long(&self) -> bool {
        matches!(self.amount, Amount::File(mbytes) if mbytes > FILES_SCTPLIB[0].0)
    }

    /// Returns published results of the same load after so many seconds.
    pub(super) fn published(&self, seconds: f64) -> Vec<Outcome> {
        let mut published = match self.published {
            Published::Nothing => Vec::new(),
            Published::TwoEqual => experiment::published_two_equal(self.message_bytes),
            Published::Flapping(network) => experiment::published_flapping(network),
            Published::Sctplib(mbytes) => {
                let tcp = self.buffer_bytes.is_none();
                let mut all = experiment::published_sctplib(mbytes, self.buffer_bytes.unwrap_or_default());
                all.retain(|outcome| outcome.transport.starts_with("tcp") == tcp);
                all
            }
            Published::Datatag => experiment::published_datatag(seconds.round() as u64),
        };
        for outcome in &mut published {
            outcome.case = self.name();
            // Figures without a number of paths are of networks with one.
            let paths = *outcome.paths.get_or_insert(1);
            outcome.path = (paths == 1).then_some(self.first + 1);
            outcome.paths_before = self.first;
        }
        published
    }
}

/// Loads on these lines; without lines, on loopback.
pub(super) struct Plan {
    pub(super) lines: Vec<PathSpec>,
    pub(super) loads: Vec<Load>,
}

/// Returns the plans of an experiment, one for each set of lines. `strsctp` and `all` have none.
pub(super) fn plans(name: LiveName) -> Vec<Plan> {
    let one = [TCP_CUBIC, TCP_BBR, TCP_RENO, MESSAGE.on_one_path(), STREAM.on_one_path()];
    let two = [&one[..], &[MPTCP, MESSAGE, STREAM]].concat();
    let of_sizes = |case: &str, sizes: &[usize], seconds, series: &[Series]| {
        sizes.iter().map(|&bytes| Load::new(case, bytes, seconds, series)).collect::<Vec<_>>()
    };
    match name {
        LiveName::TwoEqual => {
            let all = [&two[..], &[SOCKETS]].concat();
            let loads = of_sizes("100 + 100 Mbit/s, 0.2 ms", SIZES_OPENSS7, SECONDS_SIZES, &all);
            let published = |load| Load { published: Published::TwoEqual, ..load };
            vec![Plan::new(&["100mbit,100us"; 2], loads.into_iter().map(published).collect())]
        }
        LiveName::AsymmetricRate => {
            let loads = of_sizes("100 + 10 Mbit/s", SIZES, SECONDS, &two);
            vec![Plan::new(&["100mbit,5ms", "10mbit,5ms"], loads)]
        }
        LiveName::AsymmetricDelay => {
            let loads = of_sizes("10 ms + 200 ms", SIZES, SECONDS, &two);
            vec![Plan::new(&["100mbit,5ms", "100mbit,100ms"], loads)]
        }
        LiveName::Lossy => {
            let loads = of_sizes("clean + 2 % lost", SIZES, SECONDS, &two);
            vec![Plan::new(&["100mbit,5ms", "100mbit,5ms,loss=2%"], loads)]
        }
        LiveName::Flapping => vec![flapping()],
        LiveName::Failover => failover(),
        LiveName::Coexistence => vec![coexistence()],
        LiveName::Sctplib => vec![sctplib()],
        LiveName::Datatag => {
            let far = [TCP_CUBIC, TCP_BBR, MESSAGE.on_one_path(), STREAM.on_one_path(), STREAM_IW10];
            let load = Load {
                buffer_bytes: Some(BUFFER_DATATAG_BYTES),
                marks_s: MARKS_DATATAG_S,
                published: Published::Datatag,
                ..Load::new("1 Gbit/s, 120 ms", LARGE_BYTES, SECONDS_DATATAG, &far)
            };
            vec![Plan::new(&["1gbit,60ms"], vec![load])]
        }
        LiveName::Loopback => {
            let all = [TCP, MESSAGE.on_one_path(), MESSAGE, STREAM.on_one_path(), STREAM];
            vec![Plan::new(&[], of_sizes("two loopback addresses", SIZES, SECONDS, &all))]
        }
        LiveName::Strsctp | LiveName::All => Vec::new(),
    }
}

/// Returns the twelve cells of the dissertation: throughput and latency of TCP and SCTP in each network and in both.
fn flapping() -> Plan {
    let load = |case, network, first, seconds, series: &[Series]| Load {
        first,
        latency: true,
        published: Published::Flapping(network),
        ..Load::new(case, FLAPPING_BYTES, seconds, series)
    };
    let alone = [TCP_CUBIC, MESSAGE.on_one_path()];
    let both = [TCP_CUBIC, MPTCP, MESSAGE];
    Plan::new(
        &["10mbit,90us", "10mbit,90us,down=10s/20s", "5mbit,935us"],
        vec![
            load("10 Mbit/s", Network::Wired, 0, SECONDS_STEADY, &alone),
            load("5 Mbit/s (11 Mbit/s wireless)", Network::Wireless, 2, SECONDS_STEADY, &alone),
            load("10 Mbit/s up and down + 5 Mbit/s", Network::Both, 1, SECONDS_FLAPPING, &both),
        ],
    )
}

/// Returns plans in which either of two lines is cut at full load, and comes back.
fn failover() -> Vec<Plan> {
    const WHOLE: &str = "100mbit,5ms";
    const CUT: &str = "100mbit,5ms,down=4s/8s";
    let plan = |case, lines: [&str; 2]| {
        let loads = vec![Load::new(case, LARGE_BYTES, SECONDS_FAILOVER, &[MPTCP, MESSAGE, STREAM])];
        Plan::new(&lines, loads)
    };
    vec![plan("the first dies", [CUT, WHOLE]), plan("the second dies", [WHOLE, CUT])]
}

/// Returns the plan of SCTP and TCP with the same congestion control at one bottleneck.
///
/// The delay varies by eight times what a packet takes to leave. With a fixed one, a full queue drops mostly the packets of the
/// end that answers sooner, which is in the kernel: they arrive before the places of those that have left are free (Floyd and
/// Jacobson, On Traffic Phase Effects in Packet-Switched Gateways, 1992). Packets stay in order, so on a full line the mean of
/// the added delay is 0.67 ms, and packets arrive in groups of 2.2 on average.
fn coexistence() -> Plan {
    let pairs = [
        ("cubic", STREAM.on_one_path(), TCP_CUBIC),
        ("reno", STREAM_RENO, TCP_RENO),
        ("bbr", STREAM_BBR, TCP_BBR),
    ];
    let loads = pairs.into_iter().flat_map(|(algorithm, ours, tcp)| {
        [1, 4].map(|parallel| Load {
            parallel,
            beside: Some(tcp),
            ..Load::new(
                &format!("{algorithm}, {parallel} + {parallel} flows"),
                LARGE_BYTES,
                SECONDS_COEXISTENCE,
                &[ours],
            )
        })
    });
    Plan::new(&["100mbit,10ms,jitter=1ms"], loads.collect())
}

/// Returns the five transfers of sctplib's users: SCTP with both receive buffers, and TCP with its own.
fn sctplib() -> Plan {
    let mut loads = Vec::new();
    for (mbytes, buffers) in FILES_SCTPLIB {
        let load = |buffer_bytes, series: &[Series]| Load {
            buffer_bytes,
            amount: Amount::File(mbytes),
            published: Published::Sctplib(mbytes),
            ..Load::new(&format!("{mbytes} MB over 30 Mbit/s, 100 ms"), LARGE_BYTES, SECONDS, series)
        };
        loads.push(load(None, &[TCP_CUBIC, TCP_BBR]));
        loads.extend(buffers.iter().map(|&buffer| load(Some(buffer), &[STREAM.on_one_path()])));
    }
    Plan::new(&["30mbit,50ms,queue=400KiB"], loads)
}

impl Plan {
    fn new(lines: &[&str], loads: Vec<Load>) -> Self {
        Plan { lines: lines.iter().map(|line| line.parse().expect("a path of ours is one")).collect(), loads }
    }

    /// Returns the marks of all loads within their live runs.
    pub(super) fn marks_s(&self, settings: &Settings<'_>) -> Vec<u64> {
        let of_load = |load: &Load| {
            let until = load.series.first().map_or(0.0, |&series| self.seconds(load, series, settings));
            load.marks_s.iter().copied().filter(move |mark| *mark as f64 <= until).collect::<Vec<_>>()
        };
        self.loads.iter().flat_map(of_load).collect()
    }

    /// Returns the duration of a measurement: what the user or the experiment wants, or that of a file at the rate of its lines.
    pub(super) fn seconds(&self, load: &Load, series: Series, settings: &Settings<'_>) -> f64 {
        settings.seconds.unwrap_or_else(|| match load.amount {
            Amount::Seconds(seconds) => seconds.of(settings.quick, settings.full),
            Amount::File(mbytes) => mbytes * MB_BYTES * 8.0 / self.limit_bits_per_s(load, series, (0.0, 1.0)),
        })
    }

    /// Returns the time in which requests are answered, to measure their latency.
    pub(super) fn latency_seconds(&self, load: &Load, series: Series, settings: &Settings<'_>) -> f64 {
        let seconds = self.seconds(load, series, settings);
        // A line that goes down must do so.
        let is_cut_short = settings.quick && !self.goes_down(load, series);
        if is_cut_short { seconds.min(LATENCY_SECONDS_QUICK) } else { seconds }
    }

    /// Returns the lines that a series of a load uses.
    pub(super) fn lines_of(&self, load: &Load, series: Series) -> &[PathSpec] {
        self.lines.get(load.first..).map_or(&[], |lines| &lines[..series.paths.min(lines.len())])
    }

    /// Returns whether a line that a series of a load uses goes down.
    pub(super) fn goes_down(&self, load: &Load, series: Series) -> bool {
        self.lines_of(load, series).iter().any(|line| line.pipe.schedule != netsim::Schedule::AlwaysUp)
    }

    /// Returns after how many seconds the first line that a series of a load uses goes down, if one does.
    pub(super) fn first_outage_s(&self, load: &Load, series: Series) -> Option<f64> {
        let begins_s = |line: &PathSpec| match &line.pipe.schedule {
            netsim::Schedule::Periodic { first_down, .. } => Some(first_down.as_secs_f64()),
            _ => None,
        };
        self.lines_of(load, series).iter().filter_map(begins_s).reduce(f64::min)
    }

    /// Returns the capacity of these lines in a test of this duration, which begins at `began_s` of their schedules, for messages
    /// of this size, counted from the IP header, while they are up. Random losses take nothing from it: a packet is lost before
    /// it reaches the queue.
    pub(super) fn limit_bits_per_s(
        &self,
        load: &Load,
        series: Series,
        (began_s, seconds): (f64, f64),
    ) -> f64 {
        let of_line = |line: &PathSpec| {
            let most = if series.is_sctp() {
                message_limit_bits_per_s(&line.pipe, series.mode(), load.message_bytes)
            } else {
                let mtu = line.mtu_bytes as f64;
                let rate = line.pipe.rate_bits_per_s.map_or(f64::INFINITY, |rate| rate as f64);
                rate * (mtu - TCP_HEADERS_BYTES) / mtu
            };
            let [began, end] = [began_s, began_s + seconds].map(std::time::Duration::from_secs_f64);
            let down = line.pipe.schedule.time_down(began..end).as_secs_f64();
            most * (1.0 - down / seconds)
        };
        match self.lines_of(load, series) {
            // Only the processor limits loopback.
            [] => f64::INFINITY,
            lines => lines.iter().map(of_line).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_transports_on_lines_do_not_depend_on_the_hosts_congestion_control() {
        for name in [LiveName::TwoEqual, LiveName::Lossy, LiveName::Failover, LiveName::Datatag] {
            let plans = plans(name);
            let all = plans.iter().flat_map(|plan| &plan.loads).flat_map(|load| &load.series);
            for series in all.filter(|series| !series.is_sctp()) {
                assert!(
                    matches!(series.tool, Tool::Perf(words) if words.contains(&"--congestion")),
                    "{}",
                    series.name
                );
            }
        }
    }

    fn plan(name: LiveName) -> Plan {
        plans(name).swap_remove(0)
    }

    #[test]
    fn a_test_of_failover_has_one_whole_outage_and_both_lines_before_and_after() {
        for plan in failover() {
            let seconds = plan.seconds(&plan.loads[0], MPTCP, &Settings::default());
            // The ends are connected soon after the restart of the lines, and at the latest a second after it.
            for began_s in [0.0, 0.3, 1.0] {
                let [began, end] = [began_s, began_s + seconds].map(std::time::Duration::from_secs_f64);
                let down = |line: &PathSpec| line.pipe.schedule.time_down(began..end).as_secs_f64();
                let mut down: Vec<f64> = plan.lines.iter().map(down).collect();
                down.sort_by(f64::total_cmp);
                assert_eq!(down, [0.0, 4.0], "begun at {began_s} s");
            }
        }
    }

    #[test]
    fn the_limit_counts_packets_with_their_headers_while_lines_are_up() {
        let mbits = |name, load: usize, series| {
            let plan = plan(name);
            (plan.limit_bits_per_s(&plan.loads[load], series, (0.0, 20.0)) / 1e4).round() / 100.0
        };
        assert_eq!(mbits(LiveName::TwoEqual, 0, STREAM), 192.53);
        assert_eq!(mbits(LiveName::AsymmetricRate, 0, TCP_CUBIC), 96.53);
        assert_eq!(mbits(LiveName::AsymmetricRate, 0, MPTCP), 106.19);
        assert_eq!(mbits(LiveName::Flapping, 2, TCP_CUBIC), 4.83, "half of 10 Mbit/s");
        assert_eq!(mbits(LiveName::Flapping, 2, MPTCP), 9.65);
    }

    #[test]
    fn the_latency_over_a_line_that_goes_down_is_of_whole_periods() {
        let plan = plan(LiveName::Flapping);
        let seconds = |quick| {
            let settings = Settings { quick, ..Settings::default() };
            let of_load = |load: &Load| plan.latency_seconds(load, load.series[0], &settings);
            plan.loads.iter().map(of_load).collect::<Vec<_>>()
        };
        assert_eq!(seconds(false), [20.0, 20.0, 60.0]);
        assert_eq!(seconds(true), [2.0, 2.0, 20.0], "ten seconds up, and ten down");
    }

    #[test]
    fn a_flood_fills_a_lossy_line_up_to_the_limit() {
        const SECOND_NS: u64 = 1_000_000_000;
        let load = Load::new("a flood", LARGE_BYTES, SECONDS, &[TCP_CUBIC]);
        let plan = Plan::new(&["100mbit,loss=50%"], vec![load]);
        let mut pipe = netsim::Pipe::new(&plan.lines[0].pipe, 1);
        // Packets of 1500 bytes at 240 Mbit/s.
        let delivered = (0..SECOND_NS / 50_000).filter(|number| {
            let verdict = pipe.offer(number * 50_000, 1500);
            matches!(verdict, netsim::Verdict::Deliver(passage) if passage.at_ns <= SECOND_NS)
        });
        let bits_per_s = delivered.count() as f64 * 8.0 * (1500.0 - TCP_HEADERS_BYTES);
        let share = bits_per_s / plan.limit_bits_per_s(&plan.loads[0], TCP_CUBIC, (0.0, 1.0));
        assert!((share - 1.0).abs() < 0.01, "{share}");
    }

    #[test]
    fn all_series_of_several_paths_find_what_shows_the_best_path_alone() {
        for name in [LiveName::TwoEqual, LiveName::AsymmetricRate, LiveName::AsymmetricDelay, LiveName::Lossy]
        {
            for load in plan(name).loads {
                for series in &load.series {
                    let alone = |other: &Series| other.name == series.alone && other.paths == 1;
                    assert!(load.series.iter().any(alone), "{} of {}", series.name, load.name());
                }
            }
        }
    }

    #[test]
    fn every_cell_that_was_published_has_a_load() {
        let published = |name, seconds| {
            let loads = plans(name).into_iter().flat_map(|plan| plan.loads);
            loads.map(|load| load.published(seconds).len()).collect::<Vec<_>>()
        };
        assert_eq!(published(LiveName::Flapping, 60.0), [2, 2, 2], "throughput and latency of each");
        assert_eq!(published(LiveName::Sctplib, 0.0), [1; 5]);
        assert_eq!(published(LiveName::TwoEqual, 10.0), [5; 12]);
        for mark in MARKS_DATATAG_S {
            assert_eq!(published(LiveName::Datatag, *mark as f64), [2], "{mark} s");
        }
    }

    #[test]
    fn a_file_has_as_many_bytes_as_the_published_one() {
        let load = &plan(LiveName::Sctplib).loads[0];
        let bytes = load.messages().expect("a file") * load.message_bytes as u64;
        assert!((bytes as f64 / (114.3 * MB_BYTES) - 1.0).abs() < 1e-4, "{bytes}");
    }
}
