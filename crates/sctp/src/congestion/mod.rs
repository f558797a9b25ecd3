//! Congestion control: one controller for each path, behind one trait. The controllers of an association may be
//! coupled.
//!
//! The path detects losses, measures the round-trip time, paces packets at the rate of the controller, and applies
//! proportional rate reduction while it repairs a loss. The controller only decides how much data may be in flight and
//! how fast it may be sent.

mod algorithm;
mod bbr;
mod controllers;
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

use crate::packet_number::PacketNumber;
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
    /// Bytes in flight after this SACK and the losses that it showed.
    pub in_flight_bytes: usize,
    /// Bytes that this SACK showed as lost.
    pub lost_bytes: usize,
    /// Whether the cumulative TSN advanced.
    pub cumulative: bool,
    /// Whether the window must not grow: a loss is being repaired, or a part of the window that was reduced is outstanding.
    pub holds_window: bool,
    /// Whether the window has recently held packets back, and not the application, the peer or the link. Only such a
    /// window may grow (RFC 9260 §7.2.1, RFC 7661).
    pub window_limited: bool,
    /// Round-trip time of the newest acknowledged packet; `None` if it was a retransmission.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// The shortest recent round-trip time.
    pub min_rtt: Option<Duration>,
    /// Number of the newest acknowledged packet.
    pub newest_packet: PacketNumber,
    /// Number of the next packet. A round ends when a packet that was next at its beginning is acknowledged.
    pub next_packet: PacketNumber,
    /// The delivery rate.
    pub rate: Option<RateSample>,
}

/// A delivery rate: the bytes delivered between the sending of the newest acknowledged packet and now
/// (draft-ietf-ccwg-bbr, "Delivery Rate Samples").
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes delivered in `interval`.
    pub delivered_bytes: u64,
    /// The longer of the times that sending and acknowledging these bytes took.
    pub interval: Duration,
    /// Bytes delivered on the path when the packet was sent.
    pub prior_delivered_bytes: u64,
    /// Bytes delivered on the path until now.
    pub total_delivered_bytes: u64,
    /// Bytes in flight just after the packet was sent.
    pub sent_in_flight_bytes: usize,
    /// Bytes found lost since the packet was sent.
    pub lost_bytes: u64,
    /// Whether the sender had no more data when the packet left, so that the path may support a higher rate.
    pub app_limited: bool,
}

impl RateSample {
    /// Returns the rate.
    pub fn bytes_per_s(&self) -> u64 {
        let ns = self.interval.as_nanos().max(1);
        u64::try_from(u128::from(self.delivered_bytes) * 1_000_000_000 / ns).unwrap_or(u64::MAX)
    }
}

/// A packet that was declared lost.
#[derive(Clone, Copy, Debug)]
pub struct LostPacket {
    /// Bytes of the packet that were still in flight.
    pub bytes: usize,
    /// Number of the packet.
    pub number: PacketNumber,
    /// Bytes in flight just after it was sent.
    pub sent_in_flight_bytes: usize,
    /// Bytes declared lost since the packet was sent, including its own.
    pub lost_bytes: u64,
    /// Bytes delivered on the path when it was sent.
    pub prior_delivered_bytes: u64,
    /// Whether the sender had no more data when the packet left.
    pub app_limited: bool,
}

/// Reason for a reduction of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// A packet was lost.
    Loss,
    /// A router has marked a packet (RFC 3168).
    Ecn,
}

/// Decides how much data may be in flight. Sizes are in bytes of DATA chunks including headers; `mtu_bytes` is the
/// number of these in a full packet (PMDCS).
pub trait Controller: Send + std::fmt::Debug {
    /// Returns the window.
    fn cwnd_bytes(&self) -> usize;
    /// Returns the threshold between slow start and congestion avoidance; `usize::MAX` before it is set.
    fn ssthresh_bytes(&self) -> usize;
    /// Returns the pacing rate in bytes of DATA chunks per second; `None` if the window alone limits sending.
    fn pacing_bytes_per_s(&self, srtt: Option<Duration>) -> Option<u64>;
    /// Handles a sent packet. `in_flight_bytes` includes it.
    fn on_sent(&mut self, _now: Time, _bytes: usize, _in_flight_bytes: usize, _app_limited: bool) {}
    /// Tells a coupled controller the path's share of its association, before each SACK.
    fn couple(&mut self, _share: &Share) {}
    /// Handles a SACK that acknowledged chunks for the first time.
    fn on_acked(&mut self, now: Time, acked: &Acked);
    /// Handles a lost packet; called for each lost packet, before `on_congestion` and `on_acked`.
    fn on_packet_lost(&mut self, _now: Time, _lost: &LostPacket) {}
    /// Handles congestion; called once per window. `in_flight_bytes` were in flight before.
    fn on_congestion(&mut self, now: Time, signal: Signal, in_flight_bytes: usize);
    /// Handles the arrival of a packet that left after the last call of `on_congestion`: the losses before it are repaired. The
    /// window may have to stay longer ([`Acked::holds_window`]).
    fn on_recovered(&mut self, _now: Time) {}
    /// Handles the expiry of the retransmission timer. `in_flight_bytes` were in flight before.
    fn on_timeout(&mut self, now: Time, in_flight_bytes: usize);
    /// Undoes the last reduction, because nothing had been lost: the window is at least as large as before the
    /// reduction (RFC 5682, RFC 3708).
    fn undo(&mut self, now: Time);
    /// Handles an idle time of one retransmission timeout (RFC 9260 §7.2.1).
    fn on_idle(&mut self);
    /// Handles a change of the path MTU.
    fn set_mtu(&mut self, mtu_bytes: usize);
    /// Returns whether the path applies proportional rate reduction while it repairs a loss (RFC 6937). A controller
    /// with a model of the path does not need it.
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
