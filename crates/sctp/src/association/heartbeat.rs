//! Heartbeats: path verification and failure detection (RFC 9260 §5.4, §8.3).

use rand_chacha::rand_core::RngCore;
use sctp_wire::chunk::{Heartbeat, HeartbeatAck, RawChunk};

use super::{Association, Context, State, random_below};
use crate::event::{Host, PathReason};
use crate::path_state::PathState;
use crate::time::Time;
use crate::trace::{self, Timer};

/// Longest HEARTBEAT that is answered; longer ones are dropped.
const HEARTBEAT_BYTES_MAX: usize = 1024;

impl Association {
    /// Every path is probed after its interval. Unconfirmed ones are probed at once, but no more than HB.Max.Burst of
    /// them in each RTO (RFC 9260 §5.4).
    pub(super) fn start_heartbeats<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        for path_id in 0..self.paths.len() {
            if self.paths[path_id].answer_by.is_none() {
                self.schedule_heartbeat(cx, path_id);
            }
        }
    }

    /// HB.interval plus RTO, give or take half of the RTO (RFC 9260 §8.3). A path that is being verified has its turn
    /// sooner (§5.4), until it counts as inactive. One that has just failed has it at once (RFC 7829 §5.1).
    pub(super) fn schedule_heartbeat<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: usize) {
        self.schedule_heartbeat_since(cx, path_id, cx.now);
    }

    /// The same for a path that has been idle since then.
    fn schedule_heartbeat_since<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
        idle_since: Time,
    ) {
        let unknown = self.paths[path_id].state == PathState::Unconfirmed || self.wants_round_trip(path_id);
        let path = &mut self.paths[path_id];
        let rto = path.rto.current();
        let verifying = unknown && path.errors <= path.settings.retries_max;
        let interval = match (path.settings.heartbeat_interval(), path.state) {
            _ if verifying => {
                let at = cx.now.max(self.next_verification);
                path.heartbeat_at = Some(at);
                self.next_verification =
                    at + self.config.rto.initial / self.config.heartbeat_burst_max.max(1);
                return;
            }
            (_, PathState::Suspected | PathState::PotentiallyFailed) => {
                path.heartbeat_at = Some(cx.now);
                return;
            }
            (Some(interval), _) => interval,
            (None, PathState::Unconfirmed) => rto,
            (None, _) => {
                path.heartbeat_at = None;
                return;
            }
        };
        path.heartbeat_at = Some(idle_since + interval + rto / 2 + random_below(cx.random, rto));
    }

    /// A path that the user named is confirmed, or one is back after a silence, but how fast it is now is not known, and
    /// multipath wants to know.
    fn wants_round_trip(&self, path_id: usize) -> bool {
        self.outbound.is_multipath() && self.paths[path_id].rto.is_unknown()
    }

    /// A heartbeat was not answered within the RTO.
    pub(super) fn handle_unanswered_heartbeat<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
    ) {
        if self.asks_by_shutdown(path_id) {
            return;
        }
        let path = &mut self.paths[path_id];
        path.expire_probes(cx.now);
        if path.t3.is_some() && !path.takes_data() {
            // Data is tried there for want of a better path, and T3 speaks for it.
            return self.ask_on(cx, path_id);
        }
        path.notes.timer(cx.now, Timer::Heartbeat, path.errors + 1);
        path.rto.back_off(&self.config.rto);
        // RFC 9260 §8.1: another path than the one in use says nothing about the peer.
        self.errors += u32::from(path_id == self.data_path());
        self.count_error(cx, path_id);
        self.ask_on(cx, path_id);
    }

    /// The next heartbeat of a path that has not answered the last.
    fn ask_on<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: usize) {
        if self.paths[path_id].heartbeat_at.is_none() {
            self.schedule_heartbeat(cx, path_id);
        }
    }

    pub(super) fn handle_heartbeat_timer<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
    ) {
        if self.asks_by_shutdown(path_id) {
            return;
        }
        let path = &mut self.paths[path_id];
        let often = path.suspicion.next_probe(cx.now, path.rto.srtt());
        if path.answer_by.is_some() && often.is_none() {
            // An answer is waited for.
            path.heartbeat_at = None;
            return;
        }
        // RFC 9260 §8.3: only an idle path is probed.
        let interval = path.settings.heartbeat_interval();
        let idle = interval.is_none_or(|i| cx.now.saturating_since(path.last_sent_at) >= i);
        let idle_since = path.last_sent_at;
        if path.state == PathState::Active && !idle && !self.wants_round_trip(path_id) {
            return self.schedule_heartbeat_since(cx, path_id, idle_since);
        }
        let heartbeat = self.heartbeat(cx, path_id);
        self.paths[path_id].heartbeat_at = often;
        self.push_control(heartbeat, Some(path_id));
    }

    /// T2 asks already, and a peer that has forgotten us would answer a heartbeat with ABORT: paths are left in peace.
    fn asks_by_shutdown(&mut self, path_id: usize) -> bool {
        let asks = matches!(self.state, State::ShutdownSent { .. } | State::ShutdownAckSent { .. });
        if asks {
            self.paths[path_id].forget_probes();
        }
        asks
    }

    /// A HEARTBEAT for a path, whose answer is waited for from now on.
    pub(super) fn heartbeat<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: usize) -> Vec<u8> {
        let path = &mut self.paths[path_id];
        let nonce = cx.random.next_u64();
        path.begin_probe(cx.now, nonce);
        path.notes.probe(cx.now, trace::Probe::Heartbeat);
        path.heartbeat_at = None;
        let mut bytes = Vec::new();
        Heartbeat { info: &nonce.to_be_bytes() }.write(&mut bytes);
        bytes
    }

    /// RFC 9260 §8.3: from COOKIE-ECHOED on.
    pub(super) fn answer_heartbeat(&mut self, path_id: usize, raw: &RawChunk<'_>) {
        let good = raw.whole.len() <= HEARTBEAT_BYTES_MAX && Heartbeat::parse(raw).is_ok();
        if !good || self.is_in_cookie_wait() {
            return self.discard_chunk();
        }
        let mut bytes = Vec::new();
        HeartbeatAck::write_copy(raw, &mut bytes);
        self.push_control(bytes, Some(path_id));
    }

    /// It counts for the path that was asked, wherever it came in (RFC 9260 §8.3).
    pub(super) fn handle_heartbeat_ack<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        ack: &HeartbeatAck<'_>,
    ) {
        let ended =
            (0..self.paths.len()).find_map(|id| Some((id, self.end_heartbeat(cx.now, id, ack.info)?)));
        let Some((path_id, sent_at)) = ended else { return };
        self.errors = 0;
        if self.paths[path_id].suspicion.holds(cx.now) {
            self.paths[path_id].errors = 0;
            return;
        }
        self.path_answered(cx, path_id, sent_at, PathReason::Heartbeat);
    }

    /// When the heartbeat with this nonce left on a path, if it was there (RFC 9260 §5.4: that address alone is confirmed).
    fn end_heartbeat(&mut self, now: Time, path_id: usize, nonce: &[u8]) -> Option<Time> {
        if let Some(sent_at) = self.handle_mtu_probe_ack(now, path_id, nonce) {
            return Some(sent_at);
        }
        let path = &mut self.paths[path_id];
        let sent_at = path.end_probe(nonce)?;
        // An older one may have waited on the way until the path was back.
        if path.rto.srtt().is_none() || !path.awaits_answer() {
            path.rto.on_answer(now, sent_at, &self.config.rto);
        } else {
            path.rto.restore(&self.config.rto);
        }
        Some(sent_at)
    }
}
