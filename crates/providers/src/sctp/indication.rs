//! The upper side: turns messages and events of the core into primitives.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ::sctp::config::{OWNER_BYTES, PATH_BYTES};
use ::sctp::{
    AssociationConfig, AssociationId, CloseReason, Endpoint, Event, Host, ListenerId, PathHints, Payload,
    ReceiveCharge, ReceivePool, ReceivedRun, RecvInfo, Restart, RunMessage, SendFailure,
};
use bytes::Bytes;
use links::Link;
use streams::{Chain, Control, Cx, Errno, Kind, Message, Pool, Record, Run, StreamId};
use tpi::{Addresses, Notification, NotificationKind, PathChange, PathReason, Primitive, Which};

use super::SctpDriver;
use super::charges::Charges;
use super::minor::{Minor, Minors, Owner};

/// Memory that an association takes while it waits for an accept, besides its messages and further addresses.
const WAITING_BYTES: usize = 10 << 10;

/// Number of messages, or runs of them, that the user of a one-to-many stream has not read, with which the stream takes no
/// further association: each leaves two that nobody charges, one when it is up, and one when it has ended.
const UNREAD_MAX: usize = 16 << 10;

/// Returns the memory that an association takes while it waits for an accept, whose peer has this many addresses, at a listener
/// with so many.
fn waiting_bytes(addresses: usize, local_addresses: usize) -> usize {
    let owners = addresses.max(1) * local_addresses.saturating_sub(1);
    WAITING_BYTES + addresses.saturating_sub(1) * PATH_BYTES + owners * OWNER_BYTES
}

/// The part of the provider that the core calls while it handles input.
pub(super) struct Upper<'a, 'b> {
    cx: &'a mut Cx<'b>,
    minors: &'a mut Minors,
    configs: &'a HashMap<StreamId, Arc<AssociationConfig>>,
    link: &'a dyn Link,
    /// Memory for short messages that arrived in fragments.
    pool: &'a mut Pool,
    charges: &'a mut Charges,
    leftovers: &'a mut Leftovers,
}

/// An association whose listener has been closed.
#[derive(Debug)]
pub(super) enum Unwanted {
    /// It came up just then.
    Late(AssociationId),
    /// It waited for an accept, with this charge.
    Waited(AssociationId, Option<ReceiveCharge>),
}

impl Unwanted {
    pub(super) fn id(&self) -> AssociationId {
        let (Unwanted::Late(id) | Unwanted::Waited(id, _)) = self;
        *id
    }
}

/// Work to do as soon as the core can be called again.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Associations to end, because their listener has just been closed.
    pub(super) unwanted: VecDeque<Unwanted>,
    /// Bytes that arrived for a closed stream and must be released from the receive window.
    pub(super) unread: Vec<(AssociationId, usize)>,
    /// Associations that are about to end, and whose end was already reported to the user.
    reported: HashSet<AssociationId>,
    /// Memory for the fragments of a message.
    blocks: Vec<Bytes>,
}

impl SctpDriver {
    /// Calls the core, and then does the work that had to wait while the core was borrowed.
    pub(super) fn with_endpoint<R>(
        &mut self,
        cx: &mut Cx<'_>,
        call: impl FnOnce(&mut Endpoint, &mut Upper<'_, '_>) -> R,
    ) -> R {
        let (endpoint, mut host) = self.split(cx);
        let result = call(endpoint, &mut host);
        self.clear_leftovers(cx);
        result
    }

    /// Borrows the core and, separately, everything that the core may call back. The caller calls
    /// [`SctpDriver::clear_leftovers`] afterwards, as [`SctpDriver::with_endpoint`] does.
    pub(super) fn split<'a, 'b>(&'a mut self, cx: &'a mut Cx<'b>) -> (&'a mut Endpoint, Upper<'a, 'b>) {
        let upper = Upper {
            cx,
            minors: &mut self.minors,
            configs: &self.configs,
            link: &*self.link,
            pool: &mut self.pool,
            charges: &mut self.charges,
            leftovers: &mut self.leftovers,
        };
        (&mut self.endpoint, upper)
    }
}

