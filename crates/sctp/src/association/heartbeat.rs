//! Heartbeats: path verification and failure detection (RFC 9260 §5.4, §8.3).

use std::time::Duration;

use rand_chacha::rand_core::RngCore;
use sctp_message::PathId;
use sctp_wire::chunk::{Heartbeat, HeartbeatAck, RawChunk};
use sctp_wire::packet::Packet;

use super::control::Control;
use super::{Association, Context, State, random_below};
use crate::config::Checksum;
use crate::event::{Host, PathReason};
use crate::path_state::PathState;
use crate::reply::Reply;
use crate::route::Route;
use crate::time::Time;

/// Maximum number of bytes of HEARTBEAT ACKs of one association that wait to be sent: an answer to the longest possible HEARTBEAT
/// fits if no other one waits. Each answer is as long as its question, so a peer gains nothing by long ones.
pub(super) const WAITING_ANSWERS_BYTES_MAX: usize = 64 * 1024;
/// Longest time for which a path without data goes unmeasured while others carry data. Data that tries it again can be
/// late once in this time.
const UNMEASURED_MAX: Duration = Duration::from_secs(5);

impl Association {
    /// Schedules the heartbeats of all paths: after their interval, or at once for unconfirmed ones. At most
    /// HB.Max.Burst unconfirmed paths are probed in each RTO (RFC 9260 §5.4).
    pub(super) fn start_heartbeats<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        for path_id in self.paths.ids() {
            if self.paths[path_id].answer_by().is_none() {
                self.schedule_heartbeat(cx, path_id);
            }
        }
    }

    /// Schedules the next heartbeat after HB.interval plus the RTO, give or take half of the RTO (RFC 9260 §8.3). A path that
    /// is being verified is probed sooner (§5.4), until it counts as inactive. A path that has just failed is probed at once
    /// (RFC 7829 §5.1).
    pub(super) fn schedule_heartbeat<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        self.schedule_heartbeat_since(cx, path_id, cx.now);
    }

    /// Schedules the next heartbeat of a path that has been idle since `idle_since`.
    fn schedule_heartbeat_since<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        idle_since: Time,
    ) {
        let unknown = self.paths[path_id].state() == PathState::Unconfirmed || self.wants_round_trip(path_id);
        let path = &self.paths[path_id];
        let rto = path.rto().current();
        let verifying = unknown && !path.retries_exceeded();
        let at = match (path.settings().heartbeat_interval(), path.state()) {
            _ if verifying => {
                let spacing = self.config.rto.initial / self.config.heartbeat_burst_max.max(1);
                Some(self.timers.take_verification(cx.now, spacing))
            }
            (_, PathState::Suspected | PathState::PotentiallyFailed) => Some(cx.now),
            (Some(interval), _) => Some(idle_since + interval + rto / 2 + random_below(cx.random, rto)),
            (None, PathState::Unconfirmed) => Some(idle_since + rto + rto / 2 + random_below(cx.random, rto)),
            (None, _) => None,
        };
        self.paths[path_id].schedule_heartbeat(at);
    }

    /// Returns whether a heartbeat must measure the round-trip time of a path, which is unknown: multipath needs it.
    fn wants_round_trip(&self, path_id: PathId) -> bool {
        self.outbound.is_multipath() && self.paths[path_id].rto().is_unknown()
    }

    /// Measures again the paths that data has avoided for [`UNMEASURED_MAX`]. The queue that made such a path slow may be
    /// empty by now, but only something sent there would tell.
    pub(super) fn measure_unused_paths<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if !self.outbound.is_multipath() || self.outbound.is_empty() {
            return;
        }
        for path_id in self.paths.ids() {
            let path = &mut self.paths[path_id];
            let unused = path.takes_data() && path.in_flight_bytes() == 0 && path.answer_by().is_none();
            let measured_at = path.rto().measured_at().filter(|_| !path.rto().is_unknown());
            if unused && measured_at.is_some_and(|at| cx.now.saturating_since(at) >= UNMEASURED_MAX) {
                path.mark_rtt_stale(cx.now);
                self.schedule_heartbeat(cx, path_id);
            }
        }
    }

    /// Handles a heartbeat that was not answered within the RTO.
    pub(super) fn handle_unanswered_heartbeat<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
    ) {
        if self.leave_probing_to_shutdown(path_id) {
            return;
        }
        let path = &mut self.paths[path_id];
        path.on_heartbeat_timeout(cx.now);
        if !self.paths[path_id].takes_data() && self.is_used_for_data(path_id) {
            // Data is sent there because no better path exists, and T3 counts its errors.
            return self.schedule_next_heartbeat(cx, path_id);
        }
        let path = &mut self.paths[path_id];
        path.on_heartbeat_error(cx.now, &self.config);
        // RFC 9260 §8.1: another path than the one in use says nothing about the peer.
        if path_id == self.data_path() {
            self.errors.on_unanswered();
        }
        self.count_error(cx, path_id);
        self.schedule_next_heartbeat(cx, path_id);
    }

    /// Returns whether data is in flight on a path, or goes there next because T3 has just expired.
    fn is_used_for_data(&self, path_id: PathId) -> bool {
        self.paths[path_id].t3().is_some() || (self.outbound.has_lost() && self.carries_data(path_id))
    }

    /// Schedules the next heartbeat of a path that has not answered the last one.
    fn schedule_next_heartbeat<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        if self.paths[path_id].heartbeat_at().is_none() {
            self.schedule_heartbeat(cx, path_id);
        }
    }

    pub(super) fn handle_heartbeat_timer<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
    ) {
        if self.leave_probing_to_shutdown(path_id) {
            return;
        }
        let path = &mut self.paths[path_id];
        let frequent = path.next_frequent_heartbeat(cx.now);
        if path.answer_by().is_some() && frequent.is_none() {
            // An answer is awaited.
            return path.schedule_heartbeat(None);
        }
        // RFC 9260 §8.3: only an idle path is probed.
        let (interval, idle_since) = (path.settings().heartbeat_interval(), path.last_sent_at());
        let idle = interval.is_none_or(|interval| cx.now.saturating_since(idle_since) >= interval);
        if path.state() == PathState::Active && !idle && !self.wants_round_trip(path_id) {
            return self.schedule_heartbeat_since(cx, path_id, idle_since);
        }
        self.outbound.free_idle_memory();
        let heartbeat = self.heartbeat(cx, path_id);
        self.paths[path_id].schedule_heartbeat(frequent);
        self.push_control(heartbeat);
    }

    /// Ends the heartbeats of a path if T2 probes the peer already, and returns whether it does. A peer that has forgotten the
    /// association would answer a heartbeat with ABORT.
    fn leave_probing_to_shutdown(&mut self, path_id: PathId) -> bool {
        let asks = matches!(self.state, State::ShutdownSent { .. } | State::ShutdownAckSent { .. });
        if asks {
            self.paths[path_id].clear_heartbeats();
        }
        asks
    }

    /// Builds a HEARTBEAT for a path, and waits for its answer from now on.
    pub(super) fn heartbeat<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
    ) -> Control {
        let nonce = cx.random.next_u64();
        self.paths[path_id].on_heartbeat_sent(cx.now, nonce);
        let write = |out: &mut Vec<u8>| Heartbeat { info: &nonce.to_be_bytes() }.write(out);
        Control::new(Heartbeat::KIND, Some(path_id), write)
    }

    /// Answers a HEARTBEAT, from COOKIE-ECHOED on (RFC 9260 §8.3).
    pub(super) fn answer_heartbeat(&mut self, path_id: PathId, raw: &RawChunk<'_>) {
        if Heartbeat::parse(raw).is_err() || self.is_in_cookie_wait() {
            return self.discard_chunk();
        }
        if self.control.bytes_of(HeartbeatAck::KIND) + raw.whole.len() > WAITING_ANSWERS_BYTES_MAX {
            self.statistics.control_chunks_dropped += 1;
            return;
        }
        let mut bytes = Vec::with_capacity(raw.whole.len().next_multiple_of(4));
        HeartbeatAck::write_copy(raw, &mut bytes);
        self.push_control(Control::of(HeartbeatAck::KIND, Some(path_id), bytes));
    }

    /// Returns whether a packet contains only a HEARTBEAT, and came to a local address that its path does not use.
    pub(crate) fn is_probe_elsewhere(
        &self,
        now: Time,
        route: &Route,
        packet: &Packet<'_>,
        first: &RawChunk<'_>,
    ) -> bool {
        let is_alone = first.kind == Heartbeat::KIND && packet.chunks().count() == 1;
        let keeps_local = |id: PathId| self.paths[id].keeps_local(now, route.local, true);
        is_alone
            && self.is_set_up()
            && self.paths.to(route.remote.ip()).is_some_and(keeps_local)
            && Heartbeat::parse(first).is_ok()
    }

    /// Answers a HEARTBEAT that came to a local address which its path does not use. The answer takes the way back, and changes
    /// nothing here.
    pub(crate) fn answer_probe_elsewhere(&mut self, route: &Route, probe: &RawChunk<'_>, checksum: Checksum) {
        let header = self.identity.header();
        let write = |out: &mut Vec<u8>| HeartbeatAck::write_copy(probe, out);
        let answer = Reply::new(route.remote, route.local, &header, checksum, write);
        let has_room = self.probe_answers.push(answer);
        self.statistics.control_chunks_dropped += u64::from(!has_room);
    }

    /// Handles a HEARTBEAT ACK. It counts for the probed path, on whichever path it came (RFC 9260 §8.3).
    pub(super) fn handle_heartbeat_ack<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        ack: &HeartbeatAck<'_>,
    ) {
        let ended = self.paths.ids().find_map(|id| Some((id, self.end_heartbeat(cx.now, id, ack.info)?)));
        let Some((path_id, sent_at)) = ended else { return };
        if !self.paths[path_id].answers_without_delivering() {
            self.errors.on_answer();
        }
        if self.paths[path_id].is_held(cx.now) {
            return self.paths[path_id].on_answer_while_held();
        }
        self.path_answered(cx, path_id, sent_at, PathReason::Heartbeat);
    }

    /// Returns when the heartbeat with this nonce was sent, if it was sent on this path (RFC 9260 §5.4: only that address is
    /// confirmed).
    fn end_heartbeat(&mut self, now: Time, path_id: PathId, nonce: &[u8]) -> Option<Time> {
        if let Some(sent_at) = self.handle_mtu_probe_ack(now, path_id, nonce) {
            return Some(sent_at);
        }
        self.paths[path_id].on_heartbeat_acked(now, nonce, &self.config)
    }
}
