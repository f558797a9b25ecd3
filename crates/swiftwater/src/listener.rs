//! Listeners: associations that peers set up.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sctp::AssociationConfig;
use tpi::{Primitive, TError};

use crate::address::{Address, ToAddress};
use crate::association::Association;
use crate::error::{BindError, Loss, RecvError};
use crate::options::{AssociationOptions, ListenerOptions, StackOptions};
use crate::socket::{Found, Patience, Socket, Style};
use crate::stack::Stack;

/// One less than what makes a one-to-many endpoint.
const BACKLOG_MAX: u32 = providers::SctpDriver::ONE_TO_MANY - 1;

/// Accepts associations on one SCTP port (one-to-one style).
///
/// Associations that it has accepted live on without it. Those that still wait are aborted when it is dropped.
///
/// ```
/// use swiftwater::{Association, Listener};
///
/// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
/// let address = listener.local_address();
/// let server = std::thread::spawn(move || -> std::io::Result<()> {
///     for _ in 0..2 {
///         let association = listener.accept()?;
///         std::thread::spawn(move || association.send(b"welcome"));
///     }
///     Ok(())
/// });
/// for _ in 0..2 {
///     assert_eq!(Association::connect(&address)?.recv()?.expect("a message").to_vec(), b"welcome");
/// }
/// # server.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    stack: Stack,
    port: u16,
    /// What associations begin with that come from now on.
    config: Mutex<AssociationConfig>,
}

impl Listener {
    /// Listens on an address, with default [`StackOptions`]. SCTP port 0 takes a free one; `/udp:0` a free UDP port.
    ///
    /// # Errors
    ///
    /// The address makes no sense, is not ours, or a port is in use.
    pub fn bind(address: impl ToAddress) -> Result<Listener, BindError> {
        Listener::bind_with(address, &StackOptions::default())
    }

    /// Listens on an address with these options. The hosts and the UDP port of the address take precedence over those of the
    /// options; an unspecified host (`0.0.0.0`, `[::]`) stands for all addresses.
    ///
    /// # Errors
    ///
    /// As [`Listener::bind`].
    pub fn bind_with(address: impl ToAddress, options: &StackOptions) -> Result<Listener, BindError> {
        let address = address.to_address()?;
        Stack::bind(&options.at(&address))?.listen(address.port)
    }

    pub(crate) fn on(stack: &Stack, port: u16, options: &ListenerOptions) -> Result<Listener, BindError> {
        let config = stack.listener_config(options);
        let (socket, port) = bind_port(stack, port, options.backlog.clamp(1, BACKLOG_MAX), config.clone())?;
        Ok(Listener { socket, stack: stack.clone(), port, config: Mutex::new(config) })
    }

    /// The next association; waits for one.
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub fn accept(&self) -> Result<Association, RecvError> {
        self.accept_with(Patience::Forever)
    }

    /// The next association, if one comes in time; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Listener::accept`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Association, RecvError> {
        self.accept_with(Patience::within(timeout))
    }

    /// The next association, if one is there; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Listener::accept`].
    pub fn try_accept(&self) -> Result<Association, RecvError> {
        self.accept_with(Patience::None)
    }

    /// Accepts associations with these options from now on. Those that were accepted before keep theirs.
    pub fn set_options(&self, options: &AssociationOptions) {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = ListenerOptions {
            refuse_beyond_backlog: config.refuse_beyond_backlog,
            associations_max: config.listener_associations_max,
            shares_port: config.shares_port,
            ..ListenerOptions::default()
        };
        let changed = options.config(&limits, &config.local_addresses, config.trace);
        // The addresses stay, so that no other listener can have them.
        let _ = self.change(changed.clone());
        *config = changed;
    }

    /// Listens at these addresses of the stack from now on, as after
    /// [`Stack::with_local_addresses`](crate::Stack::with_local_addresses).
    ///
    /// # Errors
    ///
    /// Another listener on this port has one of these addresses: nothing has changed.
    pub fn set_local_addresses(&self, local_addresses: &[IpAddr]) -> Result<(), BindError> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = AssociationConfig { local_addresses: local_addresses.to_vec(), ..config.clone() };
        if !self.change(changed.clone()) {
            return Err(BindError::PortInUse { port: self.port });
        }
        *config = changed;
        Ok(())
    }

    /// Sets how many associations may wait to be accepted from now on; 0 counts as 1. Those that wait stay.
    pub fn set_backlog(&self, backlog: u32) {
        let (stream, backlog) = (self.socket.stream, backlog.clamp(1, BACKLOG_MAX));
        // After a fault the listener is gone and takes no more associations.
        let _ = self.socket.command(|driver, _| driver.set_backlog(stream, backlog));
    }

    fn change(&self, config: AssociationConfig) -> bool {
        let stream = self.socket.stream;
        let changed = self.socket.command(|driver, cx| driver.change_config(cx, stream, 0, config));
        // After a fault the listener is gone and takes no more associations.
        changed.unwrap_or(true)
    }

    fn accept_with(&self, patience: Patience) -> Result<Association, RecvError> {
        loop {
            if let Some(association) = self.take(self.socket.getmsg(patience)?)? {
                return Ok(association);
            }
        }
    }

    /// Accepts what was found, if that is an association.
    pub(crate) fn take(&self, found: Found<streams::Message>) -> Result<Option<Association>, RecvError> {
        let lost = |why: String| RecvError::Lost(Loss::fault(why));
        let (sequence, peer) = match found {
            Found::Primitive(Primitive::ConnInd { sequence, addresses }, _) => {
                (sequence, addresses.list.first().copied())
            }
            Found::Primitive(..) | Found::Data(_) => return Ok(None),
            Found::End => return Err(lost("the listener was closed".into())),
        };
        let socket = Socket::open(&self.stack.shard, Style::OneToOne).map_err(|e| lost(e.to_string()))?;
        let acceptor = socket.stream.index() as u32;
        match self.socket.ask(Primitive::ConnRes { sequence, acceptor }) {
            Ok(Primitive::OkAck { .. }) => Ok(Some(Association::accepted(&self.stack, socket, peer))),
            answer => Err(lost(format!("the provider answered {answer:?}"))),
        }
    }

    /// Where it listens, as a client on this host would name it.
    pub fn local_address(&self) -> Address {
        self.stack.address_of(self.port)
    }

    /// The sockets that it listens on, for more listeners and associations.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }
}

/// Opens a stream and binds it to an SCTP port; returns the port, too.
pub(crate) fn bind_port(
    stack: &Stack,
    port: u16,
    backlog: u32,
    config: AssociationConfig,
) -> Result<(Socket, u16), BindError> {
    let system = |e: String| BindError::System(std::io::Error::other(e));
    let socket = stack.open_with(Style::OneToMany, Arc::new(config)).map_err(|e| system(e.to_string()))?;
    let any = std::net::SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), port);
    match socket.ask(Primitive::BindReq { addresses: any.into(), backlog }) {
        Ok(Primitive::BindAck { addresses, .. }) => {
            let bound = addresses.list.first().map_or(port, |a| a.port());
            Ok((socket, bound))
        }
        Ok(Primitive::ErrorAck { t_error: TError::AddressBusy, .. }) => Err(BindError::PortInUse { port }),
        other => Err(system(format!("the provider answered {other:?}"))),
    }
}
