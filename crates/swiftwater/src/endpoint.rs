//! One-to-many endpoints: every association of one port through one object.

mod calls;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sctp::{AssociationId, SendInfo};
use streams::{Interest, Message as Block};
use tpi::{Primitive, Which};

pub(crate) use self::shared::SharedEndpoint;
#[cfg(feature = "tokio")]
pub(crate) use self::shared::received;
use crate::address::{ToAddresses, first_success};
use crate::error::{BindError, ConnectError, RecvError, SendError};
use crate::event::Received;
use crate::options::StackOptions;
use crate::socket::Wait;
use crate::stack::Stack;

/// Sends to and receives from any number of peers (one-to-many style, RFC 6458 §3). Peers connect by themselves;
/// [`Endpoint::connect`] sets up an association from here. Clones share the endpoint.
///
/// ```
/// use swiftwater::{Association, Endpoint, Received, SendInfo};
///
/// let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
/// let address = endpoint.address();
/// let server = std::thread::spawn(move || -> std::io::Result<()> {
///     loop {
///         // Events report peers that come and go; messages are answered.
///         if let (from, Received::Message(message)) = endpoint.recv()? {
///             // A long message comes, and is answered, in parts.
///             let info = SendInfo { more: message.info.more, ..SendInfo::default() };
///             endpoint.send_to(from, &message.to_vec(), &info)?;
///             if !info.more {
///                 return Ok(());
///             }
///         }
///     }
/// });
/// let client = Association::connect(&address)?;
/// client.send(b"hello")?;
/// assert_eq!(client.recv()?.expect("an echo").to_vec(), b"hello");
/// # server.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An [`AssociationId`] belongs to one association of one [`Stack`] for ever. Calls with the identifier of an association that
/// has ended fail, also before the program has read [`Event::Down`](crate::Event::Down): the message reaches no other peer.
/// Another stack, and so an endpoint that was bound by itself, has equal identifiers for associations of its own: a program with
/// several of them keeps their identifiers apart.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(crate) shared: Arc<SharedEndpoint>,
}

impl Endpoint {
    /// Binds an address with default [`StackOptions`]. SCTP port 0 takes a free one; `/udp:0` a free UDP port.
    /// As in [`std::net`] on Linux, `0.0.0.0` binds all IPv4 addresses of the host, and `[::]` all of both families.
    ///
    /// # Errors
    ///
    /// The address is not valid or not local to this host, or a port is in use.
    pub fn bind(address: impl ToAddresses) -> Result<Endpoint, BindError> {
        Endpoint::bind_with(address, &StackOptions::default())
    }

    /// Binds an address with these options, as [`Endpoint::bind`] does. The hosts and the UDP port of the address take precedence
    /// over those of the options.
    ///
    /// # Errors
    ///
    /// Fails as [`Endpoint::bind`] does.
    pub fn bind_with(address: impl ToAddresses, options: &StackOptions) -> Result<Endpoint, BindError> {
        first_success(&address.to_addresses()?, |address| {
            Stack::bind(&options.at(address))?.endpoint(address.port)
        })
    }

    /// Starts to set up an association, and returns it (`sctp_connectx`). Does not wait for the result:
    /// [`Event::Up`](crate::Event::Up) or [`Event::Down`](crate::Event::Down) follows. Of the addresses of a host's name, asks
    /// the first that the endpoint's sockets can reach.
    ///
    /// Messages may be sent at once, on [`AssociationOptions::streams_out`](crate::AssociationOptions::streams_out) streams; they
    /// wait until the association is up. Those on streams that the peer then does not allow are not sent, and with
    /// [`AssociationOptions::events`](crate::AssociationOptions::events) return as
    /// [`Event::SendFailed`](crate::Event::SendFailed).
    ///
    /// ```
    /// # use swiftwater::{Endpoint, Event, Received};
    /// let server = Endpoint::bind("127.0.0.1:0/udp:0")?;
    /// let client = Endpoint::bind("127.0.0.1:0/udp:0")?;
    /// let id = client.connect(server.address())?;
    /// assert!(matches!(client.recv()?, (up, Received::Event(Event::Up)) if up == id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The address is not valid, no server can have it (port 0), or an association with the peer exists.
    pub fn connect(&self, server: impl ToAddresses) -> Result<AssociationId, ConnectError> {
        first_success(&server.to_addresses()?, |server| self.shared.start(server))
    }

