//! One measurement: `swiftwater perf` or `iperf3` at both ends, each a process of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use netns::Host;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use super::LiveError;
use super::plan::{Series, Tool};
use super::watch::{self, Progress};
use crate::interrupt;
use crate::moment::Moment;
use crate::perf::client::CONNECTED;

/// Interval at which the end of the client and Ctrl-C are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// A measurement is ended after so many times its duration, and this time beyond it: a slow machine is no reason.
const LIMIT_FACTOR: f64 = 4.0;
const LIMIT_GRACE: Duration = Duration::from_secs(120);
/// Largest part of an end's output that is kept: a report of a day, and an error.
const STDOUT_BYTES_MAX: u64 = 64 << 20;
const STDERR_BYTES_MAX: u64 = 64 << 10;
/// Time for the rest of the output of an end that has ended.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for an end that is asked to end: longer than its own limit for the end of its associations.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// The port of iperf3.
const IPERF3_PORT: &str = "5201";
/// Address of the daemon on each host: hosts of the laboratory have abstract names of their own.
const DAEMON_PLACE: &str = "@swiftwater-lab";
/// Beginning of the line that a daemon writes when it serves.
const DAEMON_SERVES: &str = "swiftwater daemon:";
/// Unit of the rates in the lines of iperf3's server, which rounds them to whole numbers: the option, and the word in a line.
const IPERF3_UNIT: (&str, &str) = ("k", "Kbits/sec");

/// A measurement: data, ends and limits.
#[derive(Clone, Debug)]
pub(super) struct Measurement<'a> {
    /// Name for users.
    pub(super) name: String,
    /// Hosts of the server and of the client; `None` is this one.
    pub(super) hosts: [Option<&'a Host>; 2],
    /// The addresses of the server and of the client.
    pub(super) addresses: [Vec<String>; 2],
    /// The server's address beside the lines for the control connection of perf; `None` is its first of `addresses`.
    pub(super) control: Option<&'a str>,
    pub(super) series: Series,
    /// Buffers at both ends; `None` is the default.
    pub(super) buffer_bytes: Option<usize>,
    pub(super) message_bytes: usize,
    pub(super) parallel: usize,
    /// Time of the sending; of a given number of messages, about that time.
    pub(super) seconds: f64,
    /// Limit for the number of messages.
    pub(super) messages: Option<u64>,
    /// Whether requests are answered, to measure the latency.
    pub(super) request_response: bool,
}

/// When a client begins to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// As soon as it is connected.
    AtOnce,
    /// After [`Running::release`].
    WhenReleased,
}

/// Measurements of a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) bits_per_s: f64,
    /// Time in which data was delivered.
    pub(super) seconds: f64,
    pub(super) latency: Option<Latency>,
    pub(super) cpu: Option<Cpu>,
    /// Start of the test, by `CLOCK_MONOTONIC`, in seconds.
    pub(super) began_s: Option<f64>,
    pub(super) points: Vec<Point>,
}

/// Times from requests to their answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latency {
    /// Mean over the time, in which each answer weighs as much as it took.
    pub(super) mean_s: f64,
    pub(super) p50_s: f64,
    pub(super) p99_s: f64,
}

/// Processor time of both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cpu {
    pub(super) client_ns_per_byte: f64,
    pub(super) server_ns_per_byte: f64,
}

/// A point of a run's curve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// Seconds since the beginning.
    pub(super) at_s: f64,
    /// Bytes delivered since the previous point.
    pub(super) bytes: u64,
    /// These bytes as bits per second.
    pub(super) bits_per_s: f64,
    /// Sum of the windows of all paths.
    pub(super) cwnd_bytes: Option<f64>,
    /// Longest smoothed round-trip time of a path.
    pub(super) srtt_s: Option<f64>,
}

/// The fields used of a line of the client's report.
#[derive(Deserialize)]
struct Row {
    period: String,
    end_s: f64,
    bytes: u64,
    bits_per_s: f64,
    latency_us_mean_over_time: Option<f64>,
    latency_us_p50: Option<f64>,
    latency_us_p99: Option<f64>,
    client_cpu_ns_per_byte: Option<f64>,
    server_cpu_ns_per_byte: Option<f64>,
    cwnd_bytes: Option<f64>,
    srtt_us: Option<f64>,
    began_monotonic_s: Option<f64>,
}