impl Host for Upper<'_, '_> {
    #[inline]
    fn message(&mut self, id: AssociationId, info: &RecvInfo, payload: Payload) {
        let data = match payload {
            Payload::One(block) => Chain::from(block),
            Payload::Many(blocks) => self.chain(blocks),
        };
        match self.minors.stream(id) {
            Some((s, association)) => self.cx.put_data(s, association, info, data),
            None => self.up(id, Message::optdata_ind(Which::Only, *info, data)),
        }
    }

    #[inline]
    fn takes_runs(&self, id: AssociationId) -> bool {
        self.minors.stream(id).is_some_and(|(s, _)| self.cx.takes_runs(s))
    }

    #[inline]
    fn run(&mut self, id: AssociationId, run: ReceivedRun) {
        if let Some((s, association)) = self.minors.stream(id) {
            let ReceivedRun { bytes, messages, payload_bytes, charges } = run;
            self.cx.put_run(s, Run::new(association, messages, payload_bytes, charges, record), bytes);
        }
    }

    fn event(&mut self, id: AssociationId, event: Event) {
        match event {
            Event::Accepted { listener, peer, addresses, streams, .. } => {
                self.accepted(id, listener, peer, addresses, streams);
            }
            Event::Connected { streams_out, streams_in } => {
                self.on_event(id, tpi::Event::ConnCon);
                let confirmation = Primitive::ConnCon {
                    addresses: Box::new(Addresses::default()),
                    association: self.minors.which(id),
                    outbound_streams: streams_out,
                    inbound_streams: streams_in,
                };
                self.up(id, Message::proto(confirmation));
            }
            Event::Writable => {
                if let Some((s, _)) = self.minors.stream(id) {
                    self.cx.back_enable(s);
                }
            }
            Event::PeerShutdown => {
                self.on_event(id, tpi::Event::OrdrelInd);
                self.set_read_hangup(id, true);
                let association = self.minors.which(id);
                self.up(id, Message::proto(Primitive::OrdrelInd { association }));
            }
            Event::Restarted(restart) => self.restarted(id, restart),
            Event::Lost { reason, information } => {
                self.leftovers.reported.insert(id);
                self.disconnect(id, &reason, information);
            }
            Event::Closed(reason) => self.closed(id, &reason),
            Event::PathChanged { remote, change, reason } => {
                let address = remote.ip().to_canonical();
                let (change, reason) = (path_change(change), path_reason(reason));
                self.notify(id, NotificationKind::PathChanged { address, change, reason }, Bytes::new());
            }
            Event::RemoteError { cause, information } => {
                self.notify(id, NotificationKind::RemoteError { cause }, information);
            }
            Event::SendFailed(failure) => self.send_failed(id, failure),
            Event::PartialDeliveryAborted { stream, ssn } => {
                self.notify(id, NotificationKind::PartialDeliveryAborted { stream, ssn }, Bytes::new());
            }
            Event::AdaptationIndication(indication) => {
                self.notify(id, NotificationKind::Adaptation { indication }, Bytes::new());
            }
            Event::SenderDry => self.notify(id, NotificationKind::SenderDry, Bytes::new()),
        }
    }

    fn keep_charge(&mut self, id: AssociationId, charge: ReceiveCharge) {
        match self.minors.owner(id) {
            Some(Owner::Stream(s)) => self.charges.keep(s, Which::Only, charge),
            Some(Owner::OneToMany(s)) => self.charges.keep(s, Which::Id(id), charge),
            Some(Owner::Waiting(sequence)) => {
                if let Some(waiting) = self.minors.waiting(sequence) {
                    waiting.charge = Some(charge);
                }
            }
            // The association's messages were discarded.
            Some(Owner::NoUser | Owner::Unwanted) | None => {}
        }
    }

    fn takes_association(&self, listener: ListenerId, addresses: usize) -> bool {
        let Some(s) = self.minors.listener(listener) else { return true };
        match self.minors.get(s) {
            Some(Minor::Listening { backlog, waiting, .. }) => {
                waiting < backlog
                    && self.pool_of(s).is_none_or(|pool| pool.has(self.waiting_bytes(s, addresses)))
            }
            Some(Minor::OneToMany { .. }) => self.cx.unread(s) < UNREAD_MAX,
            // A listening stream with an association of its own.
            Some(Minor::Connected { .. } | Minor::Disconnected) => false,
            _ => true,
        }
    }

