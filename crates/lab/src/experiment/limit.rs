//! What a line can carry at best.

use netsim::PipeConfig;
use sctp_wire::chunk::DATA_HEADER_BYTES;
use sctp_wire::packet::HEADER_BYTES;

use crate::world::LOWER_HEADER_BYTES;

/// The largest IP packet.
const PACKET_BYTES: usize = 1500;

/// Payload of a full packet: 1500 bytes less the headers of IP (20), UDP (8), SCTP (12) and one DATA chunk (16).
pub fn payload_bytes() -> usize {
    PACKET_BYTES - LOWER_HEADER_BYTES - HEADER_BYTES - DATA_HEADER_BYTES
}

/// The limit after headers: what payload gets through if full packets fill the line.
pub fn limit_bits_per_s(line: &PipeConfig) -> f64 {
    let rate = line.rate_bits_per_s.unwrap_or(u64::MAX) as f64;
    rate * payload_bytes() as f64 / PACKET_BYTES as f64
}

/// Bytes that a line holds in one round trip of so many seconds: its bandwidth-delay product.
pub(super) fn round_trip_bytes(rate_bits_per_s: u64, round_trip_s: f64) -> usize {
    (rate_bits_per_s as f64 * round_trip_s / 8.0) as usize
}
