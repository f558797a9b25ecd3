//! Acknowledgements for tests.

use super::Acked;
use crate::packet_number::PacketNumber;

/// Returns an acknowledgement of this many bytes while the application had no more to send.
pub(super) fn acked(bytes: usize) -> Acked {
    Acked {
        bytes,
        in_flight_before_bytes: bytes,
        in_flight_bytes: 0,
        lost_bytes: 0,
        cumulative: true,
        holds_window: false,
        window_limited: false,
        rtt: None,
        srtt: None,
        min_rtt: None,
        newest_packet: PacketNumber::new(0),
        next_packet: PacketNumber::new(1),
        rate: None,
    }
}

/// Returns an acknowledgement of this many bytes while the window held packets back.
pub(super) fn limited(bytes: usize) -> Acked {
    Acked { window_limited: true, ..acked(bytes) }
}
