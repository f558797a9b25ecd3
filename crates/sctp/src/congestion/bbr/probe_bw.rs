//! Probing for bandwidth (draft-ietf-ccwg-bbr §5.3.3): Down, Cruise, Refill, Up, and again.

use std::time::Duration;

use super::model::BETA_PERCENT;
use super::{Bbr, INFINITE, State, percent};
use crate::congestion::{Acked, RateSample};
use crate::time::Time;

/// BBR.LossThresh: the tolerable loss rate of a round trip.
const LOSS_PERCENT: u64 = 2;
/// Part of the long-term limit left to others, in percent (BBR.Headroom).
const HEADROOM_PERCENT: u64 = 15;
/// Minimum wait before probing; up to a second is added at random (T_bbr).
const WAIT_MIN: Duration = Duration::from_secs(2);
const WAIT_RANDOM_NS: u64 = 1_000_000_000;
/// Maximum wait before probing in round trips. Reno would need as many to grow by the data in flight (T_reno).
const RENO_ROUNDS_MAX: u64 = 63;
/// Maximum number of times that the growth of the long-term limit doubles.
const GROWTH_DOUBLINGS_MAX: u32 = 30;

/// The part of a probe that the arriving acknowledgements belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckPhase {
    None,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// The long-term model of the data in flight, and the clock of probing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probing {
    /// BBR.inflight_longterm.
    pub(super) in_flight_max_bytes: u64,
    acked_per_packet_bytes: u64,
    acked_bytes: u64,
    growth_rounds: u32,
    pub(super) rounds_since: u64,
    wait: Duration,
    since: Time,
    pub(super) phase: AckPhase,
    /// BBR.is_bw_probe_sample: the acknowledged or lost data was sent while probing.
    pub(super) samples: bool,
    too_high: bool,
    precautionary: bool,
}

impl Probing {
    pub(super) fn new(now: Time) -> Self {
        Probing {
            in_flight_max_bytes: INFINITE,
            acked_per_packet_bytes: INFINITE,
            acked_bytes: 0,
            growth_rounds: 0,
            rounds_since: 0,
            wait: Duration::ZERO,
            since: now,
            phase: AckPhase::None,
            samples: false,
            too_high: false,
            precautionary: false,
        }
    }
}

/// Implements IsInflightTooHigh.
pub(super) fn loses_too_much(lost_bytes: u64, sent_in_flight_bytes: u64) -> bool {
    lost_bytes > percent(sent_in_flight_bytes, LOSS_PERCENT)
}

/// Returns InflightAtLoss: the position within a packet, or a batch, at which the losses passed the threshold.
pub(super) fn in_flight_at_loss(packet_bytes: u64, sent_in_flight_bytes: u64, lost_bytes: u64) -> u64 {
    let before = sent_in_flight_bytes.saturating_sub(packet_bytes);
    let lost_before = lost_bytes.saturating_sub(packet_bytes);
    let prefix = percent(before, LOSS_PERCENT).saturating_sub(lost_before) * 100 / (100 - LOSS_PERCENT);
    before + prefix
}

impl Bbr {
    pub(super) fn probes_bandwidth(&self) -> bool {
        matches!(self.state, State::Down | State::Cruise | State::Refill | State::Up)
    }

    pub(super) fn start_down(&mut self, now: Time) {
        self.short_term.forget_round();
        self.probing.acked_per_packet_bytes = INFINITE;
        self.pick_wait(now);
        self.probing.since = now;
        self.probing.phase = AckPhase::Stopping;
        self.rounds.start(self.delivered_bytes);
        self.state = State::Down;
    }

    pub(super) fn start_refill(&mut self) {
        self.short_term.unbound();
        self.probing.growth_rounds = 0;
        self.probing.acked_bytes = 0;
        self.probing.precautionary = false;
        self.probing.phase = AckPhase::Refilling;
        self.rounds.start(self.delivered_bytes);
        self.state = State::Refill;
    }

    fn start_up(&mut self, sample: &RateSample) {
        self.probing.phase = AckPhase::Starting;
        self.rounds.start(self.delivered_bytes);
        self.full_pipe.reset(sample.bytes_per_s());
        self.state = State::Up;
        self.raise_long_term_slope();
    }

