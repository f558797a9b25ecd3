//! BBR version 3 (draft-ietf-ccwg-bbr-06).
//!
//! A model of the path, consisting of its rate and its round-trip time without a queue, determines the sending rate and
//! the data in flight. Losses limit the model only if they exceed 2 % of a round trip, and until the next probing.
//! Names in mixed case and with points are those of the draft; those of functions lack its prefix `BBR`.

mod model;
mod probe_bw;
mod windowed_max;

use std::time::Duration;

use self::model::{ExtraAcked, FullPipe, MaxRate, MinRtt, Rounds, ShortTerm};
use self::probe_bw::{AckPhase, Probing, in_flight_at_loss, loses_too_much};
use super::{Acked, Controller, LostPacket, RateSample, Signal};
use crate::packet_number::PacketNumber;
use crate::time::Time;

/// No bound.
const INFINITE: u64 = u64::MAX;

/// BBR.MinPipeCwnd, in packets.
const WINDOW_PACKETS_MIN: u64 = 4;
/// BBR.StartupPacingGain, in percent.
const STARTUP_PACING_PERCENT: u64 = 277;
/// BBR.ProbeRTTCwndGain, in percent.
const PROBE_RTT_CWND_PERCENT: u64 = 50;
/// BBR.ProbeRTTDuration.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// BBR.PacingMarginPercent: pacing stays this much below the rate, so that queues shrink.
const PACING_PERCENT: u64 = 99;
/// BBRStartupFullLossCnt: gaps in a round trip of Startup that end it.
const STARTUP_GAPS: u32 = 6;
/// Number of round trips after which Drain ends.
const DRAIN_ROUNDS_MAX: u64 = 3;
/// Maximum of C.send_quantum, which is the data of one millisecond. Three of them may be in flight beyond the model.
const QUANTUM_BYTES_MAX: u64 = 64 << 10;
const QUANTA: u64 = 3;
/// Assumed round-trip time before the first measurement (InitPacingRate).
const RTT_ASSUMED: Duration = Duration::from_millis(1);

/// State of the sender (§5.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Startup,
    Drain {
        start_round: u64,
    },
    Down,
    Cruise,
    Refill,
    Up,
    /// Known once little enough is in flight.
    ProbeRtt {
        done_at: Option<Time>,
        round_done: bool,
    },
}

impl State {
    /// Returns the pacing gain of the state (§5.6.1).
    fn pacing_percent(self) -> u64 {
        match self {
            State::Startup => STARTUP_PACING_PERCENT,
            State::Drain { .. } => 50,
            State::Down => 90,
            State::Cruise | State::Refill | State::ProbeRtt { .. } => 100,
            State::Up => 125,
        }
    }

    fn cwnd_percent(self) -> u64 {
        match self {
            State::Up => 225,
            State::ProbeRtt { .. } => PROBE_RTT_CWND_PERCENT,
            _ => 200,
        }
    }
}

/// The changes that a loss caused, kept until the loss can no longer turn out to be spurious (§5.5.11).
#[derive(Clone, Copy, Debug, Default)]
struct Undo {
    /// The state that the loss ended.
    state: Option<State>,
    short_term_rate: u64,
    short_term_in_flight_bytes: u64,
    in_flight_max_bytes: u64,
}

/// A controller with a model of the path.
#[derive(Debug)]
pub struct Bbr {
    mtu_bytes: u64,
    cwnd_bytes: u64,
    initial_cwnd_bytes: u64,
    /// The last window that neither a loss nor ProbeRtt had reduced.
    prior_cwnd_bytes: u64,
    /// `None` before the first round-trip time.
    pacing_bytes_per_s: Option<u64>,
    state: State,
    /// C.delivered.
    delivered_bytes: u64,
    rounds: Rounds,
    max_rate: MaxRate,
    min_rtt: MinRtt,
    extra_acked: ExtraAcked,
    full_pipe: FullPipe,
    short_term: ShortTerm,
    probing: Probing,
    undo: Undo,
    in_recovery: bool,
    idle_restart: bool,
    /// Samples of packets sent before this count of delivered bytes are low, because they stem from ProbeRtt.
    low_until_delivered: u64,
    /// Whether the application limited the last sample.
    app_limited: bool,
    /// Whether the window has held packets back in this round or the last.
    cwnd_limited: bool,
    cwnd_limited_now: bool,
    /// Number of gaps among the packets of this round.
    gaps: u32,
    last_lost: Option<PacketNumber>,
    /// The clocks start with the first event.
    started: bool,
}

