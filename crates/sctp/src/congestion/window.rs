//! Common parts of the controllers that have only a window: slow start, pauses, and a pacing rate derived from the
//! window.

use std::time::Duration;

use super::Acked;
use super::hystart::{HyStart, SlowStart};

/// Pacing rates in percent of a window per round trip: slow start doubles the window in a round trip.
const SLOW_START_GAIN_PERCENT: u64 = 200;
const AVOIDANCE_GAIN_PERCENT: u64 = 120;

/// The smallest threshold, and the smallest window after a loss or a pause (RFC 9260 §7.2.1, §7.2.3), in packets.
pub(super) const PACKETS_MIN: usize = 4;

/// Maximum growth by one SACK in slow start, in packets, while bursts are not paced.
///
/// RFC 9260 §7.2.1 has L = 1 for a SACK every second packet. Here one SACK acknowledges a whole receive batch; see
/// `docs/deviations.md`.
const SLOW_START_PACKETS_MAX: usize = 8;

/// A congestion window and its threshold.
#[derive(Debug)]
pub(super) struct Window {
    mtu_bytes: usize,
    cwnd_bytes: usize,
    /// `usize::MAX` until the first slow start is over.
    ssthresh_bytes: usize,
    hystart: HyStart,
}

impl Window {
    /// Returns the window of a new path.
    pub(super) fn new(mtu_bytes: usize, cwnd_bytes: usize) -> Self {
        Window { mtu_bytes, cwnd_bytes, ssthresh_bytes: usize::MAX, hystart: HyStart::default() }
    }

    pub(super) fn mtu_bytes(&self) -> usize {
        self.mtu_bytes
    }

    pub(super) fn set_mtu(&mut self, mtu_bytes: usize) {
        self.mtu_bytes = mtu_bytes;
    }

    pub(super) fn cwnd_bytes(&self) -> usize {
        self.cwnd_bytes
    }

    pub(super) fn ssthresh_bytes(&self) -> usize {
        self.ssthresh_bytes
    }

    /// Grows in congestion avoidance.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.cwnd_bytes += bytes;
    }

    /// Handles a loss: the window falls to its threshold.
    pub(super) fn on_loss(&mut self, ssthresh_bytes: usize) {
        (self.ssthresh_bytes, self.cwnd_bytes) = (ssthresh_bytes, ssthresh_bytes);
    }

    /// Handles a mark of a router, after which the window may be below its threshold.
    pub(super) fn on_mark(&mut self, ssthresh_bytes: usize, cwnd_bytes: usize) {
        (self.ssthresh_bytes, self.cwnd_bytes) = (ssthresh_bytes, cwnd_bytes);
    }

    /// Handles a timeout: one packet may leave. `None` keeps the threshold.
    pub(super) fn on_timeout(&mut self, ssthresh_bytes: Option<usize>) {
        self.ssthresh_bytes = ssthresh_bytes.unwrap_or(self.ssthresh_bytes);
        self.cwnd_bytes = self.mtu_bytes;
    }

    /// Undoes a reduction.
    pub(super) fn restore(&mut self, cwnd_bytes: usize, ssthresh_bytes: usize) {
        (self.cwnd_bytes, self.ssthresh_bytes) = (cwnd_bytes, ssthresh_bytes);
    }

    /// Grows in slow start, up to `limit_bytes` once a threshold is set. Returns whether the first slow start is over.
    pub(super) fn slow_start(&mut self, acked: &Acked, limit_bytes: usize) -> bool {
        let (mut phase, mut limit) = (SlowStart::Double, limit_bytes);
        if self.ssthresh_bytes == usize::MAX {
            phase = self.hystart.on_acked(acked);
            limit = self.hystart.ceiling_bytes(self.mtu_bytes);
        }
        if phase == SlowStart::Done {
            self.ssthresh_bytes = self.cwnd_bytes;
        } else if acked.window_limited && acked.cumulative && !acked.holds_window {
            let room = limit.saturating_sub(self.cwnd_bytes);
            if room == 0 {
                self.hystart.on_ceiling();
            }
            self.cwnd_bytes += phase.growth_bytes(slow_start_bytes(acked, self.mtu_bytes)).min(room);
        }
        phase == SlowStart::Done
    }

    /// Returns the pacing rate: the window per smoothed round-trip time and more, so that pacing does not hold back
    /// what the window permits.
    pub(super) fn pacing_bytes_per_s(&self, srtt: Option<Duration>) -> Option<u64> {
        let slow_start = self.cwnd_bytes < self.ssthresh_bytes;
        let gain_percent = if slow_start { SLOW_START_GAIN_PERCENT } else { AVOIDANCE_GAIN_PERCENT };
        let ns = srtt?.as_nanos().max(1);
        let rate = self.cwnd_bytes as u128 * u128::from(gain_percent) * 10_000_000 / ns;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Halves the window after an idle time (RFC 9260 §7.2.1), but keeps the threshold: a pause of the application shows nothing
    /// about the path.
    pub(super) fn halve_idle(&mut self) {
        self.ssthresh_bytes = self.ssthresh_bytes.max(self.cwnd_bytes);
        let floor = PACKETS_MIN * self.mtu_bytes;
        self.cwnd_bytes = (self.cwnd_bytes / 2).max(floor).min(self.cwnd_bytes);
    }
}

/// Returns the maximum growth of a window by one SACK in slow start: all acknowledged bytes once a round-trip time to
/// pace by is known (RFC 9406 §4.3).
fn slow_start_bytes(acked: &Acked, mtu_bytes: usize) -> usize {
    match acked.srtt {
        Some(_) => acked.bytes,
        None => acked.bytes.min(SLOW_START_PACKETS_MAX * mtu_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::limited;
    use super::*;

    #[test]
    fn slow_start_is_bounded_until_it_is_paced() {
        let mut acked = limited(20_000);
        assert_eq!(slow_start_bytes(&acked, 1000), 8000);
        acked.srtt = Some(Duration::from_millis(10));
        assert_eq!(slow_start_bytes(&acked, 1000), 20_000);
    }

    #[test]
    fn a_window_a_round_trip_with_a_gain_of_two_and_then_of_a_fifth() {
        let srtt = Some(Duration::from_millis(100));
        let mut window = Window::new(1000, 10_000);
        assert_eq!(window.pacing_bytes_per_s(srtt), Some(200_000));
        assert_eq!(window.pacing_bytes_per_s(None), None);
        window.on_loss(10_000);
        assert_eq!(window.pacing_bytes_per_s(srtt), Some(120_000));
    }
}
