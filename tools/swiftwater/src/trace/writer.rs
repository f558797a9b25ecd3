//! Trace records as a qlog file in JSON-SEQ.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use swiftwater::trace::{Contents, Event, Metrics, Record};

use super::names;
use super::schema::{
    Chunk, Closed, CommonFields, DataAcked, Dropped, EVENT_SCHEMA, EventOut, FILE_SCHEMA, Header,
    MetricsUpdated, Packet, PacketLost, PathAssigned, ReferenceTime, SERIALIZATION, Started, StateUpdated,
    TimerExpired, TraceHeader, Triggered, VantagePoint,
};

/// First byte of every record of a JSON text sequence (RFC 7464 §2.2).
pub(crate) const RECORD_SEPARATOR: u8 = 0x1e;

/// Vantage point and clock of the trace.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Title of the file.
    pub title: String,
    /// `client`, `server` or `unknown`.
    pub side: &'static str,
    /// Time of day at time zero; `None` for a virtual clock.
    pub zero: Option<SystemTime>,
}

/// Writes records one after the other. Keeps only the last metrics of each path of an association that is up.
pub(crate) struct Writer<W: Write> {
    out: W,
    metrics: HashMap<(u32, u8), Metrics>,
}

impl<W: Write> Writer<W> {
    /// Writes the header of a file.
    pub(crate) fn new(mut out: W, origin: &Origin) -> io::Result<Self> {
        let reference_time = ReferenceTime {
            clock_type: if origin.zero.is_some() { "monotonic" } else { "virtual" }.into(),
            epoch: "unknown".into(),
            wall_clock_time: origin.zero.map(|at| humantime::format_rfc3339_micros(at).to_string()),
        };
        let header = Header {
            file_schema: FILE_SCHEMA.into(),
            serialization_format: SERIALIZATION.into(),
            title: Some(origin.title.clone()),
            trace: TraceHeader {
                vantage_point: Some(VantagePoint { name: None, side: origin.side.into() }),
                event_schemas: vec![EVENT_SCHEMA.into()],
                common_fields: Some(CommonFields {
                    time_format: Some("relative_to_epoch".into()),
                    reference_time: Some(reference_time),
                }),
            },
        };
        write_record(&mut out, &header)?;
        Ok(Self { out, metrics: HashMap::new() })
    }

    /// Writes one record.
    pub(crate) fn write(&mut self, record: &Record) -> io::Result<()> {
        let place = Place::of(record);
        match &record.event {
            Event::Started { association, local_port, peer_port } => {
                let data = Started {
                    association: association.serial(),
                    local_port: *local_port,
                    peer_port: *peer_port,
                };
                self.put(&place, names::STARTED, data)
            }
            Event::PathAdded { remote } => {
                self.put(&place, names::PATH, PathAssigned { remote: remote.to_string() })
            }
            Event::StateChanged { old, new } => {
                let data = StateUpdated { old: old.name().into(), new: new.name().into() };
                self.put(&place, names::STATE, data)
            }
            Event::PathStateChanged { old, new } => {
                self.put(&place, names::PATH_STATE, changed(old.name(), new.name()))
            }
            Event::PacketSent { number, contents } => {
                self.put(&place, names::SENT, packet(*number, contents))
            }
            Event::PacketReceived { contents } => self.put(&place, names::RECEIVED, packet(None, contents)),
            Event::DataAcked { bytes, cumulative_tsn } => {
                self.put(&place, names::ACKED, DataAcked { bytes: *bytes, cum_tsn: *cumulative_tsn })
            }
            Event::PacketLost { number, bytes, reason } => {
                let trigger = names::loss(*reason).into();
                self.put(&place, names::LOST, PacketLost { packet_number: *number, bytes: *bytes, trigger })
            }
            Event::CongestionChanged { old, new } => {
                self.put(&place, names::CONGESTION, changed(names::phase(*old), names::phase(*new)))
            }
            Event::TimerExpired { timer, count } => {
                let data = TimerExpired { timer: names::timer(*timer).into(), count: *count };
                self.put(&place, names::TIMER, data)
            }
            Event::ProbeSent { probe } => {
                self.put(&place, names::PROBE, Triggered { trigger: names::probe(*probe).into() })
            }
            Event::LossUndone { reason } => {
                self.put(&place, names::UNDONE, Triggered { trigger: names::undo(*reason).into() })
            }
            Event::Metrics(metrics) => {
                let path = record.path.unwrap_or_default();
                let before = self.metrics.insert((record.tag, path), *metrics);
                self.put(&place, names::METRICS, difference(before.as_ref(), metrics))
            }
            Event::Closed(reason) => {
                self.metrics.retain(|(tag, _), _| *tag != record.tag);
                self.put(&place, names::CLOSED, Closed { reason: reason.to_string() })
            }
            Event::Dropped { records } => self.put(&place, names::DROPPED, Dropped { count: *records }),
        }
    }

