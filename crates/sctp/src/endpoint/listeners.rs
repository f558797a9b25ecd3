//! Listeners: several may share a port, each at addresses of its own.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::config::AssociationConfig;
use crate::identifiers::ListenerId;
use crate::local_addresses::LocalAddresses;

#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) id: ListenerId,
    pub(super) local: LocalAddresses,
    pub(super) config: Arc<AssociationConfig>,
}

/// All listeners.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    by_port: HashMap<u16, SmallVec<[Listener; 1]>>,
    next: u32,
}

impl Listeners {
    /// Adds a listener. Returns `None` if another listener has one of these addresses on that port, unless both share it.
    pub(super) fn insert(
        &mut self,
        port: u16,
        local: LocalAddresses,
        config: AssociationConfig,
    ) -> Option<ListenerId> {
        if self.on(port).iter().any(|other| other.excludes(&local, &config)) {
            return None;
        }
        let id = ListenerId(self.next);
        self.next = self.next.wrapping_add(1);
        let listener = Listener { id, local, config: Arc::new(config) };
        self.by_port.entry(port).or_default().push(listener);
        Some(id)
    }

    pub(super) fn remove(&mut self, id: ListenerId) {
        self.by_port.retain(|_, listeners| {
            listeners.retain(|listener| listener.id != id);
            !listeners.is_empty()
        });
    }

    /// Changes the options and addresses of a listener. Returns false if another listener on its port has one of the addresses.
    pub(super) fn change(
        &mut self,
        id: ListenerId,
        local: LocalAddresses,
        config: AssociationConfig,
    ) -> bool {
        let mut of_port = self.by_port.values_mut();
        let Some(listeners) = of_port.find(|l| l.iter().any(|listener| listener.id == id)) else {
            return false;
        };
        if listeners.iter().any(|other| other.id != id && other.excludes(&local, &config)) {
            return false;
        }
        if let Some(listener) = listeners.iter_mut().find(|listener| listener.id == id) {
            *listener = Listener { id, local, config: Arc::new(config) };
        }
        true
    }

    /// Updates the listeners that are not restricted to addresses of their own.
    pub(super) fn set_all_addresses(&mut self, all: &Arc<[IpAddr]>) {
        for listener in self.by_port.values_mut().flatten() {
            listener.local = LocalAddresses::new(&listener.config.local_addresses, all);
        }
    }

    fn on(&self, port: u16) -> &[Listener] {
        self.by_port.get(&port).map_or(&[], |listeners| listeners)
    }

    /// Returns the listener at a local address. If several share it, the peer's address and port select one, so that a whole
    /// handshake reaches the same listener.
    pub(super) fn at(&self, port: u16, local: Option<IpAddr>, peer: (IpAddr, u16)) -> Option<&Listener> {
        let serving = || self.on(port).iter().filter(|listener| listener.local.serve(local));
        match serving().count() {
            0 => None,
            1 => serving().next(),
            several => serving().nth((hash(peer) % several as u64) as usize),
        }
    }

    /// Returns whether there is a listener at a local address.
    pub(super) fn serve(&self, port: u16, local: Option<IpAddr>) -> bool {
        self.on(port).iter().any(|listener| listener.local.serve(local))
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.by_port.keys().copied()
    }
}

impl Listener {
    /// Returns whether another listener cannot have these addresses on the same port.
    fn excludes(&self, local: &LocalAddresses, config: &AssociationConfig) -> bool {
        self.local.overlap(local) && !(self.config.shares_port && config.shares_port)
    }
}

/// Hashes a peer's address and port. A peer that chooses its port chooses the listener; that is harmless, because listeners that
/// share a port serve the same peers.
fn hash(peer: (IpAddr, u16)) -> u64 {
    let mut hasher = DefaultHasher::new();
    peer.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 7;

    fn config(shares_port: bool) -> AssociationConfig {
        AssociationConfig { shares_port, ..AssociationConfig::default() }
    }

    fn insert(listeners: &mut Listeners, shares_port: bool) -> Option<ListenerId> {
        listeners.insert(PORT, LocalAddresses::default(), config(shares_port))
    }

    #[test]
    fn only_listeners_that_share_a_port_have_the_same() {
        let mut listeners = Listeners::default();
        let first = insert(&mut listeners, true).expect("no listener is there");
        assert_eq!(insert(&mut listeners, false), None);
        let second = insert(&mut listeners, true).expect("both share");
        assert!(!listeners.change(first, LocalAddresses::default(), config(false)), "the other is there");
        listeners.remove(second);
        assert!(listeners.change(first, LocalAddresses::default(), config(false)));
        assert_eq!(insert(&mut listeners, true), None);
    }

    #[test]
    fn peers_are_spread_over_listeners_and_stay_with_theirs() {
        let mut listeners = Listeners::default();
        let both = [true, true].map(|shares| insert(&mut listeners, shares).expect("both share"));
        let chosen = |listeners: &Listeners, port| {
            let peer = (IpAddr::from([192, 0, 2, 1]), port);
            listeners.at(PORT, None, peer).expect("it listens").id
        };
        let of_first = (1..1000).filter(|port| chosen(&listeners, *port) == both[0]).count();
        assert!((300..700).contains(&of_first), "{of_first}");
        assert!((1..1000).all(|port| chosen(&listeners, port) == chosen(&listeners, port)));
        listeners.remove(both[0]);
        assert!((1..1000).all(|port| chosen(&listeners, port) == both[1]));
    }
}
