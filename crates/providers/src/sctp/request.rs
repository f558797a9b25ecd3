//! Primitives that come down (TPI 2.0): bind, connect, accept, release.

use std::net::{Ipv4Addr, SocketAddr};

use ::sctp::{AssociationConfig, ConnectError, ListenerId};
use links::SCTP_TUNNELING_PORT;
use streams::{Chain, Cx, Errno, Flush, Kind, Message, StreamId};
use tpi::{Addresses, DecodeError, Info, Primitive, PrimitiveCode, TError, TransferInfo};

use super::SctpDriver;
use super::minor::{Minor, Owner};

/// Why a request was refused.
struct Refusal(TError, Errno);

impl Refusal {
    const OUT_OF_STATE: Refusal = Refusal(TError::OutOfState, Errno(0));

    fn system(errno: Errno) -> Self {
        Refusal(TError::System, errno)
    }
}

impl SctpDriver {
    /// Every message that is not plain user data.
    pub(super) fn put_request(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match m.kind {
            Kind::Proto(control) | Kind::PcProto(control) => match control.decode() {
                Ok(primitive) => self.request(cx, s, primitive, m.data),
                Err(error) => refuse_undecoded(cx, s, error),
            },
            // Nothing of the stream waits here: what was taken is in the association's hands.
            Kind::Flush(flush) if flush.read => {
                cx.putnext(s, Message::new(Kind::Flush(Flush { write: false, ..flush })));
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
            Primitive::OptdataReq(info) => {
                return self.send(cx, s, &info, Message::with_data(Kind::Data, data));
            }
            Primitive::DataReq { more } => {
                let flags = if more { tpi::TransferFlags::MORE } else { tpi::TransferFlags::NONE };
                let info = TransferInfo { flags, ..TransferInfo::default() };
                return self.send(cx, s, &info, Message::with_data(Kind::Data, data));
            }
            Primitive::BindReq { addresses, backlog } => self.bind(s, &addresses, backlog),
            Primitive::UnbindReq => self.unbind(s),
            Primitive::ConnReq { addresses } => self.connect(cx, s, &addresses),
            Primitive::ConnRes { sequence, acceptor } => return self.accept(cx, s, sequence, acceptor),
            Primitive::DisconReq { sequence, association, .. } => {
                self.disconnect(cx, s, sequence, association, &data)
            }
            Primitive::OrdrelReq { association } => self.release_orderly(cx, s, association),
            Primitive::InfoReq => Ok(Primitive::InfoAck(Box::new(self.info(s)))),
            Primitive::AddrReq => Ok(self.addresses(s)),
            Primitive::CapabilityReq { bits } => Ok(Primitive::CapabilityAck {
                bits,
                info: Box::new(self.info(s)),
                acceptor: s.index() as u32,
            }),
            _ => Err(Refusal(TError::NotSupported, Errno(0))),
        };
        match answer {
            // `T_ORDREL_REQ` is not acknowledged.
            Ok(Primitive::OkAck { primitive: PrimitiveCode::OrdrelReq }) => {}
            Ok(ack) => cx.putnext(s, Message::pc_proto(ack)),
            Err(refusal) => refuse(cx, s, code, refusal),
        }
    }

    fn bind(&mut self, s: StreamId, addresses: &Addresses, backlog: u32) -> Result<Primitive, Refusal> {
        if self.minors.get(s) != Some(Minor::Unbound) {
            return Err(Refusal::OUT_OF_STATE);
        }
        let wanted = addresses.list.first().map_or(0, SocketAddr::port);
        let no_port = || Refusal(TError::NoAddress, Errno(0));
        let port = if wanted == 0 { self.endpoint.free_port(&[], 0).ok_or_else(no_port)? } else { wanted };
        if backlog == 0 {
            self.minors.set(s, Minor::Bound { port });
        } else {
            let config = AssociationConfig::clone(&self.association_config(s));
            let listener = self.endpoint.listen(port, config);
            let listener = listener.ok_or(Refusal(TError::AddressBusy, Errno(0)))?;
            self.tell_ports().map_err(Refusal::system)?;
            let minor = match backlog {
                Self::ONE_TO_MANY => Minor::OneToMany { port, listener },
                _ => Minor::Listening { port, listener, backlog, waiting: 0 },
            };
            self.minors.set(s, minor);
        }
        let bound = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        Ok(Primitive::BindAck { addresses: bound.into(), backlog })
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        self.endpoint.unlisten(listener);
        // Where the link cannot be told, more comes than is wanted, which harms nobody.
        let _ = self.tell_ports();
    }

    fn unbind(&mut self, s: StreamId) -> Result<Primitive, Refusal> {
        match self.minors.get(s) {
            Some(Minor::Bound { .. }) => {}
            Some(Minor::Listening { listener, .. }) => self.stop_listening(listener),
            _ => return Err(Refusal::OUT_OF_STATE),
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
            Some(Minor::Bound { port } | Minor::OneToMany { port, .. }) => port,
            _ => return Err(Refusal::OUT_OF_STATE),
        };
        let (now, config) = (self.now, self.association_config(s));
        let (endpoint, host) = self.split(cx);
        let id = endpoint
            .connect(now, local_port, peer_port, &remotes, config, &host)
            .map_err(|error| Refusal::system(connect_errno(error)))?;
        if let Err(errno) = self.tell_ports() {
            let (endpoint, mut host) = self.split(cx);
            endpoint.abandon(id, &mut host);
            return Err(Refusal::system(errno));
        }
        self.minors.set_owner(id, Owner::Stream(s));
        if !matches!(minor, Some(Minor::OneToMany { .. })) {
            self.minors.set(s, Minor::Connected { association: id });
        }
        Ok(Primitive::OkAck { primitive: PrimitiveCode::ConnReq })
    }

    /// `T_CONN_RES`: the association moves to the accepting stream, with all that it has received.
    fn accept(&mut self, cx: &mut Cx<'_>, s: StreamId, sequence: u32, acceptor: u32) {
        let Some((stream, Minor::Unbound)) = self.minors.numbered(acceptor) else {
            return refuse(cx, s, PrimitiveCode::ConnRes, Refusal(TError::BadFile, Errno(0)));
        };
        let Some(waiting) = self.minors.take_waiting(s, sequence) else {
            return refuse(cx, s, PrimitiveCode::ConnRes, Refusal(TError::BadSequence, Errno(0)));
        };
        match waiting.association {
            Some(association) => {
                self.minors.set(stream, Minor::Connected { association });
                self.minors.set_owner(association, Owner::Stream(stream));
            }
            None => self.minors.set(stream, Minor::Disconnected),
        }
        cx.putnext(s, Message::pc_proto(Primitive::OkAck { primitive: PrimitiveCode::ConnRes }));
        if let Some((id, charge)) = waiting.charge {
            self.charges.keep(stream, id, charge);
        }
        for m in waiting.queue {
            self.minors.note_disconnect(stream, &m);
            cx.putnext(stream, m);
        }
    }

    fn disconnect(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        sequence: u32,
        association: u32,
        reason: &Chain,
    ) -> Result<Primitive, Refusal> {
        let id = match self.minors.get(s) {
            Some(Minor::Listening { .. }) => {
                let waiting = self.minors.take_waiting(s, sequence);
                match waiting.ok_or(Refusal(TError::BadSequence, Errno(0)))?.association {
                    Some(id) => id,
                    None => return Ok(Primitive::OkAck { primitive: PrimitiveCode::DisconReq }),
                }
            }
            _ => self.association(s, association).ok_or(Refusal::OUT_OF_STATE)?,
        };
        let text = reason.blocks().concat();
        let now = self.now;
        let (endpoint, mut host) = self.split(cx);
        endpoint.abort(now, id, &text, &mut host);
        Ok(Primitive::OkAck { primitive: PrimitiveCode::DisconReq })
    }

    fn release_orderly(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: u32,
    ) -> Result<Primitive, Refusal> {
        let id = self.association(s, association).ok_or(Refusal::OUT_OF_STATE)?;
        let now = self.now;
        let (endpoint, mut host) = self.split(cx);
        endpoint.shutdown(now, id, &mut host);
        Ok(Primitive::OkAck { primitive: PrimitiveCode::OrdrelReq })
    }

    /// The stream is closed. What was taken is still delivered; associations that were never accepted
    /// are aborted.
    pub(super) fn release(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        let minor = self.minors.get(s);
        if let Some(Minor::Listening { listener, .. } | Minor::OneToMany { listener, .. }) = minor {
            self.stop_listening(listener);
        }
        for id in self.minors.take_all_waiting(s) {
            let now = self.now;
            let (endpoint, mut host) = self.split(cx);
            endpoint.abort(now, id, b"the listener was closed", &mut host);
        }
        let left = match minor {
            Some(Minor::Connected { association }) => vec![association],
            Some(Minor::OneToMany { .. }) => self.minors.owned_by(s),
            _ => Vec::new(),
        };
        for id in left {
            self.minors.set_owner(id, Owner::Nobody);
            let now = self.now;
            let (endpoint, mut host) = self.split(cx);
            // Nobody is left to give back what was kept, and the peer may have to send before it can shut down.
            endpoint.release_window(id, usize::MAX);
            endpoint.shutdown(now, id, &mut host);
        }
        self.minors.close(s);
        self.charges.close(s);
        self.configs.remove(&s);
    }

    fn addresses(&self, s: StreamId) -> Primitive {
        let port = match self.minors.get(s) {
            Some(Minor::Bound { port } | Minor::Listening { port, .. } | Minor::OneToMany { port, .. }) => {
                port
            }
            _ => 0,
        };
        let local = Addresses {
            list: self.link.local_addresses().iter().map(|a| SocketAddr::new(a.ip(), port)).collect(),
            encapsulation_port: self.link.local_addresses().first().and_then(udp_port),
        };
        let remote = match self.association(s, 0).and_then(|id| self.endpoint.peer_addresses(id)) {
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
            etsdu_bytes: -2,
            connect_data_bytes: -2,
            disconnect_data_bytes: 256,
            address_bytes: 28,
            options_bytes: -1,
            tidu_bytes: limit,
            // T_COTS_ORD: connection mode with orderly release.
            service: 2,
            state: match self.minors.get(s) {
                None | Some(Minor::Unbound) => 0,
                Some(Minor::Bound { .. } | Minor::Listening { .. } | Minor::OneToMany { .. }) => 1,
                Some(Minor::Connected { .. }) => 6,
                Some(Minor::Disconnected) => 1,
            },
            provider_flags: 0,
        }
    }
}

fn connect_errno(error: ConnectError) -> Errno {
    match error {
        ConnectError::Exists => Errno::EADDRINUSE,
        ConnectError::NoSource | ConnectError::NoAddress => Errno::EADDRNOTAVAIL,
    }
}

/// None with raw IP.
fn udp_port(address: &SocketAddr) -> Option<u16> {
    Some(address.port()).filter(|port| *port != 0)
}

fn refuse(cx: &mut Cx<'_>, s: StreamId, primitive: PrimitiveCode, Refusal(t_error, errno): Refusal) {
    cx.putnext(s, Message::pc_proto(Primitive::ErrorAck { primitive, t_error, errno }));
}

/// Answers bytes that are no primitive. One that nobody can name in an answer is a violation of the protocol, which ends the
/// stream (TPI 2.0, `M_ERROR` with `EPROTO`).
fn refuse_undecoded(cx: &mut Cx<'_>, s: StreamId, error: DecodeError) {
    match error {
        DecodeError::BadAddress | DecodeError::BadOption => {
            let t_error = match error {
                DecodeError::BadAddress => TError::BadAddress,
                _ => TError::BadOption,
            };
            refuse(cx, s, PrimitiveCode::ConnReq, Refusal(t_error, Errno(0)));
        }
        _ => cx.error(s, Errno::EPROTO),
    }
}
