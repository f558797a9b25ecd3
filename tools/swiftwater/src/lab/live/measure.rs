//! One measurement: `swiftwater perf` or `iperf3` at both ends, each a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use netns::Host;
use serde::Deserialize;

use super::plan::Tool;
use super::{LiveError, watch};
use crate::interrupt;

/// Interval at which the end of the client and Ctrl-C are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The port of iperf3.
const IPERF3_PORT: &str = "5201";

/// A measurement: data, ends and limits.
#[derive(Clone, Debug)]
pub(super) struct Measurement<'a> {
    /// Name for users.
    pub(super) name: String,
    /// Hosts of the server and of the client; `None` is this one.
    pub(super) hosts: [Option<&'a Host>; 2],
    /// The addresses of the server and of the client.
    pub(super) addresses: [Vec<String>; 2],
    pub(super) tool: Tool,
    /// Buffers at both ends; `None` is the default.
    pub(super) buffer_bytes: Option<usize>,
    pub(super) message_bytes: usize,
    pub(super) parallel: usize,
    /// Time limit.
    pub(super) seconds: f64,
    /// Limit for the number of messages.
    pub(super) messages: Option<u64>,
    /// Whether requests are answered, to measure the latency.
    pub(super) answered: bool,
}

/// Measurements of a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) bits_per_s: f64,
    /// Time in which data was delivered.
    pub(super) seconds: f64,
    /// Median of the answers' latency.
    pub(super) latency_s: Option<f64>,
    pub(super) cpu: Option<Cpu>,
    /// Start of the test, in seconds since 1970.
    pub(super) began_unix_s: Option<f64>,
    pub(super) points: Vec<Point>,
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
    latency_us_p50: Option<f64>,
    client_cpu_ns_per_byte: Option<f64>,
    server_cpu_ns_per_byte: Option<f64>,
    cwnd_bytes: Option<f64>,
    srtt_us: Option<f64>,
    began_unix_s: Option<f64>,
}

impl Measurement<'_> {
    /// Starts both ends.
    pub(super) fn start(&self) -> Result<Running, LiveError> {
        match self.tool {
            Tool::Perf(words) => self.start_perf(words),
            Tool::Iperf3 => self.start_iperf3(),
        }
    }

    fn start_perf(&self, words: &[&str]) -> Result<Running, LiveError> {
        let [to, from] = self.addresses.each_ref().map(|addresses| addresses.join(","));
        let server = ["perf", "server", "-p", "0", "--udp-port", "0", "-B", &to];
        let mut server = End::start(self.hosts[0], "the server", &server)?;
        let line = server.read_line_with("")?;
        let address = line.split(';').next().and_then(|words| words.rsplit(' ').next());
        let Some((_, port)) = address.and_then(|address| address.rsplit_once(':')) else {
            return Err(self.failed(&mut server));
        };
        let (bytes, parallel) = (self.message_bytes.to_string(), self.parallel.to_string());
        let mut client =
            vec!["perf", "client", &self.addresses[0][0], "-p", port, "-B", &from, "-l", &bytes, "--json"];
        let interval = watch::interval(self.seconds).as_secs_f64().to_string();
        client.extend(["-P", &parallel, "-i", &interval]);
        client.extend(words);
        let buffer = self.buffer_bytes.map(|bytes| bytes.to_string());
        client.extend(buffer.iter().flat_map(|bytes| ["-w", bytes]));
        let (count, seconds) = (self.messages.map(|count| count.to_string()), self.seconds.to_string());
        match &count {
            Some(count) => client.extend(["-n", count]),
            None => client.extend(["-t", &seconds]),
        }
        client.extend(self.answered.then_some("--rr"));
        let client = End::start(self.hosts[1], "the client", &client)?;
        Ok(Running { name: self.name.clone(), _server: server, client, parse: parse_perf })
    }

    /// Starts iperf3 with our SCTP sockets.
    fn start_iperf3(&self) -> Result<Running, LiveError> {
        let (seconds, bytes) = (self.seconds.ceil().to_string(), self.message_bytes.to_string());
        let [to, from] = [&self.addresses[0][0], &self.addresses[1][0]];
        let run = ["run", "--quiet", "--", "iperf3"];
        let words = ["--server", "--one-off", "--forceflush", "--port", IPERF3_PORT, "--bind", to];
        let mut server = End::start(self.hosts[0], "iperf3 --server", &[&run[..], &words].concat())?;
        if server.read_line_with("listening")?.is_empty() {
            return Err(self.failed(&mut server));
        }
        let words = ["--client", to, "--bind", from, "--port", IPERF3_PORT, "--sctp", "--json"];
        let words = [&run[..], &words, &["--time", &seconds, "--length", &bytes]].concat();
        let client = End::start(self.hosts[1], "iperf3 --client", &words)?;
        Ok(Running { name: self.name.clone(), _server: server, client, parse: parse_iperf3 })
    }

    fn failed(&self, end: &mut End) -> LiveError {
        LiveError::End { name: self.name.clone(), said: end.complaint() }
    }
}

