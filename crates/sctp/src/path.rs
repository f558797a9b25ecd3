//! One address of the peer: round-trip time, window, what is in flight on it, heartbeats.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use smallvec::SmallVec;

use crate::config::AssociationConfig;
use crate::congestion::Controller;
use crate::rto::Rto;
use crate::statistics::PathStatistics;
use crate::time::Time;

/// Whether a path may carry data (RFC 9260 §5.4, §8.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// Not yet shown to belong to the peer.
    Unconfirmed,
    /// In use.
    Active,
    /// Gave no answer for Path.Max.Retrans attempts.
    Inactive,
}

/// A packet with DATA chunks, kept until it is known to have arrived or to be lost.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub(crate) sent_at: Time,
    /// Unwrapped TSNs of its chunks. One range for new data, several for retransmissions.
    pub(crate) tsns: SmallVec<[Range<u64>; 1]>,
    /// Whether every chunk in it is sent for the first time (Karn's rule).
    pub(crate) first_transmission: bool,
}

/// A heartbeat that was sent and not yet answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) nonce: u64,
    pub(crate) sent_at: Time,
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) state: PathState,
    pub(crate) rto: Rto,
    pub(crate) errors: u32,
    pub(crate) mtu_bytes: usize,
    /// What the link's buffers hold on the way to a peer on the same host.
    pub(crate) in_flight_limit_bytes: Option<usize>,
    pub(crate) congestion: Box<dyn Controller>,
    pub(crate) in_flight_bytes: usize,
    /// Sent packets by number; the front one has number `first_packet`.
    pub(crate) sent: VecDeque<SentPacket>,
    pub(crate) first_packet: u32,
    pub(crate) largest_acked: Option<u32>,
    /// Losses among packets before this one belong to a window that was reduced already.
    pub(crate) recovery_until: u32,
    /// Loss was found just now: one packet goes again whatever the congestion window is (RFC 9260 §7.2.4, 3).
    pub(crate) retransmits_at_once: bool,
    pub(crate) t3: Option<Time>,
    pub(crate) heartbeat_at: Option<Time>,
    pub(crate) probe: Option<Probe>,
    pub(crate) last_sent_at: Time,
}

/// Packets that must be acknowledged beyond one before it counts as lost (RFC 9260 §7.2.4: three
/// miss indications), counted in order of transmission so that a retransmission can be lost, too.
pub(crate) const REORDERING_PACKETS: u32 = 3;

/// Steps after which an idle path is back at its initial window, however wide it was.
const IDLE_STEPS_MAX: usize = 32;

impl Path {
    pub(crate) fn new(
        remote: SocketAddr,
        local: Option<IpAddr>,
        mtu_bytes: usize,
        limit: Option<usize>,
        config: &AssociationConfig,
    ) -> Self {
        Path {
            remote,
            local,
            state: PathState::Unconfirmed,
            rto: Rto::new(&config.rto),
            errors: 0,
            mtu_bytes,
            in_flight_limit_bytes: limit,
            congestion: config.congestion.controller(mtu_bytes),
            in_flight_bytes: 0,
            sent: VecDeque::new(),
            first_packet: 0,
            largest_acked: None,
            recovery_until: 0,
            retransmits_at_once: false,
            t3: None,
            heartbeat_at: None,
            probe: None,
            last_sent_at: Time::ZERO,
        }
    }

    /// Bytes that may be added to what is in flight.
    #[inline]
    pub(crate) fn window_bytes(&self) -> usize {
        let cwnd = self.congestion.cwnd_bytes();
        let limit = self.in_flight_limit_bytes.map_or(cwnd, |limit| limit.min(cwnd));
        limit.saturating_sub(self.in_flight_bytes)
    }

    /// Whether one more packet may leave. RFC 9260 §6.1 B lets the last packet overshoot the congestion
    /// window; the link's own limit is a wall.
    #[inline]
    pub(crate) fn may_send_packet(&self) -> bool {
        self.in_flight_bytes == 0
            || (self.in_flight_bytes < self.congestion.cwnd_bytes()
                && self
                    .in_flight_limit_bytes
                    .is_none_or(|limit| self.in_flight_bytes + self.mtu_bytes <= limit))
    }

    /// Whether a packet of retransmissions may leave, the first of which takes `chunk_bytes`. It stays within the
    /// congestion window (RFC 9260 §6.1 C).
    pub(crate) fn may_retransmit(&self, chunk_bytes: usize) -> bool {
        self.in_flight_bytes == 0
            || self.retransmits_at_once
            || (self.in_flight_bytes + chunk_bytes <= self.congestion.cwnd_bytes() && self.may_send_packet())
    }

    /// Nothing is in flight: the congestion window shrinks with every timeout's length that nothing was sent
    /// (RFC 9260 §7.2.1).
    pub(crate) fn adjust_idle(&mut self, now: Time) {
        let rto = self.rto.current();
        let mut idle = now.saturating_since(self.last_sent_at);
        for _ in 0..IDLE_STEPS_MAX {
            if idle < rto {
                break;
            }
            idle -= rto;
            self.congestion.on_idle();
        }
    }

    /// The number that the next packet gets.
    #[inline]
    pub(crate) fn next_packet(&self) -> u32 {
        self.first_packet.wrapping_add(self.sent.len() as u32)
    }

    pub(crate) fn sent_packet(&self, number: u32) -> Option<&SentPacket> {
        self.sent.get(number.wrapping_sub(self.first_packet) as usize)
    }

    /// Whether packets lost before the last reduction are still being repaired.
    pub(crate) fn in_recovery(&self) -> bool {
        self.largest_acked.is_none_or(|acked| after(self.recovery_until, acked.wrapping_add(1)))
    }

    pub(crate) fn record_acked_packet(&mut self, number: u32) {
        if self.largest_acked.is_none_or(|largest| after(number, largest)) {
            self.largest_acked = Some(number);
        }
    }

    /// Takes the oldest packet once it is far enough behind what was acknowledged.
    pub(crate) fn pop_settled(&mut self) -> Option<(u32, SentPacket)> {
        let largest = self.largest_acked?;
        if self.sent.is_empty() || after(self.first_packet.wrapping_add(REORDERING_PACKETS), largest) {
            return None;
        }
        let number = self.first_packet;
        self.first_packet = self.first_packet.wrapping_add(1);
        self.sent.pop_front().map(|packet| (number, packet))
    }

    /// Forgets every packet in flight, after a timeout.
    pub(crate) fn forget_sent(&mut self) -> VecDeque<SentPacket> {
        self.first_packet = self.next_packet();
        self.recovery_until = self.first_packet;
        std::mem::take(&mut self.sent)
    }

    pub(crate) fn statistics(&self) -> PathStatistics {
        PathStatistics {
            remote: self.remote,
            active: self.state == PathState::Active,
            mtu_bytes: self.mtu_bytes,
            cwnd_bytes: self.congestion.cwnd_bytes(),
            in_flight_bytes: self.in_flight_bytes,
            srtt: self.rto.srtt(),
            rto: self.rto.current(),
        }
    }
}

/// Serial comparison of packet numbers.
#[inline]
pub(crate) fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
