//! Packets out of what waits: first what was lost, then what is new (RFC 9260 §6.1, §6.10).

use std::ops::Range;
use std::time::Duration;

use sctp_wire::chunk::{DATA_HEADER_BYTES, Data};
use sctp_wire::packet::HEADER_BYTES;
use sctp_wire::{Ppid, Ssn, StreamId};
use smallvec::SmallVec;

use super::{Chunk, ChunkState, OUTSTANDING_CHUNKS_MAX, Outbound, wire_bytes};
use crate::path::Path;
use crate::statistics::Statistics;
use crate::time::Time;
use crate::trace::Probe;
use crate::transmit::TransmitBuffer;
use crate::tsn;

/// The end of a packet is filled with a part of the next message if at least this much of it fits.
const FRAGMENT_BYTES_MIN: usize = 64;

/// The packet that is being built.
pub(crate) struct Packet<'a> {
    pub(crate) path_id: usize,
    pub(crate) limit_bytes: usize,
    /// Most payload that a new chunk may carry.
    pub(crate) payload_bytes_max: usize,
    pub(crate) buffer: &'a mut TransmitBuffer,
}

/// What of it is DATA.
struct Contents {
    number: u32,
    /// The path that new chunks in it are to take. Those that say otherwise do not come in.
    wanted_path: Option<usize>,
    tsns: SmallVec<[Range<u64>; 1]>,
    asks: bool,
    /// New chunks that are unordered, and those that begin a message without ending it.
    unordered: u64,
    beginnings: u64,
}

impl Outbound {
    /// Whether a packet with DATA may leave on `path` now (RFC 9260 §6.1 A to C).
    pub(crate) fn may_send(&self, path: &Path) -> bool {
        if let Some(tsn) = self.lost.first() {
            return path.may_retransmit(self.outstanding[(tsn - self.first) as usize].wire_bytes());
        }
        path.may_send_packet()
            && (self.may_send_new(path) || (path.tail.is_due() && path.in_flight_bytes > 0))
    }

    /// Whether a packet is better off on `slow`, which has room, than waiting for the faster path `fast`: so much waits that
    /// the fast path would take longer than the slow one needs, and the peer's window holds all that may overtake the packet
    /// meanwhile. Otherwise the fast path would wait for the slow one.
    pub(crate) fn is_worth_slower(&self, slow: &Path, fast: &Path) -> bool {
        let (Some(slow_rtt), Some(fast_rtt)) = (slow.rto.srtt(), fast.rto.srtt()) else { return false };
        let window = self.peer_window.bytes() + self.in_flight_payload_bytes;
        let flight = fast.cwnd_bytes().min(window) as u128;
        let overtakes = |time: Duration| {
            let bytes = flight * time.as_nanos() / fast_rtt.as_nanos().max(1);
            usize::try_from(bytes).unwrap_or(usize::MAX)
        };
        let waiting = if self.lost.is_empty() { self.pending.wire_bytes() } else { 0 };
        let backlog =
            (self.lost.is_empty() && self.writable_wanted) || waiting >= overtakes(slow_rtt - fast_rtt);
        backlog
            && self.outstanding.len() < OUTSTANDING_CHUNKS_MAX / 2
            && overtakes(slow_rtt).saturating_add(slow.in_flight_bytes) <= window
    }

    /// Whether `path` could carry another packet, and there is none for it.
    pub(crate) fn leaves_room(&self, path: &Path) -> bool {
        self.lost.is_empty() && path.may_send_packet() && !self.may_send_new(path)
    }

    fn may_send_new(&self, path: &Path) -> bool {
        self.outstanding.len() < OUTSTANDING_CHUNKS_MAX
            && self.pending.next().is_some_and(|next| {
                let most = path.mtu_bytes - HEADER_BYTES - DATA_HEADER_BYTES;
                let idle = self.in_flight_payload_bytes == 0;
                self.peer_window.room(next.payload.len().min(most), idle) > 0
            })
    }

    /// Whether something waits that only the path holds back.
    pub(crate) fn waits_for(&self, path: &Path) -> bool {
        !self.lost.is_empty() || self.may_send_new(path)
    }

    /// Fills the packet being built with DATA chunks: first what was lost, then what is new. Where neither may leave and
    /// the tail is to be probed, what was sent last goes again.
    pub(crate) fn fill_packet(
        &mut self,
        now: Time,
        path: &mut Path,
        packet: &mut Packet<'_>,
        statistics: &mut Statistics,
    ) {
        let before = path.in_flight_bytes;
        if before == 0 {
            path.adjust_idle(now);
        }
        let probes = path.tail.is_due();
        let repeats_first = self.lost.first() == Some(self.first);
        let again_before = statistics.data_chunks_retransmitted;
        let mut contents = Contents {
            number: path.next_packet(),
            wanted_path: self.wanted_path(),
            tsns: SmallVec::new(),
            asks: false,
            unordered: 0,
            beginnings: 0,
        };
        self.write_lost(path, packet, &mut contents, statistics);
        let mut first_transmission = contents.tsns.is_empty();
        if self.lost.is_empty() && (first_transmission || path.may_send_packet()) {
            let start = self.first + self.outstanding.len() as u64;
            self.write_new(now, path, packet, &mut contents);
            let end = self.first + self.outstanding.len() as u64;
            if start < end {
                statistics.data_chunks_sent += end - start;
                statistics.unordered_chunks_sent += contents.unordered;
                statistics.messages_fragmented += contents.beginnings;
                contents.tsns.push(start..end);
            }
        }
        if contents.tsns.is_empty() && probes {
            self.write_tail(path, packet, &mut contents, statistics);
            first_transmission = false;
        }
        if contents.tsns.is_empty() {
            if probes {
                path.tail.cancel();
            }
            return;
        }
        if probes {
            statistics.tail_probes += 1;
            path.counts.tail_probes += 1;
            path.notes.probe(now, Probe::TailLoss);
        }
        let added = path.in_flight_bytes - before;
        path.counts.data_chunks_retransmitted += statistics.data_chunks_retransmitted - again_before;
        path.tail_asks = contents.asks;
        path.record_sent(now, contents.tsns, first_transmission, added, before);
        // RFC 9260 §6.1: started if it does not run, started anew if the earliest chunk is sent again.
        if path.t3.is_none() || (repeats_first && !first_transmission) {
            path.t3 = Some(now + path.rto.current());
        }
    }

