//! One-to-many endpoints: every association of one port through one object.

use std::net::IpAddr;
use std::time::Duration;

use sctp::{PrimaryError, Statistics};
use streams::{Chain, Control, Kind};
use tpi::Primitive;

use crate::address::{Address, ToAddress};
use crate::association::ask_to_connect;
use crate::error::{BindError, ConnectError, Loss, RecvError, SendError};
use crate::event::{Event, Received};
use crate::listener::bind_port;
use crate::message::{AssociationId, SendInfo, from_block};
use crate::options::StackOptions;
use crate::socket::{Found, Patience, Socket};
use crate::stack::Stack;

/// Sends to and receives from any number of peers (one-to-many style). Peers connect by themselves;
/// [`Endpoint::connect`] goes the other way.
///
/// ```
/// use swiftwater::{Association, Endpoint, Received, SendInfo};
///
/// let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
/// let address = endpoint.local_address();
/// let server = std::thread::spawn(move || -> std::io::Result<()> {
///     loop {
///         // Events say who comes and goes; messages are answered.
///         if let (from, Received::Message(message)) = endpoint.recv()? {
///             endpoint.send_to(from, &message.to_vec(), &SendInfo::default())?;
///             return Ok(());
///         }
///     }
/// });
/// let client = Association::connect(&address)?;
/// client.send(b"hello")?;
/// assert_eq!(client.recv()?.expect("an echo").to_vec(), b"hello");
/// # server.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Endpoint {
    socket: Socket,
    stack: Stack,
    port: u16,
}

impl Endpoint {
    /// Binds an address with default [`StackOptions`].
    ///
    /// # Errors
    ///
    /// The address makes no sense, is not ours, or a port is in use.
    pub fn bind(address: impl ToAddress) -> Result<Endpoint, BindError> {
        Endpoint::bind_with(address, &StackOptions::default())
    }

    /// The same with `options`.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::bind`].
    pub fn bind_with(address: impl ToAddress, options: &StackOptions) -> Result<Endpoint, BindError> {
        let address = address.to_address()?;
        Stack::bind(&options.at(&address))?.endpoint(address.port)
    }

    pub(crate) fn on(stack: &Stack, port: u16) -> Result<Endpoint, BindError> {
        let config = stack.listener_config(&stack.options.listener);
        let (socket, port) = bind_port(stack, port, providers::SctpDriver::ONE_TO_MANY, config)?;
        Ok(Endpoint { socket, stack: stack.clone(), port })
    }

    /// Starts an association. [`Event::Up`] or [`Event::Down`] follows.
    ///
    /// # Errors
    ///
    /// The address makes no sense, or an association with it exists.
    pub fn connect(&self, server: impl ToAddress) -> Result<(), ConnectError> {
        let server = server.to_address()?;
        ask_to_connect(&self.stack, &self.socket, &server)
    }

    /// Sends one message to a peer; waits while its send buffer is full.
    ///
    /// # Errors
    ///
    /// The association is closed, or the message is empty or too long, or there is no such stream.
    pub fn send_to(&self, to: AssociationId, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.write(to, message, info, Patience::Forever)
    }

    /// Sends one message if there is room for it; [`SendError::WouldBlock`] otherwise.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send_to`].
    pub fn try_send_to(&self, to: AssociationId, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.write(to, message, info, Patience::None)
    }

    fn write(
        &self,
        to: AssociationId,
        message: &[u8],
        info: &SendInfo,
        patience: Patience,
    ) -> Result<(), SendError> {
        self.check(to, message.len(), info)?;
        self.socket.write(&info.transfer(to.0), message, patience)
    }

    pub(crate) fn check(&self, to: AssociationId, bytes: usize, info: &SendInfo) -> Result<(), SendError> {
        if bytes == 0 {
            return Err(SendError::Empty);
        }
        let limit_bytes = self.stack.options.association.message_bytes_max;
        if bytes > limit_bytes {
            return Err(SendError::TooLong { bytes, limit_bytes });
        }
        if info.stream > 0 {
            let streams = self.streams_out(to).ok_or(SendError::Closed)?;
            if info.stream >= streams {
                return Err(SendError::NoSuchStream { stream: info.stream, streams });
            }
        }
        Ok(())
    }

    fn streams_out(&self, id: AssociationId) -> Option<u16> {
        self.statistics(id).map(|statistics| statistics.streams_out)
    }

    /// Counters of one association, its paths among them; `None` once it is gone.
    pub fn statistics(&self, id: AssociationId) -> Option<Statistics> {
        let s = self.socket.stream;
        self.stack.with_driver(|driver| driver.statistics(s, id.0)).flatten()
    }

    /// New data for a peer goes to this address of it from now on, as with
    /// [`Association::set_primary`](crate::Association::set_primary).
    ///
    /// # Errors
    ///
    /// The peer has no such address, or has not answered there yet, or the association is gone.
    pub fn set_primary(&self, id: AssociationId, address: IpAddr) -> Result<(), PrimaryError> {
        let set = self.socket.command(|driver, cx| driver.set_primary(cx, self.socket.stream, id.0, address));
        set.unwrap_or(Err(PrimaryError::Closed))
    }

    /// The next message or event of any association; waits for it.
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub fn recv(&self) -> Result<(AssociationId, Received), RecvError> {
        self.recv_with(Patience::Forever)
    }

    /// The next message or event if one comes in time; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::recv`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<(AssociationId, Received), RecvError> {
        self.recv_with(Patience::within(timeout))
    }

    /// The next message or event if one is there; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::recv`].
    pub fn try_recv(&self) -> Result<(AssociationId, Received), RecvError> {
        self.recv_with(Patience::None)
    }

    fn recv_with(&self, patience: Patience) -> Result<(AssociationId, Received), RecvError> {
        loop {
            if let Some(received) = received(self.socket.getmsg(patience)?)? {
                return Ok(received);
            }
        }
    }

    /// Sends no more to a peer; what was sent is delivered.
    ///
    /// # Errors
    ///
    /// The association is closed already.
    pub fn shutdown(&self, id: AssociationId) -> Result<(), SendError> {
        self.socket
            .request(Primitive::OrdrelReq { association: id.0 }, Chain::new())
            .map_err(|_| SendError::Closed)
    }

    /// Ends an association at once.
    pub fn abort(&self, id: AssociationId, reason: &str) {
        let text = Chain::from(bytes::Bytes::copy_from_slice(reason.as_bytes()));
        let primitive = Primitive::DisconReq { sequence: 0, reason: 0, association: id.0 };
        // An association that is gone already needs no abort.
        let _ = self.socket.request(primitive, text);
    }

    /// Where it is bound, as a peer on this host would name it.
    pub fn local_address(&self) -> Address {
        self.stack.address_of(self.port)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }
}

/// What a reader of the endpoint gets to see of what was found.
pub(crate) fn received(
    found: Found<streams::Message>,
) -> Result<Option<(AssociationId, Received)>, RecvError> {
    match found {
        Found::Data(message) => {
            let id = match &message.kind {
                Kind::Proto(Control::Tpi(Primitive::OptdataInd(info))) => info.association,
                _ => 0,
            };
            Ok(Some((AssociationId(id), Received::Message(from_block(message)))))
        }
        Found::Primitive(primitive, text) => {
            let event = Event::of(&primitive, &text);
            Ok(event.map(|(id, event)| (AssociationId(id), Received::Event(event))))
        }
        Found::End => Err(RecvError::Lost(Loss::fault("the endpoint was closed"))),
    }
}
