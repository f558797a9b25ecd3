//! Events of an association, for traces.
//!
//! An association with [`AssociationConfig::trace`](crate::AssociationConfig::trace) keeps a [`Record`] of every
//! packet, loss, timeout and change of its windows until [`Endpoint::poll_trace`](crate::Endpoint::poll_trace) takes
//! the record. The events correspond to those of QUIC's event logs (draft-ietf-quic-qlog-quic-events) as far as SCTP
//! has them; `docs/trace.md` describes their format in a file.
//!
//! Records wait in a ring of [`RECORDS_MAX`] for each association. A caller that does not keep up loses the oldest, and
//! an [`Event::Dropped`] reports their number. Without tracing no ring exists, and each point of recording costs a
//! branch.
//!
//! Packets, losses, timers and probes are recorded when they happen. Changes of states and measurements are recorded at
//! the end of the call that made them, so that two changes within one call are one record.

mod recorder;

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::CloseReason;
use crate::identifiers::AssociationId;
use crate::path_state::PathState;
use crate::statistics::AssociationState;
use crate::time::Time;

pub use recorder::RECORDS_MAX;
pub(crate) use recorder::{PathNotes, PathSnapshot, Snapshot, Tracer, note_timer};

/// One event of one association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of the event.
    pub at: Time,
    /// Our verification tag when the association began. It identifies the association, in a file as in a capture.
    pub tag: u32,
    /// The path, counted from 0 in the order of [`Event::PathAdded`]; `None`: the association as a whole.
    pub path: Option<u8>,
    /// The event.
    pub event: Event,
}

/// An event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The association was created.
    Started {
        /// Its identifier at this endpoint.
        association: AssociationId,
        /// Our SCTP port.
        local_port: u16,
        /// The peer's SCTP port.
        peer_port: u16,
    },
    /// A path was added, or its address has changed.
    PathAdded {
        /// The peer's address; the port is the UDP encapsulation port.
        remote: SocketAddr,
    },
    /// The state of the association has changed (RFC 9260 §4).
    StateChanged {
        /// The previous state.
        old: AssociationState,
        /// The new state.
        new: AssociationState,
    },
    /// The state of a path has changed (RFC 9260 §5.4, §8.2).
    PathStateChanged {
        /// The previous state.
        old: PathState,
        /// The new state.
        new: PathState,
    },
    /// A packet was sent.
    PacketSent {
        /// Number of the packet on its path, if the packet contains DATA.
        number: Option<u32>,
        /// Contents of the packet.
        contents: Contents,
    },
    /// A packet was received.
    PacketReceived {
        /// Contents of the packet.
        contents: Contents,
    },
    /// The peer has acknowledged DATA chunks that were sent on this path.
    DataAcked {
        /// Number of newly acknowledged bytes, including chunk headers and padding.
        bytes: u64,
        /// The cumulative TSN.
        cumulative_tsn: u32,
    },
    /// A packet was declared lost, and its chunks are retransmitted.
    PacketLost {
        /// Number of the packet on its path.
        number: u32,
        /// Bytes of its DATA chunks that were in flight.
        bytes: u32,
        /// The sign of the loss.
        reason: LossReason,
    },
    /// The phase of congestion control has changed.
    CongestionChanged {
        /// The previous phase.
        old: CongestionPhase,
        /// The new phase.
        new: CongestionPhase,
    },
    /// A timer has expired and had an effect.
    TimerExpired {
        /// The timer.
        timer: Timer,
        /// Number of consecutive expiries, including this one.
        count: u32,
    },
    /// A probe was sent, which tests whether the peer answers.
    ProbeSent {
        /// The kind of probe.
        probe: Probe,
    },
    /// A reduction of the window was undone, because nothing had been lost.
    LossUndone {
        /// The sign that nothing had been lost.
        reason: UndoReason,
    },
    /// Measurements of the path have changed.
    Metrics(Metrics),
    /// The association has ended.
    Closed(CloseReason),
    /// The ring was full: records before the next one are missing.
    Dropped {
        /// Number of missing records.
        records: u64,
    },
}