impl Bbr {
    /// Returns a controller in Startup.
    pub fn new(mtu_bytes: usize, cwnd_bytes: usize) -> Self {
        Bbr {
            mtu_bytes: mtu_bytes as u64,
            initial_cwnd_bytes: cwnd_bytes as u64,
            cwnd_bytes: cwnd_bytes as u64,
            prior_cwnd_bytes: 0,
            pacing_bytes_per_s: None,
            state: State::Startup,
            delivered_bytes: 0,
            rounds: Rounds::default(),
            max_rate: MaxRate::default(),
            min_rtt: MinRtt::new(Time::ZERO),
            extra_acked: ExtraAcked::new(Time::ZERO),
            full_pipe: FullPipe::default(),
            short_term: ShortTerm::new(),
            probing: Probing::new(Time::ZERO),
            undo: Undo::default(),
            in_recovery: false,
            idle_restart: false,
            low_until_delivered: 0,
            app_limited: false,
            cwnd_limited: false,
            cwnd_limited_now: false,
            gaps: 0,
            last_lost: None,
            started: false,
        }
    }

    fn start_clocks(&mut self, now: Time) {
        if !self.started {
            self.started = true;
            self.min_rtt = MinRtt::new(now);
            self.extra_acked = ExtraAcked::new(now);
        }
    }

    /// Returns BBR.bw.
    fn rate(&self) -> u64 {
        self.max_rate.get().min(self.short_term.rate)
    }

    fn window_bytes_min(&self) -> u64 {
        WINDOW_PACKETS_MIN * self.mtu_bytes
    }

    /// Implements BDPMultiple.
    fn bdp(&self, rate: u64, gain_percent: u64) -> u64 {
        match self.min_rtt.get() {
            Some(rtt) => percent(bytes_in(rate, rtt), gain_percent),
            None => self.initial_cwnd_bytes,
        }
    }

    /// Implements QuantizationBudget.
    fn quantize(&self, bytes: u64) -> u64 {
        let pacing = self.pacing_bytes_per_s.unwrap_or_default();
        let quantum = (pacing / 1000).min(QUANTUM_BYTES_MAX).max(2 * self.mtu_bytes);
        let more = if self.state == State::Up { 2 * self.mtu_bytes } else { 0 };
        bytes.max(QUANTA * quantum).max(self.window_bytes_min()).saturating_add(more)
    }

    /// Implements UpdateModelAndState.
    fn update_model(&mut self, now: Time, acked: &Acked, sample: &RateSample) {
        self.short_term.begin_ack(sample);
        self.update_congestion_signals(sample);
        let (rate, round) = (self.rate(), self.rounds.count);
        self.extra_acked.update(
            now,
            acked.bytes as u64,
            rate,
            self.cwnd_bytes,
            round,
            self.full_pipe.reached,
        );
        self.full_pipe.update(sample, self.rounds.started);
        self.check_startup_done(sample);
        self.check_drain_done(now, acked);
        self.update_cycle(now, acked, sample);
        self.min_rtt.update(now, acked.rtt);
        self.check_probe_rtt(now, acked);
        self.short_term.end_ack(sample);
    }

