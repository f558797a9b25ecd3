//! Acknowledgements and the receive window: when a SACK is due, and its contents.

use std::time::Duration;

use sctp_wire::chunk::{NR_SACK_HEADER_BYTES, NrSackBuilder, SACK_HEADER_BYTES, SackBuilder};
use smallvec::SmallVec;

use super::Inbound;
use crate::receive_buffer::Held;
use crate::time::Time;

/// Bytes of DATA that count as one packet for the decision when a SACK is due: a packet of Ethernet (RFC 9260 §6.2: a SACK at
/// least for every second packet). So one 64 KB packet on loopback does not wait for another.
const ACKED_PACKET_BYTES: usize = 1452;

/// Upper limit of the SACK delay, whatever the option says (RFC 9260 §6.2).
const SACK_DELAY_MAX: Duration = Duration::from_millis(500);

/// Upper limit of the delay of a SACK that reports a gap, if data arrives on several paths: the gap may be a loss after all.
const GAP_SACK_DELAY_MAX: Duration = Duration::from_millis(2);

/// Minimum increase of the advertised window, if half of the buffer is not less (RFC 1122 §4.2.3.3).
pub(super) const WINDOW_STEP_BYTES: usize = 1452;

impl Inbound {
    /// Ends the handling of a packet: decides when to acknowledge it (RFC 9260 §6.2). Returns whether the packet contained DATA.
    /// `rtt` is the round-trip time of its path.
    pub(crate) fn end_packet(&mut self, now: Time, sack_delay: Duration, rtt: Option<Duration>) -> bool {
        if !self.packet_had_data {
            return false;
        }
        self.buffer.tune(now, rtt);
        (self.packet_had_data, self.packet_had_refused_run) = (false, false);
        self.untouched = false;
        self.unacked_packets += 1;
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            self.ack_now = true;
        }
        let gap = !self.beyond.is_empty();
        // With several paths a gap does not indicate a loss: it is reported with every second packet, or soon.
        let enough_bytes = ACKED_PACKET_BYTES * self.sack_frequency as usize;
        if self.unacked_packets >= self.sack_frequency
            || self.unacked_bytes >= enough_bytes
            || (gap && !self.multipath)
        {
            self.ack_now = true;
        }
        if !self.ack_now && self.ack_at.is_none() {
            let delay_max = if gap { GAP_SACK_DELAY_MAX } else { SACK_DELAY_MAX };
            self.ack_at = Some(now + sack_delay.min(delay_max));
        }
        true
    }

    /// Records that the reader took `bytes`, and the charge of `charges` messages in addition. Returns whether a window update is
    /// due.
    #[inline]
    pub(crate) fn consumed(&mut self, bytes: usize, charges: usize) -> bool {
        let read = Held::of(bytes, charges);
        self.held.remove(read);
        self.charge.trim(self.held.total_bytes());
        self.buffer.on_taken(read.total_bytes());
        self.window_opened |= self.window_has_opened();
        self.window_opened
    }

    /// Keeps the credit of `bytes` that the reader has just taken.
    pub(crate) fn hold_window(&mut self, bytes: usize) {
        self.withheld_bytes += bytes;
        self.window_opened &= self.window_has_opened();
    }

    /// Releases credit that the reader has kept. Returns whether a window update is due.
    pub(crate) fn release_window(&mut self, bytes: usize) -> bool {
        self.withheld_bytes = self.withheld_bytes.saturating_sub(bytes);
        self.window_opened |= self.window_has_opened();
        self.window_opened
    }

    /// Returns whether the window has opened by a quarter of the buffer: window updates in such steps avoid the silly window
    /// syndrome (RFC 9260 §6.2).
    #[inline]
    pub(super) fn window_has_opened(&self) -> bool {
        let opened_bytes = self.advertised_bytes + self.buffer.bytes() / 4;
        (self.buffer_room_bytes() >= opened_bytes && self.pool_room_bytes() >= opened_bytes)
            || self.pool_window_has_opened()
    }

    pub(super) fn buffer_room_bytes(&self) -> usize {
        self.buffer.bytes().saturating_sub(self.taken_bytes())
    }

    pub(super) fn window_bytes(&self) -> usize {
        self.buffer_room_bytes().min(self.pool_room_bytes())
    }

    /// Returns the window to advertise. If the reader has made less room than one step, the advertised window does not grow:
    /// otherwise the peer would send ever smaller packets (RFC 9260 §6.2: the silly window syndrome).
    pub(super) fn window_to_advertise_bytes(&self) -> usize {
        let window = self.window_bytes();
        let step = WINDOW_STEP_BYTES.min(self.buffer.bytes() / 2);
        if window < self.advertised_bytes + step { window.min(self.advertised_bytes) } else { window }
    }

    /// Returns whether a SACK must leave now.
    #[inline]
    pub(crate) fn ack_due(&self) -> bool {
        self.ack_now || self.window_opened
    }

    /// Returns whether a SACK may be bundled with DATA.
    #[inline]
    pub(crate) fn ack_waits(&self) -> bool {
        self.ack_due() || self.unacked_packets > 0
    }

    pub(crate) fn ack_deadline(&self) -> Option<Time> {
        self.ack_at
    }

    pub(crate) fn ack_timer_expired(&mut self) {
        self.ack_at = None;
        self.ack_now = true;
    }

    /// Requests a SACK in the next packet.
    pub(crate) fn acknowledge_now(&mut self) {
        self.ack_now = true;
    }

    /// Returns whether the next SACK is an NR-SACK, which acknowledges the chunks beyond a gap for good.
    pub(super) fn promises(&self) -> bool {
        self.nr_sack && !self.beyond.is_empty()
    }

    /// Returns the minimum length of a SACK.
    pub(crate) fn sack_bytes_min(&self) -> usize {
        if self.promises() { NR_SACK_HEADER_BYTES } else { SACK_HEADER_BYTES }
    }

    /// Appends a SACK of at most `space` bytes (RFC 9260 §3.3.4) and counts everything as acknowledged.
    pub(crate) fn write_sack(&mut self, space: usize, out: &mut Vec<u8>) {
        let room = space.saturating_sub(self.sack_bytes_min()) / 4;
        // RFC 9260 §6.2: gaps come first, as many as fit; duplicates take the rest.
        let gaps = self.gap_blocks(room);
        let duplicates = &self.duplicates[..self.duplicates.len().min(room - gaps.len())];
        let cum_tsn = self.cumulative_tsn();
        let window_bytes = self.window_to_advertise_bytes();
        let a_rwnd = u32::try_from(window_bytes).unwrap_or(u32::MAX);
        if self.promises() {
            self.promised = self.beyond.iter().next_back().map_or(self.promised, |last| last.end - 1);
            NrSackBuilder { cum_tsn, a_rwnd, nr_gap_blocks: &gaps, duplicates }.write(out);
        } else {
            SackBuilder { cum_tsn, a_rwnd, gap_blocks: &gaps, duplicates }.write(out);
        }
        self.duplicates.clear();
        self.advertised_bytes = window_bytes;
        self.unacked_bytes = 0;
        self.unacked_packets = 0;
        self.ack_now = false;
        self.window_opened = false;
        self.ack_at = None;
    }

    /// Returns at most `room` gap blocks. A peer keeps the chunks of earlier NR-SACKs as acknowledged, so if not all gaps fit,
    /// the blocks report the gaps that change: the first ones, which close, and the last ones, where new data arrives.
    pub(super) fn gap_blocks(&self, room: usize) -> SmallVec<[(u16, u16); 16]> {
        let ranges = self.beyond.range_count();
        let left_out = ranges.saturating_sub(room);
        let low = if self.promises() && left_out > 0 { room / 2 } else { room };
        let blocks = self.beyond.iter().take(low).chain(self.beyond.iter().skip(low + left_out));
        // All recorded TSNs are within the range of these 16-bit offsets.
        let offset = |tsn: u64| u16::try_from(tsn - self.cumulative).unwrap_or(u16::MAX);
        blocks.map(|range| (offset(range.start), offset(range.end - 1))).take(room).collect()
    }
}
