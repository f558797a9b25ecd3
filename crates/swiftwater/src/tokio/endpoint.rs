//! One-to-many endpoints for tasks.

use std::net::IpAddr;

use streams::Interest;

use super::resolve;
use super::until::until;
use crate::address::{Address, ToAddress};
use crate::error::{BindError, ConnectError, RecvError, SendError};
use crate::event::Received;
use crate::message::{AssociationId, SendInfo};
use crate::options::StackOptions;
use crate::{PrimaryError, Statistics, endpoint};

/// Sends to and receives from any number of peers; [`swiftwater::Endpoint`](crate::Endpoint) for tasks.
#[derive(Debug)]
pub struct Endpoint(endpoint::Endpoint);

impl Endpoint {
    /// Binds an address with default [`StackOptions`].
    ///
    /// # Errors
    ///
    /// The address makes no sense, is not ours, or a port is in use.
    pub async fn bind(address: impl ToAddress) -> Result<Endpoint, BindError> {
        Endpoint::bind_with(address, &StackOptions::default()).await
    }

    /// The same with `options`.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::bind`].
    pub async fn bind_with(address: impl ToAddress, options: &StackOptions) -> Result<Endpoint, BindError> {
        let address = resolve(address).await?;
        endpoint::Endpoint::bind_with(address, options).map(Endpoint)
    }

    /// Starts an association. [`Event::Up`](crate::Event::Up) or [`Event::Down`](crate::Event::Down) follows.
    ///
    /// # Errors
    ///
    /// The address makes no sense, or an association with it exists.
    pub async fn connect(&self, server: impl ToAddress) -> Result<(), ConnectError> {
        self.0.connect(resolve(server).await?)
    }

    /// Sends one message to a peer; waits while its send buffer is full.
    ///
    /// # Errors
    ///
    /// The association is closed, or the message is empty or too long, or there is no such stream.
    pub async fn send_to(&self, to: AssociationId, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.0.check(to, message.len(), info)?;
        let (socket, info) = (self.0.socket(), info.transfer(to.0));
        until(socket, Interest::WRITABLE, |inner| socket.try_write(inner, &info, message)).await?
    }

    /// Sends one message if there is room for it; [`SendError::WouldBlock`] otherwise.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send_to`].
    pub fn try_send_to(&self, to: AssociationId, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.0.try_send_to(to, message, info)
    }

    /// The next message or event of any association; waits for it.
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub async fn recv(&self) -> Result<(AssociationId, Received), RecvError> {
        let socket = self.0.socket();
        loop {
            let found = until(socket, Interest::READABLE, |inner| socket.try_getmsg(inner)).await??;
            if let Some(received) = endpoint::received(found)? {
                return Ok(received);
            }
        }
    }

    /// The next message or event if one is there; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::recv`].
    pub fn try_recv(&self) -> Result<(AssociationId, Received), RecvError> {
        self.0.try_recv()
    }

    /// Sends no more to a peer; what was sent is delivered.
    ///
    /// # Errors
    ///
    /// The association is closed already.
    pub fn shutdown(&self, id: AssociationId) -> Result<(), SendError> {
        self.0.shutdown(id)
    }

    /// Ends an association at once.
    pub fn abort(&self, id: AssociationId, reason: &str) {
        self.0.abort(id, reason);
    }

    /// Counters of one association, its paths among them; `None` once it is gone.
    pub fn statistics(&self, id: AssociationId) -> Option<Statistics> {
        self.0.statistics(id)
    }

    /// New data for a peer goes to this address of it from now on, while it answers.
    ///
    /// # Errors
    ///
    /// As [`Association::set_primary`](crate::Association::set_primary).
    pub fn set_primary(&self, id: AssociationId, address: IpAddr) -> Result<(), PrimaryError> {
        self.0.set_primary(id, address)
    }

    /// Where it is bound, as a peer on this host would name it.
    pub fn local_address(&self) -> Address {
        self.0.local_address()
    }
}

/// Such as one of [`Stack::endpoint`](crate::Stack::endpoint).
impl From<endpoint::Endpoint> for Endpoint {
    fn from(blocking: endpoint::Endpoint) -> Self {
        Endpoint(blocking)
    }
}

impl From<Endpoint> for endpoint::Endpoint {
    fn from(asynchronous: Endpoint) -> Self {
        asynchronous.0
    }
}