    fn path_hints(&self, remote: SocketAddr) -> PathHints {
        let info = self.link.path_info(remote);
        PathHints {
            mtu_bytes: info.mtu_bytes,
            header_bytes: info.header_bytes,
            leaves_host: !info.same_host,
            on_link: info.on_link,
            in_flight_limit_bytes: info.in_flight_limit_bytes,
            local: info.local,
            route_local: info.route_local,
        }
    }

    fn is_same_host(&self, address: IpAddr) -> bool {
        self.link.is_same_host(address)
    }

    fn is_own_endpoint(&self, remote: SocketAddr) -> bool {
        self.link.is_same_host(remote.ip()) && is_own(&self.link.local_addresses(), remote)
    }

    fn spare(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.leftovers.blocks)
    }

    fn join(&mut self, parts: &[Bytes]) -> Bytes {
        self.pool.join(parts)
    }
}

impl Upper<'_, '_> {
    /// Chains the blocks of a message, and keeps the emptied list for the next message.
    fn chain(&mut self, mut blocks: Vec<Bytes>) -> Chain {
        let chain = self.cx.chain(&mut blocks);
        self.leftovers.blocks = blocks;
        chain
    }

    #[inline]
    fn up(&mut self, id: AssociationId, m: Message) {
        match self.minors.stream(id) {
            Some((s, _)) => self.cx.putnext(s, m),
            None => self.aside(id, m),
        }
    }

    #[cold]
    fn aside(&mut self, id: AssociationId, mut m: Message) {
        match self.minors.owner(id) {
            Some(Owner::Waiting(sequence)) => {
                if let Some(waiting) = self.minors.waiting(sequence) {
                    // The message may wait long for an accept, so it must not keep a receive block. The blocks of
                    // `T_DISCON_IND` are copies, and each has its meaning.
                    if !matches!(m.kind, Kind::Proto(Control::Tpi(Primitive::DisconInd { .. }))) {
                        m.data = Chain::from(m.data.to_vec());
                    }
                    waiting.queue.push_back(m);
                }
            }
            // The association is aborted because this stays unread.
            Some(Owner::Unwanted) if is_data(&m) => {}
            // The peer sends until it learns of our shutdown, and a full window must not stop it before.
            _ => {
                if occupies_window(&m) {
                    self.leftovers.unread.push((id, m.weight_bytes()));
                }
            }
        }
    }

    /// Applies an event of an association to the state of its one-to-one stream.
    fn on_event(&mut self, id: AssociationId, event: tpi::Event) {
        if let Some(Owner::Stream(s)) = self.minors.owner(id) {
            self.minors.on_event(s, event);
        }
    }

    fn pool_of(&self, s: StreamId) -> Option<&ReceivePool> {
        self.configs.get(&s)?.receive_pool.as_ref()
    }

    /// Returns the memory that an association of this listener takes while it waits for an accept, whose peer has so many
    /// addresses.
    fn waiting_bytes(&self, s: StreamId, addresses: usize) -> usize {
        let local_addresses = self.configs.get(&s).map_or(0, |config| config.local_addresses.len());
        waiting_bytes(addresses, local_addresses)
    }

    fn notify(&mut self, id: AssociationId, kind: NotificationKind, data: Bytes) {
        let association = self.minors.which(id);
        let primitive = Primitive::NotificationInd(Box::new(Notification { association, kind }));
        self.up(id, Message::with_data(Kind::Proto(primitive.into()), Chain::from(data)));
    }

    fn send_failed(&mut self, id: AssociationId, failure: SendFailure) {
        let SendFailure { info, data, was_sent, beginning, ending, cause } = failure;
        self.notify(id, NotificationKind::SendFailed { info, was_sent, beginning, ending, cause }, data);
    }

