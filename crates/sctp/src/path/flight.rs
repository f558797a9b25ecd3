//! The packets in flight on a path, the number of unacknowledged bytes, and the timers of the flight.
//!
//! A packet stays listed until it is acknowledged or declared lost by its order. The bytes follow from the states of the
//! outstanding runs, so the queue of runs reports each change of them (`outbound/run/in_flight`).

use std::collections::VecDeque;
use std::time::Duration;

use super::delivery::Mark;
use super::tail_loss_probe::{Expired, ProbeTime, TailLossProbe};
use crate::packet_number::PacketNumber;
use crate::time::Time;
use crate::tsn::TsnRanges;

/// A packet with DATA chunks that is neither known to have arrived nor declared lost.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub(crate) sent_at: Time,
    /// One range of new chunks, several of retransmissions.
    pub(crate) tsns: TsnRanges,
    /// Whether every chunk in it was sent for the first time (Karn's rule).
    pub(crate) first_transmission: bool,
    /// Whether a black hole for long packets would drop it.
    pub(crate) long: bool,
    /// State of the path's delivery when the packet left.
    pub(crate) mark: Mark,
}

#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// Sent packets by number; the front one has number `first_packet`.
    packets: VecDeque<SentPacket>,
    first_packet: PacketNumber,
    /// Bytes of DATA chunks in flight, with headers and padding.
    bytes: usize,
    /// Expiry of T3-rtx (RFC 9260 §6.3.2).
    t3: Option<Time>,
    /// Time when the oldest packet counts as lost if it is still missing (RFC 8985 §6.3).
    loss_timer: Option<Time>,
    tail_loss_probe: TailLossProbe,
    /// Number of the first packet whose answer is expected.
    unanswered: PacketNumber,
    last_sent_at: Time,
    /// Whether the last packet asked for an immediate SACK, which the peer does not delay.
    last_asks_sack: bool,
}

impl Flight {
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the number of the next packet.
    #[inline]
    pub(super) fn next_packet(&self) -> PacketNumber {
        self.first_packet.plus(self.packets.len() as u32)
    }

    /// Returns the number of the oldest packet that is remembered, or of the next one if none is.
    #[inline]
    pub(super) fn first_packet(&self) -> PacketNumber {
        self.first_packet
    }

    #[inline]
    pub(super) fn packet(&self, number: PacketNumber) -> Option<&SentPacket> {
        self.packets.get(number.since(self.first_packet) as usize)
    }

    /// Returns the oldest packet and its number.
    #[inline]
    pub(super) fn oldest(&self) -> Option<(PacketNumber, &SentPacket)> {
        self.packets.front().map(|packet| (self.first_packet, packet))
    }

    /// Returns all packets and their numbers, the oldest first.
    pub(super) fn packets(&self) -> impl DoubleEndedIterator<Item = (PacketNumber, &SentPacket)> {
        let first = self.first_packet;
        self.packets.iter().enumerate().map(move |(at, packet)| (first.plus(at as u32), packet))
    }

    #[cfg(feature = "testing")]
    pub(super) fn remembered_packets(&self) -> usize {
        self.packets.len()
    }

    #[inline]
    pub(super) fn t3(&self) -> Option<Time> {
        self.t3
    }

    #[inline]
    pub(super) fn loss_timer(&self) -> Option<Time> {
        self.loss_timer
    }

    #[inline]
    pub(super) fn last_sent_at(&self) -> Time {
        self.last_sent_at
    }

    /// Returns when the tail loss probe is due.
    #[inline]
    pub(super) fn probe_at(&self) -> Option<Time> {
        self.tail_loss_probe.at()
    }

    /// Returns whether a tail loss probe may leave now, whatever the window is.
    #[inline]
    pub(super) fn probe_is_due(&self) -> bool {
        self.tail_loss_probe.is_due()
    }

    /// Records a packet whose chunks are in flight. `asks_sack`: it asks for an immediate SACK.
    #[inline]
    pub(super) fn on_sent(&mut self, packet: SentPacket, asks_sack: bool) {
        let number = self.next_packet();
        self.last_sent_at = packet.sent_at;
        self.last_asks_sack = asks_sack;
        let repeated = (!packet.first_transmission).then_some(&packet.tsns);
        self.tail_loss_probe.on_sent(number, repeated);
        self.packets.push_back(packet);
    }

    /// Starts T3, unless it runs (RFC 9260 §6.3.2 R1).
    #[inline]
    pub(super) fn start_t3(&mut self, at: Time) {
        self.t3 = self.t3.or(Some(at));
    }

    /// Starts T3 anew.
    #[inline]
    pub(super) fn restart_t3(&mut self, at: Time) {
        self.t3 = Some(at);
    }

