//! From a datagram to its association; packets out of the blue; the listening half of the handshake
//! (RFC 9260 §5.1, §5.2, §8.4, §8.5).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use sctp_wire::cause::{Cause, InvalidMandatoryParameter, StaleCookie};
use sctp_wire::chunk::{
    Abort, CookieAck, CookieEcho, Error, Init, InitAck, RawChunk, ShutdownAck, ShutdownComplete,
};
use sctp_wire::packet::{HEADER_BYTES, Header};
use sctp_wire::{Packet, VerificationTag};

use super::replies::Reply;
use super::{AssociationId, Endpoint, PeerKey, Unreachable};
use crate::association::{
    Association, Context, Identity, PeerInit, abort_chunk, error_chunk, is_unicast, reports_stale_cookie,
    write_abort, write_init_ack,
};
use crate::config::{AssociationConfig, Checksum};
use crate::cookie::{CookieError, StateCookie};
use crate::error::CloseReason;
use crate::event::Host;
use crate::time::Time;

/// Where a packet came from and went to.
#[derive(Clone, Copy)]
struct Route {
    remote: SocketAddr,
    local: Option<IpAddr>,
}

impl Route {
    /// What came from or to a group of hosts is not answered (RFC 9260 §8.4, 1).
    fn is_unicast(&self) -> bool {
        is_unicast(self.remote.ip()) && self.local.is_none_or(is_unicast)
    }
}

impl Endpoint {
    /// Takes one datagram: an SCTP packet from `remote` (the port is the UDP encapsulation port) to our
    /// address `local`. Whatever is wrong with it is counted and dropped, or answered as RFC 9260 says.
    pub fn handle_datagram<H: Host + ?Sized>(
        &mut self,
        now: Time,
        remote: SocketAddr,
        local: Option<IpAddr>,
        datagram: &Bytes,
        host: &mut H,
    ) {
        self.handle_batch(now, remote, local, datagram.len(), datagram, host);
    }

    /// Takes datagrams of one sender that arrived together: `batch` holds them one after the other, each of
    /// `segment_bytes` but the last. What follows from them is decided once, after the last.
    pub fn handle_batch<H: Host + ?Sized>(
        &mut self,
        now: Time,
        remote: SocketAddr,
        local: Option<IpAddr>,
        segment_bytes: usize,
        batch: &Bytes,
        host: &mut H,
    ) {
        let route = Route { remote, local };
        let mut unsettled = None;
        for datagram in batch.chunks(segment_bytes.max(1)) {
            let touched = self.handle_packet(now, route, datagram, batch, host);
            if touched != unsettled
                && let Some(id) = std::mem::replace(&mut unsettled, touched)
            {
                self.settle(id);
            }
        }
        if let Some(id) = unsettled {
            self.settle(id);
        }
    }

    /// Handles one packet of `batch` and names the association that is to be settled after it.
    fn handle_packet<H: Host + ?Sized>(
        &mut self,
        now: Time,
        route: Route,
        datagram: &[u8],
        batch: &Bytes,
        host: &mut H,
    ) -> Option<AssociationId> {
        self.statistics.packets_received += 1;
        let Ok(packet) = Packet::parse(datagram) else {
            self.statistics.malformed += 1;
            return None;
        };
        if self.config.checksum == Checksum::Crc32c && !packet.checksum_ok() {
            self.statistics.checksum_errors += 1;
            return None;
        }
        let header = packet.header();
        // The first chunk decides about handshake packets (RFC 9260 §8.5.1).
        let Some(Ok(first)) = packet.chunks().next() else {
            self.statistics.malformed += 1;
            return None;
        };
        match first.kind {
            Init::KIND => {
                self.statistics.control_chunks_received += 1;
                self.handle_init(now, route, &header, &packet, &first);
                return None;
            }
            CookieEcho::KIND if !self.handle_cookie_echo(now, route, &header, &first, host) => return None,
            _ => {}
        }
        let Some(id) = self.find(&header, route.remote) else {
            self.handle_unmatched(now, route, &packet, &first, host);
            return None;
        };
        let association = self.associations.get_mut(id.index())?;
        if first.kind == InitAck::KIND
            && let Some(tag) = association.refuses_window_of(&first)
        {
            self.reply(route, &header, tag, |out| write_abort(false, out));
            return None;
        }
        let mut cx = Context { now, host, random: &mut self.random, statistics: &mut self.statistics };
        self.at_work = Some(id);
        association.handle_packet(&mut cx, route.remote, route.local, &packet, batch);
        self.at_work = None;
        association.trace_changes(now);
        let (paths_changed, closed) = (association.take_paths_changed(), association.is_closed());
        if paths_changed {
            self.register(id);
        }
        if !closed {
            return Some(id);
        }
        self.settle(id);
        None
    }

