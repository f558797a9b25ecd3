//! Handles requests from above (TPI 2.0): bind, connect, accept, release.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::sctp::{AssociationConfig, ConnectError, Lifetime, ListenerId, SendInfo};
use links::SCTP_TUNNELING_PORT;
use streams::{Chain, Control, Cx, Errno, Flush, Kind, Message, StreamId};
use tpi::{
    Addresses, DecodeError, Event, Info, Primitive, PrimitiveCode, State, T_COTS_ORD, T_INFINITE, T_INVALID,
    TError, Which,
};

use super::indication::{Unwanted, reports_in};
use super::minor::{Minor, Owner, Waiting};
use super::options::SendDefaults;
use super::refusal::Refusal;
use super::{SctpDriver, memory};

/// Maximum amount of data that is sent to the peer with an abort.
const DISCONNECT_BYTES_MAX: usize = 256;
/// Size of the longest address, a `sockaddr_in6`.
const ADDRESS_BYTES_MAX: i32 = 28;

impl SctpDriver {
    /// Handles every message that is not plain user data.
    pub(super) fn put_request(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        if matches!(m.kind, Kind::Proto(_)) && m.send_info().is_some() {
            // The head knows neither what a program puts as bytes, nor what data without options is sent with.
            return self.put_unadmitted(cx, s, m.decoded());
        }
        if matches!(m.kind, Kind::Proto(_)) && cx.queue(s).is_some_and(|queue| !queue.is_empty()) {
            return cx.putq(s, m);
        }
        match m.kind {
            Kind::Flush(_) => cx.flush(s, m),
            _ => self.handle_request(cx, s, m),
        }
    }

    /// Handles a message whose turn it is.
    pub(super) fn handle_request(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match m.kind {
            // TPI 2.0, T_DATA_REQ: an M_PROTO. Flow control does not hold for others.
            Kind::PcProto(control) if control.code().is_some_and(carries_data) => cx.error(s, Errno::EPROTO),
            Kind::Proto(control) | Kind::PcProto(control) => {
                let code = control.code();
                match control.decode() {
                    Ok(primitive) => self.request(cx, s, primitive, m.data),
                    Err(error) => refuse_undecoded(cx, s, code, error),
                }
            }
            Kind::Ioctl(ioctl) => {
                cx.nak(s, &ioctl, Errno::EINVAL);
            }
            _ => {}
        }
    }

    fn request(&mut self, cx: &mut Cx<'_>, s: StreamId, primitive: Primitive, data: Chain) {
        let code = primitive.code();
        let answer = match primitive {
            Primitive::OptdataReq { association, info } => {
                return self.send(cx, s, association, &info, data);
            }
            Primitive::DataReq { more } => return self.send_plain(cx, s, false, more, data),
            Primitive::ExdataReq { more } => {
                return self.send_plain(cx, s, true, more, data);
            }
            _ if !code.is_of_user() => Err(Refusal::NOT_SUPPORTED),
            _ if !self.fits_state(s, &primitive) => Err(Refusal::OUT_OF_STATE),
            Primitive::BindReq { addresses, backlog } => self.bind(cx, s, &addresses, backlog),
            Primitive::UnbindReq => self.unbind(s),
            Primitive::ConnReq { .. } | Primitive::ConnRes { .. } if !data.is_empty() => {
                Err(Refusal::BAD_DATA)
            }
            Primitive::ConnReq { addresses } => self.connect(cx, s, &addresses),
            Primitive::ConnRes { sequence, acceptor } => match self.accept(cx, s, sequence, acceptor) {
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            },
            Primitive::OptmgmtReq(request) => self.manage_options(cx, s, &request),
            Primitive::DisconReq { sequence, association, .. } => {
                self.disconnect(cx, s, sequence, association, &data)
            }
            Primitive::OrdrelReq { association } => match self.release_orderly(cx, s, association) {
                // TPI does not acknowledge T_ORDREL_REQ.
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            },
            Primitive::InfoReq => Ok(Primitive::InfoAck(Box::new(self.info(s)))),
            Primitive::AddrReq => Ok(self.addresses(s)),
            Primitive::CapabilityReq { bits } => Ok(Primitive::CapabilityAck {
                bits,
                info: Box::new(self.info(s)),
                acceptor: s.index() as u32,
            }),
            _ => Err(Refusal::NOT_SUPPORTED),
        };
        match answer {
            Ok(ack) => cx.putnext(s, Message::pc_proto(ack)),
            Err(refusal) => refuse(cx, s, code, refusal),
        }
    }

