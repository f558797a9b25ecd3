//! Setup of an association: INIT, INIT ACK, COOKIE ECHO, COOKIE ACK (RFC 9260 §5).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sctp_wire::Tsn;
use sctp_wire::cause::{Cause, MissingMandatoryParameter, UnrecognizedParameters};
use sctp_wire::chunk::{CookieAck, CookieEcho, Error, Init};
use sctp_wire::packet::HEADER_BYTES;
use sctp_wire::parameter::{KindList, Parameters, StateCookie as StateCookieParameter};

use super::causes::error_chunk;
use super::control::Control;
use super::init::{PeerInit, initial_window, write_init_parameters};
use super::retry::Retry;
use super::{Association, Context, Setup, State};
use crate::config::{AssociationConfig, Multipath};
use crate::cookie::StateCookie;
use crate::ecn::Ecn;
use crate::error::CloseReason;
use crate::event::{Event, Host};
use crate::extensions::Extensions;
use crate::identifiers::AssociationId;
use crate::identity::Identity;
use crate::inbound::Inbound;
use crate::local_addresses::LocalAddresses;
use crate::path::Path;
use crate::path_hints::PathHints;
use crate::path_state::PathState;
use crate::route::Route;
use crate::time::Time;
use crate::trace::{self, Timer};

/// Extension of the lifetime requested for a new cookie, above the duration of the last exchange (RFC 9260 §5.2.6, 3).
const COOKIE_LIFE_MORE: Duration = Duration::from_secs(1);

impl Association {
    /// Starts to set up an association: an INIT waits to be sent.
    pub(crate) fn connect(
        now: Time,
        id: AssociationId,
        config: Arc<AssociationConfig>,
        identity: Identity,
        remotes: &[(SocketAddr, PathHints)],
        local: LocalAddresses,
    ) -> Self {
        let mut paths = new_paths(remotes, &local, None, &config);
        // RFC 9260 §5.4, 1: addresses named by the user are confirmed.
        for path in &mut paths {
            path.confirm();
        }
        let rto = config.rto.initial;
        let setup = Setup { t1: Retry::start(now, rto), shutdown_wanted: false, cookie_increment: None };
        let state = State::CookieWait(setup);
        let mut association = Association::new(id, config, local, identity, state, paths);
        association.push_init();
        association
    }

    fn push_init(&mut self) {
        let State::CookieWait(Setup { cookie_increment, .. }) = self.state else { return };
        let mut parameters = Vec::new();
        let to = self.paths[self.paths.primary()].remote().ip();
        write_init_parameters(&self.config, to, &self.local, cookie_increment, &mut parameters);
        let init = Init {
            initiate_tag: self.identity.local_tag,
            a_rwnd: initial_window(&self.config),
            outbound_streams: self.config.streams_out.max(1),
            inbound_streams: self.config.streams_in_max.max(1),
            initial_tsn: self.identity.local_initial_tsn,
            parameters: Parameters::new(&parameters),
        };
        self.control.push_first(Control::new(Init::KIND, Some(self.paths.primary()), |out| init.write(out)));
    }

    /// Creates the association of a valid cookie, on the passive side.
    pub(crate) fn accept<H: Host + ?Sized>(
        cx: &mut Context<'_, H>,
        id: AssociationId,
        config: Arc<AssociationConfig>,
        local: LocalAddresses,
        cookie: &StateCookie,
        remotes: &[(SocketAddr, PathHints)],
        route: &Route,
    ) -> Self {
        let identity = Identity::from_cookie(cookie);
        let paths = new_paths(remotes, &local, route.local, &config);
        let mut association = Association::new(id, config, local, identity, State::Established, paths);
        association.establish_from_cookie(cx, cookie, route.remote);
        association
    }

