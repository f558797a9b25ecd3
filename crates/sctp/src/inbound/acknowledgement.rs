//! When a SACK is due (RFC 9260 §6.2), and the duplicates that it reports.

use std::time::Duration;

use sctp_wire::Tsn;

use crate::config::DUPLICATES_MAX;
use crate::time::Time;

/// Bytes of DATA that count as one packet for the decision when a SACK is due: a packet of Ethernet (RFC 9260 §6.2: a SACK at
/// least for every second packet). So one 64 KB packet on loopback does not wait for another.
const ACKED_PACKET_BYTES: usize = 1452;

/// Number of packets with data at the start that are acknowledged at once, so that a short association does not wait for a timer.
const QUICK_ACKS: u8 = 8;

/// Upper limit of the SACK delay, whatever the option says (RFC 9260 §6.2).
const SACK_DELAY_MAX: Duration = Duration::from_millis(500);

/// Upper limit of the delay of a SACK that reports a gap, if data arrives on several paths: the gap may be a loss after all.
const GAP_SACK_DELAY_MAX: Duration = Duration::from_millis(2);

/// The data since the last SACK, and when the next one is due.
#[derive(Debug)]
pub(super) struct Acknowledgement {
    /// Number of packets with data after which a SACK is due at once.
    sack_frequency: u32,
    /// Whether data arrives on several paths at once, so that a gap does not indicate a loss.
    multipath: bool,
    /// Whether no packet with DATA has been handled.
    is_untouched: bool,
    /// Number of packets with data that are still acknowledged at once.
    quick_acks: u8,
    /// Whether the current packet contains DATA.
    packet_has_data: bool,
    unacked_bytes: usize,
    unacked_packets: u32,
    duplicates: Vec<Tsn>,
    is_due: bool,
    /// When the delayed SACK leaves.
    delayed_until: Option<Time>,
}

impl Acknowledgement {
    pub(super) fn new(sack_frequency: u32) -> Self {
        Acknowledgement {
            sack_frequency,
            multipath: false,
            is_untouched: true,
            quick_acks: QUICK_ACKS,
            packet_has_data: false,
            unacked_bytes: 0,
            unacked_packets: 0,
            duplicates: Vec::new(),
            is_due: false,
            delayed_until: None,
        }
    }

    pub(super) fn set_sack_frequency(&mut self, packets: u32) {
        self.sack_frequency = packets;
    }

    pub(super) fn set_multipath(&mut self, multipath: bool) {
        self.multipath = multipath;
    }

    /// Returns whether no packet with DATA has been handled.
    pub(super) fn is_untouched(&self) -> bool {
        self.is_untouched
    }

    /// Handles the arrival of DATA chunks, whatever happens to them. `immediate`: one of them has the I bit.
    #[inline]
    pub(super) fn on_chunks(&mut self, immediate: bool) {
        self.packet_has_data = true;
        self.is_due |= immediate;
    }

    /// Handles chunks that were taken.
    #[inline]
    pub(super) fn on_taken(&mut self, payload_bytes: usize) {
        self.unacked_bytes += payload_bytes;
    }

    /// Handles a chunk that is not the next one, or that arrives while others are missing (RFC 9260 §6.7).
    #[inline]
    pub(super) fn on_out_of_order(&mut self) {
        self.is_due |= !self.multipath;
    }

    /// Handles a chunk that has arrived before. Duplicates beyond the limit are not reported.
    pub(super) fn on_duplicate(&mut self, tsn: Tsn) {
        self.is_due = true;
        if self.duplicates.len() < DUPLICATES_MAX {
            self.duplicates.push(tsn);
        }
    }

    /// Handles chunks that were dropped for lack of room.
    pub(super) fn on_dropped(&mut self) {
        self.is_due = true;
    }

    /// Requests a SACK in the next packet.
    pub(super) fn request(&mut self) {
        self.is_due = true;
    }