    /// The network returned a packet of ours that begins with `quoted` (RFC 9260 §10): a connect fails at
    /// once, and one that waits for SHUTDOWN COMPLETE has ended. On an association that is up it changes nothing; its
    /// own timers decide.
    pub fn handle_unreachable<H: Host + ?Sized>(
        &mut self,
        now: Time,
        remote: SocketAddr,
        why: Unreachable,
        quoted: &[u8],
        host: &mut H,
    ) {
        let Ok(packet) = Packet::parse(quoted) else { return };
        let header = packet.header();
        // The quoted packet is ours, so its source is our side.
        let key = PeerKey { remote, local_port: header.source_port, peer_port: header.destination_port };
        let Some(&id) = self.by_peer.get(&key) else { return };
        let Some(association) = self.associations.get(id.index()) else { return };
        let genuine = is_genuine(&header, quoted, &association.identity());
        let setting_up = !association.is_set_up();
        match why {
            Unreachable::TooBig { mtu_bytes } if genuine => {
                self.with(id, now, host, |association, _, _| association.lower_mtu(remote, mtu_bytes));
            }
            Unreachable::Port | Unreachable::Host if setting_up && genuine => {
                let reason = match why {
                    Unreachable::Port => CloseReason::Refused,
                    _ => CloseReason::Unreachable,
                };
                self.with(id, now, host, |association, cx, _| association.drop_with(cx, reason));
            }
            // A peer that has sent its SHUTDOWN COMPLETE is free to go; should it be lost, nobody repeats it.
            Unreachable::Port if genuine => {
                self.with(id, now, host, |association, cx, _| association.handle_shutdown_complete(cx));
            }
            _ => {}
        }
    }

    /// The association that a packet with our tag belongs to.
    #[inline]
    fn find(&mut self, header: &Header, remote: SocketAddr) -> Option<AssociationId> {
        let tag = header.verification_tag.0;
        let id = match self.last {
            Some((last, id)) if last == tag => id,
            _ => *self.by_tag.get(&tag)?,
        };
        let association = self.associations.get(id.index())?;
        let identity = association.identity();
        if identity.local_port != header.destination_port
            || identity.peer_port != header.source_port
            || !association.remotes().any(|r| r.ip() == remote.ip())
        {
            self.statistics.tag_errors += 1;
            return None;
        }
        self.last = Some((tag, id));
        Some(id)
    }

