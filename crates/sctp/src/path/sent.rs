//! Handles packets with DATA chunks that are sent on a path.

use super::{Path, SentPacket};
use crate::config::AssociationConfig;
use crate::time::Time;
use crate::trace::Probe;
use crate::tsn::TsnRanges;

use super::tail_loss_probe::{Expired, ProbeTime};

/// The DATA chunks of a packet that leaves.
#[derive(Debug)]
pub(crate) struct SentData {
    pub(crate) tsns: TsnRanges,
    /// Bytes of chunks that were not in flight before. A tail loss probe may repeat chunks that are.
    pub(crate) bytes: usize,
    pub(crate) retransmitted_chunks: u64,
    /// Whether the packet asks for an immediate SACK.
    pub(crate) asks_sack: bool,
    /// Whether the packet retransmits the first outstanding chunk.
    pub(crate) repeats_first: bool,
}

impl Path {
    /// Adds chunks of `bytes` to the flight. Only `InFlight::change` calls this, as it changes the state of their run.
    #[inline]
    pub(crate) fn enter_flight(&mut self, bytes: usize) {
        self.flight.enter(bytes);
    }

    /// Removes chunks of `bytes` from the flight. Only `InFlight::change` calls this, as it changes the state of their run.
    #[inline]
    pub(crate) fn leave_flight(&mut self, bytes: usize) {
        self.flight.leave(bytes);
    }

    /// Handles a packet that leaves, after its chunks have entered the flight.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time, data: SentData) {
        let first_transmission = data.retransmitted_chunks == 0;
        if self.flight.probe_is_due() {
            self.counts.tail_probes += 1;
            self.notes.probe(now, Probe::TailLoss);
        }
        self.counts.data_chunks_retransmitted += data.retransmitted_chunks;
        let in_flight_bytes = self.flight.bytes();
        let mark = self.delivery.on_sent(now, in_flight_bytes, in_flight_bytes == data.bytes);
        self.congestion.on_sent(now, data.bytes, in_flight_bytes, mark.app_limited);
        let long = self.discovery.is_long(data.bytes);
        let packet = SentPacket { sent_at: now, tsns: data.tsns, first_transmission, long, mark };
        self.flight.on_sent(packet, data.asks_sack);
        self.recovery.on_sent(data.bytes, first_transmission);
        let rate = self.pacing_rate();
        self.pacer.on_sent(now, data.bytes, rate, self.mtu_bytes);
        let t3_at = now + self.rto.current();
        // RFC 9260 §6.1: restarted if the earliest chunk is retransmitted.
        match data.repeats_first {
            true => self.flight.restart_t3(t3_at),
            false => self.flight.start_t3(t3_at),
        }
    }

    /// Counts a sent packet, with DATA or without.
    #[inline]
    pub(crate) fn on_packet_sent(&mut self) {
        self.counts.packets_sent += 1;
    }

    /// Returns whether a tail loss probe may leave now, whatever the window is.
    #[inline]
    pub(crate) fn tail_loss_probe_is_due(&self) -> bool {
        self.flight.probe_is_due()
    }

    /// Plans a tail loss probe for the packets in flight.
    #[inline]
    pub(crate) fn plan_tail_loss_probe(&mut self, now: Time, config: &AssociationConfig) {
        if !config.tail_loss_probes {
            return self.flight.cancel_probe();
        }
        let (rto, mtu_bytes, sack_delay) = (&self.rto, self.mtu_bytes, config.sack_delay);
        self.flight.plan_probe(now, |flight| ProbeTime {
            last_sent_at: flight.last_sent_at(),
            srtt: rto.srtt(),
            longest: rto.unbounded(),
            sack_delay: if flight.sack_may_be_delayed(mtu_bytes) { sack_delay } else { Default::default() },
        });
    }

    pub(crate) fn cancel_tail_loss_probe(&mut self) {
        self.flight.cancel_probe();
    }

    /// Handles the timer of the tail loss probe.
    pub(crate) fn on_tail_loss_probe_timer(&mut self) -> Expired {
        self.flight.on_probe_timer(self.recovery.follows_timeout())
    }
}