    /// Sends data without options, with the defaults of the stream.
    pub(super) fn send_plain(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        unordered: bool,
        more: bool,
        data: Chain,
    ) {
        let info = self.plain_info(s, unordered, more);
        self.send(cx, s, Which::Only, &info, data);
    }

    /// Returns the description of data without options.
    pub(super) fn plain_info(&self, s: StreamId, unordered: bool, more: bool) -> SendInfo {
        let SendDefaults { ppid, stream, lifetime_ms } = self.send_defaults(s);
        let lifetime = Lifetime::from_ms(lifetime_ms);
        SendInfo { stream, ppid, unordered, more, lifetime, ..SendInfo::default() }
    }

    /// Returns whether a primitive fits the state of its stream, by the table of TPI.
    ///
    /// Beyond the table, a connect request binds an unbound stream first. The associations of a one-to-many stream have
    /// no states towards the user: the stream stays in `TS_IDLE`.
    fn fits_state(&self, s: StreamId, primitive: &Primitive) -> bool {
        let Some(event) = Event::of(primitive, 0, false) else { return true };
        let state = self.minors.state(s);
        let is_one_to_many = matches!(self.minors.get(s), Some(Minor::OneToMany { .. }));
        match (event, state) {
            (Event::ConnReq, State::Unbound) => true,
            (Event::OrdrelReq | Event::DisconReq, _) if is_one_to_many => true,
            _ => state.after(event).is_some(),
        }
    }

    fn bind(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        addresses: &Addresses,
        backlog: u32,
    ) -> Result<Primitive, Refusal> {
        let wanted = addresses.list.first().map_or(0, SocketAddr::port);
        let no_port = || Refusal(TError::NoAddress, Errno(0));
        let port = if wanted == 0 { self.endpoint.free_port(&[], 0).ok_or_else(no_port)? } else { wanted };
        if backlog == 0 {
            self.minors.set(s, Minor::Bound { port });
        } else {
            let config = self.association_config(s);
            let listener = self.endpoint.listen(port, AssociationConfig::clone(&config));
            let listener = listener.ok_or(Refusal(TError::AddressBusy, Errno(0)))?;
            self.tell_ports().map_err(Refusal::system)?;
            // A peer that connects as soon as the user has the answer must not meet the filter against a flood.
            self.tell_expected(self.now(cx));
            cx.set_memory(s, memory::of(config));
            let minor = match backlog {
                Self::ONE_TO_MANY => Minor::OneToMany { port, listener },
                _ => Minor::Listening { port, listener, backlog, waiting: 0 },
            };
            self.minors.set(s, minor);
        }
        self.minors.on_event(s, Event::BindReq);
        self.minors.on_event(s, Event::BindAck);
        let bound = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        Ok(Primitive::BindAck { addresses: bound.into(), backlog })
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        self.endpoint.unlisten(listener);
        // If the call fails, the link passes more packets than needed, which is harmless.
        let _ = self.tell_ports();
    }

    /// Makes a listening stream refuse connections while it has an association of its own. The address stays its own (XTI
    /// `t_bind`: busy for the duration of the connection, until the endpoint is unbound or closed).
    fn rest(&mut self, s: StreamId) {
        if let Some(listener) = self.minors.rest(s) {
            let config = AssociationConfig::clone(&self.association_config(s));
            let refusing = AssociationConfig { refuse_beyond_backlog: true, ..config };
            self.endpoint.set_listener_config(listener, refusing);
        }
    }

    /// Returns what a stream is whose own association is gone: it listens again if it did before.
    fn idle(&mut self, s: StreamId, port: u16) -> Minor {
        let Some((listener, backlog)) = self.minors.take_resting(s) else { return Minor::Bound { port } };
        let config = AssociationConfig::clone(&self.association_config(s));
        self.endpoint.set_listener_config(listener, config);
        Minor::Listening { port, listener, backlog, waiting: 0 }
    }

    fn unbind(&mut self, s: StreamId) -> Result<Primitive, Refusal> {
        match self.minors.get(s) {
            Some(Minor::Bound { .. }) => {}
            Some(Minor::Listening { listener, .. }) => self.stop_listening(listener),
            Some(Minor::OneToMany { listener, .. }) if self.minors.owned_by(s).is_empty() => {
                self.stop_listening(listener);
            }
            // The association is being released, and ends without its user.
            Some(Minor::Connected { association }) => self.minors.set_owner(association, Owner::NoUser),
            Some(Minor::Disconnected) => {}
            Some(Minor::OneToMany { .. }) => return Err(Refusal::system(Errno::EBUSY)),
            Some(Minor::Unbound) | None => return Err(Refusal::OUT_OF_STATE),
        }
        if let Some(listener) = self.minors.resting(s) {
            self.stop_listening(listener);
        }
        self.minors.close(s);
        self.minors.open(s);
        Ok(Primitive::OkAck { primitive: PrimitiveCode::UnbindReq })
    }

