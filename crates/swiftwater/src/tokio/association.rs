//! Associations for tasks.

use std::sync::Arc;

use bytes::Bytes;
use sctp::{RecvInfo, SendInfo};
use streams::{Interest, Message as Block, Which};
use tpi::Primitive;

use super::until::{ready, until};
use super::{Stack, resolve};
use crate::address::{Address, AddressError, ToAddresses};
use crate::association::{self, SharedAssociation};
use crate::error::{CloseReason, ConnectError, RecvError, SendError};
use crate::event::{Event, Received};
use crate::message::{Message, from_block};
use crate::options::StackOptions;
use crate::sender::FedMessages;
use crate::socket::{Found, check_restart};
use crate::stack;

/// An association with one peer; [`swiftwater::Association`](crate::Association) for tasks. Clones share it.
///
/// Dropping the last clone shuts the association down in the background, after everything sent so far is delivered, for
/// as long as the process lives; [`Association::close`] waits for that.
#[derive(Clone, Debug)]
pub struct Association {
    pub(crate) shared: Arc<SharedAssociation>,
}

impl Association {
    /// Sets up an association with a server, with default [`StackOptions`] and sockets of its own. Dropping the future
    /// abandons the attempt.
    ///
    /// # Errors
    ///
    /// No server listens at the address or can have it (port 0), the host does not answer, or there is no route to the host: the
    /// error says what to check.
    pub async fn connect(server: impl ToAddresses) -> Result<Association, ConnectError> {
        Association::connect_with(server, &StackOptions::default()).await
    }

    /// Sets up an association with a server, with these options and sockets of its own.
    ///
    /// # Errors
    ///
    /// Fails as [`Association::connect`] does.
    pub async fn connect_with(
        server: impl ToAddresses,
        options: &StackOptions,
    ) -> Result<Association, ConnectError> {
        let servers = resolve(server).await?;
        let stack = Stack::from(stack::Stack::bind_client(options)?);
        stack.set_up(0, &servers).await
    }

