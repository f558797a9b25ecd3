//! Associations: one-to-one endpoints.

mod calls;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sctp::{RecvInfo, SendInfo};
use streams::{Interest, Which};

pub(crate) use self::shared::SharedAssociation;
pub(crate) use self::shared::setup::request_connect;
use crate::address::{Address, ToAddresses, first_success};
use crate::error::{ConnectError, RecvError, SendError};
use crate::event::Received;
use crate::message::Message;
use crate::options::StackOptions;
use crate::socket::{Found, Wait, check_restart};
use crate::stack::Stack;

/// An association with one peer (one-to-one style, RFC 6458 §4). Clones share the association; every method may be
/// called from any thread.
///
/// Dropping the last clone shuts the association down in the background, after everything sent so far is delivered, for
/// as long as the process lives; [`Association::close`] waits for that.
///
/// ```
/// use swiftwater::{Association, Listener, SendInfo};
///
/// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
/// let client = Association::connect(listener.address())?;
/// let (server, _) = listener.accept()?;
///
/// // Streams do not wait for each other; a message arrives with its properties.
/// client.send_with(b"picture", &SendInfo { stream: 1, ppid: 7, ..SendInfo::default() })?;
/// let message = server.recv()?.expect("a message");
/// assert_eq!((message.info.stream, message.info.ppid), (1, 7));
///
/// // Each direction has a thread.
/// let reader = server.clone();
/// let reading = std::thread::spawn(move || reader.recv().map(|end| end.is_none()));
/// client.shutdown()?;
/// assert!(reading.join().unwrap()?, "the client sends no more");
/// server.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Association {
    pub(crate) shared: Arc<SharedAssociation>,
}

impl Association {
    /// Sets up an association with a server, with default [`StackOptions`] and sockets of its own. Tries the addresses of a
    /// host's name one after the other, and returns the last error if none succeeds: see [`ToAddresses`]. As with a TCP socket of
    /// Linux, `0.0.0.0` and `[::]` stand for this host: `127.0.0.1` and `[::1]`.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:5004/udp:0")?;
    /// # let udp_port = listener.address().udp_port.expect("it is bound");
    /// let client = Association::connect(format!("127.0.0.1:5004/udp:{udp_port}"))?;
    /// assert_eq!(client.peer_addr(), "127.0.0.1:5004".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// No server listens at the address or can have it (port 0), the host does not answer, or there is no route to the host: the
    /// error says what to check.
    pub fn connect(server: impl ToAddresses) -> Result<Association, ConnectError> {
        Association::connect_with(server, &StackOptions::default())
    }

    /// Sets up an association with a server, with these options and sockets of its own.
    ///
    /// ```
    /// # use swiftwater::{Association, AssociationOptions, Listener, StackOptions};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// let association = AssociationOptions::default().with_nodelay(true);
    /// let options = StackOptions::default().with_association(association);
    /// let client = Association::connect_with(listener.address(), &options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::connect`] does.
    pub fn connect_with(
        server: impl ToAddresses,
        options: &StackOptions,
    ) -> Result<Association, ConnectError> {
        let servers = server.to_addresses()?;
        Stack::bind_client(options)?.connect(&servers[..])
    }

    /// Sets up an association with a server as [`Association::connect`] does; gives up after `timeout`. Takes an
    /// [`Address`], as [`TcpStream::connect_timeout`](std::net::TcpStream::connect_timeout) takes one, because resolving
    /// a name cannot be limited; [`ToAddresses`] resolves names beforehand, and an [`Address`] is made of a
    /// [`SocketAddr`](std::net::SocketAddr) by `try_from`, or of an [`IpAddr`](std::net::IpAddr) with a port by `from`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::{Association, ConnectError};
    /// // A socket that never answers.
    /// let silent = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let server = format!("127.0.0.1:7/udp:{}", silent.local_addr()?.port()).parse()?;
    /// let gave_up = Association::connect_timeout(&server, Duration::from_millis(20)).unwrap_err();
    /// assert!(matches!(gave_up, ConnectError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::connect`] does, or with [`ConnectError::TimedOut`], and then abandons the attempt.
    pub fn connect_timeout(server: &Address, timeout: Duration) -> Result<Association, ConnectError> {
        Stack::bind_client(&StackOptions::default())?.connect_timeout(server, timeout)
    }