    fn write_lost(
        &mut self,
        path: &mut Path,
        packet: &mut Packet<'_>,
        contents: &mut Contents,
        statistics: &mut Statistics,
    ) {
        let buffer = &mut *packet.buffer;
        while let Some(tsn) = self.lost.first() {
            let chunk = &mut self.outstanding[(tsn - self.first) as usize];
            let wire = chunk.wire_bytes();
            let payload = chunk.payload.len();
            // A chunk longer than a packet (the MTU shrank) goes alone, and the network layer cuts it.
            let alone = buffer.is_first_packet() && buffer.packet_bytes() == HEADER_BYTES;
            if buffer.packet_bytes() + wire > packet.limit_bytes && !alone {
                break;
            }
            self.lost.pop_first();
            chunk.state = ChunkState::InFlight;
            chunk.path = packet.path_id as u8;
            chunk.packet = contents.number;
            write_chunk(chunk, tsn, buffer);
            path.in_flight_bytes += wire;
            self.in_flight_payload_bytes += payload;
            self.peer_window.take_again(payload);
            statistics.data_chunks_retransmitted += 1;
            extend(&mut contents.tsns, tsn);
        }
    }

    fn write_new(&mut self, now: Time, path: &mut Path, packet: &mut Packet<'_>, contents: &mut Contents) {
        let before = self.in_flight_payload_bytes;
        let mut tsn = self.first + self.outstanding.len() as u64;
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
            let payload = self.peer_window.room(most, self.in_flight_payload_bytes == 0);
            // What is too late goes with its timer.
            let too_late = self.pending.expires_at().is_some_and(|at| at <= now);
            if payload == 0 || too_late || self.outstanding.len() >= OUTSTANDING_CHUNKS_MAX {
                break;
            }
            let Some(mut chunk) = self.pending.take(payload) else { break };
            chunk.ssn = self.take_ssn(&chunk);
            chunk.path = packet.path_id as u8;
            chunk.packet = contents.number;
            // RFC 7053 §4: the last chunk for now asks for its SACK if ours is not a lone request. In an open
            // record it also says that the reader need not wait for more.
            let tail = payload == whole && self.pending.is_empty();
            chunk.flags.immediate |= tail && (self.closing || before > 0 || !chunk.flags.ending);
            contents.asks = chunk.flags.immediate;
            contents.unordered += u64::from(chunk.flags.unordered);
            contents.beginnings += u64::from(chunk.flags.beginning & !chunk.flags.ending);
            write_chunk(&chunk, tsn, packet.buffer);
            let wire = chunk.wire_bytes();
            space -= wire;
            path.in_flight_bytes += wire;
            self.in_flight_payload_bytes += payload;
            self.peer_window.take(tsn, payload);
            tsn += 1;
            self.outstanding.push_back(chunk);
        }
    }

    /// The chunks of the last packet that is still in flight once more (RFC 8985 §7.3). They are in flight already and count
    /// once.
    fn write_tail(
        &mut self,
        path: &mut Path,
        packet: &mut Packet<'_>,
        contents: &mut Contents,
        statistics: &mut Statistics,
    ) {
        let buffer = &mut *packet.buffer;
        for (back, sent) in path.sent.iter().rev().enumerate() {
            let number = path.next_packet().wrapping_sub(1 + back as u32);
            for tsn in sent.tsns.iter().cloned().flatten() {
                let Some(at) = tsn.checked_sub(self.first) else { continue };
                let chunk = &mut self.outstanding[at as usize];
                let alone = buffer.is_first_packet() && buffer.packet_bytes() == HEADER_BYTES;
                let fits = buffer.packet_bytes() + chunk.wire_bytes() <= packet.limit_bytes || alone;
                if !chunk.is_in(number, packet.path_id) || !fits {
                    continue;
                }
                chunk.packet = contents.number;
                // In the middle of a record the bit says that the reader need not wait for more; what comes twice
                // or fills a gap is acknowledged at once without it.
                chunk.flags.immediate |= chunk.flags.ending;
                contents.asks = true;
                write_chunk(chunk, tsn, buffer);
                statistics.data_chunks_retransmitted += 1;
                extend(&mut contents.tsns, tsn);
            }
            if !contents.tsns.is_empty() {
                return;
            }
        }
    }
}

/// Appends a TSN to ranges in rising order.
fn extend(tsns: &mut SmallVec<[Range<u64>; 1]>, tsn: u64) {
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
