//! The first slow start of a path. HyStart++ (RFC 9406) ends it when the round-trip time rises, not when packets are
//! lost. A ceiling for the data in flight keeps a full line from being overrun before the rise is visible.

use std::time::Duration;

use super::Acked;
use crate::packet_number::PacketNumber;

/// MIN_RTT_THRESH and MAX_RTT_THRESH (RFC 9406 §4.3): within this range, a rise of the round-trip time by an eighth
/// indicates a queue.
const RISE_MIN: Duration = Duration::from_millis(4);
const RISE_MAX: Duration = Duration::from_millis(16);
/// MIN_RTT_DIVISOR.
const RISE_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE: number of round-trip times in a round before the round is judged.
const SAMPLES_MIN: u32 = 8;
/// CSS_GROWTH_DIVISOR: factor by which a conservative slow start grows more slowly.
const CONSERVATIVE_DIVISOR: usize = 4;
/// CSS_ROUNDS: number of rounds of conservative slow start before it ends.
const CONSERVATIVE_ROUNDS: u32 = 5;

/// The window that doubles the rate in a round trip, in round trips at that rate. BBR's Startup has the same one
/// (draft-ietf-ccwg-bbr §5.3.1.1). It leaves at most one round trip of data in the queue.
const CEILING_ROUND_TRIPS: u64 = 2;
/// Packets added to that window, because a rate of few packets is imprecise.
const CEILING_PACKETS_MORE: usize = 8;

/// Number of rounds at that window without a growth of the rate by a quarter after which the line counts as full
/// (draft-ietf-ccwg-bbr §5.3.1.2).
const FULL_ROUNDS: u32 = 3;

/// Next step of slow start after an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlowStart {
    /// Grow by all acknowledged bytes.
    Double,
    /// Grow by a quarter of them: the round-trip time has risen, perhaps because of a queue.
    Conservative,
    /// End slow start: the rise has lasted.
    Done,
}

/// Whether the line has room for a faster sender, by the rates of rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    HasRoom,
    Full,
}

impl SlowStart {
    /// Returns the growth of the window for this many acknowledged bytes.
    pub(super) fn growth_bytes(self, acked_bytes: usize) -> usize {
        match self {
            SlowStart::Double => acked_bytes,
            SlowStart::Conservative => acked_bytes / CONSERVATIVE_DIVISOR,
            SlowStart::Done => 0,
        }
    }
}

/// A conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The round-trip time that began it; a shorter one shows that it was a mistake.
    baseline: Duration,
    /// Number of its rounds, including the first.
    rounds: u32,
}

/// The minimum of several round-trip times.
#[derive(Clone, Copy, Debug, Default)]
struct Least {
    min: Option<Duration>,
    samples: u32,
}

impl Least {
    fn add(&mut self, rtt: Duration) {
        self.samples += 1;
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
    }
}

/// The round-trip times of the rounds of the first slow start of a path. Later slow starts have a threshold from
/// experience (RFC 9406 §4.3).
///
/// The RFC compares the minimum of a round with that of the round before. While packets are paced the queue grows
/// throughout a round, and the first packets, which found it empty, hide that until the next round. So each quarter of
/// a round is judged by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    /// The packet whose acknowledgement begins the next round.
    round_end: Option<PacketNumber>,
    last_round: Least,
    round: Least,
    quarter: Least,
    conservative: Option<Conservative>,
    /// The highest rate at which data arrived.
    bytes_per_s: u64,
    /// Number of bytes that this rate delivers in the shortest round-trip time.
    flight_bytes: Option<u64>,
    /// Whether the shortest round trip takes less than the smallest detectable rise, so that the ceiling permits no
    /// queue that would be visible.
    hides_queue: bool,
    /// Whether the window could not grow further in this round.
    at_ceiling: bool,
    /// The rate when it last had grown by a quarter, and the number of rounds at the ceiling since then.
    grown_bytes_per_s: u64,
    full_rounds: u32,
}

impl HyStart {
    /// Returns the limit of the window's growth.
    pub(super) fn ceiling_bytes(&self, mtu_bytes: usize) -> usize {
        let Some(flight_bytes) = self.flight_bytes else { return usize::MAX };
        let ceiling = flight_bytes.saturating_mul(CEILING_ROUND_TRIPS);
        usize::try_from(ceiling).unwrap_or(usize::MAX).saturating_add(CEILING_PACKETS_MORE * mtu_bytes)
    }

    /// Records that the window has reached the ceiling.
    pub(super) fn on_ceiling(&mut self) {
        self.at_ceiling = true;
    }

