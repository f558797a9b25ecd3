//! Handles SACKs that acknowledge packets of a path.

use std::ops::Range;
use std::time::Duration;

use super::{Path, Prr, chunks_bytes};
use crate::config::AssociationConfig;
use crate::congestion::{Acked, RateSample, Signal};
use crate::packet_number::PacketNumber;
use crate::time::Time;

/// Packets with chunks that a SACK acknowledged for the first time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckedPackets {
    /// The newest and the oldest of them, in the order of sending.
    pub(crate) newest: PacketNumber,
    pub(crate) oldest: PacketNumber,
    /// Bytes of those chunks.
    pub(crate) bytes: usize,
    /// Bytes in flight before the SACK.
    pub(crate) in_flight_before_bytes: usize,
    /// Whether the SACK advanced the cumulative TSN.
    pub(crate) advanced: bool,
}

/// Measures of the path from the newest packet that a SACK acknowledged.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sample {
    rtt: Option<Duration>,
    rate: Option<RateSample>,
}

impl Path {
    /// Handles the peer's report that it has received `tsn` twice.
    pub(crate) fn on_duplicate(&mut self, tsn: u64) {
        self.flight.on_duplicate(tsn);
    }

    /// Measures the path by packets that a SACK acknowledged, before losses are looked for.
    #[inline]
    pub(crate) fn on_packets_acked(
        &mut self,
        now: Time,
        acked: &AckedPackets,
        config: &AssociationConfig,
    ) -> Sample {
        self.reachability.on_sign_of_life();
        let sample = self.measure(now, acked, config);
        let oldest = self.flight.packet(acked.oldest);
        if self.rack.newest().is_some_and(|before| before.is_after(acked.oldest))
            && oldest.is_some_and(|packet| packet.first_transmission)
        {
            self.rack.note_reordering();
        }
        if let Some(newest) = self.flight.packet(acked.newest) {
            let rtt = now.saturating_since(newest.sent_at);
            self.rack.on_acked(acked.newest, rtt, !newest.first_transmission);
        }
        for number in [acked.oldest, acked.newest] {
            if let Some(packet) = self.flight.packet(number) {
                self.discovery.on_arrival(number, packet.long);
            }
        }
        sample
    }

    /// Takes round-trip time and delivery rate of the newest packet. If something in it was sent twice, the round trip is
    /// ambiguous (RFC 9260 §6.3.1 C5).
    #[inline]
    fn measure(&mut self, now: Time, acked: &AckedPackets, config: &AssociationConfig) -> Sample {
        self.delivery.on_acked(now, acked.bytes);
        let Some(sent) = self.flight.packet(acked.newest) else { return Sample::default() };
        let rtt = sent.first_transmission.then(|| now.saturating_since(sent.sent_at));
        if let Some(rtt) = rtt {
            self.rto.on_answer(now, sent.sent_at, &config.rto);
            self.rack.measure(now, rtt);
        }
        let rate = self.delivery.sample(&sent.mark, sent.sent_at, self.rack.min_rtt());
        Sample { rtt, rate }
    }

    /// Tells the congestion controller what a SACK acknowledged, after `lost_bytes` were found lost. `first_tsn` is the first
    /// outstanding TSN, `None` if other paths hold it back, and `next_tsn` that of the next new chunk.
    #[inline]
    pub(crate) fn update_window(
        &mut self,
        now: Time,
        acked: &AckedPackets,
        sample: Sample,
        lost_bytes: usize,
        first_tsn: Option<u64>,
        next_tsn: u64,
    ) {
        let in_flight_before_bytes = acked.in_flight_before_bytes;
        if self.flight.probe_repaired_loss(acked.newest) && !self.holds_window() {
            self.enter_recovery(now, Signal::Loss, in_flight_before_bytes, next_tsn, &[]);
        }
        if self.recovery.on_arrival(self.rack.newest(), first_tsn) {
            self.rack.on_recovered();
            self.congestion.on_recovered(now);
        }
        self.update_prr(acked.bytes, acked.advanced && lost_bytes == 0);
        self.limited_until.follow(acked.newest);
        let acked = Acked {
            bytes: acked.bytes,
            in_flight_before_bytes,
            in_flight_bytes: self.flight.bytes(),
            lost_bytes,
            cumulative: acked.advanced,
            holds_window: self.holds_window(),
            window_limited: self.was_limited(acked.newest),
            rtt: sample.rtt,
            srtt: self.rto.srtt(),
            min_rtt: self.rack.min_rtt(),
            newest_packet: acked.newest,
            next_packet: self.flight.next_packet(),
            rate: sample.rate,
        };
        self.congestion.on_acked(now, &acked);
    }

    /// Tells PRR what a SACK delivered. `progress`: the cumulative TSN advanced, and nothing more was lost.
    #[inline]
    pub(super) fn update_prr(&mut self, delivered_bytes: usize, progress: bool) {
        let (in_flight_bytes, ssthresh_bytes) = (self.flight.bytes(), self.congestion.ssthresh_bytes());
        let pmdcs_bytes = chunks_bytes(self.mtu_bytes);
        self.recovery.on_acked(delivered_bytes, in_flight_bytes, ssthresh_bytes, progress, pmdcs_bytes);
    }

    /// Reduces the window, once for everything in flight. `flight_bytes` was in flight before the loss was found,
    /// `next_tsn` is the TSN of the next new chunk. `lost` are the TSNs that were declared lost, if any were.
    pub(super) fn enter_recovery(
        &mut self,
        now: Time,
        signal: Signal,
        flight_bytes: usize,
        next_tsn: u64,
        lost: &[Range<u64>],
    ) {
        self.congestion.on_congestion(now, signal, flight_bytes);
        let prr = self
            .congestion
            .reduces_proportionally()
            .then(|| Prr::new(flight_bytes, self.flight.bytes(), chunks_bytes(self.mtu_bytes)));
        self.recovery.enter(self.flight.next_packet(), next_tsn, lost, prr);
    }

    /// Ends the handling of a SACK: another burst may leave, and T3 is updated. `advanced`: the SACK acknowledged the
    /// earliest chunk on this path.
    pub(crate) fn end_sack(&mut self, now: Time, advanced: bool) {
        self.begin_burst();
        self.flight.on_sack(advanced, now + self.rto.current());
    }
}