    /// No association has this tag. It may be the peer's own, reflected (T bit), or out of the blue.
    fn handle_unmatched<H: Host + ?Sized>(
        &mut self,
        now: Time,
        route: Route,
        packet: &Packet<'_>,
        first: &RawChunk<'_>,
        host: &mut H,
    ) {
        let header = packet.header();
        let key = PeerKey {
            remote: route.remote,
            local_port: header.destination_port,
            peer_port: header.source_port,
        };
        if let Some(&id) = self.by_peer.get(&key)
            && let Some(association) = self.associations.get(id.index())
        {
            let tag = header.verification_tag.0;
            let reflected = first.flags & 1 == 1 && tag != 0 && association.identity().peer_tag == tag;
            match first.kind {
                // RFC 9260 §8.5.1 E: the peer still ends an association that we have forgotten.
                ShutdownAck::KIND if !association.is_set_up() => self.answer_out_of_the_blue(route, packet),
                // RFC 9260 §8.5.1 B and C.
                Abort::KIND if reflected => {
                    self.with(id, now, host, |a, cx, _| a.handle_abort(cx, first));
                }
                ShutdownComplete::KIND if reflected => {
                    self.with(id, now, host, |a, cx, _| a.handle_shutdown_complete(cx));
                }
                _ => self.statistics.tag_errors += 1,
            }
            return;
        }
        self.answer_out_of_the_blue(route, packet);
    }

    /// RFC 9260 §8.4. An INIT and a COOKIE ECHO never come here.
    fn answer_out_of_the_blue(&mut self, route: Route, packet: &Packet<'_>) {
        self.statistics.out_of_the_blue += 1;
        let header = packet.header();
        let has = |kind| packet.chunks().flatten().any(|chunk| chunk.kind == kind);
        if !route.is_unicast() || has(Abort::KIND) || has(CookieEcho::KIND) {
            return;
        }
        if has(ShutdownAck::KIND) {
            return self.reply(route, &header, header.verification_tag, |out| {
                ShutdownComplete { reflected_tag: true }.write(out);
            });
        }
        let stale = |chunk: &RawChunk<'_>| chunk.kind == Error::KIND && reports_stale_cookie(chunk);
        if has(ShutdownComplete::KIND) || has(CookieAck::KIND) || packet.chunks().flatten().any(|c| stale(&c))
        {
            return;
        }
        self.reply(route, &header, header.verification_tag, |out| write_abort(true, out));
    }

    /// INIT (RFC 9260 §5.1 A and B, §5.2.1, §5.2.2). Leaves no state behind.
    fn handle_init(
        &mut self,
        now: Time,
        route: Route,
        header: &Header,
        packet: &Packet<'_>,
        first: &RawChunk<'_>,
    ) {
        // Alone in its packet, with tag 0 (RFC 9260 §8.5.1 A, §6.10).
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
        let Some(peer) = PeerInit::from_init(&init) else {
            // RFC 9260 §3.3.2: nothing changes, and the sender is told.
            self.statistics.malformed += 1;
            return self.reply(route, header, init.initiate_tag, |out| {
                out.extend_from_slice(&abort_chunk(&Cause::InvalidMandatoryParameter(
                    InvalidMandatoryParameter,
                )));
            });
        };
        let key = PeerKey {
            remote: route.remote,
            local_port: header.destination_port,
            peer_port: header.source_port,
        };
        if let Some(&id) = self.by_peer.get(&key)
            && self
                .associations
                .get_mut(id.index())
                .is_some_and(|association| association.repeat_shutdown_ack())
        {
            return self.settle(id);
        }
        let existing = self.by_peer.get(&key).and_then(|id| self.associations.get(id.index()));
        let (config, mut identity, tie) = match (existing, self.listeners.get(&header.destination_port)) {
            (Some(association), _) => {
                let own = association.identity();
                (association.config(), own, (association.is_set_up(), own))
            }
            (None, Some(config)) => {
                let identity = Identity {
                    local_port: header.destination_port,
                    peer_port: header.source_port,
                    local_tag: 0,
                    peer_tag: 0,
                    local_initial_tsn: 0,
                };
                (Arc::clone(config), identity, (true, identity))
            }
            (None, None) => {
                // RFC 9260 §8.4, 3: nobody listens here.
                return self.reply(route, header, init.initiate_tag, |out| write_abort(false, out));
            }
        };
        let (fresh, tied) = tie;
        if fresh {
            identity.local_tag = self.new_tag();
            identity.local_initial_tsn = self.new_initial_tsn();
        }
        self.statistics.inits_received += 1;
        let cookie = StateCookie {
            created: now,
            local_tag: identity.local_tag,
            peer_tag: peer.tag,
            local_initial_tsn: identity.local_initial_tsn,
            peer_initial_tsn: peer.initial_tsn,
            peer_window_bytes: peer.window_bytes,
            local_port: identity.local_port,
            peer_port: identity.peer_port,
            streams_out: config.streams_out.max(1).min(peer.streams_in),
            streams_in: config.streams_in_max.max(1).min(peer.streams_out),
            tie_local_tag: tied.local_tag,
            tie_peer_tag: tied.peer_tag,
            addresses: peer.reachable_at(route.remote.ip()),
        };
        let sealed = self.cookies.seal(&cookie);
        let addresses = std::mem::take(&mut self.local_addresses);
        self.reply(route, header, init.initiate_tag, |out| {
            write_init_ack(
                &identity,
                &config,
                cookie.streams_out,
                &addresses,
                &sealed,
                &peer.unrecognized,
                out,
            );
        });
        self.local_addresses = addresses;
    }

