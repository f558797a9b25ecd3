//! Events of an association, for traces.
//!
//! An association whose [`AssociationConfig::trace`](crate::AssociationConfig::trace) is set keeps a [`Record`] of every
//! packet, loss, timeout and change of its windows until [`Endpoint::poll_trace`](crate::Endpoint::poll_trace) takes
//! it. The events are those of QUIC's event logs (draft-ietf-quic-qlog-quic-events) as far as SCTP has them; how
//! they look in a file is in `docs/trace.md`.
//!
//! Records wait in a ring of [`RECORDS_MAX`] for each association. A caller that does not keep up loses the oldest, and
//! an [`Event::Dropped`] says how many. Without tracing there is no ring, and what would be recorded costs a branch.
//!
//! Packets, losses, timers and probes are recorded when they happen. Changes of states and measures are recorded at
//! the end of the call that made them: what one call changes twice is one record.

mod recorder;

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::CloseReason;
use crate::identifiers::AssociationId;
use crate::path_state::PathState;
use crate::statistics::AssociationState;
use crate::time::Time;

pub use recorder::RECORDS_MAX;
pub(crate) use recorder::{PathNotes, PathView, Tracer, View, note_timer};

/// One event of one association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// Our verification tag when the association began: which one it is, in a file as in a capture.
    pub tag: u32,
    /// The path, counted from 0 in the order of [`Event::PathAdded`]; `None`: the association as a whole.
    pub path: Option<u8>,
    /// The event.
    pub event: Event,
}

/// An event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The association exists from now on.
    Started {
        /// Its name at this endpoint.
        association: AssociationId,
        /// Our SCTP port.
        local_port: u16,
        /// The peer's SCTP port.
        peer_port: u16,
    },
    /// The association has a path, or the path another address.
    PathAdded {
        /// The peer's address; the port is the UDP encapsulation port.
        remote: SocketAddr,
    },
    /// The state of the association changed (RFC 9260 §4).
    StateChanged {
        /// The old state.
        old: AssociationState,
        /// The new state.
        new: AssociationState,
    },
    /// The state of a path changed (RFC 9260 §5.4, §8.2).
    PathStateChanged {
        /// The old state.
        old: PathState,
        /// The new state.
        new: PathState,
    },
    /// A packet left.
    PacketSent {
        /// Its number on the path, if it carries DATA.
        number: Option<u32>,
        /// Contents of the packet.
        contents: Contents,
    },
    /// A packet came.
    PacketReceived {
        /// Contents of the packet.
        contents: Contents,
    },
    /// Data arrived at the peer: DATA chunks that were sent on this path.
    DataAcked {
        /// Bytes that were not acknowledged before, chunk headers and padding included.
        bytes: u64,
        /// Every TSN up to this one has arrived.
        cumulative_tsn: u32,
    },
    /// A packet counts as lost: what it carried is sent again.
    PacketLost {
        /// Its number on the path.
        number: u32,
        /// Bytes of DATA chunks of it that were in flight.
        bytes: u32,
        /// How that was found.
        reason: LossReason,
    },
    /// The path went to another phase of congestion control.
    CongestionChanged {
        /// The old phase.
        old: CongestionPhase,
        /// The new phase.
        new: CongestionPhase,
    },
    /// A timer ran out and something was done about it.
    TimerExpired {
        /// Which.
        timer: Timer,
        /// How often it has run out in a row, this time included.
        count: u32,
    },
    /// Something leaves to find out whether the peer answers.
    ProbeSent {
        /// The kind of probe.
        probe: Probe,
    },
    /// A reduction of the window was taken back: nothing had been lost.
    LossUndone {
        /// How that was found.
        reason: UndoReason,
    },
    /// Measures of the path changed.
    Metrics(Metrics),
    /// The association is gone.
    Closed(CloseReason),
    /// The ring was full: this many records before the next one are missing.
    Dropped {
        /// How many.
        records: u64,
    },
}

/// The measures of a path, and those of its association that matter for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold, once there is one.
    pub ssthresh_bytes: Option<u64>,
    /// Bytes of DATA chunks in flight, headers included.
    pub in_flight_bytes: u64,
    /// How fast packets may leave, if something limits that.
    pub pacing_bytes_per_s: Option<u64>,
    /// The newest round-trip time.
    pub latest_rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Variation of the round-trip time.
    pub rttvar: Option<Duration>,
    /// The shortest round-trip time lately.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Largest SCTP packet.
    pub mtu_bytes: u64,
    /// Room in the peer's receive window.
    pub peer_window_bytes: u64,
    /// Send buffer in use: not sent, or not acknowledged.
    pub send_buffered_bytes: u64,
}

/// Contents of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Length of the SCTP packet.
    pub bytes: u32,
    /// Chunks that are neither DATA nor PAD.
    pub control_chunks: u16,
    /// Their types: the first [`CONTROL_KINDS_MAX`], then zeros, which is the type of DATA.
    pub control_kinds: [u8; CONTROL_KINDS_MAX],
    /// The first SACK or NR-SACK.
    pub sack: Option<SackContents>,
    /// All DATA chunks.
    pub data: Option<DataContents>,
}

/// How many types of control chunks a record names. Packets with more are rare: handshakes have two.
pub const CONTROL_KINDS_MAX: usize = 6;

/// Contents of a SACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackContents {
    /// Every TSN up to this one has arrived.
    pub cumulative_tsn: u32,
    /// The advertised window.
    pub window_bytes: u32,
    /// Gap blocks, those that the peer may take back and those that it may not.
    pub gaps: u16,
    /// Duplicate TSNs reported.
    pub duplicates: u16,
}

/// The DATA chunks of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataContents {
    /// How many.
    pub chunks: u16,
    /// How many of them had been sent before. Always zero in packets that came.
    pub retransmitted: u16,
    /// TSN of the first.
    pub first_tsn: u32,
    /// TSN of the last.
    pub last_tsn: u32,
    /// Payload of all.
    pub payload_bytes: u32,
}

/// How a loss was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Packets sent later arrived, more of them than the network was seen to reorder (RFC 9260 §7.2.4).
    ReorderingThreshold,
    /// A packet sent later arrived, and the time for this one has passed (RFC 8985 §6.2).
    TimeThreshold,
    /// T3-rtx ran out (RFC 9260 §6.3.3).
    Timeout,
}

/// The phases of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionPhase {
    /// The window is below the threshold (RFC 9260 §7.2.1).
    SlowStart,
    /// It is not (RFC 9260 §7.2.2).
    CongestionAvoidance,
    /// A loss is being repaired (RFC 9260 §7.2.4).
    Recovery,
}

/// Timers whose end means trouble or a question.
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

/// A packet that tests whether the peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The tail of what was sent, again or the next of it (RFC 8985 §7.2).
    TailLoss,
    /// A HEARTBEAT (RFC 9260 §8.3).
    Heartbeat,
    /// DATA beyond a window that the peer keeps closed (RFC 9260 §6.1 A).
    Window,
    /// A HEARTBEAT as long as packets might be (RFC 8899).
    PathMtu,
}

/// Proof that nothing had been lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoReason {
    /// Data sent before the timeout was acknowledged after it (RFC 5682).
    Acknowledged,
    /// The peer reported what was sent again as duplicates (RFC 3708).
    Duplicates,
}
