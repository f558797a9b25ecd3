//! The state that the clones of an association share.

pub(super) mod setup;

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use bytes::Bytes;
use sctp::{AssociationView, PathError, PathId, PathOptions, SendInfo, Statistics};
use streams::{Chain, Interest, Message as Block, Which, WriteError};
use tpi::Primitive;

use crate::address::Address;
use crate::association_ref::AssociationRef;
use crate::error::{CloseReason, OptionsError, RecvError, SendError};
use crate::event::{Event, Received};
use crate::message::{Message, from_block};
use crate::options::AssociationOptions;
use crate::socket::{End, Found, Socket, Wait, check_restart};
use crate::stream::Stream;

/// The state that all clones of an association share.
#[derive(Debug)]
pub(crate) struct SharedAssociation {
    pub(crate) socket: Socket,
    /// The address that the connect request named, or that the association was accepted from.
    asked: SocketAddr,
    /// The address that answered the connect request.
    peer: OnceLock<SocketAddr>,
}

impl SharedAssociation {
    /// Sends one message if the send buffer has room for it, without waiting.
    pub(crate) fn try_send(&self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.socket.write(Which::Only, info, message, Wait::None)
    }

    /// Receives the next message without waiting, if one is available.
    pub(crate) fn try_recv(&self) -> Result<Option<Message>, RecvError> {
        self.recv_message(Wait::None)
    }

    /// Receives the next message or event without waiting, if one is available.
    pub(crate) fn try_recv_any(&self) -> Result<Option<Received>, RecvError> {
        self.recv_any_with(Wait::None)
    }

    /// Transmits messages at once that wait for others to share their packet.
    pub(crate) fn flush(&self) {
        self.socket.shard.enter().flush(true);
    }

    /// Aborts the association (RFC 9260 §9.1): undelivered messages are lost.
    pub(crate) fn abort(&self, reason: impl AsRef<[u8]>) {
        self.association_ref().abort(reason.as_ref());
    }

    /// Returns why the association has ended; `None` if it has not.
    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        let (socket, stream) = (&self.socket, self.socket.stream);
        socket.shard.enter().guarded(Some(stream), |inner| socket.close_reason(inner)).flatten()
    }

    /// Returns the peer's address of the primary path when the association came up, with the peer's SCTP port.
    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.peer.get().copied().unwrap_or(self.asked)
    }

    /// Returns the local address of the primary path, with our SCTP port.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.association_ref().local_addr()
    }

    /// Returns all addresses of the peer with its SCTP port and its UDP port, as a connect to it would name them.
    pub(crate) fn peer(&self) -> Option<Address> {
        self.association_ref().peer()
    }

    /// Returns the peer's addresses (`sctp_getpaddrs`); none once the association has ended.
    pub(crate) fn peer_ips(&self) -> Vec<IpAddr> {
        self.peer().map(|address| address.hosts).unwrap_or_default()
    }

    /// Returns the local addresses of the association (`sctp_getladdrs`).
    pub(crate) fn local_ips(&self) -> Vec<IpAddr> {
        self.association_ref().local_ips()
    }

    /// Returns the path to one of the peer's addresses, for [`SendInfo::path`].
    pub(crate) fn path_to(&self, address: IpAddr) -> Option<PathId> {
        self.association_ref().path_to(address)
    }

    /// Returns the number of outbound streams that the handshake negotiated.
    pub(crate) fn streams_out(&self) -> u16 {
        self.socket.published.streams_out()
    }

    /// Returns the number of inbound streams that the handshake negotiated.
    pub(crate) fn streams_in(&self) -> u16 {
        self.socket.published.streams_in()
    }

    /// Reads the association; returns `None` once it has ended.
    pub(crate) fn view<R>(&self, read: impl FnOnce(AssociationView<'_>) -> R) -> Option<R> {
        self.association_ref().view(read)
    }

    /// Returns the current options of the association.
    pub(crate) fn options(&self) -> Option<AssociationOptions> {
        self.association_ref().options()
    }

    /// Replaces the options of this association at once, either all or none of them.
    pub(crate) fn set_options(&self, options: &AssociationOptions) -> Result<(), OptionsError> {
        self.association_ref().set_options(options)
    }

    /// Changes single options of this association at once; the others stay, even if another thread changes them at the same time.
    pub(crate) fn update_options(
        &self,
        change: impl FnMut(&mut AssociationOptions),
    ) -> Result<(), OptionsError> {
        self.association_ref().update_options(change)
    }

    /// Changes the options of the path to one address of the peer, or of all paths if `address` is `None`.
    pub(crate) fn set_path(&self, address: Option<IpAddr>, options: &PathOptions) -> Result<(), PathError> {
        self.association_ref().set_path(address, options)
    }

    /// Makes the path to this address of the peer the primary path.
    pub(crate) fn set_primary(&self, address: IpAddr) -> Result<(), PathError> {
        self.association_ref().set_primary(address)
    }

    /// Returns the counters of the association and of its paths (RFC 6458 §8.2, RFC 3873).
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        self.association_ref().statistics()
    }

    /// Returns the stream of the association, which gives access to its modules and its STREAMS messages.
    pub(crate) fn stream(&self) -> Stream<'_> {
        Stream::of(&self.socket)
    }
}

