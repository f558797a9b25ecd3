//! Heartbeats: path verification and failure detection (RFC 9260 §5.4, §8.3).

use rand_chacha::rand_core::RngCore;
use sctp_wire::chunk::{Heartbeat, HeartbeatAck};

use super::{Association, Context, State, random_below};
use crate::event::{Event, Host};
use crate::path::{PathState, Probe};
use crate::trace::{self, Timer};

/// Longest heartbeat information that we echo; longer ones are dropped.
const HEARTBEAT_INFO_BYTES_MAX: usize = 1024;

impl Association {
    /// Every path is probed after its interval; an unconfirmed one at once, or in its turn.
    pub(super) fn start_heartbeats<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        // RFC 9260 §5.4: one in each RTO (HB.Max.Burst, §16), so that no list of addresses makes a flood.
        let mut turn = cx.now;
        for path_id in 0..self.paths.len() {
            let path = &mut self.paths[path_id];
            if path.state == PathState::Unconfirmed {
                path.heartbeat_at = Some(turn);
                turn = turn + path.rto.current();
            } else {
                self.schedule_heartbeat(cx, path_id);
            }
        }
    }

    /// HB.interval plus RTO, give or take half of the RTO (RFC 9260 §8.3).
    fn schedule_heartbeat<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: usize) {
        let path = &mut self.paths[path_id];
        let rto = path.rto.current();
        let interval = match (self.config.heartbeat_interval, path.state) {
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
            return self.count_error(cx, path_id);
        }
        // RFC 9260 §8.3: only an idle path is probed.
        let idle =
            self.config.heartbeat_interval.is_none_or(|i| cx.now.saturating_since(path.last_sent_at) >= i);
        if path.state == PathState::Active && !idle {
            return self.schedule_heartbeat(cx, path_id);
        }
        let nonce = cx.random.next_u64();
        path.probe = Some(Probe { nonce, sent_at: cx.now });
        path.notes.probe(cx.now, trace::Probe::Heartbeat);
        path.heartbeat_at = Some(cx.now + path.rto.current());
        let mut bytes = Vec::new();
        Heartbeat { info: &nonce.to_be_bytes() }.write(&mut bytes);
        self.push_control(bytes, Some(path_id));
    }

    pub(super) fn answer_heartbeat(&mut self, path_id: usize, heartbeat: &Heartbeat<'_>) {
        if heartbeat.info.len() <= HEARTBEAT_INFO_BYTES_MAX && self.is_set_up() {
            let mut bytes = Vec::new();
            HeartbeatAck { info: heartbeat.info }.write(&mut bytes);
            self.push_control(bytes, Some(path_id));
        }
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