    /// Waits until an association is up, or until its handshake has failed.
    async fn finish(shared: Arc<SharedAssociation>) -> Result<Association, ConnectError> {
        let socket = shared.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await;
            if shared.on_connect_reply(found.map_err(RecvError::from).and_then(|found| found))? {
                return Ok(Association { shared });
            }
        }
    }

    /// Sends one message on stream 0; waits while the send buffer is full.
    ///
    /// ```
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(listener.address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.send(b"one message").await?;
    /// assert_eq!(server.recv().await?.expect("a message").to_vec(), b"one message");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association is closed, or the message is empty or too long.
    pub async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message, &SendInfo::default()).await
    }

    /// Sends one message with the properties in `info`; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// Fails as [`Association::send`] does, or because the stream does not exist.
    pub async fn send_with(&self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        let socket = self.shared.socket();
        until(socket, Interest::WRITABLE, |inner| socket.try_write(inner, Which::Only, info, message)).await?
    }

    /// Sends messages in order with the properties in `info`; waits while the send buffer is full. If the future is
    /// dropped early, some of the first messages were sent.
    ///
    /// # Errors
    ///
    /// Fails as [`Association::send_with`] does. If one of the messages is empty or too long, none is sent.
    pub async fn send_many(&self, messages: &[&[u8]], info: &SendInfo) -> Result<(), SendError> {
        self.shared.check_all(messages, info)?;
        let mut fed = FedMessages::default();
        for message in messages {
            self.feed(&mut fed, message, info).await?;
        }
        self.hand_over(&mut fed).await
    }

    /// Sends one message without a copy of its bytes; waits while the send buffer is full. Messages of less than 2 KiB are
    /// copied if a packet has room for three of them, and so are short parts of a record ([`SendInfo::more`]), which join as
    /// those of [`Association::send_with`] do. Others keep the memory that they are slices of until the peer has acknowledged
    /// them; received bytes should come from [`Message::into_bytes`].
    ///
    /// # Errors
    ///
    /// Fails as [`Association::send_with`] does.
    pub async fn send_bytes(&self, message: Bytes, info: &SendInfo) -> Result<(), SendError> {
        let socket = self.shared.socket();
        until(socket, Interest::WRITABLE, |inner| socket.try_write_bytes(inner, Which::Only, info, &message))
            .await?
    }

    /// Receives the next message; waits for it. Returns `None` when the peer has shut down and everything was read.
    ///
    /// Long messages come in parts ([`RecvInfo::more`](crate::RecvInfo::more)), as with
    /// [`swiftwater::Association::recv`](crate::Association::recv).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(listener.address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// let waited = tokio::time::timeout(Duration::from_millis(1), server.recv()).await;
    /// assert!(waited.is_err(), "nothing was sent, and nothing is lost");
    /// client.send(b"hello").await?;
    /// assert_eq!(server.recv().await?.expect("a message").to_vec(), b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association was aborted or lost.
    pub async fn recv(&self) -> Result<Option<Message>, RecvError> {
        let socket = self.shared.socket();
        loop {
            match until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await?? {
                Found::Data(message) => return Ok(Some(from_block(message))),
                Found::Primitive(primitive, text) => check_restart(&primitive, &text)?,
                Found::End => return self.shared.ended().map(|()| None),
            }
        }
    }

    /// Receives the available messages, at least one and at most `limit`, and appends them to `messages`; waits for the
    /// first. Returns their number: 0 when the peer has shut down and everything was read. Dropping the future early
    /// loses no message: the messages taken are in `messages`. Long messages come in parts, as with [`Association::recv`].
    ///
    /// ```
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(listener.address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.send_many(&[&b"one"[..], b"two"], &Default::default()).await?;
    /// let mut messages = Vec::new();
    /// while messages.len() < 2 {
    ///     server.recv_many(&mut messages, 100).await?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::recv`] does. Messages that came before the error were appended.
    pub async fn recv_many(&self, messages: &mut Vec<Message>, limit: usize) -> Result<usize, RecvError> {
        let (socket, before) = (self.shared.socket(), messages.len());
        loop {
            let found = until(socket, Interest::READABLE, |inner| {
                socket.try_getmsg_many(inner, limit.max(1), messages)
            })
            .await??;
            let received = messages.len() - before;
            if self.shared.ends_many(found, received)? {
                return Ok(received);
            }
        }
    }

    /// Receives the next message or event, in order of arrival; waits for it. Without
    /// [`AssociationOptions::events`](crate::AssociationOptions::events) there are only messages. Long messages come in parts, as
    /// with [`Association::recv`].
    ///
    /// # Errors
    ///
    /// Fails as [`Association::recv_any`](crate::Association::recv_any) does.
    pub async fn recv_any(&self) -> Result<Option<Received>, RecvError> {
        if !self.shared.socket().published.has_events() {
            return Ok(self.recv().await?.map(Received::Message));
        }
        if self.shared.socket().published.take_up() {
            return Ok(Some(Received::Event(Event::Up)));
        }
        let socket = self.shared.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_next(inner)).await??;
            if let Some(received) = self.shared.received(found)? {
                return Ok(received);
            }
        }
    }

    /// Copies the next message into `buffer`; waits for it. The rest of a message that does not fit comes with the next
    /// call (`more` is true). Returns `None` when the peer has shut down and everything was read.
    ///
    /// # Errors
    ///
    /// Fails as [`Association::recv`] does.
    pub async fn recv_into(&self, buffer: &mut [u8]) -> Result<Option<(usize, RecvInfo)>, RecvError> {
        let socket = self.shared.socket();
        let mut info = RecvInfo::default();
        loop {
            let read = until(socket, Interest::READABLE, |inner| socket.try_read(inner, buffer, &mut info));
            match read.await?? {
                Found::Data(bytes) => return Ok(Some((bytes, info))),
                Found::Primitive(primitive, text) => check_restart(&primitive, &text)?,
                Found::End => return self.shared.ended().map(|()| None),
            }
        }
    }

    /// Waits until a message, an event or the end can be received. A subsequent `try_recv` finds it, unless another
    /// clone has taken it.
    ///
    /// ```
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(listener.address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.send(b"hello").await?;
    /// server.readable().await?;
    /// assert_eq!(server.try_recv()?.expect("a message").to_vec(), b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn readable(&self) -> Result<(), RecvError> {
        Ok(ready(self.shared.socket(), Interest::READABLE).await?)
    }

    /// Waits until the send buffer has room, or until a send would fail because the association has ended.
    ///
    /// ```
    /// # use swiftwater::SendInfo;
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(listener.address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// let block = vec![7; 1 << 20];
    /// while client.try_send(&block, &SendInfo::default()).is_ok() {}
    /// tokio::spawn(async move { while let Ok(Some(_)) = server.recv().await {} });
    /// client.writable().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn writable(&self) -> Result<(), SendError> {
        Ok(ready(self.shared.socket(), Interest::WRITABLE).await?)
    }

    /// Waits until the association has ended or its sockets have failed, and returns the reason. Does not wait for
    /// messages that can still be received.
    ///
    /// ```
    /// use swiftwater::CloseReason;
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(listener.address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// tokio::spawn(client.close());
    /// assert_eq!(server.closed().await, CloseReason::Shutdown);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn closed(&self) -> CloseReason {
        let socket = self.shared.socket();
        // On a stream without messages, only a hang-up is a priority event.
        match until(socket, Interest::PRIORITY, |inner| socket.close_reason(inner)).await {
            Ok(reason) => reason,
            Err(fault) => CloseReason::Lost(fault.into_loss()),
        }
    }

    /// Waits until a module that could not leave ([`PopError::Busy`](crate::streams::PopError::Busy)) may be popped, or the
    /// stream has ended.
    pub async fn poppable(&self) {
        // A stream that has failed or ended keeps no module.
        let _ = ready(self.shared.socket(), Interest::POPPABLE).await;
    }

    /// Waits until the peer has shut the association down, or the association has ended.
    #[cfg(feature = "internals")]
    pub(crate) async fn peer_shutdown(&self) {
        // Sockets that have failed receive no shutdown any more.
        let _ = ready(self.shared.socket(), Interest::READ_HANGUP).await;
    }

    /// Ends sending (RFC 9260 §9.2): everything sent is still delivered.
    ///
    /// SCTP has no half-closed state: once the peer has received the SHUTDOWN, it can send no more. Messages that it had sent
    /// before can still be received.
    ///
    /// # Errors
    ///
    /// The association is already closed.
    pub async fn shutdown(&self) -> Result<(), SendError> {
        let socket = self.shared.socket();
        let mut request = Some(Block::proto(Primitive::OrdrelReq { association: Which::Only }));
        until(socket, Interest::WRITABLE, |inner| socket.try_request(inner, &mut request))
            .await?
            .map_err(|_| SendError::Closed)
    }

    /// Shuts down, and waits until the peer has received everything and has shut down, too. Discards messages that
    /// still arrive.
    ///
    /// ```
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(listener.address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.send(b"last").await?;
    /// let reading = tokio::spawn(async move { server.recv().await });
    /// client.close().await?;
    /// assert_eq!(reading.await??.expect("it was delivered").to_vec(), b"last");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association was aborted or lost before the shutdown was complete.
    pub async fn close(self) -> Result<(), RecvError> {
        // An association that has ended already still reports its reason below.
        let _ = self.shutdown().await;
        let socket = self.shared.socket();
        until(socket, Interest::READABLE, |inner| socket.try_drain(inner)).await?
    }
}

