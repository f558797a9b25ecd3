//! The associations whose outbound messages are being relayed, by their ends: so that one end of an association between two
//! programs finds the other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use super::association::SocketAssociation;

/// Our port of an association, and the peer's address.
pub(super) type Ends = (u16, SocketAddr);

/// Returns the ends of an association from a local port to a peer.
pub(super) fn ends(port: u16, host: IpAddr, peer_port: u16) -> Ends {
    (port, SocketAddr::new(host.to_canonical(), peer_port))
}

/// The associations of all sockets whose outbound messages are being relayed. `S` is the type of the sockets.
pub(crate) struct Relayed<S> {
    by_ends: RefCell<HashMap<Ends, (Weak<S>, u32)>>,
}

impl<S> Default for Relayed<S> {
    fn default() -> Self {
        Relayed { by_ends: RefCell::default() }
    }
}

/// The entries of one association; removed when this is dropped.
pub(crate) struct RelayedEntries<S> {
    table: Rc<Relayed<S>>,
    id: u32,
    all: Vec<Ends>,
}

impl<S> Relayed<S> {
    /// Enters an association of a socket with each address of its peer.
    pub(crate) fn enter(self: &Rc<Self>, socket: &Rc<S>, assoc: &SocketAssociation) -> RelayedEntries<S> {
        let (port, peer_port) = assoc.ports();
        let hosts = assoc.association().map(|association| association.peer_ips()).unwrap_or_default();
        let all: Vec<Ends> = hosts.into_iter().map(|host| ends(port, host, peer_port)).collect();
        let mut by_ends = self.by_ends.borrow_mut();
        by_ends.extend(all.iter().map(|ends| (*ends, (Rc::downgrade(socket), assoc.id()))));
        RelayedEntries { table: Rc::clone(self), id: assoc.id(), all }
    }

    /// Returns the socket and the number of the other end of an association, if that is a socket of this daemon.
    pub(crate) fn other_end(&self, assoc: &SocketAssociation) -> Option<(Rc<S>, u32)> {
        let local = assoc.association()?.local_addr()?;
        let (_, peer_port) = assoc.ports();
        let found = self.by_ends.borrow().get(&ends(peer_port, local.ip(), local.port())).cloned();
        let (socket, id) = found?;
        Some((socket.upgrade()?, id))
    }
}

impl<S> Drop for RelayedEntries<S> {
    fn drop(&mut self) {
        let mut by_ends = self.table.by_ends.borrow_mut();
        for ends in &self.all {
            if by_ends.get(ends).is_some_and(|(_, id)| *id == self.id) {
                by_ends.remove(ends);
            }
        }
    }
}
