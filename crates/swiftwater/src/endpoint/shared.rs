//! The state that the clones of an endpoint share.

use std::net::{IpAddr, SocketAddr};

use sctp::{
    AssociationId, AssociationState, AssociationView, PathError, PathId, PathOptions, SendInfo, Statistics,
};
use streams::{Control, Kind, Message as Block, Which};
use tpi::Primitive;

use crate::address::Address;
use crate::association::request_connect;
use crate::association_ref::AssociationRef;
use crate::error::{BindError, ConnectError, Loss, OptionsError, RecvError, SendError};
use crate::event::{Event, Received};
use crate::message::from_block;
use crate::options::AssociationOptions;
use crate::shard::Inner;
use crate::socket::{Found, Socket, Wait};
use crate::stack::Stack;

/// The state that all clones of a one-to-many endpoint share.
#[derive(Debug)]
pub(crate) struct SharedEndpoint {
    socket: Socket,
    stack: Stack,
    port: u16,
}

impl SharedEndpoint {
    /// Sends one message if the send buffer of the association has room for it, without waiting.
    pub(crate) fn try_send_to(
        &self,
        to: AssociationId,
        message: &[u8],
        info: &SendInfo,
    ) -> Result<(), SendError> {
        self.write(to, message, info, Wait::None)
    }

    /// Receives the next message or event without waiting, if one is available.
    pub(crate) fn try_recv(&self) -> Result<(AssociationId, Received), RecvError> {
        self.recv_with(Wait::None)
    }

    /// Transmits messages at once that wait for others to share their packet.
    pub(crate) fn flush(&self) {
        self.socket.shard.enter().flush(true);
    }

    /// Aborts an association (RFC 9260 §9.1): undelivered messages are lost.
    pub(crate) fn abort(&self, id: AssociationId, reason: impl AsRef<[u8]>) {
        self.association(id).abort(reason.as_ref());
    }

    /// Returns the first local address of the endpoint, with its SCTP port: as in [`std::net`], `0.0.0.0` or `[::]` if it is
    /// bound to all addresses of the host.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.stack.addr_of(self.stack.scope(), self.port)
    }

    /// Returns all local addresses of the endpoint with their SCTP and UDP port, as a peer on this host would name them.
    pub(crate) fn address(&self) -> Address {
        self.stack.address_of(self.stack.scope(), self.port)
    }

    /// Returns the stack of the endpoint.
    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns the peer's address of the primary path of an association, with the peer's SCTP port.
    pub(crate) fn peer_addr(&self, id: AssociationId) -> Option<SocketAddr> {
        self.association(id).peer_addr()
    }

    /// Returns all addresses of the peer of an association with its SCTP port and its UDP port.
    pub(crate) fn peer(&self, id: AssociationId) -> Option<Address> {
        self.association(id).peer()
    }

    /// Returns the peer's addresses of an association (`sctp_getpaddrs`); none once it has ended.
    pub(crate) fn peer_ips(&self, id: AssociationId) -> Vec<IpAddr> {
        self.peer(id).map(|address| address.hosts).unwrap_or_default()
    }

    /// Returns the local addresses of an association (`sctp_getladdrs`).
    pub(crate) fn local_ips(&self, id: AssociationId) -> Vec<IpAddr> {
        self.association(id).local_ips()
    }

    /// Returns the number of outbound streams of an association; `None` before it is up and once it has ended.
    pub(crate) fn streams_out(&self, id: AssociationId) -> Option<u16> {
        self.view_if_up(id, |view| view.streams_out())
    }

    /// Returns the number of inbound streams of an association; `None` before it is up and once it has ended.
    pub(crate) fn streams_in(&self, id: AssociationId) -> Option<u16> {
        self.view_if_up(id, |view| view.streams_in())
    }

    /// Returns the path of an association to one of the peer's addresses, for [`SendInfo::path`].
    pub(crate) fn path_to(&self, id: AssociationId, address: IpAddr) -> Option<PathId> {
        self.association(id).path_to(address)
    }

    /// Returns the current options of an association.
    pub(crate) fn options(&self, id: AssociationId) -> Option<AssociationOptions> {
        self.association(id).options()
    }

    /// Replaces the options of one association at once, either all or none of them.
    pub(crate) fn set_options(
        &self,
        id: AssociationId,
        options: &AssociationOptions,
    ) -> Result<(), OptionsError> {
        self.association(id).set_options(options)
    }

    /// Changes single options of one association at once.
    pub(crate) fn update_options(
        &self,
        id: AssociationId,
        change: impl FnMut(&mut AssociationOptions),
    ) -> Result<(), OptionsError> {
        self.association(id).update_options(change)
    }

    /// Changes the options of the path of an association to one address of the peer, or of all its paths if `address` is `None`.
    pub(crate) fn set_path(
        &self,
        id: AssociationId,
        address: Option<IpAddr>,
        options: &PathOptions,
    ) -> Result<(), PathError> {
        self.association(id).set_path(address, options)
    }

    /// Makes the path to this address of the peer the primary path of an association.
    pub(crate) fn set_primary(&self, id: AssociationId, address: IpAddr) -> Result<(), PathError> {
        self.association(id).set_primary(address)
    }

    /// Returns the counters of an association and of its paths (RFC 6458 §8.2, RFC 3873).
    pub(crate) fn statistics(&self, id: AssociationId) -> Option<Statistics> {
        self.association(id).statistics()
    }
}

