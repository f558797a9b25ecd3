//! Detects lost packets, and losses that were spurious (RFC 9260 §6.3.3 and §7.2.4, RFC 8985, RFC 5682).

use sctp_message::PathId;

use super::{Outbound, SendContext};
use crate::config::RtoConfig;
use crate::packet_number::PacketNumber;
use crate::path::{PacketLoss, Path, SentPacket, Verdict};
use crate::time::Time;
use crate::trace::LossReason;
use crate::tsn::{self, TsnRanges};

/// Chunks that were declared lost.
#[derive(Debug, Default)]
struct Losses {
    bytes: usize,
    tsns: TsnRanges,
    /// A lost packet left after the last reduction of the window.
    reduces: bool,
}

impl Outbound {
    /// Declares late or overtaken packets lost, and starts the loss timer for the next one. `flight_bytes` was in flight before
    /// the SACK that is being handled. Returns the bytes lost.
    pub(crate) fn detect_loss(
        &mut self,
        cx: &mut SendContext<'_>,
        path: &mut Path,
        flight_bytes: usize,
    ) -> usize {
        let (mut losses, mut loss_timer) = (Losses::default(), None);
        while let Some((number, verdict)) = path.judge_oldest(cx.now) {
            let reason = match verdict {
                Verdict::Unknown => break,
                Verdict::Late(at) if self.is_in_flight(path, number) => {
                    loss_timer = Some(at);
                    break;
                }
                Verdict::Overtaken => LossReason::ReorderingThreshold,
                Verdict::Late(_) | Verdict::TooLate => LossReason::TimeThreshold,
            };
            let Some((number, packet)) = path.pop_packet() else { break };
            self.lose_packet(cx.now, path, &PacketLoss { number, packet: &packet, reason }, &mut losses);
        }
        path.expect_oldest_by(loss_timer);
        if losses.reduces {
            path.retransmit_at_once();
        }
        self.begin_recovery(cx, path, flight_bytes, &losses);
        losses.bytes
    }

    fn begin_recovery(
        &self,
        cx: &mut SendContext<'_>,
        path: &mut Path,
        flight_bytes: usize,
        losses: &Losses,
    ) {
        if losses.reduces {
            cx.statistics.fast_recoveries += 1;
            path.on_loss(cx.now, &losses.tsns, self.outstanding.next_tsn(), flight_bytes);
        } else {
            path.on_more_loss(&losses.tsns);
        }
    }

    /// Returns path and packet number of the first outstanding chunk, if it is in flight.
    pub(crate) fn first_in_flight_of_all(&self) -> Option<(PathId, PacketNumber)> {
        self.outstanding.first_in_flight()
    }

    /// Retransmits a packet in flight early, on the fastest path. `seems_lost` also declares it lost on its path. Returns the
    /// bytes that left the flight of that path.
    pub(crate) fn overtake(
        &mut self,
        cx: &mut SendContext<'_>,
        path: &mut Path,
        number: PacketNumber,
        seems_lost: bool,
    ) -> usize {
        let flight_bytes = path.in_flight_bytes();
        let Some(packet) = path.take_packet(number) else { return 0 };
        let bytes = if seems_lost {
            let mut losses = Losses::default();
            let loss = PacketLoss { number, packet: &packet, reason: LossReason::TimeThreshold };
            self.lose_packet(cx.now, path, &loss, &mut losses);
            self.begin_recovery(cx, path, flight_bytes, &losses);
            losses.bytes
        } else {
            let nacked = self.outstanding.nack_packet(path, number, &packet.tsns);
            path.on_packet_reassigned(tsn::count(&nacked.tsns));
            nacked.wire_bytes
        };
        path.clear_if_empty();
        bytes
    }

    /// Returns the first outstanding TSN; `None` if several paths carry data, since it then says nothing of any of them.
    #[inline]
    pub(super) fn first_tsn_of_one_path(&self) -> Option<u64> {
        Some(self.outstanding.first_tsn()).filter(|_| !self.multipath)
    }

