//! CUBIC (RFC 9438).
//!
//! Windows are in bytes and times in microseconds, as integers, so that a run is the same on every machine.

use std::time::Duration;

use super::cube;
use super::window::{PACKETS_MIN, Window};
use super::{Acked, Controller, Signal};
use crate::time::Time;

/// Part of the window that remains after a loss, β (RFC 9438 §4.6), and after a mark of a router (RFC 8511 §3.1), in percent.
const LOSS_PERCENT: usize = 70;
const ECN_PERCENT: usize = 85;

/// α = 3(1-β)/(1+β) = 9/17 packets per round trip let a window that loses 30 % grow as fast as one packet lets a window
/// that loses half (RFC 9438 §4.3).
const ALPHA: (u64, u64) = (9, 17);

/// Fraction bits of Reno's estimated window.
const RENO_FRACTION_BITS: u32 = 16;

/// A stage of congestion avoidance: the growth of the window between two losses.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Time in the stage while the window held packets back (RFC 9438 §4.2: not while the application did).
    elapsed: Duration,
    /// Time of the last update of `elapsed`.
    counted_at: Time,
    /// K, the time when the cubic function reaches `plateau_bytes`.
    k_us: u64,
    /// W_max of the function.
    plateau_bytes: u64,
    /// W_est, with [`RENO_FRACTION_BITS`].
    reno_fixed: u64,
    /// Growth of less than a byte, in parts of the window.
    remainder: u128,
}

impl Epoch {
    /// Begins an epoch (RFC 9438 §4.2). After the first slow start, and after a timeout, the plateau is the current window
    /// (§4.8, §4.10).
    fn start(now: Time, cwnd_bytes: u64, w_max_bytes: u64, mtu_bytes: u64) -> Self {
        Epoch {
            elapsed: Duration::ZERO,
            counted_at: now,
            k_us: cube::time_us(w_max_bytes.saturating_sub(cwnd_bytes), mtu_bytes),
            plateau_bytes: w_max_bytes.max(cwnd_bytes),
            reno_fixed: cwnd_bytes << RENO_FRACTION_BITS,
            remainder: 0,
        }
    }

    /// Returns W_cubic this time from now.
    fn window_bytes(&self, later: Duration, mtu_bytes: u64) -> u64 {
        let t_us = u64::try_from((self.elapsed + later).as_micros()).unwrap_or(u64::MAX);
        let distance = cube::growth_bytes(t_us.abs_diff(self.k_us), mtu_bytes);
        if t_us < self.k_us {
            self.plateau_bytes.saturating_sub(distance)
        } else {
            self.plateau_bytes.saturating_add(distance)
        }
    }

    fn reno_bytes(&self) -> u64 {
        self.reno_fixed >> RENO_FRACTION_BITS
    }
}

/// State before a reduction, to undo it.
#[derive(Clone, Copy, Debug)]
struct Before {
    cwnd_bytes: usize,
    ssthresh_bytes: usize,
    cwnd_prior_bytes: usize,
    w_max_bytes: usize,
    flat: bool,
    epoch: Option<Epoch>,
}

/// The window follows a cubic function of the time since the last loss: fast back to its previous size, slowly past it,
/// and then faster and faster.
#[derive(Debug)]
pub struct Cubic {
    window: Window,
    /// The window at the time when the threshold was set.
    cwnd_prior_bytes: usize,
    w_max_bytes: usize,
    /// The plateau at which the next stage begins.
    flat: bool,
    /// The current stage, from the first acknowledgement in congestion avoidance after the repair of a loss.
    epoch: Option<Epoch>,
    before: Option<Before>,
    /// Whether a timeout was not answered yet.
    timed_out: bool,
}

impl Cubic {
    /// Returns a controller in slow start.
    pub fn new(mtu_bytes: usize, cwnd_bytes: usize) -> Self {
        Cubic {
            window: Window::new(mtu_bytes, cwnd_bytes),
            cwnd_prior_bytes: 0,
            w_max_bytes: 0,
            flat: true,
            epoch: None,
            before: None,
            timed_out: false,
        }
    }