    /// Implements UpdateCongestionSignals.
    fn update_congestion_signals(&mut self, sample: &RateSample) {
        self.rounds.update(sample);
        if self.rounds.started {
            self.probing.rounds_since += 1;
            self.cwnd_limited = std::mem::take(&mut self.cwnd_limited_now);
        }
        self.cwnd_limited |= self.cwnd_limited_now;
        self.max_rate.update(sample);
        if !self.short_term.round_started {
            return;
        }
        // A sender that probes measures the limits by probing.
        let probing = matches!(self.state, State::Startup | State::Refill | State::Up);
        if self.short_term.loss_in_round && !probing {
            self.short_term.lower(self.max_rate.get(), self.cwnd_bytes);
        }
        self.short_term.loss_in_round = false;
    }

    /// Implements CheckStartupDone.
    fn check_startup_done(&mut self, sample: &RateSample) {
        if self.state != State::Startup {
            return;
        }
        if self.short_term.round_started {
            let gaps = std::mem::take(&mut self.gaps);
            if self.in_recovery
                && gaps >= STARTUP_GAPS
                && loses_too_much(sample.lost_bytes, sample.sent_in_flight_bytes as u64)
            {
                self.end_startup();
            }
        }
        if self.full_pipe.reached {
            self.state = State::Drain { start_round: self.rounds.count };
        }
    }

    /// Losses show that the pipe is full (§5.3.1.3).
    fn end_startup(&mut self) {
        self.undo.state = Some(State::Startup);
        self.full_pipe.reached = true;
        self.probing.in_flight_max_bytes =
            self.bdp(self.max_rate.get(), 100).max(self.short_term.delivered_latest_bytes);
    }

    /// Implements CheckDrainDone.
    fn check_drain_done(&mut self, now: Time, acked: &Acked) {
        let State::Drain { start_round } = self.state else { return };
        let target = self.quantize(self.bdp(self.rate(), 100));
        if acked.in_flight_bytes as u64 <= target || self.rounds.count > start_round + DRAIN_ROUNDS_MAX {
            self.start_down(now);
        }
    }

    /// Implements CheckProbeRTT.
    fn check_probe_rtt(&mut self, now: Time, acked: &Acked) {
        let probing = matches!(self.state, State::ProbeRtt { .. });
        if !probing && self.min_rtt.expired && !self.idle_restart {
            self.save_cwnd();
            // A probe that ends here has measured, too. If its cycle did not count, as in the draft, a rate that was
            // once measured too high could stay forever.
            if self.state == State::Up {
                self.max_rate.advance();
            }
            self.state = State::ProbeRtt { done_at: None, round_done: false };
            self.probing.phase = AckPhase::Stopping;
            self.rounds.start(self.delivered_bytes);
        }
        self.handle_probe_rtt(now, acked.in_flight_bytes as u64);
        self.idle_restart = false;
    }

    fn handle_probe_rtt(&mut self, now: Time, in_flight_bytes: u64) {
        let State::ProbeRtt { done_at, round_done } = self.state else { return };
        self.low_until_delivered = self.delivered_bytes + in_flight_bytes;
        if done_at.is_some() {
            let round_done = round_done || self.rounds.started;
            self.state = State::ProbeRtt { done_at, round_done };
            if round_done {
                self.check_probe_rtt_done(now);
            }
        } else if in_flight_bytes <= self.probe_rtt_window() {
            self.state = State::ProbeRtt { done_at: Some(now + PROBE_RTT_DURATION), round_done: false };
            self.rounds.start(self.delivered_bytes);
        }
    }

