//! INIT, INIT ACK, COOKIE ECHO, COOKIE ACK (RFC 9260 §5).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sctp_wire::cause::{Cause, MissingMandatoryParameter, UnrecognizedParameters};
use sctp_wire::chunk::{CookieAck, CookieEcho, Init, InitAck, RawChunk};
use sctp_wire::parameter::{self, KindList, Parameter, Parameters};
use sctp_wire::{Tsn, VerificationTag};

use super::causes::{abort_chunk, error_chunk, write_abort};
use super::{Association, Context, Control, Identity, Retry, State, make_path};
use crate::config::{AssociationConfig, COOKIE_BYTES_MAX, PEER_ADDRESSES_MAX, RECEIVE_WINDOW_BYTES_MIN};
use crate::cookie::StateCookie;
use crate::endpoint::{AssociationId, PathHints};
use crate::error::CloseReason;
use crate::event::{Event, Host};
use crate::inbound::Inbound;
use crate::path::{Path, PathState};
use crate::time::Time;
use crate::trace::{self, Timer};

/// Most bytes of unknown parameters that are reported back.
const REPORTED_BYTES_MAX: usize = 1024;

/// What an INIT or INIT ACK says about its sender, checked.
#[derive(Debug, Clone)]
pub(crate) struct PeerInit {
    pub(crate) tag: u32,
    pub(crate) window_bytes: u32,
    pub(crate) streams_out: u16,
    pub(crate) streams_in: u16,
    pub(crate) initial_tsn: u32,
    pub(crate) addresses: Vec<IpAddr>,
    /// Only in an INIT ACK.
    pub(crate) cookie: Option<Vec<u8>>,
    /// Parameters to report back, as they came (RFC 9260 §3.2.1).
    pub(crate) unrecognized: Vec<u8>,
}

impl PeerInit {
    /// Checks what both chunks share; `None` if a field or parameter is one that RFC 9260 §3.3.2 forbids.
    pub(crate) fn from_init(init: &Init<'_>) -> Option<PeerInit> {
        if init.initiate_tag.0 == 0
            || init.outbound_streams == 0
            || init.inbound_streams == 0
            || window_is_too_small(init)
        {
            return None;
        }
        let mut peer = PeerInit {
            tag: init.initiate_tag.0,
            window_bytes: init.a_rwnd,
            streams_out: init.outbound_streams,
            streams_in: init.inbound_streams,
            initial_tsn: init.initial_tsn.0,
            addresses: Vec::new(),
            cookie: None,
            unrecognized: Vec::new(),
        };
        let mut parameters = init.parameters();
        while let Some(raw) = parameters.next_raw() {
            let raw = raw.ok()?;
            match Parameter::parse(&raw).ok()? {
                Parameter::Ipv4(p) => peer.add_address(IpAddr::V4(p.address)),
                Parameter::Ipv6(p) => peer.add_address(IpAddr::V6(p.address)),
                Parameter::StateCookie(p) if p.cookie.len() <= COOKIE_BYTES_MAX => {
                    peer.cookie = Some(p.cookie.to_vec());
                }
                // RFC 9260 §5.1.2 B: such an association is not set up.
                Parameter::HostName(_) => return None,
                Parameter::Unknown(_) => {
                    let action = sctp_wire::unknown_parameter_action(raw.kind);
                    if action.report && peer.unrecognized.len() + raw.whole.len() <= REPORTED_BYTES_MAX {
                        peer.unrecognized.extend_from_slice(raw.whole);
                        peer.unrecognized.resize(peer.unrecognized.len().next_multiple_of(4), 0);
                    }
                    if action.stop {
                        break;
                    }
                }
                _ => {}
            }
        }
        Some(peer)
    }

    /// The sender's addresses: first the one that its packet came from, then those that it lists. A host that is not
    /// ourselves cannot have a loopback address that would mean anything to us.
    pub(crate) fn reachable_at(&self, source: IpAddr) -> Vec<IpAddr> {
        let listed = self.addresses.iter().copied();
        let listed = listed.filter(|a| *a != source && (source.is_loopback() || !a.is_loopback()));
        std::iter::once(source).chain(listed).take(PEER_ADDRESSES_MAX).collect()
    }

