//! The associations that were peeled off one one-to-many socket. The socket sets up no second association with their peers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use super::association::SocketAssociation;

/// The associations that were peeled off a socket, by the confirmed addresses of their peers. Sockets of others have no part in
/// it, whatever their ports, nor do hosts that a peer has listed as its addresses.
#[derive(Default)]
pub(crate) struct PeeledOff {
    /// The latest association with each address: the stack has only one at a time.
    by_peer: RefCell<HashMap<SocketAddr, Weak<SocketAssociation>>>,
}

/// The entries of one association; removed when this is dropped.
pub(super) struct PeeledOffEntries {
    table: Rc<PeeledOff>,
    assoc: Weak<SocketAssociation>,
    keys: Vec<SocketAddr>,
}

impl PeeledOff {
    /// Enters an association that becomes a socket of its own.
    pub(super) fn enter(self: &Rc<Self>, assoc: &Rc<SocketAssociation>) -> PeeledOffEntries {
        let (_, port) = assoc.ports();
        let hosts = assoc.confirmed_hosts();
        let keys: Vec<_> = hosts.into_iter().map(|host| SocketAddr::new(host, port)).collect();
        let assoc = Rc::downgrade(assoc);
        let mut by_peer = self.by_peer.borrow_mut();
        by_peer.extend(keys.iter().map(|key| (*key, Weak::clone(&assoc))));
        PeeledOffEntries { table: Rc::clone(self), assoc, keys }
    }

    /// Returns whether an association with a peer that has one of these addresses was peeled off and has not ended.
    pub(crate) fn has(&self, hosts: &[IpAddr], port: u16) -> bool {
        let by_peer = self.by_peer.borrow();
        let with = |host: &IpAddr| by_peer.get(&SocketAddr::new(host.to_canonical(), port));
        let mut found = hosts.iter().filter_map(with).filter_map(Weak::upgrade);
        found.any(|assoc| !assoc.has_ended())
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.by_peer.borrow().len()
    }
}

impl Drop for PeeledOffEntries {
    fn drop(&mut self) {
        let mut by_peer = self.table.by_peer.borrow_mut();
        for key in &self.keys {
            if by_peer.get(key).is_some_and(|latest| latest.ptr_eq(&self.assoc)) {
                by_peer.remove(key);
            }
        }
    }
}
