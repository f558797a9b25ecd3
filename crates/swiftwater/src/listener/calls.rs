//! The calls on listeners that do not wait, for threads and tasks alike.

use std::net::{IpAddr, SocketAddr};

use crate::address::Address;
use crate::error::{BindError, OptionsError};
use crate::options::AssociationOptions;

forward! {
    crate::listener::Listener, crate::tokio::Listener:

    /// Returns the first local address of the listener, with its SCTP port: as in [`std::net`], `0.0.0.0` or `[::]` if it is
    /// bound to all addresses of the host.
    fn local_addr(&self) -> SocketAddr;

    /// Returns all local addresses of the listener with their SCTP and UDP port, as a client on this host would name them: for
    /// `0.0.0.0` and `[::]` the loopback address. If it is restricted to some addresses of its stack
    /// ([`Stack::with_local_addresses`](crate::Stack::with_local_addresses)), these alone.
    fn address(&self) -> Address;

    /// Returns the options of associations that are accepted from now on.
    fn options(&self) -> AssociationOptions;

    /// Replaces the options of associations that are accepted from now on: to change single options, see
    /// [`update_options`](Self::update_options). Accepted associations keep theirs. No handshake has negotiated anything for
    /// future associations, so options marked *fixed* may differ, too.
    example {
        /// ```
        /// # use swiftwater::{Association, AssociationOptions, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// listener.set_options(&AssociationOptions::default().with_nodelay(true))?;
        /// let client = Association::connect(listener.address())?;
        /// let (server, _) = listener.accept()?;
        /// assert!(server.options().expect("it is up").nodelay);
        /// # drop(client);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// An internal fault has closed the listener.
    }
    fn set_options(&self, options: &AssociationOptions) -> Result<(), OptionsError>;

    /// Changes single options of associations that are accepted from now on; the others stay, even if another thread changes them
    /// at the same time. `change` gets the current options. It is called again if they have changed meanwhile.
    example {
        /// ```
        /// # use swiftwater::Listener;
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// listener.update_options(|options| options.nodelay = true)?;
        /// listener.update_options(|options| options.streams_out = 64)?;
        /// assert!(listener.options().nodelay);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// Fails as [`set_options`](Self::set_options) does.
    }
    fn update_options(
        &self,
        change: impl FnMut(&mut AssociationOptions),
    ) -> Result<(), OptionsError>;

    /// Listens at these addresses of the stack from now on, as after
    /// [`Stack::with_local_addresses`](crate::Stack::with_local_addresses).
    errors {
        /// Another listener on this port has one of these addresses. Nothing has changed.
    }
    fn set_local_addresses(&self, local_addresses: &[IpAddr]) -> Result<(), BindError>;

    /// Sets how many associations may wait to be accepted; 0 counts as 1. Associations that already wait stay.
    fn set_backlog(&self, backlog: u32);
}
