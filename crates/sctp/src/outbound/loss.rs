//! What is lost, and what only seemed to be (RFC 9260 §6.3.3 and §7.2.4, RFC 8985, RFC 5682, RFC 3708).

use super::{Chunk, ChunkState, Outbound};
use crate::congestion::{LostPacket, Signal};
use crate::packet_number::after;
use crate::path::{Path, SentPacket, Verdict};
use crate::statistics::Statistics;
use crate::time::Time;
use crate::trace::LossReason;

/// What was found lost.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Losses {
    pub(super) bytes: usize,
    chunks: u64,
    /// Something was lost that left after the last reduction.
    reduces: bool,
}

impl Outbound {
    /// Gives up the packets that are late, and plans when the next one is. `flight_bytes` was in flight before the SACK
    /// that is being handled.
    pub(crate) fn detect_loss(
        &mut self,
        now: Time,
        path: &mut Path,
        path_id: usize,
        flight_bytes: usize,
        statistics: &mut Statistics,
    ) -> usize {
        path.late_at = None;
        let mut losses = Losses::default();
        while let Some(front) = path.sent.front() {
            let number = path.first_packet;
            let verdict = path.rack.judge(now, number, front.sent_at, path.in_recovery(), path.rto.srtt());
            match verdict {
                Verdict::Unknown => break,
                Verdict::Late(at) if self.is_in_flight(front, number, path_id) => {
                    path.late_at = Some(at);
                    break;
                }
                Verdict::Late(_) | Verdict::Overtaken | Verdict::TooLate => {}
            }
            let Some((number, packet)) = path.pop_sent() else { break };
            let before = losses.bytes;
            self.give_up(now, path, path_id, number, &packet, &mut losses);
            if losses.bytes > before {
                let overtaken = verdict == Verdict::Overtaken;
                let reason =
                    if overtaken { LossReason::ReorderingThreshold } else { LossReason::TimeThreshold };
                path.note_lost(now, number, losses.bytes - before, reason);
            }
        }
        path.retransmits_at_once |= losses.reduces;
        self.answer_loss(now, path, flight_bytes, losses, statistics);
        losses.bytes
    }

    fn answer_loss(
        &mut self,
        now: Time,
        path: &mut Path,
        flight_bytes: usize,
        losses: Losses,
        statistics: &mut Statistics,
    ) {
        if losses.reduces {
            statistics.fast_recoveries += 1;
            path.doubt.begin(self.first, losses.chunks);
            path.enter_recovery(now, Signal::Loss, flight_bytes, self.next_tsn());
        } else {
            path.doubt.add(losses.chunks);
        }
    }

    /// The packet that carries the first chunk of all, if that is in flight: its path, and its number there.
    pub(crate) fn first_in_flight_of_all(&self) -> Option<(usize, u32)> {
        let chunk = self.outstanding.front().filter(|chunk| chunk.state == ChunkState::InFlight)?;
        Some((usize::from(chunk.path), chunk.packet))
    }

    /// A packet in flight goes again, wherever it arrives first. `seems_lost`: so it counts as lost on its path.
    pub(crate) fn overtake(
        &mut self,
        now: Time,
        path: &mut Path,
        path_id: usize,
        number: u32,
        seems_lost: bool,
        statistics: &mut Statistics,
    ) {
        let flight_bytes = path.in_flight_bytes;
        let Some(packet) = path.take_sent(number) else { return };
        let mut losses = Losses::default();
        if seems_lost {
            self.give_up(now, path, path_id, number, &packet, &mut losses);
            path.note_lost(now, number, losses.bytes, LossReason::TimeThreshold);
            self.answer_loss(now, path, flight_bytes, losses, statistics);
        } else {
            let (bytes, chunks) = self.lose_packet(number, path_id, &packet);
            path.in_flight_bytes -= bytes;
            path.counts.data_chunks_given_back += chunks;
        }
        if path.in_flight_bytes == 0 {
            path.forget_sent_before(path.next_packet());
            (path.t3, path.late_at) = (None, None);
            path.tail.cancel();
        }
    }

    /// The TSN of the next chunk that is new.
    pub(super) fn next_tsn(&self) -> u64 {
        self.first + self.outstanding.len() as u64
    }

