//! One-to-many endpoints for tasks.

use std::sync::Arc;

use bytes::Bytes;
use sctp::{AssociationId, SendInfo};
use streams::{Interest, Message as Block};
use tpi::{Primitive, Which};

use super::until::{ready, until};
use super::{Stack, resolve};
use crate::address::{ToAddresses, first_success};
use crate::endpoint::{self, SharedEndpoint};
use crate::error::{BindError, ConnectError, RecvError, SendError};
use crate::event::Received;
use crate::options::StackOptions;
use crate::shard::Inner;

/// Sends to and receives from any number of peers; [`swiftwater::Endpoint`](crate::Endpoint) for tasks. Clones share it.
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
    pub async fn bind(address: impl ToAddresses) -> Result<Endpoint, BindError> {
        Endpoint::bind_with(address, &StackOptions::default()).await
    }

    /// Binds an address with these options, as [`Endpoint::bind`] does. The hosts and the UDP port of the address take precedence
    /// over those of the options.
    ///
    /// # Errors
    ///
    /// Fails as [`Endpoint::bind`] does.
    pub async fn bind_with(address: impl ToAddresses, options: &StackOptions) -> Result<Endpoint, BindError> {
        endpoint::Endpoint::bind_with(&resolve(address).await?[..], options).map(Endpoint::from)
    }

    /// Starts to set up an association, and does not wait for the result: [`Event::Up`](crate::Event::Up) or
    /// [`Event::Down`](crate::Event::Down) follows.
    ///
    /// # Errors
    ///
    /// The address is not valid, no server can have it (port 0), or an association with the peer exists.
    pub async fn connect(&self, server: impl ToAddresses) -> Result<AssociationId, ConnectError> {
        first_success(&resolve(server).await?, |server| self.shared.start(server))
    }

    /// Sends one message to a peer; waits while the association's send buffer is full.
    ///
    /// # Errors
    ///
    /// The association is closed, the message is empty or too long, or the stream does not exist.
    pub async fn send_to(&self, to: AssociationId, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        let socket = self.shared.socket();
        until(socket, Interest::WRITABLE, |inner| socket.try_write(inner, Which::Id(to), info, message))
            .await?
    }

    /// Sends one message to a peer without a copy of its bytes; waits while the association's send buffer is full.
    ///
    /// # Errors
    ///
    /// Fails as [`Endpoint::send_to`] does.
    pub async fn send_bytes_to(
        &self,
        to: AssociationId,
        message: Bytes,
        info: &SendInfo,
    ) -> Result<(), SendError> {
        let socket = self.shared.socket();
        let write = |inner: &mut Inner| socket.try_write_bytes(inner, Which::Id(to), info, &message);
        until(socket, Interest::WRITABLE, write).await?
    }

    /// Receives the next message or event of any association; waits for it.
    ///
    /// Long messages come in parts ([`RecvInfo::more`](crate::RecvInfo::more)), as with
    /// [`swiftwater::Endpoint::recv`](crate::Endpoint::recv).
    ///
    /// ```
    /// # use swiftwater::tokio::{Association, Endpoint};
    /// # use swiftwater::{Received, SendInfo};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(endpoint.address()).await?;
    /// # client.send(b"hello").await?;
    /// loop {
    ///     let (from, received) = endpoint.recv().await?;
    ///     if let Received::Message(message) = received {
    ///         let info = SendInfo { more: message.info.more, ..SendInfo::default() };
    ///         endpoint.send_to(from, &message.to_vec(), &info).await?;
    ///         if !info.more {
    ///             break;
    ///         }
    ///     }
    /// }
    /// # assert_eq!(client.recv().await?.expect("an echo").to_vec(), b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn recv(&self) -> Result<(AssociationId, Received), RecvError> {
        let socket = self.shared.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await??;
            if let Some(received) = endpoint::received(found)? {
                return Ok(received);
            }
        }
    }

    /// Waits until a message or an event can be received. A subsequent `try_recv` finds it, unless another clone has
    /// taken it.
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn readable(&self) -> Result<(), RecvError> {
        Ok(ready(self.shared.socket(), Interest::READABLE).await?)
    }

    /// Waits, after a send that would have blocked, until one of the associations has room again. That need not be the one which
    /// had none, so the next `try_send_to` may have to wait again.
    ///
    /// ```
    /// # use swiftwater::tokio::{Association, Endpoint};
    /// # use swiftwater::{SendError, SendInfo};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").await?;
    /// # let client = Association::connect(endpoint.address()).await?;
    /// # let (peer, _up) = endpoint.recv().await?;
    /// # tokio::spawn(async move { while let Ok(Some(_)) = client.recv().await {} });
    /// while endpoint.try_send_to(peer, b"a message", &SendInfo::default()) == Err(SendError::WouldBlock) {
    ///     endpoint.writable().await?;
    /// }
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

    /// Returns the stack of the endpoint, for listeners and further associations.
    pub fn stack(&self) -> Stack {
        self.shared.stack().clone().into()
    }

    /// Ends sending to a peer (RFC 9260 §9.2): everything sent is still delivered.
    ///
    /// SCTP has no half-closed state: once the peer has received the SHUTDOWN, it can send no more. Messages that it had sent
    /// before can still be received.
    ///
    /// # Errors
    ///
    /// The association does not exist, has ended, or was shut down from here before.
    pub async fn shutdown(&self, id: AssociationId) -> Result<(), SendError> {
        let socket = self.shared.socket();
        let mut request = Some(Block::proto(Primitive::OrdrelReq { association: Which::Id(id) }));
        until(socket, Interest::WRITABLE, |inner| self.shared.try_shutdown(inner, id, &mut request)).await?
    }
}

impl Stack {
    /// Binds a one-to-many endpoint to an SCTP port; 0 chooses a free one.
    ///
    /// # Errors
    ///
    /// The port is in use in this stack, or the host does not have one of the addresses of this handle.
    pub fn endpoint(&self, port: u16) -> Result<Endpoint, BindError> {
        self.shared.endpoint(port).map(Endpoint::from)
    }
}

impl From<endpoint::Endpoint> for Endpoint {
    fn from(blocking: endpoint::Endpoint) -> Self {
        Endpoint { shared: blocking.shared }
    }
}

impl From<Endpoint> for endpoint::Endpoint {
    fn from(asynchronous: Endpoint) -> Self {
        endpoint::Endpoint { shared: asynchronous.shared }
    }
}