/// Both ends at work. Dropping this ends them.
pub(super) struct Running {
    name: String,
    _server: End,
    client: End,
    parse: fn(&str) -> Option<Measured>,
}

impl Running {
    /// Waits for the client's report; returns `None` after Ctrl-C.
    pub(super) fn finish(mut self) -> Result<Option<Measured>, LiveError> {
        let status = loop {
            if interrupt::requested() {
                return Ok(None);
            }
            match self.client.child.try_wait()? {
                Some(status) => break status,
                None => thread::sleep(CHECK_INTERVAL),
            }
        };
        let text = self.client.output();
        match (self.parse)(&text).filter(|_| status.success()) {
            Some(measured) => Ok(Some(measured)),
            None => {
                let said = match self.client.complaint() {
                    said if said.is_empty() => iperf3_error(&text).unwrap_or_default(),
                    said => said,
                };
                Err(LiveError::End { name: self.name, said })
            }
        }
    }
}

fn parse_perf(text: &str) -> Option<Measured> {
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
        latency_s: total.latency_us_p50.map(|us| us / 1e6),
        cpu: cpu
            .map(|(client_ns_per_byte, server_ns_per_byte)| Cpu { client_ns_per_byte, server_ns_per_byte }),
        began_unix_s: total.began_unix_s,
        points: others.iter().filter(|row| row.period == "interval").map(point).collect(),
    })
}

/// The fields used of iperf3's report.
#[derive(Deserialize)]
struct Iperf3 {
    start: Iperf3Start,
    intervals: Vec<Iperf3Interval>,
    end: Iperf3End,
}

#[derive(Deserialize)]
struct Iperf3Start {
    timestamp: Iperf3Timestamp,
}

#[derive(Deserialize)]
struct Iperf3Timestamp {
    timesecs: f64,
}

#[derive(Deserialize)]
struct Iperf3Interval {
    sum: Iperf3Sum,
}

#[derive(Deserialize)]
struct Iperf3End {
    sum_received: Iperf3Sum,
}

#[derive(Deserialize)]
struct Iperf3Sum {
    end: f64,
    seconds: f64,
    bytes: u64,
    bits_per_second: f64,
}

fn parse_iperf3(text: &str) -> Option<Measured> {
    let report: Iperf3 = serde_json::from_str(text).ok()?;
    let point = |Iperf3Interval { sum }: &Iperf3Interval| Point {
        at_s: sum.end,
        bytes: sum.bytes,
        bits_per_s: sum.bits_per_second,
        ..Point::default()
    };
    Some(Measured {
        bits_per_s: report.end.sum_received.bits_per_second,
        seconds: report.end.sum_received.seconds,
        began_unix_s: Some(report.start.timestamp.timesecs),
        points: report.intervals.iter().map(point).collect(),
        ..Measured::default()
    })
}