impl Measurement<'_> {
    /// Starts both ends; returns `None` after Ctrl-C.
    pub(super) fn start(&self, begin: Begin) -> Result<Option<Running>, LiveError> {
        match self.series.tool {
            Tool::Perf(words) => self.start_perf(words, begin),
            Tool::Iperf3 => self.start_iperf3(),
        }
    }

    fn start_perf(&self, words: &[&str], begin: Begin) -> Result<Option<Running>, LiveError> {
        let [to, from] = self.addresses.each_ref().map(|addresses| addresses.join(","));
        let control: Vec<&str> = self.control.iter().flat_map(|address| ["--control", address]).collect();
        let mut server = vec!["perf", "server", "--end-with-input", "-p", "0", "--udp-port", "0", "-B", &to];
        server.extend(&control);
        // Hosts of the laboratory have nobody else.
        server.extend(self.hosts[0].is_none().then_some("--own-user"));
        let server = Process::start(self.hosts[0], "the server", &server)?;
        let mut running = self.running(server, parse_perf);
        let Some(line) = running.server_line_with("")? else { return Ok(None) };
        let address = line.split(';').next().and_then(|words| words.rsplit(' ').next());
        let Some((_, port)) = address.and_then(|address| address.rsplit_once(':')) else {
            return Err(running.server_failed());
        };
        let (bytes, parallel) = (self.message_bytes.to_string(), self.parallel.to_string());
        let mut client =
            vec!["perf", "client", &self.addresses[0][0], "-p", port, "-B", &from, "-l", &bytes, "--json"];
        let interval = watch::interval(self.seconds).as_secs_f64().to_string();
        client.extend(["-P", &parallel, "-i", &interval]);
        client.extend(&control);
        client.extend(words);
        let buffer = self.buffer_bytes.map(|bytes| bytes.to_string());
        client.extend(buffer.iter().flat_map(|bytes| ["-w", bytes]));
        let (count, seconds) = (self.messages.map(|count| count.to_string()), self.seconds.to_string());
        match &count {
            Some(count) => client.extend(["-n", count]),
            None => client.extend(["-t", &seconds]),
        }
        client.extend(self.request_response.then_some("--rr"));
        client.extend((begin == Begin::WhenReleased).then_some("--hold"));
        running.client = Some(Process::start(self.hosts[1], "the client", &client)?);
        Ok(Some(running))
    }

    /// Starts iperf3 with our SCTP sockets, and a daemon for each end. One that `swiftwater run` starts would be nobody's child,
    /// whose processor time is not ours, and outlive the measurement. The lines of iperf3's server tell what was delivered; the
    /// client's intervals are of what it has written.
    fn start_iperf3(&self) -> Result<Option<Running>, LiveError> {
        let (seconds, bytes) = (self.seconds.ceil().to_string(), self.message_bytes.to_string());
        let [to, from] = [&self.addresses[0][0], &self.addresses[1][0]];
        let run = ["run", "--quiet", "--", "iperf3"];
        let words = ["--server", "--one-off", "--forceflush", "--port", IPERF3_PORT, "--bind", to];
        let words = [&run[..], &words, &["--format", IPERF3_UNIT.0]].concat();
        let until = Instant::now() + limit(self.seconds);
        let mut daemons = Vec::new();
        for host in self.hosts {
            let mut daemon = Process::start(host, "a daemon", &["daemon", "--place", DAEMON_PLACE])?;
            match daemon.stderr.wait_for(DAEMON_SERVES, until) {
                Awaited::Line(_) => daemons.push(daemon),
                Awaited::Interrupted => return Ok(None),
                Awaited::Closed | Awaited::TimedOut => {
                    return Err(LiveError::End { name: self.name.clone(), said: daemon.complaint() });
                }
            }
        }
        let server = Process::start(self.hosts[0], "iperf3 --server", &words)?;
        let mut running = Running { _daemons: daemons, ..self.running(server, parse_iperf3) };
        if running.server_line_with("listening")?.is_none() {
            return Ok(None);
        }
        let words = ["--client", to, "--bind", from, "--port", IPERF3_PORT, "--sctp", "--json"];
        let sent = ["--get-server-output", "--time", &seconds, "--length", &bytes];
        let words = [&run[..], &words, &sent].concat();
        running.client = Some(Process::start(self.hosts[1], "iperf3 --client", &words)?);
        Ok(Some(running))
    }

    /// Returns the measurement with its server alone. Its time limit begins now.
    fn running(&self, server: Process, parse: Parse) -> Running {
        let limit = limit(self.seconds);
        let (name, until) = (self.name.clone(), Instant::now() + limit);
        Running { name, server, client: None, _daemons: Vec::new(), parse, limit, until }
    }
}