    /// COOKIE ECHO (RFC 9260 §5.1 D, §5.2.4). True: an association is there for the rest of the packet.
    fn handle_cookie_echo<H: Host + ?Sized>(
        &mut self,
        now: Time,
        route: Route,
        header: &Header,
        first: &RawChunk<'_>,
        host: &mut H,
    ) -> bool {
        let life = self
            .listeners
            .get(&header.destination_port)
            .map_or_else(|| AssociationConfig::default().cookie_life, |config| config.cookie_life);
        let opened = CookieEcho::parse(first)
            .map_err(|_| CookieError::Invalid)
            .and_then(|echo| self.cookies.open(echo.cookie, now, life));
        let (cookie, late) = match opened {
            Ok(cookie) => (cookie, None),
            Err(CookieError::Stale { by, cookie }) => (*cookie, Some(by)),
            Err(CookieError::Invalid) => return self.refuse_cookie(),
        };
        // Whoever saw the cookie cannot use it from elsewhere: it names the addresses of the INIT.
        if cookie.local_tag != header.verification_tag.0
            || cookie.local_port != header.destination_port
            || cookie.peer_port != header.source_port
            || !cookie.addresses.contains(&route.remote.ip())
        {
            return self.refuse_cookie();
        }
        let existing = self.owner_of(&cookie, route.remote);
        let repeated = existing.and_then(|id| self.associations.get(id.index())).is_some_and(|association| {
            let own = association.identity();
            own.local_tag == cookie.local_tag && own.peer_tag == cookie.peer_tag
        });
        // RFC 9260 §5.2.4, 3: with both tags right, age does not matter.
        if let Some(by) = late.filter(|_| !repeated) {
            // RFC 9260 §5.2.6.
            let staleness_us = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
            self.reply(route, header, VerificationTag(cookie.peer_tag), |out| {
                out.extend_from_slice(&error_chunk(&Cause::StaleCookie(StaleCookie { staleness_us })));
            });
            return self.refuse_cookie();
        }
        let Some(id) = existing else {
            return self.accept(now, route, &cookie, host);
        };
        let Some(own) = self.associations.get(id.index()).map(|a| a.identity()) else { return false };
        match (own.local_tag == cookie.local_tag, own.peer_tag == cookie.peer_tag) {
            // Case D: a COOKIE ECHO of this association, perhaps again.
            (true, true) => self.with(id, now, host, |a, cx, _| a.handle_own_cookie(cx, &cookie)),
            // Case B: both sides sent an INIT.
            (true, false) => self.with(id, now, host, |a, cx, _| a.handle_own_cookie(cx, &cookie)),
            // Case A: the peer has restarted.
            (false, false)
                if cookie.tie_local_tag == own.local_tag && cookie.tie_peer_tag == own.peer_tag =>
            {
                self.with(id, now, host, |a, cx, _| a.drop_with(cx, CloseReason::PeerRestarted));
                return self.accept(now, route, &cookie, host);
            }
            // Case C and everything else: a cookie that came too late.
            _ => return self.refuse_cookie(),
        }
        true
    }

