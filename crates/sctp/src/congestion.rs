//! Congestion control, one controller per path, behind one trait.

use crate::time::Time;

/// What an acknowledgement brought on one path.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Bytes newly acknowledged (chunks with headers and padding).
    pub bytes: usize,
    /// Bytes that were in flight before this SACK.
    pub in_flight_before_bytes: usize,
    /// Whether the cumulative TSN moved.
    pub cumulative: bool,
    /// Whether a loss of this window is still being repaired.
    pub in_recovery: bool,
}

/// Decides how much may be in flight. Sizes are bytes of DATA chunks with headers.
pub trait Controller: Send + std::fmt::Debug {
    /// The window.
    fn cwnd_bytes(&self) -> usize;
    /// The threshold between slow start and congestion avoidance.
    fn ssthresh_bytes(&self) -> usize;
    /// A SACK acknowledged something.
    fn on_acked(&mut self, now: Time, acked: Acked);
    /// Loss was found by acknowledgements; called once a window.
    fn on_loss(&mut self, now: Time);
    /// The retransmission timer expired.
    fn on_timeout(&mut self, now: Time);
    /// The path has been idle for one retransmission timeout.
    fn on_idle(&mut self);
    /// The path MTU changed.
    fn set_mtu(&mut self, mtu_bytes: usize);
}

/// Packets of growth that one SACK may earn in slow start.
///
/// RFC 9260 §7.2.1 has L = 1 for a SACK every second packet. Ours comes once a receive batch, so one
/// SACK stands for many; see `docs/deviations.md`.
const SLOW_START_PACKETS_MAX: usize = 8;

/// The controller of RFC 9260 §7.2.
#[derive(Debug)]
pub struct NewReno {
    mtu_bytes: usize,
    cwnd_bytes: usize,
    ssthresh_bytes: usize,
    partial_bytes_acked: usize,
}

impl NewReno {
    /// A controller in slow start with the initial window of RFC 9260 §7.2.1.
    pub fn new(mtu_bytes: usize) -> Self {
        NewReno {
            mtu_bytes,
            cwnd_bytes: initial_window_bytes(mtu_bytes),
            ssthresh_bytes: usize::MAX,
            partial_bytes_acked: 0,
        }
    }
}

/// min(4·MTU, max(2·MTU, 4404)) (RFC 9260 §7.2.1).
pub fn initial_window_bytes(mtu_bytes: usize) -> usize {
    (4 * mtu_bytes).min((2 * mtu_bytes).max(4404))
}

impl Controller for NewReno {
    fn cwnd_bytes(&self) -> usize {
        self.cwnd_bytes
    }

    fn ssthresh_bytes(&self) -> usize {
        self.ssthresh_bytes
    }

    fn on_acked(&mut self, _now: Time, acked: Acked) {
        // RFC 9260 §7.2.1: the window grows only when it was in full use and no loss is being repaired.
        let full = acked.in_flight_before_bytes + self.mtu_bytes > self.cwnd_bytes;
        if self.cwnd_bytes <= self.ssthresh_bytes {
            if full && acked.cumulative && !acked.in_recovery {
                self.cwnd_bytes += acked.bytes.min(SLOW_START_PACKETS_MAX * self.mtu_bytes);
            }
            return;
        }
        // RFC 9260 §7.2.2.
        self.partial_bytes_acked += acked.bytes;
        if self.partial_bytes_acked >= self.cwnd_bytes {
            if full && !acked.in_recovery {
                self.partial_bytes_acked -= self.cwnd_bytes;
                self.cwnd_bytes += self.mtu_bytes;
            } else {
                self.partial_bytes_acked = self.cwnd_bytes;
            }
        }
    }

    fn on_loss(&mut self, _now: Time) {
        // RFC 9260 §7.2.3.
        self.ssthresh_bytes = (self.cwnd_bytes / 2).max(4 * self.mtu_bytes);
        self.cwnd_bytes = self.ssthresh_bytes;
        self.partial_bytes_acked = 0;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.ssthresh_bytes = (self.cwnd_bytes / 2).max(4 * self.mtu_bytes);
        self.cwnd_bytes = self.mtu_bytes;
        self.partial_bytes_acked = 0;
    }

    fn on_idle(&mut self) {
        // RFC 9260 §7.2.1: half a window for each idle RTO, never under the initial window.
        self.cwnd_bytes =
            (self.cwnd_bytes / 2).max(initial_window_bytes(self.mtu_bytes)).min(self.cwnd_bytes);
    }

    fn set_mtu(&mut self, mtu_bytes: usize) {
        self.mtu_bytes = mtu_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(bytes: usize, before: usize) -> Acked {
        Acked { bytes, in_flight_before_bytes: before, cumulative: true, in_recovery: false }
    }

    #[test]
    fn initial_window_is_that_of_rfc_9260() {
        assert_eq!(initial_window_bytes(1500), 4404);
        assert_eq!(initial_window_bytes(576), 2304);
        assert_eq!(initial_window_bytes(9000), 18000);
    }

    #[test]
    fn an_application_limited_window_does_not_grow() {
        let mut cc = NewReno::new(1000);
        let before = cc.cwnd_bytes();
        cc.on_acked(Time::ZERO, ack(500, 500));
        assert_eq!(cc.cwnd_bytes(), before);
        cc.on_acked(Time::ZERO, ack(before, before));
        assert!(cc.cwnd_bytes() > before);
    }

    #[test]
    fn loss_halves_and_a_timeout_starts_over() {
        let mut cc = NewReno::new(1000);
        for _ in 0..20 {
            let w = cc.cwnd_bytes();
            cc.on_acked(Time::ZERO, ack(w, w));
        }
        let w = cc.cwnd_bytes();
        cc.on_loss(Time::ZERO);
        assert_eq!(cc.cwnd_bytes(), w / 2);
        // At the threshold slow start still rules; above it, one MTU for each window acknowledged.
        cc.on_acked(Time::ZERO, ack(1000, w / 2));
        let above = w / 2 + 1000;
        assert_eq!(cc.cwnd_bytes(), above);
        cc.on_acked(Time::ZERO, ack(above - 1, above));
        assert_eq!(cc.cwnd_bytes(), above);
        cc.on_acked(Time::ZERO, ack(1, above));
        assert_eq!(cc.cwnd_bytes(), above + 1000);
        cc.on_timeout(Time::ZERO);
        assert_eq!(cc.cwnd_bytes(), 1000);
    }
}