    fn check_probe_rtt_done(&mut self, now: Time) {
        let State::ProbeRtt { done_at: Some(done_at), .. } = self.state else { return };
        if now <= done_at {
            return;
        }
        self.min_rtt.restart_interval(now);
        self.restore_cwnd();
        self.short_term.unbound();
        if self.full_pipe.reached {
            self.start_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    fn probe_rtt_window(&self) -> u64 {
        self.bdp(self.rate(), PROBE_RTT_CWND_PERCENT).max(self.window_bytes_min())
    }

    fn save_cwnd(&mut self) {
        let touched = self.in_recovery || matches!(self.state, State::ProbeRtt { .. });
        self.prior_cwnd_bytes =
            if touched { self.prior_cwnd_bytes.max(self.cwnd_bytes) } else { self.cwnd_bytes };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd_bytes = self.cwnd_bytes.max(self.prior_cwnd_bytes);
    }

    /// Implements SaveStateUponLoss.
    fn save_state(&mut self) {
        self.save_cwnd();
        self.undo = Undo {
            state: None,
            short_term_rate: self.short_term.rate,
            short_term_in_flight_bytes: self.short_term.in_flight_bytes,
            in_flight_max_bytes: self.probing.in_flight_max_bytes,
        };
    }

    /// Implements NoteLoss.
    fn note_loss(&mut self) {
        if !self.short_term.loss_in_round {
            self.save_state();
        }
        self.short_term.note_loss(self.delivered_bytes);
    }

    /// Implements SetPacingRateWithGain.
    fn set_pacing(&mut self, gain_percent: u64) {
        let rate = percent(percent(self.rate(), gain_percent), PACING_PERCENT);
        if rate > 0 && (self.full_pipe.reached || self.pacing_bytes_per_s.is_none_or(|now| rate > now)) {
            self.pacing_bytes_per_s = Some(rate);
        }
    }

    /// Implements InitPacingRate.
    fn first_pacing(&self, srtt: Option<Duration>) -> u64 {
        let window = percent(self.initial_cwnd_bytes, STARTUP_PACING_PERCENT);
        let ns = srtt.unwrap_or(RTT_ASSUMED).as_nanos().max(1);
        u64::try_from(u128::from(window) * 1_000_000_000 / ns).unwrap_or(u64::MAX)
    }

    /// Implements SetCwnd.
    fn set_cwnd(&mut self, acked_bytes: u64) {
        let model = self.bdp(self.rate(), self.state.cwnd_percent()).saturating_add(self.extra_acked.get());
        let max = self.quantize(model);
        if self.full_pipe.reached {
            self.cwnd_bytes = self.cwnd_bytes.saturating_add(acked_bytes).min(max);
        } else if self.cwnd_bytes < max || self.delivered_bytes < self.initial_cwnd_bytes {
            self.cwnd_bytes = self.cwnd_bytes.saturating_add(acked_bytes);
        }
        self.cwnd_bytes = self.cwnd_bytes.max(self.window_bytes_min());
        if matches!(self.state, State::ProbeRtt { .. }) {
            self.cwnd_bytes = self.cwnd_bytes.min(self.probe_rtt_window());
        }
        self.bound_cwnd();
    }

    /// Implements BoundCwndForModel.
    fn bound_cwnd(&mut self) {
        let long_term = match self.state {
            State::Startup | State::Drain { .. } => INFINITE,
            State::Down | State::Refill | State::Up => self.probing.in_flight_max_bytes,
            State::Cruise | State::ProbeRtt { .. } => self.in_flight_with_headroom(),
        };
        let cap = long_term.min(self.short_term.in_flight_bytes).max(self.window_bytes_min());
        self.cwnd_bytes = self.cwnd_bytes.min(cap);
    }
}

impl Controller for Bbr {
    fn cwnd_bytes(&self) -> usize {
        usize::try_from(self.cwnd_bytes).unwrap_or(usize::MAX)
    }

    fn ssthresh_bytes(&self) -> usize {
        usize::MAX
    }

    fn pacing_bytes_per_s(&self, srtt: Option<Duration>) -> Option<u64> {
        Some(self.pacing_bytes_per_s.unwrap_or_else(|| self.first_pacing(srtt)))
    }

    fn on_sent(&mut self, now: Time, bytes: usize, in_flight_bytes: usize, app_limited: bool) {
        self.start_clocks(now);
        self.cwnd_limited_now |= in_flight_bytes as u64 + self.mtu_bytes > self.cwnd_bytes;
        if in_flight_bytes > bytes || !app_limited {
            return;
        }
        // HandleRestartFromIdle (§5.4.1).
        self.idle_restart = true;
        self.extra_acked.restart(now);
        if self.probes_bandwidth() {
            self.set_pacing(100);
        } else {
            self.check_probe_rtt_done(now);
        }
    }

    fn on_acked(&mut self, now: Time, acked: &Acked) {
        self.start_clocks(now);
        if self.pacing_bytes_per_s.is_none() && acked.srtt.is_some() {
            self.pacing_bytes_per_s = Some(self.first_pacing(acked.srtt));
        }
        if let Some(mut sample) = acked.rate {
            self.delivered_bytes = sample.total_delivered_bytes;
            sample.app_limited |= sample.prior_delivered_bytes < self.low_until_delivered;
            self.app_limited = sample.app_limited;
            self.update_model(now, acked, &sample);
        }
        self.set_pacing(self.state.pacing_percent());
        self.set_cwnd(acked.bytes as u64);
    }

    fn on_packet_lost(&mut self, now: Time, lost: &LostPacket) {
        self.note_loss();
        if self.last_lost.is_none_or(|last| lost.number != last.next()) {
            self.gaps += 1;
        }
        self.last_lost = Some(lost.number);
        let sent_in_flight = lost.sent_in_flight_bytes as u64;
        if self.probing.samples && loses_too_much(lost.lost_bytes, sent_in_flight) {
            let in_flight = in_flight_at_loss(lost.bytes as u64, sent_in_flight, lost.lost_bytes);
            self.handle_too_high(now, in_flight, lost.app_limited);
        }
    }

    fn on_congestion(&mut self, now: Time, signal: Signal, in_flight_bytes: usize) {
        match signal {
            Signal::Loss => {
                self.save_cwnd();
                self.in_recovery = true;
            }
            // §3.7: a mark is congestion, as a loss rate above the threshold is.
            Signal::Ecn => {
                self.note_loss();
                if self.state == State::Startup {
                    self.end_startup();
                } else if self.probing.samples {
                    self.handle_too_high(now, in_flight_bytes as u64, self.app_limited);
                }
            }
        }
    }

    fn on_recovered(&mut self, _now: Time) {
        self.in_recovery = false;
        self.restore_cwnd();
    }

    fn on_timeout(&mut self, _now: Time, _in_flight_bytes: usize) {
        self.note_loss();
        self.save_state();
        self.in_recovery = true;
        self.cwnd_bytes = self.mtu_bytes;
    }

    /// Implements HandleSpuriousLossDetection.
    fn undo(&mut self, _now: Time) {
        self.in_recovery = false;
        self.restore_cwnd();
        self.short_term.loss_in_round = false;
        self.full_pipe.reset(0);
        let undo = std::mem::take(&mut self.undo);
        self.short_term.rate = self.short_term.rate.max(undo.short_term_rate);
        self.short_term.in_flight_bytes =
            self.short_term.in_flight_bytes.max(undo.short_term_in_flight_bytes);
        self.probing.in_flight_max_bytes = self.probing.in_flight_max_bytes.max(undo.in_flight_max_bytes);
        let probing_rtt = matches!(self.state, State::ProbeRtt { .. });
        match undo.state {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_pipe.reached = false;
                if !probing_rtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && !probing_rtt => self.start_refill(),
            _ => {}
        }
    }

    /// Handles a pause, which shows nothing about the path: later packets are paced at its rate (§5.4).
    fn on_idle(&mut self) {}

    fn set_mtu(&mut self, mtu_bytes: usize) {
        self.mtu_bytes = mtu_bytes as u64;
    }

    fn reduces_proportionally(&self) -> bool {
        false
    }
}

/// Returns a percentage of a number.
fn percent(of: u64, percent: u64) -> u64 {
    if of == INFINITE {
        return INFINITE;
    }
    u64::try_from(u128::from(of) * u128::from(percent) / 100).unwrap_or(INFINITE)
}

/// Returns the bytes that a rate delivers in a time.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(INFINITE)
}
