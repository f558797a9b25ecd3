//! Who listens: on one port several may, each at addresses of its own.

use std::collections::HashMap;
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
    /// None: another has one of these addresses on that port.
    pub(super) fn insert(
        &mut self,
        port: u16,
        local: LocalAddresses,
        config: AssociationConfig,
    ) -> Option<ListenerId> {
        if self.on(port).iter().any(|listener| listener.local.overlap(&local)) {
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

    /// Gives a listener other settings, and with them other addresses. False: another one on its port has one of those.
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
        if listeners.iter().any(|other| other.id != id && other.local.overlap(&local)) {
            return false;
        }
        if let Some(listener) = listeners.iter_mut().find(|listener| listener.id == id) {
            *listener = Listener { id, local, config: Arc::new(config) };
        }
        true
    }

    /// The endpoint has these addresses now.
    pub(super) fn set_all_addresses(&mut self, all: &Arc<[IpAddr]>) {
        for listener in self.by_port.values_mut().flatten() {
            listener.local = LocalAddresses::new(&listener.config.local_addresses, all);
        }
    }

    fn on(&self, port: u16) -> &[Listener] {
        self.by_port.get(&port).map_or(&[], |listeners| listeners)
    }

    /// Who listens at an address of ours.
    pub(super) fn at(&self, port: u16, local: Option<IpAddr>) -> Option<&Listener> {
        self.on(port).iter().find(|listener| listener.local.serve(local))
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.by_port.keys().copied()
    }
}
