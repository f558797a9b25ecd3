//! Failure and return of a path (RFC 9260 §8.2, RFC 7829): passes each event on to the owners that it concerns.

use std::time::Duration;

use super::Path;
use crate::config::AssociationConfig;
use crate::packet_number::PacketNumber;
use crate::path_state::PathState;
use crate::time::Time;

impl Path {
    /// Confirms the address: the user has named it, or the handshake has passed there (RFC 9260 §5.4).
    pub(crate) fn confirm(&mut self) {
        self.reachability.confirm();
    }

    /// Returns whether the path has exceeded Path.Max.Retrans.
    pub(crate) fn retries_exceeded(&self) -> bool {
        self.reachability.retries_exceeded(&self.settings)
    }

    /// Counts a packet that was not answered as an error of the path. Returns the state to which the path falls by that. It is
    /// potentially failed only if data has another path (`has_other`).
    pub(crate) fn on_unanswered(&mut self, has_other: bool) -> Option<PathState> {
        self.reachability.on_unanswered(&self.settings, has_other)
    }

    /// Handles an answer of a path that data nevertheless avoids ([`Path::is_held`]).
    pub(crate) fn on_answer_while_held(&mut self) {
        self.reachability.on_sign_of_life();
    }

    /// Returns when the path has been silent for too long: since the oldest unanswered packet, or since a heartbeat.
    #[inline]
    pub(crate) fn silent_at(&self, sack_delay: Duration) -> Option<Time> {
        let patience = self.silence.patience(self.rto.srtt()?, self.rto.unbounded());
        let data = self.flight.sack_due_at(self.first_unanswered(), sack_delay);
        let data = data.filter(|_| !self.flight.is_empty());
        let asked_at = [data, self.heartbeat.awaited_since()].into_iter().flatten().min();
        asked_at.map(|asked_at| asked_at + patience)
    }

    /// Returns the oldest packet that may be in flight and after which nothing has arrived.
    #[inline]
    pub(crate) fn first_unanswered(&self) -> PacketNumber {
        self.flight.first_unanswered(self.rack.newest())
    }

    /// Records that every packet before `number` was answered.
    pub(crate) fn on_answered_before(&mut self, number: PacketNumber) {
        self.flight.on_answered_before(number);
    }

    /// Suspects the path, which has been silent for too long. Data avoids it, if another path is active.
    pub(crate) fn suspect(&mut self) {
        self.reachability.suspect();
    }

    /// Marks the only usable path as suspected. Frequent heartbeats probe it once `wait` has passed.
    pub(crate) fn suspect_alone(&mut self, now: Time, wait: Duration) {
        self.suspect();
        self.note_silence(now, true);
        self.heartbeat.schedule(Some(now + wait));
    }

    /// Records that data avoids the path from now on. Returns whether it did not before; the caller then moves the data in
    /// flight.
    pub(crate) fn on_avoided(&mut self, now: Time) -> bool {
        let is_news = self.note_silence(now, !self.flight.is_empty());
        if is_news {
            self.heartbeat.schedule(Some(now));
        }
        is_news
    }

    /// Marks the path as silent. `has_data`: data waits for its answer. Returns whether it was not marked before.
    fn note_silence(&mut self, now: Time, has_data: bool) -> bool {
        let delivered_bytes = has_data.then(|| self.delivery.delivered_bytes());
        let news = self.silence.begin(now, delivered_bytes);
        self.counts.early_failovers += u64::from(news);
        news
    }

    /// Returns whether data is in flight on a path that has answered before without delivering data afterwards.
    pub(crate) fn answers_without_delivering(&self) -> bool {
        self.silence.answers_without_delivering() && self.flight.t3().is_some()
    }

    /// Returns whether data avoids the path although it has answered a heartbeat.
    pub(crate) fn is_held(&self, now: Time) -> bool {
        self.silence.holds(now)
    }

    /// Handles an answer to a packet sent at `asked_at`: the path is active from now on. Returns its previous state.
    pub(crate) fn on_answer(&mut self, now: Time, asked_at: Time) -> PathState {
        self.counts.early_failovers_spurious += u64::from(self.silence.end(now, asked_at));
        let before = self.reachability.on_answer();
        if !matches!(before, PathState::Unconfirmed | PathState::Active) {
            self.rto.mark_stale(now);
            self.heartbeat.stop_waiting();
            self.discovery.on_silence_ended();
        }
        before
    }

    /// Resumes sending on a path that has just answered a packet sent at `asked_at`: probes the tail of the flight at once,
    /// unless it was sent later than that. The answer to this packet shows the other losses.
    pub(crate) fn resume(&mut self, now: Time, asked_at: Time, config: &AssociationConfig) {
        self.flight.on_silence_ended(now + self.rto.current());
        self.recovery.on_path_answered();
        self.plan_tail_loss_probe(now, config);
        if !self.flight.is_empty() && self.flight.last_sent_at() < asked_at {
            self.flight.probe_at_once();
        }
    }

    /// Checks after unanswered packets were declared lost whether the path may no longer support their length.
    pub(crate) fn check_black_hole(&mut self) {
        let was_long = self.flight.packets().any(|(_, packet)| packet.long);
        if was_long && self.discovery.on_silence() {
            self.set_mtu(self.discovery.size_bytes());
        }
    }
}