/// Returns the time after which a measurement of this duration is ended.
fn limit(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds * LIMIT_FACTOR).unwrap_or(Duration::MAX).saturating_add(LIMIT_GRACE)
}

/// Reads a client's report. The second argument is the moment at which the client was started.
type Parse = fn(&str, Moment) -> Option<Measured>;

/// Both ends at work. Dropping this ends them.
pub(super) struct Running {
    name: String,
    /// The client, once the server listens. It ends before the server.
    client: Option<Process>,
    server: Process,
    /// The daemons of both ends, for programs that need them. They end after those.
    _daemons: Vec<Process>,
    parse: Parse,
    limit: Duration,
    until: Instant,
}

impl Running {
    /// Waits for a line of the server with this word; returns `None` after Ctrl-C.
    fn server_line_with(&mut self, word: &str) -> Result<Option<String>, LiveError> {
        match self.server.stdout.wait_for(word, self.until) {
            Awaited::Line(line) => Ok(Some(line)),
            Awaited::Interrupted => Ok(None),
            Awaited::TimedOut => Err(self.late()),
            Awaited::Closed => Err(self.server_failed()),
        }
    }

    fn server_failed(&mut self) -> LiveError {
        LiveError::End { name: self.name.clone(), said: self.server.complaint() }
    }

    /// Waits until a client that begins when released has connected; returns `None` after Ctrl-C.
    pub(super) fn wait_until_connected(&mut self) -> Result<Option<()>, LiveError> {
        let Some(client) = &mut self.client else { return Ok(Some(())) };
        match client.stderr.wait_for(CONNECTED, self.until) {
            Awaited::Line(_) => Ok(Some(())),
            Awaited::Interrupted => Ok(None),
            Awaited::TimedOut => Err(self.late()),
            Awaited::Closed => Err(LiveError::End { name: self.name.clone(), said: client.complaint() }),
        }
    }

    /// Lets a client begin that waits for it.
    pub(super) fn release(&mut self) {
        if let Some(input) = self.client.as_mut().and_then(|client| client.stdin.as_mut()) {
            // A client that has ended tells why at the end.
            let _ = input.write_all(b"\n");
        }
    }

    /// Waits for the client's report, as long as the test goes on, if its progress is known; returns `None` after Ctrl-C.
    pub(super) fn finish(mut self, progress: Option<&Progress>) -> Result<Option<Measured>, LiveError> {
        let Some(mut client) = self.client.take() else { return Ok(None) };
        let status = loop {
            if interrupt::requested() {
                return Ok(None);
            }
            match client.child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() >= self.until => return Err(self.late()),
                None if progress.is_some_and(|progress| progress.has_stalled(Instant::now())) => {
                    return Err(LiveError::Stalled { name: self.name });
                }
                None => thread::sleep(CHECK_INTERVAL),
            }
        };
        let text = client.stdout.rest();
        match (self.parse)(&text, client.started).filter(|_| status.success()) {
            Some(measured) => Ok(Some(measured)),
            None => {
                let said = match client.complaint() {
                    said if said.is_empty() => iperf3_error(&text).unwrap_or_default(),
                    said => said,
                };
                Err(LiveError::End { name: self.name, said })
            }
        }
    }

    fn late(&self) -> LiveError {
        LiveError::Deadline { name: self.name.clone(), limit: self.limit }
    }
}

fn parse_perf(text: &str, _started: Moment) -> Option<Measured> {
    let rows: Vec<Row> = serde_json::from_str(text).ok()?;
    let (total, others) = rows.split_last()?;
    let point = |row: &Row| Point {
        at_s: row.end_s,
        bytes: row.bytes,
        bits_per_s: row.bits_per_s,
        cwnd_bytes: row.cwnd_bytes,
        srtt_s: row.srtt_us.map(|us| us / 1e6),
    };
    let cpu = total.client_cpu_ns_per_byte.zip(total.server_cpu_ns_per_byte);
    Some(Measured {
        bits_per_s: total.bits_per_s,
        seconds: if total.bits_per_s > 0.0 {
            total.bytes as f64 * 8.0 / total.bits_per_s
        } else {
            total.end_s
        },
        latency: latency(total),
        cpu: cpu
            .map(|(client_ns_per_byte, server_ns_per_byte)| Cpu { client_ns_per_byte, server_ns_per_byte }),
        began_s: total.began_monotonic_s,
        points: others.iter().filter(|row| row.period == "interval").map(point).collect(),
    })
}