    /// Ends the handling of a packet: decides when to acknowledge it. Returns whether it contained DATA.
    #[inline]
    pub(super) fn end_packet(&mut self, now: Time, sack_delay: Duration, has_gap: bool) -> bool {
        if !std::mem::take(&mut self.packet_has_data) {
            return false;
        }
        self.is_untouched = false;
        self.unacked_packets += 1;
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            self.is_due = true;
        }
        // With several paths a gap does not indicate a loss: it is reported as often as data without one, or soon.
        let enough_bytes = ACKED_PACKET_BYTES.saturating_mul(self.sack_frequency as usize);
        self.is_due |= self.unacked_packets >= self.sack_frequency
            || self.unacked_bytes >= enough_bytes
            || (has_gap && !self.multipath);
        if !self.is_due {
            let delay_max = if has_gap { GAP_SACK_DELAY_MAX } else { SACK_DELAY_MAX };
            let until = now + sack_delay.min(delay_max);
            self.delayed_until = Some(self.delayed_until.map_or(until, |running| running.min(until)));
        }
        true
    }

    /// Returns whether a SACK must leave now.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Returns whether a SACK is due, or would acknowledge something.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.is_due || self.unacked_packets > 0
    }

    /// Returns when the delayed SACK leaves.
    pub(super) fn delayed_until(&self) -> Option<Time> {
        self.delayed_until
    }

    /// Handles the timer of the delayed SACK.
    pub(super) fn on_timer(&mut self) {
        self.delayed_until = None;
        self.is_due = true;
    }

    /// Returns the duplicates since the last SACK.
    pub(super) fn duplicates(&self) -> &[Tsn] {
        &self.duplicates
    }

    /// Handles a SACK that leaves, which covers everything so far.
    pub(super) fn on_sent(&mut self) {
        self.duplicates.clear();
        self.unacked_bytes = 0;
        self.unacked_packets = 0;
        self.is_due = false;
        self.delayed_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(200);

    /// Returns an association whose first packets have been acknowledged.
    fn under_way(multipath: bool) -> Acknowledgement {
        let mut acknowledgement = Acknowledgement::new(2);
        acknowledgement.set_multipath(multipath);
        for _ in 0..QUICK_ACKS {
            packet(&mut acknowledgement, 100, false);
            assert!(acknowledgement.is_due(), "a short association waits for no timer");
            acknowledgement.on_sent();
        }
        assert!(!acknowledgement.is_waiting() && !acknowledgement.is_untouched());
        acknowledgement
    }

    fn packet(acknowledgement: &mut Acknowledgement, payload_bytes: usize, has_gap: bool) {
        acknowledgement.on_chunks(false);
        if has_gap {
            acknowledgement.on_out_of_order();
        }
        acknowledgement.on_taken(payload_bytes);
        assert!(acknowledgement.end_packet(Time::ZERO, DELAY, has_gap));
    }

    #[test]
    fn every_second_packet_or_as_many_bytes_make_a_sack_due() {
        let mut acknowledgement = under_way(false);
        packet(&mut acknowledgement, 100, false);
        assert!(!acknowledgement.is_due() && acknowledgement.is_waiting());
        assert_eq!(acknowledgement.delayed_until(), Some(Time::ZERO + DELAY));
        packet(&mut acknowledgement, 100, false);
        assert!(acknowledgement.is_due());
        acknowledgement.on_sent();
        assert_eq!(acknowledgement.delayed_until(), None);
        packet(&mut acknowledgement, 2 * ACKED_PACKET_BYTES, false);
        assert!(acknowledgement.is_due(), "a packet on loopback counts as several");
    }

    #[test]
    fn a_packet_without_data_is_not_acknowledged() {
        let mut acknowledgement = under_way(false);
        assert!(!acknowledgement.end_packet(Time::ZERO, DELAY, true));
        assert!(!acknowledgement.is_waiting());
    }

    #[test]
    fn a_gap_is_reported_at_once_on_one_path_and_soon_on_several() {
        let mut acknowledgement = under_way(false);
        packet(&mut acknowledgement, 100, true);
        assert!(acknowledgement.is_due());
        let mut acknowledgement = under_way(true);
        packet(&mut acknowledgement, 100, true);
        assert!(!acknowledgement.is_due());
        assert_eq!(acknowledgement.delayed_until(), Some(Time::ZERO + GAP_SACK_DELAY_MAX));
    }

    #[test]
    fn a_gap_shortens_the_delay_of_data_before_it() {
        let mut acknowledgement = under_way(true);
        acknowledgement.set_sack_frequency(u32::MAX);
        packet(&mut acknowledgement, 100, false);
        assert_eq!(acknowledgement.delayed_until(), Some(Time::ZERO + DELAY));
        packet(&mut acknowledgement, 100, true);
        assert_eq!(acknowledgement.delayed_until(), Some(Time::ZERO + GAP_SACK_DELAY_MAX));
        packet(&mut acknowledgement, 100, false);
        assert_eq!(acknowledgement.delayed_until(), Some(Time::ZERO + GAP_SACK_DELAY_MAX));
    }

    #[test]
    fn duplicates_are_reported_up_to_a_limit() {
        let mut acknowledgement = under_way(true);
        for tsn in 0..2 * DUPLICATES_MAX as u32 {
            acknowledgement.on_duplicate(Tsn(tsn));
        }
        assert!(acknowledgement.is_due());
        assert_eq!(acknowledgement.duplicates().len(), DUPLICATES_MAX);
        acknowledgement.on_sent();
        assert!(acknowledgement.duplicates().is_empty());
    }
}
