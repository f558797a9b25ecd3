//! RACK: detects lost packets by the time when they were sent (RFC 8985).

use std::time::Duration;

use crate::packet_number::PacketNumber;
use crate::time::Time;

/// Number of later packets acknowledged before a missing one counts as lost (RFC 9260 §7.2.4: three miss indications), as long as
/// no reordering was seen on the path. Counted in order of transmission, so that a retransmission can be lost, too.
const REORDERING_PACKETS: u32 = 3;
/// Minimum reordering window.
const REORDERING_TIME_MIN: Duration = Duration::from_millis(1);
/// Maximum reordering window in quarters of the shortest round-trip time (RFC 8985 §6.2: a round trip bounds it, too).
const WINDOW_QUARTERS_MAX: u32 = 16;
/// Number of recoveries after which a widened window is narrow again (RFC 8985 §6.2).
const WIDE_RECOVERIES: u8 = 16;
/// Age at which the shortest round-trip time is dropped, because the path may have changed.
const MIN_RTT_LIFE: Duration = Duration::from_secs(300);

/// Order and delay of the packets of a path.
#[derive(Debug)]
pub(crate) struct Rack {
    /// The newest packet, in order of transmission, that was acknowledged, and its round-trip time.
    newest: Option<(PacketNumber, Duration)>,
    min_rtt: Option<(Duration, Time)>,
    has_reordered: bool,
    window_quarters: u32,
    wide_recoveries: u8,
    /// End of the round trip in which the window was widened.
    widened_until: Option<PacketNumber>,
}

/// The judgement on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// No packet sent after it has arrived.
    Unknown,
    /// The packet is late, and lost if it does not arrive by then.
    Late(Time),
    /// More later packets have arrived than reordering explains.
    Overtaken,
    /// The packet is later than reordering explains.
    TooLate,
}

impl Rack {
    pub(crate) fn new() -> Self {
        Rack {
            newest: None,
            min_rtt: None,
            has_reordered: false,
            window_quarters: 1,
            wide_recoveries: 0,
            widened_until: None,
        }
    }

    #[inline]
    pub(crate) fn newest(&self) -> Option<PacketNumber> {
        self.newest.map(|(newest, _)| newest)
    }

