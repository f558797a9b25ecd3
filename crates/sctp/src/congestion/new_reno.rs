//! The controller of RFC 9260 §7.2.

use std::time::Duration;

use super::window::Window;
use super::{Acked, Controller, Coupling, Share, Signal};
use crate::time::Time;

/// Slow start with HyStart++, and congestion avoidance by one packet per round trip or by a coupling.
#[derive(Debug)]
pub struct NewReno {
    window: Window,
    partial_bytes_acked: usize,
    coupling: Coupling,
    share: Share,
    /// Window and threshold before the last reduction.
    before: Option<(usize, usize)>,
    /// Whether a timeout was not answered yet.
    timed_out: bool,
}

impl NewReno {
    /// Returns a controller in slow start.
    pub fn new(mtu_bytes: usize, cwnd_bytes: usize) -> Self {
        NewReno::coupled(Coupling::None, mtu_bytes, cwnd_bytes)
    }

    /// Returns a controller whose congestion avoidance is coupled with that of other paths.
    pub fn coupled(coupling: Coupling, mtu_bytes: usize, cwnd_bytes: usize) -> Self {
        NewReno {
            window: Window::new(mtu_bytes, cwnd_bytes),
            partial_bytes_acked: 0,
            coupling,
            share: Share::default(),
            before: None,
            timed_out: false,
        }
    }

    /// Begins to grow anew. Returns the threshold after a loss (RFC 9260 §7.2.3).
    fn reduced_bytes(&mut self) -> usize {
        self.partial_bytes_acked = 0;
        let (window, share) = (&self.window, &self.share);
        let floor_bytes = self.coupling.floor_bytes(share, window.mtu_bytes());
        self.coupling.reduced_bytes(share, window.cwnd_bytes()).max(floor_bytes)
    }

    /// Returns window and threshold, to undo a reduction.
    fn sizes(&self) -> (usize, usize) {
        (self.window.cwnd_bytes(), self.window.ssthresh_bytes())
    }
}

impl Controller for NewReno {
    fn cwnd_bytes(&self) -> usize {
        self.window.cwnd_bytes()
    }

    fn ssthresh_bytes(&self) -> usize {
        self.window.ssthresh_bytes()
    }

    fn pacing_bytes_per_s(&self, srtt: Option<Duration>) -> Option<u64> {
        self.window.pacing_bytes_per_s(srtt)
    }

    fn couple(&mut self, share: &Share) {
        self.share = *share;
    }

    fn on_acked(&mut self, _now: Time, acked: &Acked) {
        self.timed_out = false;
        if self.window.cwnd_bytes() <= self.window.ssthresh_bytes() {
            // RFC 9260 §7.2.1: also at the threshold, as after a loss. At most one packet above it, where congestion avoidance
            // continues.
            let limit_bytes = self.window.ssthresh_bytes().saturating_add(self.window.mtu_bytes());
            self.window.slow_start(acked, limit_bytes);
            return;
        }
        // RFC 9260 §7.2.2: the window grows only if it was in full use and no loss is being repaired.
        self.partial_bytes_acked += acked.bytes;
        let cwnd_bytes = self.window.cwnd_bytes();
        if self.partial_bytes_acked >= cwnd_bytes {
            if acked.window_limited && !acked.holds_window {
                self.partial_bytes_acked -= cwnd_bytes;
                self.window.grow(self.coupling.growth_bytes(&self.share, self.window.mtu_bytes()));
            } else {
                self.partial_bytes_acked = cwnd_bytes;
            }
        }
    }

    fn on_congestion(&mut self, _now: Time, _signal: Signal, _in_flight_bytes: usize) {
        self.before = Some(self.sizes());
        let ssthresh_bytes = self.reduced_bytes();
        self.window.on_loss(ssthresh_bytes);
    }

    fn on_timeout(&mut self, _now: Time, _in_flight_bytes: usize) {
        // Only the first of several consecutive timeouts can turn out to be spurious.
        if !self.timed_out {
            self.before = Some(self.sizes());
        }
        self.timed_out = true;
        let ssthresh_bytes = self.reduced_bytes();
        self.window.on_timeout(Some(ssthresh_bytes));
    }

    fn undo(&mut self, _now: Time) {
        if let Some((cwnd_bytes, ssthresh_bytes)) = self.before.take() {
            self.window.restore(cwnd_bytes.max(self.window.cwnd_bytes()), ssthresh_bytes);
        }
    }

    fn on_idle(&mut self) {
        self.window.halve_idle();
    }

    fn set_mtu(&mut self, mtu_bytes: usize) {
        self.window.set_mtu(mtu_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pool;
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
    fn what_arrives_while_a_loss_is_repaired_earns_no_growth() {
        let mut cc = NewReno::new(1000, 20_000);
        cc.on_congestion(Time::ZERO, Signal::Loss, 20_000);
        for _ in 0..4 {
            cc.on_acked(Time::ZERO, &Acked { holds_window: true, ..limited(10_000) });
        }
        assert_eq!(cc.cwnd_bytes(), 10_000);
        // Slow start leads beyond the threshold, and there a window must arrive first.
        for _ in 0..3 {
            cc.on_acked(Time::ZERO, &limited(1));
        }
        assert_eq!(cc.cwnd_bytes(), 10_001);
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

    #[test]
    fn a_coupled_window_grows_and_shrinks_by_the_share_of_its_path() {
        let mut cc = NewReno::coupled(Coupling::Balia, 1000, 4000);
        for _ in 0..20 {
            cc.on_acked(Time::ZERO, &limited(8000));
        }
        let before = cc.cwnd_bytes();
        // A third of the fastest: three quarters of the window are given up, and 0.175 packets a round trip come back.
        cc.couple(&Pool::from_iter([100, 300]).share(100));
        cc.on_congestion(Time::ZERO, Signal::Loss, before);
        assert_eq!(cc.cwnd_bytes(), before / 4);
        cc.on_acked(Time::ZERO, &limited(8000));
        let above = cc.cwnd_bytes();
        cc.on_acked(Time::ZERO, &limited(above));
        assert_eq!(cc.cwnd_bytes(), above + 175);
        // The fastest gives up half.
        cc.couple(&Pool::from_iter([300, 100]).share(300));
        cc.on_timeout(Time::ZERO, above);
        assert_eq!((cc.cwnd_bytes(), cc.ssthresh_bytes()), (1000, (above + 175) / 2));
        cc.undo(Time::ZERO);
        assert_eq!(cc.cwnd_bytes(), above + 175);
    }
}