    #[inline]
    fn is_in_flight(&self, path: &Path, number: PacketNumber) -> bool {
        let packet = path.sent_packet(number);
        packet.is_some_and(|packet| self.outstanding.is_in_flight(path.id(), number, &packet.tsns))
    }

    /// Declares the rest of a packet in flight lost, and tells the path if there was any.
    #[inline]
    fn lose_packet(&mut self, now: Time, path: &mut Path, loss: &PacketLoss<'_>, losses: &mut Losses) {
        let nacked = self.outstanding.nack_packet(path, loss.number, &loss.packet.tsns);
        if nacked.tsns.is_empty() {
            return;
        }
        nacked.tsns.into_iter().for_each(|tsns| tsn::append(&mut losses.tsns, tsns));
        losses.bytes += nacked.wire_bytes;
        // With several paths the chunks of the others hold back the cumulative TSN, which then says nothing about this one.
        let first_tsn = self.first_tsn_of_one_path();
        losses.reduces |= path.on_packet_lost(now, loss, nacked.wire_bytes, first_tsn);
    }

    /// Declares packets lost that are longer than the path's new MTU. That is no sign of congestion (RFC 1191 §6.4).
    pub(crate) fn lose_long_packets(&mut self, path: &mut Path) {
        let long = path.sent_packets().filter(|(_, packet)| packet.long);
        let long: Vec<_> = long.map(|(number, packet)| (number, packet.tsns.clone())).collect();
        let lost =
            long.iter().map(|(number, tsns)| self.outstanding.nack_packet(path, *number, tsns).wire_bytes);
        let bytes = lost.sum();
        path.on_long_packets_lost(bytes);
    }

    /// Declares everything in flight on a path lost after its T3-rtx has expired (RFC 9260 §6.3.3). Returns whether that
    /// indicates a failure, and not merely a window that the peer keeps closed.
    pub(crate) fn handle_timeout(&mut self, now: Time, path: &mut Path, limits: &RtoConfig) -> bool {
        self.count_lost_packets(now, path);
        path.forget_packets_before(self.outstanding.oldest_packet(path.id(), path.next_packet()));
        let nacked = self.outstanding.nack_path(path);
        // RFC 9260 §6.1 A: probes of a closed window do not touch the congestion window.
        let trouble = !self.peer_window.on_timeout(self.outstanding.first_tsn());
        path.on_t3(now, &nacked.tsns, nacked.wire_bytes, trouble, limits);
        trouble
    }

    /// Moves everything in flight on a silent path to other paths. The window stays as it is, since silence does not prove
    /// congestion.
    pub(crate) fn reassign_flight(&mut self, path: &mut Path) {
        path.forget_packets_before(self.outstanding.oldest_packet(path.id(), path.next_packet()));
        let nacked = self.outstanding.nack_path(path);
        path.on_reassigned(tsn::count(&nacked.tsns));
    }

    /// Returns the first packet from [`Path::first_unanswered`] on that is in flight.
    pub(crate) fn first_in_flight(&self, path: &Path) -> PacketNumber {
        let mut number = path.first_unanswered();
        while path
            .sent_packet(number)
            .is_some_and(|packet| !self.outstanding.is_in_flight(path.id(), number, &packet.tsns))
        {
            number = number.next();
        }
        number
    }

    /// Counts the packets that are still in flight as lost by a timeout.
    fn count_lost_packets(&self, now: Time, path: &mut Path) {
        let bytes = |(number, packet): (PacketNumber, &SentPacket)| {
            (number, self.outstanding.packet_bytes(path.id(), number, &packet.tsns))
        };
        let lost: Vec<_> = path.sent_packets().map(bytes).filter(|(_, bytes)| *bytes > 0).collect();
        for (number, bytes) in lost {
            path.count_lost(now, number, bytes, LossReason::Timeout);
        }
    }
}
