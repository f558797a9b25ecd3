//! The associations whose outbound messages are being relayed, by their addresses: so that one end of an association between two
//! programs finds the other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use channel_protocol::assoc_id::AssocId;
use swiftwater::internals::AssociationView;

use super::association::SocketAssociation;

/// Key of an association at one of its ends: the port of this end, and an address of the other end.
pub(super) type AssociationKey = (u16, SocketAddr);

/// Returns the key of an association from a local port to a peer.
pub(super) fn association_key(port: u16, host: IpAddr, peer_port: u16) -> AssociationKey {
    (port, SocketAddr::new(host.to_canonical(), peer_port))
}

/// The associations of all sockets whose outbound messages are being relayed. `S` is the type of the sockets.
pub(crate) struct Relayed<S> {
    /// Sockets that are bound to different addresses may have associations with the same key.
    by_key: RefCell<HashMap<AssociationKey, Vec<Entry<S>>>>,
}

/// An association of a socket.
struct Entry<S> {
    socket: Weak<S>,
    id: AssocId,
    local: Rc<[IpAddr]>,
}

impl<S> Default for Relayed<S> {
    fn default() -> Self {
        Relayed { by_key: RefCell::default() }
    }
}

/// The entries of one association; removed when this is dropped.
pub(crate) struct RelayedEntries<S> {
    table: Rc<Relayed<S>>,
    id: AssocId,
    keys: Vec<AssociationKey>,
}

impl<S> Relayed<S> {
    /// Enters an association of a socket with each address of its peer.
    pub(crate) fn enter(self: &Rc<Self>, socket: &Rc<S>, assoc: &SocketAssociation) -> RelayedEntries<S> {
        let ends = assoc.view(Ends::of).unwrap_or_default();
        let (port, peer_port) = ends.ports;
        let mut keys: Vec<_> = ends.peer.iter().map(|host| association_key(port, *host, peer_port)).collect();
        keys.dedup();
        let local: Rc<[IpAddr]> = ends.local.into();
        let mut by_key = self.by_key.borrow_mut();
        for key in &keys {
            let entry = Entry { socket: Rc::downgrade(socket), id: assoc.id(), local: Rc::clone(&local) };
            by_key.entry(*key).or_default().push(entry);
        }
        RelayedEntries { table: Rc::clone(self), id: assoc.id(), keys }
    }

    /// Returns the socket and the number of the other end of an association, if that is a socket of this daemon. Each end has an
    /// address of its own that the other knows as its peer's.
    pub(crate) fn other_end(&self, assoc: &SocketAssociation) -> Option<(Rc<S>, AssocId)> {
        let ends = assoc.view(Ends::of)?;
        let (port, peer_port) = ends.ports;
        let by_key = self.by_key.borrow();
        let keys = ends.local.iter().map(|ip| association_key(peer_port, *ip, port));
        let mut candidates = keys.filter_map(|key| by_key.get(&key)).flatten();
        let is_other =
            |entry: &&Entry<S>| entry.id != assoc.id() && entry.local.iter().any(|ip| ends.peer.contains(ip));
        let found = candidates.find(is_other)?;
        Some((found.socket.upgrade()?, found.id))
    }
}

impl<S> Drop for RelayedEntries<S> {
    fn drop(&mut self) {
        let mut by_key = self.table.by_key.borrow_mut();
        for key in &self.keys {
            if let Some(entries) = by_key.get_mut(key) {
                entries.retain(|entry| entry.id != self.id);
                if entries.is_empty() {
                    by_key.remove(key);
                }
            }
        }
    }
}

/// The addresses and ports of an association, as one of its ends knows them.
#[derive(Default)]
struct Ends {
    local: Vec<IpAddr>,
    peer: Vec<IpAddr>,
    /// SCTP ports of this end and of the peer.
    ports: (u16, u16),
}

impl Ends {
    fn of(view: AssociationView<'_>) -> Ends {
        let local = view.local_addresses().into_iter().chain(view.primary().local());
        let peer = view.paths().map(|path| path.remote().ip());
        Ends {
            local: local.map(|ip| ip.to_canonical()).collect(),
            peer: peer.map(|ip| ip.to_canonical()).collect(),
            ports: view.ports(),
        }
    }
}
