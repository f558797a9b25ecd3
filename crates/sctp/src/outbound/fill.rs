//! Fills packets with DATA chunks: first with lost ones, then with new ones (RFC 9260 §6.1, §6.10).

use std::time::Duration;

use sctp_wire::chunk::{DATA_HEADER_BYTES, Data};
use sctp_wire::packet::HEADER_BYTES;
use sctp_wire::{Ppid, Ssn, StreamId};

use super::{Chunk, OUTSTANDING_CHUNKS_MAX, Outbound, wire_bytes};
use crate::path::{PacketTsns, Path, SentData};
use crate::time::Time;
use crate::transmit::TransmitBuffer;
use crate::tsn;

/// The end of a packet is filled with a fragment of the next message if at least this much of it fits.
const FRAGMENT_BYTES_MIN: usize = 64;

/// The packet that is being built.
pub(crate) struct Packet<'a> {
    pub(crate) path_id: usize,
    pub(crate) limit_bytes: usize,
    /// Largest payload of a new chunk.
    pub(crate) payload_bytes_max: usize,
    pub(crate) buffer: &'a mut TransmitBuffer,
}

/// The DATA chunks that a packet was filled with.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Number of the packet on its path; `None` if it has no DATA.
    pub(crate) number: Option<u32>,
    pub(crate) new_chunks: u64,
    /// Number of new chunks that are unordered.
    pub(crate) unordered_chunks: u64,
    /// Messages whose first fragment is among the new chunks.
    pub(crate) fragmented_messages: u64,
    pub(crate) retransmitted_chunks: u64,
    /// The packet is a tail loss probe.
    pub(crate) tail_loss_probe: bool,
}

/// The DATA chunks of the packet that is being built.
struct Contents {
    number: u32,
    /// The path that its new chunks name. Chunks that name another path wait for another packet.
    wanted_path: Option<usize>,
    tsns: PacketTsns,
    /// Bytes of chunks that were not in flight before.
    bytes: usize,
    asks_sack: bool,
    filled: Filled,
}

impl Outbound {
    /// Returns whether a packet with DATA may leave on `path` now (RFC 9260 §6.1 A to C).
    pub(crate) fn may_send(&self, path: &Path) -> bool {
        if let Some((_, chunk)) = self.outstanding.first_lost() {
            return path.may_retransmit(chunk.wire_bytes());
        }
        path.may_send_packet()
            && (self.may_send_new(path) || (path.tail_loss_probe_is_due() && path.in_flight_bytes() > 0))
    }

    /// Returns whether a packet should take `slow`, which has room, instead of waiting for the faster path `fast`. It
    /// should if so much waits that the fast path would take longer than the slow one needs, and if the peer's window
    /// holds all that may overtake the packet meanwhile: otherwise the fast path would wait for the slow one.
    pub(crate) fn is_worth_slower(&self, slow: &Path, fast: &Path) -> bool {
        let (Some(slow_rtt), Some(fast_rtt)) = (slow.rto().srtt(), fast.rto().srtt()) else { return false };
        let window = self.peer_window.bytes() + self.outstanding.in_flight_payload_bytes();
        let flight = fast.cwnd_bytes().min(window) as u128;
        let overtakes = |time: Duration| {
            let bytes = flight * time.as_nanos() / fast_rtt.as_nanos().max(1);
            usize::try_from(bytes).unwrap_or(usize::MAX)
        };
        let has_lost = self.outstanding.has_lost();
        let waiting = if has_lost { 0 } else { self.pending.wire_bytes() };
        let backlog = (!has_lost && self.writable_wanted) || waiting >= overtakes(slow_rtt - fast_rtt);
        backlog
            && self.outstanding.chunks() < OUTSTANDING_CHUNKS_MAX / 2
            && overtakes(slow_rtt).saturating_add(slow.in_flight_bytes()) <= window
    }

    /// Returns whether `path` could carry another packet, and no data waits for it.
    pub(crate) fn leaves_room(&self, path: &Path) -> bool {
        !self.outstanding.has_lost() && path.may_send_packet() && !self.may_send_new(path)
    }

    fn may_send_new(&self, path: &Path) -> bool {
        self.outstanding.chunks() < OUTSTANDING_CHUNKS_MAX
            && self.pending.next().is_some_and(|next| {
                let most = path.mtu_bytes() - HEADER_BYTES - DATA_HEADER_BYTES;
                let idle = self.outstanding.in_flight_payload_bytes() == 0;
                self.peer_window.room(next.payload.len().min(most), idle) > 0
            })
    }

    /// Returns whether data waits that only the path holds back.
    pub(crate) fn waits_for(&self, path: &Path) -> bool {
        self.outstanding.has_lost() || self.may_send_new(path)
    }

    /// Fills the packet with DATA chunks: lost ones, then new ones. Repeats the last packet if neither may leave and a tail loss
    /// probe is due.
    pub(crate) fn fill_packet(&mut self, now: Time, path: &mut Path, packet: &mut Packet<'_>) -> Filled {
        path.before_sending(now);
        let probes = path.tail_loss_probe_is_due();
        let first = self.outstanding.first_tsn();
        let first_is_lost = self.outstanding.first_lost().is_some_and(|(tsn, _)| tsn == first);
        let mut contents = Contents {
            number: path.next_packet(),
            wanted_path: self.wanted_path(),
            tsns: PacketTsns::new(),
            bytes: 0,
            asks_sack: false,
            filled: Filled::default(),
        };
        self.write_lost(packet, &mut contents);
        let has_room = contents.tsns.is_empty() || path.may_send_beyond(contents.bytes);
        if !self.outstanding.has_lost() && has_room {
            self.write_new(now, packet, &mut contents);
        }
        if contents.tsns.is_empty() && probes {
            self.repeat_last(path, packet, &mut contents);
        }
        if contents.tsns.is_empty() {
            if probes {
                path.cancel_tail_loss_probe();
            }
            return Filled::default();
        }
        let retransmitted_chunks = contents.filled.retransmitted_chunks;
        // RFC 9260 §6.7: a peer that has reported a gap answers each packet at once.
        contents.asks_sack |= self.outstanding.gap_acked() > 0;
        path.on_sent(
            now,
            SentData {
                tsns: contents.tsns,
                bytes: contents.bytes,
                retransmitted_chunks,
                asks_sack: contents.asks_sack,
                repeats_first: first_is_lost && retransmitted_chunks > 0,
            },
        );
        Filled { number: Some(contents.number), tail_loss_probe: probes, ..contents.filled }
    }

