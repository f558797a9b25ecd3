//! The passive side of the handshake, and handshakes that meet an existing association (RFC 9260 §5.1, §5.2).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sctp_wire::VerificationTag;
use sctp_wire::cause::{Cause, NewEncapsulationPort, OutOfResource, RestartWithNewAddresses, StaleCookie};
use sctp_wire::chunk::{CookieEcho, Init};
use sctp_wire::packet::{HEADER_BYTES, Header};
use sctp_wire::parameter::Parameters;

use super::admissions::{AtLimit, Limits, Source};
use super::answer_budget::InitSource;
use super::incoming::{Handled, Incoming};
use super::listeners::Listener;
use super::other_ways::{Elsewhere, LOOKED_AT_MAX};
use super::{AssociationId, Endpoint, PathHints, PeerKey, Reply};
use crate::association::{
    Association, BadInit, Context, InitAnswer, PeerInit, abort_chunk, error_chunk, write_abort,
    write_address_list,
};
use crate::config::{AssociationConfig, COOKIE_INCREMENT_MAX, RECEIVE_WINDOW_BYTES_MIN};
use crate::cookie::{CookieError, StateCookie, TieTags};
use crate::event::{Event, Host};
use crate::extensions::Extensions;
use crate::identity::Identity;
use crate::local_addresses::LocalAddresses;
use crate::receive_pool::ReceivePool;
use crate::route::Route;
use crate::time::Time;

/// Maximum length of an answer to a stranger, as a multiple of the packet that it answers.
const AMPLIFICATION_MAX: usize = 3;

/// Contents of the INIT ACK for an INIT.
struct Offer {
    config: Arc<AssociationConfig>,
    local: LocalAddresses,
    identity: Identity,
    /// The peer's addresses that we can use.
    addresses: Vec<IpAddr>,
    ties: TieTags,
    route: Route,
}

/// The SCTP ports of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ports {
    local: u16,
    peer: u16,
}

impl Ports {
    /// Returns the key of an association with these ports and this address of the peer.
    fn with(self, remote: SocketAddr) -> PeerKey {
        PeerKey { remote, local_port: self.local, peer_port: self.peer }
    }
}

impl Endpoint {
    /// Handles an INIT (RFC 9260 §5.1 A and B, §5.2.1, §5.2.2). Keeps no state.
    pub(super) fn handle_init<H: Host + ?Sized>(&mut self, now: Time, incoming: &Incoming<'_>, host: &H) {
        let (Incoming { route, packet, first }, header) = (*incoming, &incoming.header());
        // An INIT must be alone in its packet, with tag 0 (RFC 9260 §8.5.1 A, §6.10).
        if header.verification_tag.0 != 0 || packet.chunks().count() != 1 {
            self.statistics.tag_errors += 1;
            return;
        }
        let Some(init) =
            Init::parse(first).ok().filter(|init| init.initiate_tag.0 != 0 && route.is_unicast())
        else {
            self.statistics.malformed += 1;
            return;
        };
        let is_port_in_use = self.is_port_in_use(header.destination_port);
        if !is_port_in_use {
            self.strays.on_stray(now);
        }
        let source = InitSource {
            remote: route.remote,
            ports: (header.source_port, header.destination_port),
            tag: init.initiate_tag,
        };
        if !self.budget.draw_for_init(now, source, is_port_in_use) {
            self.statistics.answers_withheld += 1;
            return;
        }
        let peer = match PeerInit::from_init(&init) {
            Ok(peer) => peer,
            Err(bad) => return self.refuse_init(route, header, init.initiate_tag, &bad),
        };
        let Some(offer) = self.offer_for(route, header, &peer, host) else { return };
        self.statistics.inits_received += 1;
        let Offer { config, local, identity, route, addresses, .. } = offer;
        let cookie = StateCookie {
            created: now,
            life: config.cookie_life + peer.cookie_increment.min(COOKIE_INCREMENT_MAX),
            local_tag: identity.local_tag,
            peer_tag: peer.tag,
            local_initial_tsn: identity.local_initial_tsn,
            peer_initial_tsn: peer.initial_tsn,
            peer_window_bytes: peer.window_bytes,
            local_port: identity.local_port,
            peer_port: identity.peer_port,
            streams_out: config.streams_out.max(1).min(peer.streams_in),
            streams_in: config.streams_in_max.max(1).min(peer.streams_out),
            extensions: Extensions::offered(&config).and(peer.extensions),
            ties: offer.ties,
            adaptation: peer.adaptation,
            addresses,
        };
        let sealed = self.cookies.seal(&cookie);
        let answer = InitAnswer {
            config: &config,
            cookie: &cookie,
            sealed_cookie: &sealed,
            local: &local,
            peer: &peer,
            to: route.remote.ip(),
            bytes_max: answer_bytes_max(route.remote, packet.as_bytes().len()),
        };
        let reply = self.reply_to(route, header, init.initiate_tag, |out| answer.write(out));
        self.push_answer(Reply { dscp: config.dscp, ..reply });
    }

