//! BBR's model of a path (draft-ietf-ccwg-bbr §5.5): rounds, rate, delay, aggregation of acknowledgements, and the
//! outcome of the last round with a loss.

use std::time::Duration;

use super::windowed_max::WindowedMax;
use super::{INFINITE, percent};
use crate::congestion::RateSample;
use crate::time::Time;

/// BBR.Beta, in percent.
pub(super) const BETA_PERCENT: u64 = 70;
/// BBR.MinRTTFilterLen and BBR.ProbeRTTInterval.
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// BBR.ExtraAckedFilterLen, in rounds; one round in Startup.
const EXTRA_ACKED_ROUNDS: u64 = 10;
/// A rate that has grown by less than a quarter in three rounds has reached its limit (§5.3.1.2).
const FULL_RATE_GROWTH_PERCENT: u64 = 125;
const FULL_RATE_ROUNDS: u32 = 3;

/// Round trips counted by packets (§5.5.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    next_round_delivered: u64,
    /// Whether the current acknowledgement began a round.
    pub(super) started: bool,
    pub(super) count: u64,
}

impl Rounds {
    pub(super) fn update(&mut self, sample: &RateSample) {
        self.started = sample.prior_delivered_bytes >= self.next_round_delivered;
        if self.started {
            self.start(sample.total_delivered_bytes);
            self.count += 1;
        }
    }

    pub(super) fn start(&mut self, delivered_bytes: u64) {
        self.next_round_delivered = delivered_bytes;
    }
}

/// BBR.max_bw: the highest rate of this cycle of probing and the one before (§5.5.5).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxRate {
    before: u64,
    now: u64,
}

impl MaxRate {
    pub(super) fn get(&self) -> u64 {
        self.before.max(self.now)
    }

    /// Updates the maximum. A rate limited by the application counts only if it is higher than the known one (§5.5.4).
    pub(super) fn update(&mut self, sample: &RateSample) {
        let rate = sample.bytes_per_s();
        if rate >= self.get() || !sample.app_limited {
            self.now = self.now.max(rate);
        }
    }

    /// Ends a cycle of probing. A cycle without a measurement does not count.
    pub(super) fn advance(&mut self) {
        if self.now > 0 {
            self.before = self.now;
            self.now = 0;
        }
    }
}

/// BBR.min_rtt, and the time to measure it again with an empty queue (§5.3.4.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    min: Option<Duration>,
    seen_at: Time,
    probe_min: Option<Duration>,
    probe_seen_at: Time,
    /// Whether the last measurement is five seconds old.
    pub(super) expired: bool,
}

impl MinRtt {
    pub(super) fn new(now: Time) -> Self {
        MinRtt { min: None, seen_at: now, probe_min: None, probe_seen_at: now, expired: false }
    }

    pub(super) fn get(&self) -> Option<Duration> {
        self.min
    }

    pub(super) fn update(&mut self, now: Time, rtt: Option<Duration>) {
        self.expired = now > self.probe_seen_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt
            && (self.expired || self.probe_min.is_none_or(|min| rtt < min))
        {
            self.probe_min = Some(rtt);
            self.probe_seen_at = now;
        }
        let Some(probed) = self.probe_min else { return };
        if self.min.is_none_or(|min| probed < min) || now > self.seen_at + MIN_RTT_FILTER {
            self.min = Some(probed);
            self.seen_at = self.probe_seen_at;
        }
    }

    /// Restarts the interval, because the queue was just empty.
    pub(super) fn restart_interval(&mut self, now: Time) {
        self.probe_seen_at = now;
    }
}

/// BBR.extra_acked: number of bytes acknowledged at once beyond those that the rate explains (§5.5.9).
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtraAcked {
    interval_start: Time,
    delivered_bytes: u64,
    filter: WindowedMax,
}

impl ExtraAcked {
    pub(super) fn new(now: Time) -> Self {
        ExtraAcked { interval_start: now, delivered_bytes: 0, filter: WindowedMax::default() }
    }

    pub(super) fn get(&self) -> u64 {
        self.filter.get()
    }

    pub(super) fn restart(&mut self, now: Time) {
        self.interval_start = now;
    }