    fn avoid_congestion(&mut self, now: Time, acked: &Acked) {
        let (cwnd, mtu) = (self.window.cwnd_bytes() as u64, self.window.mtu_bytes() as u64);
        if self.epoch.is_none() {
            if self.flat {
                self.w_max_bytes = self.window.cwnd_bytes();
                self.flat = false;
            }
            self.epoch = Some(Epoch::start(now, cwnd, self.w_max_bytes as u64, mtu));
        }
        let Some(epoch) = &mut self.epoch else { return };
        let rtt = acked.srtt.or(acked.rtt).unwrap_or_default();
        let since = now.saturating_since(epoch.counted_at);
        epoch.counted_at = now;
        if !acked.window_limited {
            return;
        }
        // A window in full use is acknowledged within a round trip: more time is a pause.
        epoch.elapsed += since.min(2 * rtt);

        // RFC 9438 §4.3.
        let (alpha_over, alpha_under) =
            if epoch.reno_bytes() < self.cwnd_prior_bytes as u64 { ALPHA } else { (1, 1) };
        let earned = u128::from(alpha_over * mtu) * acked.bytes as u128;
        let reno_growth = (earned << RENO_FRACTION_BITS) / (u128::from(alpha_under) * u128::from(cwnd));
        epoch.reno_fixed = epoch.reno_fixed.saturating_add(u64::try_from(reno_growth).unwrap_or(u64::MAX));
        if epoch.window_bytes(Duration::ZERO, mtu) < epoch.reno_bytes() {
            let reno_bytes = epoch.reno_bytes() as usize;
            self.window.grow(reno_bytes.saturating_sub(self.window.cwnd_bytes()));
            return;
        }
        // RFC 9438 §4.4 and §4.5. A SACK of a whole window leads to the target, as SACKs of single packets would.
        let target = epoch.window_bytes(rtt, mtu).clamp(cwnd, cwnd + cwnd / 2);
        epoch.remainder += u128::from(target - cwnd) * (acked.bytes as u128).min(u128::from(cwnd));
        self.window.grow((epoch.remainder / u128::from(cwnd)) as usize);
        epoch.remainder %= u128::from(cwnd);
    }

    fn remember(&mut self) {
        self.before = Some(Before {
            cwnd_bytes: self.window.cwnd_bytes(),
            ssthresh_bytes: self.window.ssthresh_bytes(),
            cwnd_prior_bytes: self.cwnd_prior_bytes,
            w_max_bytes: self.w_max_bytes,
            flat: self.flat,
            epoch: self.epoch,
        });
    }

    /// Ends the stage (RFC 9438 §4.7). Returns the rest of the window, `percent` of it, and the threshold (§4.6).
    fn reduce(&mut self, percent: usize) -> (usize, usize) {
        let cwnd = self.window.cwnd_bytes();
        self.w_max_bytes = if cwnd < self.w_max_bytes { cwnd * (100 + percent) / 200 } else { cwnd };
        self.cwnd_prior_bytes = cwnd;
        self.epoch = None;
        let remains = cwnd * percent / 100;
        (remains, remains.max(PACKETS_MIN * self.window.mtu_bytes()))
    }
}

impl Controller for Cubic {
    fn cwnd_bytes(&self) -> usize {
        self.window.cwnd_bytes()
    }

    fn ssthresh_bytes(&self) -> usize {
        self.window.ssthresh_bytes()
    }

    fn pacing_bytes_per_s(&self, srtt: Option<Duration>) -> Option<u64> {
        self.window.pacing_bytes_per_s(srtt)
    }

    fn on_acked(&mut self, now: Time, acked: &Acked) {
        self.timed_out = false;
        if self.window.cwnd_bytes() < self.window.ssthresh_bytes() {
            if self.window.slow_start(acked, self.window.ssthresh_bytes()) {
                self.cwnd_prior_bytes = self.window.cwnd_bytes();
            }
        } else if !acked.holds_window {
            self.avoid_congestion(now, acked);
        }
    }

    fn on_congestion(&mut self, _now: Time, signal: Signal, _in_flight_bytes: usize) {
        self.remember();
        self.flat = false;
        match signal {
            Signal::Loss => {
                let (_, ssthresh_bytes) = self.reduce(LOSS_PERCENT);
                self.window.on_loss(ssthresh_bytes);
            }
            // RFC 9438 §4.6: marks reduce down to one packet.
            Signal::Ecn => {
                let (remains, ssthresh_bytes) = self.reduce(ECN_PERCENT);
                self.window.on_mark(ssthresh_bytes, remains.max(self.window.mtu_bytes()));
            }
        }
    }

    fn on_timeout(&mut self, _now: Time, _in_flight_bytes: usize) {
        // Only the first of several consecutive timeouts says something about the window (RFC 5681 §3.1).
        let ssthresh_bytes = (!self.timed_out).then(|| {
            self.remember();
            self.reduce(LOSS_PERCENT).1
        });
        self.timed_out = true;
        self.flat = true;
        self.window.on_timeout(ssthresh_bytes);
    }