    /// Establishes the association with the contents of a valid cookie, and answers with COOKIE ACK (RFC 9260 §5.1 D, §5.2.4 A
    /// and B).
    pub(super) fn establish_from_cookie<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        cookie: &StateCookie,
        remote: SocketAddr,
    ) {
        self.identity.peer_tag = Some(cookie.peer_tag);
        self.agree(cookie.adaptation, cookie.extensions);
        self.take_peer(
            cookie.peer_initial_tsn,
            cookie.peer_window_bytes,
            cookie.streams_out,
            cookie.streams_in,
        );
        self.control.clear();
        self.acknowledge_cookie(cx, remote);
        self.measure_handshake(cx.now, cx.now.saturating_since(cookie.created));
        self.establish(cx);
    }

    /// Records the first round-trip time, from INIT to INIT ACK or from INIT ACK to COOKIE ECHO. A time as long as the peer's
    /// retransmission timeout may belong to an earlier packet (RFC 9260 §6.3.1 C5).
    fn measure_handshake(&mut self, now: Time, rtt: Duration) {
        if rtt < self.config.rto.initial {
            let primary = self.paths.primary();
            self.paths[primary].on_handshake_measured(now, rtt, &self.config.rto);
        }
    }

    /// Handles a valid cookie with our own tag (RFC 9260 §5.2.4 B and D), which came from `remote`. Returns false if it comes too
    /// late.
    pub(crate) fn handle_own_cookie<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        cookie: &StateCookie,
        remote: SocketAddr,
    ) -> bool {
        if !self.is_set_up() {
            if let Some(path) =
                self.paths.to(remote.ip()).filter(|&p| self.paths[p].state() == PathState::Active)
            {
                self.paths.set_primary(path);
            }
            // The peer uses all these addresses; so far only those named by the user are known.
            self.take_addresses(cx, &cookie.addresses);
            let shutdown_wanted = self.is_shutdown_wanted();
            self.establish_from_cookie(cx, cookie, remote);
            self.give_up_beyond_streams(cx);
            self.announce_connected(cx, shutdown_wanted);
            return true;
        }
        if self.identity.peer_tag != Some(cookie.peer_tag) {
            // Both ends have sent an INIT, and the peer uses its second tag, unless data has passed under the first one, which
            // the second does not cover.
            let nothing_arrived = self.outbound.is_unacknowledged_since(self.identity.local_initial_tsn);
            if !nothing_arrived || !self.inbound.as_ref().is_some_and(Inbound::is_untouched) {
                return false;
            }
            self.identity.peer_tag = Some(cookie.peer_tag);
            self.begin_inbound(cookie.peer_initial_tsn, cookie.streams_in);
        }
        self.acknowledge_cookie(cx, remote);
        true
    }

    /// Answers a COOKIE ECHO to its source (RFC 9260 §6.4). An unconfirmed address gets a HEARTBEAT with the answer (§5.4).
    fn acknowledge_cookie<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, remote: SocketAddr) {
        let path = self.paths.to(remote.ip());
        // First in its packet (RFC 9260 §5.1 D).
        self.control.push_first(Control::new(CookieAck::KIND, path, |out| CookieAck.write(out)));
        if let Some(path_id) =
            path.filter(|&p| self.paths[p].state() == PathState::Unconfirmed && p != self.paths.primary())
        {
            let heartbeat = self.heartbeat(cx, path_id);
            self.push_control(heartbeat);
        }
    }

    fn take_peer(&mut self, initial_tsn: Tsn, window_bytes: u32, streams_out: u16, streams_in: u16) {
        let pool = self.config.receive_pool.clone();
        self.outbound.set_peer(window_bytes as usize, streams_out, pool);
        self.begin_inbound(initial_tsn, streams_in);
    }

    /// Starts receiving data. Unread events stay counted.
    fn begin_inbound(&mut self, initial_tsn: Tsn, streams: u16) {
        let extensions = self.peer.extensions();
        self.inbound.open(Inbound::new(initial_tsn, streams, &self.config, extensions));
    }

    /// Enables the extensions beyond RFC 9260 that both sides support.
    fn agree(&mut self, adaptation: Option<u32>, both: Extensions) {
        self.peer.on_handshake(adaptation, both);
        self.ecn = Ecn::new(both.ecn);
    }

    fn establish<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        self.state = State::Established;
        self.statistics.established_at = Some(cx.now);
        self.timers.on_data(cx.now);
        self.errors.on_answer();
        // RFC 9260 §5.4: the address of the handshake is confirmed, the others are probed.
        let primary = self.paths.primary();
        self.paths[primary].confirm();
        self.outbound.set_multipath(self.paths.len() > 1 && self.wants_multipath());
        if let Some(inbound) = self.inbound.as_mut() {
            let ways = self.paths.len().max(self.local.listed().len());
            inbound.set_multipath(self.peer.extensions().multipath && ways > 1);
        }
        self.start_heartbeats(cx);
    }

    /// Returns whether several paths carry data. Paths that stay on this host share the processor as their bottleneck: a second
    /// one carries no more data, and reordering costs more.
    fn wants_multipath(&self) -> bool {
        let leaves_host = || !self.paths.iter().all(Path::stays_on_host);
        match self.config.multipath {
            Multipath::Off => false,
            Multipath::Agreed => self.peer.extensions().multipath && leaves_host(),
            Multipath::Always => true,
        }
    }

    /// Handles an INIT ACK in state COOKIE-WAIT (RFC 9260 §5.1 C); ignores it in other states (§5.2.3). The endpoint has refused
    /// those that must not change anything.
    pub(super) fn handle_init_ack<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        remote: SocketAddr,
        ack: &Init<'_>,
    ) {
        let State::CookieWait(setup) = self.state else {
            return self.discard_chunk();
        };
        if let Some(path) = self.paths.to(remote.ip()) {
            self.paths.set_primary(path);
        }
        if setup.t1.attempts() == 0 {
            self.measure_handshake(cx.now, setup.t1.elapsed(cx.now));
        }
        // An invalid INIT ACK may have tag 0, which is no tag to answer with.
        self.identity.peer_tag = Some(ack.initiate_tag).filter(|tag| tag.0 != 0);
        // RFC 9260 §3.3.3, §5.1.2 B: an invalid INIT ACK ends the association.
        let peer = match PeerInit::from_init(ack) {
            Ok(peer) => peer,
            Err(bad) => return self.abort_for_cause(cx, &bad.cause(), bad.text()),
        };
        let Some(cookie) = peer.cookie.clone() else {
            let missing = [StateCookieParameter::KIND.to_be_bytes()];
            let kinds = KindList::new(&missing);
            let cause = Cause::MissingMandatoryParameter(MissingMandatoryParameter { kinds });
            return self.abort_for_cause(cx, &cause, "an INIT ACK without a state cookie");
        };
        let streams_out = self.config.streams_out.max(1).min(peer.streams_in);
        let streams_in = self.config.streams_in_max.max(1).min(peer.streams_out);
        self.agree(peer.adaptation, Extensions::offered(&self.config).and(peer.extensions));
        self.take_peer(peer.initial_tsn, peer.window_bytes, streams_out, streams_in);
        self.give_up_beyond_streams(cx);
        let ignored = &mut cx.statistics.addresses_ignored;
        let addresses = peer.reachable_at(remote.ip(), &self.local, ignored);
        self.take_addresses(cx, &addresses);
        self.control.clear();
        let rto = self.paths[self.paths.primary()].rto().current();
        // The attempts before a stale cookie count, so that no peer can prolong the setup without limit.
        let attempts = if setup.cookie_increment.is_some() { setup.t1.attempts() } else { 0 };
        let t1 = Retry::start_after(cx.now, rto, attempts);
        let echo_bytes = HEADER_BYTES + CookieEcho { cookie: &cookie }.wire_bytes();
        self.state = State::CookieEchoed { setup: Setup { t1, ..setup }, cookie };
        self.push_cookie_echo();
        if !peer.unrecognized.is_empty() {
            let cause = UnrecognizedParameters { parameters: Parameters::new(&peer.unrecognized) };
            let chunk = error_chunk(&Cause::UnrecognizedParameters(cause));
            // RFC 9260 §3.2.2: the report goes with the cookie, or after the COOKIE ACK; then it would not be worth a packet.
            if echo_bytes + chunk.len() <= self.paths[self.paths.primary()].mtu_bytes() {
                self.push_control(Control::of(Error::KIND, None, chunk));
            }
        }
    }

    /// Sets the peer's addresses: those that its INIT ACK lists, and the source of the packet (RFC 9260 §5.1.2 A and C). Other
    /// addresses named by the user are removed.
    fn take_addresses<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, addresses: &[IpAddr]) {
        let first = self.paths[self.paths.primary()].remote();
        let handshake = self.paths[self.paths.primary()].local();
        // Chunks outstanding since an earlier cookie refer to their path by number.
        if self.outbound.is_unsent_since(self.identity.local_initial_tsn) {
            self.paths.keep_primary_and(addresses);
        }
        for &address in addresses {
            let other = SocketAddr::new(address, first.port());
            if self.paths.to(address).is_none() {
                let hints = cx.host.path_hints(other);
                let local = self.local.source(address, hints, handshake);
                self.paths.push(Path::new(other, local, hints, &self.config));
            }
        }
    }

    /// Handles the peer's report that our cookie came too late (RFC 9260 §5.2.6, 3): requests a new one with a longer lifetime.
    pub(super) fn handle_stale_cookie<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let State::CookieEchoed { setup, .. } = self.state else {
            return self.discard_chunk();
        };
        let attempts = setup.t1.attempts() + 1;
        if attempts > self.config.init_retries_max {
            return self.close(cx, CloseReason::NoAnswer);
        }
        let cookie_increment = Some(setup.t1.elapsed(cx.now) + COOKIE_LIFE_MORE);
        let t1 = Retry::start_after(cx.now, setup.t1.rto(), attempts);
        self.state = State::CookieWait(Setup { t1, cookie_increment, ..setup });
        self.identity.peer_tag = None;
        // The handshake begins again. No data has arrived, so only events may be unread.
        self.inbound.end(Inbound::held);
        self.control.clear();
        self.push_init();
    }

    /// Returns whether the user has requested a shutdown during the setup.
    fn is_shutdown_wanted(&self) -> bool {
        match &self.state {
            State::CookieWait(setup) | State::CookieEchoed { setup, .. } => setup.shutdown_wanted,
            _ => false,
        }
    }

    fn push_cookie_echo(&mut self) {
        if let State::CookieEchoed { cookie, .. } = &self.state {
            let write = |out: &mut Vec<u8>| CookieEcho { cookie }.write(out);
            // First in its packet (RFC 9260 §5.1 C).
            self.control.push_first(Control::new(CookieEcho::KIND, Some(self.paths.primary()), write));
        }
    }

    pub(super) fn handle_cookie_ack<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if let State::CookieEchoed { setup, .. } = self.state {
            self.establish(cx);
            self.announce_connected(cx, setup.shutdown_wanted);
        } else {
            // RFC 9260 §5.2.5.
            self.discard_chunk();
        }
    }

    /// Reports to the user that the requested association is up, and shuts it down if the user has requested that meanwhile.
    fn announce_connected<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, shutdown_wanted: bool) {
        let streams_in = self.inbound.as_ref().map_or(0, Inbound::streams);
        cx.statistics.connected += 1;
        cx.host.event(self.id, Event::Connected { streams_out: self.outbound.streams(), streams_in });
        self.tell_adaptation(cx);
        if shutdown_wanted {
            self.shutdown(cx);
        }
    }

    /// Abandons an address for which a chunk of the handshake was returned as undeliverable. Another address may answer; after
    /// the last one the setup fails.
    pub(crate) fn abandon_address<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        remote: SocketAddr,
        reason: CloseReason,
    ) {
        let Some(path_id) = self.paths.to(remote.ip()).filter(|_| self.paths.len() > 1) else {
            return self.close(cx, reason);
        };
        // A COOKIE ECHO is sent to another address when T1 expires, because the peer is known to exist.
        let State::CookieWait(Setup { t1, .. }) = &mut self.state else { return };
        let asked = path_id == self.paths.primary();
        self.paths.remove(path_id);
        if asked {
            t1.restart(cx.now);
            self.control.clear();
            self.push_init();
        } else {
            // A waiting INIT is redirected.
            self.control.redirect(self.paths.primary());
        }
    }

    /// Handles the expiry of T1: retransmits, or fails (RFC 9260 §4, notes 2 and 3; §5.1.6).
    pub(super) fn retry_setup<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let first = self.is_in_cookie_wait();
        let (State::CookieWait(setup) | State::CookieEchoed { setup, .. }) = &mut self.state else { return };
        let attempts = setup.t1.expire();
        self.statistics.t1_timeouts += 1;
        let timer = if first { Timer::T1Init } else { Timer::T1Cookie };
        trace::note_timer(&mut self.trace, cx.now, timer, attempts);
        if attempts > self.config.init_retries_max {
            return self.close(cx, CloseReason::NoAnswer);
        }
        setup.t1.back_off(cx.now, self.config.rto.max);
        if first {
            // Another address of the peer may answer (RFC 9260 §5.1.6 leaves the choice).
            self.paths.set_primary(self.paths.after(self.paths.primary()));
            self.control.clear();
            self.push_init();
        } else {
            // RFC 9260 §5.1: all confirmed addresses of the peer in turn (§5.4).
            let primary = self.paths.primary();
            let others = self.paths.others(primary).chain([primary]);
            let next = others.into_iter().find(|&p| self.paths[p].state() == PathState::Active);
            self.paths.set_primary(next.unwrap_or(primary));
            self.push_cookie_echo();
        }
    }
}

/// Returns new paths to these addresses. `handshake` is the local address that the handshake came to, if it is known.
pub(super) fn new_paths(
    remotes: &[(SocketAddr, PathHints)],
    local: &LocalAddresses,
    handshake: Option<IpAddr>,
    config: &AssociationConfig,
) -> Vec<Path> {
    let path = |&(remote, hints): &(SocketAddr, PathHints)| {
        Path::new(remote, local.source(remote.ip(), hints, handshake), hints, config)
    };
    remotes.iter().map(path).collect()
}
