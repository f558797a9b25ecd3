//! The result of a test, as text and as JSON.

use std::io::{self, Write};
use std::net::IpAddr;

use serde::Serialize;
use swiftwater::Multipath;

use super::client::{Outcome, PathTotals, per};
use super::config::ClientConfig;
use super::connector::Window;
use super::control::{Interval, Totals};
use super::server::{Served, ServerEvent};
use super::spec::{Exchange, Link, Method, Protocol, Spec};
use crate::units::{grouped, mbits};

/// One object of the JSON array: a whole test or one interval of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    period: &'static str,
    series: String,
    protocol: Protocol,
    exchange: Exchange,
    message_bytes: usize,
    parallel: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_bytes: Option<usize>,
    start_s: f64,
    end_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_per_s: Option<f64>,
    bits_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_sent: Option<u64>,
    #[serde(flatten)]
    client_cpu: Option<ClientCpu>,
    #[serde(flatten)]
    server_cpu: Option<ServerCpu>,
    #[serde(flatten)]
    latency: Option<LatencyKeys>,
    #[serde(flatten)]
    path: Option<PathKeys>,
    #[serde(flatten)]
    window: Option<WindowKeys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    began_unix_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    began_monotonic_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<Link>,
}

#[derive(Clone, Debug, Serialize)]
struct PathKeys {
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<IpAddr>,
    remote: IpAddr,
    path_state: String,
    path_packets_lost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    srtt_us: Option<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct WindowKeys {
    cwnd_bytes: u64,
    srtt_us: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ClientCpu {
    client_cpu_s: f64,
    client_cpu_ns_per_message: f64,
    client_cpu_ns_per_byte: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ServerCpu {
    server_cpu_s: f64,
    server_cpu_ns_per_message: f64,
    server_cpu_ns_per_byte: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct LatencyKeys {
    latency_us_min: f64,
    latency_us_mean: f64,
    latency_us_mean_over_time: f64,
    latency_us_p50: f64,
    latency_us_p90: f64,
    latency_us_p99: f64,
    latency_us_p999: f64,
    latency_us_max: f64,
}

impl Row {
    /// Returns the row of an interval, with the windows at its end, if known.
    pub(crate) fn of_interval(spec: &Spec, interval: &Interval, window: Option<Window>) -> Self {
        let seconds = interval.end_s - interval.start_s;
        let row = Self::empty(spec, "interval", interval.start_s, interval.end_s);
        Self {
            messages: Some(interval.messages),
            bytes: interval.bytes,
            messages_per_s: Some(per(interval.messages as f64, seconds)),
            bits_per_s: per(interval.bytes as f64 * 8.0, seconds),
            window: window.map(|window| WindowKeys {
                cwnd_bytes: window.cwnd_bytes,
                srtt_us: window.srtt.as_secs_f64() * 1e6,
            }),
            ..row
        }
    }

    /// Returns the row of a test as the server saw it.
    pub(crate) fn of_served(served: &Served) -> Self {
        let totals = &served.totals;
        let row = Self::empty(&served.spec, "total", 0.0, totals.seconds);
        Self {
            messages: Some(totals.messages),
            bytes: totals.bytes,
            messages_per_s: Some(per(totals.messages as f64, totals.seconds)),
            bits_per_s: per(totals.bytes as f64 * 8.0, totals.seconds),
            server_cpu: Some(ServerCpu::of(totals)),
            interrupted: Some(served.interrupted),
            ..row
        }
    }

    /// Returns the row of a test from the reports of both ends.
    pub(crate) fn of_outcome(spec: &Spec, outcome: &Outcome) -> Self {
        let row = Self::empty(spec, "total", 0.0, outcome.client.seconds);
        Self {
            messages: Some(outcome.server.messages),
            bytes: outcome.server.bytes,
            messages_per_s: Some(outcome.messages_per_s()),
            bits_per_s: outcome.bits_per_s(),
            messages_sent: Some(outcome.client.messages),
            client_cpu: Some(ClientCpu::of(&outcome.client, &outcome.server)),
            server_cpu: Some(ServerCpu::of(&outcome.server)),
            latency: outcome.latency.map(|latency| LatencyKeys {
                latency_us_min: latency.min_us,
                latency_us_mean: latency.mean_us,
                latency_us_mean_over_time: latency.mean_over_time_us,
                latency_us_p50: latency.p50_us,
                latency_us_p90: latency.p90_us,
                latency_us_p99: latency.p99_us,
                latency_us_p999: latency.p999_us,
                latency_us_max: latency.max_us,
            }),
            began_unix_s: Some(outcome.began.unix_s),
            began_monotonic_s: Some(outcome.began.monotonic_s),
            interrupted: Some(outcome.interrupted),
            link: outcome.link,
            ..row
        }
    }

    /// Returns the row of an association's path at the end of a test.
    pub(crate) fn of_path(spec: &Spec, outcome: &Outcome, path: &PathTotals) -> Self {
        let row = Self::empty(spec, "path", 0.0, outcome.client.seconds);
        Self {
            bytes: path.bytes,
            bits_per_s: per(path.bytes as f64 * 8.0, outcome.seconds()),
            path: Some(PathKeys {
                local: path.local,
                remote: path.remote,
                path_state: path.state.clone(),
                path_packets_lost: path.packets_lost,
                srtt_us: path.srtt_us,
            }),
            ..row
        }
    }

    fn empty(spec: &Spec, period: &'static str, start_s: f64, end_s: f64) -> Self {
        Self {
            period,
            series: series_name(spec),
            protocol: spec.method.protocol(),
            exchange: spec.exchange,
            message_bytes: spec.message_bytes,
            parallel: spec.parallel,
            packet_bytes: spec.packet_bytes,
            start_s,
            end_s,
            messages: None,
            bytes: 0,
            messages_per_s: None,
            bits_per_s: 0.0,
            messages_sent: None,
            client_cpu: None,
            server_cpu: None,
            latency: None,
            path: None,
            window: None,
            began_unix_s: None,
            began_monotonic_s: None,
            interrupted: None,
            link: None,
        }
    }
}

impl ClientCpu {
    /// Returns the client's processor time per delivered message.
    fn of(client: &Totals, delivered: &Totals) -> Self {
        Self {
            client_cpu_s: client.cpu_s,
            client_cpu_ns_per_message: per(client.cpu_s * 1e9, delivered.messages as f64),
            client_cpu_ns_per_byte: per(client.cpu_s * 1e9, delivered.bytes as f64),
        }
    }
}

impl ServerCpu {
    fn of(server: &Totals) -> Self {
        Self {
            server_cpu_s: server.cpu_s,
            server_cpu_ns_per_message: per(server.cpu_s * 1e9, server.messages as f64),
            server_cpu_ns_per_byte: per(server.cpu_s * 1e9, server.bytes as f64),
        }
    }
}

/// Returns the name of a test's series in tables, figures and JSON.
pub(crate) fn series_name(spec: &Spec) -> String {
    let protocol = match spec.method.protocol() {
        Protocol::Sctp => "sctp",
        Protocol::Tcp => "tcp",
        Protocol::Mptcp => "mptcp",
        Protocol::Udp => "udp",
        Protocol::SctpSockets => "sctp-sockets",
        Protocol::Relay => "relay",
    };
    match (spec.exchange, spec.method) {
        (Exchange::RequestResponse, _) => format!("{protocol}-rr"),
        (Exchange::ConnectRequestResponse, _) => format!("{protocol}-crr"),
        (_, Method::TcpPlain) => "tcp".into(),
        (_, Method::TcpBatched) => "tcp-batched".into(),
        (_, Method::MptcpPlain) => "mptcp".into(),
        (_, Method::SctpMessage) if !spec.checksum => "sctp-nocsum".into(),
        (_, Method::SctpMessage) => "sctp-message".into(),
        (_, Method::SctpBatch) => "sctp-batch".into(),
        (_, Method::SctpStream) => "sctp-stream".into(),
        (_, Method::SctpSockets) => "sctp-sockets".into(),
        (_, Method::Relay) => "relay".into(),
        (_, Method::UdpPlain) => "udp".into(),
        (_, Method::UdpLimit) => "udp-limit".into(),
    }
}

/// Prints a description of the test before it begins.
pub(crate) fn tell_test(out: &mut impl Write, config: &ClientConfig) -> io::Result<()> {
    let end = match config.count {
        Some(1) => "1 message".to_owned(),
        Some(count) => format!("{} messages", grouped(count)),
        None => format!("{} s", config.duration.as_secs_f64()),
    };
    writeln!(
        out,
        "{} to {} port {}, {}, {end}",
        describe(&config.spec),
        config.host,
        config.port,
        at_a_time(&config.spec)
    )?;
    if !config.spec.checksum {
        writeln!(out, "no checksum: for measurements on one machine, not for networks")?;
    }
    Ok(())
}

fn describe(spec: &Spec) -> String {
    format!(
        "{}, messages of {} byte{}",
        series_name(spec),
        grouped(spec.message_bytes as u64),
        if spec.message_bytes == 1 { "" } else { "s" }
    )
}

fn at_a_time(spec: &Spec) -> String {
    let what = match spec.method.protocol() {
        Protocol::Sctp | Protocol::SctpSockets => "association",
        Protocol::Tcp | Protocol::Mptcp | Protocol::Relay => "connection",
        Protocol::Udp => "flow",
    };
    if spec.parallel == 1 { format!("1 {what}") } else { format!("{} {what}s", spec.parallel) }
}

/// Prints one line for an interval.
pub(crate) fn tell_interval(out: &mut impl Write, interval: &Interval) -> io::Result<()> {
    let seconds = interval.end_s - interval.start_s;
    writeln!(
        out,
        "{:7.2} to {:7.2} s  {:>14} messages/s  {:>9} Mbit/s",
        interval.start_s,
        interval.end_s,
        grouped(per(interval.messages as f64, seconds).round() as u64),
        mbits(per(interval.bytes as f64 * 8.0, seconds))
    )
}

/// Prints the totals of both ends.
pub(crate) fn tell_outcome(out: &mut impl Write, spec: &Spec, outcome: &Outcome) -> io::Result<()> {
    if outcome.interrupted {
        writeln!(out, "stopped early; the totals so far:")?;
    }
    tell_rates(
        out,
        outcome.server.messages,
        outcome.seconds(),
        outcome.messages_per_s(),
        outcome.bits_per_s(),
    )?;
    let lost = outcome.client.messages.saturating_sub(outcome.server.messages);
    if lost > 0 && spec.method == Method::UdpPlain {
        let part = per(lost as f64, outcome.client.messages as f64) * 100.0;
        writeln!(
            out,
            "lost       {:>14} of {} messages ({part:.1} %)",
            grouped(lost),
            grouped(outcome.client.messages)
        )?;
    }
    if let Some(latency) = &outcome.latency {
        writeln!(
            out,
            "latency    {:.1} us at 50 %, {:.1} at 90 %, {:.1} at 99 %, {:.1} at 99.9 %; mean {:.1}, from {:.1} to {:.1}",
            latency.p50_us,
            latency.p90_us,
            latency.p99_us,
            latency.p999_us,
            latency.mean_us,
            latency.min_us,
            latency.max_us
        )?;
    }
    if outcome.link == Some(Link::Raw) {
        writeln!(out, "link       IP, protocol 132, without UDP")?;
    }
    for path in &outcome.paths {
        tell_path(out, path, outcome.seconds())?;
    }
    tell_idle_paths(out, spec, &outcome.paths)?;
    tell_cpu(out, "cpu client", &outcome.client, &outcome.server, outcome.client.seconds)?;
    tell_cpu(out, "cpu server", &outcome.server, &outcome.server, outcome.client.seconds)
}

fn tell_rates(
    out: &mut impl Write,
    messages: u64,
    seconds: f64,
    per_s: f64,
    bits_per_s: f64,
) -> io::Result<()> {
    writeln!(
        out,
        "delivered  {:>14} messages in {seconds:.2} s: {} messages/s, {} Mbit/s",
        grouped(messages),
        grouped(per_s.round() as u64),
        mbits(bits_per_s)
    )
}

fn tell_path(out: &mut impl Write, path: &PathTotals, seconds: f64) -> io::Result<()> {
    let local = path.local.map_or_else(|| "any".into(), |local| local.to_string());
    let srtt = path.srtt_us.map_or_else(|| "not measured".into(), |us| format!("{us:.0} us"));
    writeln!(
        out,
        "path       {local} to {}: {}, {} Mbit/s with chunk headers, {} packets lost, round trip {srtt}",
        path.remote,
        path.state,
        mbits(per(path.bytes as f64 * 8.0, seconds)),
        grouped(path.packets_lost)
    )
}

/// Says why only one of several paths has carried data, if nobody has asked for that.
fn tell_idle_paths(out: &mut impl Write, spec: &Spec, paths: &[PathTotals]) -> io::Result<()> {
    let is_agreed = spec.multipath.unwrap_or_default() == Multipath::Agreed;
    let used = paths.iter().filter(|path| path.bytes > 0).count();
    if !is_agreed || used != 1 || paths.len() == 1 {
        return Ok(());
    }
    writeln!(
        out,
        "           one path carries all data between addresses of one host; --multipath always uses all paths"
    )
}

fn tell_cpu(
    out: &mut impl Write,
    name: &str,
    end: &Totals,
    delivered: &Totals,
    seconds: f64,
) -> io::Result<()> {
    writeln!(
        out,
        "{name} {:>14} ns/message, {:.3} ns/byte ({:.0} % of one processor in {seconds:.2} s)",
        ns_text(per(end.cpu_s * 1e9, delivered.messages as f64)),
        per(end.cpu_s * 1e9, delivered.bytes as f64),
        per(end.cpu_s, seconds) * 100.0
    )
}

/// Returns nanoseconds with a digit after the point, if they are few.
fn ns_text(ns: f64) -> String {
    if ns < 1000.0 { format!("{ns:.1}") } else { grouped(ns.round() as u64) }
}

/// Prints an event of a running server.
pub(crate) fn tell_server_event(out: &mut impl Write, event: &ServerEvent) -> io::Result<()> {
    match event {
        ServerEvent::Started(client, spec) => {
            writeln!(out, "{client}: {}, {}", describe(spec), at_a_time(spec))
        }
        ServerEvent::Interval(interval) => {
            // Both ends may print to one terminal.
            write!(out, "server ")?;
            tell_interval(out, interval)
        }
        ServerEvent::Failed(client, reason) => writeln!(out, "{client}: failed: {reason}"),
        ServerEvent::Served(served) => {
            let totals = &served.totals;
            if served.interrupted {
                writeln!(out, "stopped early; the totals so far:")?;
            }
            let per_s = per(totals.messages as f64, totals.seconds);
            tell_rates(
                out,
                totals.messages,
                totals.seconds,
                per_s,
                per(totals.bytes as f64 * 8.0, totals.seconds),
            )?;
            tell_cpu(out, "cpu server", totals, totals, totals.seconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_path() -> PathTotals {
        PathTotals {
            local: None,
            remote: std::net::Ipv4Addr::LOCALHOST.into(),
            state: "active".into(),
            bytes: 160_000,
            packets_lost: 0,
            srtt_us: None,
        }
    }

    #[test]
    fn intervals_of_the_server_are_told_from_those_of_the_client() {
        let interval = Interval { start_s: 0.0, end_s: 0.5, messages: 10, bytes: 80 };
        let (mut client, mut server) = (Vec::new(), Vec::new());
        tell_interval(&mut client, &interval).expect("memory");
        tell_server_event(&mut server, &ServerEvent::Interval(interval)).expect("memory");
        assert_eq!(server, [b"server ", &client[..]].concat());
    }

    #[test]
    fn the_count_the_time_and_the_rates_of_a_line_are_of_one_interval() {
        let totals = |seconds| Totals { messages: 160, bytes: 160_000, seconds, cpu_s: 0.1, nice: 0 };
        let outcome = Outcome {
            client: totals(2.2),
            server: totals(2.0),
            latency: None,
            paths: vec![example_path()],
            began: Default::default(),
            interrupted: false,
            link: Some(Link::Raw),
        };
        let spec = super::super::spec::example();
        let mut told = Vec::new();
        tell_outcome(&mut told, &spec, &outcome).expect("memory");
        let told = String::from_utf8(told).expect("UTF-8");
        assert!(told.contains("160 messages in 2.00 s: 80 messages/s, 0.64 Mbit/s"), "{told}");
        assert!(told.contains("active, 0.64 Mbit/s with chunk headers"), "{told}");
        assert!(told.contains("IP, protocol 132, without UDP"), "{told}");
        // The server does not know how long the client has waited for its end.
        assert_eq!(told.matches("(5 % of one processor in 2.20 s)").count(), 2, "{told}");
        let served = Served { spec: spec.clone(), totals: outcome.server, interrupted: false };
        let mut of_server = Vec::new();
        tell_server_event(&mut of_server, &ServerEvent::Served(served)).expect("memory");
        let of_server = String::from_utf8(of_server).expect("UTF-8");
        assert!(of_server.contains("(5 % of one processor in 2.00 s)"), "{of_server}");
        assert_eq!([42_918.8, 999.94].map(ns_text), ["42,919", "999.9"]);
        assert_eq!(Row::of_path(&spec, &outcome, &outcome.paths[0]).bits_per_s, 640_000.0);
    }

    #[test]
    fn an_idle_path_is_explained_unless_it_was_asked_for() {
        let told = |multipath, bytes: &[u64]| {
            let path = |&bytes| PathTotals { bytes, ..example_path() };
            let paths: Vec<PathTotals> = bytes.iter().map(path).collect();
            let spec = Spec { multipath, ..super::super::spec::example() };
            let mut told = Vec::new();
            tell_idle_paths(&mut told, &spec, &paths).expect("memory");
            String::from_utf8(told).expect("UTF-8").contains("--multipath always")
        };
        assert!(told(None, &[9, 0]) && told(Some(Multipath::Agreed), &[0, 9, 0]));
        assert!(!told(None, &[9]) && !told(None, &[9, 9]) && !told(None, &[0, 0]));
        assert!(!told(Some(Multipath::Off), &[9, 0]) && !told(Some(Multipath::Always), &[9, 0]));
    }
}
