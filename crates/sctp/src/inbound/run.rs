//! Runs, the usual packets: whole messages of one stream in sequence, which are handled together.

use bytes::Bytes;
use sctp_wire::chunk::{DATA_HEADER_BYTES, Data, DataFlags};

use super::{Inbound, ReceiveContext};
use crate::config::RECEIVED_OVERHEAD_BYTES;
use crate::event::Host;
use crate::receive_buffer::Held;
use crate::received_run::ReceivedRun;
use crate::statistics::Statistics;
use crate::tsn;

/// Minimum number of messages of a run.
const RUN_MESSAGES_MIN: usize = 2;

/// The chunks at the front of a packet that form a run.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// Length of the chunks with padding.
    wire_bytes: usize,
    messages: usize,
    payload_bytes: usize,
    /// Whether a chunk has the I bit.
    immediate: bool,
}

impl Found {
    /// Returns the charge of a run in addition to its user data, in overheads of single messages: one entry of a queue, and the
    /// headers and the padding, which stay in memory with it.
    fn charges(&self) -> usize {
        1 + (self.wire_bytes - self.payload_bytes).div_ceil(RECEIVED_OVERHEAD_BYTES)
    }
}

impl Inbound {
    /// Takes the DATA chunks at the front of `chunks`, a part of `datagram`, as one run if they are whole ordered messages of one
    /// stream in sequence, no earlier message is missing, and there is room for all. Returns the number of bytes; 0 if the first
    /// chunk must be handled alone.
    #[inline]
    pub(crate) fn take_run<H: Host + ?Sized>(
        &mut self,
        cx: &mut ReceiveContext<'_, H>,
        chunks: &[u8],
        datagram: &Bytes,
    ) -> usize {
        let is_plain = self.beyond.is_empty()
            && self.waiting.is_empty()
            && self.open_record.is_none()
            && !self.reassembly.is_open();
        let is_data = chunks.first() == Some(&Data::KIND);
        if !is_plain || !is_data || self.packet_had_refused_run || !cx.host.takes_runs(cx.id) {
            return 0;
        }
        let Some(&[s0, s1]) = chunks.get(8..10).and_then(<[u8]>::first_chunk) else { return 0 };
        let stream = u16::from_be_bytes([s0, s1]);
        if stream >= self.streams {
            return 0;
        }
        let found = self.find_run(chunks, stream);
        if found.messages < RUN_MESSAGES_MIN {
            return 0;
        }
        let charges = found.charges();
        if !self.reserve_stream(stream) || !self.charge_for_run(Held::of(found.payload_bytes, charges)) {
            // The chunks are handled one by one; a search at each of them would cost the square of their number.
            self.packet_had_refused_run = true;
            return 0;
        }
        self.note_run(stream, &found, charges, cx.statistics);
        let run = ReceivedRun {
            bytes: datagram.slice_ref(&chunks[..found.wire_bytes]),
            messages: found.messages,
            payload_bytes: found.payload_bytes,
            charges,
        };
        cx.host.run(cx.id, run);
        found.wire_bytes
    }

    /// Finds the run at the front of `chunks`. Reads each header once.
    #[inline]
    fn find_run(&mut self, chunks: &[u8], stream: u16) -> Found {
        let first_ssn = self.next_ssn.get(stream);
        let first_tsn = tsn::wrap(self.cumulative + 1).0;
        let mut found = Found::default();
        while let Some(header) = chunks.get(found.wire_bytes..).and_then(<[u8]>::first_chunk) {
            let &[kind, flags, l0, l1, t0, t1, t2, t3, s0, s1, n0, n1]: &[u8; 12] = header;
            let length = usize::from(u16::from_be_bytes([l0, l1]));
            let flags = DataFlags::from_bits(flags);
            let is_next = kind == Data::KIND
                && DataFlags { immediate: false, ..flags } == DataFlags::WHOLE
                && u32::from_be_bytes([t0, t1, t2, t3]) == first_tsn.wrapping_add(found.messages as u32)
                && u16::from_be_bytes([s0, s1]) == stream
                && u16::from_be_bytes([n0, n1]) == first_ssn.wrapping_add(found.messages as u16);
            if !is_next || length <= DATA_HEADER_BYTES || found.wire_bytes + length > chunks.len() {
                break;
            }
            found.wire_bytes = (found.wire_bytes + length.next_multiple_of(4)).min(chunks.len());
            found.messages += 1;
            found.payload_bytes += length - DATA_HEADER_BYTES;
            found.immediate |= flags.immediate;
        }
        found
    }

    /// Takes memory from the pool for a run, if necessary. Returns whether buffer and pool have room for it.
    #[inline]
    fn charge_for_run(&mut self, more: Held) -> bool {
        let mut held = self.held;
        held.add(more);
        !self.is_full_with(held) && self.charge_in_order(held.total_bytes())
    }

    #[inline]
    fn note_run(&mut self, stream: u16, found: &Found, charges: usize, statistics: &mut Statistics) {
        self.acknowledgement.on_chunks(found.immediate);
        self.cumulative += found.messages as u64;
        let next = self.next_ssn.get_mut(stream);
        *next = next.wrapping_add(found.messages as u16);
        self.acknowledgement.on_taken(found.payload_bytes);
        self.window.on_taken(found.payload_bytes);
        self.held.add(Held::of(found.payload_bytes, charges));
        statistics.data_chunks_received += found.messages as u64;
        statistics.messages_received += found.messages as u64;
        statistics.bytes_received += found.payload_bytes as u64;
    }
}
