//! The association's timers: T1, T2, T3, the loss timer, tail loss probes, the pacer, the delayed SACK, heartbeats,
//! autoclose. They share one deadline.

use std::time::Duration;

use sctp_message::PathId;

use super::{Association, Context, State};
use crate::event::Host;
use crate::outbound::SendContext;
use crate::path::{Expired, PROBE_INTERVAL, Path};
use crate::time::Time;
use crate::trace::Probe;

impl Association {
    /// Returns when `handle_timeout` must be called next.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if self.is_closed() {
            return self.returns_at();
        }
        // Only the timers that the pacer counts wait for a place.
        let repeats_at = self.repeats_at().map(|at| self.timers.place_of(at));
        Time::earliest([repeats_at, self.prompt_at(), self.returns_at()])
    }

    /// Returns when the next timer expires that sends a packet again, whatever the peer and the user do: the pacer counts these.
    fn repeats_at(&self) -> Option<Time> {
        let state = match &self.state {
            State::CookieWait(setup) | State::CookieEchoed { setup, .. } => Some(setup.t1.at()),
            State::ShutdownSent { t2, .. } | State::ShutdownAckSent { t2 } => Some(t2.at()),
            _ => None,
        };
        let probe = self.outbound.probe_at().filter(|_| self.may_carry_data());
        Time::earliest([state, probe].into_iter().chain(self.paths.iter().map(Path::repeats_at)))
    }

    /// Returns when the next timer expires that does not wait for the pacer, such as that of a delayed SACK.
    fn prompt_at(&self) -> Option<Time> {
        let ack = self.inbound.as_ref().and_then(|i| i.ack_deadline());
        let others = [self.discards_at(), self.next_path_failure(), self.pacers_open_at(), self.closes_at()];
        let paths = self.paths.iter().map(Path::prompt_at);
        Time::earliest([self.t5_at(), ack].into_iter().chain(others).chain(paths))
    }

    /// Returns whether expired timers that send a packet again must wait for their place of the pacer; takes that place.
    fn waits_for_pacer(&mut self, now: Time) -> bool {
        let Some(pacer) = &self.config.timeout_pacer else { return false };
        let Some(expired_at) = self.repeats_at().filter(|at| *at <= now) else { return false };
        self.timers.waits_for(pacer, expired_at, now)
    }

    /// Returns when the association has been idle for so long that it is shut down (SCTP_AUTOCLOSE).
    #[inline]
    fn closes_at(&self) -> Option<Time> {
        let patience = self.config.autoclose?;
        if !matches!(self.state, State::Established) {
            return None;
        }
        let sent_at = self.paths.iter().map(|path| path.last_sent_at()).max();
        let received_at = self.timers.last_data_at();
        Some(sent_at.map_or(received_at, |sent_at| sent_at.max(received_at)) + patience)
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
        if self.is_closed() {
            return has_returned;
        }
        let repeats = !self.waits_for_pacer(now);
        if let Some(inbound) = self.inbound.as_mut()
            && due(inbound.ack_deadline())
        {
            inbound.on_ack_timer();
        }
        if !has_returned && due(self.discards_at()) {
            has_returned = true;
            self.discard_expired(cx);
        }
        if repeats && due(self.outbound.probe_at()) {
            self.outbound.on_window_probe_timer();
            let data_path = self.data_path();
            self.paths[data_path].note_probe(now, Probe::Window);
        }
        match &self.state {
            _ if due(self.t5_at()) => self.abort_unfinished(cx),
            State::CookieWait(setup) | State::CookieEchoed { setup, .. }
                if repeats && setup.t1.at() <= now =>
            {
                self.retry_setup(cx);
            }
            State::ShutdownSent { t2, .. } | State::ShutdownAckSent { t2 } if repeats && t2.at() <= now => {
                self.retry_shutdown(cx);
            }
            _ => {}
        }
        if due(self.closes_at()) {
            self.shutdown(cx);
        }
        for path_id in self.paths.ids() {
            self.handle_path_timers(cx, path_id, repeats);
        }
        has_returned
    }

    /// Handles the expired timers of a path; those that send a packet again only if they have their place (`repeats`).
    fn handle_path_timers<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        repeats: bool,
    ) {
        let now = cx.now;
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        // Any of these timers may have ended the association.
        if repeats && !self.is_closed() && due(self.paths[path_id].t3()) {
            self.handle_t3(cx, path_id);
        }
        if due(self.paths[path_id].loss_timer()) {
            self.handle_loss_timer(now, path_id);
        }
        if due(self.paths[path_id].tail_loss_probe_at()) {
            self.handle_tail_loss_probe_timer(cx, path_id);
        }
        if due(self.paths[path_id].pacer_opens_at()) {
            self.paths[path_id].tick_pacer(now);
        }
        if !self.is_closed() && due(self.path_failure_at(path_id)) {
            self.handle_silence(cx, path_id);
        }
        if !self.is_closed() && due(self.paths[path_id].answer_by()) {
            self.handle_unanswered_heartbeat(cx, path_id);
        }
        if repeats && !self.is_closed() && due(self.paths[path_id].heartbeat_at()) {
            self.handle_heartbeat_timer(cx, path_id);
        }
    }

    /// Handles the expiry of T3-rtx (RFC 9260 §6.3.3).
    fn handle_t3<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        self.statistics.timeouts += 1;
        let path = &mut self.paths[path_id];
        path.count_t3(cx.now);
        let trouble = self.outbound.handle_timeout(cx.now, path, &self.config.rto);
        if trouble {
            self.errors.on_unanswered();
            self.count_error(cx, path_id);
            let other = self.paths.others(path_id).find(|&other| self.paths[other].takes_data());
            self.paths.set_retransmit(other);
            // From now on retransmissions by T3 probe the path.
            self.probe_only_path(cx, path_id, PROBE_INTERVAL);
        }
    }

    /// Declares late packets lost (RFC 8985 §6.3).
    fn handle_loss_timer(&mut self, now: Time, path_id: PathId) {
        let path = &mut self.paths[path_id];
        let flight = path.in_flight_bytes();
        let mut cx = SendContext { now, config: &self.config, statistics: &mut self.statistics };
        self.outbound.detect_loss(&mut cx, path, flight);
        path.plan_tail_loss_probe(now, &self.config);
    }

    /// Handles the timer of the tail loss probe, because the last packets in flight were not acknowledged (RFC 8985 §7.3). A
    /// probe of a closed window that the peer has refused was answered, so T3 alone repeats it (RFC 9260 §6.1 A).
    fn handle_tail_loss_probe_timer<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        let may_probe = self.carries_data(path_id) && self.may_carry_data();
        if !may_probe || self.outbound.window_probe_was_refused() {
            self.paths[path_id].cancel_tail_loss_probe();
        } else if self.paths[path_id].on_tail_loss_probe_timer() == Expired::Silence {
            self.probe_only_path(cx, path_id, Duration::ZERO);
        }
    }
}
