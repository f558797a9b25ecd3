//! Listeners: associations that peers set up.

mod calls;
mod shared;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::shared::SharedListener;
use crate::address::{ToAddresses, first_success};
use crate::association::Association;
use crate::error::{AcceptError, BindError};
use crate::options::{ListenerOptions, StackOptions};
use crate::socket::Wait;
use crate::stack::Stack;

/// Accepts associations on one SCTP port (one-to-one style, RFC 6458 §4). Clones share the listener.
///
/// Dropping the last clone ends associations that were not accepted yet: those whose peers have sent something are aborted, and
/// the others are shut down. Accepted associations continue, and with them the stack and its UDP port. So a program that listens
/// again at the address keeps the [`stack`](Listener::stack) and calls [`Stack::listen`]: another [`Listener::bind`] would find
/// the UDP port in use.
///
/// ```
/// use swiftwater::{Association, Listener};
///
/// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
/// let address = listener.address();
/// let server = std::thread::spawn(move || -> std::io::Result<()> {
///     for _ in 0..2 {
///         let (association, _) = listener.accept()?;
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
    pub fn bind(address: impl ToAddresses) -> Result<Listener, BindError> {
        Listener::bind_with(address, &StackOptions::default())
    }

    /// Listens on an address with these options, as [`Listener::bind`] does. The hosts and the UDP port of the address take
    /// precedence over those of the options.
    ///
    /// # Errors
    ///
    /// Fails as [`Listener::bind`] does.
    pub fn bind_with(address: impl ToAddresses, options: &StackOptions) -> Result<Listener, BindError> {
        first_success(&address.to_addresses()?, |address| {
            Stack::bind(&options.at(address))?.listen(address.port)
        })
    }

    /// Accepts the next association, and returns it with the peer's address and SCTP port; waits for an association.
    ///
    /// The association may have ended already; messages that the peer sent before can still be received.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// let client = Association::connect(listener.address())?;
    /// let (server, peer) = listener.accept()?;
    /// assert_eq!(Some(peer), client.local_addr());
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The sockets failed.
    pub fn accept(&self) -> Result<(Association, SocketAddr), AcceptError> {
        self.accept_with(Wait::Forever)
    }

    /// Accepts the next association; waits up to `timeout` for one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::{AcceptError, Listener};
    /// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// let nobody = listener.accept_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(nobody, AcceptError::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Listener::accept`] does, or with [`AcceptError::TimedOut`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<(Association, SocketAddr), AcceptError> {
        self.accept_with(Wait::within(timeout))
    }

    /// Accepts the next association without waiting, if one is available.
    ///
    /// ```
    /// # use swiftwater::{AcceptError, Listener};
    /// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// assert_eq!(listener.try_accept().unwrap_err(), AcceptError::WouldBlock);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Listener::accept`] does, or with [`AcceptError::WouldBlock`].
    pub fn try_accept(&self) -> Result<(Association, SocketAddr), AcceptError> {
        self.accept_with(Wait::None)
    }

    /// Returns the stack of the listener, for more listeners and associations.
    pub fn stack(&self) -> Stack {
        self.shared.stack().clone()
    }

    fn accept_with(&self, wait: Wait) -> Result<(Association, SocketAddr), AcceptError> {
        loop {
            if let Some((shared, peer)) = self.shared.take(self.shared.socket().getmsg(wait)?)? {
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
        self.listen_with(port, &self.options.listener)
    }

    /// Listens on an SCTP port with these options instead of [`StackOptions::listener`]; port 0 chooses a free one.
    ///
    /// ```
    /// # use swiftwater::{ListenerOptions, Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// let listener = stack.listen_with(7, &ListenerOptions::default().with_backlog(16))?;
    /// assert_eq!(listener.local_addr().port(), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Stack::listen`] does.
    pub fn listen_with(&self, port: u16, options: &ListenerOptions) -> Result<Listener, BindError> {
        self.check_addresses()?;
        Ok(Listener { shared: Arc::new(SharedListener::on(self, port, options)?) })
    }
}
