//! Associations for tasks.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use streams::{Interest, Kind, Message as Block, Module};
use tpi::Primitive;

use super::resolve;
use super::until::until;
use crate::address::{Address, ToAddress};
use crate::error::{ConnectError, OptionsError, RecvError, SendError};
use crate::event::{Event, Received};
use crate::message::{Message, RecvInfo, SendInfo, from_block};
use crate::options::{AssociationOptions, StackOptions};
use crate::socket::{Found, unless_restarted};
use crate::stack::Stack;
use crate::{PathId, PathOptions, PrimaryError, Statistics, association};

/// An association with one peer; [`swiftwater::Association`](crate::Association) for tasks. Clones share it.
///
/// When the last clone is dropped, everything sent so far is still delivered and the association is shut down
/// in the background for as long as the process lives; [`Association::close`] waits for that.
#[derive(Clone, Debug)]
pub struct Association(association::Association);

impl Association {
    /// Sets up an association with a server, with default [`StackOptions`] and sockets of its own. Given up, it is
    /// not set up.
    ///
    /// # Errors
    ///
    /// Nobody listens there, nobody answers, or there is no way to it: the error says what to check.
    pub async fn connect(server: impl ToAddress) -> Result<Association, ConnectError> {
        Association::connect_with(server, &StackOptions::default()).await
    }

    /// The same with `options`.
    ///
    /// # Errors
    ///
    /// As [`Association::connect`].
    pub async fn connect_with(
        server: impl ToAddress,
        options: &StackOptions,
    ) -> Result<Association, ConnectError> {
        let server = resolve(server).await?;
        Association::set_up(&Stack::bind_client(options)?, &server).await
    }

    /// The same with the sockets of a stack.
    ///
    /// # Errors
    ///
    /// As [`Association::connect`].
    pub async fn connect_on(stack: &Stack, server: impl ToAddress) -> Result<Association, ConnectError> {
        let server = resolve(server).await?;
        Association::set_up(stack, &server).await
    }

    /// The same from this local SCTP port.
    ///
    /// # Errors
    ///
    /// As [`Association::connect`]; and the port already has an association with that peer.
    pub async fn connect_from(
        stack: &Stack,
        port: u16,
        server: impl ToAddress,
    ) -> Result<Association, ConnectError> {
        let server = resolve(server).await?;
        Association::finish(association::Association::start_from(stack, port, &server)?).await
    }

    async fn set_up(stack: &Stack, server: &Address) -> Result<Association, ConnectError> {
        Association::finish(association::Association::start(stack, server)?).await
    }