impl SharedAssociation {
    /// Checks a message that is collected with others before the core admits them together: it must not be the reason why the
    /// others are refused.
    #[inline]
    pub(crate) fn check_collected(&self, bytes: usize, info: &SendInfo) -> Result<(), SendError> {
        let limits = self.socket.published.message_limits();
        if limits.streams == 0 {
            // The association had ended before it was accepted.
            return Err(SendError::Closed);
        }
        limits.check(info, bytes).map_err(SendError::from)
    }

    /// Checks messages that are collected, as [`SharedAssociation::check_collected`] does.
    pub(crate) fn check_all(&self, messages: &[&[u8]], info: &SendInfo) -> Result<(), SendError> {
        messages.iter().try_for_each(|message| self.check_collected(message.len(), info))
    }

    /// Returns whether `recv_many` has finished, after `received` messages and `found` behind them.
    pub(crate) fn ends_many(&self, found: Option<Found<Block>>, received: usize) -> Result<bool, RecvError> {
        match found {
            Some(Found::Primitive(primitive, text)) => {
                check_restart(&primitive, &text)?;
                Ok(received > 0)
            }
            // After messages, the next call reports the end.
            Some(Found::End) if received == 0 => self.ended().map(|()| true),
            Some(Found::End | Found::Data(_)) | None => Ok(true),
        }
    }

    pub(crate) fn send_bytes_with(
        &self,
        message: &Bytes,
        info: &SendInfo,
        wait: Wait,
    ) -> Result<(), SendError> {
        self.socket.write_bytes(Which::Only, info, message, wait)
    }

    pub(crate) fn shutdown_with(&self, wait: Wait) -> Result<(), SendError> {
        let request = Primitive::OrdrelReq { association: Which::Only };
        match self.socket.request(request, Chain::new(), wait) {
            Err(WriteError::WouldBlock) => Err(SendError::WouldBlock),
            asked => asked.map_err(|_| SendError::Closed),
        }
    }

    pub(crate) fn recv_message(&self, wait: Wait) -> Result<Option<Message>, RecvError> {
        loop {
            match self.socket.getmsg(wait)? {
                Found::Data(message) => return Ok(Some(from_block(message))),
                Found::Primitive(primitive, text) => check_restart(&primitive, &text)?,
                Found::End => return self.ended().map(|()| None),
            }
        }
    }

    pub(crate) fn recv_any_with(&self, wait: Wait) -> Result<Option<Received>, RecvError> {
        if !self.socket.published.has_events() {
            return Ok(self.recv_message(wait)?.map(Received::Message));
        }
        if self.socket.published.take_up() {
            return Ok(Some(Received::Event(Event::Up)));
        }
        let socket = &self.socket;
        loop {
            let found = socket.until(Interest::READABLE, wait, |inner| socket.try_next(inner))??;
            if let Some(received) = self.received(found)? {
                return Ok(received);
            }
        }
    }

    /// Returns what `recv_any` delivers for the result of a read; `None` if the program does not see it.
    pub(crate) fn received(&self, found: Found<Block>) -> Result<Option<Option<Received>>, RecvError> {
        Ok(match found {
            Found::Data(message) => Some(Some(Received::Message(from_block(message)))),
            Found::Primitive(primitive, text) => {
                Event::of(&primitive, &text).map(|(_, event)| Some(Received::Event(event)))
            }
            Found::End => {
                self.ended()?;
                Some(None)
            }
        })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the result of every read after the end.
    pub(crate) fn ended(&self) -> Result<(), RecvError> {
        match self.socket.end() {
            End::Open | End::PeerShutdown | End::Closed => Ok(()),
            End::Lost(why) => Err(RecvError::Lost(why)),
        }
    }

    fn association_ref(&self) -> AssociationRef<'_> {
        AssociationRef { socket: &self.socket, association: Which::Only }
    }
}