    fn await_answer(shared: Arc<SharedAssociation>, wait: Wait) -> Result<Association, ConnectError> {
        loop {
            let found = shared.socket.getmsg(wait);
            if shared.on_connect_reply(found)? {
                return Ok(Association { shared });
            }
        }
    }

    /// Sends one message on stream 0; waits while the send buffer is full.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// client.send(b"one message")?;
    /// assert_eq!(server.recv()?.expect("a message").to_vec(), b"one message");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association is closed, or the message is empty or too long.
    #[inline]
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message, &SendInfo::default())
    }

    /// Sends one message with the properties in `info`; waits while the send buffer is full.
    ///
    /// With [`SendInfo::more`] the record continues with the next call: writes are joined as in a byte stream.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener, SendInfo};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// let more = SendInfo { more: true, ..SendInfo::default() };
    /// client.send_with(b"one ", &more)?;
    /// client.send_with(b"long ", &more)?;
    /// client.send(b"record")?;
    /// let mut record = Vec::new();
    /// while let Some(part) = server.recv()? {
    ///     record.extend_from_slice(&part.to_vec());
    ///     if !part.info.more {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(record, b"one long record");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::send`] does, or because the stream does not exist.
    #[inline]
    pub fn send_with(&self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.shared.socket.write(Which::Only, info, message, Wait::Forever)
    }

    /// Sends one message without a copy of its bytes; waits while the send buffer is full. Messages of less than 2 KiB are
    /// copied if a packet has room for three of them, and so are short parts of a record ([`SendInfo::more`]), which join as
    /// those of [`Association::send_with`] do. Others keep the memory that they are slices of until the peer has acknowledged
    /// them; received bytes should come from [`Message::into_bytes`].
    ///
    /// ```
    /// # use swiftwater::{Association, Listener, SendInfo};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// let block = swiftwater::Bytes::from(vec![7; 100_000]);
    /// client.send_bytes(block.slice(..50_000), &SendInfo::default())?;
    /// assert_eq!(server.recv()?.expect("a message").len(), 50_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::send_with`] does.
    pub fn send_bytes(&self, message: Bytes, info: &SendInfo) -> Result<(), SendError> {
        self.shared.send_bytes_with(&message, info, Wait::Forever)
    }

    /// Sends one message with the properties in `info`; waits while the send buffer is full, for `timeout` at most.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::{Association, Listener, SendError, SendInfo};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// let block = vec![7; 1 << 20];
    /// let full = loop {
    ///     if let Err(error) = client.send_timeout(&block, &SendInfo::default(), Duration::from_millis(1)) {
    ///         break error;
    ///     }
    /// };
    /// assert_eq!(full, SendError::TimedOut, "nobody reads");
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::send_with`] does, or with [`SendError::TimedOut`], and then sends nothing.
    pub fn send_timeout(&self, message: &[u8], info: &SendInfo, timeout: Duration) -> Result<(), SendError> {
        self.shared.socket.write(Which::Only, info, message, Wait::within(timeout))
    }

    /// Receives the next message; waits for it. Returns `None` when the peer has shut down and everything was read.
    ///
    /// A message longer than [`partial_delivery_bytes`](crate::AssociationOptions::partial_delivery_bytes), 512 KiB by default,
    /// comes in parts: [`info.more`](crate::RecvInfo::more) says that the next message continues it.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// client.send(b"last")?;
    /// client.shutdown()?;
    /// assert_eq!(server.recv()?.expect("a message").to_vec(), b"last");
    /// assert!(server.recv()?.is_none(), "the client has shut down");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association was aborted or lost.
    pub fn recv(&self) -> Result<Option<Message>, RecvError> {
        self.shared.recv_message(Wait::Forever)
    }

    /// Receives the next message, or the next part of a long one, as [`Association::recv`] does; waits for it for `timeout` at
    /// most.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::RecvError;
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// let nothing = server.recv_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(nothing, RecvError::TimedOut);
    /// # drop(client);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::recv`] does, or with [`RecvError::TimedOut`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>, RecvError> {
        self.shared.recv_message(Wait::within(timeout))
    }

    /// Receives the available messages, at least one and at most `limit`, and appends them to `messages`; waits for the
    /// first. Returns their number: 0 when the peer has shut down and everything was read.
    ///
    /// Long messages come in parts ([`RecvInfo::more`](crate::RecvInfo::more)), as with [`Association::recv`]. The call enters
    /// the stack once for many messages. A message keeps the block in memory in which it arrived with others: handle the messages
    /// soon, or copy them.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// client.send_many(&[&b"one"[..], b"two", b"three"], &Default::default())?;
    /// let mut messages = Vec::new();
    /// while messages.len() < 3 {
    ///     server.recv_many(&mut messages, 100)?;
    /// }
    /// assert_eq!(messages[2].to_vec(), b"three");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::recv`] does. Messages that came before the error were appended.
    pub fn recv_many(&self, messages: &mut Vec<Message>, limit: usize) -> Result<usize, RecvError> {
        let (socket, before) = (&self.shared.socket, messages.len());
        loop {
            let found = socket.until(Interest::READABLE, Wait::Forever, |inner| {
                socket.try_getmsg_many(inner, limit.max(1), messages)
            })??;
            let received = messages.len() - before;
            if self.shared.ends_many(found, received)? {
                return Ok(received);
            }
        }
    }

    /// Receives the next message or event, in order of arrival; waits for it. Without
    /// [`AssociationOptions::events`](crate::AssociationOptions::events) there are only messages.
    ///
    /// Returns `None` after [`Event::Down`](crate::Event::Down) if both sides have shut down. Reports a restart of the
    /// peer as an event. Long messages come in parts ([`RecvInfo::more`](crate::RecvInfo::more)), as with [`Association::recv`].
    ///
    /// ```
    /// use swiftwater::{Association, AssociationOptions, Event, Listener, Received};
    ///
    /// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// let options = AssociationOptions::default().with_events(true).into();
    /// let client = Association::connect_with(listener.address(), &options)?;
    /// let (server, _) = listener.accept()?;
    /// server.send(b"last")?;
    /// server.shutdown()?;
    /// assert!(matches!(client.recv_any()?, Some(Received::Event(Event::Up))));
    /// assert!(matches!(client.recv_any()?, Some(Received::Message(message)) if message.to_vec() == b"last"));
    /// assert!(matches!(client.recv_any()?, Some(Received::Event(Event::PeerShutdown))));
    /// assert!(matches!(client.recv_any()?, Some(Received::Event(Event::Down(None)))));
    /// assert!(client.recv_any()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association was aborted or lost; the error follows the events that report this.
    pub fn recv_any(&self) -> Result<Option<Received>, RecvError> {
        self.shared.recv_any_with(Wait::Forever)
    }

    /// Receives the next message or event; waits for it for `timeout` at most.
    ///
    /// # Errors
    ///
    /// Fails as [`Association::recv_any`] does, or with [`RecvError::TimedOut`].
    pub fn recv_any_timeout(&self, timeout: Duration) -> Result<Option<Received>, RecvError> {
        self.shared.recv_any_with(Wait::within(timeout))
    }

    /// Copies the next message into `buffer`; waits for it. The rest of a message that does not fit comes with the next
    /// call (`more` is true). Returns `None` when the peer has shut down and everything was read.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// client.send(b"hello, world")?;
    /// let mut buffer = [0; 8];
    /// let (bytes, first) = server.recv_into(&mut buffer)?.expect("the beginning");
    /// assert_eq!((&buffer[..bytes], first.more), (&b"hello, w"[..], true));
    /// let (bytes, rest) = server.recv_into(&mut buffer)?.expect("the rest");
    /// assert_eq!((&buffer[..bytes], rest.more), (&b"orld"[..], false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::recv`] does.
    #[inline]
    pub fn recv_into(&self, buffer: &mut [u8]) -> Result<Option<(usize, RecvInfo)>, RecvError> {
        let mut info = RecvInfo::default();
        loop {
            match self.shared.socket.read(buffer, &mut info, Wait::Forever)? {
                Found::Data(bytes) => return Ok(Some((bytes, info))),
                Found::Primitive(primitive, text) => check_restart(&primitive, &text)?,
                Found::End => return self.shared.ended().map(|()| None),
            }
        }
    }

    /// Ends sending (RFC 9260 §9.2): everything sent is still delivered.
    ///
    /// SCTP has no half-closed state: once the peer has received the SHUTDOWN, it can send no more. Messages that it had sent
    /// before can still be received.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// server.send(b"on its way")?;
    /// client.send(b"last")?;
    /// client.shutdown()?;
    /// assert!(client.send(b"more").is_err());
    /// assert_eq!(client.recv()?.expect("it was sent before").to_vec(), b"on its way");
    /// assert_eq!(server.recv()?.expect("it is delivered").to_vec(), b"last");
    /// assert!(server.recv()?.is_none(), "the client has shut down");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association is already closed.
    pub fn shutdown(&self) -> Result<(), SendError> {
        self.shared.shutdown_with(Wait::Forever)
    }

    /// Shuts down, and waits until the peer has received everything and has shut down, too. Discards messages that
    /// still arrive.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// client.send(b"last")?;
    /// let reading = std::thread::spawn(move || server.recv());
    /// client.close()?;
    /// assert_eq!(reading.join().unwrap()?.expect("it was delivered").to_vec(), b"last");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association was aborted or lost before the shutdown was complete.
    pub fn close(self) -> Result<(), RecvError> {
        self.close_with(Wait::Forever)
    }

    /// Shuts down as [`Association::close`] does; waits up to `timeout`. After a timeout the shutdown continues in
    /// the background, as after dropping the association; [`Association::abort`] on a clone ends it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::{Association, Listener, RecvError};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// // The peer does not read, so at last what is sent stays unacknowledged.
    /// let wait = Duration::from_millis(100);
    /// while client.send_timeout(&[7; 100_000], &Default::default(), wait).is_ok() {}
    /// let clone = client.clone();
    /// assert_eq!(client.close_timeout(Duration::from_millis(10)), Err(RecvError::TimedOut));
    /// clone.abort("the peer does not read");
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::close`] does, or with [`RecvError::TimedOut`].
    pub fn close_timeout(self, timeout: Duration) -> Result<(), RecvError> {
        self.close_with(Wait::within(timeout))
    }

    fn close_with(&self, wait: Wait) -> Result<(), RecvError> {
        // An association that has ended already still reports its reason below, and so does the time limit.
        let _ = self.shared.shutdown_with(wait);
        let socket = &self.shared.socket;
        socket.until(Interest::READABLE, wait, |inner| socket.try_drain(inner))?
    }
}

impl Stack {
    /// Sets up an association with a server, as [`Association::connect`] does; waits until it is up.
    ///
    /// # Errors
    ///
    /// No server listens at the address or can have it (port 0), the host does not answer, or there is no route to the host.
    pub fn connect(&self, server: impl ToAddresses) -> Result<Association, ConnectError> {
        self.connect_from(0, server)
    }

    /// Sets up an association with a server; waits until it is up, for `timeout` at most.
    ///
    /// # Errors
    ///
    /// Fails as [`Stack::connect`] does, or with [`ConnectError::TimedOut`], and then abandons the attempt.
    pub fn connect_timeout(&self, server: &Address, timeout: Duration) -> Result<Association, ConnectError> {
        let wait = Wait::within(timeout);
        Association::await_answer(SharedAssociation::start_from(self, 0, server)?, wait)
    }

    /// Sets up an association from this local SCTP port; waits until it is up.
    ///
    /// ```
    /// # use swiftwater::{Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// let listener = stack.listen(7)?;
    /// let _client = stack.connect_from(700, &listener.address())?;
    /// let (_server, from) = listener.accept()?;
    /// assert_eq!(from.port(), 700);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Stack::connect`] does, or because the port already has an association with that peer.
    pub fn connect_from(&self, port: u16, server: impl ToAddresses) -> Result<Association, ConnectError> {
        first_success(&server.to_addresses()?, |server| {
            Association::await_answer(SharedAssociation::start_from(self, port, server)?, Wait::Forever)
        })
    }
}