    /// Refuses an INIT with an ABORT that states the reason (RFC 9260 §3.3.2, §5.1.2 B).
    fn refuse_init(&mut self, route: Route, header: &Header, tag: VerificationTag, bad: &BadInit) {
        self.statistics.malformed += 1;
        self.reply(route, header, tag, |out| out.extend_from_slice(&abort_chunk(&bad.cause())));
    }

    /// Answers an INIT ACK with a window that is too narrow, or without a tag, by an ABORT (RFC 9260 §3.3.3). The association
    /// waits for another one in the first case, and ends in the second.
    pub(super) fn refuse_unusable_init_ack(&mut self, incoming: &Incoming<'_>) -> Handled {
        let (route, header) = (incoming.route, &incoming.header());
        // An INIT ACK has the fields of an INIT.
        let Ok(ack) = Init::parse(incoming.first) else { return Handled::NotYet };
        if ack.initiate_tag.0 == 0 {
            // The answer can only reflect the tag of the peer's packet.
            self.reply(route, header, header.verification_tag, |out| write_abort(true, out));
            return Handled::NotYet;
        }
        if (ack.a_rwnd as usize) < RECEIVE_WINDOW_BYTES_MIN {
            self.refuse_init(route, header, ack.initiate_tag, &BadInit::Field);
            return Handled::Done;
        }
        Handled::NotYet
    }

    /// Returns the contents of the answer to an INIT: for a new association, or for the one that any of its addresses belongs to
    /// (RFC 9260 §5.1.2 D). `None` if the INIT is answered already.
    fn offer_for<H: Host + ?Sized>(
        &mut self,
        route: Route,
        header: &Header,
        peer: &PeerInit,
        host: &H,
    ) -> Option<Offer> {
        let listed = std::iter::once(route.remote.ip()).chain(peer.addresses.iter().copied());
        let ports = Ports { local: header.destination_port, peer: header.source_port };
        if let Some(id) = self.owner_of_any(listed.clone(), route.remote.port(), route.local, ports) {
            return self.offer_again(id, route, header, peer);
        }
        let from = (route.remote.ip(), header.source_port);
        let Some(listener) = self.listeners.at(header.destination_port, route.local, from).cloned() else {
            if self.may_belong_to_other_stack(header.destination_port, route.local) {
                return None;
            }
            // RFC 9260 §8.4, 3: there is no listener.
            self.reply(route, header, peer.tag, |out| write_abort(false, out));
            return None;
        };
        let ignored = &mut self.statistics.addresses_ignored;
        let addresses = peer.reachable_at(route.remote.ip(), &listener.local, ignored);
        if listener.config.refuse_beyond_backlog && !host.takes_association(listener.id, addresses.len()) {
            self.reply(route, header, peer.tag, |out| write_abort(false, out));
            return None;
        }
        let ports = Ports { local: header.destination_port, peer: header.source_port };
        if self.refuse_at_limit(&listener, &self.source_of(route, ports, host)) {
            self.reply(route, header, peer.tag, |out| {
                out.extend_from_slice(&abort_chunk(&Cause::OutOfResource(OutOfResource)));
            });
            return None;
        }
        if let Some(chunk) = self.refuse_second_way(&listener, route, ports, listed, host) {
            self.reply(route, header, peer.tag, |out| out.extend_from_slice(&chunk));
            return None;
        }
        let identity = Identity {
            local_port: header.destination_port,
            peer_port: header.source_port,
            local_tag: self.new_tag(),
            peer_tag: None,
            local_initial_tsn: self.new_initial_tsn(),
        };
        let Listener { local, config, .. } = listener;
        Some(Offer { config, local, identity, addresses, ties: TieTags::default(), route })
    }

