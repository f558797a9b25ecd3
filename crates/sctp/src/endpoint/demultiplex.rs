//! Dispatches a packet to its association; handles packets out of the blue (RFC 9260 §8.4, §8.5).

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;

use bytes::Bytes;
use sctp_wire::chunk::{
    Abort, CookieAck, CookieEcho, Data, Error, Init, InitAck, NrSack, RawChunk, Sack, ShutdownAck,
    ShutdownComplete,
};
use sctp_wire::packet::{HEADER_BYTES, Header};
use sctp_wire::{Packet, VerificationTag};

use super::incoming::{Handled, Incoming};
use super::{AssociationId, Endpoint, PeerKey};
use crate::association::{Context, is_unicast, reports_stale_cookie, write_abort};
use crate::config::Checksum;
use crate::event::Host;
use crate::reply::Reply;
use crate::route::Route;
use crate::time::Time;
use crate::transmit::padding_bytes;

/// Datagrams of one sender that arrived together.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The source address; the port is the UDP encapsulation port.
    pub remote: SocketAddr,
    /// The destination address.
    pub local: Option<IpAddr>,
    /// Whether a congested router has marked them (CE, RFC 3168).
    pub marked: bool,
    /// Whether the endpoint's own packets have returned in memory, where no network can damage them and no other host can send
    /// any. Their checksums are not verified.
    pub in_memory: bool,
    /// Length of each but the last.
    pub segment_bytes: usize,
    /// All of them, one after the other, without `shared`.
    pub bytes: &'a Bytes,
    /// Blocks of its sender that a single packet in memory refers to, each with its place in `bytes`: the user data of one DATA
    /// chunk, whose header is in front of the place and whose padding is behind it. None of packets from a network.
    pub shared: &'a [(usize, Bytes)],
}

impl Route {
    /// Returns whether both addresses are unicast. Packets from or to a group of hosts are not answered (RFC 9260 §8.4, 1).
    pub(super) fn is_unicast(&self) -> bool {
        is_unicast(self.remote.ip()) && self.local.is_none_or(is_unicast)
    }
}

impl PeerKey {
    /// Returns the key of the sender that a packet claims.
    fn of(header: &Header, route: &Route) -> Self {
        PeerKey { remote: route.remote, local_port: header.destination_port, peer_port: header.source_port }
    }

    /// Returns the keys of all peers with this address and these SCTP ports, from a UDP port on.
    pub(super) fn with_udp_ports_from(self, first: u16) -> RangeInclusive<PeerKey> {
        let last = match self.remote.ip() {
            IpAddr::V4(ip) => SocketAddr::from((ip, u16::MAX)),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, u16::MAX, u32::MAX, u32::MAX).into(),
        };
        PeerKey { remote: SocketAddr::new(self.remote.ip(), first), ..self }..=PeerKey {
            remote: last,
            ..self
        }
    }
}

impl Endpoint {
    /// Handles one datagram: an SCTP packet from `remote` (the port is the UDP encapsulation port) to the local address `local`.
    /// An invalid packet is counted and dropped, or answered as RFC 9260 says.
    pub fn handle_datagram<H: Host + ?Sized>(
        &mut self,
        now: Time,
        remote: SocketAddr,
        local: Option<IpAddr>,
        datagram: &Bytes,
        host: &mut H,
    ) {
        let segment_bytes = datagram.len();
        let arrival = Arrival {
            remote,
            local,
            marked: false,
            in_memory: false,
            segment_bytes,
            bytes: datagram,
            shared: &[],
        };
        self.handle_batch(now, &arrival, host);
    }

    /// Handles datagrams of one sender that arrived together. Consequences are decided once, after the last.
    pub fn handle_batch<H: Host + ?Sized>(&mut self, now: Time, arrival: &Arrival<'_>, host: &mut H) {
        let Arrival { remote, local, marked, in_memory, segment_bytes, bytes, shared } = *arrival;
        let route = Route { remote, local, marked, in_memory };
        if !shared.is_empty() {
            return self.handle_sharing(now, route, bytes, shared, host);
        }
        let mut unsettled = None;
        for datagram in bytes.chunks(segment_bytes.max(1)) {
            let touched = self.handle_packet(now, route, datagram, bytes, host);
            if touched != unsettled
                && let Some(id) = std::mem::replace(&mut unsettled, touched)
            {
                self.update_queues(id);
            }
        }
        if let Some(id) = unsettled {
            self.update_queues(id);
        }
    }