    fn add_address(&mut self, address: IpAddr) {
        if self.addresses.len() < PEER_ADDRESSES_MAX
            && is_unicast(address)
            && !self.addresses.contains(&address)
        {
            self.addresses.push(address);
        }
    }
}

fn window_is_too_small(init: &Init<'_>) -> bool {
    (init.a_rwnd as usize) < RECEIVE_WINDOW_BYTES_MIN
}

/// The window to advertise, never less than RFC 9260 §3.3.2 allows.
fn initial_window(config: &AssociationConfig) -> u32 {
    u32::try_from(config.receive_buffer_bytes.max(RECEIVE_WINDOW_BYTES_MIN)).unwrap_or(u32::MAX)
}

/// Whether an address can be that of one host.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}

/// Appends an INIT ACK (RFC 9260 §3.3.3), which asks for no more streams than the INIT allows.
pub(crate) fn write_init_ack(
    identity: &Identity,
    config: &AssociationConfig,
    streams_out: u16,
    local_addresses: &[IpAddr],
    cookie: &[u8],
    unrecognized: &[u8],
    out: &mut Vec<u8>,
) {
    let mut parameters = Vec::new();
    write_addresses(local_addresses, &mut parameters);
    parameter::StateCookie { cookie }.write(&mut parameters);
    // RFC 9260 §3.2.2: each in a parameter of its own.
    let mut reported = Parameters::new(unrecognized);
    while let Some(Ok(raw)) = reported.next_raw() {
        parameter::UnrecognizedParameter { parameter: raw.whole }.write(&mut parameters);
    }
    InitAck {
        initiate_tag: VerificationTag(identity.local_tag),
        a_rwnd: initial_window(config),
        outbound_streams: streams_out,
        inbound_streams: config.streams_in_max.max(1),
        initial_tsn: Tsn(identity.local_initial_tsn),
        parameters: Parameters::new(&parameters),
    }
    .write(out);
}

/// One address is the packet's own source and is not listed (RFC 9260 §3.3.2.1, note 2).
fn write_addresses(addresses: &[IpAddr], out: &mut Vec<u8>) {
    if addresses.len() < 2 {
        return;
    }
    for address in addresses {
        // RFC 9260 §3.3.2.1.2: an IPv4 address never goes out as a mapped one.
        match address.to_canonical() {
            IpAddr::V4(v4) => parameter::Ipv4 { address: v4 }.write(out),
            IpAddr::V6(v6) => parameter::Ipv6 { address: v6 }.write(out),
        }
    }
}

impl Association {
    /// Starts to set up an association: an INIT waits to be sent.
    pub(crate) fn connect(
        now: Time,
        id: AssociationId,
        config: Arc<AssociationConfig>,
        identity: Identity,
        remotes: &[(SocketAddr, PathHints)],
        local_addresses: &[IpAddr],
    ) -> Self {
        let paths: Vec<Path> = remotes.iter().map(|&(r, hints)| make_path(r, None, hints, &config)).collect();
        let rto = config.rto.initial;
        let t1 = Retry { at: now + rto, attempts: 0, rto };
        let mut association = Association::new(id, config, identity, State::CookieWait { t1 }, paths);
        association.lists_addresses = local_addresses.len() > 1;
        association.push_init(local_addresses);
        association
    }

    fn push_init(&mut self, local_addresses: &[IpAddr]) {
        let mut parameters = Vec::new();
        write_addresses(local_addresses, &mut parameters);
        let mut bytes = Vec::new();
        Init {
            initiate_tag: VerificationTag(self.identity.local_tag),
            a_rwnd: initial_window(&self.config),
            outbound_streams: self.config.streams_out.max(1),
            inbound_streams: self.config.streams_in_max.max(1),
            initial_tsn: Tsn(self.identity.local_initial_tsn),
            parameters: Parameters::new(&parameters),
        }
        .write(&mut bytes);
        self.control.push_back(Control { bytes, path: Some(self.primary), init: true });
    }