    /// Returns the contents of the answer to an INIT of a peer with an existing association (RFC 9260 §5.2.1, §5.2.2, §9.2).
    fn offer_again(
        &mut self,
        id: AssociationId,
        route: Route,
        header: &Header,
        peer: &PeerInit,
    ) -> Option<Offer> {
        let association = self.associations.get_mut(id)?;
        if association.repeat_shutdown_ack() {
            self.update_queues(id);
            return None;
        }
        let (config, mut identity) = (association.config(), association.identity());
        let local = association.local().clone();
        let ignored = &mut self.statistics.addresses_ignored;
        let addresses = peer.reachable_at(route.remote.ip(), &local, ignored);
        let is_known = |address: &IpAddr| association.remotes().any(|known| known.ip() == *address);
        if association.is_in_cookie_wait() {
            // The answer goes only to an address that the user has named (RFC 9260 §5.2.1, 1 to 3).
            let source = Some(route.remote.ip()).filter(is_known);
            let back = source.or_else(|| peer.addresses.iter().copied().find(is_known))?;
            let route = Route { remote: SocketAddr::new(back, route.remote.port()), ..route };
            return Some(Offer { config, local, identity, addresses, ties: TieTags::default(), route });
        }
        let added: Vec<IpAddr> = addresses.iter().copied().filter(|a| !is_known(a)).collect();
        if !added.is_empty() {
            let mut list = Vec::new();
            write_address_list(&added, &mut list);
            let cause = RestartWithNewAddresses { addresses: Parameters::new(&list) };
            self.statistics.restarts_refused += 1;
            self.reply(route, header, peer.tag, |out| {
                out.extend_from_slice(&abort_chunk(&Cause::RestartWithNewAddresses(cause)));
            });
            return None;
        }
        let ties = self.cookies.tie_tags(identity.local_tag, identity.peer_tag.unwrap_or_default());
        if association.is_set_up() {
            identity.local_tag = self.new_tag();
            identity.local_initial_tsn = self.new_initial_tsn();
        }
        Some(Offer { config, local, identity, addresses, ties, route })
    }

    /// Handles a COOKIE ECHO (RFC 9260 §5.1 D, §5.1.5, §5.2.4). The association of a valid one handles the rest of the packet.
    pub(super) fn handle_cookie_echo<H: Host + ?Sized>(
        &mut self,
        now: Time,
        incoming: &Incoming<'_>,
        host: &mut H,
    ) -> Handled {
        let (route, header) = (incoming.route, &incoming.header());
        let opened = CookieEcho::parse(incoming.first)
            .map_err(|_| CookieError::Invalid)
            .and_then(|echo| self.cookies.open(echo.cookie, now));
        let (cookie, late) = match opened {
            Ok(cookie) => (cookie, None),
            Err(CookieError::Stale { by, cookie }) => (*cookie, Some(by)),
            Err(CookieError::Invalid) => {
                self.strays.on_stray(now);
                return self.refuse_cookie();
            }
        };
        // An attacker that has seen the cookie cannot use it from another address: the cookie contains the addresses of the INIT.
        if cookie.local_tag != header.verification_tag
            || cookie.local_port != header.destination_port
            || cookie.peer_port != header.source_port
            || !cookie.addresses.contains(&route.remote.ip())
        {
            return self.refuse_cookie();
        }
        let existing = self.owner_of_cookie(&cookie, route.remote.port(), route.local);
        let own = existing.and_then(|id| self.associations.get(id)).map(|a| a.identity());
        let (same_local, same_peer) = match &own {
            Some(own) => (own.local_tag == cookie.local_tag, own.peer_tag == Some(cookie.peer_tag)),
            None => (false, false),
        };
        // RFC 9260 §5.2.4, 3: if both tags match, the age does not matter.
        if let Some(by) = late.filter(|_| !(same_local && same_peer)) {
            return self.report_stale_cookie(now, route, header, &cookie, by);
        }
        let (Some(id), Some(own)) = (existing, own) else {
            return self.accept(now, route, &cookie, host);
        };
        // RFC 9260 §5.2.4, table 12.
        if same_local {
            // D: a COOKIE ECHO of this association, possibly a duplicate; B: both sides have sent an INIT.
            let mut taken = false;
            self.with_open(id, now, host, |a, cx| taken = a.handle_own_cookie(cx, &cookie, route.remote));
            return if taken { Handled::NotYet } else { self.refuse_cookie() };
        }
        let ties = self.cookies.tie_tags(own.local_tag, own.peer_tag.unwrap_or_default());
        if !same_peer && cookie.ties == ties {
            return self.restart(now, id, route, &cookie, host);
        }
        // C and all other cases: the cookie is too late.
        self.refuse_cookie()
    }

