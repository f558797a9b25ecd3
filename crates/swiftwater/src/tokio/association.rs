//! Associations for tasks.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use sctp::{RecvInfo, SendInfo};
use streams::{Interest, Message as Block};
use tpi::Primitive;

use super::resolve;
use super::until::until;
use crate::address::{Address, ToAddress};
use crate::association::{self, SharedAssociation};
use crate::error::{CloseReason, ConnectError, RecvError, SendError};
use crate::event::{Event, Received};
use crate::message::{Message, from_block};
use crate::options::StackOptions;
use crate::socket::{Found, GivenUp, unless_restarted};
use crate::stack::Stack;

/// An association with one peer; [`swiftwater::Association`](crate::Association) for tasks. Clones share it.
///
/// This type has the calls that wait. It dereferences to [`SharedAssociation`], which has all others: `try_send` and
/// `try_recv`, addresses, options, statistics, modules.
///
/// When the last clone is dropped, everything sent so far is still delivered and the association is shut down
/// in the background for as long as the process lives; [`Association::close`] waits for that.
#[derive(Clone, Debug)]
pub struct Association(pub(super) Arc<SharedAssociation>);

impl Deref for Association {
    type Target = SharedAssociation;

    fn deref(&self) -> &SharedAssociation {
        &self.0
    }
}

impl Association {
    /// Sets up an association with a server, with default [`StackOptions`] and sockets of its own. Dropping the
    /// future gives the association up.
    ///
    /// # Errors
    ///
    /// No server listens there, the host does not answer, or there is no route to it: the error says what to check.
    pub async fn connect(server: impl ToAddress) -> Result<Association, ConnectError> {
        Association::connect_with(server, &StackOptions::default()).await
    }

    /// Sets up an association with a server, with these options and sockets of its own.
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

    /// Sets up an association with a server over the sockets of a stack.
    ///
    /// # Errors
    ///
    /// As [`Association::connect`].
    pub async fn connect_on(stack: &Stack, server: impl ToAddress) -> Result<Association, ConnectError> {
        let server = resolve(server).await?;
        Association::set_up(stack, &server).await
    }

