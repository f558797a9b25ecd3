//! The contents of a SACK or an NR-SACK (RFC 9260 §3.3.4).

use sctp_wire::chunk::{NR_SACK_HEADER_BYTES, NrSackBuilder, SACK_HEADER_BYTES, SackBuilder};
use smallvec::SmallVec;

use super::Inbound;

impl Inbound {
    /// Returns whether the next SACK is an NR-SACK, which acknowledges the chunks beyond a gap for good.
    fn promises(&self) -> bool {
        self.nr_sack && !self.beyond.is_empty()
    }

    /// Returns the minimum length of a SACK.
    pub(crate) fn sack_bytes_min(&self) -> usize {
        if self.promises() { NR_SACK_HEADER_BYTES } else { SACK_HEADER_BYTES }
    }

    /// Appends a SACK of at most `space` bytes and counts everything as acknowledged.
    pub(crate) fn write_sack(&mut self, space: usize, out: &mut Vec<u8>) {
        let room = space.saturating_sub(self.sack_bytes_min()) / 4;
        // RFC 9260 §6.2: gaps come first, as many as fit; duplicates take the rest.
        let gaps = self.gap_blocks(room);
        let duplicates = self.acknowledgement.duplicates();
        let duplicates = &duplicates[..duplicates.len().min(room - gaps.len())];
        let cum_tsn = self.cumulative_tsn();
        let window_bytes = self.window_to_advertise_bytes();
        let a_rwnd = u32::try_from(window_bytes).unwrap_or(u32::MAX);
        if self.promises() {
            self.promised = self.beyond.iter().next_back().map_or(self.promised, |last| last.end - 1);
            NrSackBuilder { cum_tsn, a_rwnd, nr_gap_blocks: &gaps, duplicates }.write(out);
        } else {
            SackBuilder { cum_tsn, a_rwnd, gap_blocks: &gaps, duplicates }.write(out);
        }
        self.window.on_advertised(window_bytes);
        self.acknowledgement.on_sent();
    }

    /// Returns at most `room` gap blocks. A peer keeps the chunks of earlier NR-SACKs as acknowledged, so if not all gaps fit,
    /// the blocks report the gaps that change: the first ones, which close, and the last ones, where new data arrives.
    fn gap_blocks(&self, room: usize) -> SmallVec<[(u16, u16); 16]> {
        let ranges = self.beyond.range_count();
        let left_out = ranges.saturating_sub(room);
        let low = if self.promises() && left_out > 0 { room / 2 } else { room };
        let blocks = self.beyond.iter().take(low).chain(self.beyond.iter().skip(low + left_out));
        // All recorded TSNs are within the range of these 16-bit offsets.
        let offset = |tsn: u64| u16::try_from(tsn - self.cumulative).unwrap_or(u16::MAX);
        blocks.map(|range| (offset(range.start), offset(range.end - 1))).take(room).collect()
    }
}