    /// Implements UpdateProbeBWCyclePhase.
    pub(super) fn update_cycle(&mut self, now: Time, acked: &Acked, sample: &RateSample) {
        if !self.full_pipe.reached || self.adapt_long_term(acked, sample) {
            return;
        }
        let in_flight = acked.in_flight_bytes as u64;
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(now) => self.start_refill(),
            State::Down if self.is_time_to_cruise(in_flight) => self.state = State::Cruise,
            // One round trip fills the pipe again.
            State::Refill if self.rounds.started => {
                self.probing.samples = true;
                self.start_up(sample);
            }
            State::Up => self.go_down_if_due(now, in_flight, sample),
            _ => {}
        }
    }

    /// Implements AdaptLongTermModel. Returns whether it determined the next phase.
    fn adapt_long_term(&mut self, acked: &Acked, sample: &RateSample) -> bool {
        if self.rounds.started && self.probing.phase == AckPhase::Starting {
            self.probing.phase = AckPhase::Feedback;
        }
        if self.rounds.started && self.probing.phase == AckPhase::Stopping {
            self.probing.samples = false;
            self.probing.phase = AckPhase::None;
            if self.probes_bandwidth() && !sample.app_limited {
                self.max_rate.advance();
            }
            // A cautious probe has succeeded, so the next one may last.
            if self.probes_bandwidth() && self.probing.precautionary && !self.probing.too_high {
                self.start_refill();
                return true;
            }
        }
        let sent_in_flight = sample.sent_in_flight_bytes as u64;
        if !loses_too_much(sample.lost_bytes, sent_in_flight) && self.probing.in_flight_max_bytes != INFINITE
        {
            self.probing.in_flight_max_bytes = self.probing.in_flight_max_bytes.max(sent_in_flight);
            if self.state == State::Up {
                self.probe_upward(acked.bytes as u64);
            }
        }
        false
    }

    /// Implements HandleInflightTooHigh; has an effect once for each probe.
    pub(super) fn handle_too_high(&mut self, now: Time, in_flight_bytes: u64, app_limited: bool) {
        self.probing.too_high = true;
        self.probing.samples = false;
        if !app_limited {
            let floor = percent(self.target_in_flight(), BETA_PERCENT);
            self.probing.in_flight_max_bytes = in_flight_bytes.max(floor);
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_down(now);
        }
    }

    /// Implements ProbeInflightLongtermUpward.
    fn probe_upward(&mut self, acked_bytes: u64) {
        if !self.cwnd_limited || self.cwnd_bytes < self.probing.in_flight_max_bytes {
            return;
        }
        self.probing.acked_bytes += acked_bytes;
        let packets = self.probing.acked_bytes / self.probing.acked_per_packet_bytes;
        self.probing.acked_bytes -= packets * self.probing.acked_per_packet_bytes;
        self.probing.in_flight_max_bytes += packets * self.mtu_bytes;
        if self.rounds.started {
            self.raise_long_term_slope();
        }
    }

    /// Implements RaiseInflightLongtermSlope: one packet in the first round trip, then two, four, ...
    fn raise_long_term_slope(&mut self) {
        let growth = 1 << self.probing.growth_rounds;
        self.probing.growth_rounds = (self.probing.growth_rounds + 1).min(GROWTH_DOUBLINGS_MAX);
        self.probing.acked_per_packet_bytes = (self.cwnd_bytes / growth).max(self.mtu_bytes);
    }

    fn is_time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = (self.target_in_flight() / self.mtu_bytes).min(RENO_ROUNDS_MAX);
        now > self.probing.since + self.probing.wait || self.probing.rounds_since >= reno_rounds
    }

    fn is_time_to_cruise(&self, in_flight_bytes: u64) -> bool {
        in_flight_bytes <= self.in_flight_with_headroom()
            && in_flight_bytes <= self.quantize(self.bdp(self.max_rate.get(), 100))
    }

    fn go_down_if_due(&mut self, now: Time, in_flight_bytes: u64, sample: &RateSample) {
        let limit = self.probing.in_flight_max_bytes;
        if self.probing.too_high && in_flight_bytes >= limit {
            self.probing.precautionary = true;
        } else if self.cwnd_limited && self.cwnd_bytes >= limit {
            // The limit, and not the path, keeps the rate from growing.
            return self.full_pipe.reset(sample.bytes_per_s());
        } else if !self.full_pipe.now {
            return;
        }
        self.probing.too_high = false;
        self.start_down(now);
    }

    /// Implements PickProbeWait, at random, so that several senders do not probe together.
    fn pick_wait(&mut self, now: Time) {
        let random = mix(now.as_nanos() ^ self.delivered_bytes.rotate_left(32));
        self.probing.rounds_since = random & 1;
        self.probing.wait = WAIT_MIN + Duration::from_nanos((random >> 1) % WAIT_RANDOM_NS);
    }

    /// Implements InflightWithHeadroom.
    pub(super) fn in_flight_with_headroom(&self) -> u64 {
        let limit = self.probing.in_flight_max_bytes;
        if limit == INFINITE {
            return INFINITE;
        }
        let headroom = percent(limit, HEADROOM_PERCENT).max(self.mtu_bytes);
        (limit - headroom.min(limit)).max(self.window_bytes_min())
    }

    /// Implements TargetInflight.
    fn target_in_flight(&self) -> u64 {
        self.bdp(self.rate(), 100).min(self.cwnd_bytes)
    }
}

/// Returns pseudo-random bits (SplitMix64), the same in each run with the same seed.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_two_percent() {
        assert!(!loses_too_much(20, 1000));
        assert!(loses_too_much(21, 1000));
    }

    #[test]
    fn the_in_flight_volume_is_where_the_threshold_was_passed() {
        // 2 % of 100,000 bytes are 2000; with 1500 lost, 500 / 0.98 bytes more of the packet pass it.
        assert_eq!(in_flight_at_loss(10_000, 110_000, 11_500), 100_000 + 510);
        // Passed before.
        assert_eq!(in_flight_at_loss(1000, 101_000, 6000), 100_000);
    }
}
