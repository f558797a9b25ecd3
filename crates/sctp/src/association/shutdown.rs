//! The end of an association: SHUTDOWN and its answers, ABORT (RFC 9260 §9).

use sctp_message::PathId;
use sctp_wire::cause::{Cause, Causes, ProtocolViolation, UserInitiatedAbort};
use sctp_wire::chunk::{Abort, RawChunk, Shutdown, ShutdownAck, ShutdownComplete};

use super::causes::{abort_chunk, abort_reason};
use super::control::Control;
use super::retry::Retry;
use super::{Association, Context, State};
use crate::error::CloseReason;
use crate::event::{Event, Host};
use crate::outbound::{SackInfo, SendContext};
use crate::time::Time;
use crate::trace::{self, Timer};

/// Maximum length of a user-initiated abort reason that is kept.
const REASON_BYTES_MAX: usize = 256;

/// Maximum number of bytes of the error causes of an ABORT that are reported to the user.
const CAUSES_BYTES_MAX: usize = 512;

/// T5-shutdown-guard in RTO.Max (RFC 9260 §9.2).
pub(super) const T5_RTO_MAX: u32 = 5;

impl Association {
    /// Shuts the association down: a SHUTDOWN follows when everything is acknowledged (RFC 9260 §9.2).
    pub(crate) fn shutdown<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        self.is_shut_down = true;
        match &mut self.state {
            State::Established => {
                self.state = State::ShutdownPending { progress_at: cx.now };
                self.outbound.close();
                self.continue_shutdown(cx);
            }
            // The peer does not know of the association, and needs no packet.
            State::CookieWait(_) if self.outbound.is_empty() => self.close(cx, CloseReason::Aborted),
            State::CookieWait(setup) | State::CookieEchoed { setup, .. } => setup.shutdown_wanted = true,
            _ => {}
        }
    }

    /// Ends an association whose user has gone: by an ABORT if it is being set up and has nothing to deliver, otherwise by a
    /// shutdown.
    pub(crate) fn leave<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        match self.state {
            State::CookieEchoed { .. } if self.outbound.is_empty() => self.abort(cx, b"the user has gone"),
            _ => self.shutdown(cx),
        }
    }

    /// Sets whether the upper layer has data left that it has accepted from others and that waits for room. If the peer shuts the
    /// association down meanwhile, this data is still sent: RFC 9260 §9.2 forbids new messages only. SHUTDOWN ACK waits for it.
    pub(crate) fn set_has_upper_data<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        has_upper_data: bool,
    ) {
        self.has_upper_data = has_upper_data;
        if matches!(self.state, State::ShutdownReceived { .. }) {
            self.continue_shutdown(cx);
        }
    }

    /// Continues a shutdown once none of our chunks is outstanding.
    pub(super) fn continue_shutdown<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        self.continue_shutdown_asked_on(cx, None);
    }

    /// Continues a shutdown as [`Association::continue_shutdown`] does, and answers a SHUTDOWN on the path on which it came.
    fn continue_shutdown_asked_on<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        asked_on: Option<PathId>,
    ) {
        if !self.outbound.is_empty() {
            return;
        }
        let rto = self.paths[self.data_path()].rto().current();
        let t2 = Retry::start(cx.now, rto);
        match self.state {
            State::ShutdownPending { .. } => {
                self.state = State::ShutdownSent { t2, t5_at: cx.now + T5_RTO_MAX * self.config.rto.max };
                self.push_shutdown();
            }
            State::ShutdownReceived { .. } if !self.has_upper_data => {
                self.state = State::ShutdownAckSent { t2 };
                self.push_shutdown_ack(asked_on);
            }
            _ => {}
        }
    }

    /// Answers data that came after our SHUTDOWN at once, and restarts T2 (RFC 9260 §9.2). The SACK in the packet reports gaps
    /// and the window.
    pub(super) fn answer_with_shutdown<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let rto = self.paths[self.data_path()].rto().current();
        if let State::ShutdownSent { t2, .. } = &mut self.state {
            *t2 = Retry::start(cx.now, rto);
            if let Some(inbound) = self.inbound.as_mut() {
                inbound.request_ack();
            }
            self.push_shutdown();
        }
    }

    /// Restarts T2 after a packet that came after our SHUTDOWN: the peer is alive, and gets the time that it needs (RFC 9260
    /// §9.2).
    pub(super) fn restart_t2<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let rto = self.paths[self.data_path()].rto().current();
        if let State::ShutdownSent { t2, .. } = &mut self.state {
            *t2 = Retry::start(cx.now, rto);
        }
    }

    /// Records that the peer has advanced the cumulative TSN.
    pub(super) fn on_shutdown_progress(&mut self, now: Time) {
        self.on_orphan_progress(now);
        if let State::ShutdownPending { progress_at } | State::ShutdownReceived { progress_at } =
            &mut self.state
        {
            *progress_at = now;
        }
    }

    /// Returns when T5-shutdown-guard expires (RFC 9260 §9.2). It also runs while a shutdown waits for the peer to acknowledge
    /// data, since the last advance of the cumulative TSN: a peer that refuses probes of its window, takes acknowledgements of
    /// gaps back or answers only HEARTBEATs is alive, so nothing else would end that wait. Without a user it runs in each state.
    pub(super) fn t5_at(&self) -> Option<Time> {
        let shutdown_ends_at = match self.state {
            State::ShutdownSent { t5_at, .. } => Some(t5_at),
            State::ShutdownPending { progress_at } | State::ShutdownReceived { progress_at } => {
                Some(progress_at + T5_RTO_MAX * self.config.rto.max)
            }
            _ => None,
        };
        Time::earliest([shutdown_ends_at, self.orphan_ends_at()])
    }

    /// Handles the expiry of T5-shutdown-guard: aborts an association whose peer does not finish, even if it is alive (RFC 9260
    /// §9.2).
    pub(super) fn abort_unfinished<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        self.abort_for_timeout(cx, b"the shutdown took too long");
    }

    /// Ends the association, because the peer has not answered Association.Max.Retrans times (RFC 9260 §8.1). If the peer is
    /// alive after all, the ABORT ends its side, too.
    pub(super) fn abort_unresponsive<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        self.abort_for_timeout(cx, b"no answer for too long");
    }

    fn abort_for_timeout<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, reason: &[u8]) {
        let chunk = abort_chunk(&Cause::UserInitiatedAbort(UserInitiatedAbort { reason }));
        self.abort_with(cx, chunk, CloseReason::Timeout);
    }

    fn push_shutdown(&mut self) {
        // A SHUTDOWN that still waits is out of date.
        self.control.remove(Shutdown::KIND);
        if let Some(inbound) = self.inbound.as_ref() {
            let shutdown = Shutdown { cum_tsn: inbound.cumulative_tsn() };
            self.push_control(Control::new(Shutdown::KIND, None, |out| shutdown.write(out)));
        }
    }

    /// Repeats the SHUTDOWN ACK to a peer that connects again while we wait for its SHUTDOWN COMPLETE, which was therefore lost
    /// (RFC 9260 §9.2). Returns false if we do not wait.
    pub(crate) fn repeat_shutdown_ack(&mut self) -> bool {
        let waits = matches!(self.state, State::ShutdownAckSent { .. });
        if waits {
            self.push_shutdown_ack(None);
        }
        waits
    }

    /// Sends a SHUTDOWN ACK on the path of the SHUTDOWN that it answers: that path works, whereas a receiver does not
    /// know whether the others do (RFC 9260 §6.4).
    fn push_shutdown_ack(&mut self, asked_on: Option<PathId>) {
        self.control.remove(ShutdownAck::KIND);
        self.push_control(Control::new(ShutdownAck::KIND, asked_on, |out| ShutdownAck.write(out)));
    }

    pub(super) fn handle_shutdown<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        shutdown: &Shutdown,
    ) {
        match self.state {
            State::Established | State::ShutdownPending { .. } => {
                self.acknowledge_by_shutdown(cx, path_id, shutdown);
                if self.is_closed() {
                    return;
                }
                self.state = State::ShutdownReceived { progress_at: cx.now };
                self.announce_peer_shutdown(cx);
                self.continue_shutdown_asked_on(cx, Some(path_id));
            }
            State::ShutdownReceived { .. } => self.acknowledge_by_shutdown(cx, path_id, shutdown),
            // Both ends have sent a SHUTDOWN (RFC 9260 §9.2).
            State::ShutdownSent { .. } => {
                let rto = self.paths[self.data_path()].rto().current();
                self.state = State::ShutdownAckSent { t2: Retry::start(cx.now, rto) };
                self.announce_peer_shutdown(cx);
                self.push_shutdown_ack(Some(path_id));
            }
            State::ShutdownAckSent { .. } => self.push_shutdown_ack(Some(path_id)),
            State::CookieWait(_) | State::CookieEchoed { .. } | State::Closed { .. } => self.discard_chunk(),
        }
    }

    fn announce_peer_shutdown<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        self.end_open_record(cx);
        // A peer that restarts can shut down again and again.
        self.tell_anyway(cx, Event::PeerShutdown);
    }

    /// Handles the acknowledgement in a SHUTDOWN, which is that of a SACK without gaps (RFC 9260 §9.2). It says nothing of the
    /// peer's window. A second one in a packet is not worth its work.
    fn acknowledge_by_shutdown<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        shutdown: &Shutdown,
    ) {
        if !self.reaction.take_first_shutdown() {
            return self.discard_chunk();
        }
        let sack = SackInfo {
            path_id,
            cum_tsn: shutdown.cum_tsn,
            window_bytes: self.outbound.advertised_window_bytes(),
            gaps: None::<std::iter::Empty<(u16, u16)>>,
            nr_gaps: None,
            duplicates: std::iter::empty(),
        };
        let mut sending = SendContext { now: cx.now, config: &self.config, statistics: &mut self.statistics };
        match self.outbound.handle_sack(&mut sending, sack, &mut self.paths) {
            Ok(outcome) => self.after_sack(cx, path_id, &outcome),
            Err(how) => self.abort_for_violation(cx, how),
        }
    }

    pub(super) fn handle_shutdown_ack<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        if matches!(self.state, State::ShutdownSent { .. } | State::ShutdownAckSent { .. }) {
            let write = |out: &mut Vec<u8>| ShutdownComplete { reflected_tag: false }.write(out);
            let complete = Control::new(ShutdownComplete::KIND, Some(path_id), write);
            self.close_with(cx, CloseReason::Shutdown, Some(complete), &[]);
        } else {
            self.discard_chunk();
        }
    }

    pub(crate) fn handle_shutdown_complete<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if matches!(self.state, State::ShutdownAckSent { .. }) {
            self.close(cx, CloseReason::Shutdown);
        } else {
            self.discard_chunk();
        }
    }

    /// Handles an ABORT (RFC 9260 §9.1).
    pub(crate) fn handle_abort<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, raw: &RawChunk<'_>) {
        // RFC 9260 §3.3.7: an ABORT with a format error is discarded.
        if Causes::new(raw.value).any(|cause| cause.is_err()) {
            return self.discard_chunk();
        }
        let reason = match self.state {
            // All data is delivered in both directions; the peer has merely removed the association before it sent SHUTDOWN
            // COMPLETE.
            State::ShutdownAckSent { .. } => CloseReason::Shutdown,
            _ => abort_reason(raw, !self.is_set_up()),
        };
        let causes = &raw.value[..raw.value.len().min(CAUSES_BYTES_MAX)];
        self.close_with(cx, reason, None, causes);
    }

    /// Handles the expiry of T2 (RFC 9260 §9.2).
    pub(super) fn retry_shutdown<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let acknowledge = matches!(self.state, State::ShutdownAckSent { .. });
        let (State::ShutdownSent { t2, .. } | State::ShutdownAckSent { t2 }) = &mut self.state else {
            return;
        };
        let attempts = t2.expire();
        self.statistics.t2_timeouts += 1;
        trace::note_timer(&mut self.trace, cx.now, Timer::T2Shutdown, attempts);
        if attempts > self.config.association_retries_max {
            return self.abort_unresponsive(cx);
        }
        t2.back_off(cx.now, self.config.rto.max);
        // Another address may answer (RFC 9260 §6.4).
        if self.paths.len() > 1 {
            self.count_error(cx, self.data_path());
        }
        if acknowledge {
            self.push_shutdown_ack(None);
        } else {
            self.push_shutdown();
        }
    }

    /// Ends the association at once with an ABORT (RFC 9260 §9.1).
    pub(crate) fn abort<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, reason: &[u8]) {
        let reason = &reason[..reason.len().min(REASON_BYTES_MAX)];
        let chunk = abort_chunk(&Cause::UserInitiatedAbort(UserInitiatedAbort { reason }));
        self.abort_with(cx, chunk, CloseReason::Aborted);
    }

    /// Ends the association with an ABORT that reports a protocol violation of the peer.
    pub(super) fn abort_for_violation<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        how: &'static str,
    ) {
        let information = how.as_bytes();
        self.abort_for_cause(cx, &Cause::ProtocolViolation(ProtocolViolation { information }), how);
    }

    /// Ends the association with an ABORT that has the cause. `how` describes the peer's violation to the user.
    pub(super) fn abort_for_cause<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        cause: &Cause<'_>,
        how: &'static str,
    ) {
        let reason = CloseReason::ProtocolViolation { cause: cause.kind(), how };
        self.abort_with(cx, abort_chunk(cause), reason);
    }

    fn abort_with<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, chunk: Vec<u8>, reason: CloseReason) {
        let abort = Control::of(Abort::KIND, None, chunk);
        self.close_with(cx, reason, Some(abort).filter(|_| self.identity.peer_tag.is_some()), &[]);
    }
}
