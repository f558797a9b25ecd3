//! Listeners: several may share a port, each at addresses of its own.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use super::listener_index::ListenerIndex;
use crate::config::AssociationConfig;
use crate::identifiers::ListenerId;
use crate::local_addresses::LocalAddresses;

#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) id: ListenerId,
    port: u16,
    pub(super) local: LocalAddresses,
    pub(super) config: Arc<AssociationConfig>,
}

/// All listeners.
///
/// A program may have thousands of listeners on one port, with many addresses each. So the index of the port finds the listener
/// of a packet, and those that exclude another one, by a few searches for each address that the packet or the other one has.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    by_id: HashMap<ListenerId, Listener>,
    by_port: HashMap<u16, ListenerIndex>,
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
        if self.on(port).is_some_and(|index| index.excludes(&local, config.shares_port)) {
            return None;
        }
        let id = ListenerId(self.next);
        self.next = self.next.wrapping_add(1);
        self.enter(Listener { id, port, local, config: Arc::new(config) });
        Some(id)
    }

    pub(super) fn remove(&mut self, id: ListenerId) {
        self.take(id);
    }

    /// Changes the options and addresses of a listener. Returns false if another listener on its port has one of the addresses.
    pub(super) fn change(
        &mut self,
        id: ListenerId,
        local: LocalAddresses,
        config: AssociationConfig,
    ) -> bool {
        let Some(old) = self.take(id) else { return false };
        let port = old.port;
        let is_excluded = self.on(port).is_some_and(|index| index.excludes(&local, config.shares_port));
        self.enter(if is_excluded { old } else { Listener { id, port, local, config: Arc::new(config) } });
        !is_excluded
    }

    /// Updates the listeners that are not restricted to addresses of their own.
    pub(super) fn set_all_addresses(&mut self, all: &Arc<[IpAddr]>) {
        for listener in self.by_id.values_mut() {
            listener.local = LocalAddresses::new(&listener.config.local_addresses, all);
        }
    }

    fn enter(&mut self, listener: Listener) {
        let index = self.by_port.entry(listener.port).or_default();
        index.insert(listener.id, &listener.local, listener.config.shares_port);
        self.by_id.insert(listener.id, listener);
    }

    fn take(&mut self, id: ListenerId) -> Option<Listener> {
        let listener = self.by_id.remove(&id)?;
        let index = self.by_port.get_mut(&listener.port)?;
        index.remove(id, &listener.local, listener.config.shares_port);
        if index.is_empty() {
            self.by_port.remove(&listener.port);
        }
        Some(listener)
    }

    fn on(&self, port: u16) -> Option<&ListenerIndex> {
        self.by_port.get(&port)
    }

    /// Returns the listener at a local address. If several share it, the peer's address and port select one, so that a whole
    /// handshake reaches the same listener.
    pub(super) fn at(&self, port: u16, local: Option<IpAddr>, peer: (IpAddr, u16)) -> Option<&Listener> {
        let serving = self.on(port)?.serving(local);
        let id = match serving.count() {
            0 => None,
            1 => serving.nth(0),
            several => serving.nth((hash(peer) % several as u64) as usize),
        };
        self.by_id.get(&id?)
    }

    /// Returns whether there is a listener at a local address.
    pub(super) fn serve(&self, port: u16, local: Option<IpAddr>) -> bool {
        self.on(port).is_some_and(|index| index.serving(local).count() > 0)
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.by_port.keys().copied()
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
