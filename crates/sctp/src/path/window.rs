//! The limits for sending on a path: congestion window, loss recovery, bursts, pacing, and the limit of the link.

use std::net::SocketAddr;

use super::{Path, Paths, chunks_bytes, pacer};
use crate::config::{AssociationConfig, INITIAL_WINDOW_PACKETS_MAX};
use crate::congestion::{Pool, initial_window_bytes, rate_bytes_per_s};
use crate::packet_number::PacketNumber;
use crate::time::Time;

/// Number of steps after which an idle path is back at its initial window, however wide it was.
const IDLE_STEPS_MAX: usize = 32;

impl Path {
    /// Returns the limit of the bytes in flight: the congestion window, or that of PRR while a loss is repaired, and at most one
    /// burst above the bytes in flight at the last acknowledgement.
    #[inline]
    pub(crate) fn cwnd_bytes(&self) -> usize {
        let window_bytes = self.recovery.window_bytes().unwrap_or_else(|| self.congestion.cwnd_bytes());
        window_bytes.min(self.burst_ends_bytes)
    }

    /// Returns the window of the congestion controller, even while a loss is repaired.
    pub(crate) fn controller_window_bytes(&self) -> usize {
        self.congestion.cwnd_bytes()
    }

    /// Returns the number of bytes that may be added to those in flight.
    #[inline]
    pub(crate) fn room_bytes(&self) -> usize {
        let cwnd = self.cwnd_bytes();
        let limit = self.in_flight_limit_bytes.map_or(cwnd, |limit| limit.min(cwnd));
        limit.saturating_sub(self.flight.bytes())
    }

    /// Returns whether more chunks may leave. RFC 9260 §6.1 B lets the last packet overshoot the congestion window; while a loss
    /// is repaired, by half a packet at most, so that no more packets leave than PRR counts, full or nearly full. The link's own
    /// limit is never exceeded.
    #[inline]
    pub(crate) fn may_send_packet(&self) -> bool {
        let in_flight_bytes = self.flight.bytes();
        if in_flight_bytes == 0 || self.flight.probe_is_due() {
            return true;
        }
        let room_bytes =
            if self.recovery.window_bytes().is_some() { chunks_bytes(self.mtu_bytes) / 2 } else { 1 };
        in_flight_bytes + room_bytes <= self.cwnd_bytes()
            && self.pacer.is_open()
            && self.link_has_room(in_flight_bytes)
    }

    #[inline]
    fn link_has_room(&self, in_flight_bytes: usize) -> bool {
        self.in_flight_limit_bytes.is_none_or(|limit| in_flight_bytes + self.mtu_bytes <= limit)
    }

    /// Returns whether a packet of retransmissions may leave whose first chunk takes `chunk_bytes`. It stays within the
    /// congestion window (RFC 9260 §6.1 C).
    pub(crate) fn may_retransmit(&self, chunk_bytes: usize) -> bool {
        self.recovery.retransmits_at_once()
            || (self.may_send_packet()
                && (self.flight.is_empty()
                    || self.flight.probe_is_due()
                    || self.flight.bytes() + chunk_bytes <= self.cwnd_bytes()))
    }

    /// Returns how long the next packet may be. A tail loss probe is no longer than what any path takes.
    #[inline]
    pub(crate) fn packet_bytes_max(&self) -> usize {
        let probes = self.flight.probe_is_due();
        if probes { self.discovery.safe_bytes().min(self.mtu_bytes) } else { self.mtu_bytes }
    }

    /// Begins another burst after an acknowledgement (RFC 9260 §6.1 D).
    #[inline]
    pub(super) fn begin_burst(&mut self) {
        let burst_bytes = burst_bytes(self.settings.burst_packets_max, chunks_bytes(self.mtu_bytes));
        self.burst_ends_bytes = self.flight.bytes().saturating_add(burst_bytes);
    }

    /// Forgets what is known of congestion on the path.
    #[cold]
    pub(crate) fn restart_congestion(&mut self, config: &AssociationConfig) {
        let pmdcs_bytes = chunks_bytes(self.mtu_bytes);
        let cwnd_bytes = first_window_bytes(config, pmdcs_bytes, self.remote);
        self.congestion = config.coupling.controller(config.congestion, pmdcs_bytes, cwnd_bytes);
        self.recovery.reset(self.flight.next_packet());
        self.begin_burst();
    }