    fn is_in_flight(&self, packet: &SentPacket, number: u32, path_id: usize) -> bool {
        packet.tsns.iter().any(|range| {
            let range = range.start.max(self.first)..range.end;
            range.into_iter().any(|tsn| self.outstanding[(tsn - self.first) as usize].is_in(number, path_id))
        })
    }

    /// Marks what is still in flight of a packet as lost.
    fn give_up(
        &mut self,
        now: Time,
        path: &mut Path,
        path_id: usize,
        number: u32,
        packet: &SentPacket,
        losses: &mut Losses,
    ) {
        let (bytes, chunks) = self.lose_packet(number, path_id, packet);
        if bytes == 0 {
            return;
        }
        losses.chunks += chunks;
        path.in_flight_bytes -= bytes;
        path.delivery.on_lost(bytes);
        losses.bytes += bytes;
        // RFC 9260 §7.2.4: once for all that was outstanding, even if what is sent into the full queue right after the
        // reduction is lost, too.
        // With several paths the others' chunks hold back the cumulative TSN, which then says nothing of this one.
        let repaired = self.multipath || self.first >= path.exit_tsn;
        losses.reduces |= !after(path.recovery_until, number) && repaired;
        let lost = LostPacket {
            bytes,
            number,
            sent_in_flight_bytes: packet.mark.in_flight_bytes,
            lost_bytes: path.delivery.lost_bytes() - packet.mark.lost_bytes,
            prior_delivered_bytes: packet.mark.delivered_bytes,
            app_limited: packet.mark.app_limited,
        };
        path.congestion.on_packet_lost(now, &lost);
    }

    /// What is still in flight of a packet is to be sent again. Gives how many bytes and chunks that are.
    fn lose_packet(&mut self, number: u32, path_id: usize, packet: &SentPacket) -> (usize, u64) {
        let (mut bytes, mut chunks, first) = (0, 0, self.first);
        for tsn in packet.tsns.iter().flat_map(|range| range.start.max(first)..range.end) {
            if self.outstanding[(tsn - self.first) as usize].is_in(number, path_id) {
                bytes += self.lose_chunk(tsn);
                chunks += 1;
            }
        }
        (bytes, chunks)
    }

    /// A chunk in flight is to be sent again. Gives its length in a packet.
    fn lose_chunk(&mut self, tsn: u64) -> usize {
        let chunk = &mut self.outstanding[(tsn - self.first) as usize];
        chunk.state = ChunkState::Lost;
        self.in_flight_payload_bytes -= chunk.payload.len();
        self.peer_window.give_back(chunk.payload.len());
        self.lost.insert(tsn);
        chunk.wire_bytes()
    }

    /// A single chunk is to be sent again if it is in flight.
    pub(super) fn lose(&mut self, tsn: u64, paths: &mut [Path]) {
        let Some(chunk) = self.outstanding.get((tsn - self.first) as usize) else { return };
        if chunk.state == ChunkState::InFlight {
            let path = &mut paths[usize::from(chunk.path)];
            path.in_flight_bytes -= self.lose_chunk(tsn);
        }
    }

    /// A path no longer takes packets as long as some that are in flight on it. They are lost, which says nothing of
    /// congestion, and go again (RFC 1191 §6.4).
    pub(crate) fn lose_long_packets(&mut self, path: &mut Path, path_id: usize) {
        let mut bytes = 0;
        for at in 0..path.sent.len() {
            let number = path.first_packet.wrapping_add(at as u32);
            let packet = &path.sent[at];
            if packet.long {
                bytes += self.lose_packet(number, path_id, packet).0;
            }
        }
        path.in_flight_bytes -= bytes;
        path.delivery.on_lost(bytes);
        path.retransmits_at_once |= bytes > 0;
    }

