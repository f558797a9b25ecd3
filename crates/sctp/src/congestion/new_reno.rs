//! The controller of RFC 9260 §7.2.

use std::time::Duration;

use super::hystart::{HyStart, SlowStart};
use super::{Acked, Controller, Signal, slow_start_bytes, window_pacing_bytes_per_s};
use crate::time::Time;

/// Pacing rates over a window a round trip, in percent: slow start doubles the window in a round trip.
const SLOW_START_GAIN_PERCENT: u64 = 200;
const AVOIDANCE_GAIN_PERCENT: u64 = 120;

/// The smallest threshold, and the smallest window for a loss or when idle (RFC 9260 §7.2.1, §7.2.3), in packets.
const WINDOW_PACKETS_MIN: usize = 4;

/// Slow start with HyStart++, and congestion avoidance by one packet a round trip.
#[derive(Debug)]
pub struct NewReno {
    mtu_bytes: usize,
    cwnd_bytes: usize,
    ssthresh_bytes: usize,
    partial_bytes_acked: usize,
    hystart: HyStart,
    /// Window and threshold before the last reduction.
    before: Option<(usize, usize)>,
    /// A timeout has not been answered yet.
    timed_out: bool,
}

impl NewReno {
    /// A controller in slow start.
    pub fn new(mtu_bytes: usize, cwnd_bytes: usize) -> Self {
        NewReno {
            mtu_bytes,
            cwnd_bytes,
            ssthresh_bytes: usize::MAX,
            partial_bytes_acked: 0,
            hystart: HyStart::default(),
            before: None,
            timed_out: false,
        }
    }

    fn halve(&mut self) {
        self.ssthresh_bytes = (self.cwnd_bytes / 2).max(WINDOW_PACKETS_MIN * self.mtu_bytes);
        self.partial_bytes_acked = 0;
    }

    /// RFC 9260 §7.2.1.
    fn slow_start(&mut self, acked: &Acked, grows: bool) {
        // At most one packet above the threshold, where congestion avoidance goes on.
        let (mut phase, mut limit) = (SlowStart::Double, self.ssthresh_bytes.saturating_add(self.mtu_bytes));
        if self.ssthresh_bytes == usize::MAX {
            phase = self.hystart.on_acked(acked);
            limit = self.hystart.ceiling_bytes(self.mtu_bytes);
        }
        if phase == SlowStart::Done {
            self.ssthresh_bytes = self.cwnd_bytes;
        } else if grows && acked.cumulative {
            let room = limit.saturating_sub(self.cwnd_bytes);
            self.cwnd_bytes += phase.growth_bytes(slow_start_bytes(acked, self.mtu_bytes)).min(room);
        }
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
        self.timed_out = false;
        // RFC 9260 §7.2.1: the window grows only when it was in full use and no loss is being repaired.
        let grows = acked.window_limited && !acked.in_recovery;
        if self.cwnd_bytes <= self.ssthresh_bytes {
            self.slow_start(acked, grows);
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
        self.before = Some((self.cwnd_bytes, self.ssthresh_bytes));
        self.halve();
        self.cwnd_bytes = self.ssthresh_bytes;
    }

    fn on_timeout(&mut self, _now: Time, _in_flight_bytes: usize) {
        // Of several timeouts in a row the first is the one that may turn out to be a mistake.
        if !self.timed_out {
            self.before = Some((self.cwnd_bytes, self.ssthresh_bytes));
        }
        self.timed_out = true;
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
        // RFC 9260 §7.2.1, but the threshold is not lowered: an application that pauses has learned nothing of the path.
        self.ssthresh_bytes = self.ssthresh_bytes.max(self.cwnd_bytes);
        let floor = WINDOW_PACKETS_MIN * self.mtu_bytes;
        self.cwnd_bytes = (self.cwnd_bytes / 2).max(floor).min(self.cwnd_bytes);
    }

    fn set_mtu(&mut self, mtu_bytes: usize) {
        self.mtu_bytes = mtu_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, limited};
    use super::*;

    #[test]
    fn an_application_limited_window_does_not_grow() {
        let mut cc = NewReno::new(1000, 4000);
        let before = cc.cwnd_bytes();
        cc.on_acked(Time::ZERO, &acked(500));
        assert_eq!(cc.cwnd_bytes(), before);
        cc.on_acked(Time::ZERO, &limited(500));
        assert_eq!(cc.cwnd_bytes(), before + 500);
    }

    #[test]
    fn loss_halves_and_a_timeout_starts_over() {
        let mut cc = NewReno::new(1000, 4000);
        for _ in 0..20 {
            cc.on_acked(Time::ZERO, &limited(8000));
        }
        let w = cc.cwnd_bytes();
        cc.on_congestion(Time::ZERO, Signal::Loss, w);
        assert_eq!(cc.cwnd_bytes(), w / 2);
        // At the threshold slow start still rules; above it, one MTU for each window acknowledged.
        cc.on_acked(Time::ZERO, &limited(8000));
        let above = w / 2 + 1000;
        assert_eq!(cc.cwnd_bytes(), above);
        cc.on_acked(Time::ZERO, &limited(above - 1));
        assert_eq!(cc.cwnd_bytes(), above);
        cc.on_acked(Time::ZERO, &limited(1));
        assert_eq!(cc.cwnd_bytes(), above + 1000);
        cc.on_timeout(Time::ZERO, above);
        assert_eq!(cc.cwnd_bytes(), 1000);
    }

    #[test]
    fn a_mistaken_reduction_is_undone_though_it_was_made_twice() {
        let mut cc = NewReno::new(1000, 4000);
        let (cwnd, ssthresh) = (cc.cwnd_bytes(), cc.ssthresh_bytes());
        cc.on_timeout(Time::ZERO, cwnd);
        cc.on_timeout(Time::ZERO, 1000);
        assert_eq!(cc.cwnd_bytes(), 1000);
        cc.undo(Time::ZERO);
        assert_eq!((cc.cwnd_bytes(), cc.ssthresh_bytes()), (cwnd, ssthresh));
    }

    #[test]
    fn a_pause_halves_down_to_four_packets_and_slow_start_leads_back() {
        let mut cc = NewReno::new(1000, 4000);
        for _ in 0..20 {
            cc.on_acked(Time::ZERO, &limited(8000));
        }
        let w = cc.cwnd_bytes();
        cc.on_congestion(Time::ZERO, Signal::Loss, w);
        cc.on_idle();
        assert_eq!((cc.cwnd_bytes(), cc.ssthresh_bytes()), (w / 4, w / 2));
        for _ in 0..10 {
            cc.on_idle();
        }
        assert_eq!((cc.cwnd_bytes(), cc.ssthresh_bytes()), (4000, w / 2));
    }
}
