//! Fills packets with DATA chunks: first with lost ones, then with new ones (RFC 9260 §6.1, §6.10).

use std::time::Duration;

use sctp_message::PathId;
use sctp_wire::chunk::DATA_HEADER_BYTES;
use sctp_wire::packet::HEADER_BYTES;

use super::run::{Run, wire_bytes};
use super::short::{NewChunks, RunLimits};
use super::{OUTSTANDING_CHUNKS_MAX, Outbound};
use crate::packet_number::PacketNumber;
use crate::path::{Path, SentData};
use crate::time::Time;
use crate::transmit::TransmitBuffer;
use crate::tsn::{self, TsnRanges};

/// The end of a packet is filled with a fragment of the next message if at least this much of it fits.
const FRAGMENT_BYTES_MIN: usize = 64;

/// Length from which a packet may stay up to a quarter empty, rather than be filled with a fragment of a message that fits the
/// next one: joining the fragments costs more than another packet of this length.
const LONG_PACKET_BYTES: usize = 16 * 1024;

/// The packet that is being built.
pub(crate) struct Packet<'a> {
    pub(crate) limit_bytes: usize,
    /// Largest payload of a new chunk.
    pub(crate) payload_bytes_max: usize,
    pub(crate) buffer: &'a mut TransmitBuffer,
}

/// The DATA chunks that a packet was filled with.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Number of the packet on its path; `None` if it has no DATA.
    pub(crate) number: Option<PacketNumber>,
    pub(crate) new_chunks: u64,
    /// Number of new chunks that are unordered.
    pub(crate) unordered_chunks: u64,
    /// Messages whose first fragment is among the new chunks.
    pub(crate) fragmented_messages: u64,
    pub(crate) retransmitted_chunks: u64,
    /// The packet is a tail loss probe.
    pub(crate) tail_loss_probe: bool,
}

/// The rest of the packet that is being built.
struct Room {
    /// Number of bytes.
    space: usize,
    /// Largest payload of a new chunk.
    payload_bytes_max: usize,
    /// Whether a short message that fits the next packet is not cut to fill this one.
    keeps_whole: bool,
}

/// The DATA chunks of the packet that is being built.
struct Contents {
    number: PacketNumber,
    /// The path that its new chunks name. Chunks that name another path wait for another packet.
    wanted_path: Option<PathId>,
    tsns: TsnRanges,
    /// Bytes of chunks that were not in flight before.
    bytes: usize,
    asks_sack: bool,
    filled: Filled,
}

impl Outbound {
    /// Returns whether a packet with DATA may leave on `path` now (RFC 9260 §6.1 A to C).
    pub(crate) fn may_send(&self, path: &Path) -> bool {
        if let Some(run) = self.outstanding.first_lost() {
            return path.may_retransmit(run.first_wire_bytes());
        }
        path.may_send_packet()
            && (self.may_send_new(path) || (path.tail_loss_probe_is_due() && path.in_flight_bytes() > 0))
    }