    /// Evaluates an acknowledgement in slow start.
    pub(super) fn on_acked(&mut self, acked: &Acked) -> SlowStart {
        self.measure(acked);
        if self.round_end.is_none_or(|end| !end.is_after(acked.newest_packet)) {
            self.round_end = Some(acked.next_packet);
            if self.begin_round() == SlowStart::Done {
                return SlowStart::Done;
            }
        }
        if let Some(rtt) = acked.rtt {
            self.round.add(rtt);
            self.quarter.add(rtt);
            if self.quarter.samples >= SAMPLES_MIN.max(self.last_round.samples / 4) {
                let quarter = std::mem::take(&mut self.quarter);
                self.judge(quarter.min.unwrap_or(rtt));
            }
        }
        if self.conservative.is_some() { SlowStart::Conservative } else { SlowStart::Double }
    }

    fn measure(&mut self, acked: &Acked) {
        let (Some(rate), Some(min_rtt)) = (&acked.rate, acked.min_rtt) else { return };
        self.bytes_per_s = self.bytes_per_s.max(rate.bytes_per_s());
        let flight = u128::from(self.bytes_per_s) * min_rtt.as_nanos() / 1_000_000_000;
        self.flight_bytes = Some(u64::try_from(flight).unwrap_or(u64::MAX));
        self.hides_queue = min_rtt < RISE_MIN;
    }

    /// Compares the rate of a round with the largest one. The line is full if the rate has stopped growing at the ceiling. If the
    /// ceiling permits no queue of [`RISE_MIN`], nothing else ends slow start, and the window would stay at the ceiling forever.
    fn judge_rate(&mut self) -> Line {
        let at_ceiling = std::mem::take(&mut self.at_ceiling);
        if self.bytes_per_s > self.grown_bytes_per_s.saturating_add(self.grown_bytes_per_s / 4) {
            (self.grown_bytes_per_s, self.full_rounds) = (self.bytes_per_s, 0);
        } else if at_ceiling && self.hides_queue {
            self.full_rounds += 1;
        }
        if self.full_rounds >= FULL_ROUNDS { Line::Full } else { Line::HasRoom }
    }

    /// Begins a round. Slow start is done if the line is full, or conservative slow start has lasted long enough.
    fn begin_round(&mut self) -> SlowStart {
        if self.judge_rate() == Line::Full {
            return SlowStart::Done;
        }
        self.last_round = std::mem::take(&mut self.round);
        self.quarter = Least::default();
        let Some(conservative) = &mut self.conservative else { return SlowStart::Double };
        if conservative.rounds == CONSERVATIVE_ROUNDS {
            return SlowStart::Done;
        }
        conservative.rounds += 1;
        SlowStart::Conservative
    }