    /// Adds chunks of `bytes`.
    #[inline]
    pub(super) fn enter(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Removes chunks of `bytes`.
    #[inline]
    pub(super) fn leave(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes, "chunks leave the flight of a path once");
        self.bytes -= bytes;
    }

    /// Updates T3 and the mark of answered packets at the end of a SACK (RFC 9260 §6.3.2 R2 to R4). `advanced`: the SACK
    /// acknowledged the earliest chunk.
    #[inline]
    pub(super) fn on_sack(&mut self, advanced: bool, t3_at: Time) {
        let next_packet = self.next_packet();
        self.unanswered.follow(next_packet);
        if self.bytes == 0 {
            self.t3 = None;
            self.tail_loss_probe.cancel();
        } else {
            match advanced {
                true => self.restart_t3(t3_at),
                false => self.start_t3(t3_at),
            }
        }
    }

    /// Stops all timers, because nothing is in flight any more. The packets stay listed: an acknowledgement may still come.
    pub(super) fn stop_timers(&mut self) {
        assert!(self.is_empty(), "the timers guard what is in flight");
        (self.t3, self.loss_timer) = (None, None);
        self.tail_loss_probe.cancel();
    }

    /// Stops expecting answers to the packets sent so far.
    pub(super) fn forget_unanswered(&mut self) {
        self.unanswered = self.next_packet();
    }

    /// Records that every packet before `number` was answered.
    pub(super) fn on_answered_before(&mut self, number: PacketNumber) {
        self.unanswered = number;
    }

    /// Returns the oldest packet that may be unanswered; `newest` is the newest packet that was acknowledged.
    #[inline]
    pub(super) fn first_unanswered(&self, newest: Option<PacketNumber>) -> PacketNumber {
        match newest {
            Some(newest) if !self.unanswered.is_after(newest) => newest.next(),
            _ => self.unanswered,
        }
    }

    /// Returns when the peer should have sent the SACK for packet `number`: when the packet after it left, or after
    /// the delay of a SACK. A packet that asks for it is acknowledged at once.
    pub(super) fn sack_due_at(&self, number: PacketNumber, sack_delay: Duration) -> Option<Time> {
        let sent_at = self.packet(number)?.sent_at;
        let delayed = sent_at + sack_delay;
        Some(match self.packet(number.next()) {
            Some(next) => next.sent_at.min(delayed),
            None if self.last_asks_sack => sent_at,
            None => delayed,
        })
    }

