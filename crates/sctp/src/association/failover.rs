//! Failure and return of paths (RFC 9260 §8.1, §8.2, RFC 7829).
//!
//! A path fails in three steps: it is suspected when it has been silent for longer than a round trip takes, potentially failed
//! after the first timeout, and inactive after Path.Max.Retrans further ones. Data avoids it from the first step on if another
//! path is active; otherwise data stays and waits for an answer. An answer makes the path active again.

use std::time::Duration;

use sctp_message::PathId;

use super::{Association, Context};
use crate::event::{Host, PathChange, PathReason};
use crate::path_state::PathState;
use crate::time::Time;

impl Association {
    /// Returns the path for data while the primary path takes none: an active path, or the one that is most likely to
    /// return.
    #[cold]
    pub(super) fn alternate_path(&self) -> PathId {
        let primary = self.paths.primary();
        let all = std::iter::once(primary).chain(self.paths.others(primary));
        all.min_by_key(|&id| self.paths[id].failover_rank()).unwrap_or(primary)
    }

    /// Returns the path of a SACK without data: the one that DATA came on (RFC 9260 §6.4), or another one if that path does
    /// not answer.
    pub(super) fn sack_path(&self) -> PathId {
        match self.paths[self.paths.reply()].state() {
            PathState::Active | PathState::Unconfirmed => self.paths.reply(),
            PathState::Suspected | PathState::PotentiallyFailed | PathState::Inactive => self.data_path(),
        }
    }

    /// Returns when a path has been silent for too long, if data could take another one.
    #[inline]
    pub(super) fn path_failure_at(&self, path_id: PathId) -> Option<Time> {
        if self.paths.len() < 2 || !self.config.early_failover || !self.paths[path_id].takes_data() {
            return None;
        }
        self.silence_ends(path_id)
    }

    fn silence_ends(&self, path_id: PathId) -> Option<Time> {
        let may_move = self.expects_answers() && self.has_other_for_data(path_id);
        if may_move { self.paths[path_id].silent_at(self.config.sack_delay) } else { None }
    }

    /// Returns whether another path takes data.
    fn has_other_for_data(&self, path_id: PathId) -> bool {
        self.paths.others(path_id).any(|other| self.paths[other].takes_data())
    }

    /// Returns whether silence indicates a failure: the peer should answer data. It need not answer a probe of its closed window.
    fn expects_answers(&self) -> bool {
        self.is_set_up() && self.may_carry_data() && !self.outbound.probes_window()
    }

    /// Returns when the next path has been silent for too long.
    #[inline]
    pub(super) fn next_path_failure(&self) -> Option<Time> {
        if self.paths.len() < 2 {
            return None;
        }
        self.paths.ids().filter_map(|path_id| self.path_failure_at(path_id)).min()
    }

    /// Handles the timer of a silent path: searches its packets for one that is unanswered.
    pub(super) fn handle_silence<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        let path = &mut self.paths[path_id];
        path.on_answered_before(self.outbound.first_in_flight(path));
        if self.path_failure_at(path_id).is_some_and(|at| at <= cx.now) {
            self.paths[path_id].suspect();
            self.avoid_path(cx, path_id);
        }
    }

    /// Moves data from a path that fell silent to others, and probes it at once and often.
    fn avoid_path<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        let path = &mut self.paths[path_id];
        if path.on_avoided(cx.now) {
            self.outbound.reassign_flight(path);
            path.check_black_hole();
        }
    }

    /// Sends heartbeats on a path that has answered neither data nor its tail loss probes, if no other path can take its data:
    /// after `wait`, and then often. T3 continues; its back-off alone would hold the data long after the path is back.
    pub(super) fn probe_only_path<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        wait: Duration,
    ) {
        let is_only = self.expects_answers() && !self.has_other_for_data(path_id);
        if is_only && self.config.early_failover && self.paths[path_id].takes_data() {
            self.paths[path_id].suspect_alone(cx.now, wait);
        }
    }

    /// Counts an error of a path that gave no answer, after the caller has counted errors of the peer (RFC 9260 §8.1, §8.2).
    pub(super) fn count_error<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        // A peer without our cookie would answer a HEARTBEAT with ABORT.
        let is_confirmed = |other: PathId| self.paths[other].state() != PathState::Unconfirmed;
        let has_other = self.is_set_up() && self.paths.others(path_id).any(is_confirmed);
        match self.paths[path_id].on_unanswered(has_other) {
            Some(PathState::Inactive) => {
                self.tell_path(cx, path_id, PathChange::Unreachable, PathReason::Unanswered);
            }
            Some(_) => self.avoid_path(cx, path_id),
            None => {}
        }
        if self.errors.exceed(self.config.association_retries_max) {
            self.abort_unresponsive(cx);
        }
    }

    /// Handles a SACK for data that was sent on a path. `sent_at`: when the data was sent, if this path carried both the data and
    /// the SACK, and so works in both directions.
    pub(super) fn path_acknowledged<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        sent_at: Option<Time>,
    ) {
        match (self.paths[path_id].state(), sent_at) {
            // RFC 9260 §8.2.
            (PathState::Inactive, _) => self.path_answered(cx, path_id, cx.now, PathReason::Acknowledged),
            // A retransmission cannot have arrived elsewhere.
            (PathState::Suspected, None) if self.paths.len() == 1 => {
                self.path_answered(cx, path_id, cx.now, PathReason::Acknowledged);
            }
            // RFC 7829 §5.1: a retransmission does not count.
            (PathState::Suspected | PathState::PotentiallyFailed, Some(sent_at)) => {
                self.path_answered(cx, path_id, sent_at, PathReason::Acknowledged);
            }
            _ => {}
        }
    }

    /// Handles an answer to a packet sent on a path at `asked_at`: data may take the path again.
    pub(super) fn path_answered<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        asked_at: Time,
        reason: PathReason,
    ) {
        if !self.paths[path_id].takes_data() {
            self.reassign_from_failed_paths(path_id, asked_at);
        }
        let old = self.paths[path_id].on_answer(cx.now, asked_at);
        if old == PathState::Suspected && reason == PathReason::Heartbeat && self.carries_data(path_id) {
            self.paths[path_id].resume(cx.now, asked_at, &self.config);
        }
        match old {
            PathState::Unconfirmed => {
                self.paths.on_confirmed();
                self.tell_path(cx, path_id, PathChange::Confirmed, reason);
            }
            PathState::Inactive => self.tell_path(cx, path_id, PathChange::Available, reason),
            PathState::Active | PathState::Suspected | PathState::PotentiallyFailed => {}
        }
        self.schedule_heartbeat(cx, path_id);
    }

    /// Moves data away from failed paths on which it was tried, because another failed path has answered a packet sent at
    /// `asked_at`; so the data need not wait for their timers. A path that was merely suspected keeps its data: no timeout has
    /// reduced its window, so its data in flight must not be sent again all at once.
    fn reassign_from_failed_paths(&mut self, answered: PathId, asked_at: Time) {
        for path in &mut self.paths {
            let keeps = path.state() == PathState::Suspected || path.last_sent_at() >= asked_at;
            let in_vain = path.id() != answered || !keeps;
            if !path.takes_data() && path.in_flight_bytes() > 0 && in_vain {
                self.outbound.reassign_flight(path);
            }
        }
    }
}