    /// Reports a stale cookie to the peer (RFC 9260 §5.1.5, 4).
    fn report_stale_cookie(
        &mut self,
        now: Time,
        route: Route,
        header: &Header,
        cookie: &StateCookie,
        by: Duration,
    ) -> Handled {
        if !self.draw_answer_to_cookie(now, route) {
            return self.refuse_cookie();
        }
        let staleness_us = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
        self.reply(route, header, cookie.peer_tag, |out| {
            out.extend_from_slice(&error_chunk(&Cause::StaleCookie(StaleCookie { staleness_us })));
        });
        self.refuse_cookie()
    }

    fn refuse_cookie(&mut self) -> Handled {
        self.statistics.cookie_errors += 1;
        Handled::Done
    }

    /// Returns the existing association of a cookie: by its tag, or by the ports and one of the addresses of its INIT. The tag
    /// takes precedence, because the peer's UDP port may have changed on the way (RFC 6951 §5.4).
    fn owner_of_cookie(
        &self,
        cookie: &StateCookie,
        udp_port: u16,
        local: Option<IpAddr>,
    ) -> Option<AssociationId> {
        let ports = Ports { local: cookie.local_port, peer: cookie.peer_port };
        let by_tag = self.by_tag.get(&cookie.local_tag).copied().filter(|id| {
            self.associations.get(*id).is_some_and(|association| {
                let own = association.identity();
                Ports { local: own.local_port, peer: own.peer_port } == ports
                    && association.local().serve(local)
            })
        });
        by_tag.or_else(|| self.owner_of_any(cookie.addresses.iter().copied(), udp_port, local, ports))
    }

    /// Returns the association between these ports that has one of the addresses and receives packets at `local`.
    fn owner_of_any(
        &self,
        addresses: impl IntoIterator<Item = IpAddr>,
        udp_port: u16,
        local: Option<IpAddr>,
        ports: Ports,
    ) -> Option<AssociationId> {
        addresses
            .into_iter()
            .find_map(|address| self.owner(&ports.with(SocketAddr::new(address, udp_port)), local))
    }

    /// Returns the ABORT for a peer of a listener for distinct peers that the user would take for another one, and counts it
    /// (draft-tuexen-tsvwg-sctp-udp-encaps-cons-03 §4.4): another peer at the listener's addresses has one of its addresses and
    /// its SCTP port through another UDP port, or so many peers at other addresses have that the search ends; or it sends from
    /// this host, past this endpoint, from an address and a port that a listener of this endpoint has.
    fn refuse_second_way<H: Host + ?Sized>(
        &mut self,
        listener: &Listener,
        route: Route,
        ports: Ports,
        addresses: impl IntoIterator<Item = IpAddr>,
        host: &H,
    ) -> Option<Vec<u8>> {
        if !listener.config.distinct_peers {
            return None;
        }
        let new_port = route.remote.port();
        let key = |address| ports.with(SocketAddr::new(address, new_port));
        let mut steps = LOOKED_AT_MAX;
        let is_other = addresses.into_iter().any(|address| {
            let found = self.find_elsewhere(key(address), &listener.local, 0, &mut steps);
            !matches!(found, Elsewhere::Nowhere)
        });
        if !is_other && !self.listeners.serve(ports.peer, Some(route.remote.ip())) {
            return None;
        }
        if host.is_own_endpoint(route.remote) || !is_other && !host.is_same_host(route.remote.ip()) {
            return None;
        }
        self.statistics.restarts_refused += 1;
        // The port of the other peer is none of this one's business.
        let cause = NewEncapsulationPort { current_port: 0, new_port };
        Some(abort_chunk(&Cause::NewEncapsulationPort(cause)))
    }

