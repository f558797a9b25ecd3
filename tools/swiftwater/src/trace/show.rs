//! `swiftwater trace show`: events as lines.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use super::args::ShowArgs;
use super::names;
use super::reader::{Body, Entry, Reader};
use super::schema::{Chunk, MetricsUpdated, NAMESPACE, Packet};
use super::{ReadError, TraceError};
use crate::output::{OutputError, note};

/// The names of all events, without their namespace.
pub(super) const NAMES: [&str; 15] = [
    "association_started",
    "association_state_updated",
    "association_closed",
    "path_assigned",
    "path_state_updated",
    "packet_sent",
    "packet_received",
    "data_acked",
    "packet_lost",
    "congestion_state_updated",
    "timer_expired",
    "probe_sent",
    "loss_undone",
    "metrics_updated",
    "records_dropped",
];

/// Prints the selected events.
pub(super) fn run(args: &ShowArgs, out: &mut impl Write) -> Result<(), TraceError> {
    let wanted: Vec<&str> =
        args.event.iter().map(|name| name.strip_prefix(NAMESPACE).unwrap_or(name)).collect();
    if let Some(unknown) = wanted.iter().find(|name| !NAMES.contains(*name)) {
        return Err(TraceError::NoSuchEvent((*unknown).to_owned()));
    }
    let mut reader = Reader::open(&args.file)?;
    let (mut any, mut printed) = (false, false);
    let mut text = String::new();
    while let Some(entry) = reader.next()? {
        any = true;
        if args.select.takes(&entry) && (wanted.is_empty() || wanted.contains(&entry.name)) {
            printed = true;
            text.clear();
            write_line(&entry, &mut text);
            out.write_all(text.as_bytes()).map_err(OutputError::from)?;
        }
    }
    if reader.is_cut_off() {
        warn_cut_off(&args.file);
    }
    match (any, printed) {
        (false, _) => Err(ReadError::Nothing { path: args.file.clone() }.into()),
        (true, false) => Err(TraceError::NothingSelected { path: args.file.clone() }),
        (true, true) => Ok(()),
    }
}

/// Warns that the end is missing.
pub(super) fn warn_cut_off(path: &Path) {
    note(format_args!(
        "swiftwater: {} ends in the middle of a record: the program that wrote it was stopped",
        path.display()
    ));
}

/// Formats one event as a line.
fn write_line(entry: &Entry, out: &mut String) {
    let path = entry.path.as_ref().map_or_else(String::new, |path| format!("/{path}"));
    let place = format!("{}{path}", entry.group);
    let _ = write!(out, "{:12.6}  {place:<11} {:<25}  ", entry.time_s, entry.name);
    match &entry.body {
        Body::Started(it) => {
            let _ = write!(out, "association {} port {} to {}", it.association, it.local_port, it.peer_port);
        }
        Body::State(it) | Body::PathState(it) | Body::Congestion(it) => {
            let _ = write!(out, "{} -> {}", it.old, it.new);
        }
        Body::Closed(it) => out.push_str(&it.reason),
        Body::Path(it) => out.push_str(&it.remote),
        Body::Sent(packet) | Body::Received(packet) => write_packet(packet, out),
        Body::Acked(it) => {
            let _ = write!(out, "{} bytes, cum TSN {}", it.bytes, it.cum_tsn);
        }
        Body::Lost(it) => {
            let _ = write!(out, "#{} {} bytes, {}", it.packet_number, it.bytes, it.trigger);
        }
        Body::Timer(it) => {
            let _ = write!(out, "{} ({} in a row)", it.timer, it.count);
        }
        Body::Probe(it) | Body::Undone(it) => out.push_str(&it.trigger),
        Body::Metrics(it) => write_metrics(it, out),
        Body::Dropped(it) => {
            let _ = write!(out, "{} records are missing before this one", it.count);
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
}

fn write_packet(packet: &Packet, out: &mut String) {
    if let Some(number) = packet.packet_number {
        let _ = write!(out, "#{number} ");
    }
    let _ = write!(out, "{} bytes:", packet.length);
    for (index, chunk) in packet.chunks.iter().enumerate() {
        out.push_str(if index == 0 { " " } else { ", " });
        let _ = match chunk {
            Chunk::Data { count, retransmitted, first_tsn, last_tsn, payload_length, .. } => {
                let again = match retransmitted {
                    0 => String::new(),
                    again => format!(", {again} again"),
                };
                let tsns = if first_tsn == last_tsn {
                    first_tsn.to_string()
                } else {
                    format!("{first_tsn}..{last_tsn}")
                };
                write!(out, "{count} {} (TSN {tsns}, {payload_length} bytes{again})", names::DATA)
            }
            Chunk::Sack { cum_tsn, a_rwnd, gap_blocks, duplicate_tsns, .. } => {
                write!(out, "SACK (cum TSN {cum_tsn}, window {a_rwnd}")
                    .and_then(|()| if *gap_blocks > 0 { write!(out, ", {gap_blocks} gaps") } else { Ok(()) })
                    .and_then(|()| match duplicate_tsns {
                        0 => Ok(()),
                        count => write!(out, ", {count} duplicates"),
                    })
                    .and_then(|()| out.write_char(')'))
            }
            Chunk::Several { kind, count } => write!(out, "{count} {kind}"),
            Chunk::One { kind } => out.write_str(kind),
        };
    }
}

fn write_metrics(metrics: &MetricsUpdated, out: &mut String) {
    let mut first = true;
    let mut item = |name: &str, value: Option<String>, unit: &str| {
        let separator = if std::mem::take(&mut first) { "" } else { ", " };
        let _ = match value {
            Some(value) => write!(out, "{separator}{name} {value}{unit}"),
            None => write!(out, "{separator}{name} none"),
        };
    };
    let bytes = [
        ("cwnd", metrics.congestion_window),
        ("ssthresh", metrics.ssthresh),
        ("in flight", metrics.bytes_in_flight),
        ("peer window", metrics.peer_window),
        ("send buffer", metrics.send_buffer),
        ("MTU", metrics.mtu),
    ];
    for (name, value) in bytes {
        if let Some(value) = value {
            item(name, value.map(|v| v.to_string()), "");
        }
    }
    let times = [
        ("RTT", metrics.latest_rtt),
        ("SRTT", metrics.smoothed_rtt),
        ("RTTVAR", metrics.rtt_variance),
        ("min RTT", metrics.min_rtt),
        ("RTO", metrics.rto),
    ];
    for (name, value) in times {
        if let Some(value) = value {
            item(name, value.map(|v| format!("{v:.3}")), " ms");
        }
    }
    if let Some(rate) = metrics.pacing_rate {
        item("pacing", rate.map(|bits_per_s| format!("{:.3}", bits_per_s as f64 / 1e6)), " Mbit/s");
    }
}