    fn connect(&mut self, cx: &mut Cx<'_>, s: StreamId, addresses: &Addresses) -> Result<Primitive, Refusal> {
        let minor = self.minors.get(s);
        let Some(peer_port) = addresses.list.first().map(SocketAddr::port) else {
            return Err(Refusal(TError::BadAddress, Errno(0)));
        };
        let udp_port = match self.link.has_ports() {
            true => addresses.encapsulation_port.unwrap_or(SCTP_TUNNELING_PORT),
            false => 0,
        };
        let remotes: Vec<SocketAddr> =
            addresses.list.iter().map(|a| SocketAddr::new(a.ip(), udp_port)).collect();
        let local_port = match minor {
            Some(Minor::Unbound) => {
                let port = self.endpoint.free_port(&remotes, peer_port);
                port.ok_or(Refusal(TError::NoAddress, Errno(0)))?
            }
            Some(Minor::Bound { port } | Minor::OneToMany { port, .. } | Minor::Listening { port, .. }) => {
                port
            }
            // The stream's association is ending or has ended, and a stream has only one.
            _ => return Err(Refusal::system(Errno::EISCONN)),
        };
        let (now, config) = (self.now(cx), self.association_config(s));
        cx.set_memory(s, memory::of(Arc::clone(&config)));
        let id = self
            .with_endpoint(cx, |endpoint, host| {
                endpoint.connect(now, local_port, peer_port, &remotes, config, host)
            })
            .map_err(|error| Refusal::system(connect_errno(error)))?;
        if let Err(errno) = self.tell_ports() {
            self.with_endpoint(cx, |endpoint, host| endpoint.abandon(id, host));
            return Err(Refusal::system(errno));
        }
        self.requested = Some((s, id));
        self.rest(s);
        if matches!(minor, Some(Minor::OneToMany { .. })) {
            self.minors.set_owner(id, Owner::OneToMany(s));
        } else {
            self.minors.set_owner(id, Owner::Stream(s));
            self.minors.set(s, Minor::Connected { association: id });
            // The first two events apply to a stream that was not bound.
            let events = [Event::BindReq, Event::BindAck, Event::ConnReq, Event::OkAck1];
            events.into_iter().for_each(|event| self.minors.on_event(s, event));
        }
        Ok(Primitive::OkAck { primitive: PrimitiveCode::ConnReq })
    }

    /// `T_CONN_RES`: moves the association to the accepting stream, with everything that it has received.
    fn accept(&mut self, cx: &mut Cx<'_>, s: StreamId, sequence: u32, acceptor: u32) -> Result<(), Refusal> {
        let stream = self.acceptor(s, acceptor)?;
        let (waits, mut waiting) = self.take_waiting(s, sequence)?;
        let is_here = stream == s;
        if is_here {
            self.rest(s);
        }
        let config = waiting.association.and_then(|association| self.endpoint.config(association));
        cx.set_memory(stream, memory::of(config.unwrap_or_else(|| self.association_config(s))));
        match waiting.association {
            Some(association) => {
                self.minors.set(stream, Minor::Connected { association });
                self.minors.set_owner(association, Owner::Stream(stream));
            }
            None => {
                self.minors.set(stream, Minor::Disconnected);
                self.minors.note_ended_streams(stream, waiting.streams);
            }
        }
        self.minors.on_event(s, Event::ConnRes);
        self.minors.on_event(s, ok_ack(waits, is_here));
        if !is_here {
            self.minors.on_event(stream, Event::PassConn);
        }
        cx.putnext(s, Message::pc_proto(Primitive::OkAck { primitive: PrimitiveCode::ConnRes }));
        if let Some(charge) = waiting.charge.take() {
            self.charges.keep(stream, Which::Only, charge);
        }
        for m in waiting.queue {
            self.minors.note_disconnect(stream, &m);
            if let Kind::Proto(Control::Tpi(Primitive::OrdrelInd { .. })) = m.kind {
                cx.set_read_hangup(stream, true);
            }
            if let Kind::Proto(control) = &m.kind
                && let Some(event) = control.primitive().and_then(|primitive| Event::of(primitive, 0, true))
            {
                self.minors.on_event(stream, event);
            }
            cx.putnext(stream, m);
        }
        Ok(())
    }