    #[inline]
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|(rtt, _)| rtt)
    }

    /// Takes the round-trip time of a packet that was sent only once.
    #[inline]
    pub(crate) fn measure(&mut self, now: Time, rtt: Duration) {
        let old = |since| now.saturating_since(since) > MIN_RTT_LIFE;
        if self.min_rtt.is_none_or(|(least, since)| rtt <= least || old(since)) {
            self.min_rtt = Some((rtt, now));
        }
    }

    /// Handles the acknowledgement of packet `number`, `rtt` after it was sent. `again`: it repeated chunks of an earlier packet,
    /// which may be the one that has arrived (RFC 8985 §7.2, step 2).
    #[inline]
    pub(crate) fn on_acked(&mut self, number: PacketNumber, rtt: Duration, again: bool) {
        if again && self.min_rtt().is_some_and(|least| rtt < least) {
            return;
        }
        if self.newest().is_none_or(|newest| number.is_after(newest)) {
            self.newest = Some((number, rtt));
        }
        if let Some(until) = &mut self.widened_until {
            until.follow(number);
        }
    }

    /// Records that a packet arrived after one that was sent later.
    pub(crate) fn note_reordering(&mut self) {
        self.has_reordered = true;
    }

    /// Widens the reordering window, at most once per round trip, because the peer had received the retransmitted data.
    pub(crate) fn widen(&mut self, next_packet: PacketNumber) {
        let round_over =
            self.widened_until.is_none_or(|end| self.newest().is_some_and(|newest| !end.is_after(newest)));
        if round_over {
            self.widened_until = Some(next_packet);
            self.window_quarters = (self.window_quarters + 1).min(WINDOW_QUARTERS_MAX);
            self.wide_recoveries = WIDE_RECOVERIES;
        }
    }

    /// Counts a repaired loss towards narrowing a widened window.
    pub(crate) fn on_recovered(&mut self) {
        self.wide_recoveries = self.wide_recoveries.saturating_sub(1);
        if self.wide_recoveries == 0 {
            self.window_quarters = 1;
        }
    }

    /// Returns the reordering window: how much later than its successors a packet may arrive. `rtt` is the round-trip time of
    /// the newest packet.
    fn window(&self, rtt: Duration, is_repairing: bool, srtt: Option<Duration>) -> Duration {
        if is_repairing && !self.has_reordered {
            return Duration::ZERO;
        }
        let quarter = self.min_rtt().unwrap_or(rtt) / 4;
        let window = quarter * self.window_quarters;
        srtt.map_or(window, |srtt| window.min(srtt)).max(REORDERING_TIME_MIN)
    }

    /// Judges a packet that has not arrived.
    #[inline]
    pub(crate) fn judge(
        &self,
        now: Time,
        number: PacketNumber,
        sent_at: Time,
        is_repairing: bool,
        srtt: Option<Duration>,
    ) -> Verdict {
        let Some((newest, rtt)) = self.newest.filter(|(newest, _)| newest.is_after(number)) else {
            return Verdict::Unknown;
        };
        if !self.has_reordered && newest.since(number) >= REORDERING_PACKETS {
            return Verdict::Overtaken;
        }
        let late = sent_at + rtt + self.window(rtt, is_repairing, srtt);
        if late <= now { Verdict::TooLate } else { Verdict::Late(late) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Packets 0 to 9 leave at 0 to 9 ms; packet `number` arrives a round trip later.
    fn acked(number: u32) -> (Rack, Time) {
        let mut rack = Rack::new();
        let now = at(u64::from(number)) + RTT;
        rack.measure(now, RTT);
        rack.on_acked(PacketNumber::new(number), RTT, false);
        (rack, now)
    }

    #[test]
    fn three_packets_beyond_or_a_quarter_of_a_round_trip() {
        let (rack, now) = acked(5);
        let judge =
            |number: u32| rack.judge(now, PacketNumber::new(number), at(u64::from(number)), false, Some(RTT));
        assert_eq!(judge(2), Verdict::Overtaken);
        assert_eq!(judge(3), Verdict::Late(at(3) + RTT + RTT / 4));
        assert_eq!(judge(6), Verdict::Unknown);
        assert_eq!(
            rack.judge(now + RTT / 4, PacketNumber::new(4), at(4), false, Some(RTT)),
            Verdict::TooLate
        );
    }

    #[test]
    fn a_path_that_reorders_is_judged_by_time_alone() {
        let (mut rack, now) = acked(9);
        rack.note_reordering();
        assert_eq!(
            rack.judge(now, PacketNumber::new(2), at(2), true, Some(RTT)),
            Verdict::Late(at(2) + RTT + RTT / 4)
        );
        rack.widen(PacketNumber::new(10));
        rack.widen(PacketNumber::new(10));
        assert_eq!(
            rack.judge(now, PacketNumber::new(2), at(2), true, Some(RTT)),
            Verdict::Late(at(2) + RTT + RTT / 2)
        );
        for _ in 0..WIDE_RECOVERIES {
            rack.on_recovered();
        }
        assert_eq!(
            rack.judge(now, PacketNumber::new(2), at(2), true, Some(RTT)),
            Verdict::Late(at(2) + RTT + RTT / 4)
        );
    }

    #[test]
    fn the_answer_to_the_original_says_nothing_of_its_repetition() {
        let (mut rack, _) = acked(5);
        rack.on_acked(PacketNumber::new(8), RTT / 2, true);
        assert_eq!(rack.newest(), Some(PacketNumber::new(5)));
        rack.on_acked(PacketNumber::new(8), RTT, true);
        assert_eq!(rack.newest(), Some(PacketNumber::new(8)));
    }

    #[test]
    fn the_shortest_round_trip_grows_old() {
        let mut rack = Rack::new();
        rack.measure(at(0), RTT);
        rack.measure(at(1000), 2 * RTT);
        assert_eq!(rack.min_rtt(), Some(RTT));
        rack.measure(at(301_000), 2 * RTT);
        assert_eq!(rack.min_rtt(), Some(2 * RTT));
    }

    #[test]
    fn the_window_widens_however_many_packets_have_left_since_it_did() {
        let (mut rack, _) = acked(5);
        rack.widen(PacketNumber::new(6));
        let mut newest = PacketNumber::new(5);
        for _ in 0..5 {
            newest = newest.plus(1 << 29);
            rack.on_acked(newest, RTT, false);
        }
        rack.widen(newest.next());
        assert_eq!(rack.window(RTT, false, None), 3 * RTT / 4);
    }
}