    /// Sets up the receiving half of a cookie, on the side that listens.
    pub(crate) fn accept<H: Host + ?Sized>(
        cx: &mut Context<'_, H>,
        id: AssociationId,
        config: Arc<AssociationConfig>,
        cookie: &StateCookie,
        remotes: &[(SocketAddr, PathHints)],
        local: Option<IpAddr>,
    ) -> Self {
        let identity = Identity {
            local_port: cookie.local_port,
            peer_port: cookie.peer_port,
            local_tag: cookie.local_tag,
            peer_tag: cookie.peer_tag,
            local_initial_tsn: cookie.local_initial_tsn,
        };
        let paths = remotes.iter().map(|&(r, hints)| make_path(r, local, hints, &config)).collect();
        let mut association = Association::new(id, config, identity, State::Established, paths);
        association.establish_from_cookie(cx, cookie);
        let peer = SocketAddr::new(association.paths[0].remote.ip(), cookie.peer_port);
        cx.host.event(id, Event::Accepted { port: cookie.local_port, peer });
        association
    }

    /// Takes the peer's half from a valid cookie and answers with COOKIE ACK (RFC 9260 §5.1 D, §5.2.4 B).
    fn establish_from_cookie<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, cookie: &StateCookie) {
        self.identity.peer_tag = cookie.peer_tag;
        self.take_peer(
            cookie.peer_initial_tsn,
            cookie.peer_window_bytes,
            cookie.streams_out,
            cookie.streams_in,
        );
        self.control.clear();
        self.acknowledge_cookie();
        self.measure_handshake(cx.now.saturating_since(cookie.created));
        self.establish(cx);
    }

    /// The first round-trip time, from INIT to INIT ACK or from INIT ACK to COOKIE ECHO. What took as long as the peer
    /// waits before it repeats itself may be the answer to an earlier packet (RFC 9260 §6.3.1 C5).
    fn measure_handshake(&mut self, rtt: Duration) {
        if rtt < self.config.rto.initial {
            self.paths[self.primary].rto.measure(rtt, &self.config.rto);
        }
    }

    /// A valid cookie that bears our own tag (RFC 9260 §5.2.4 B and D).
    pub(crate) fn handle_own_cookie<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        cookie: &StateCookie,
    ) {
        if self.is_set_up() {
            self.acknowledge_cookie();
        } else {
            self.establish_from_cookie(cx, cookie);
            self.announce_connected(cx);
        }
    }

    /// Answers a COOKIE ECHO of this very association (RFC 9260 §5.2.4 D).
    fn acknowledge_cookie(&mut self) {
        let mut bytes = Vec::new();
        CookieAck.write(&mut bytes);
        self.push_control(bytes, None);
    }

    fn take_peer(&mut self, initial_tsn: u32, window_bytes: u32, streams_out: u16, streams_in: u16) {
        self.outbound.set_peer(window_bytes as usize, streams_out);
        self.inbound = Some(Inbound::new(Tsn(initial_tsn), streams_in, &self.config));
    }

    fn establish<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        self.state = State::Established;
        self.statistics.established_at = Some(cx.now);
        self.errors = 0;
        // RFC 9260 §5.4: the address that the handshake used is confirmed, the others are probed.
        let primary = self.primary;
        self.paths[primary].state = PathState::Active;
        self.start_heartbeats(cx);
    }

    /// INIT ACK in state COOKIE-WAIT (RFC 9260 §5.1 C). The peer's other addresses become paths.
    pub(super) fn handle_init_ack<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        remote: SocketAddr,
        ack: &Init<'_>,
    ) {
        let State::CookieWait { t1 } = self.state else { return };
        // RFC 9260 §3.3.3: this one is discarded and nothing changes; the endpoint answers it.
        if window_is_too_small(ack) {
            return;
        }
        if let Some(path) = self.path_of(remote) {
            self.primary = path;
        }
        if t1.attempts == 0 {
            let left = t1.at.saturating_since(cx.now);
            self.measure_handshake(t1.rto.saturating_sub(left));
        }
        if ack.initiate_tag.0 == 0 {
            return self.abort_without_tag(cx);
        }
        self.identity.peer_tag = ack.initiate_tag.0;
        let Some(peer) = PeerInit::from_init(ack) else {
            // RFC 9260 §3.3.3: no streams destroy the association.
            return self.abort_for_violation(cx, "an INIT ACK with an invalid mandatory parameter");
        };
        let addresses = peer.reachable_at(remote.ip());
        let Some(cookie) = peer.cookie else {
            let missing = [parameter::StateCookie::KIND.to_be_bytes()];
            let cause = MissingMandatoryParameter { kinds: KindList::new(&missing) };
            let chunk = abort_chunk(&Cause::MissingMandatoryParameter(cause));
            let why = CloseReason::ProtocolViolation("an INIT ACK without a state cookie");
            return self.abort_with(cx, chunk, why);
        };
        let streams_out = self.config.streams_out.max(1).min(peer.streams_in);
        let streams_in = self.config.streams_in_max.max(1).min(peer.streams_out);
        self.take_peer(peer.initial_tsn, peer.window_bytes, streams_out, streams_in);
        // Without a list of ours, the peer knows only the address that the handshake used; it would answer
        // anything from another one with ABORT (RFC 9260 §8.4).
        let local = if self.lists_addresses { None } else { self.paths[self.primary].local };
        for address in addresses {
            let other = SocketAddr::new(address, self.paths[self.primary].remote.port());
            if self.path_of(other).is_none() {
                self.paths.push(make_path(other, local, cx.host.path_hints(other), &self.config));
                self.paths_changed = true;
            }
        }
        self.control.clear();
        let rto = self.paths[self.primary].rto.current();
        let t1 = Retry { at: cx.now + rto, attempts: 0, rto };
        self.state = State::CookieEchoed { t1, cookie };
        self.push_cookie_echo();
        if !peer.unrecognized.is_empty() {
            let cause = UnrecognizedParameters { parameters: Parameters::new(&peer.unrecognized) };
            self.push_control(error_chunk(&Cause::UnrecognizedParameters(cause)), None);
        }
    }

    /// An INIT ACK without a tag ends the attempt, and the ABORT reflects our own (RFC 9260 §3.3.3).
    fn abort_without_tag<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        self.identity.peer_tag = self.identity.local_tag;
        let mut chunk = Vec::new();
        write_abort(true, &mut chunk);
        self.abort_with(cx, chunk, CloseReason::ProtocolViolation("an INIT ACK without an initiate tag"));
    }

    /// The tag to refuse an INIT ACK with whose window is too small; the attempt goes on (RFC 9260 §3.3.3).
    pub(crate) fn refuses_window_of(&self, raw: &RawChunk<'_>) -> Option<VerificationTag> {
        let State::CookieWait { .. } = self.state else { return None };
        Init::parse(raw).ok().filter(window_is_too_small).map(|ack| ack.initiate_tag).filter(|tag| tag.0 != 0)
    }

    fn push_cookie_echo(&mut self) {
        if let State::CookieEchoed { cookie, .. } = &self.state {
            let mut bytes = Vec::new();
            CookieEcho { cookie }.write(&mut bytes);
            // First in its packet (RFC 9260 §5.1 C).
            self.control.push_front(Control { bytes, path: Some(self.primary), init: false });
        }
    }

    pub(super) fn handle_cookie_ack<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if matches!(self.state, State::CookieEchoed { .. }) {
            self.establish(cx);
            self.announce_connected(cx);
        }
    }

    /// Tells the user that the association that it asked for is up.
    fn announce_connected<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let streams_in = self.inbound.as_ref().map_or(0, Inbound::streams);
        cx.statistics.connected += 1;
        cx.host.event(self.id, Event::Connected { streams_out: self.outbound.streams(), streams_in });
        if self.shutdown_wanted {
            self.shutdown(cx);
        }
    }

    /// T1 expired: once more, or give up (RFC 9260 §4, notes 2 and 3; §5.1.6).
    pub(super) fn retry_setup<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        local_addresses: &[IpAddr],
    ) {
        let first = matches!(self.state, State::CookieWait { .. });
        let (State::CookieWait { t1 } | State::CookieEchoed { t1, .. }) = &mut self.state else { return };
        t1.attempts += 1;
        self.statistics.t1_timeouts += 1;
        let timer = if first { Timer::T1Init } else { Timer::T1Cookie };
        trace::note_timer(&mut self.trace, cx.now, timer, t1.attempts);
        if t1.attempts > self.config.init_retries_max {
            return self.close(cx, CloseReason::NoAnswer);
        }
        t1.rto = (t1.rto * 2).min(self.config.rto.max);
        t1.at = cx.now + t1.rto;
        if first {
            // Another address of the peer may answer (RFC 9260 §5.1.6 leaves the choice).
            self.primary = (self.primary + 1) % self.paths.len();
            self.control.clear();
            self.push_init(local_addresses);
        } else {
            self.push_cookie_echo();
        }
    }
}
