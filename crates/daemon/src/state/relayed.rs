//! The associations whose outbound messages are being relayed, by their ends: so that one end of an association between two
//! programs finds the other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use super::association::SocketAssociation;
use super::socket::Socket;

/// Our port of an association, and the peer's address.
pub(super) type Ends = (u16, SocketAddr);

/// Returns the ends of an association from a local port to a peer.
pub(super) fn ends(port: u16, host: IpAddr, peer_port: u16) -> Ends {
    (port, SocketAddr::new(host.to_canonical(), peer_port))
}

/// The associations of all sockets whose outbound messages are being relayed.
#[derive(Default)]
pub(crate) struct Relayed {
    by_ends: RefCell<HashMap<Ends, (Weak<Socket>, u32)>>,
}

/// The entries of one association; removed when this is dropped.
pub(crate) struct RelayedEntries {
    table: Rc<Relayed>,
    id: u32,
    all: Vec<Ends>,
}

impl Relayed {
    /// Enters an association of a socket with each address of its peer.
    pub(crate) fn enter(self: &Rc<Self>, socket: &Rc<Socket>, assoc: &SocketAssociation) -> RelayedEntries {
        let (port, peer_port) = assoc.ports();
        let hosts = assoc.association().map(|association| association.peer_addresses()).unwrap_or_default();
        let all: Vec<Ends> = hosts.into_iter().map(|host| ends(port, host, peer_port)).collect();
        let mut by_ends = self.by_ends.borrow_mut();
        by_ends.extend(all.iter().map(|ends| (*ends, (Rc::downgrade(socket), assoc.id))));
        RelayedEntries { table: Rc::clone(self), id: assoc.id, all }
    }

    /// Returns the other end of an association, with its socket, if that is a socket of this daemon.
    pub(crate) fn other_end(&self, assoc: &SocketAssociation) -> Option<(Rc<Socket>, Rc<SocketAssociation>)> {
        let local = assoc.association()?.local_addr()?;
        let (_, peer_port) = assoc.ports();
        let found = self.by_ends.borrow().get(&ends(peer_port, local.ip(), local.port())).cloned();
        let (socket, id) = found?;
        let socket = socket.upgrade()?;
        let other = socket.inner().associations.get(&id).cloned()?;
        Some((socket, other))
    }
}

impl Drop for RelayedEntries {
    fn drop(&mut self) {
        let mut by_ends = self.table.by_ends.borrow_mut();
        for ends in &self.all {
            if by_ends.get(ends).is_some_and(|(_, id)| *id == self.id) {
                by_ends.remove(ends);
            }
        }
    }
}