fn latency(row: &Row) -> Option<Latency> {
    Some(Latency {
        mean_s: row.latency_us_mean_over_time? / 1e6,
        p50_s: row.latency_us_p50? / 1e6,
        p99_s: row.latency_us_p99? / 1e6,
    })
}

/// The fields used of the report of iperf3's client.
#[derive(Deserialize)]
struct Iperf3 {
    start: Iperf3Start,
    end: Iperf3End,
    /// The lines of the server.
    #[serde(default)]
    server_output_text: String,
}

#[derive(Deserialize)]
struct Iperf3Start {
    timestamp: Iperf3Timestamp,
}

#[derive(Deserialize)]
struct Iperf3Timestamp {
    timesecs: f64,
    /// Missing in versions before 3.17.
    timemillisecs: Option<f64>,
}

impl Iperf3Timestamp {
    /// Returns the moment of the beginning. A version that tells the second alone has begun soon after its process.
    fn unix_s(&self, started_unix_s: f64) -> f64 {
        self.timemillisecs
            .map_or_else(|| self.timesecs.max(started_unix_s), |milliseconds| milliseconds / 1e3)
    }
}

#[derive(Deserialize)]
struct Iperf3End {
    sum_received: Iperf3Sum,
}

#[derive(Deserialize)]
struct Iperf3Sum {
    seconds: f64,
    bits_per_second: f64,
}

fn parse_iperf3(text: &str, started: Moment) -> Option<Measured> {
    let report: Iperf3 = serde_json::from_str(text).ok()?;
    Some(Measured {
        bits_per_s: report.end.sum_received.bits_per_second,
        seconds: report.end.sum_received.seconds,
        began_s: Some(started.monotonic_s_of(report.start.timestamp.unix_s(started.unix_s))),
        points: report.server_output_text.lines().filter_map(iperf3_point).collect(),
        ..Measured::default()
    })
}

/// Returns what a line of iperf3's server tells of an interval: `[  5]   0.00-1.00   sec  11.5 MBytes  96145 Kbits/sec`. The line
/// of the whole test has another word at its end, and the last interval may be shorter than the digits of its times show.
fn iperf3_point(line: &str) -> Option<Point> {
    let (_, fields) = line.split_once(']')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let [interval, "sec", _, _, rate, unit] = fields[..] else { return None };
    let (start, end) = interval.split_once('-')?;
    let (start_s, end_s): (f64, f64) = (start.parse().ok()?, end.parse().ok()?);
    let seconds = Some(end_s - start_s).filter(|seconds| *seconds > 0.0)?;
    let bits_per_s = rate.parse::<f64>().ok().filter(|_| unit == IPERF3_UNIT.1)? * 1e3;
    let bytes = (bits_per_s / 8.0 * seconds) as u64;
    Some(Point { at_s: end_s, bytes, bits_per_s, ..Point::default() })
}

/// Returns the error that iperf3 writes into its report.
fn iperf3_error(text: &str) -> Option<String> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(report.get("error")?.as_str()?.to_owned())
}

/// A process at one end, which ends with this value.
struct Process {
    child: Child,
    started: Moment,
    /// Input of a client that waits for its release, or of a server that ends with it.
    stdin: Option<ChildStdin>,
    stdout: Output,
    stderr: Output,
}

impl Process {
    /// Starts this program with these words on a host, or on this one.
    fn start(host: Option<&Host>, what: &'static str, words: &[&str]) -> Result<Self, LiveError> {
        let failed = |source| LiveError::Start { what, source };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // A daemon outside the laboratory would serve neither host.
        command.args(words).env(crate::run::ADDRESS_VARIABLE, DAEMON_PLACE);
        // The process has its own group: Ctrl-C is for us, and we end the processes.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The input ends with this process, even if it is killed. A client ends after its server.
        command.stdin(Stdio::piped());
        let started = Moment::now();
        let child = match host {
            Some(host) => host.spawn(&mut command),
            None => command.spawn(),
        };
        let mut child = child.map_err(failed)?;
        let stdin = child.stdin.take();
        let stdout = Output::of(child.stdout.take(), STDOUT_BYTES_MAX);
        let stderr = Output::of(child.stderr.take(), STDERR_BYTES_MAX);
        Ok(Process { child, started, stdin, stdout, stderr })
    }

