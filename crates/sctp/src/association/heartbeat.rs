//! Heartbeats: path verification and failure detection (RFC 9260 §5.4, §8.3).

use rand_chacha::rand_core::RngCore;
use sctp_wire::chunk::{Heartbeat, HeartbeatAck, RawChunk};

use super::{Association, Context, State, random_below};
use crate::event::{Event, Host};
use crate::path::{PathState, Probe};
use crate::trace::{self, Timer};

/// Longest HEARTBEAT that is answered; longer ones are dropped.
const HEARTBEAT_BYTES_MAX: usize = 1024;

impl Association {
    /// Every path is probed after its interval. Unconfirmed ones are probed at once, but no more than HB.Max.Burst of
    /// them in each RTO (RFC 9260 §5.4).
    pub(super) fn start_heartbeats<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        for path_id in 0..self.paths.len() {
            if self.paths[path_id].probe.is_none() {
                self.schedule_heartbeat(cx, path_id);
            }
        }
    }

    /// HB.interval plus RTO, give or take half of the RTO (RFC 9260 §8.3). A path that is being verified has its turn
    /// sooner (§5.4), until it counts as inactive.
    fn schedule_heartbeat<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: usize) {
        let path = &mut self.paths[path_id];
        let rto = path.rto.current();
        let verifying = path.state == PathState::Unconfirmed && path.errors <= self.config.path_retries_max;
        let interval = match (self.config.heartbeat_interval, path.state) {
            _ if verifying => {
                let at = cx.now.max(self.next_verification);
                path.heartbeat_at = Some(at);
                self.next_verification =
                    at + self.config.rto.initial / self.config.heartbeat_burst_max.max(1);
                return;
            }
            (Some(interval), _) => interval,
            (None, PathState::Unconfirmed) => rto,
            (None, _) => {
                path.heartbeat_at = None;
                return;
            }
        };
        path.heartbeat_at = Some(cx.now + interval + rto / 2 + random_below(cx.random, rto));
    }

    pub(super) fn handle_heartbeat_timer<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
    ) {
        let path = &mut self.paths[path_id];
        if matches!(self.state, State::ShutdownSent { .. } | State::ShutdownAckSent { .. }) {
            // T2 asks already, and a peer that has forgotten us would answer a heartbeat with ABORT.
            (path.probe, path.heartbeat_at) = (None, None);
            return;
        }
        if path.probe.take().is_some() {
            path.notes.timer(cx.now, Timer::Heartbeat, path.errors + 1);
            path.rto.back_off(&self.config.rto);
            self.schedule_heartbeat(cx, path_id);
            // RFC 9260 §8.1: another path than the one in use says nothing about the peer.
            self.errors += u32::from(path_id == self.data_path());
            return self.count_error(cx, path_id);
        }
        // RFC 9260 §8.3: only an idle path is probed.
        let idle =
            self.config.heartbeat_interval.is_none_or(|i| cx.now.saturating_since(path.last_sent_at) >= i);
        if path.state == PathState::Active && !idle {
            return self.schedule_heartbeat(cx, path_id);
        }
        let heartbeat = self.heartbeat(cx, path_id);
        self.push_control(heartbeat, Some(path_id));
    }

    /// A HEARTBEAT for a path, whose answer is waited for from now on.
    pub(super) fn heartbeat<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: usize) -> Vec<u8> {
        let path = &mut self.paths[path_id];
        let nonce = cx.random.next_u64();
        path.probe = Some(Probe { nonce, sent_at: cx.now });
        path.notes.probe(cx.now, trace::Probe::Heartbeat);
        path.heartbeat_at = Some(cx.now + path.rto.current());
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

    pub(super) fn handle_heartbeat_ack<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
        ack: &HeartbeatAck<'_>,
    ) {
        let path = &mut self.paths[path_id];
        // RFC 9260 §5.4: only the nonce that went to this very address confirms it.
        let Some(probe) = path.probe.take_if(|p| p.nonce.to_be_bytes() == ack.info) else { return };
        path.rto.measure(cx.now.saturating_since(probe.sent_at), &self.config.rto);
        path.errors = 0;
        self.errors = 0;
        if path.state != PathState::Active {
            path.state = PathState::Active;
            let remote = path.remote;
            cx.host.event(self.id, Event::PathChanged { remote, active: true });
        }
        self.schedule_heartbeat(cx, path_id);
    }
}