    /// Decides whether slow start ends (RFC 9406 §4.2), by the least round-trip time of a quarter.
    fn judge(&mut self, min: Duration) {
        match self.conservative {
            Some(conservative) if min < conservative.baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let Some(last) = self.last_round.min else { return };
                if min >= last + (last / RISE_DIVISOR).clamp(RISE_MIN, RISE_MAX) {
                    self.conservative = Some(Conservative { baseline: min, rounds: 1 });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RateSample;
    use super::super::testing::acked;
    use super::*;

    /// Feeds rounds of ten packets, each with one round-trip time, and returns the result for the last packet.
    fn rounds(hystart: &mut HyStart, next: &mut PacketNumber, rtts_ms: &[u64]) -> SlowStart {
        let mut last = SlowStart::Double;
        for &ms in rtts_ms {
            let end = next.plus(10);
            while *next != end {
                last = hystart.on_acked(&Acked {
                    newest_packet: *next,
                    next_packet: end,
                    rtt: Some(Duration::from_millis(ms)),
                    ..acked(1000)
                });
                *next = next.next();
            }
        }
        last
    }

    #[test]
    fn a_rise_by_an_eighth_slows_and_five_rounds_end_it() {
        // The numbers wrap in the middle.
        let (mut hystart, mut next) = (HyStart::default(), PacketNumber::new(u32::MAX - 14));
        assert_eq!(rounds(&mut hystart, &mut next, &[80, 80, 89]), SlowStart::Double);
        // 89 ms and an eighth, 11.125 ms.
        assert_eq!(rounds(&mut hystart, &mut next, &[100]), SlowStart::Double);
        assert_eq!(rounds(&mut hystart, &mut next, &[113]), SlowStart::Conservative);
        assert_eq!(rounds(&mut hystart, &mut next, &[113, 113, 113, 113]), SlowStart::Conservative);
        let first_of_sixth = Acked {
            newest_packet: next,
            next_packet: next.plus(10),
            rtt: Some(Duration::from_millis(113)),
            ..acked(1000)
        };
        assert_eq!(hystart.on_acked(&first_of_sixth), SlowStart::Done);
    }

    #[test]
    fn a_shorter_round_trip_resumes() {
        let (mut hystart, mut next) = (HyStart::default(), PacketNumber::default());
        assert_eq!(rounds(&mut hystart, &mut next, &[80, 95]), SlowStart::Conservative);
        assert_eq!(rounds(&mut hystart, &mut next, &[95, 94]), SlowStart::Double);
        // And it may slow again.
        assert_eq!(rounds(&mut hystart, &mut next, &[94, 110]), SlowStart::Conservative);
    }

    #[test]
    fn the_threshold_stays_between_4_and_16_ms() {
        let slows_at = |ms: &[u64]| {
            rounds(&mut HyStart::default(), &mut PacketNumber::default(), ms) == SlowStart::Conservative
        };
        assert!(!slows_at(&[1, 4]));
        assert!(slows_at(&[1, 5]));
        assert!(!slows_at(&[400, 415]));
        assert!(slows_at(&[400, 416]));
    }

    #[test]
    fn seven_samples_are_not_enough() {
        let (mut hystart, mut next) = (HyStart::default(), PacketNumber::default());
        rounds(&mut hystart, &mut next, &[50]);
        for i in 0..8 {
            let phase = hystart.on_acked(&Acked {
                newest_packet: next.plus(i),
                next_packet: next.plus(100),
                rtt: Some(Duration::from_millis(90)),
                ..acked(1000)
            });
            assert_eq!(phase == SlowStart::Conservative, i == 7, "sample {i}");
        }
    }

    #[test]
    fn a_queue_that_grows_within_a_round_is_seen_in_that_round() {
        // 400 packets, the later ones 1 ms more each 10: the quarter from 20 to 30 ms is 20 ms over the last round.
        let (mut hystart, mut next) = (HyStart::default(), PacketNumber::default());
        for (growth_us, slows_at) in [(0, None), (100, Some(299))] {
            let end = next.plus(400);
            let slowed = (0..400_u32).find(|&i| {
                let rtt = Duration::from_millis(120) + Duration::from_micros(growth_us) * i;
                let ack =
                    Acked { newest_packet: next.plus(i), next_packet: end, rtt: Some(rtt), ..acked(1000) };
                hystart.on_acked(&ack) == SlowStart::Conservative
            });
            assert_eq!(slowed, slows_at);
            next = end;
        }
    }

    #[test]
    fn the_window_ends_at_two_round_trips_of_the_highest_rate() {
        let mut hystart = HyStart::default();
        assert_eq!(hystart.ceiling_bytes(1000), usize::MAX);
        let min_rtt = Some(Duration::from_millis(50));
        for (delivered_bytes, ceiling) in [(40_000, 88_000), (100_000, 208_000), (60_000, 208_000)] {
            let rate = RateSample {
                delivered_bytes,
                interval: Duration::from_millis(50),
                prior_delivered_bytes: 0,
                total_delivered_bytes: 0,
                sent_in_flight_bytes: 0,
                lost_bytes: 0,
                app_limited: false,
            };
            hystart.on_acked(&Acked { rate: Some(rate), min_rtt, ..acked(1000) });
            assert_eq!(hystart.ceiling_bytes(1000), ceiling);
        }
    }

    #[test]
    fn three_rounds_at_the_ceiling_without_a_higher_rate_end_it() {
        let rate = |delivered_bytes| RateSample {
            delivered_bytes,
            interval: Duration::from_micros(200),
            prior_delivered_bytes: 0,
            total_delivered_bytes: 0,
            sent_in_flight_bytes: 0,
            lost_bytes: 0,
            app_limited: false,
        };
        // Rates of rounds, each with whether the window was at its ceiling.
        let phase_of = |min_rtt_us, rounds: &[(u64, bool)]| {
            let mut hystart = HyStart::default();
            let mut phase = SlowStart::Double;
            for (number, &(delivered_bytes, at_ceiling)) in (0..).zip(rounds) {
                phase = hystart.on_acked(&Acked {
                    newest_packet: PacketNumber::new(number),
                    next_packet: PacketNumber::new(number + 1),
                    rate: Some(rate(delivered_bytes)),
                    min_rtt: Some(Duration::from_micros(min_rtt_us)),
                    ..acked(1000)
                });
                if at_ceiling {
                    hystart.on_ceiling();
                }
            }
            phase
        };
        let phase = |rounds: &[(u64, bool)]| phase_of(200, rounds);
        let full = (2500, true);
        assert_eq!(phase(&[full; 3]), SlowStart::Double);
        assert_eq!(phase(&[full; 4]), SlowStart::Done);
        assert_eq!(phase(&[(2500, false); 9]), SlowStart::Double, "the program sends no more");
        assert_eq!(phase_of(4000, &[full; 9]), SlowStart::Double, "a queue would be seen");
        let grows = [full, full, full, (3200, true), full, full];
        assert_eq!(phase(&grows), SlowStart::Double, "the rate has grown by a quarter meanwhile");
    }

    #[test]
    fn conservative_growth_is_a_quarter() {
        assert_eq!(SlowStart::Double.growth_bytes(1000), 1000);
        assert_eq!(SlowStart::Conservative.growth_bytes(1000), 250);
    }
}