    fn accepted(
        &mut self,
        id: AssociationId,
        listener: ListenerId,
        peer: SocketAddr,
        addresses: usize,
        streams: (u16, u16),
    ) {
        match self.minors.listener(listener).and_then(|s| Some((s, self.minors.get(s)?))) {
            Some((s, Minor::Listening { port, backlog, waiting, .. })) => {
                self.minors.set(s, Minor::Listening { port, listener, backlog, waiting: waiting + 1 });
                self.minors.on_event(s, tpi::Event::ConnInd);
                let bytes = self.waiting_bytes(s, addresses);
                let memory = self.pool_of(s).and_then(|pool| pool.charge(bytes));
                let sequence = self.minors.wait(s, id, streams, memory);
                let indication = Primitive::ConnInd { addresses: peer.into(), sequence };
                self.cx.putnext(s, Message::proto(indication));
            }
            Some((s, Minor::OneToMany { .. })) => {
                self.minors.set_owner(id, Owner::OneToMany(s));
                let confirmation = Primitive::ConnCon {
                    addresses: peer.into(),
                    association: Which::Id(id),
                    outbound_streams: 0,
                    inbound_streams: 0,
                };
                self.cx.putnext(s, Message::proto(confirmation));
            }
            _ => {
                self.minors.set_owner(id, Owner::NoUser);
                self.leftovers.unwanted.push_back(Unwanted::Late(id));
            }
        }
    }

    /// Sets whether the peer of a one-to-one stream sends no more.
    fn set_read_hangup(&mut self, id: AssociationId, hung_up: bool) {
        if let Some((s, Which::Only)) = self.minors.stream(id) {
            self.cx.set_read_hangup(s, hung_up);
        }
    }

    /// Reports the restart of an association: a second `T_CONN_CON`, whose data describes the restart.
    fn restarted(&mut self, id: AssociationId, restart: Restart) {
        self.set_read_hangup(id, false);
        let confirmation = Primitive::ConnCon {
            addresses: Box::new(Addresses::default()),
            association: self.minors.which(id),
            outbound_streams: restart.streams_out,
            inbound_streams: restart.streams_in,
        };
        let text = Chain::from(Bytes::from(restart.to_string().into_bytes()));
        self.up(id, Message::with_data(Kind::Proto(confirmation.into()), text));
    }

    fn disconnect(&mut self, id: AssociationId, reason: &CloseReason, information: Bytes) {
        let m = disconnected(self.minors.which(id), reason, information);
        if let Some(Owner::Stream(s)) = self.minors.owner(id) {
            self.minors.note_disconnect(s, &m);
            self.minors.on_event(s, tpi::Event::DisconInd1);
        }
        self.up(id, m);
    }

    /// Reports the end of an association: the reader gets the received messages, then the reason, then a hang-up.
    fn closed(&mut self, id: AssociationId, reason: &CloseReason) {
        let is_reported = self.leftovers.reported.remove(&id);
        if !is_reported && !matches!(self.minors.owner(id), Some(Owner::NoUser | Owner::Unwanted)) {
            self.disconnect(id, reason, Bytes::new());
        }
        self.leftovers.unread.retain(|(of, _)| *of != id);
        // The identifier may be that of another association before its turn comes.
        self.leftovers.unwanted.retain(|of| of.id() != id);
        match self.minors.take_owner(id) {
            Some(Owner::Stream(s) | Owner::OneToMany(s)) => {
                self.cx.back_enable(s);
                if let Some(Minor::Connected { .. }) = self.minors.get(s) {
                    self.minors.set(s, Minor::Disconnected);
                    self.cx.putnext(s, Message::new(Kind::Hangup));
                }
            }
            // The accepting stream gets what came before the end.
            Some(Owner::Waiting(sequence)) => {
                if let Some(waiting) = self.minors.waiting(sequence) {
                    waiting.association = None;
                    waiting.queue.push_back(Message::new(Kind::Hangup));
                }
            }
            Some(Owner::NoUser | Owner::Unwanted) | None => {}
        }
    }
}

/// Returns whether a message is data of the peer.
fn is_data(m: &Message) -> bool {
    matches!(m.kind, Kind::Proto(Control::Tpi(Primitive::OptdataInd { .. })))
}

/// Returns the number of reports among these messages, and their bytes in the receive buffer.
pub(super) fn reports_in<'a>(messages: impl IntoIterator<Item = &'a Message>) -> (usize, usize) {
    let reports = messages.into_iter().filter(|m| occupies_window(m) && !is_data(m));
    reports.fold((0, 0), |(count, bytes), m| (count + 1, bytes + m.weight_bytes()))
}

/// Returns whether a message occupies room of the receive buffer until it is read.
fn occupies_window(m: &Message) -> bool {
    let Kind::Proto(Control::Tpi(primitive)) = &m.kind else { return false };
    match primitive {
        Primitive::OptdataInd { .. } | Primitive::NotificationInd(_) | Primitive::OrdrelInd { .. } => true,
        // The report of a restart.
        Primitive::ConnCon { .. } => !m.data.is_empty(),
        _ => false,
    }
}