    /// T3-rtx expired on a path: all that is in flight on it is to be sent again (RFC 9260 §6.3.3). Says whether
    /// that is a sign of trouble, and not merely a window that the peer keeps closed.
    pub(crate) fn handle_timeout(&mut self, now: Time, path: &mut Path, path_id: usize) -> bool {
        self.note_timeout(now, path, path_id);
        path.forget_sent_before(self.oldest_in_flight(path, path_id));
        let mut chunks = 0;
        for (i, chunk) in self.outstanding.iter_mut().enumerate() {
            if chunk.state == ChunkState::InFlight && usize::from(chunk.path) == path_id {
                chunk.state = ChunkState::Lost;
                self.in_flight_payload_bytes -= chunk.payload.len();
                self.peer_window.give_back(chunk.payload.len());
                self.lost.insert(self.first + i as u64);
                chunks += 1;
            }
        }
        let flight = std::mem::take(&mut path.in_flight_bytes);
        (path.t3, path.late_at) = (None, None);
        path.tail.cancel();
        // RFC 9260 §6.1 A: probes of a closed window do not touch the congestion window.
        let trouble = !self.peer_window.take_refused();
        if trouble {
            path.doubt.begin_timeout(self.first, chunks, path.next_packet());
            path.delivery.on_lost(flight);
            path.start_over(now, flight);
        }
        trouble
    }

    /// A path has fallen silent: all that is in flight on it is to be sent again on another. Nothing says that the network
    /// is congested, so the window stays as it is.
    pub(crate) fn give_back(&mut self, path: &mut Path, path_id: usize) {
        path.forget_sent_before(self.oldest_in_flight(path, path_id));
        for (i, chunk) in self.outstanding.iter_mut().enumerate() {
            if chunk.state == ChunkState::InFlight && usize::from(chunk.path) == path_id {
                chunk.state = ChunkState::Lost;
                self.in_flight_payload_bytes -= chunk.payload.len();
                self.peer_window.give_back(chunk.payload.len());
                self.lost.insert(self.first + i as u64);
                path.counts.data_chunks_given_back += 1;
            }
        }
        path.unanswered = path.next_packet();
        (path.in_flight_bytes, path.t3, path.late_at) = (0, None, None);
        path.tail.cancel();
    }

    /// The oldest packet of a path with something in flight; the next one if nothing is.
    fn oldest_in_flight(&self, path: &Path, path_id: usize) -> u32 {
        let in_flight =
            |chunk: &&Chunk| chunk.state == ChunkState::InFlight && usize::from(chunk.path) == path_id;
        let packets = self.outstanding.iter().filter(in_flight).map(|chunk| chunk.packet);
        packets.fold(path.next_packet(), |oldest, packet| if after(oldest, packet) { packet } else { oldest })
    }

    /// The first packet from `path.first_unanswered()` on that is in flight.
    pub(crate) fn first_in_flight(&self, path: &Path, path_id: usize) -> u32 {
        let mut number = path.first_unanswered();
        while path.sent_packet(number).is_some_and(|packet| !self.is_in_flight(packet, number, path_id)) {
            number = number.wrapping_add(1);
        }
        number
    }

    /// Counts the packets that are still in flight as lost.
    fn note_timeout(&self, now: Time, path: &mut Path, path_id: usize) {
        for at in 0..path.sent.len() {
            let number = path.first_packet.wrapping_add(at as u32);
            let tsns = path.sent[at].tsns.iter().flat_map(|range| range.start.max(self.first)..range.end);
            let chunks = tsns.map(|tsn| &self.outstanding[(tsn - self.first) as usize]);
            let bytes = chunks.filter(|chunk| chunk.is_in(number, path_id)).map(Chunk::wire_bytes).sum();
            if bytes > 0 {
                path.note_lost(now, number, bytes, LossReason::Timeout);
            }
        }
    }

    /// What the timer gave up has arrived before it went again: the timer was too quick, and the rest is still on its
    /// way (RFC 5682 §3.1).
    pub(super) fn undo_timeout(&mut self, path: &mut Path, path_id: usize, given_up_before: u32) {
        let lost: Vec<_> = self.lost.iter().collect();
        for tsn in lost.into_iter().flatten() {
            let chunk = &mut self.outstanding[(tsn - self.first) as usize];
            if usize::from(chunk.path) == path_id && after(given_up_before, chunk.packet) {
                chunk.state = ChunkState::InFlight;
                path.in_flight_bytes += chunk.wire_bytes();
                self.in_flight_payload_bytes += chunk.payload.len();
                self.peer_window.take_again(chunk.payload.len());
                self.lost.remove_range(tsn..tsn + 1);
            }
        }
    }
}