    /// Handles a packet in memory that refers to blocks of its sender. Its association takes them over without a copy; a packet
    /// that may be handled by more than its association is joined before.
    #[inline(never)]
    fn handle_sharing<H: Host + ?Sized>(
        &mut self,
        now: Time,
        route: Route,
        bytes: &Bytes,
        shared: &[(usize, Bytes)],
        host: &mut H,
    ) {
        let packet = Packet::parse(bytes).ok().filter(|_| route.in_memory && are_payloads(bytes, shared));
        let touched = match packet.and_then(|packet| Some((self.takes_sharing(&packet, &route)?, packet))) {
            Some((id, packet)) => {
                self.statistics.packets_received += 1;
                self.pass_on(now, id, route, &packet, bytes, shared, host)
            }
            None => {
                let joined = join(bytes, shared);
                self.handle_packet(now, route, &joined, &joined, host)
            }
        };
        if let Some(id) = touched {
            self.update_queues(id);
        }
    }

    /// Returns the association of a packet that begins with data or its acknowledgement, if nothing but the association handles
    /// it.
    fn takes_sharing(&mut self, packet: &Packet<'_>, route: &Route) -> Option<AssociationId> {
        let kind = *packet.as_bytes().get(HEADER_BYTES)?;
        let association = self.associations.get(self.id_of(packet.header().verification_tag)?)?;
        let is_plain = matches!(kind, Data::KIND | Sack::KIND | NrSack::KIND);
        if !is_plain || !association.is_set_up() || association.is_traced() {
            return None;
        }
        self.find(&packet.header(), route)
    }

