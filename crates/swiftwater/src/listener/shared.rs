//! The state that the clones of a listener share.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sctp::AssociationConfig;
use tpi::{Primitive, Which};

use crate::address::Address;
use crate::association::SharedAssociation;
use crate::error::{AcceptError, BindError, Loss, OptionsError};
use crate::options::{AssociationOptions, ListenerOptions};
use crate::socket::{Found, Socket, Style};
use crate::stack::Stack;

/// The largest backlog: the next number would make the stream a one-to-many endpoint.
const BACKLOG_MAX: u32 = providers::SctpDriver::ONE_TO_MANY - 1;

/// The state that all clones of a listener share.
#[derive(Debug)]
pub(crate) struct SharedListener {
    socket: Socket,
    stack: Stack,
    port: u16,
    /// Configuration of associations that are set up from now on. The lock is held while the core gets a change, so the core
    /// has the same.
    config: Mutex<AssociationConfig>,
}

impl SharedListener {
    /// Returns the first local address of the listener, with its SCTP port: as in [`std::net`], `0.0.0.0` or `[::]` if it is
    /// bound to all addresses of the host.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.stack.addr_of(&self.scope(), self.port)
    }

    /// Returns all local addresses of the listener with their SCTP and UDP port, as a client on this host would name them.
    pub(crate) fn address(&self) -> Address {
        self.stack.address_of(&self.scope(), self.port)
    }

    /// Returns the stack of the listener.
    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns the options of associations that are accepted from now on.
    pub(crate) fn options(&self) -> AssociationOptions {
        AssociationOptions::of(&self.config())
    }

    /// Replaces the options of associations that are accepted from now on.
    pub(crate) fn set_options(&self, options: &AssociationOptions) -> Result<(), OptionsError> {
        self.replace_options(&mut self.config(), options)
    }

    /// Changes single options of associations that are accepted from now on; the others stay, even if another thread changes them
    /// at the same time.
    pub(crate) fn update_options(
        &self,
        mut change: impl FnMut(&mut AssociationOptions),
    ) -> Result<(), OptionsError> {
        loop {
            let before = self.options();
            let mut options = before.clone();
            // Foreign code, which may call this listener.
            change(&mut options);
            let mut config = self.config();
            if AssociationOptions::of(&config) == before {
                return self.replace_options(&mut config, &options);
            }
        }
    }

    /// Listens at these addresses of the stack from now on, as after
    /// [`Stack::with_local_addresses`](crate::Stack::with_local_addresses).
    pub(crate) fn set_local_addresses(&self, local_addresses: &[IpAddr]) -> Result<(), BindError> {
        let mut config = self.config();
        let changed = AssociationConfig { local_addresses: local_addresses.to_vec(), ..config.clone() };
        // After a fault the listener is closed and accepts no more associations.
        if self.change(changed.clone()) == Some(false) {
            return Err(BindError::PortInUse { port: self.port });
        }
        *config = changed;
        Ok(())
    }

    /// Sets how many associations may wait to be accepted; 0 counts as 1.
    pub(crate) fn set_backlog(&self, backlog: u32) {
        let (stream, backlog) = (self.socket.stream, backlog.clamp(1, BACKLOG_MAX));
        // After a fault the listener is closed and accepts no more associations.
        let _ = self.socket.command(|driver, _| driver.set_backlog(stream, backlog));
    }
}

impl SharedListener {
    pub(crate) fn on(
        stack: &Stack,
        port: u16,
        options: &ListenerOptions,
    ) -> Result<SharedListener, BindError> {
        let config = stack.listener_config(options);
        let backlog = options.backlog.clamp(1, BACKLOG_MAX);
        let (socket, port) = stack.open_bound(port, backlog, config.clone())?;
        Ok(SharedListener { socket, stack: stack.clone(), port, config: Mutex::new(config) })
    }

    /// Accepts the association that a read has found, if any.
    pub(crate) fn take(
        &self,
        found: Found<streams::Message>,
    ) -> Result<Option<(Arc<SharedAssociation>, SocketAddr)>, AcceptError> {
        let (sequence, addresses) = match found {
            Found::Primitive(Primitive::ConnInd { sequence, addresses }, _) => (sequence, addresses),
            Found::Primitive(..) | Found::Data(_) => return Ok(None),
            Found::End => return Err(AcceptError::Failed(Loss::fault("the listener was closed"))),
        };
        let failed = |why: &str| AcceptError::Failed(Loss::fault(why));
        let peer = *addresses.list.first().ok_or_else(|| failed("the provider named no peer"))?;
        let opened = Socket::open(&self.stack.shard, Style::OneToOne);
        let socket = opened.map_err(|errno| failed(&errno.to_string()))?;
        socket.publish_listener_config(&self.config());
        let acceptor = socket.stream.index() as u32;
        match self.socket.ask(Primitive::ConnRes { sequence, acceptor }) {
            Ok(Primitive::OkAck { .. }) => Ok(Some((SharedAssociation::accepted(socket, peer), peer))),
            Ok(Primitive::ErrorAck { t_error, .. }) => Err(failed(&t_error.to_string())),
            Ok(_) => Err(failed("the provider gave no answer; please report it")),
            Err(error) => Err(failed(&error.to_string())),
        }
    }

    /// Returns the addresses to which the listener is restricted; none for all addresses of the sockets.
    fn scope(&self) -> Vec<IpAddr> {
        self.config().local_addresses.clone()
    }

    fn config(&self) -> MutexGuard<'_, AssociationConfig> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace_options(
        &self,
        config: &mut AssociationConfig,
        options: &AssociationOptions,
    ) -> Result<(), OptionsError> {
        let limits = ListenerOptions {
            refuse_beyond_backlog: config.refuse_beyond_backlog,
            associations_max: config.listener_associations_max,
            shares_port: config.shares_port,
            distinct_peers: config.distinct_peers,
            ..ListenerOptions::default()
        };
        let changed = options.config(&limits, &config.local_addresses, config.trace);
        // The addresses stay, so that no other listener can have them.
        self.change(changed.clone()).ok_or(OptionsError::Closed)?;
        *config = changed;
        Ok(())
    }

    /// Changes the configuration of future associations. Returns false if another listener has one of the addresses, `None` if a
    /// fault has closed the listener.
    fn change(&self, config: AssociationConfig) -> Option<bool> {
        let stream = self.socket.stream;
        self.socket.command(|driver, cx| driver.change_config(cx, stream, Which::Only, config))
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }
}
