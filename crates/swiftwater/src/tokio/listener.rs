//! Listeners for tasks.

use std::net::SocketAddr;
use std::sync::Arc;

use streams::Interest;

use super::until::{ready, until};
use super::{Association, Stack, resolve};
use crate::address::ToAddresses;
use crate::error::{AcceptError, BindError, RecvError};
use crate::listener::{self, SharedListener};
use crate::options::{ListenerOptions, StackOptions};
use crate::socket::Wait;

/// Accepts associations on one SCTP port; [`swiftwater::Listener`](crate::Listener) for tasks. Clones share it.
#[derive(Clone, Debug)]
pub struct Listener {
    pub(crate) shared: Arc<SharedListener>,
}

impl Listener {
    /// Listens on an address, with default [`StackOptions`]. SCTP port 0 takes a free one; `/udp:0` a free UDP port.
    /// As in [`std::net`] on Linux, `0.0.0.0` binds all IPv4 addresses of the host, and `[::]` all of both families.
    ///
    /// # Errors
    ///
    /// The address is not valid or not local to this host, or a port is in use.
    pub async fn bind(address: impl ToAddresses) -> Result<Listener, BindError> {
        Listener::bind_with(address, &StackOptions::default()).await
    }

    /// Listens on an address with these options, as [`swiftwater::Listener::bind_with`](crate::Listener::bind_with).
    ///
    /// # Errors
    ///
    /// Fails as [`Listener::bind`] does.
    pub async fn bind_with(address: impl ToAddresses, options: &StackOptions) -> Result<Listener, BindError> {
        listener::Listener::bind_with(&resolve(address).await?[..], options).map(Listener::from)
    }

    /// Accepts the next association, and returns it with the peer's address and SCTP port; waits for an association.
    ///
    /// ```
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// let client = Association::connect(listener.address()).await?;
    /// let (server, peer) = listener.accept().await?;
    /// assert_eq!(Some(peer), client.local_addr());
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn accept(&self) -> Result<(Association, SocketAddr), AcceptError> {
        let socket = self.shared.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await;
            let found = found.map_err(RecvError::from).and_then(|found| found)?;
            if let Some((shared, peer)) = self.shared.take(found)? {
                return Ok((Association { shared }, peer));
            }
        }
    }

    /// Waits until an association can be accepted. A subsequent `try_accept` finds it, unless another clone has taken it.
    ///
    /// ```
    /// # use swiftwater::tokio::{Association, Listener};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// let listener = Listener::bind("127.0.0.1:0/udp:0").await?;
    /// let client = Association::connect(listener.address()).await?;
    /// listener.readable().await?;
    /// let (server, peer) = listener.try_accept()?;
    /// assert_eq!(Some(peer), client.local_addr());
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn readable(&self) -> Result<(), AcceptError> {
        let outcome = ready(self.shared.socket(), Interest::READABLE).await;
        Ok(outcome.map_err(RecvError::from)?)
    }

    /// Returns the stack of the listener, for more listeners and associations.
    pub fn stack(&self) -> Stack {
        self.shared.stack().clone().into()
    }

    /// Accepts the next association without waiting, if one is available.
    ///
    /// # Errors
    ///
    /// Fails as [`Listener::accept`] does, or with [`AcceptError::WouldBlock`].
    pub fn try_accept(&self) -> Result<(Association, SocketAddr), AcceptError> {
        loop {
            if let Some((shared, peer)) = self.shared.take(self.shared.socket().getmsg(Wait::None)?)? {
                return Ok((Association { shared }, peer));
            }
        }
    }
}

impl Stack {
    /// Listens on an SCTP port; 0 chooses a free one.
    ///
    /// # Errors
    ///
    /// The port is in use in this stack, at one of these addresses, or the host does not have one of them.
    pub fn listen(&self, port: u16) -> Result<Listener, BindError> {
        self.shared.listen(port).map(Listener::from)
    }

    /// Listens on an SCTP port with these options instead of [`StackOptions::listener`]; port 0 chooses a free one.
    ///
    /// # Errors
    ///
    /// Fails as [`Stack::listen`] does.
    pub fn listen_with(&self, port: u16, options: &ListenerOptions) -> Result<Listener, BindError> {
        self.shared.listen_with(port, options).map(Listener::from)
    }

    #[cfg(feature = "internals")]
    pub(crate) fn listen_as_bound(
        &self,
        port: u16,
        options: &ListenerOptions,
    ) -> Result<Listener, BindError> {
        Ok(Listener { shared: Arc::new(SharedListener::on(&self.shared, port, options)?) })
    }
}

impl From<listener::Listener> for Listener {
    fn from(blocking: listener::Listener) -> Self {
        Listener { shared: blocking.shared }
    }
}

impl From<Listener> for listener::Listener {
    fn from(asynchronous: Listener) -> Self {
        listener::Listener { shared: asynchronous.shared }
    }
}