    /// Sends one message to a peer; waits while the association's send buffer is full.
    ///
    /// ```
    /// # use swiftwater::{Association, Endpoint, Event, Received, SendInfo};
    /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(endpoint.address())?;
    /// # let (peer, _up) = endpoint.recv()?;
    /// endpoint.send_to(peer, b"hello", &SendInfo::stream(1))?;
    /// assert_eq!(client.recv()?.expect("a message").info.stream, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association is closed, the message is empty or too long, or the stream does not exist.
    pub fn send_to(&self, to: AssociationId, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.shared.write(to, message, info, Wait::Forever)
    }

    /// Sends one message to a peer; waits while the association's send buffer is full, for `timeout` at most.
    ///
    /// # Errors
    ///
    /// Fails as [`Endpoint::send_to`] does, or with [`SendError::TimedOut`], and then sends nothing.
    pub fn send_to_timeout(
        &self,
        to: AssociationId,
        message: &[u8],
        info: &SendInfo,
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.shared.write(to, message, info, Wait::within(timeout))
    }

    /// Sends one message to a peer without a copy of its bytes, as [`send_bytes`](crate::Association::send_bytes) does; waits
    /// while the association's send buffer is full.
    ///
    /// ```
    /// # use swiftwater::{Association, Endpoint, Received, SendInfo};
    /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(endpoint.address())?;
    /// # client.send(b"hello")?;
    /// let (from, hello) = loop {
    ///     if let (from, Received::Message(message)) = endpoint.recv()? {
    ///         break (from, message.into_bytes());
    ///     }
    /// };
    /// endpoint.send_bytes_to(from, hello, &SendInfo::default())?;
    /// assert_eq!(client.recv()?.expect("an echo").to_vec(), b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Endpoint::send_to`] does.
    pub fn send_bytes_to(&self, to: AssociationId, message: Bytes, info: &SendInfo) -> Result<(), SendError> {
        self.shared.socket().write_bytes(Which::Id(to), info, &message, Wait::Forever)
    }

    /// Receives the next message or event of any association; waits for it.
    ///
    /// A message longer than [`partial_delivery_bytes`](crate::AssociationOptions::partial_delivery_bytes), 512 KiB by default,
    /// comes in parts: [`info.more`](crate::RecvInfo::more) says that the next message continues it. Messages and
    /// events of other associations may come in between.
    ///
    /// ```
    /// # use swiftwater::{Association, Endpoint, Event, Received, SendInfo};
    /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(endpoint.address())?;
    /// # let (peer, _up) = endpoint.recv()?;
    /// client.send(b"hello")?;
    /// match endpoint.recv()? {
    ///     (from, Received::Message(message)) => {
    ///         assert_eq!((from, message.to_vec()), (peer, b"hello".to_vec()));
    ///     }
    ///     (_, Received::Event(Event::Down(loss))) => println!("a peer is gone: {loss:?}"),
    ///     (_, Received::Event(_)) => {}
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub fn recv(&self) -> Result<(AssociationId, Received), RecvError> {
        self.shared.recv_with(Wait::Forever)
    }

    /// Receives the next message or event, as [`Endpoint::recv`] does; waits for it for `timeout` at most.
    ///
    /// # Errors
    ///
    /// Fails as [`Endpoint::recv`] does, or with [`RecvError::TimedOut`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<(AssociationId, Received), RecvError> {
        self.shared.recv_with(Wait::within(timeout))
    }

    /// Returns the stack of the endpoint, for listeners and further associations.
    pub fn stack(&self) -> Stack {
        self.shared.stack().clone()
    }

    /// Ends sending to a peer (RFC 9260 §9.2): everything sent is still delivered.
    ///
    /// SCTP has no half-closed state: once the peer has received the SHUTDOWN, it can send no more. Messages that it had sent
    /// before can still be received.
    ///
    /// ```
    /// # use swiftwater::{Association, Endpoint, Event, Received, SendInfo};
    /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(endpoint.address())?;
    /// # let (peer, _up) = endpoint.recv()?;
    /// endpoint.shutdown(peer)?;
    /// assert!(client.recv()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association does not exist, has ended, or was shut down from here before.
    pub fn shutdown(&self, id: AssociationId) -> Result<(), SendError> {
        let mut request = Some(Block::proto(Primitive::OrdrelReq { association: Which::Id(id) }));
        self.shared.socket().until(Interest::WRITABLE, Wait::Forever, |inner| {
            self.shared.try_shutdown(inner, id, &mut request)
        })?
    }
}

impl Stack {
    /// Binds a one-to-many endpoint to an SCTP port; 0 chooses a free one.
    ///
    /// # Errors
    ///
    /// The port is in use in this stack, or the host does not have one of the addresses of this handle.
    pub fn endpoint(&self, port: u16) -> Result<Endpoint, BindError> {
        self.check_addresses()?;
        Ok(Endpoint { shared: Arc::new(SharedEndpoint::on(self, port)?) })
    }
}
