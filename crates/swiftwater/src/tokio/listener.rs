//! Listeners for tasks.

use std::net::IpAddr;

use streams::Interest;

use super::association::Association;
use super::resolve;
use super::until::until;
use crate::address::{Address, ToAddress};
use crate::error::{BindError, RecvError};
use crate::listener;
use crate::options::{AssociationOptions, StackOptions};
use crate::stack::Stack;

/// Accepts associations on one SCTP port; [`swiftwater::Listener`](crate::Listener) for tasks.
#[derive(Debug)]
pub struct Listener(listener::Listener);

impl Listener {
    /// Listens on an address, with default [`StackOptions`]. SCTP port 0 takes a free one; `/udp:0` a free UDP port.
    ///
    /// # Errors
    ///
    /// The address makes no sense, is not ours, or a port is in use.
    pub async fn bind(address: impl ToAddress) -> Result<Listener, BindError> {
        Listener::bind_with(address, &StackOptions::default()).await
    }

    /// The same with `options`.
    ///
    /// # Errors
    ///
    /// As [`Listener::bind`].
    pub async fn bind_with(address: impl ToAddress, options: &StackOptions) -> Result<Listener, BindError> {
        let address = resolve(address).await?;
        listener::Listener::bind_with(address, options).map(Listener)
    }

    /// The next association; waits for one.
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn accept(&self) -> Result<Association, RecvError> {
        let socket = self.0.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await??;
            if let Some(association) = self.0.take(found)? {
                return Ok(association.into());
            }
        }
    }

    /// The next association, if one is there; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Listener::accept`].
    pub fn try_accept(&self) -> Result<Association, RecvError> {
        self.0.try_accept().map(Association::from)
    }

    /// Accepts associations with these options from now on. Those that were accepted before keep theirs.
    pub fn set_options(&self, options: &AssociationOptions) {
        self.0.set_options(options);
    }

    /// Listens at these addresses of the stack from now on, as after
    /// [`Stack::with_local_addresses`](crate::Stack::with_local_addresses).
    ///
    /// # Errors
    ///
    /// Another listener on this port has one of these addresses: nothing has changed.
    pub fn set_local_addresses(&self, local_addresses: &[IpAddr]) -> Result<(), BindError> {
        self.0.set_local_addresses(local_addresses)
    }

    /// Sets how many associations may wait to be accepted from now on; 0 counts as 1. Those that wait stay.
    pub fn set_backlog(&self, backlog: u32) {
        self.0.set_backlog(backlog);
    }

    /// Where it listens, as a client on this host would name it.
    pub fn local_address(&self) -> Address {
        self.0.local_address()
    }

    /// The sockets that it listens on, for more listeners and associations.
    pub fn stack(&self) -> &Stack {
        self.0.stack()
    }
}

/// Such as one of [`Stack::listen`].
impl From<listener::Listener> for Listener {
    fn from(blocking: listener::Listener) -> Self {
        Listener(blocking)
    }
}

impl From<Listener> for listener::Listener {
    fn from(asynchronous: Listener) -> Self {
        asynchronous.0
    }
}
