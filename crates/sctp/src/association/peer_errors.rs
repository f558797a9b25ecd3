//! The error counter of the association (RFC 9260 §8.1).

/// Consecutive retransmissions and heartbeats that the peer has not answered, on whichever path.
#[derive(Debug, Default)]
pub(super) struct PeerErrors(u32);

impl PeerErrors {
    pub(super) fn count(&self) -> u32 {
        self.0
    }

    /// Counts a packet that was not answered.
    pub(super) fn on_unanswered(&mut self) {
        self.0 += 1;
    }

    /// Handles an answer: the peer is alive.
    pub(super) fn on_answer(&mut self) {
        self.0 = 0;
    }

    /// Returns whether the peer counts as unreachable (Association.Max.Retrans).
    pub(super) fn exceed(&self, retries_max: u32) -> bool {
        self.0 > retries_max
    }
}