    fn undo(&mut self, _now: Time) {
        // RFC 9438 §4.9: unless the window has grown beyond its previous size.
        let Some(before) = self.before.take().filter(|b| self.window.cwnd_bytes() < b.cwnd_bytes) else {
            return;
        };
        self.window.restore(before.cwnd_bytes, before.ssthresh_bytes);
        self.cwnd_prior_bytes = before.cwnd_prior_bytes;
        self.w_max_bytes = before.w_max_bytes;
        self.flat = before.flat;
        self.epoch = before.epoch;
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
    use super::super::testing::{acked, limited};
    use super::*;

    const MTU: usize = 1000;

    fn at_ms(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// Returns a controller whose window was `packets` when a packet was lost.
    fn after_loss_at(packets: usize) -> Cubic {
        let mut cc = Cubic::new(MTU, 4 * MTU);
        cc.window = Window::new(MTU, packets * MTU);
        cc.on_congestion(Time::ZERO, Signal::Loss, packets * MTU);
        cc
    }

    /// Acknowledges a window in each round trip from `from_ms` to `to_ms`.
    fn run(cc: &mut Cubic, from_ms: u64, to_ms: u64, rtt_ms: u64) {
        let rtt = Duration::from_millis(rtt_ms);
        let mut ms = from_ms;
        while ms <= to_ms {
            cc.on_acked(at_ms(ms), &Acked { srtt: Some(rtt), ..limited(cc.window.cwnd_bytes()) });
            ms += rtt_ms;
        }
    }

    #[test]
    fn the_window_follows_the_cubic_function() {
        // A loss at 1000 packets: K = (300 / 0.4)^(1/3) = 9.0856 s. With a round trip of 100 ms, a window acknowledged at t
        // leads to 0.4 (t + 0.1 - K)³ + 1000.
        let mut cc = after_loss_at(1000);
        assert_eq!(cc.cwnd_bytes(), 700_000);
        let mut from = 0;
        for (until_ms, packets) in [(2000, 863.6), (5000, 974.7), (9000, 1000.0), (14_000, 1050.4)] {
            run(&mut cc, from, until_ms, 100);
            from = until_ms + 100;
            let window = cc.cwnd_bytes() as f64 / MTU as f64;
            assert!((window - packets).abs() < 0.3, "at {until_ms} ms {window} and not {packets}");
        }
    }

    #[test]
    fn a_short_round_trip_grows_as_reno_does() {
        // At 1 ms and 20 packets the function is far under 9/17 of a packet a round trip: after n round trips from 14
        // packets Reno's estimate has 14 + 9/17 n, until it is back at 20, and then a packet each.
        let mut cc = after_loss_at(20);
        run(&mut cc, 0, 9, 1);
        let expected = 14_000.0 + 10.0 * 9.0 / 17.0 * 1000.0;
        assert!((cc.cwnd_bytes() as f64 - expected).abs() < 20.0, "{}", cc.cwnd_bytes());
        run(&mut cc, 10, 11, 1);
        assert!(cc.cwnd_bytes() >= 20_000);
        let before = cc.cwnd_bytes();
        run(&mut cc, 12, 21, 1);
        assert!((cc.cwnd_bytes() - before).abs_diff(10_000) < 20, "{}", cc.cwnd_bytes());
    }

    #[test]
    fn the_clock_stops_while_the_application_has_too_little() {
        let mut steady = after_loss_at(1000);
        run(&mut steady, 0, 3000, 10);
        let mut paused = after_loss_at(1000);
        run(&mut paused, 0, 1000, 10);
        let rtt = Some(Duration::from_millis(10));
        for ms in 1001..60_000 {
            paused.on_acked(at_ms(ms), &Acked { srtt: rtt, ..acked(1000) });
        }
        run(&mut paused, 60_000, 61_990, 10);
        assert!(paused.cwnd_bytes().abs_diff(steady.cwnd_bytes()) < 2 * MTU);
        // A silence without a single SACK is a pause, too.
        let mut silent = after_loss_at(1000);
        run(&mut silent, 0, 1000, 10);
        run(&mut silent, 60_000, 61_990, 10);
        assert!(silent.cwnd_bytes().abs_diff(steady.cwnd_bytes()) < 2 * MTU);
    }

    #[test]
    fn growth_is_at_most_half_a_window_a_round_trip() {
        let mut cc = after_loss_at(10);
        run(&mut cc, 0, 2000, 1000);
        let window = cc.cwnd_bytes();
        // A minute in one step cannot be in full use; two round trips of it count.
        cc.on_acked(at_ms(60_000), &Acked { srtt: Some(Duration::from_secs(30)), ..limited(10 * window) });
        assert_eq!(cc.cwnd_bytes(), window + window / 2);
    }

    #[test]
    fn a_second_loss_further_down_lowers_the_plateau() {
        // RFC 9438 §4.7: W_max = 700 (1 + 0.7) / 2.
        let mut cc = after_loss_at(1000);
        assert_eq!(cc.w_max_bytes, 1_000_000);
        cc.on_congestion(Time::ZERO, Signal::Loss, 700_000);
        assert_eq!((cc.cwnd_bytes(), cc.w_max_bytes), (490_000, 595_000));
    }

    #[test]
    fn a_mark_takes_15_percent_and_marks_go_down_to_a_packet() {
        let mut cc = Cubic::new(MTU, 4 * MTU);
        cc.window.grow(100 * MTU - cc.window.cwnd_bytes());
        cc.on_congestion(Time::ZERO, Signal::Ecn, 100 * MTU);
        assert_eq!(cc.cwnd_bytes(), 85 * MTU);
        for _ in 0..100 {
            cc.on_congestion(Time::ZERO, Signal::Ecn, MTU);
        }
        assert_eq!((cc.cwnd_bytes(), cc.ssthresh_bytes()), (MTU, 4 * MTU));
        for _ in 0..10 {
            cc.on_congestion(Time::ZERO, Signal::Loss, MTU);
        }
        assert_eq!(cc.cwnd_bytes(), 4 * MTU);
    }

    #[test]
    fn after_a_timeout_slow_start_leads_to_a_plateau_at_the_threshold() {
        let mut cc = after_loss_at(1000);
        run(&mut cc, 0, 1000, 10);
        let before = cc.cwnd_bytes();
        cc.on_timeout(at_ms(2000), before);
        cc.on_timeout(at_ms(4000), MTU);
        assert_eq!((cc.cwnd_bytes(), cc.ssthresh_bytes()), (MTU, before * 7 / 10));
        let rtt = Duration::from_millis(10);
        let mut ms = 4010;
        while cc.cwnd_bytes() < cc.ssthresh_bytes() {
            cc.on_acked(at_ms(ms), &Acked { srtt: Some(rtt), ..limited(cc.window.cwnd_bytes()) });
            ms += 10;
        }
        assert_eq!(cc.cwnd_bytes(), cc.ssthresh_bytes());
        // K is 0: a second later 0.4 packets above the plateau, but Reno is at 9/17 packets for each round trip.
        run(&mut cc, ms, ms, 10);
        let epoch = cc.epoch.expect("congestion avoidance has begun");
        assert_eq!((epoch.k_us, epoch.plateau_bytes as usize), (0, before * 7 / 10));
    }

    #[test]
    fn undo_restores_everything_and_never_lowers() {
        let mut cc = after_loss_at(1000);
        run(&mut cc, 0, 3000, 10);
        let (cwnd, ssthresh, w_max) = (cc.window.cwnd_bytes(), cc.window.ssthresh_bytes(), cc.w_max_bytes);
        let elapsed = cc.epoch.map(|e| (e.elapsed, e.k_us));
        cc.on_timeout(at_ms(3010), cwnd);
        cc.on_timeout(at_ms(5010), MTU);
        cc.undo(at_ms(5020));
        assert_eq!(
            (cc.window.cwnd_bytes(), cc.window.ssthresh_bytes(), cc.w_max_bytes),
            (cwnd, ssthresh, w_max)
        );
        assert_eq!(cc.epoch.map(|e| (e.elapsed, e.k_us)), elapsed);
        // Too late: the window is above what it was.
        cc.on_congestion(at_ms(5030), Signal::Loss, cwnd);
        cc.window.grow(cwnd + 1 - cc.window.cwnd_bytes());
        cc.undo(at_ms(9000));
        assert_eq!(cc.window.cwnd_bytes(), cwnd + 1);
    }

    #[test]
    fn a_pause_halves_down_to_four_packets_and_keeps_the_threshold() {
        let mut cc = after_loss_at(1000);
        for _ in 0..20 {
            cc.on_idle();
        }
        assert_eq!((cc.cwnd_bytes(), cc.ssthresh_bytes()), (4 * MTU, 700 * MTU));
    }
}