/// Reads the layout of the first message of a run.
#[inline]
fn record(bytes: &[u8], described: &mut RecvInfo) -> Option<Record> {
    let RunMessage { info, payload, wire_bytes } = RunMessage::first(bytes)?;
    *described = info;
    Record::new(payload, wire_bytes)
}

/// Returns the last message of an association. `T_ORDREL_IND` is the last one if both sides shut down; otherwise it is
/// `T_DISCON_IND`, with the reason as text in the first block of the data and the peer's error causes in the second.
fn disconnected(association: Which, reason: &CloseReason, information: Bytes) -> Message {
    let errno = match reason {
        CloseReason::Shutdown => Errno(0),
        CloseReason::PeerAborted { .. } => Errno::ECONNRESET,
        CloseReason::Aborted => Errno::ECONNABORTED,
        CloseReason::NoAnswer | CloseReason::Timeout => Errno::ETIMEDOUT,
        CloseReason::Refused | CloseReason::NoProtocol => Errno::ECONNREFUSED,
        CloseReason::Unreachable => Errno::EHOSTUNREACH,
        CloseReason::ProtocolViolation { .. } => Errno::EPROTO,
        CloseReason::Fault => Errno::EIO,
    };
    let primitive =
        Primitive::DisconInd { reason: errno.0 as u32, sequence: 0, association, cause: reason.cause() };
    let mut data = Chain::from(Bytes::from(reason.to_string().into_bytes()));
    data.push(information);
    Message::with_data(Kind::Proto(primitive.into()), data)
}

fn path_change(change: ::sctp::PathChange) -> PathChange {
    match change {
        ::sctp::PathChange::Available => PathChange::Available,
        ::sctp::PathChange::Unreachable => PathChange::Unreachable,
        ::sctp::PathChange::MadePrimary => PathChange::MadePrimary,
        ::sctp::PathChange::Confirmed => PathChange::Confirmed,
    }
}

fn path_reason(reason: ::sctp::PathReason) -> PathReason {
    match reason {
        ::sctp::PathReason::Unanswered => PathReason::Unanswered,
        ::sctp::PathReason::Acknowledged => PathReason::Acknowledged,
        ::sctp::PathReason::Heartbeat => PathReason::Heartbeat,
        ::sctp::PathReason::Requested => PathReason::Requested,
    }
}

/// Returns whether a link with these local addresses has `remote`, an address of this host, to itself. The unspecified
/// IPv6 address stands for those of IPv4, too, unless the link has addresses of IPv4 of its own.
fn is_own(local: &[SocketAddr], remote: SocketAddr) -> bool {
    let has_ipv4 = local.iter().any(SocketAddr::is_ipv4);
    local.iter().filter(|own| own.port() == remote.port()).any(|own| match own.ip() {
        ip if !ip.is_unspecified() => ip == remote.ip(),
        ip => ip.is_ipv4() == remote.is_ipv4() || !has_ipv4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_links_own_if_nobody_else_can_bind_it() {
        let is_own = |local: &[&str], remote: &str| {
            let local: Vec<SocketAddr> = local.iter().map(|own| own.parse().unwrap()).collect();
            is_own(&local, remote.parse().unwrap())
        };
        for (local, remote) in [
            (&["[::]:9"][..], "[::1]:9"),
            (&["[::]:9"], "127.0.0.1:9"),
            (&["0.0.0.0:9"], "127.0.0.1:9"),
            (&["127.0.0.1:9", "[::]:9"], "[::1]:9"),
            (&["127.0.0.1:9"], "127.0.0.1:9"),
        ] {
            assert!(is_own(local, remote), "{local:?} {remote}");
        }
        for (local, remote) in [
            (&["[::]:9"][..], "[::1]:10"),
            (&["0.0.0.0:9"], "[::1]:9"),
            (&["127.0.0.1:9", "[::]:9"], "127.0.0.2:9"),
            (&["127.0.0.1:9"], "127.0.0.2:9"),
        ] {
            assert!(!is_own(local, remote), "{local:?} {remote}");
        }
    }
}