    /// Removes the oldest packet.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(PacketNumber, SentPacket)> {
        let number = self.first_packet;
        let packet = self.packets.pop_front()?;
        self.first_packet = self.first_packet.next();
        Some((number, packet))
    }

    /// Removes all packets before `number`. Otherwise a path on which nothing is ever acknowledged would remember everything that
    /// was sent on it.
    pub(super) fn forget_before(&mut self, number: PacketNumber) {
        while number.is_after(self.first_packet) && self.pop().is_some() {}
    }

    /// Takes the contents of a packet that is retransmitted early, so that loss detection ignores it later.
    pub(super) fn take_packet(&mut self, number: PacketNumber) -> Option<SentPacket> {
        let packet = self.packets.get_mut(number.since(self.first_packet) as usize)?;
        Some(SentPacket { tsns: std::mem::take(&mut packet.tsns), ..*packet })
    }

    #[inline]
    pub(super) fn set_loss_timer(&mut self, at: Option<Time>) {
        self.loss_timer = at;
    }

    /// Plans a tail loss probe, unless the loss timer runs or nothing is in flight.
    #[inline]
    pub(super) fn plan_probe(&mut self, now: Time, times: impl FnOnce(&Flight) -> ProbeTime) {
        if self.bytes == 0 || self.loss_timer.is_some() {
            return self.tail_loss_probe.cancel();
        }
        let times = times(self);
        self.tail_loss_probe.plan(now, times);
    }

    /// Returns whether at most one packet is in flight, whose SACK the peer may delay (RFC 8985 §7.2).
    #[inline]
    pub(super) fn sack_may_be_delayed(&self, mtu_bytes: usize) -> bool {
        self.bytes <= mtu_bytes && !self.last_asks_sack
    }

    #[inline]
    pub(super) fn cancel_probe(&mut self) {
        self.tail_loss_probe.cancel();
    }

    /// Handles the timer of the tail loss probe. `after_timeout`: chunks that T3 declared lost are being repaired.
    pub(super) fn on_probe_timer(&mut self, after_timeout: bool) -> Expired {
        self.tail_loss_probe.expire(after_timeout)
    }

    /// Stops tail loss probes until an acknowledgement arrives.
    pub(super) fn on_silence(&mut self) {
        self.tail_loss_probe.on_silence();
    }

    /// Ends the silence of a path that answers again. If T3 runs, it expires no later than at `t3_at`.
    pub(super) fn on_silence_ended(&mut self, t3_at: Time) {
        self.tail_loss_probe.on_silence_ended();
        self.t3 = self.t3.map(|at| at.min(t3_at));
    }

    /// Lets a tail loss probe leave now.
    pub(super) fn probe_at_once(&mut self) {
        self.tail_loss_probe.probe_at_once();
    }

    /// Handles the peer's report that it has received `tsn` twice.
    pub(super) fn on_duplicate(&mut self, tsn: u64) {
        self.tail_loss_probe.on_duplicate(tsn);
    }

    /// Handles the acknowledgement of packet `newest`, the newest one. Returns whether a tail loss probe has repaired a loss.
    #[inline]
    pub(super) fn probe_repaired_loss(&mut self, newest: PacketNumber) -> bool {
        self.tail_loss_probe.on_acked(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(flight: &mut Flight, ms: u64, asks_sack: bool) {
        let packet = SentPacket {
            sent_at: Time::ZERO + Duration::from_millis(ms),
            tsns: TsnRanges::new(),
            first_transmission: true,
            long: false,
            mark: Mark::default(),
        };
        flight.enter(1000);
        flight.on_sent(packet, asks_sack);
    }

    #[test]
    fn packets_keep_their_numbers_when_older_ones_are_forgotten() {
        let mut flight = Flight::default();
        (0..4).for_each(|ms| sent(&mut flight, ms, false));
        assert_eq!((flight.bytes(), flight.next_packet()), (4000, PacketNumber::new(4)));
        flight.forget_before(PacketNumber::new(2));
        assert_eq!(flight.oldest().map(|(number, _)| number), Some(PacketNumber::new(2)));
        assert_eq!(
            flight.packet(PacketNumber::new(3)).map(|packet| packet.sent_at),
            Some(Time::ZERO + Duration::from_millis(3))
        );
        assert!(flight.packet(PacketNumber::new(1)).is_none());
        assert_eq!(flight.next_packet(), PacketNumber::new(4));
    }

    #[test]
    fn nothing_in_flight_stops_every_timer() {
        let mut flight = Flight::default();
        let at = Time::ZERO + Duration::from_secs(1);
        sent(&mut flight, 0, false);
        flight.start_t3(at);
        flight.set_loss_timer(Some(at));
        flight.leave(1000);
        flight.stop_timers();
        assert_eq!((flight.t3(), flight.loss_timer(), flight.probe_at()), (None, None, None));

        sent(&mut flight, 1, false);
        flight.start_t3(at);
        flight.leave(1000);
        flight.on_sack(true, at);
        assert_eq!(flight.t3(), None);
    }

    #[test]
    fn t3_restarts_only_when_the_earliest_chunk_was_acknowledged() {
        let mut flight = Flight::default();
        let at = |s| Time::ZERO + Duration::from_secs(s);
        sent(&mut flight, 0, false);
        flight.start_t3(at(1));
        flight.start_t3(at(2));
        flight.on_sack(false, at(3));
        assert_eq!(flight.t3(), Some(at(1)));
        flight.on_sack(true, at(4));
        assert_eq!(flight.t3(), Some(at(4)));
    }

    #[test]
    fn a_sack_is_due_when_the_next_packet_has_left_or_after_the_delay() {
        let (mut flight, delay) = (Flight::default(), Duration::from_millis(200));
        let at = |ms| Some(Time::ZERO + Duration::from_millis(ms));
        sent(&mut flight, 0, false);
        assert_eq!(flight.sack_due_at(PacketNumber::new(0), delay), at(200));
        sent(&mut flight, 30, true);
        assert_eq!(flight.sack_due_at(PacketNumber::new(0), delay), at(30));
        assert_eq!(flight.sack_due_at(PacketNumber::new(1), delay), at(30), "it asks for its SACK");
        assert_eq!(flight.sack_due_at(PacketNumber::new(2), delay), None);
    }

    #[test]
    fn a_packet_is_unanswered_however_many_were_answered_before() {
        let (mut flight, at) = (Flight::default(), Time::ZERO + Duration::from_secs(1));
        for _ in 0..10 {
            let newest = flight.next_packet();
            sent(&mut flight, 0, false);
            flight.leave(1000);
            flight.pop();
            flight.on_sack(true, at);
            assert_eq!(flight.first_unanswered(Some(newest)), newest.next());
            flight.first_packet = flight.first_packet.plus(1 << 29);
        }
    }
}