    /// Sets up an association from this local SCTP port, over the sockets of a stack.
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
        Association::finish(SharedAssociation::start_from(stack, port, &server)?).await
    }

    async fn set_up(stack: &Stack, server: &Address) -> Result<Association, ConnectError> {
        Association::finish(SharedAssociation::start(stack, server)?).await
    }

    async fn finish(shared: Arc<SharedAssociation>) -> Result<Association, ConnectError> {
        let socket = shared.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await;
            if shared.take_connect_answer(found.map_err(RecvError::from).and_then(|found| found))? {
                return Ok(Association(shared));
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
        let socket = self.0.socket();
        until(socket, Interest::WRITABLE, |inner| socket.try_write(inner, 0, info, message)).await?
    }

    /// Sends messages in their order as `info` says; waits while the send buffer is full. Where it is dropped before its end, the
    /// first of them were sent.
    ///
    /// # Errors
    ///
    /// As [`Association::send_with`]. Where one of the messages is empty or too long, none was sent.
    pub async fn send_many(&self, mut messages: &[&[u8]], info: &SendInfo) -> Result<(), SendError> {
        self.0.check_all(messages, info)?;
        let socket = self.0.socket();
        while !messages.is_empty() {
            until(socket, Interest::WRITABLE, |inner| socket.try_write_many(inner, 0, info, &mut messages))
                .await??;
        }
        Ok(())
    }

    /// Sends one message without a copy of its bytes; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// As [`Association::send_with`].
    pub async fn send_bytes(&self, message: Bytes, info: &SendInfo) -> Result<(), SendError> {
        self.0.check(message.len(), info)?;
        let socket = self.0.socket();
        until(socket, Interest::WRITABLE, |inner| socket.try_write_bytes(inner, 0, info, &message)).await?
    }

    /// Receives the next message; waits for it. Returns `None` when the peer has shut down and everything was read.
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

    /// Receives what is there, `limit` messages at most but no fewer than one, and appends them to `messages`; waits for the
    /// first. Returns how many there were: 0 when the peer has shut down and everything was read. Where it is dropped before its
    /// end, nothing is lost: what it has taken is in `messages`.
    ///
    /// # Errors
    ///
    /// As [`Association::recv`]. Messages that came before the error were appended.
    pub async fn recv_many(&self, messages: &mut Vec<Message>, limit: usize) -> Result<usize, RecvError> {
        let (socket, before) = (self.0.socket(), messages.len());
        loop {
            let found = until(socket, Interest::READABLE, |inner| {
                socket.try_getmsg_many(inner, limit.max(1), messages)
            })
            .await??;
            let received = messages.len() - before;
            if self.0.ends_many(found, received)? {
                return Ok(received);
            }
        }
    }

    /// Receives the next message or event, in the order in which they came; waits for it. Without
    /// [`AssociationOptions::events`](crate::AssociationOptions::events) there are only messages.
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

    /// Copies the next message into `buffer`; waits for it. What does not fit comes with the next call
    /// (`more` is true). Returns `None` when the peer has shut down and everything was read.
    ///
    /// # Errors
    ///
    /// As [`Association::recv`].
    pub async fn recv_into(&self, buffer: &mut [u8]) -> Result<Option<(usize, RecvInfo)>, RecvError> {
        let socket = self.0.socket();
        loop {
            match until(socket, Interest::READABLE, |inner| socket.try_read(inner, buffer)).await?? {
                Found::Data(info) => return Ok(Some(info)),
                Found::Primitive(primitive, text) => unless_restarted(&primitive, &text)?,
                Found::End => return self.0.ended().map(|()| None),
            }
        }
    }

    /// Waits until something can be received: a message, an event or the end. A `try_recv` that follows finds it, unless another
    /// clone was faster.
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn readable(&self) -> Result<(), RecvError> {
        Ok(self.ready(Interest::READABLE).await?)
    }

    /// Waits until the send buffer has room, or until a send would fail because the association has ended.
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn writable(&self) -> Result<(), SendError> {
        Ok(self.ready(Interest::WRITABLE).await?)
    }

    /// Waits until the association has ended, or its sockets have failed, and returns why. It does not wait for what can still be
    /// received.
    ///
    /// ```
    /// use swiftwater::CloseReason;
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(listener.local_address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// tokio::spawn(client.close());
    /// assert_eq!(server.closed().await, CloseReason::Shutdown);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn closed(&self) -> CloseReason {
        let socket = self.0.socket();
        // A hang-up is the only thing of priority that a stream at rest shows.
        match until(socket, Interest::PRIORITY, |inner| socket.close_reason(inner)).await {
            Ok(reason) => reason,
            Err(why) => CloseReason::Lost(why.into_loss()),
        }
    }

    async fn ready(&self, interest: Interest) -> Result<(), GivenUp> {
        let socket = self.0.socket();
        until(socket, interest, |inner| inner.is_ready(socket.stream, interest).then_some(())).await
    }

    /// Ends sending (RFC 9260 §9.2): what was sent is delivered, and receiving goes on.
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

    /// Shuts down and waits until the peer has everything and has shut down, too. Messages that still arrive are discarded.
    ///
    /// # Errors
    ///
    /// The association was aborted or lost before that.
    pub async fn close(self) -> Result<(), RecvError> {
        // An association that has ended still has its reason to tell.
        let _ = self.shutdown().await;
        let socket = self.0.socket();
        until(socket, Interest::READABLE, |inner| socket.try_drain(inner)).await?
    }
}

impl From<association::Association> for Association {
    fn from(blocking: association::Association) -> Self {
        Association(blocking.shared)
    }
}

impl From<Association> for association::Association {
    fn from(asynchronous: Association) -> Self {
        association::Association { shared: asynchronous.0 }
    }
}
