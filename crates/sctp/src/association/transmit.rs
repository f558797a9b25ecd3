//! Builds packets: control chunks, a SACK, DATA (RFC 9260 §6.10).

use rand_chacha::ChaCha12Rng;
use sctp_message::PathId;
use sctp_wire::chunk::Pad;
use sctp_wire::packet::{self, HEADER_BYTES};

use super::control::Control;
use super::{Association, BatchRules, State};
use crate::outbound::{Filled, Packet};
use crate::time::Time;
use crate::transmit::{Transmit, TransmitBuffer};

/// A packet is padded to the length of its batch if the padding is at most this fraction of it; otherwise the batch ends with the
/// packet.
const PADDING_SHARE_MAX: usize = 16;

/// A batch of packets for one path.
#[derive(Debug, Default)]
struct BuiltBatch {
    /// Length of each packet but the last.
    segment_bytes: usize,
    has_data: bool,
    has_retransmissions: bool,
}

impl BuiltBatch {
    /// Adds a packet.
    fn add(&mut self, packet_bytes: usize, filled: &Filled) {
        if self.segment_bytes == 0 {
            self.segment_bytes = packet_bytes;
        }
        self.has_data |= filled.number.is_some();
        self.has_retransmissions |= filled.retransmitted_chunks > 0;
    }
}

/// The path of a batch.
#[derive(Clone, Copy)]
struct BatchPath {
    id: PathId,
    /// Whether the packets may have data.
    takes_data: bool,
}

