//! The controller of RFC 9260 §7.2.

use std::time::Duration;

use super::{Acked, Controller, Signal, initial_window_bytes, window_pacing_bytes_per_s};
use crate::time::Time;

/// Packets of growth that one SACK may earn in slow start.
///
/// RFC 9260 §7.2.1 has L = 1 for a SACK every second packet. Ours comes once a receive batch, so one
/// SACK stands for many; see `docs/deviations.md`.
const SLOW_START_PACKETS_MAX: usize = 8;

/// Pacing rates over a window a round trip, in percent: slow start doubles the window in a round trip.
const SLOW_START_GAIN_PERCENT: u64 = 200;
const AVOIDANCE_GAIN_PERCENT: u64 = 120;

/// Slow start and congestion avoidance by one packet a round trip.
#[derive(Debug)]
pub struct NewReno {
    mtu_bytes: usize,
    cwnd_bytes: usize,
    ssthresh_bytes: usize,
    partial_bytes_acked: usize,
    /// Window and threshold before the last reduction.
    before: Option<(usize, usize)>,
}

impl NewReno {
    /// A controller in slow start with the initial window of RFC 9260 §7.2.1.
    pub fn new(mtu_bytes: usize) -> Self {
        NewReno {
            mtu_bytes,
            cwnd_bytes: initial_window_bytes(mtu_bytes),
            ssthresh_bytes: usize::MAX,
            partial_bytes_acked: 0,
            before: None,
        }
    }

    fn halve(&mut self) {
        self.before = Some((self.cwnd_bytes, self.ssthresh_bytes));
        self.ssthresh_bytes = (self.cwnd_bytes / 2).max(4 * self.mtu_bytes);
        self.partial_bytes_acked = 0;
    }
}

impl Controller for NewReno {
    fn cwnd_bytes(&self) -> usize {
        self.cwnd_bytes
    }

    fn ssthresh_bytes(&self) -> usize {
        self.ssthresh_bytes
    }

    fn pacing_bytes_per_s(&self, srtt: Option<Duration>) -> Option<u64> {
        let slow_start = self.cwnd_bytes < self.ssthresh_bytes;
        let gain = if slow_start { SLOW_START_GAIN_PERCENT } else { AVOIDANCE_GAIN_PERCENT };
        window_pacing_bytes_per_s(self.cwnd_bytes, srtt, gain)
    }

    fn on_acked(&mut self, _now: Time, acked: &Acked) {
        // RFC 9260 §7.2.1: the window grows only when it was in full use and no loss is being repaired.
        let grows = acked.window_limited && !acked.in_recovery;
        if self.cwnd_bytes <= self.ssthresh_bytes {
            if grows && acked.cumulative {
                self.cwnd_bytes += acked.bytes.min(SLOW_START_PACKETS_MAX * self.mtu_bytes);
            }
            return;
        }
        // RFC 9260 §7.2.2.
        self.partial_bytes_acked += acked.bytes;
        if self.partial_bytes_acked >= self.cwnd_bytes {
            if grows {
                self.partial_bytes_acked -= self.cwnd_bytes;
                self.cwnd_bytes += self.mtu_bytes;
            } else {
                self.partial_bytes_acked = self.cwnd_bytes;
            }
        }
    }

    fn on_congestion(&mut self, _now: Time, _signal: Signal, _in_flight_bytes: usize) {
        // RFC 9260 §7.2.3.
        self.halve();
        self.cwnd_bytes = self.ssthresh_bytes;
    }

    fn on_timeout(&mut self, _now: Time, _in_flight_bytes: usize) {
        self.halve();
        self.cwnd_bytes = self.mtu_bytes;
    }

    fn undo(&mut self, _now: Time) {
        if let Some((cwnd_bytes, ssthresh_bytes)) = self.before.take() {
            self.cwnd_bytes = self.cwnd_bytes.max(cwnd_bytes);
            self.ssthresh_bytes = ssthresh_bytes;
        }
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

    fn ack(bytes: usize, window_limited: bool) -> Acked {
        Acked {
            bytes,
            in_flight_before_bytes: bytes,
            in_flight_bytes: 0,
            lost_bytes: 0,
            cumulative: true,
            in_recovery: false,
            window_limited,
            rtt: None,
            srtt: None,
            min_rtt: None,
            newest_packet: 0,
            next_packet: 1,
            rate: None,
        }
    }

    #[test]
    fn an_application_limited_window_does_not_grow() {
        let mut cc = NewReno::new(1000);
        let before = cc.cwnd_bytes();
        cc.on_acked(Time::ZERO, &ack(500, false));
        assert_eq!(cc.cwnd_bytes(), before);
        cc.on_acked(Time::ZERO, &ack(500, true));
        assert_eq!(cc.cwnd_bytes(), before + 500);
    }

    #[test]
    fn loss_halves_and_a_timeout_starts_over() {
        let mut cc = NewReno::new(1000);
        for _ in 0..20 {
            let w = cc.cwnd_bytes();
            cc.on_acked(Time::ZERO, &ack(w, true));
        }
        let w = cc.cwnd_bytes();
        cc.on_congestion(Time::ZERO, Signal::Loss, w);
        assert_eq!(cc.cwnd_bytes(), w / 2);
        // At the threshold slow start still rules; above it, one MTU for each window acknowledged.
        cc.on_acked(Time::ZERO, &ack(1000, true));
        let above = w / 2 + 1000;
        assert_eq!(cc.cwnd_bytes(), above);
        cc.on_acked(Time::ZERO, &ack(above - 1, true));
        assert_eq!(cc.cwnd_bytes(), above);
        cc.on_acked(Time::ZERO, &ack(1, true));
        assert_eq!(cc.cwnd_bytes(), above + 1000);
        cc.on_timeout(Time::ZERO, above);
        assert_eq!(cc.cwnd_bytes(), 1000);
    }

    #[test]
    fn a_mistaken_reduction_is_undone() {
        let mut cc = NewReno::new(1000);
        let (cwnd, ssthresh) = (cc.cwnd_bytes(), cc.ssthresh_bytes());
        cc.on_timeout(Time::ZERO, cwnd);
        assert_eq!(cc.cwnd_bytes(), 1000);
        cc.undo(Time::ZERO);
        assert_eq!((cc.cwnd_bytes(), cc.ssthresh_bytes()), (cwnd, ssthresh));
    }
}