    /// Shrinks the congestion window of an idle path with every RTO in which nothing was sent (RFC 9260 §7.2.1).
    #[inline]
    pub(crate) fn before_sending(&mut self, now: Time) {
        if self.flight.is_empty() {
            self.adjust_idle(now);
        }
    }

    fn adjust_idle(&mut self, now: Time) {
        let rto = self.rto.current();
        let mut idle = now.saturating_since(self.flight.last_sent_at());
        for _ in 0..IDLE_STEPS_MAX {
            if idle < rto {
                break;
            }
            idle -= rto;
            self.congestion.on_idle();
        }
    }

    /// Returns how fast packets may leave. The link's own limit paces a path within this host.
    #[inline]
    pub(super) fn pacing_rate(&self) -> Option<u64> {
        match self.in_flight_limit_bytes {
            Some(_) => None,
            None => self.congestion.pacing_bytes_per_s(self.rto.srtt()),
        }
    }

    /// Opens the pacer if the next batch is due by now.
    #[inline]
    pub(crate) fn tick_pacer(&mut self, now: Time) {
        let rate = self.pacing_rate();
        self.pacer.tick(now, rate, self.mtu_bytes);
    }

    /// Returns when the pacer opens, if it holds packets back.
    #[inline]
    pub(crate) fn pacer_opens_at(&self) -> Option<Time> {
        self.pacer.opens_at()
    }

    /// Returns how many bytes the pacer lets leave together, if the path is paced.
    #[inline]
    pub(crate) fn batch_bytes(&self) -> Option<usize> {
        self.pacing_rate().map(|rate| pacer::batch_bytes(rate, self.mtu_bytes))
    }

    /// Records that no more packets are sent for now. `waits`: data waits, and only the path holds it back.
    #[inline]
    pub(crate) fn on_pause(&mut self, waits: bool) {
        let in_flight_bytes = self.flight.bytes();
        let window_full = in_flight_bytes >= self.cwnd_bytes() || !self.pacer.is_open();
        // A retransmission waits until all of it fits into the window (RFC 9260 §6.1 C), so the window holds it back
        // before it is full to the last byte.
        if waits && self.link_has_room(in_flight_bytes) {
            self.limited_until = self.flight.next_packet();
        } else if !window_full && self.link_has_room(in_flight_bytes) {
            self.delivery.note_app_limited(in_flight_bytes);
        }
    }

    /// Returns whether the window held others back when this packet left.
    #[inline]
    pub(super) fn was_limited(&self, packet: PacketNumber) -> bool {
        self.limited_until.is_after(packet)
    }

    /// Returns the rate at which one window leaves in each round trip, if the path carries data.
    fn rate_bytes_per_s(&self) -> Option<u64> {
        let srtt = self.rto.srtt().filter(|_| !self.flight.is_empty())?;
        Some(rate_bytes_per_s(self.congestion.cwnd_bytes(), srtt))
    }
}

/// Tells the controller of each path of an association its share among the paths that carry data.
pub(crate) fn couple(paths: &mut Paths) {
    let pool: Pool = paths.iter().filter_map(Path::rate_bytes_per_s).collect();
    for path in paths {
        if let Some(rate) = path.rate_bytes_per_s() {
            path.congestion.couple(&pool.share(rate));
        }
    }
}

/// Returns the congestion window of a path to `remote` before its first acknowledgement.
pub(super) fn first_window_bytes(
    config: &AssociationConfig,
    pmdcs_bytes: usize,
    remote: SocketAddr,
) -> usize {
    match config.initial_window_packets {
        Some(packets) => packets.clamp(1, INITIAL_WINDOW_PACKETS_MAX) as usize * pmdcs_bytes,
        None => initial_window_bytes(pmdcs_bytes, remote.ip().to_canonical().is_ipv6()),
    }
}

/// Returns how many bytes make a burst of `packets` packets (Max.Burst).
pub(super) fn burst_bytes(packets: Option<u32>, pmdcs_bytes: usize) -> usize {
    packets.map_or(usize::MAX, |packets| packets.max(1) as usize * pmdcs_bytes)
}