/// Measurements of a path, and those of its association that matter for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold, once set.
    pub ssthresh_bytes: Option<u64>,
    /// Bytes of DATA chunks in flight, including headers.
    pub in_flight_bytes: u64,
    /// Pacing rate, if packets are paced.
    pub pacing_bytes_per_s: Option<u64>,
    /// The newest round-trip time.
    pub latest_rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Variation of the round-trip time.
    pub rttvar: Option<Duration>,
    /// The shortest recent round-trip time.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Maximum length of an SCTP packet.
    pub mtu_bytes: u64,
    /// Room in the peer's receive window.
    pub peer_window_bytes: u64,
    /// Bytes in the send buffer: unsent or unacknowledged.
    pub send_buffered_bytes: u64,
}

/// Contents of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Length of the SCTP packet.
    pub bytes: u32,
    /// Number of chunks other than DATA and PAD.
    pub control_chunks: u16,
    /// Types of these chunks: the first [`CONTROL_KINDS_MAX`], then zeros (the type of DATA).
    pub control_kinds: [u8; CONTROL_KINDS_MAX],
    /// The first SACK or NR-SACK.
    pub sack: Option<SackContents>,
    /// All DATA chunks.
    pub data: Option<DataContents>,
}

/// Maximum number of control chunks whose types a record contains. More are rare: packets of the handshake have two.
pub const CONTROL_KINDS_MAX: usize = 6;

/// Contents of a SACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackContents {
    /// The cumulative TSN.
    pub cumulative_tsn: u32,
    /// The advertised window.
    pub window_bytes: u32,
    /// Number of gap blocks, both renegable and non-renegable.
    pub gaps: u16,
    /// Number of duplicate TSNs.
    pub duplicates: u16,
}

/// The DATA chunks of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataContents {
    /// Number of chunks.
    pub chunks: u16,
    /// Number of retransmitted chunks among these; always zero for received packets.
    pub retransmitted: u16,
    /// TSN of the first chunk.
    pub first_tsn: u32,
    /// TSN of the last chunk.
    pub last_tsn: u32,
    /// Payload of all chunks.
    pub payload_bytes: u32,
}

/// The sign by which a loss was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// More later packets have arrived than reordering explains (RFC 9260 §7.2.4).
    ReorderingThreshold,
    /// A later packet has arrived, and the time for this one has passed (RFC 8985 §6.2).
    TimeThreshold,
    /// T3-rtx has expired (RFC 9260 §6.3.3).
    Timeout,
}

/// The phases of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionPhase {
    /// The window is below the threshold (RFC 9260 §7.2.1).
    SlowStart,
    /// The window is not below the threshold (RFC 9260 §7.2.2).
    CongestionAvoidance,
    /// A loss is being repaired (RFC 9260 §7.2.4).
    Recovery,
}

/// Timers whose expiry indicates a failure or a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// INIT was not answered.
    T1Init,
    /// COOKIE ECHO was not answered.
    T1Cookie,
    /// SHUTDOWN or SHUTDOWN ACK was not answered.
    T2Shutdown,
    /// DATA was not acknowledged.
    T3Rtx,
    /// A heartbeat was not answered.
    Heartbeat,
}

/// Kinds of packets that test whether the peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A tail loss probe: repeated or new data (RFC 8985 §7.2).
    TailLoss,
    /// A HEARTBEAT (RFC 9260 §8.3).
    Heartbeat,
    /// DATA beyond a closed window of the peer (RFC 9260 §6.1 A).
    Window,
    /// A HEARTBEAT of the length that is probed (RFC 8899).
    PathMtu,
}

/// Signs that nothing had been lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoReason {
    /// Data sent before the timeout was acknowledged after it (RFC 5682).
    Acknowledged,
    /// The peer has reported all retransmissions as duplicates (RFC 3708).
    Duplicates,
}
