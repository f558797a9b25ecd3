//! The largest payload rate of a line.

use netsim::PipeConfig;
use sctp_wire::chunk::DATA_HEADER_BYTES;
use sctp_wire::packet::HEADER_BYTES;

use crate::wire::LOWER_HEADER_BYTES;

/// The largest IP packet.
const PACKET_BYTES: usize = 1500;

/// Returns the payload of a full packet: 1500 bytes less the headers of IP (20), UDP (8), SCTP (12) and one DATA chunk (16).
pub fn payload_bytes() -> usize {
    PACKET_BYTES - LOWER_HEADER_BYTES - HEADER_BYTES - DATA_HEADER_BYTES
}

/// Returns the limit after headers: the payload rate if full packets fill the line.
pub fn limit_bits_per_s(line: &PipeConfig) -> f64 {
    let rate = line.rate_bits_per_s.unwrap_or(u64::MAX) as f64;
    rate * payload_bytes() as f64 / PACKET_BYTES as f64
}

/// How a program passes its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every write is a message.
    Message,
    /// Every write continues the previous one: an endless message, as with `T_MORE`.
    Stream,
}

impl Mode {
    /// `message` or `stream`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Message => "message",
            Mode::Stream => "stream",
        }
    }
}

/// Returns the largest payload rate of a line for messages of this size: IP packets of 1500 bytes, full to the last byte, less
/// their headers (IP 20, UDP 8, SCTP 12), and 16 of every DATA chunk and its padding. A message is cut into as few chunks as it
/// takes; a stream into chunks that fill a packet each, however small the writes are.
///
/// ```
/// use lab::experiment::{Mode, message_limit_bits_per_s};
/// use netsim::PipeConfig;
///
/// let line = PipeConfig { rate_bits_per_s: Some(100_000_000), ..PipeConfig::default() };
/// let mbits = |mode, bytes| (message_limit_bits_per_s(&line, mode, bytes) / 1e4).round() / 100.0;
/// assert_eq!((mbits(Mode::Message, 8), mbits(Mode::Message, 1444)), (32.44, 96.27));
/// assert_eq!(mbits(Mode::Stream, 8), 96.27);
/// ```
pub fn message_limit_bits_per_s(line: &PipeConfig, mode: Mode, message_bytes: usize) -> f64 {
    let bytes = match mode {
        Mode::Message => message_bytes,
        Mode::Stream => payload_bytes(),
    };
    let chunks = bytes.div_ceil(payload_bytes());
    let with_headers = bytes.next_multiple_of(4) + chunks * DATA_HEADER_BYTES;
    let rate = line.rate_bits_per_s.unwrap_or(u64::MAX) as f64;
    let room = (PACKET_BYTES - LOWER_HEADER_BYTES - HEADER_BYTES) as f64 / PACKET_BYTES as f64;
    rate * room * bytes as f64 / with_headers as f64
}

/// Returns the number of bytes that a line holds in one round trip of so many seconds: its bandwidth-delay product.
pub(super) fn round_trip_bytes(rate_bits_per_s: u64, round_trip_s: f64) -> usize {
    (rate_bits_per_s as f64 * round_trip_s / 8.0) as usize
}