impl Association {
    /// Builds one batch of packets for one path, if anything may be sent.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        rules: &BatchRules,
        random: &mut ChaCha12Rng,
        buffer: &mut TransmitBuffer,
    ) -> Option<Transmit> {
        if let Some(answer) = self.probe_answers.pop() {
            self.statistics.packets_sent += 1;
            self.statistics.control_chunks_sent += 1;
            let path = self.paths.to(answer.remote.ip());
            let is_answering = path.is_some_and(|path_id| self.paths[path_id].is_answering());
            return Some(Transmit { is_answering, ..answer.put_into(buffer) });
        }
        buffer.clear();
        self.tick_pacers(now);
        let data_path = self.next_data_path();
        let Some(path_id) = self.batch_path(data_path) else {
            return self.poll_mtu_probe(now, rules, random, buffer);
        };
        let probes_tail = self.paths[path_id].tail_loss_probe_is_due();
        let path = BatchPath { id: path_id, takes_data: path_id == data_path };
        let batch = self.build_batch(now, path, rules, buffer);
        if buffer.total_bytes() == 0 {
            return None;
        }
        if path_id == data_path && (self.may_carry_data() || !self.is_set_up()) {
            self.note_batch(now, path_id);
        }
        if batch.has_data {
            self.note_packet_length(now, path_id, batch.segment_bytes);
        }
        let path = &self.paths[path_id];
        Some(Transmit {
            // RFC 3168 §6.1.5: routers must not mark a retransmission.
            ecn_capable: batch.has_data && !batch.has_retransmissions && self.ecn.is_negotiated(),
            dscp: self.dscp(path_id),
            remote: path.remote(),
            local: path.local(),
            may_fragment: probes_tail || path.may_fragment(batch.segment_bytes),
            // The addresses of a connect count as confirmed from the beginning (RFC 9260 §5.4).
            is_answering: path.is_answering() && !matches!(self.state, State::CookieWait(_)),
            segment_bytes: batch.segment_bytes,
            total_bytes: buffer.total_bytes(),
        })
    }

    /// Builds the packets of a batch for a path, with data if permitted. All have the length of the first, which the last may
    /// fall short of.
    fn build_batch(
        &mut self,
        now: Time,
        path: BatchPath,
        rules: &BatchRules,
        buffer: &mut TransmitBuffer,
    ) -> BuiltBatch {
        let (path_id, wanted_path) = (path.id, self.outbound.wanted_path());
        let mut limit = self.paths[path_id].packet_bytes_max();
        let mut batch = BuiltBatch::default();
        for packet_number in 0..rules.limits.segments_max.max(1) {
            if packet_number > 0 && buffer.total_bytes() + limit > rules.limits.bytes_max {
                break;
            }
            buffer.begin_packet();
            let (filled, alone) = self.build_packet(now, path, limit, buffer);
            let bytes = buffer.packet_bytes();
            if bytes <= HEADER_BYTES {
                buffer.drop_packet();
                break;
            }
            let more = !alone
                && self.may_carry_data()
                && self.outbound.wanted_path() == wanted_path
                && self.outbound.may_send(&self.paths[path_id]);
            // Padding serves the next packet of the batch.
            let has_next = packet_number + 1 < rules.limits.segments_max
                && buffer.total_bytes() - bytes + 2 * limit <= rules.limits.bytes_max;
            let padded = more && has_next && self.peer.skips_pad() && pad_packet(buffer, limit);
            buffer.end_packet(rules.checksum);
            self.count_packet(now, path_id, &filled, buffer);
            batch.add(buffer.packet_bytes(), &filled);
            // A packet that exceeds the path MTU is alone in its batch.
            if !more || bytes > limit || (bytes < limit && !padded) {
                break;
            }
            limit = batch.segment_bytes;
        }
        batch
    }

    /// Counts the last packet in `buffer`, and traces it if the association is traced.
    #[inline]
    fn count_packet(&mut self, now: Time, path_id: PathId, filled: &Filled, buffer: &TransmitBuffer) {
        self.statistics.packets_sent += 1;
        self.paths[path_id].on_packet_sent();
        if let Some(tracer) = &mut self.trace {
            let (number, again) = (filled.number, filled.retransmitted_chunks);
            tracer.packet_sent(now, path_id.index(), number, again, buffer.last_packet());
        }
    }

    /// Returns the path of the next batch; `None` if neither a control chunk nor data nor a SACK is due. New data takes
    /// `data_path`.
    fn batch_path(&self, data_path: PathId) -> Option<PathId> {
        let with_data = self.may_carry_data() && self.outbound.may_send(&self.paths[data_path]);
        match self.control.next() {
            Some(control) => Some(control.path().unwrap_or(data_path)),
            None if with_data => Some(data_path),
            None if self.inbound.ack_due() => Some(self.sack_path()),
            None => None,
        }
    }

    /// Opens the pacers of the paths that may carry data, if they are due.
    fn tick_pacers(&mut self, now: Time) {
        if self.outbound.is_multipath() {
            self.paths.iter_mut().filter(|path| path.takes_data()).for_each(|path| path.tick_pacer(now));
        } else {
            let data_path = self.next_data_path();
            self.paths[data_path].tick_pacer(now);
        }
    }

    /// Handles a batch that was sent: records what holds the next one back, and plans its tail loss probe.
    fn note_batch(&mut self, now: Time, path_id: PathId) {
        let path = &mut self.paths[path_id];
        if !self.outbound.may_send(path) {
            path.on_pause(self.outbound.waits_for(path));
        }
        path.plan_tail_loss_probe(now, &self.config);
    }

    /// Builds one packet for a path, with data if permitted. Returns its data, and whether it must be the only packet: it
    /// contains an INIT, or a COOKIE ECHO, after which nothing is sent until the peer has answered (RFC 9260 §5.1 C).
    fn build_packet(
        &mut self,
        now: Time,
        path: BatchPath,
        limit: usize,
        buffer: &mut TransmitBuffer,
    ) -> (Filled, bool) {
        packet::write_header(&self.identity.header(), buffer.out());
        let path_id = path.id;
        let with_data =
            path.takes_data && self.may_carry_data() && self.outbound.may_send(&self.paths[path_id]);
        if self.write_control(path_id, limit, buffer) {
            return (Filled::default(), true);
        }
        self.write_sack(with_data, limit, buffer);
        let filled = if with_data { self.write_data(now, path_id, limit, buffer) } else { Filled::default() };
        (filled, matches!(self.state, State::CookieEchoed { .. }))
    }

    /// Writes the control chunks in front of the queue that take this path, as many as fit. Returns whether the packet is
    /// complete: an INIT is alone in its packet.
    fn write_control(&mut self, path_id: PathId, limit: usize, buffer: &mut TransmitBuffer) -> bool {
        let init = self.control.next().is_some_and(Control::is_init);
        while let Some(control) = self.control.next() {
            let alone = buffer.is_first_packet() && buffer.packet_bytes() == HEADER_BYTES;
            let fits = alone || buffer.packet_bytes() + control.bytes().len() <= limit;
            let here = control.path().is_none_or(|p| p == path_id) && control.is_init() == init;
            if !fits || !here {
                break;
            }
            buffer.out().extend_from_slice(control.bytes());
            self.control.pop();
            self.statistics.control_chunks_sent += 1;
            if init {
                return true;
            }
        }
        false
    }

    /// Writes a SACK if one is due, or waits and has company: data (`with_data`) or a control chunk. A report of congestion marks
    /// goes with it.
    fn write_sack(&mut self, with_data: bool, limit: usize, buffer: &mut TransmitBuffer) {
        let Some(inbound) = self.inbound.as_mut() else { return };
        let rides = inbound.ack_waits() && (with_data || buffer.packet_bytes() > HEADER_BYTES);
        let space = limit.saturating_sub(buffer.packet_bytes());
        let least = inbound.sack_bytes_min();
        if !(inbound.ack_due() || rides) || space < least {
            return;
        }
        if let Some(echo) = self.ecn.echo().filter(|echo| space >= least + echo.wire_bytes()) {
            echo.write(buffer.out());
            self.statistics.control_chunks_sent += 1;
        }
        let space = limit.saturating_sub(buffer.packet_bytes());
        inbound.write_sack(space, buffer.out());
        self.statistics.sacks_sent += 1;
        self.statistics.control_chunks_sent += 1;
    }

    /// Fills the rest of the packet with DATA chunks.
    fn write_data(
        &mut self,
        now: Time,
        path_id: PathId,
        limit_bytes: usize,
        buffer: &mut TransmitBuffer,
    ) -> Filled {
        let payload_bytes_max = self.fragmentation_point_bytes();
        let mut packet = Packet { limit_bytes, payload_bytes_max, buffer };
        let filled = self.outbound.fill_packet(now, &mut self.paths[path_id], &mut packet);
        self.count_data(&filled);
        filled
    }

    fn count_data(&mut self, filled: &Filled) {
        let statistics = &mut self.statistics;
        statistics.data_chunks_sent += filled.new_chunks;
        statistics.unordered_chunks_sent += filled.unordered_chunks;
        statistics.messages_fragmented += filled.fragmented_messages;
        statistics.data_chunks_retransmitted += filled.retransmitted_chunks;
        statistics.tail_probes += u64::from(filled.tail_loss_probe);
    }
}

/// Pads a packet to `limit` bytes if it is shorter and the padding is small. Returns whether it did.
fn pad_packet(buffer: &mut TransmitBuffer, limit: usize) -> bool {
    let bytes = buffer.packet_bytes();
    let padded = bytes < limit && (limit - bytes) * PADDING_SHARE_MAX <= limit;
    if padded && let Some(pad) = Pad::filling(limit - bytes) {
        pad.write(buffer.out());
    }
    padded
}