    /// Restarts an association whose peer has restarted (RFC 9260 §5.2.4 A).
    fn restart<H: Host + ?Sized>(
        &mut self,
        now: Time,
        id: AssociationId,
        route: Route,
        cookie: &StateCookie,
        host: &mut H,
    ) -> Handled {
        let Some(association) = self.associations.get_mut(id) else { return Handled::Done };
        if association.refuse_restart() {
            self.update_queues(id);
            return Handled::Done;
        }
        // Two INIT ACKs may have drawn the same tag, and only the first association can have it.
        let is_taken = self.by_tag.contains_key(&cookie.local_tag);
        if !association.is_set_up() || is_taken || !association.has_room_for_restart() {
            return self.refuse_cookie();
        }
        let old_tag = association.identity().local_tag;
        let remotes = cookie_remotes(cookie, route, host);
        self.unregister(id);
        self.by_tag.remove(&old_tag);
        self.by_tag.insert(cookie.local_tag, id);
        self.strays.on_tags_changed();
        self.last = None;
        self.with_open(id, now, host, |a, cx| a.restart(cx, cookie, &remotes, &route));
        self.register(id);
        Handled::NotYet
    }

    fn accept<H: Host + ?Sized>(
        &mut self,
        now: Time,
        route: Route,
        cookie: &StateCookie,
        host: &mut H,
    ) -> Handled {
        let from = (route.remote.ip(), cookie.peer_port);
        let Some(listener) = self.listeners.at(cookie.local_port, route.local, from).cloned() else {
            // The listener has been closed.
            return self.abort_cookie(now, route, cookie, &abort_chunk_without_cause());
        };
        let ports = Ports { local: cookie.local_port, peer: cookie.peer_port };
        let source = self.source_of(route, ports, host);
        if self.refuse_at_limit(&listener, &source) {
            let chunk = abort_chunk(&Cause::OutOfResource(OutOfResource));
            return self.abort_cookie(now, route, cookie, &chunk);
        }
        let listed = cookie.addresses.iter().copied();
        let takes_place = listener.config.distinct_peers && host.is_own_endpoint(route.remote);
        if takes_place && !self.abort_other_ways(now, ports.with(route.remote), &listener.local, host) {
            // The peer repeats its COOKIE ECHO.
            self.statistics.accepts_put_off += 1;
            return Handled::Done;
        }
        if let Some(chunk) = self.refuse_second_way(&listener, route, ports, listed, host) {
            return self.abort_cookie(now, route, cookie, &chunk);
        }
        if !host.takes_association(listener.id, cookie.addresses.len()) {
            if listener.config.refuse_beyond_backlog {
                return self.abort_cookie(now, route, cookie, &abort_chunk_without_cause());
            }
            self.statistics.accepts_put_off += 1;
            return Handled::Done;
        }
        // Two INIT ACKs may have drawn the same tag, and only the first association can have it.
        if self.by_tag.contains_key(&cookie.local_tag) {
            return self.refuse_cookie();
        }
        self.statistics.accepted += 1;
        let remotes = cookie_remotes(cookie, route, host);
        let id = self.associations.next_id();
        let mut cx = Context {
            now,
            host,
            random: &mut self.random,
            blocks: &mut self.free_blocks,
            statistics: &mut self.statistics,
        };
        let Listener { id: listener, local, config, .. } = listener;
        let mut association = Association::accept(&mut cx, id, config, local, cookie, &remotes, &route);
        let peer = SocketAddr::new(remotes[0].0.ip(), cookie.peer_port);
        let addresses = remotes.len();
        let view = association.view();
        let streams = (view.streams_out(), view.streams_in());
        let port = cookie.local_port;
        cx.host.event(id, Event::Accepted { listener, port, peer, addresses, streams });
        association.tell_adaptation(&mut cx);
        association.trace_changes(now);
        self.insert(association);
        self.admissions.enter(id, listener, source);
        self.budget.on_accepted(route.remote.ip());
        self.update_queues(id);
        Handled::NotYet
    }