    fn write_lost(&mut self, packet: &mut Packet<'_>, contents: &mut Contents) {
        let buffer = &mut *packet.buffer;
        while let Some((_, next)) = self.outstanding.first_lost() {
            // A chunk longer than a packet (the MTU shrank) goes alone, and the network layer fragments it.
            let alone = buffer.is_first_packet() && buffer.packet_bytes() == HEADER_BYTES;
            if buffer.packet_bytes() + next.wire_bytes() > packet.limit_bytes && !alone {
                break;
            }
            let Some((tsn, chunk)) = self.outstanding.retransmit(packet.path_id, contents.number) else {
                break;
            };
            write_chunk(chunk, tsn, buffer);
            self.peer_window.take_again(chunk.payload.len());
            contents.bytes += chunk.wire_bytes();
            contents.filled.retransmitted_chunks += 1;
            extend(&mut contents.tsns, tsn);
        }
    }

    fn write_new(&mut self, now: Time, packet: &mut Packet<'_>, contents: &mut Contents) {
        let before = self.outstanding.in_flight_payload_bytes();
        let start = self.outstanding.next_tsn();
        let mut tsn = start;
        let mut space = packet.limit_bytes.saturating_sub(packet.buffer.packet_bytes());
        while let Some(next) = self.pending.next() {
            if self.wanted_path() != contents.wanted_path {
                break;
            }
            let whole = next.payload.len();
            let piece = whole.min(packet.payload_bytes_max);
            let fits = wire_bytes(piece) <= space;
            if !fits && space < DATA_HEADER_BYTES + FRAGMENT_BYTES_MIN {
                break;
            }
            let most = if fits { piece } else { (space - DATA_HEADER_BYTES) & !3 };
            let payload = self.peer_window.room(most, self.outstanding.in_flight_payload_bytes() == 0);
            // The timer discards a message whose lifetime is over.
            let too_late = self.pending.expires_at().is_some_and(|at| at <= now);
            if payload == 0 || too_late || self.outstanding.chunks() >= OUTSTANDING_CHUNKS_MAX {
                break;
            }
            let Some(mut chunk) = self.pending.take(payload) else { break };
            chunk.ssn = self.take_ssn(&chunk);
            // RFC 7053 §4: the last chunk for now asks for its SACK if it was not sent alone. In an open record the bit also says
            // that the reader need not wait for more.
            let is_last = payload == whole && self.pending.is_empty();
            chunk.flags.immediate |= is_last && (self.closing || before > 0 || !chunk.flags.ending);
            contents.asks_sack |= chunk.flags.immediate;
            let filled = &mut contents.filled;
            filled.unordered_chunks += u64::from(chunk.flags.unordered);
            filled.fragmented_messages += u64::from(chunk.flags.beginning & !chunk.flags.ending);
            write_chunk(&chunk, tsn, packet.buffer);
            let wire = chunk.wire_bytes();
            space -= wire;
            contents.bytes += wire;
            self.peer_window.take(tsn, payload);
            self.outstanding.send(chunk, packet.path_id, contents.number);
            tsn += 1;
        }
        if start < tsn {
            contents.filled.new_chunks += tsn - start;
            contents.tsns.push(start..tsn);
        }
    }

    /// Writes the chunks of the last packet in flight once more (RFC 8985 §7.3). They are in flight already and count
    /// once.
    fn repeat_last(&mut self, path: &Path, packet: &mut Packet<'_>, contents: &mut Contents) {
        let buffer = &mut *packet.buffer;
        for (number, sent) in path.sent_packets().rev() {
            for tsn in sent.tsns.iter().cloned().flatten() {
                let Some(chunk) = self.outstanding.in_packet(tsn, packet.path_id, number) else { continue };
                let alone = buffer.is_first_packet() && buffer.packet_bytes() == HEADER_BYTES;
                if buffer.packet_bytes() + chunk.wire_bytes() > packet.limit_bytes && !alone {
                    continue;
                }
                write_chunk(self.outstanding.repeat(tsn, contents.number), tsn, buffer);
                contents.asks_sack = true;
                contents.filled.retransmitted_chunks += 1;
                extend(&mut contents.tsns, tsn);
            }
            if !contents.tsns.is_empty() {
                return;
            }
        }
    }
}

/// Appends a TSN to ranges in rising order.
fn extend(tsns: &mut PacketTsns, tsn: u64) {
    match tsns.last_mut() {
        Some(last) if last.end == tsn => last.end += 1,
        _ => tsns.push(tsn..tsn + 1),
    }
}

#[inline]
fn write_chunk(chunk: &Chunk, tsn: u64, buffer: &mut TransmitBuffer) {
    Data::write_header(
        chunk.flags,
        tsn::wrap(tsn),
        StreamId(chunk.stream),
        Ssn(chunk.ssn),
        Ppid(chunk.ppid),
        chunk.payload.len(),
        buffer.out(),
    );
    buffer.payload(&chunk.payload);
}