impl Stack {
    /// Sets up an association with a server, as [`Association::connect`] does; waits until it is up. Dropping the future abandons
    /// the attempt.
    ///
    /// ```
    /// # use swiftwater::StackOptions;
    /// # use swiftwater::tokio::Stack;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// # let listener = stack.listen(7)?;
    /// let first = stack.connect(listener.address()).await?;
    /// let second = stack.connect(listener.address()).await?;
    /// assert_eq!(first.peer_addr(), second.peer_addr(), "both share one UDP port");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::connect`] does.
    pub async fn connect(&self, server: impl ToAddresses) -> Result<Association, ConnectError> {
        self.connect_from(0, server).await
    }

    /// Sets up an association from this local SCTP port; waits until it is up.
    ///
    /// # Errors
    ///
    /// Fails as [`Stack::connect`] does, or because the port already has an association with that peer.
    pub async fn connect_from(
        &self,
        port: u16,
        server: impl ToAddresses,
    ) -> Result<Association, ConnectError> {
        self.set_up(port, &resolve(server).await?).await
    }

    /// Tries the alternatives one after the other; returns the last error if none succeeds.
    async fn set_up(&self, port: u16, servers: &[Address]) -> Result<Association, ConnectError> {
        let mut outcome = Err(AddressError::NoHost.into());
        for server in servers {
            outcome = match SharedAssociation::start_from(&self.shared, port, server) {
                Ok(shared) => Association::finish(shared).await,
                Err(error) => Err(error),
            };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

impl From<association::Association> for Association {
    fn from(blocking: association::Association) -> Self {
        Association { shared: blocking.shared }
    }
}

impl From<Association> for association::Association {
    fn from(asynchronous: Association) -> Self {
        association::Association { shared: asynchronous.shared }
    }
}
