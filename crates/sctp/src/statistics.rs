//! Counters, as plain structs that each layer fills.

use std::net::SocketAddr;
use std::time::Duration;

/// Counters of one association (names after RFC 6458 `sctp_assoc_stats` and RFC 3873).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Outbound streams after negotiation.
    pub streams_out: u16,
    /// Inbound streams after negotiation.
    pub streams_in: u16,
    /// Messages taken from the user.
    pub messages_sent: u64,
    /// Messages (or parts) handed to the user.
    pub messages_received: u64,
    /// Payload bytes taken from the user.
    pub bytes_sent: u64,
    /// Payload bytes handed to the user.
    pub bytes_received: u64,
    /// Packets sent (sctpOutSCTPPacks).
    pub packets_sent: u64,
    /// Packets received (sctpInSCTPPacks).
    pub packets_received: u64,
    /// DATA chunks sent for the first time.
    pub data_chunks_sent: u64,
    /// DATA chunks sent again.
    pub data_chunks_retransmitted: u64,
    /// DATA chunks received that were new.
    pub data_chunks_received: u64,
    /// DATA chunks received twice.
    pub duplicates_received: u64,
    /// DATA chunks dropped because the receive buffer was full.
    pub data_chunks_dropped: u64,
    /// Messages thrown away because another with their stream sequence number waits already.
    pub messages_discarded: u64,
    /// SACKs sent.
    pub sacks_sent: u64,
    /// SACKs received.
    pub sacks_received: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Times that loss was repaired without a timeout.
    pub fast_recoveries: u64,
    /// Packets sent to find out about a tail that was not acknowledged (RFC 8985 §7).
    pub tail_probes: u64,
    /// Reductions of the congestion window that were taken back, because nothing had been lost.
    pub reductions_undone: u64,
    /// Payload bytes outstanding now.
    pub outstanding_bytes: u64,
    /// Send buffer in use now.
    pub send_buffered_bytes: u64,
    /// Receive buffer in use now.
    pub receive_buffered_bytes: u64,
    /// The peer's window now.
    pub peer_window_bytes: u64,
    /// One entry a path.
    pub paths: Vec<PathStatistics>,
}

/// Counters of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatistics {
    /// The peer's address; the port is the UDP encapsulation port.
    pub remote: SocketAddr,
    /// Whether it is usable.
    pub active: bool,
    /// Largest SCTP packet.
    pub mtu_bytes: usize,
    /// Congestion window.
    pub cwnd_bytes: usize,
    /// Bytes of DATA chunks in flight, headers included.
    pub in_flight_bytes: usize,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
}

/// Counters of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointStatistics {
    /// Datagrams too short or malformed.
    pub malformed: u64,
    /// Packets with a wrong checksum.
    pub checksum_errors: u64,
    /// Packets that belong to no association (sctpOutOfBlues).
    pub out_of_the_blue: u64,
    /// Packets with a verification tag that is not the association's.
    pub tag_errors: u64,
    /// State cookies that failed their check.
    pub cookie_errors: u64,
    /// Replies dropped because too many were waiting.
    pub replies_dropped: u64,
    /// INITs answered.
    pub inits_received: u64,
    /// Handshakes left unanswered for lack of room; the peer asks again.
    pub accepts_put_off: u64,
    /// Associations accepted.
    pub accepted: u64,
}