    fn refuse_cookie(&mut self) -> bool {
        self.statistics.cookie_errors += 1;
        false
    }

    /// The association that a cookie meets: by its tag, or by the peer's address and ports. The tag comes first,
    /// because the peer's UDP port may have changed on the way (RFC 6951 §5.4).
    fn owner_of(&self, cookie: &StateCookie, remote: SocketAddr) -> Option<AssociationId> {
        let by_tag = self.by_tag.get(&cookie.local_tag).copied().filter(|id| {
            self.associations.get(id.index()).is_some_and(|association| {
                let own = association.identity();
                own.local_port == cookie.local_port && own.peer_port == cookie.peer_port
            })
        });
        let key = PeerKey { remote, local_port: cookie.local_port, peer_port: cookie.peer_port };
        by_tag.or_else(|| self.by_peer.get(&key).copied())
    }

    fn accept<H: Host + ?Sized>(
        &mut self,
        now: Time,
        route: Route,
        cookie: &StateCookie,
        host: &mut H,
    ) -> bool {
        let Some(config) = self.listeners.get(&cookie.local_port).cloned() else {
            // Nobody listens any more.
            let header = Header {
                source_port: cookie.peer_port,
                destination_port: cookie.local_port,
                verification_tag: VerificationTag(cookie.local_tag),
            };
            self.reply(route, &header, VerificationTag(cookie.peer_tag), |out| write_abort(false, out));
            return false;
        };
        if !host.takes_association(cookie.local_port) {
            self.statistics.accepts_put_off += 1;
            return false;
        }
        // Two INITs may have drawn the same tag, and only the first can have it.
        if self.by_tag.contains_key(&cookie.local_tag) {
            return self.refuse_cookie();
        }
        self.statistics.accepted += 1;
        // The first address is the one that the INIT came from and the INIT ACK went to.
        let remotes: Vec<_> = cookie
            .addresses
            .iter()
            .map(|&address| SocketAddr::new(address, route.remote.port()))
            .map(|remote| (remote, host.path_hints(remote)))
            .collect();
        let id = AssociationId(self.associations.vacant_key() as u32);
        let mut cx = Context { now, host, random: &mut self.random, statistics: &mut self.statistics };
        let mut association = Association::accept(&mut cx, id, config, cookie, &remotes, route.local);
        association.trace_changes(now);
        self.insert(id, association);
        self.settle(id);
        true
    }

    fn reply(
        &mut self,
        route: Route,
        header: &Header,
        tag: VerificationTag,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let back = Header {
            source_port: header.destination_port,
            destination_port: header.source_port,
            verification_tag: tag,
        };
        self.push_reply(Reply::new(route.remote, route.local, &back, self.config.checksum, write));
    }

    pub(super) fn push_reply(&mut self, reply: Reply) {
        if self.replies.push(reply) {
            self.statistics.packets_sent += 1;
            self.statistics.control_chunks_sent += 1;
        } else {
            self.statistics.replies_dropped += 1;
        }
    }
}

/// RFC 9260 §10, ICMP6: a report is believed only if it quotes a tag of the association: the peer's, or our own in
/// the INIT, of which the quote shows at least that much.
fn is_genuine(header: &Header, quoted: &[u8], identity: &Identity) -> bool {
    if header.verification_tag.0 != 0 {
        return header.verification_tag.0 == identity.peer_tag;
    }
    match quoted.get(HEADER_BYTES..) {
        Some(&[Init::KIND, _, _, _, t0, t1, t2, t3, ..]) => {
            u32::from_be_bytes([t0, t1, t2, t3]) == identity.local_tag
        }
        _ => false,
    }
}
