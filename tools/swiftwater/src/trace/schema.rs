//! The objects of a trace file, for writing and for reading: qlog's main schema (draft-ietf-quic-qlog-main-schema) with events of
//! our own (`docs/trace.md`).

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Identifies a file as a sequence of records (qlog main schema, "File schema").
pub(crate) const FILE_SCHEMA: &str = "urn:ietf:params:qlog:file:sequential";
/// Serialization of the records (RFC 7464).
pub(crate) const SERIALIZATION: &str = "application/qlog+json-seq";
/// Identifies the events that `docs/trace.md` describes.
pub(crate) const EVENT_SCHEMA: &str = "tag:swiftwater,2026:qlog:events:sctp-1";
/// Prefix of all names of events.
pub(crate) const NAMESPACE: &str = "sctp:";

/// The first record of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    pub file_schema: String,
    pub serialization_format: String,
    pub title: Option<String>,
    pub trace: TraceHeader,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TraceHeader {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vantage_point: Option<VantagePoint>,
    #[serde(default)]
    pub event_schemas: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_fields: Option<CommonFields>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VantagePoint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub side: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CommonFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_format: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_time: Option<ReferenceTime>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReferenceTime {
    pub clock_type: String,
    pub epoch: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_clock_time: Option<String>,
}

/// Any other record, for writing.
#[derive(Debug, Serialize)]
pub(crate) struct EventOut<'a, D> {
    /// Milliseconds since the file's reference time.
    pub time: f64,
    pub name: &'static str,
    pub group_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuple: Option<&'a str>,
    pub data: D,
}

/// Any other record, for reading: its data is parsed once the name is known.
#[derive(Debug, Deserialize)]
pub(crate) struct EventIn<'a> {
    pub time: f64,
    #[serde(borrow)]
    pub name: std::borrow::Cow<'a, str>,
    #[serde(default, borrow)]
    pub group_id: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    pub tuple: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    pub data: &'a RawValue,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Started {
    pub association: u32,
    pub local_port: u16,
    pub peer_port: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PathAssigned {
    pub remote: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StateUpdated {
    pub old: String,
    pub new: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Packet {
    /// Only packets sent with DATA have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_number: Option<u32>,
    pub length: u32,
    pub chunks: Vec<Chunk>,
}

/// Chunks of one type in a packet; DATA chunks together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Chunk {
    Data {
        #[serde(rename = "type")]
        kind: String,
        count: u16,
        #[serde(default, skip_serializing_if = "is_zero")]
        retransmitted: u16,
        first_tsn: u32,
        last_tsn: u32,
        payload_length: u32,
    },
    Sack {
        #[serde(rename = "type")]
        kind: String,
        cum_tsn: u32,
        a_rwnd: u32,
        gap_blocks: u16,
        duplicate_tsns: u16,
    },
    Several {
        #[serde(rename = "type")]
        kind: String,
        count: u16,
    },
    One {
        #[serde(rename = "type")]
        kind: String,
    },
}

fn is_zero(count: &u16) -> bool {
    *count == 0
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DataAcked {
    pub bytes: u64,
    pub cum_tsn: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PacketLost {
    pub packet_number: u32,
    pub bytes: u32,
    pub trigger: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimerExpired {
    pub timer: String,
    pub count: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Triggered {
    pub trigger: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Closed {
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Dropped {
    pub count: u64,
}

/// Only values that have changed since the previous record of this kind and path. `null` means that the value no longer exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MetricsUpdated {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub min_rtt: Option<Option<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub smoothed_rtt: Option<Option<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub latest_rtt: Option<Option<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub rtt_variance: Option<Option<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub rto: Option<Option<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub congestion_window: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub bytes_in_flight: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub ssthresh: Option<Option<u64>>,
    /// Bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub pacing_rate: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub mtu: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub peer_window: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub send_buffer: Option<Option<u64>>,
}

/// Distinguishes a key with the value `null` from a missing one.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}
