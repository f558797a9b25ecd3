//! Congestion control, one controller per path, behind one trait. Those of an association may be coupled.
//!
//! The path finds losses, keeps the round-trip time, spreads packets at the rate that the controller names and
//! sends by proportional rate reduction while it repairs a loss. The controller only decides how much may be in flight
//! and how fast that may leave.

mod algorithm;
mod bbr;
mod coupling;
mod cube;
mod cubic;
mod hystart;
mod new_reno;
#[cfg(test)]
mod test_network;
#[cfg(test)]
mod test_network_tests;
#[cfg(test)]
mod testing;
mod window;

use std::time::Duration;

use crate::time::Time;

pub use algorithm::Algorithm;
pub use bbr::Bbr;
pub use coupling::{Coupling, Share};
pub(crate) use coupling::{Pool, rate_bytes_per_s};
pub use cubic::Cubic;
pub use new_reno::NewReno;

/// Result of an acknowledgement on one path.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Bytes newly acknowledged (chunks with headers and padding).
    pub bytes: usize,
    /// Bytes that were in flight before this SACK.
    pub in_flight_before_bytes: usize,
    /// Bytes in flight after this SACK and what it showed to be lost.
    pub in_flight_bytes: usize,
    /// Bytes that this SACK showed to be lost.
    pub lost_bytes: usize,
    /// Whether the cumulative TSN moved.
    pub cumulative: bool,
    /// Whether a loss of this window is still being repaired.
    pub in_recovery: bool,
    /// Whether the window, and not the application, the peer or the link, has held packets back lately. Only such a
    /// window may grow (RFC 9260 §7.2.1, RFC 7661).
    pub window_limited: bool,
    /// Round-trip time of the newest packet acknowledged, unless it had been sent before.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time, once there is one.
    pub srtt: Option<Duration>,
    /// The shortest round-trip time seen lately.
    pub min_rtt: Option<Duration>,
    /// Number of the newest packet acknowledged.
    pub newest_packet: u32,
    /// Number that the next packet will get: a round ends when a packet with the number that was next at its beginning
    /// is acknowledged. Numbers wrap.
    pub next_packet: u32,
    /// How fast the data arrived.
    pub rate: Option<RateSample>,
}

/// How much arrived in what time, from the sending of the newest packet acknowledged to now
/// (draft-ietf-ccwg-bbr, "Delivery Rate Samples").
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes delivered in `interval`.
    pub delivered_bytes: u64,
    /// The longer of the times that it took to send and to acknowledge them.
    pub interval: Duration,
    /// Bytes delivered on the path when the packet was sent.
    pub prior_delivered_bytes: u64,
    /// Bytes delivered on the path until now.
    pub total_delivered_bytes: u64,
    /// Bytes in flight just after the packet was sent.
    pub sent_in_flight_bytes: usize,
    /// Bytes found lost since the packet was sent.
    pub lost_bytes: u64,
    /// The sender had no more to send when the packet left, so the path may carry more than the sample says.
    pub app_limited: bool,
}

impl RateSample {
    /// Returns the rate.
    pub fn bytes_per_s(&self) -> u64 {
        let ns = self.interval.as_nanos().max(1);
        u64::try_from(u128::from(self.delivered_bytes) * 1_000_000_000 / ns).unwrap_or(u64::MAX)
    }
}

/// A packet that was found lost.
#[derive(Clone, Copy, Debug)]
pub struct LostPacket {
    /// Bytes of it that were still in flight.
    pub bytes: usize,
    /// Its number.
    pub number: u32,
    /// Bytes in flight just after it was sent.
    pub sent_in_flight_bytes: usize,
    /// Bytes found lost since it was sent, with its own.
    pub lost_bytes: u64,
    /// Bytes delivered on the path when it was sent.
    pub prior_delivered_bytes: u64,
    /// The sender had no more to send when it left.
    pub app_limited: bool,
}

/// Reason for a smaller window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// A packet was lost.
    Loss,
    /// A router marked a packet (RFC 3168).
    Ecn,
}

/// Decides how much may be in flight. Sizes are bytes of DATA chunks with headers, and `mtu_bytes` is how many of them a
/// packet holds (PMDCS).
pub trait Controller: Send + std::fmt::Debug {
    /// Returns the window.
    fn cwnd_bytes(&self) -> usize;
    /// Returns the threshold between slow start and congestion avoidance, `usize::MAX` if there is none yet.
    fn ssthresh_bytes(&self) -> usize;
    /// Returns the pacing rate in bytes of DATA chunks per second; `None`: the window alone limits sending.
    fn pacing_bytes_per_s(&self, srtt: Option<Duration>) -> Option<u64>;
    /// Handles a sent packet. `in_flight_bytes` includes it.
    fn on_sent(&mut self, _now: Time, _bytes: usize, _in_flight_bytes: usize, _app_limited: bool) {}
    /// Tells a coupled controller the path's share of its association, before each SACK.
    fn couple(&mut self, _share: &Share) {}
    /// Handles a SACK that acknowledged chunks for the first time.
    fn on_acked(&mut self, now: Time, acked: &Acked);
    /// Handles a lost packet; called for each one, before `on_congestion` and `on_acked`.
    fn on_packet_lost(&mut self, _now: Time, _lost: &LostPacket) {}
    /// Handles congestion; called once per window. `in_flight_bytes` were in flight before.
    fn on_congestion(&mut self, now: Time, signal: Signal, in_flight_bytes: usize);
    /// Ends the recovery: the losses before the last call of `on_congestion` are repaired.
    fn on_recovered(&mut self, _now: Time) {}
    /// Handles the expiry of the retransmission timer. `in_flight_bytes` were in flight before.
    fn on_timeout(&mut self, now: Time, in_flight_bytes: usize);
    /// The last reduction was a mistake: nothing had been lost. The window is again at least what it was
    /// (RFC 5682, RFC 3708).
    fn undo(&mut self, now: Time);
    /// Handles an idle time of one retransmission timeout (RFC 9260 §7.2.1).
    fn on_idle(&mut self);
    /// Handles a change of the path MTU.
    fn set_mtu(&mut self, mtu_bytes: usize);
    /// Returns whether the path sends by proportional rate reduction while it repairs a loss (RFC 6937). A controller with a
    /// model of the path of its own says no.
    fn reduces_proportionally(&self) -> bool {
        true
    }
}

/// Returns the initial window of a path (RFC 9260 §7.2.1): min(4·PMDCS, max(2·PMDCS, 4404)), and 4344 instead of 4404 over IPv6.
pub fn initial_window_bytes(pmdcs_bytes: usize, ipv6: bool) -> usize {
    let ethernet_bytes = if ipv6 { 4344 } else { 4404 };
    (4 * pmdcs_bytes).min((2 * pmdcs_bytes).max(ethernet_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_window_is_that_of_rfc_9260() {
        assert_eq!([false, true].map(|ipv6| initial_window_bytes(1460, ipv6)), [4404, 4344]);
        assert_eq!([false, true].map(|ipv6| initial_window_bytes(576, ipv6)), [2304; 2]);
        assert_eq!([false, true].map(|ipv6| initial_window_bytes(9000, ipv6)), [18000; 2]);
    }
}