    /// Returns whether a packet should take `slow`, which has room, instead of waiting for the faster path `fast`. It
    /// should if so much waits that the fast path would take longer than the slow one needs, and if the peer's window
    /// holds all that may overtake the packet meanwhile: otherwise the fast path would wait for the slow one.
    pub(crate) fn is_worth_slower(&self, slow: &Path, fast: &Path) -> bool {
        let (Some(slow_rtt), Some(fast_rtt)) = (slow.rto().srtt(), fast.rto().srtt()) else { return false };
        let window = self.peer_window_bytes() + self.outstanding.in_flight_payload_bytes();
        let flight = fast.cwnd_bytes().min(window) as u128;
        let overtakes = |time: Duration| {
            let bytes = flight * time.as_nanos() / fast_rtt.as_nanos().max(1);
            usize::try_from(bytes).unwrap_or(usize::MAX)
        };
        let has_lost = self.outstanding.has_lost();
        let waiting = if has_lost { 0 } else { self.pending.wire_bytes() };
        let backlog =
            (!has_lost && self.writable_wanted) || waiting >= overtakes(slow_rtt.saturating_sub(fast_rtt));
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
                let in_flight_bytes = self.outstanding.in_flight_payload_bytes();
                self.peer_window.room(next.payload_bytes.min(most), in_flight_bytes) > 0
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
        let first_is_lost = self.outstanding.first_lost().is_some_and(|run| run.first == first);
        let mut contents = Contents {
            number: path.next_packet(),
            wanted_path: self.wanted_path(),
            tsns: TsnRanges::new(),
            bytes: 0,
            asks_sack: false,
            filled: Filled::default(),
        };
        self.write_lost(path, packet, &mut contents);
        let has_room = contents.tsns.is_empty() || path.may_send_packet();
        if !self.outstanding.has_lost() && has_room {
            self.write_new(now, path, packet, &mut contents);
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

    fn write_lost(&mut self, path: &mut Path, packet: &mut Packet<'_>, contents: &mut Contents) {
        while let Some(next) = self.outstanding.first_lost() {
            let Some(room_bytes) = room_for(next, packet) else { break };
            let Some(run) = self.outstanding.retransmit(room_bytes, path, contents.number) else { break };
            run.write(packet.buffer);
            contents.bytes += run.wire_bytes();
            contents.filled.retransmitted_chunks += u64::from(run.chunks);
            tsn::append(&mut contents.tsns, run.tsns());
        }
    }

    fn write_new(&mut self, now: Time, path: &mut Path, packet: &mut Packet<'_>, contents: &mut Contents) {
        // RFC 7053 §4: the last chunk that can be sent asks for a SACK at once, if others are in flight, the association
        // closes, or the user waits for the room that the SACK brings.
        let immediate =
            self.closing || self.writable_wanted || self.outstanding.in_flight_payload_bytes() > 0;
        let start = self.outstanding.next_tsn();
        let limit_bytes = packet.limit_bytes;
        loop {
            let space = limit_bytes.saturating_sub(packet.buffer.packet_bytes());
            if self.wanted_path() != contents.wanted_path {
                break;
            }
            let keeps_whole = limit_bytes >= LONG_PACKET_BYTES && space <= limit_bytes / 4;
            let room = Room { space, payload_bytes_max: packet.payload_bytes_max, keeps_whole };
            let Some((run, new)) = self.take_new(now, &room, immediate) else { break };
            contents.asks_sack |= new.immediate;
            let filled = &mut contents.filled;
            filled.unordered_chunks += new.unordered;
            filled.fragmented_messages += new.fragmented;
            run.write(packet.buffer);
            contents.bytes += run.wire_bytes();
            let in_flight_bytes = self.outstanding.in_flight_payload_bytes();
            self.peer_window.on_sent(run.first, run.payload_bytes, in_flight_bytes);
            self.outstanding.send(run, path, contents.number);
        }
        let tsns = start..self.outstanding.next_tsn();
        if !tsns.is_empty() {
            contents.filled.new_chunks += tsns.end - tsns.start;
            contents.tsns.push(tsns);
        }
    }

    /// Takes what is sent next, as far as the room in the packet and the peer's window allow.
    #[inline]
    fn take_new(&mut self, now: Time, room: &Room, immediate: bool) -> Option<(Run, NewChunks)> {
        let Room { space, payload_bytes_max, keeps_whole } = *room;
        let next = self.pending.next()?;
        let (first, chunks) = (self.outstanding.next_tsn(), self.outstanding.chunks());
        if next.is_short {
            let limits = RunLimits {
                wire_bytes: space,
                window_bytes: self.peer_window_bytes(),
                payload_bytes_max,
                chunks: OUTSTANDING_CHUNKS_MAX.saturating_sub(chunks),
                immediate,
            };
            let run = self.pending.take_short(first, limits, &mut self.next_ssn);
            if run.is_some() {
                return run;
            }
        }
        let piece = next.payload_bytes.min(payload_bytes_max);
        let fits = wire_bytes(piece) <= space;
        let stays_whole = keeps_whole && next.is_short && piece == next.payload_bytes;
        if !fits && (stays_whole || space < DATA_HEADER_BYTES + FRAGMENT_BYTES_MIN) {
            return None;
        }
        let most = if fits { piece } else { (space - DATA_HEADER_BYTES) & !3 };
        let payload = self.peer_window.room(most, self.outstanding.in_flight_payload_bytes());
        // The timer discards a message whose lifetime is over.
        let too_late = self.pending.expires_at().is_some_and(|at| at <= now);
        if payload == 0 || too_late || chunks >= OUTSTANDING_CHUNKS_MAX {
            return None;
        }
        if next.is_short {
            self.pending.separate_first();
        }
        self.pending.take(payload, first, immediate, &mut self.next_ssn)
    }

    /// Writes the chunks of the last packet in flight once more (RFC 8985 §7.3). They are in flight already and count
    /// once.
    fn repeat_last(&mut self, path: &Path, packet: &mut Packet<'_>, contents: &mut Contents) {
        for (number, sent) in path.sent_packets().rev() {
            for range in &sent.tsns {
                let mut rest = range.clone();
                while let Some(run) = self.outstanding.first_in_packet(rest.clone(), path.id(), number) {
                    rest.start = run.end();
                    let (tsn, room_bytes) = (run.first, room_for(run, packet));
                    let Some(room_bytes) = room_bytes else { continue };
                    let Some(run) = self.outstanding.repeat(tsn, room_bytes, contents.number) else { return };
                    run.write(packet.buffer);
                    contents.asks_sack = true;
                    contents.filled.retransmitted_chunks += u64::from(run.chunks);
                    tsn::append(&mut contents.tsns, run.tsns());
                }
            }
            if !contents.tsns.is_empty() {
                return;
            }
        }
    }
}

/// Returns the room for chunks of a run that leaves again; `None` if the packet has none for the first of them.
fn room_for(run: &Run, packet: &Packet<'_>) -> Option<usize> {
    let buffer = &packet.buffer;
    let room_bytes = packet.limit_bytes.saturating_sub(buffer.packet_bytes());
    // A chunk longer than a packet (the MTU shrank) goes alone, and the network layer fragments it.
    let alone = buffer.is_first_packet() && buffer.packet_bytes() == HEADER_BYTES;
    (run.first_wire_bytes() <= room_bytes || alone).then_some(room_bytes)
}