    /// Flushes buffered output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn put(&mut self, place: &Place, name: &'static str, data: impl Serialize) -> io::Result<()> {
        let event = EventOut {
            time: place.time_ms,
            name,
            group_id: &place.group,
            tuple: place.path.as_deref(),
            data,
        };
        write_record(&mut self.out, &event)
    }
}

/// Time and place of an event.
struct Place {
    time_ms: f64,
    group: String,
    path: Option<String>,
}

impl Place {
    fn of(record: &Record) -> Self {
        Self {
            time_ms: record.at.as_nanos() as f64 / 1e6,
            group: format!("{:08x}", record.tag),
            path: record.path.map(|path| path.to_string()),
        }
    }
}

fn write_record(out: &mut impl Write, record: &impl Serialize) -> io::Result<()> {
    out.write_all(&[RECORD_SEPARATOR])?;
    serde_json::to_writer(&mut *out, record)?;
    out.write_all(b"\n")
}

fn changed(old: &str, new: &str) -> StateUpdated {
    StateUpdated { old: old.into(), new: new.into() }
}

fn packet(number: Option<u32>, contents: &Contents) -> Packet {
    let mut chunks = Vec::new();
    let named = usize::from(contents.control_chunks).min(contents.control_kinds.len());
    let mut sack = contents.sack;
    for kind in &contents.control_kinds[..named] {
        let kind = names::chunk(*kind);
        chunks.push(match sack.take_if(|_| kind == names::SACK) {
            Some(sack) => Chunk::Sack {
                kind,
                cum_tsn: sack.cumulative_tsn,
                a_rwnd: sack.window_bytes,
                gap_blocks: sack.gaps,
                duplicate_tsns: sack.duplicates,
            },
            None => Chunk::One { kind },
        });
    }
    let unnamed = usize::from(contents.control_chunks) - named;
    if unnamed > 0 {
        chunks.push(Chunk::Several { kind: "others".into(), count: unnamed as u16 });
    }
    if let Some(data) = contents.data {
        chunks.push(Chunk::Data {
            kind: names::DATA.into(),
            count: data.chunks,
            retransmitted: data.retransmitted,
            first_tsn: data.first_tsn,
            last_tsn: data.last_tsn,
            payload_length: data.payload_bytes,
        });
    }
    Packet { packet_number: number, length: contents.bytes, chunks }
}

/// Returns the metrics that differ from those in the file so far.
fn difference(before: Option<&Metrics>, now: &Metrics) -> MetricsUpdated {
    fn new<T: PartialEq>(before: Option<Option<T>>, now: Option<T>) -> Option<Option<T>> {
        (before.as_ref() != Some(&now) && (before.is_some() || now.is_some())).then_some(now)
    }
    let ms = |time: Option<Duration>| time.map(|time| time.as_nanos() as f64 / 1e6);
    let bits = |rate: Option<u64>| rate.map(|bytes_per_s| bytes_per_s.saturating_mul(8));
    MetricsUpdated {
        min_rtt: new(before.map(|m| ms(m.min_rtt)), ms(now.min_rtt)),
        smoothed_rtt: new(before.map(|m| ms(m.srtt)), ms(now.srtt)),
        latest_rtt: new(before.map(|m| ms(m.latest_rtt)), ms(now.latest_rtt)),
        rtt_variance: new(before.map(|m| ms(m.rttvar)), ms(now.rttvar)),
        rto: new(before.map(|m| ms(Some(m.rto))), ms(Some(now.rto))),
        congestion_window: new(before.map(|m| Some(m.cwnd_bytes)), Some(now.cwnd_bytes)),
        bytes_in_flight: new(before.map(|m| Some(m.in_flight_bytes)), Some(now.in_flight_bytes)),
        ssthresh: new(before.map(|m| m.ssthresh_bytes), now.ssthresh_bytes),
        pacing_rate: new(before.map(|m| bits(m.pacing_bytes_per_s)), bits(now.pacing_bytes_per_s)),
        mtu: new(before.map(|m| Some(m.mtu_bytes)), Some(now.mtu_bytes)),
        peer_window: new(before.map(|m| Some(m.peer_window_bytes)), Some(now.peer_window_bytes)),
        send_buffer: new(before.map(|m| Some(m.send_buffered_bytes)), Some(now.send_buffered_bytes)),
    }
}
