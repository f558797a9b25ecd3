//! The association's timers: T1, T2, T3, the loss timer, tail loss probes, the pacer, the delayed SACK, heartbeats,
//! autoclose. They share one deadline.

use std::time::Duration;

use super::{Association, Context, State};
use crate::event::Host;
use crate::path::{Expired, PROBE_INTERVAL, Path};
use crate::time::Time;
use crate::trace::Probe;

impl Association {
    /// Returns when `handle_timeout` must be called next.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let state = match &self.state {
            State::CookieWait { t1 } | State::CookieEchoed { t1, .. } => Some(t1.at),
            State::ShutdownSent { t2, t5_at } => Some(t2.at.min(*t5_at)),
            State::ShutdownAckSent { t2 } => Some(t2.at),
            State::Closed { .. } => return self.returns_at(),
            State::Established | State::ShutdownPending | State::ShutdownReceived => None,
        };
        let ack = self.inbound.as_ref().and_then(|i| i.ack_deadline());
        let probe = self.outbound.probe_at().filter(|_| self.may_carry_data());
        let paths = Time::earliest(self.paths.iter().map(Path::deadline));
        let others = [self.discards_at(), self.next_path_failure(), self.pacers_open_at(), self.closes_at()];
        let expiry = Time::earliest([state, ack, probe, paths].into_iter().chain(others));
        // All timers wait for that of the pacer's place.
        let expiry = expiry.map(|at| at.max(self.paced_until.unwrap_or(at)));
        Time::earliest([expiry, self.returns_at()])
    }

    /// Returns when the next timer expires that sends a packet again.
    fn repeats_at(&self) -> Option<Time> {
        let state = match &self.state {
            State::CookieWait { t1 } | State::CookieEchoed { t1, .. } => Some(t1.at),
            State::ShutdownSent { t2, .. } | State::ShutdownAckSent { t2 } => Some(t2.at),
            _ => None,
        };
        let probe = self.outbound.probe_at().filter(|_| self.may_carry_data());
        let of_path = |path: &Path| Time::earliest([path.t3(), path.heartbeat_at()]);
        Time::earliest([state, probe].into_iter().chain(self.paths.iter().map(of_path)))
    }

    /// Takes a place of the pacer for a timer that sends a packet again, if one has expired. Returns whether the timers must
    /// wait for that place.
    fn waits_for_pacer(&mut self, now: Time) -> bool {
        let Some(pacer) = &self.config.timeout_pacer else { return false };
        let place = match self.paced_until {
            Some(place) => place,
            None if self.repeats_at().is_some_and(|at| at <= now) => pacer.take(now),
            None => return false,
        };
        self.paced_until = (place > now).then_some(place);
        self.paced_until.is_some()
    }

    /// Returns when the association has been idle for so long that it is shut down (SCTP_AUTOCLOSE).
    #[inline]
    fn closes_at(&self) -> Option<Time> {
        let patience = self.config.autoclose?;
        if !matches!(self.state, State::Established) {
            return None;
        }
        let sent_at = self.paths.iter().map(|path| path.last_sent_at()).max();
        Some(sent_at.map_or(self.last_data_at, |sent_at| sent_at.max(self.last_data_at)) + patience)
    }

    /// Returns when the next pacer that holds data back opens.
    fn pacers_open_at(&self) -> Option<Time> {
        if !self.outbound.has_waiting() {
            return None;
        }
        if self.outbound.is_multipath() {
            let usable = self.paths.iter().filter(|path| path.takes_data());
            return usable.filter_map(Path::pacer_opens_at).min();
        }
        self.paths[self.next_data_path()].pacer_opens_at()
    }

    /// Handles all expired timers. Returns whether messages returned to the user, which takes as long as many timers.
    pub(crate) fn handle_timeout<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) -> bool {
        let now = cx.now;
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let mut has_returned = due(self.returns_at());
        if has_returned {
            self.return_given_up(cx);
        }
        if self.is_closed() || self.waits_for_pacer(now) {
            return has_returned;
        }
        if let Some(inbound) = &mut self.inbound
            && due(inbound.ack_deadline())
        {
            inbound.ack_timer_expired();
        }
        if !has_returned && due(self.discards_at()) {
            has_returned = true;
            self.discard_expired(cx);
        }
        if due(self.outbound.probe_at()) {
            self.outbound.on_window_probe_timer();
            let data_path = self.data_path();
            self.paths[data_path].note_probe(now, Probe::Window);
        }
        match &self.state {
            State::CookieWait { t1 } | State::CookieEchoed { t1, .. } if t1.at <= cx.now => {
                self.retry_setup(cx);
            }
            State::ShutdownSent { t5_at, .. } if *t5_at <= cx.now => self.abort_unfinished_shutdown(cx),
            State::ShutdownSent { t2, .. } | State::ShutdownAckSent { t2 } if t2.at <= cx.now => {
                self.retry_shutdown(cx);
            }
            _ => {}
        }
        if due(self.closes_at()) {
            self.shutdown(cx);
        }
        for path_id in 0..self.paths.len() {
            // Any of these timers may have ended the association.
            if !self.is_closed() && due(self.paths[path_id].t3()) {
                self.handle_t3(cx, path_id);
            }
            if due(self.paths[path_id].loss_timer()) {
                self.handle_loss_timer(cx.now, path_id);
            }
            if due(self.paths[path_id].tail_loss_probe_at()) {
                self.handle_tail_loss_probe_timer(cx, path_id);
            }
            if due(self.paths[path_id].pacer_opens_at()) {
                self.paths[path_id].tick_pacer(cx.now);
            }
            if !self.is_closed() && due(self.path_failure_at(path_id)) {
                self.handle_silence(cx, path_id);
            }
            if !self.is_closed() && due(self.paths[path_id].answer_by()) {
                self.handle_unanswered_heartbeat(cx, path_id);
            }
            if !self.is_closed() && due(self.paths[path_id].heartbeat_at()) {
                self.handle_heartbeat_timer(cx, path_id);
            }
        }
        has_returned
    }

    /// Handles the expiry of T3-rtx (RFC 9260 §6.3.3).
    fn handle_t3<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: usize) {
        self.statistics.timeouts += 1;
        let path = &mut self.paths[path_id];
        path.count_t3(cx.now);
        let trouble = self.outbound.handle_timeout(cx.now, path, path_id);
        path.back_off_rto(&self.config.rto);
        if trouble {
            self.errors += 1;
            self.count_error(cx, path_id);
            self.retransmit_path = self.others(path_id).find(|&other| self.paths[other].takes_data());
            // From now on retransmissions by T3 probe the path.
            self.probe_only_path(cx, path_id, PROBE_INTERVAL);
        }
    }

    /// Declares late packets lost (RFC 8985 §6.3).
    fn handle_loss_timer(&mut self, now: Time, path_id: usize) {
        let path = &mut self.paths[path_id];
        let flight = path.in_flight_bytes();
        self.outbound.detect_loss(now, path, path_id, flight, &mut self.statistics);
        path.plan_tail_loss_probe(now, &self.config);
    }

    /// Handles the timer of the tail loss probe, because the last packets in flight were not answered (RFC 8985 §7.3).
    fn handle_tail_loss_probe_timer<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: usize) {
        if !self.carries_data(path_id) || !self.may_carry_data() {
            self.paths[path_id].cancel_tail_loss_probe();
        } else if self.paths[path_id].on_tail_loss_probe_timer() == Expired::Silence {
            self.probe_only_path(cx, path_id, Duration::ZERO);
        }
    }
}
