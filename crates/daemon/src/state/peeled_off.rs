//! The associations that were peeled off one one-to-many socket. The socket sets up no second association with their peers.

use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use super::association::SocketAssociation;
use super::latest::{Entries, Latest};

/// The associations that were peeled off a socket, by the confirmed addresses of their peers. Sockets of others have no part in
/// it, whatever their ports, nor do hosts that a peer has listed as its addresses.
#[derive(Default)]
pub(crate) struct PeeledOff {
    /// The latest association with each address: the stack has only one at a time.
    by_peer: Rc<Latest<SocketAddr, Weak<SocketAssociation>>>,
}

/// The entries of one association.
pub(super) type PeeledOffEntries = Entries<SocketAddr, Weak<SocketAssociation>>;

impl PeeledOff {
    /// Enters an association that becomes a socket of its own.
    pub(super) fn enter(&self, assoc: &Rc<SocketAssociation>) -> PeeledOffEntries {
        let (_, port) = assoc.ports();
        let hosts = assoc.confirmed_hosts();
        let keys = hosts.into_iter().map(|host| SocketAddr::new(host, port)).collect();
        self.by_peer.enter(keys, &Rc::downgrade(assoc))
    }

    /// Returns whether an association with a peer that has one of these addresses was peeled off and has not ended.
    pub(crate) fn has(&self, hosts: &[IpAddr], port: u16) -> bool {
        let with = |host: &IpAddr| self.by_peer.get(&SocketAddr::new(host.to_canonical(), port))?.upgrade();
        let mut found = hosts.iter().filter_map(with);
        found.any(|assoc| !assoc.has_ended())
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.by_peer.count()
    }
}