    /// Answers a cookie for which no association can be created with an ABORT.
    fn abort_cookie(&mut self, now: Time, route: Route, cookie: &StateCookie, chunk: &[u8]) -> Handled {
        if self.draw_answer_to_cookie(now, route) {
            let header = Header {
                source_port: cookie.peer_port,
                destination_port: cookie.local_port,
                verification_tag: cookie.local_tag,
            };
            self.reply(route, &header, cookie.peer_tag, |out| out.extend_from_slice(chunk));
        }
        Handled::Done
    }

    /// Draws an answer from the budget for strangers, and counts a refusal. Returns whether it was granted.
    fn draw_answer_to_cookie(&mut self, now: Time, route: Route) -> bool {
        let granted = self.budget.draw_for_cookie(now, route.remote.ip());
        self.statistics.answers_withheld += u64::from(!granted);
        granted
    }

    /// Returns the source of a peer that shares these ports with a listener.
    fn source_of<H: Host + ?Sized>(&self, route: Route, ports: Ports, host: &H) -> Source {
        if !host.is_same_host(route.remote.ip()) {
            return Source::remote(route.remote.ip());
        }
        let is_own = host.is_own_endpoint(route.remote);
        let pool = if is_own { self.pool_of_sender(route, ports) } else { None };
        pool.map_or(Source::ThisHost, Source::Pool)
    }

    /// Returns the memory of the association of this endpoint that has sent a packet to another one with these ports.
    fn pool_of_sender(&self, route: Route, ports: Ports) -> Option<ReceivePool> {
        let destination = SocketAddr::new(route.local?, route.remote.port());
        let seen_by_sender = Ports { local: ports.peer, peer: ports.local };
        let sender = self.owner(&seen_by_sender.with(destination), Some(route.remote.ip()))?;
        self.associations.get(sender)?.config().receive_pool.clone()
    }

    /// Returns whether a limit forbids another association; counts a refusal.
    fn refuse_at_limit(&mut self, listener: &Listener, source: &Source) -> bool {
        let limits = Limits {
            listener_max: listener.config.listener_associations_max,
            prefix_max: self.config.prefix_associations_max,
        };
        match self.admissions.limit(listener.id, source, limits) {
            Some(AtLimit::Listener) => self.statistics.refused_at_listener_limit += 1,
            Some(AtLimit::Prefix) => self.statistics.refused_at_prefix_limit += 1,
            None => return false,
        }
        true
    }
}

fn abort_chunk_without_cause() -> Vec<u8> {
    let mut chunk = Vec::new();
    write_abort(false, &mut chunk);
    chunk
}

/// Returns the maximum length of the chunks in an answer to a stranger: the answer has at most three times the bytes of the
/// packet, including IP and UDP headers, since its source address may be that of a victim.
fn answer_bytes_max(remote: SocketAddr, packet_bytes: usize) -> usize {
    let ip_bytes = if remote.ip().to_canonical().is_ipv4() { 20 } else { 40 };
    let udp_bytes = if remote.port() == 0 { 0 } else { 8 };
    let below = ip_bytes + udp_bytes;
    AMPLIFICATION_MAX * (below + packet_bytes) - below - HEADER_BYTES
}

/// Returns the peer's addresses in a cookie. The first is the source of the INIT, to which the INIT ACK went.
fn cookie_remotes<H: Host + ?Sized>(
    cookie: &StateCookie,
    route: Route,
    host: &H,
) -> Vec<(SocketAddr, PathHints)> {
    let remotes = cookie.addresses.iter().map(|&address| SocketAddr::new(address, route.remote.port()));
    remotes.map(|remote| (remote, host.path_hints(remote))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_all_its_headers_has_three_times_the_bytes_of_what_it_answers() {
        // IP, UDP and SCTP headers.
        for (remote, headers) in [
            ("10.0.0.9:9899", [20, 8, 12]),
            ("10.0.0.9:0", [20, 0, 12]),
            ("[::ffff:10.0.0.9]:9899", [20, 8, 12]),
            ("[fd00::9]:9899", [40, 8, 12]),
            ("[fd00::9]:0", [40, 0, 12]),
        ] {
            let [ip, udp, sctp] = headers;
            let chunks = answer_bytes_max(remote.parse().expect("an address"), 100);
            assert_eq!(ip + udp + sctp + chunks, AMPLIFICATION_MAX * (ip + udp + 100), "{remote}");
        }
    }
}