    /// Returns the stream that accepts an association which waits for the stream `s`.
    fn acceptor(&self, s: StreamId, acceptor: u32) -> Result<StreamId, Refusal> {
        let refused = |t_error| Err(Refusal(t_error, Errno(0)));
        let Some((stream, minor)) = self.minors.numbered(acceptor) else { return refused(TError::BadFile) };
        match (minor, self.minors.get(s)) {
            (_, Some(Minor::Listening { waiting: 2.., .. })) if stream == s => {
                refused(TError::IndicationsOutstanding)
            }
            _ if stream == s => Ok(stream),
            (Minor::Listening { .. } | Minor::OneToMany { .. }, _) => refused(TError::AcceptorQueueLength),
            (Minor::Bound { port }, Some(Minor::Listening { port: bound, .. })) if port != bound => {
                refused(TError::AcceptorAddress)
            }
            _ if self.minors.state(stream).after(Event::PassConn).is_none() => Err(Refusal::OUT_OF_STATE),
            (Minor::Unbound | Minor::Bound { .. }, _) => Ok(stream),
            (Minor::Connected { .. } | Minor::Disconnected, _) => Err(Refusal::system(Errno::EISCONN)),
        }
    }

    /// Removes a waiting association; returns it and the number that waited, itself included.
    fn take_waiting(&mut self, s: StreamId, sequence: u32) -> Result<(u32, Waiting), Refusal> {
        let waits = match self.minors.get(s) {
            Some(Minor::Listening { waiting, .. }) => waiting,
            _ => 0,
        };
        let waiting = self.minors.take_waiting(s, sequence);
        Ok((waits, waiting.ok_or(Refusal(TError::BadSequence, Errno(0)))?))
    }

    /// `T_DISCON_REQ`: refuses a waiting association, or aborts that of the stream, which stays bound.
    fn disconnect(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        sequence: u32,
        association: Which,
        reason: &Chain,
    ) -> Result<Primitive, Refusal> {
        if reason.len() > DISCONNECT_BYTES_MAX {
            return Err(Refusal::BAD_DATA);
        }
        let done = Primitive::OkAck { primitive: PrimitiveCode::DisconReq };
        let (id, waits) = if let Some(Minor::Listening { .. }) = self.minors.get(s) {
            let (waits, waiting) = self.take_waiting(s, sequence)?;
            (waiting.association, waits)
        } else {
            (Some(self.association(s, association).ok_or(Refusal::OUT_OF_STATE)?), 0)
        };
        if let (Some(id), Some(Minor::Connected { .. })) = (id, self.minors.get(s)) {
            let port = self.endpoint.association(id).map_or(0, |known| known.ports().0);
            // The acknowledgement alone tells the user of the end.
            self.minors.set_owner(id, Owner::NoUser);
            let idle = self.idle(s, port);
            self.minors.set(s, idle);
            cx.set_read_hangup(s, false);
            cx.putnext(s, Message::new(Kind::Flush(Flush { all: false, ..Flush::READ })));
        }
        if let Some(id) = id {
            let text = reason.blocks().concat();
            let now = self.now(cx);
            self.with_endpoint(cx, |endpoint, host| endpoint.abort(now, id, &text, host));
        }
        self.minors.on_event(s, Event::DisconReq);
        self.minors.on_event(s, ok_ack(waits, true));
        Ok(done)
    }

    fn release_orderly(&mut self, cx: &mut Cx<'_>, s: StreamId, association: Which) -> Result<(), Refusal> {
        let id = self.association(s, association).ok_or(Refusal::OUT_OF_STATE)?;
        self.minors.on_event(s, Event::OrdrelReq);
        let now = self.now(cx);
        self.with_endpoint(cx, |endpoint, host| endpoint.shutdown(now, id, host));
        Ok(())
    }

