//! Listeners: associations that peers set up.

use std::time::Duration;

use tpi::{Primitive, TError};

use crate::address::{Address, ToAddress};
use crate::association::Association;
use crate::error::{BindError, Loss, RecvError};
use crate::options::Options;
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
}

impl Listener {
    /// Listens on an address, with default [`Options`]. SCTP port 0 takes a free one; `/udp:0` a free UDP port.
    ///
    /// # Errors
    ///
    /// The address makes no sense, is not ours, or a port is in use.
    pub fn bind(address: impl ToAddress) -> Result<Listener, BindError> {
        Listener::bind_with(address, &Options::default())
    }

    /// The same with `options`. The address' hosts and UDP port come before those of the options; an
    /// unspecified host (`0.0.0.0`, `[::]`) stands for all addresses.
    ///
    /// # Errors
    ///
    /// As [`Listener::bind`].
    pub fn bind_with(address: impl ToAddress, options: &Options) -> Result<Listener, BindError> {
        let address = address.to_address()?;
        Stack::bind(&at(options, &address))?.listen(address.port)
    }

    pub(crate) fn on(stack: &Stack, port: u16) -> Result<Listener, BindError> {
        let (socket, port) = bind_port(stack, port, stack.options.backlog.clamp(1, BACKLOG_MAX))?;
        Ok(Listener { socket, stack: stack.clone(), port })
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

    /// Associations that come from now on have the settings of an association that these options say, and it listens at their
    /// [`Options::local_addresses`]. The sockets stay as they are, and so does the backlog.
    ///
    /// # Errors
    ///
    /// Another listener on this port has one of these addresses: nothing has changed.
    pub fn set_options(&self, options: &Options) -> Result<(), BindError> {
        let config = options.restricted_config();
        // A listener that is gone takes none.
        let changed =
            self.socket.command(|driver, cx| driver.change_config(cx, self.socket.stream, 0, config));
        if changed == Some(false) { Err(BindError::PortInUse { port: self.port }) } else { Ok(()) }
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

/// `options` for the hosts and UDP port of an address.
pub(crate) fn at(options: &Options, address: &Address) -> Options {
    let mut options = options.clone();
    if !address.hosts.iter().any(|h| h.is_unspecified()) {
        options.local_addresses = address.hosts.clone();
    }
    options.udp_port = address.udp_port.or(options.udp_port);
    options
}

/// Opens a stream and binds it to an SCTP port; says which.
pub(crate) fn bind_port(stack: &Stack, port: u16, backlog: u32) -> Result<(Socket, u16), BindError> {
    let system = |e: String| BindError::System(std::io::Error::other(e));
    let style = Style::OneToMany;
    let socket = stack.open(style).map_err(|e| system(e.to_string()))?;
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
