//! The state of each outstanding run, and the bytes in flight that follow from it.
//!
//! [`InFlight::change`] is the only function that changes the state of a run. It keeps the payload in flight and the flight
//! of the path, so neither can differ from the states. The room in the peer's window is not kept: it follows from the
//! payload in flight.

use super::Run;
use crate::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::outbound) enum RunState {
    /// The chunks have TSNs and have not left yet.
    New,
    InFlight,
    /// Gap blocks acknowledged the chunks. The peer may still renege (RFC 9260 §6.2).
    GapAcked,
    /// Non-renegable gap blocks (NR-SACK) acknowledged the chunks, so their bytes are freed.
    NrGapAcked,
    /// The cumulative TSN has passed the chunks.
    Acked,
    /// The chunks wait to be retransmitted.
    Lost,
}

/// The state of a run. Other files read it.
#[derive(Clone, Copy, Debug)]
pub(in crate::outbound) struct Status(RunState);

impl Status {
    /// The status of chunks that have not left yet.
    pub(in crate::outbound) const NEW: Status = Status(RunState::New);

    #[inline]
    pub(in crate::outbound) fn state(self) -> RunState {
        self.0
    }

    #[cfg(test)]
    pub(in crate::outbound) fn freed() -> Status {
        Status(RunState::NrGapAcked)
    }
}

/// The payload of all runs in flight.
#[derive(Debug, Default)]
pub(in crate::outbound) struct InFlight {
    payload_bytes: usize,
}

impl InFlight {
    #[inline]
    pub(in crate::outbound) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Changes the state of a run whose path is `path`, and counts its bytes into or out of the flight. Returns the state before.
    #[inline]
    pub(in crate::outbound) fn change(
        &mut self,
        run: &mut Run,
        state: RunState,
        path: &mut Path,
    ) -> RunState {
        let before = std::mem::replace(&mut run.status.0, state);
        match (before == RunState::InFlight, state == RunState::InFlight) {
            (true, false) => {
                self.payload_bytes -= run.payload_bytes;
                path.leave_flight(run.wire_bytes());
            }
            (false, true) => {
                self.payload_bytes += run.payload_bytes;
                path.enter_flight(run.wire_bytes());
            }
            _ => {}
        }
        before
    }
}