/// Returns the error that iperf3 writes into its report.
fn iperf3_error(text: &str) -> Option<String> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(report.get("error")?.as_str()?.to_owned())
}

/// A process that ends with this value. A thread reads its output, so that it never waits for us.
struct End {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    rest: Option<Receiver<String>>,
}

impl End {
    /// Starts this program with these words on a host, or on this one.
    fn start(host: Option<&Host>, what: &'static str, words: &[&str]) -> Result<Self, LiveError> {
        let failed = |source| LiveError::Start { what, source };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // A daemon outside the laboratory would serve neither host.
        command.args(words).env_remove(crate::run::ADDRESS_VARIABLE);
        // The process has its own group: Ctrl-C is for us, and we end the processes.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = match host {
            Some(host) => host.spawn(&mut command),
            None => command.spawn(),
        };
        let mut child = child.map_err(failed)?;
        let stdout = child.stdout.take().map(BufReader::new);
        let mut end = End { child, stdout, rest: None };
        if words.contains(&"client") || words.contains(&"--client") {
            end.read_rest();
        }
        Ok(end)
    }

    /// Reads a server's output up to a line with this word, and keeps the output open: without a reader the server would end.
    /// Returns the line, which is empty if there is none.
    fn read_line_with(&mut self, word: &str) -> Result<String, LiveError> {
        let mut line = String::new();
        while let Some(stdout) = self.stdout.as_mut() {
            line.clear();
            if stdout.read_line(&mut line)? == 0 || line.contains(word) {
                break;
            }
        }
        self.read_rest();
        Ok(line)
    }

    /// Starts a thread that reads the rest of the output.
    fn read_rest(&mut self) {
        let Some(mut stdout) = self.stdout.take() else { return };
        let (text_in, text) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            let _ = text_in.send(text);
        });
        self.rest = Some(text);
    }

    /// Returns the output of a process that has ended.
    fn output(&mut self) -> String {
        self.rest.take().and_then(|rest| rest.recv().ok()).unwrap_or_default()
    }

    /// Returns the process's error output.
    fn complaint(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = self.child.kill();
            let _ = stderr.read_to_string(&mut said);
        }
        said.trim().trim_start_matches("swiftwater: ").to_owned()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
            {"period": "total", "end_s": 1.0, "bytes": 1250000, "bits_per_s": 2e7, "began_unix_s": 7.5,
             "client_cpu_ns_per_byte": 1.0, "server_cpu_ns_per_byte": 2.0}]"#;
        let measured = parse_perf(text).expect("a report");
        assert_eq!((measured.bits_per_s, measured.seconds, measured.began_unix_s), (2e7, 0.5, Some(7.5)));
        assert_eq!(measured.cpu, Some(Cpu { client_ns_per_byte: 1.0, server_ns_per_byte: 2.0 }));
        let point = Point {
            at_s: 0.1,
            bytes: 125_000,
            bits_per_s: 1e7,
            cwnd_bytes: Some(9000.0),
            srtt_s: Some(5e-4),
        };
        assert_eq!(measured.points, [point]);
        assert_eq!(parse_perf("[]"), None);
    }

    #[test]
    fn the_report_of_iperf3_counts_what_was_received() {
        let sum = r#"{"start": 0, "end": 1.0, "seconds": 1.0, "bytes": 10, "bits_per_second": 80.0}"#;
        let text = format!(
            r#"{{"start": {{"timestamp": {{"timesecs": 5}}}}, "intervals": [{{"sum": {sum}}}],
                "end": {{"sum_sent": {{}}, "sum_received": {sum}}}}}"#
        );
        let measured = parse_iperf3(&text).expect("a report");
        assert_eq!((measured.bits_per_s, measured.points.len()), (80.0, 1));
        let error = r#"{"start": {}, "error": "unable to connect"}"#;
        assert_eq!(parse_iperf3(error), None);
        assert_eq!(iperf3_error(error).as_deref(), Some("unable to connect"));
    }
}