    /// Ends the process, and returns its error output, without the line for us.
    fn complaint(&mut self) -> String {
        self.end();
        let said = self.stderr.whole();
        let said: String = said.split_inclusive('\n').filter(|line| !line.contains(CONNECTED)).collect();
        said.trim().trim_start_matches("swiftwater: ").to_owned()
    }

    /// Ends the process. It is first asked to end, so that it ends its associations: what a killed one left behind would send
    /// again, into the next measurement.
    fn end(&mut self) {
        let until = Instant::now() + END_TIMEOUT;
        let id = i32::try_from(self.child.id()).ok().filter(|_| matches!(self.child.try_wait(), Ok(None)));
        let _ = id.map(|id| kill(Pid::from_raw(id), Signal::SIGTERM));
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(CHECK_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The lines of an output. A thread reads them, so that the process never waits for us.
struct Output {
    lines: Receiver<String>,
    /// The lines that were read while another was awaited, and that one.
    passed: String,
}

/// Outcome of waiting for a line.
#[derive(Debug, PartialEq)]
enum Awaited {
    Line(String),
    /// The output has ended.
    Closed,
    /// The time is over.
    TimedOut,
    /// Ctrl-C.
    Interrupted,
}

impl Output {
    /// Reads an output to its end, and keeps so many bytes of it.
    fn of(pipe: Option<impl Read + Send + 'static>, bytes_max: u64) -> Self {
        let (lines_in, lines) = channel();
        let read = move |pipe| {
            let mut reader = BufReader::new(pipe);
            let mut kept = Read::take(&mut reader, bytes_max);
            let mut line = Vec::new();
            while kept.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                // The reader of the lines may have ended.
                let _ = lines_in.send(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            }
            let _ = io::copy(&mut reader, &mut io::sink());
        };
        if let Some(pipe) = pipe {
            thread::spawn(move || read(pipe));
        }
        Output { lines, passed: String::new() }
    }

    /// Waits for a line with this word.
    fn wait_for(&mut self, word: &str, until: Instant) -> Awaited {
        loop {
            if interrupt::requested() {
                return Awaited::Interrupted;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(CHECK_INTERVAL)) {
                Ok(line) => {
                    self.passed += &line;
                    if line.contains(word) {
                        return Awaited::Line(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Awaited::Closed,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Awaited::TimedOut,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns the rest of the output of a process that has ended. Another process may still hold the output open.
    fn rest(&self) -> String {
        let until = Instant::now() + OUTPUT_TIMEOUT;
        let mut text = String::new();
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            text += &line;
        }
        text
    }

    /// Returns the whole output of a process that has ended, with the lines from before those that were awaited.
    fn whole(&self) -> String {
        self.passed.clone() + &self.rest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_client_has_its_points_and_its_total() {
        let text = r#"[
            {"period": "interval", "end_s": 0.1, "bytes": 125000, "bits_per_s": 1e7, "cwnd_bytes": 9000, "srtt_us": 500.0},
            {"period": "path", "end_s": 1.0, "bytes": 5, "bits_per_s": 1.0},
            {"period": "total", "end_s": 1.0, "bytes": 1250000, "bits_per_s": 2e7, "began_monotonic_s": 7.5,
             "client_cpu_ns_per_byte": 1.0, "server_cpu_ns_per_byte": 2.0}]"#;
        let measured = parse_perf(text, Moment::default()).expect("a report");
        assert_eq!((measured.bits_per_s, measured.seconds, measured.began_s), (2e7, 0.5, Some(7.5)));
        assert_eq!(measured.cpu, Some(Cpu { client_ns_per_byte: 1.0, server_ns_per_byte: 2.0 }));
        let point = Point {
            at_s: 0.1,
            bytes: 125_000,
            bits_per_s: 1e7,
            cwnd_bytes: Some(9000.0),
            srtt_s: Some(5e-4),
        };
        assert_eq!(measured.points, [point]);
        assert_eq!(measured.latency, None);
        assert_eq!(parse_perf("[]", Moment::default()), None);
    }

    #[test]
    fn the_latency_of_a_client_is_its_mean_over_the_time_with_percentiles() {
        let text = r#"[{"period": "total", "end_s": 1.0, "bytes": 1, "bits_per_s": 8.0, "latency_us_mean": 1.0,
             "latency_us_mean_over_time": 5e3, "latency_us_p50": 2e3, "latency_us_p99": 8e3}]"#;
        let latency = parse_perf(text, Moment::default()).expect("a report").latency;
        assert_eq!(latency, Some(Latency { mean_s: 0.005, p50_s: 0.002, p99_s: 0.008 }));
    }

    #[test]
    fn the_report_of_iperf3_counts_what_was_received() {
        let server = [
            "Accepted connection from 198.18.0.1, port 47886",
            "[  5] local 198.18.0.2 port 5201 connected to 198.18.0.1 port 47892",
            "[ ID] Interval           Transfer     Bitrate",
            "[  5]   0.00-1.00   sec  50.0 Bytes  0.40 Kbits/sec                  ",
            "[  5]   1.00-1.50   sec   688 Bytes    11 Kbits/sec                  ",
            "[  5]   1.50-1.50   sec  0.00 Bytes     9 Kbits/sec                  ",
            "- - - - - - - - - - - - - - - - - - - - - - - - -",
            "[  5]   0.00-1.50   sec   738 Bytes     4 Kbits/sec                  receiver",
        ];
        let text = serde_json::json!({
            "start": {"timestamp": {"timesecs": 5}},
            "intervals": [{"sum": {"start": 0, "end": 1.0, "seconds": 1.0, "bytes": 1000, "bits_per_second": 8e3}}],
            "end": {
                "sum_sent": {"seconds": 1.0, "bits_per_second": 8e3},
                "sum_received": {"seconds": 1.5, "bits_per_second": 4e3},
            },
            "server_output_text": server.join("\n"),
        });
        let started = Moment { unix_s: 4.75, monotonic_s: 100.0 };
        let measured = parse_iperf3(&text.to_string(), started).expect("a report");
        assert_eq!((measured.bits_per_s, measured.seconds), (4e3, 1.5));
        let point = |at_s, bytes, bits_per_s| Point { at_s, bytes, bits_per_s, ..Point::default() };
        assert_eq!(measured.points, [point(1.0, 50, 400.0), point(1.5, 687, 11e3)]);
        assert_eq!(measured.began_s, Some(100.25), "a quarter of a second after its process");
        let error = r#"{"start": {}, "error": "unable to connect"}"#;
        assert_eq!(parse_iperf3(error, Moment::default()), None);
        assert_eq!(iperf3_error(error).as_deref(), Some("unable to connect"));
    }

    #[test]
    fn the_beginning_of_iperf3_is_known_better_than_to_a_second() {
        let began = |timestamp: &str, started_unix_s| {
            let timestamp: Iperf3Timestamp = serde_json::from_str(timestamp).expect("a timestamp");
            timestamp.unix_s(started_unix_s)
        };
        assert_eq!(began(r#"{"timesecs": 5, "timemillisecs": 5250}"#, 5.125), 5.25);
        assert_eq!(began(r#"{"timesecs": 5}"#, 5.125), 5.125, "the process had not been started before");
        assert_eq!(began(r#"{"timesecs": 6}"#, 5.875), 6.0);
    }

    /// Returns the output of a shell.
    fn outputs(script: &str, bytes_max: u64) -> (Child, Output) {
        let mut command = Command::new("sh");
        let mut child =
            command.args(["-c", script]).stdout(Stdio::piped()).spawn().expect("every host has one");
        let output = Output::of(child.stdout.take(), bytes_max);
        (child, output)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn an_end_that_writes_more_than_is_kept_does_not_stand_still() {
        let (mut child, mut output) = outputs("echo first; head -c 1000000 /dev/zero; echo last", 10);
        assert_eq!(output.wait_for("first", soon()), Awaited::Line("first\n".to_owned()));
        assert!(child.wait().expect("a child").success(), "it has written all");
        assert_eq!(output.rest().len(), 4);
    }

    #[test]
    fn an_end_that_never_answers_is_not_awaited_for_ever() {
        let (mut child, mut output) = outputs("exec sleep 1000", 10);
        assert_eq!(output.wait_for("ready", Instant::now()), Awaited::TimedOut);
        child.kill().expect("it runs");
        assert_eq!(output.wait_for("ready", soon()), Awaited::Closed);
        child.wait().expect("a child");
    }

    /// Returns a shell as an end.
    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("every host has one");
        let stdout = Output::of(child.stdout.take(), STDOUT_BYTES_MAX);
        let stderr = Output::of(child.stderr.take(), STDERR_BYTES_MAX);
        Process { child, started: Moment::default(), stdin: None, stdout, stderr }
    }

    #[test]
    fn an_end_is_asked_to_end_before_it_is_killed() {
        let mut polite = shell("trap 'echo it ends; exit' TERM; echo ready; while :; do sleep 0.01; done");
        assert_eq!(polite.stdout.wait_for("ready", soon()), Awaited::Line("ready\n".to_owned()));
        polite.end();
        assert_eq!(polite.stdout.rest(), "it ends\n");
        let mut deaf = shell("trap '' TERM; echo ready; exec sleep 1000");
        assert_eq!(deaf.stdout.wait_for("ready", soon()), Awaited::Line("ready\n".to_owned()));
        deaf.end();
        assert!(matches!(deaf.child.try_wait(), Ok(Some(_))), "it has no choice");
    }

    #[test]
    fn the_time_of_daemons_counts_when_their_measurement_has_finished() {
        let used = Duration::from_millis(50);
        // The shell itself uses the time, not a child that it waits for.
        let script = "trap exit TERM; n=0; while [ $n -lt 1000000 ]; do n=$((n+1)); \
            [ $((n % 1000)) -eq 0 ] && read -r line </proc/self/schedstat && [ ${line%% *} -gt 50000000 ] && break; done; \
            echo ready; while :; do sleep 0.01; done";
        let mut daemon = shell(script);
        assert_eq!(daemon.stdout.wait_for("ready", soon()), Awaited::Line("ready\n".to_owned()));
        let running = Running {
            name: "two-equal".to_owned(),
            server: shell("exit"),
            client: Some(shell("exit")),
            _daemons: vec![daemon],
            parse: |_, _| Some(Measured::default()),
            limit: limit(5.0),
            until: soon(),
        };
        let before = crate::host::processor_time_of_children();
        running.finish(None).expect("it is measured");
        let counted = crate::host::processor_time_of_children().saturating_sub(before);
        assert!(counted >= used, "{counted:?}");
    }

    #[test]
    fn a_client_that_fails_before_it_has_connected_tells_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo swiftwater: no route to the server >&2"]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("every host has one");
        let stderr = Output::of(child.stderr.take(), STDERR_BYTES_MAX);
        let stdout = Output::of(None::<io::Empty>, 0);
        let client = Process { child, started: Moment::default(), stdin: None, stdout, stderr };
        let mut server = Command::new("true");
        let server = Process {
            child: server.spawn().expect("every host has one"),
            started: Moment::default(),
            stdin: None,
            stdout: Output::of(None::<io::Empty>, 0),
            stderr: Output::of(None::<io::Empty>, 0),
        };
        let mut running = Running {
            name: "coexistence".to_owned(),
            server,
            client: Some(client),
            _daemons: Vec::new(),
            parse: parse_perf,
            limit: limit(5.0),
            until: soon(),
        };
        let said = running.wait_until_connected().expect_err("it has ended").to_string();
        assert_eq!(said, "coexistence: no route to the server");
    }

    #[test]
    fn a_measurement_that_does_not_end_is_ended_with_a_sentence() {
        let process = || {
            let mut command = Command::new("sleep");
            let child = command.arg("1000").stdout(Stdio::null()).spawn().expect("every host has one");
            let none = || Output::of(None::<io::Empty>, 0);
            Process { child, started: Moment::default(), stdin: None, stdout: none(), stderr: none() }
        };
        let running = |until| Running {
            name: "lossy".to_owned(),
            server: process(),
            client: Some(process()),
            _daemons: Vec::new(),
            parse: parse_perf,
            limit: limit(5.0),
            until,
        };
        let said = running(Instant::now()).finish(None).expect_err("it is over").to_string();
        assert!(said.starts_with("lossy: no result after 140 s, so it was ended"), "{said}");
        let now = Instant::now();
        // A machine may have run for less than that.
        if let Some(long_ago) = now.checked_sub(2 * watch::STALLED) {
            let progress = Progress::new(long_ago);
            let said = running(soon()).finish(Some(&progress)).expect_err("it stands still").to_string();
            assert!(said.starts_with("lossy: its lines have passed next to nothing for 60 s"), "{said}");
        }
        assert_eq!(limit(f64::MAX), Duration::MAX);
    }
}