    pub(super) fn update(
        &mut self,
        now: Time,
        acked_bytes: u64,
        rate: u64,
        cwnd_bytes: u64,
        round: u64,
        full: bool,
    ) {
        let mut expected = super::bytes_in(rate, now.saturating_since(self.interval_start));
        if self.delivered_bytes <= expected {
            self.delivered_bytes = 0;
            self.interval_start = now;
            expected = 0;
        }
        self.delivered_bytes += acked_bytes;
        let extra = (self.delivered_bytes - expected).min(cwnd_bytes);
        self.filter.update(if full { EXTRA_ACKED_ROUNDS } else { 1 }, round, extra);
    }
}

/// Whether the rate has stopped growing (§5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    rate: u64,
    rounds: u32,
    /// BBR.full_bw_now.
    pub(super) now: bool,
    /// BBR.full_bw_reached: once, at least.
    pub(super) reached: bool,
}

impl FullPipe {
    pub(super) fn reset(&mut self, rate: u64) {
        *self = FullPipe { rate, reached: self.reached, ..FullPipe::default() };
    }

    pub(super) fn update(&mut self, sample: &RateSample, round_started: bool) {
        if self.now || !round_started || sample.app_limited {
            return;
        }
        let rate = sample.bytes_per_s();
        if rate >= percent(self.rate, FULL_RATE_GROWTH_PERCENT) {
            self.reset(rate);
            return;
        }
        self.rounds += 1;
        self.now = self.rounds >= FULL_RATE_ROUNDS;
        self.reached |= self.now;
    }
}

/// The short-term model (§5.5.10.3): the data delivered in a round with losses limits sending until the next probing.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortTerm {
    /// BBR.bw_shortterm and BBR.inflight_shortterm.
    pub(super) rate: u64,
    pub(super) in_flight_bytes: u64,
    rate_latest: u64,
    /// BBR.inflight_latest.
    pub(super) delivered_latest_bytes: u64,
    pub(super) loss_in_round: bool,
    loss_round_delivered: u64,
    /// Whether the current acknowledgement ended a round of losses.
    pub(super) round_started: bool,
}

impl ShortTerm {
    pub(super) fn new() -> Self {
        ShortTerm {
            rate: INFINITE,
            in_flight_bytes: INFINITE,
            rate_latest: 0,
            delivered_latest_bytes: 0,
            loss_in_round: false,
            loss_round_delivered: 0,
            round_started: false,
        }
    }

    /// Implements UpdateLatestDeliverySignals.
    pub(super) fn begin_ack(&mut self, sample: &RateSample) {
        self.rate_latest = self.rate_latest.max(sample.bytes_per_s());
        self.delivered_latest_bytes = self.delivered_latest_bytes.max(sample.delivered_bytes);
        self.round_started = sample.prior_delivered_bytes >= self.loss_round_delivered;
        if self.round_started {
            self.loss_round_delivered = sample.total_delivered_bytes;
        }
    }

    /// Implements AdvanceLatestDeliverySignals.
    pub(super) fn end_ack(&mut self, sample: &RateSample) {
        if self.round_started {
            self.rate_latest = sample.bytes_per_s();
            self.delivered_latest_bytes = sample.delivered_bytes;
        }
    }

    /// Records a loss: the first one of a round ends the round one round trip from now.
    pub(super) fn note_loss(&mut self, delivered_bytes: u64) {
        if !self.loss_in_round {
            self.loss_round_delivered = delivered_bytes;
        }
        self.loss_in_round = true;
    }

    /// InitLowerBounds and LossLowerBounds.
    pub(super) fn lower(&mut self, max_rate: u64, cwnd_bytes: u64) {
        if self.rate == INFINITE {
            self.rate = max_rate;
        }
        if self.in_flight_bytes == INFINITE {
            self.in_flight_bytes = cwnd_bytes;
        }
        self.rate = self.rate_latest.max(percent(self.rate, BETA_PERCENT));
        self.in_flight_bytes = self.delivered_latest_bytes.max(percent(self.in_flight_bytes, BETA_PERCENT));
    }

    /// Implements ResetShortTermModel.
    pub(super) fn unbound(&mut self) {
        self.rate = INFINITE;
        self.in_flight_bytes = INFINITE;
    }

    /// Implements ResetCongestionSignals.
    pub(super) fn forget_round(&mut self) {
        self.loss_in_round = false;
        self.rate_latest = 0;
        self.delivered_latest_bytes = 0;
    }
}