impl SharedEndpoint {
    pub(crate) fn on(stack: &Stack, port: u16) -> Result<SharedEndpoint, BindError> {
        let config = stack.listener_config(&stack.options.listener);
        let (socket, port) = stack.open_bound(port, providers::SctpDriver::ONE_TO_MANY, config)?;
        Ok(SharedEndpoint { socket, stack: stack.clone(), port })
    }

    /// Sends a connect request to the provider, which answers at once whether it starts the handshake.
    pub(crate) fn start(&self, server: &Address) -> Result<AssociationId, ConnectError> {
        request_connect(&self.stack, &self.socket, server)
    }

    pub(crate) fn write(
        &self,
        to: AssociationId,
        message: &[u8],
        info: &SendInfo,
        wait: Wait,
    ) -> Result<(), SendError> {
        self.socket.write(Which::Id(to), info, message, wait)
    }

    /// Requests that an association end in order, if the stream takes the request now; `None` if not.
    pub(crate) fn try_shutdown(
        &self,
        inner: &mut Inner,
        id: AssociationId,
        request: &mut Option<Block>,
    ) -> Option<Result<(), SendError>> {
        use AssociationState::{Closed, ShutdownPending, ShutdownSent};
        let stream = self.socket.stream;
        let state =
            inner.executive.provider(|driver| driver.view(stream, Which::Id(id)).map(|view| view.state()));
        match state.flatten() {
            None | Some(Closed | ShutdownPending | ShutdownSent) => Some(Err(SendError::Closed)),
            Some(_) => {
                self.socket.try_request(inner, request).map(|asked| asked.map_err(|_| SendError::Closed))
            }
        }
    }

    pub(crate) fn recv_with(&self, wait: Wait) -> Result<(AssociationId, Received), RecvError> {
        loop {
            if let Some(received) = received(self.socket.getmsg(wait)?)? {
                return Ok(received);
            }
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads an association; returns `None` before it is up and once it has ended.
    fn view_if_up<R>(&self, id: AssociationId, read: impl FnOnce(AssociationView<'_>) -> R) -> Option<R> {
        use AssociationState::{Closed, CookieEchoed, CookieWait};
        let read = |view: AssociationView<'_>| {
            (!matches!(view.state(), Closed | CookieWait | CookieEchoed)).then(|| read(view))
        };
        self.association(id).view(read).flatten()
    }

    fn association(&self, id: AssociationId) -> AssociationRef<'_> {
        AssociationRef { socket: &self.socket, association: Which::Id(id) }
    }
}

/// Returns what the endpoint delivers for the result of a read; `None` if the program does not see it.
pub(crate) fn received(
    found: Found<streams::Message>,
) -> Result<Option<(AssociationId, Received)>, RecvError> {
    match found {
        Found::Data(message) => {
            // The provider names the association of each message.
            let id = match &message.kind {
                Kind::Proto(Control::Tpi(Primitive::OptdataInd { association, .. })) => association.id(),
                _ => None,
            };
            Ok(id.map(|id| (id, Received::Message(from_block(message)))))
        }
        Found::Primitive(primitive, text) => {
            let event = Event::of(&primitive, &text);
            Ok(event.and_then(|(association, event)| Some((association.id()?, Received::Event(event)))))
        }
        Found::End => Err(RecvError::Lost(Loss::fault("the endpoint was closed"))),
    }
}