    async fn finish(association: association::Association) -> Result<Association, ConnectError> {
        let socket = association.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await;
            if association.take_connect_answer(found.map_err(RecvError::from).and_then(|found| found))? {
                return Ok(Association(association));
            }
        }
    }

    /// Sends one message on stream 0; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// The association is closed, or the message is empty or too long.
    pub async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message, &SendInfo::default()).await
    }

    /// Sends one message as `info` says; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// As [`Association::send`]; and there is no such stream.
    pub async fn send_with(&self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.0.check(message.len(), info)?;
        let (socket, info) = (self.0.socket(), info.transfer(0));
        until(socket, Interest::WRITABLE, |inner| socket.try_write(inner, &info, message)).await?
    }

    /// Sends one message that is handed over: it is not copied.
    ///
    /// # Errors
    ///
    /// As [`Association::send_with`].
    pub async fn send_bytes(&self, message: Bytes, info: &SendInfo) -> Result<(), SendError> {
        self.0.check(message.len(), info)?;
        let (socket, info) = (self.0.socket(), info.transfer(0));
        until(socket, Interest::WRITABLE, |inner| socket.try_write_bytes(inner, &info, &message)).await?
    }

    /// Sends one message if there is room for it; [`SendError::WouldBlock`] otherwise.
    ///
    /// # Errors
    ///
    /// As [`Association::send_with`].
    pub fn try_send(&self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.0.try_send(message, info)
    }

    /// The next message; waits for it. `None`: the peer has shut down and everything was read.
    ///
    /// # Errors
    ///
    /// The association was aborted or lost.
    pub async fn recv(&self) -> Result<Option<Message>, RecvError> {
        let socket = self.0.socket();
        loop {
            match until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await?? {
                Found::Data(message) => return Ok(Some(from_block(message))),
                Found::Primitive(primitive, text) => unless_restarted(&primitive, &text)?,
                Found::End => return self.0.ended().map(|()| None),
            }
        }
    }

    /// The next message if one is there; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Association::recv`].
    pub fn try_recv(&self) -> Result<Option<Message>, RecvError> {
        self.0.try_recv()
    }

    /// The next message or event, in the order in which they came; waits for it. Given up, nothing is lost. Without
    /// [`AssociationOptions::events`] there are only messages.
    ///
    /// # Errors
    ///
    /// As [`Association::next`](crate::Association::next).
    pub async fn next(&self) -> Result<Option<Received>, RecvError> {
        if !self.0.has_events() {
            return Ok(self.recv().await?.map(Received::Message));
        }
        if self.0.is_up_untold() {
            return Ok(Some(Received::Event(Event::Up)));
        }
        let socket = self.0.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_next(inner)).await??;
            if let Some(received) = self.0.received(found)? {
                return Ok(received);
            }
        }
    }

    /// Keeps the room of messages of so many bytes and more in the receive window, as
    /// [`Association::hold_window_from`](crate::Association::hold_window_from).
    pub fn hold_window_from(&self, bytes: usize) {
        self.0.hold_window_from(bytes);
    }

    /// Gives room in the receive window back.
    pub fn release_window(&self, bytes: usize) {
        self.0.release_window(bytes);
    }

    /// The next message or event if one is there; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Association::next`].
    pub fn try_next(&self) -> Result<Option<Received>, RecvError> {
        self.0.try_next()
    }

    /// The same for who has just got one, as
    /// [`Association::next_at_hand`](crate::Association::next_at_hand).
    ///
    /// # Errors
    ///
    /// As [`Association::next`].
    pub fn next_at_hand(&self) -> Result<Option<Received>, RecvError> {
        self.0.next_at_hand()
    }

    /// Copies the next message into `buffer`; waits for it. What does not fit comes with the next call
    /// (`end_of_record` is false). `None`: the peer has shut down and everything was read.
    ///
    /// # Errors
    ///
    /// As [`Association::recv`].
    pub async fn recv_into(&self, buffer: &mut [u8]) -> Result<Option<RecvInfo>, RecvError> {
        let socket = self.0.socket();
        loop {
            match until(socket, Interest::READABLE, |inner| socket.try_read(inner, buffer)).await?? {
                Found::Data(info) => return Ok(Some(info)),
                Found::Primitive(primitive, text) => unless_restarted(&primitive, &text)?,
                Found::End => return self.0.ended().map(|()| None),
            }
        }
    }

    /// Transmits what is queued, now.
    pub fn flush(&self) {
        self.0.flush();
    }

    /// Sends no more; what was sent is delivered, and reading goes on.
    ///
    /// # Errors
    ///
    /// The association is closed already.
    pub async fn shutdown(&self) -> Result<(), SendError> {
        let socket = self.0.socket();
        let mut request = Some(Block::proto(Primitive::OrdrelReq { association: 0 }));
        until(socket, Interest::WRITABLE, |inner| socket.try_request(inner, &mut request))
            .await?
            .map_err(|_| SendError::Closed)
    }

    /// Shuts down and waits until the peer has everything and has shut down, too. What it still sends is
    /// thrown away.
    ///
    /// # Errors
    ///
    /// The association was aborted or lost before that.
    pub async fn close(self) -> Result<(), RecvError> {
        // One that is gone already still has its reason to tell.
        let _ = self.shutdown().await;
        let socket = self.0.socket();
        until(socket, Interest::READABLE, |inner| socket.try_drain(inner)).await?
    }

    /// Ends the association at once; what is not delivered yet is lost. The peer is told `reason`.
    pub fn abort(self, reason: &str) {
        self.0.abort(reason);
    }

    /// Counters; all zero once the association is gone.
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// New data goes to this address of the peer from now on, while it answers.
    ///
    /// # Errors
    ///
    /// As [`Association::set_primary`](crate::Association::set_primary).
    pub fn set_primary(&self, address: IpAddr) -> Result<(), PrimaryError> {
        self.0.set_primary(address)
    }

    /// The options that the association has now; `None` once it is gone.
    pub fn options(&self) -> Option<AssociationOptions> {
        self.0.options()
    }

    /// Changes the options of this association, as
    /// [`Association::set_options`](crate::Association::set_options).
    ///
    /// # Errors
    ///
    /// One of the *fixed* options differs from what the association has, or the association is gone.
    pub fn set_options(&self, options: &AssociationOptions) -> Result<(), OptionsError> {
        self.0.set_options(options)
    }

    /// Changes the settings of the path to one address of the peer, or without an address of all paths.
    ///
    /// # Errors
    ///
    /// As [`Association::set_path`](crate::Association::set_path).
    pub fn set_path(&self, address: Option<IpAddr>, options: &PathOptions) -> Result<(), PrimaryError> {
        self.0.set_path(address, options)
    }

    /// The peer, as long as the association is up.
    pub fn peer_address(&self) -> Option<Address> {
        self.0.peer_address()
    }

    /// The peer's addresses, all that are known of it; none once the association is gone.
    pub fn peer_addresses(&self) -> Vec<IpAddr> {
        self.0.peer_addresses()
    }

    /// The path to one of the peer's addresses, for [`SendInfo::path`](crate::SendInfo::path).
    pub fn path_to(&self, address: IpAddr) -> Option<PathId> {
        self.0.path_to(address)
    }

    /// Our addresses that this association uses.
    pub fn local_addresses(&self) -> Vec<IpAddr> {
        self.0.local_addresses()
    }

    /// Of one that a listener has accepted: the address and SCTP port that it came from, also when it is gone already.
    pub fn came_from(&self) -> Option<SocketAddr> {
        self.0.came_from()
    }

    /// Number of outbound streams.
    pub fn streams_out(&self) -> u16 {
        self.0.streams_out()
    }

    /// Pushes a module onto the stream of this association: it sees every message in both directions.
    ///
    /// # Errors
    ///
    /// The module refuses, or the association is gone.
    pub fn push(&self, module: Box<dyn Module>) -> Result<(), streams::PushError> {
        self.0.push(module)
    }

    /// Takes the module off that was pushed last.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn pop(&self) -> Result<(), streams::PopError> {
        self.0.pop()
    }
}

impl From<association::Association> for Association {
    fn from(blocking: association::Association) -> Self {
        Association(blocking)
    }
}

impl From<Association> for association::Association {
    fn from(asynchronous: Association) -> Self {
        asynchronous.0
    }
}