    /// Closes the stream. Accepted data is still delivered; associations that were never accepted are shut down,
    /// or aborted if data has come that nobody reads. Reports are no data.
    pub(super) fn release(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        let minor = self.minors.get(s);
        let listener = match minor {
            Some(Minor::Listening { listener, .. } | Minor::OneToMany { listener, .. }) => Some(listener),
            _ => self.minors.resting(s),
        };
        if let Some(listener) = listener {
            self.stop_listening(listener);
        }
        for (id, waiting) in self.minors.take_all_waiting(s) {
            let (reports, bytes) = reports_in(&waiting.queue);
            self.endpoint.consumed(id, bytes, reports);
            self.minors.set_owner(id, Owner::Unwanted);
            self.leftovers.unwanted.push_back(Unwanted::Waited(id, waiting.memory));
        }
        self.clear_leftovers(cx);
        let left = match minor {
            Some(Minor::Connected { association }) => vec![association],
            Some(Minor::OneToMany { .. }) => self.minors.owned_by(s),
            _ => Vec::new(),
        };
        for id in left {
            self.minors.set_owner(id, Owner::NoUser);
            let now = self.now(cx);
            self.with_endpoint(cx, |endpoint, host| endpoint.close(now, id, host));
        }
        self.minors.close(s);
        self.charges.close(s);
        self.configs.remove(&s);
        self.all_send_defaults.remove(&s);
    }

    fn addresses(&self, s: StreamId) -> Primitive {
        let port = match self.minors.get(s) {
            Some(Minor::Bound { port } | Minor::Listening { port, .. } | Minor::OneToMany { port, .. }) => {
                port
            }
            Some(Minor::Connected { association }) => {
                self.endpoint.association(association).map_or(0, |known| known.ports().0)
            }
            _ => 0,
        };
        let local = Addresses {
            list: self.link.local_addresses().iter().map(|a| SocketAddr::new(a.ip(), port)).collect(),
            encapsulation_port: self.link.local_addresses().first().and_then(udp_port),
        };
        let remote = match self.association(s, Which::Only).and_then(|id| self.endpoint.peer_addresses(id)) {
            Some((list, port)) => Addresses {
                encapsulation_port: list.first().and_then(udp_port),
                list: list.iter().map(|a| SocketAddr::new(a.ip(), port)).collect(),
            },
            None => Addresses::default(),
        };
        Primitive::AddrAck { local: Box::new(local), remote: Box::new(remote) }
    }

    fn info(&self, s: StreamId) -> Info {
        let limit = i32::try_from(self.config.message_bytes_max).unwrap_or(i32::MAX);
        Info {
            tsdu_bytes: limit,
            etsdu_bytes: T_INVALID,
            connect_data_bytes: T_INVALID,
            disconnect_data_bytes: DISCONNECT_BYTES_MAX as i32,
            address_bytes: ADDRESS_BYTES_MAX,
            options_bytes: T_INFINITE,
            tidu_bytes: limit,
            service: T_COTS_ORD,
            state: self.minors.state(s).number(),
            provider_flags: 0,
        }
    }
}

/// Returns the event of an acknowledgement of a response while `waits` connect indications wait.
fn ok_ack(waits: u32, is_here: bool) -> Event {
    match (waits, is_here) {
        (0, _) => Event::OkAck1,
        (1, true) => Event::OkAck2,
        (1, false) => Event::OkAck3,
        _ => Event::OkAck4,
    }
}

/// Returns whether a primitive of the user has user data.
fn carries_data(code: PrimitiveCode) -> bool {
    matches!(code, PrimitiveCode::DataReq | PrimitiveCode::ExdataReq | PrimitiveCode::OptdataReq)
}

fn connect_errno(error: ConnectError) -> Errno {
    match error {
        ConnectError::Exists => Errno::EADDRINUSE,
        ConnectError::NoSource | ConnectError::NoAddress => Errno::EADDRNOTAVAIL,
    }
}

/// Returns the UDP port; `None` with raw IP.
fn udp_port(address: &SocketAddr) -> Option<u16> {
    Some(address.port()).filter(|port| *port != 0)
}

fn refuse(cx: &mut Cx<'_>, s: StreamId, primitive: PrimitiveCode, Refusal(t_error, errno): Refusal) {
    cx.putnext(s, Message::pc_proto(Primitive::ErrorAck { primitive, t_error, errno }));
}

/// Answers bytes that do not decode to a primitive. If no answer can name the error, they violate the protocol, which
/// ends the stream (TPI 2.0, `M_ERROR` with `EPROTO`).
fn refuse_undecoded(cx: &mut Cx<'_>, s: StreamId, code: Option<PrimitiveCode>, error: DecodeError) {
    let t_error = match error {
        DecodeError::BadAddress => TError::BadAddress,
        DecodeError::BadOption => TError::BadOption,
        _ => return cx.error(s, Errno::EPROTO),
    };
    if let Some(code) = code {
        refuse(cx, s, code, Refusal(t_error, Errno(0)));
    }
}
