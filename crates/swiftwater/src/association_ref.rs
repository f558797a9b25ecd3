//! Calls on one association of a stream that the provider answers at once.

use std::net::{IpAddr, SocketAddr};

use sctp::{AssociationView, PathError, PathId, PathOptions, Statistics};
use streams::Which;

use crate::address::Address;
use crate::error::OptionsError;
use crate::options::{AssociationOptions, ListenerOptions};
use crate::socket::Socket;

/// An association of a stream.
pub(crate) struct AssociationRef<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) association: Which,
}

impl AssociationRef<'_> {
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        self.socket
            .shard
            .with_driver(|driver| driver.statistics(self.socket.stream, self.association))
            .flatten()
    }

    /// Reads the association; returns `None` once it has ended.
    pub(crate) fn view<R>(&self, read: impl FnOnce(AssociationView<'_>) -> R) -> Option<R> {
        let (stream, association) = (self.socket.stream, self.association);
        self.socket.shard.with_driver(|driver| driver.view(stream, association).map(read)).flatten()
    }

    pub(crate) fn options(&self) -> Option<AssociationOptions> {
        let config =
            self.socket.shard.with_driver(|driver| driver.config(self.socket.stream, self.association));
        config.flatten().map(|config| AssociationOptions::of(&config))
    }

    /// Replaces the options of the association, either all or none of them.
    pub(crate) fn set_options(&self, options: &AssociationOptions) -> Result<(), OptionsError> {
        let changed = self.socket.change_config(self.association, |current| {
            options.check_fixed(&AssociationOptions::of(current))?;
            Ok(options.config(&ListenerOptions::default(), &[], current.trace))
        });
        changed.unwrap_or(Err(OptionsError::Closed))
    }

    /// Changes options of the association. `change` is foreign code, so it is called outside the perimeter, and again if other
    /// options were set meanwhile.
    pub(crate) fn update_options(
        &self,
        mut change: impl FnMut(&mut AssociationOptions),
    ) -> Result<(), OptionsError> {
        loop {
            let before = self.options().ok_or(OptionsError::Closed)?;
            let mut options = before.clone();
            change(&mut options);
            let changed = self.socket.change_config(self.association, |current| {
                let current_options = AssociationOptions::of(current);
                if current_options != before {
                    return Err(None);
                }
                options.check_fixed(&current_options).map_err(Some)?;
                Ok(options.config(&ListenerOptions::default(), &[], current.trace))
            });
            match changed {
                Some(Err(None)) => {}
                Some(Err(Some(error))) => return Err(error),
                Some(Ok(())) => return Ok(()),
                None => return Err(OptionsError::Closed),
            }
        }
    }

    pub(crate) fn abort(&self, reason: &[u8]) {
        let (stream, association) = (self.socket.stream, self.association);
        // An association that has ended needs no ABORT.
        let _ = self.socket.command(|driver, cx| driver.abort(cx, stream, association, reason));
    }

    pub(crate) fn set_path(&self, address: Option<IpAddr>, options: &PathOptions) -> Result<(), PathError> {
        let set = self.socket.command(|driver, cx| {
            driver.set_path(cx, self.socket.stream, self.association, address, options)
        });
        set.unwrap_or(Err(PathError::Closed))
    }

    pub(crate) fn set_primary(&self, address: IpAddr) -> Result<(), PathError> {
        let set = self
            .socket
            .command(|driver, cx| driver.set_primary(cx, self.socket.stream, self.association, address));
        set.unwrap_or(Err(PathError::Closed))
    }

    pub(crate) fn path_to(&self, address: IpAddr) -> Option<PathId> {
        self.socket
            .shard
            .with_driver(|driver| driver.path_to(self.socket.stream, self.association, address))
            .flatten()
    }

    pub(crate) fn peer(&self) -> Option<Address> {
        let found = self
            .socket
            .shard
            .with_driver(|driver| driver.peer_addresses(self.socket.stream, self.association));
        let (list, port) = found.flatten()?;
        Some(Address {
            hosts: list.iter().map(SocketAddr::ip).collect(),
            port,
            udp_port: list.first().map(SocketAddr::port).filter(|port| *port != 0),
        })
    }

    /// Returns the peer's address of the primary path, with the peer's SCTP port.
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        self.view(|view| SocketAddr::new(view.primary().remote().ip().to_canonical(), view.ports().1))
    }

    /// Returns the local address of the primary path, with our SCTP port.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        let address = self.view(|view| {
            let ip = view.primary().local().or_else(|| view.local_addresses().first().copied())?;
            Some(SocketAddr::new(ip.to_canonical(), view.ports().0))
        });
        address.flatten()
    }

    pub(crate) fn local_ips(&self) -> Vec<IpAddr> {
        self.socket
            .shard
            .with_driver(|driver| driver.local_addresses(self.socket.stream, self.association))
            .flatten()
            .unwrap_or_default()
    }
}
