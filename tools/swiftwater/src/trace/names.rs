//! Names in a trace file.

use swiftwater::trace::{CongestionPhase, LossReason, Probe, Timer, UndoReason};

pub(crate) const STARTED: &str = "sctp:association_started";
pub(crate) const STATE: &str = "sctp:association_state_updated";
pub(crate) const CLOSED: &str = "sctp:association_closed";
pub(crate) const PATH: &str = "sctp:path_assigned";
pub(crate) const PATH_STATE: &str = "sctp:path_state_updated";
pub(crate) const SENT: &str = "sctp:packet_sent";
pub(crate) const RECEIVED: &str = "sctp:packet_received";
pub(crate) const ACKED: &str = "sctp:data_acked";
pub(crate) const LOST: &str = "sctp:packet_lost";
pub(crate) const CONGESTION: &str = "sctp:congestion_state_updated";
pub(crate) const TIMER: &str = "sctp:timer_expired";
pub(crate) const PROBE: &str = "sctp:probe_sent";
pub(crate) const UNDONE: &str = "sctp:loss_undone";
pub(crate) const METRICS: &str = "sctp:metrics_updated";
pub(crate) const DROPPED: &str = "sctp:records_dropped";

pub(crate) const DATA: &str = "DATA";
pub(crate) const SACK: &str = "SACK";

/// Returns the name of a chunk type (RFC 9260 §3.2 and the registered extensions).
pub(crate) fn chunk(kind: u8) -> String {
    let name = match kind {
        0 => DATA,
        1 => "INIT",
        2 => "INIT ACK",
        3 => SACK,
        4 => "HEARTBEAT",
        5 => "HEARTBEAT ACK",
        6 => "ABORT",
        7 => "SHUTDOWN",
        8 => "SHUTDOWN ACK",
        9 => "ERROR",
        10 => "COOKIE ECHO",
        11 => "COOKIE ACK",
        12 => "ECNE",
        13 => "CWR",
        14 => "SHUTDOWN COMPLETE",
        15 => "AUTH",
        64 => "I-DATA",
        128 => "ASCONF-ACK",
        130 => "RE-CONFIG",
        132 => "PAD",
        192 => "FORWARD TSN",
        193 => "ASCONF",
        194 => "I-FORWARD-TSN",
        other => return format!("type {other}"),
    };
    name.to_owned()
}

pub(crate) fn loss(reason: LossReason) -> &'static str {
    match reason {
        LossReason::ReorderingThreshold => "reordering_threshold",
        LossReason::TimeThreshold => "time_threshold",
        LossReason::Timeout => "timeout",
    }
}

pub(crate) fn phase(phase: CongestionPhase) -> &'static str {
    match phase {
        CongestionPhase::SlowStart => "slow_start",
        CongestionPhase::CongestionAvoidance => "congestion_avoidance",
        CongestionPhase::Recovery => "recovery",
    }
}

pub(crate) fn timer(timer: Timer) -> &'static str {
    match timer {
        Timer::T1Init => "t1_init",
        Timer::T1Cookie => "t1_cookie",
        Timer::T2Shutdown => "t2_shutdown",
        Timer::T3Rtx => T3,
        Timer::Heartbeat => "heartbeat",
    }
}

pub(crate) const T3: &str = "t3_rtx";

pub(crate) fn probe(probe: Probe) -> &'static str {
    match probe {
        Probe::TailLoss => "tail_loss",
        Probe::Heartbeat => "heartbeat",
        Probe::Window => "window",
        Probe::PathMtu => "path_mtu",
    }
}

pub(crate) fn undo(reason: UndoReason) -> &'static str {
    match reason {
        UndoReason::Acknowledged => "acknowledged",
        UndoReason::Duplicates => "duplicates",
    }
}