    /// Handles one packet of `batch` and returns the association whose queues must be updated afterwards.
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
        let header = packet.header();
        let first = packet.chunks().next();
        if let Some(Ok(first)) = &first
            && self.is_out_of_the_blue(&header, first, &route)
        {
            self.answer_out_of_the_blue(now, route, &packet);
            return None;
        }
        let has_chunk = matches!(first, Some(Ok(_)));
        if !has_chunk && self.id_of(header.verification_tag).is_none() {
            self.strays.on_stray(now);
            self.statistics.malformed += 1;
            return None;
        }
        if !self.verify_checksum(route, &packet) {
            return None;
        }
        let Some(Ok(first)) = first else {
            self.statistics.malformed += 1;
            return None;
        };
        let incoming = Incoming { route, packet: &packet, first: &first };
        match self.handle_handshake(now, &incoming, host) {
            Handled::Done => None,
            Handled::NotYet => match self.find(&header, &route) {
                Some(id) => self.handle_matched(now, id, &incoming, batch, host),
                None => {
                    self.handle_unmatched(now, &incoming, host);
                    None
                }
            },
        }
    }

    /// Handles a packet of `batch` with the tag of association `id`. Returns the association if its queues must be updated
    /// afterwards.
    #[inline]
    fn handle_matched<H: Host + ?Sized>(
        &mut self,
        now: Time,
        id: AssociationId,
        incoming: &Incoming<'_>,
        batch: &Bytes,
        host: &mut H,
    ) -> Option<AssociationId> {
        if self.handle_during_setup(now, id, incoming) == Handled::Done {
            return None;
        }
        let Incoming { route, packet, first } = *incoming;
        let association = self.associations.get_mut(id)?;
        if association.is_probe_elsewhere(now, &route, packet, first) {
            association.answer_probe_elsewhere(&route, first, self.config.checksum);
            return Some(id);
        }
        self.pass_on(now, id, route, packet, batch, &[], host)
    }

    /// Passes a packet to its association. Returns the association if its queues must be updated afterwards.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "those of handle_matched, and the blocks")]
    fn pass_on<H: Host + ?Sized>(
        &mut self,
        now: Time,
        id: AssociationId,
        route: Route,
        packet: &Packet<'_>,
        batch: &Bytes,
        shared: &[(usize, Bytes)],
        host: &mut H,
    ) -> Option<AssociationId> {
        let association = self.associations.get_mut(id)?;
        let mut cx = Context {
            now,
            host,
            random: &mut self.random,
            blocks: &mut self.free_blocks,
            statistics: &mut self.statistics,
        };
        self.in_progress = Some(id);
        association.handle_packet(&mut cx, route, packet, batch, shared);
        self.in_progress = None;
        association.trace_changes(now);
        let (paths_changed, closed) = (association.take_paths_changed(), association.is_closed());
        if paths_changed {
            self.register(id);
        }
        if !closed {
            return Some(id);
        }
        self.update_queues(id);
        None
    }

    /// Handles the first chunk of a packet if it belongs to a handshake.
    fn handle_handshake<H: Host + ?Sized>(
        &mut self,
        now: Time,
        incoming: &Incoming<'_>,
        host: &mut H,
    ) -> Handled {
        match incoming.first.kind {
            Init::KIND => {
                self.statistics.control_chunks_received += 1;
                self.handle_init(now, incoming, host);
                Handled::Done
            }
            // RFC 9260 §8.5.1 A: only an INIT has tag 0. A SHUTDOWN ACK is answered whatever its tag is (§8.4, 5).
            kind if incoming.header().verification_tag.0 == 0 && kind != ShutdownAck::KIND => {
                self.statistics.tag_errors += 1;
                Handled::Done
            }
            CookieEcho::KIND => self.handle_cookie_echo(now, incoming, host),
            _ => Handled::NotYet,
        }
    }

    /// Verifies the checksum of a packet, and counts invalid ones (RFC 9260 §6.8). Returns whether it is valid.
    fn verify_checksum(&mut self, route: Route, packet: &Packet<'_>) -> bool {
        let is_verified = self.config.checksum == Checksum::Crc32c && !route.in_memory;
        let intact = !is_verified || packet.checksum_ok();
        self.statistics.checksum_errors += u64::from(!intact);
        intact
    }

    /// Returns whether a packet is certainly out of the blue: its tag is unknown, its sender is not a peer, and it does not begin
    /// an association. This costs less than the checksum of a long packet, which is computed only before an answer.
    fn is_out_of_the_blue(&self, header: &Header, first: &RawChunk<'_>, route: &Route) -> bool {
        let tag = header.verification_tag;
        if tag.0 == 0 || matches!(first.kind, Init::KIND | CookieEcho::KIND) || self.id_of(tag).is_some() {
            return false;
        }
        self.owner(&PeerKey::of(header, route), route.local).is_none()
    }

    /// Returns the association with this tag.
    #[inline]
    fn id_of(&self, tag: VerificationTag) -> Option<AssociationId> {
        match self.last {
            Some((last, id)) if last == tag => Some(id),
            _ => self.by_tag.get(&tag).copied(),
        }
    }

    /// Returns the association of a packet with one of our tags.
    #[inline]
    fn find(&mut self, header: &Header, route: &Route) -> Option<AssociationId> {
        let tag = header.verification_tag;
        let id = self.id_of(tag)?;
        let association = self.associations.get(id)?;
        let identity = association.identity();
        if identity.local_port != header.destination_port
            || identity.peer_port != header.source_port
            || !association.remotes().any(|r| r.ip() == route.remote.ip())
            || !association.local().serve(route.local)
        {
            self.statistics.tag_errors += 1;
            return None;
        }
        self.last = Some((tag, id));
        Some(id)
    }

    /// Answers a packet for an association that is being set up, if the answer leaves the association as it is.
    fn handle_during_setup(&mut self, now: Time, id: AssociationId, incoming: &Incoming<'_>) -> Handled {
        let setting_up = self.associations.get(id).filter(|association| !association.is_set_up());
        let Some(association) = setting_up else { return Handled::NotYet };
        let waits = association.is_in_cookie_wait();
        // RFC 9260 §8.5.1 E: the peer is still closing an earlier association, which is gone here.
        if incoming.packet.chunks().flatten().any(|chunk| chunk.kind == ShutdownAck::KIND) {
            self.answer_out_of_the_blue(now, incoming.route, incoming.packet);
            return Handled::Done;
        }
        if incoming.first.kind == InitAck::KIND && waits {
            return self.refuse_unusable_init_ack(incoming);
        }
        Handled::NotYet
    }

    /// Handles a packet whose tag no association has. The tag may be the peer's own, reflected (T bit); otherwise the packet is
    /// out of the blue.
    fn handle_unmatched<H: Host + ?Sized>(&mut self, now: Time, incoming: &Incoming<'_>, host: &mut H) {
        let (Incoming { route, packet, first }, header) = (*incoming, incoming.header());
        if let Some(id) = self.owner(&PeerKey::of(&header, &route), route.local)
            && let Some(association) = self.associations.get(id)
        {
            let tag = header.verification_tag;
            let reflected = first.flags & 1 == 1 && association.identity().peer_tag == Some(tag);
            match first.kind {
                // RFC 9260 §8.5.1 E: the peer is still closing an earlier association, which is gone here.
                ShutdownAck::KIND if !association.is_set_up() => {
                    self.answer_out_of_the_blue(now, route, packet);
                }
                // RFC 9260 §8.5.1 B and C.
                Abort::KIND if reflected => {
                    self.with_open(id, now, host, |a, cx| a.handle_abort(cx, first));
                }
                ShutdownComplete::KIND if reflected => {
                    self.with_open(id, now, host, |a, cx| a.handle_shutdown_complete(cx));
                }
                _ => {
                    self.strays.on_stray(now);
                    self.statistics.tag_errors += 1;
                }
            }
            return;
        }
        self.answer_out_of_the_blue(now, route, packet);
    }

    /// Answers a packet out of the blue (RFC 9260 §8.4), other than an INIT or a COOKIE ECHO. The checksum is verified only
    /// before an answer.
    fn answer_out_of_the_blue(&mut self, now: Time, route: Route, packet: &Packet<'_>) {
        self.strays.on_stray(now);
        self.statistics.out_of_the_blue += 1;
        let header = packet.header();
        let has = |kind| packet.chunks().flatten().any(|chunk| chunk.kind == kind);
        if !route.is_unicast() || has(Abort::KIND) {
            return;
        }
        if has(ShutdownAck::KIND) {
            if !self.draw_answer_out_of_the_blue(now, route) || !self.verify_checksum(route, packet) {
                return;
            }
            return self.reply(route, &header, header.verification_tag, |out| {
                ShutdownComplete { reflected_tag: true }.write(out);
            });
        }
        let stale = |chunk: &RawChunk<'_>| chunk.kind == Error::KIND && reports_stale_cookie(chunk);
        if has(ShutdownComplete::KIND) || has(CookieAck::KIND) || packet.chunks().flatten().any(|c| stale(&c))
        {
            return;
        }
        if self.may_belong_to_other_stack(header.destination_port, route.local)
            || !self.draw_answer_out_of_the_blue(now, route)
            || !self.verify_checksum(route, packet)
        {
            return;
        }
        self.reply(route, &header, header.verification_tag, |out| write_abort(true, out));
    }

    /// Draws an answer from the budget for strangers, and counts a refusal. Returns whether it was granted.
    fn draw_answer_out_of_the_blue(&mut self, now: Time, route: Route) -> bool {
        let granted = self.budget.draw_out_of_the_blue(now, route.remote.ip());
        self.statistics.answers_withheld += u64::from(!granted);
        granted
    }

    /// Returns whether another program may own the unknown association of a packet for this port at this address.
    pub(super) fn may_belong_to_other_stack(&self, port: u16, local: Option<IpAddr>) -> bool {
        self.config.shares_host && !self.listeners.serve(port, local)
    }

    pub(super) fn reply(
        &mut self,
        route: Route,
        header: &Header,
        tag: VerificationTag,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let reply = self.reply_to(route, header, tag, write);
        self.push_answer(reply);
    }

    /// Builds a packet to the sender of another.
    pub(super) fn reply_to(
        &self,
        route: Route,
        header: &Header,
        tag: VerificationTag,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Reply {
        let back = Header {
            source_port: header.destination_port,
            destination_port: header.source_port,
            verification_tag: tag,
        };
        Reply::new(route.remote, route.local, &back, self.config.checksum, write)
    }

    pub(super) fn push_answer(&mut self, reply: Reply) {
        let room = self.replies.push_answer(reply);
        self.count_reply(room);
    }

    pub(super) fn push_final_packet(&mut self, reply: Reply) {
        let room = self.replies.push_final_packet(reply);
        self.count_reply(room);
    }

    fn count_reply(&mut self, room: bool) {
        if room {
            self.statistics.packets_sent += 1;
            self.statistics.control_chunks_sent += 1;
        } else {
            self.statistics.replies_dropped += 1;
        }
    }
}

/// Returns whether each block is the user data of the DATA chunk whose header is in front of its place.
fn are_payloads(bytes: &[u8], shared: &[(usize, Bytes)]) -> bool {
    let mut from = HEADER_BYTES;
    shared.iter().all(|(at, payload)| {
        let header = bytes.get(from..*at).and_then(<[u8]>::last_chunk);
        let is_payload = header.is_some_and(|header| Data::of_header(header, payload).is_some());
        // The place was found in the packet.
        from = if is_payload { at + padding_bytes(payload) } else { 0 };
        is_payload && from <= bytes.len()
    })
}

/// Joins a packet and the blocks that it refers to.
fn join(bytes: &[u8], shared: &[(usize, Bytes)]) -> Bytes {
    let shared_bytes: usize = shared.iter().map(|(_, block)| block.len()).sum();
    let mut joined = Vec::with_capacity(bytes.len() + shared_bytes);
    let mut from = 0;
    for (at, block) in shared {
        let at = (*at).clamp(from, bytes.len());
        joined.extend_from_slice(&bytes[from..at]);
        joined.extend_from_slice(block);
        from = at;
    }
    joined.extend_from_slice(&bytes[from..]);
    Bytes::from(joined)
}
