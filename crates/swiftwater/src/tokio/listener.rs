//! Listeners for tasks.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use streams::Interest;

use super::association::Association;
use super::resolve;
use super::until::until;
use crate::address::ToAddresses;
use crate::error::{AcceptError, BindError, RecvError};
use crate::listener::{self, SharedListener};
use crate::options::StackOptions;
use crate::socket::Wait;

/// Accepts associations on one SCTP port; [`swiftwater::Listener`](crate::Listener) for tasks. Clones share it.
///
/// This type has the calls that wait. It dereferences to [`SharedListener`], which has its addresses and options.
#[derive(Clone, Debug)]
pub struct Listener(Arc<SharedListener>);

impl Deref for Listener {
    type Target = SharedListener;

    fn deref(&self) -> &SharedListener {
        &self.0
    }
}

impl Listener {
    /// Listens on an address, with default [`StackOptions`]. SCTP port 0 takes a free one; `/udp:0` a free UDP port.
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
        let socket = self.0.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await;
            let found = found.map_err(RecvError::from).and_then(|found| found)?;
            if let Some((shared, peer)) = self.0.take(found)? {
                return Ok((Association(shared), peer));
            }
        }
    }

    /// Accepts the next association without waiting, if one is available.
    ///
    /// # Errors
    ///
    /// Fails as [`Listener::accept`] does, or with [`AcceptError::WouldBlock`].
    pub fn try_accept(&self) -> Result<(Association, SocketAddr), AcceptError> {
        loop {
            if let Some((shared, peer)) = self.0.take(self.0.socket().getmsg(Wait::None)?)? {
                return Ok((Association(shared), peer));
            }
        }
    }
}

/// Converts a listener such as that of [`Stack::listen`](crate::Stack::listen).
impl From<listener::Listener> for Listener {
    fn from(blocking: listener::Listener) -> Self {
        Listener(blocking.shared)
    }
}

impl From<Listener> for listener::Listener {
    fn from(asynchronous: Listener) -> Self {
        listener::Listener { shared: asynchronous.0 }
    }
}
