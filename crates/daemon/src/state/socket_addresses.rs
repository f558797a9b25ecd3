//! The addresses of a socket: those that it is bound to, and the ends of its association.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};

/// Bound addresses, at least one, and their port. The unspecified address stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    ips: Vec<IpAddr>,
    port: u16,
}

impl Bound {
    /// Returns these addresses, at least one, at a port.
    pub(crate) fn new(ips: Vec<IpAddr>, port: u16) -> Self {
        Self { ips, port }
    }

    pub(super) fn at_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Returns the addresses in the order in which the program has named them.
    pub(crate) fn ips(&self) -> &[IpAddr] {
        &self.ips
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address that was named first.
    pub(crate) fn first(&self) -> SocketAddr {
        SocketAddr::new(self.ips[0], self.port)
    }

    /// Returns whether one of the addresses stands for all of its family.
    pub(crate) fn has_wildcard(&self) -> bool {
        self.ips.iter().any(IpAddr::is_unspecified)
    }

    /// Removes an address. Returns `None` if there is no such address; the only address stays.
    pub(crate) fn remove(&mut self, ip: IpAddr) -> Option<()> {
        let at = self.ips.iter().position(|own| *own == ip).filter(|_| self.ips.len() > 1)?;
        self.ips.remove(at);
        Some(())
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.ips.iter().map(|ip| SocketAddr::new(*ip, self.port))
    }
}

impl From<SocketAddr> for Bound {
    fn from(address: SocketAddr) -> Self {
        Self::new(vec![address.ip()], address.port())
    }
}

/// The addresses of a socket.
#[derive(Default)]
pub(crate) struct Addresses {
    /// The bound addresses, registered in the table of ports; `None` before.
    bound: RefCell<Option<Bound>>,
    /// The bound addresses of the listener or one-to-many socket from which this socket has its association.
    inherited: RefCell<Option<Bound>>,
    /// The number of that socket, while the table of ports registers this one as its heir.
    heir_of: Cell<Option<u64>>,
    /// The local address toward the peer.
    local: Cell<Option<SocketAddr>>,
    peer: Cell<Option<SocketAddr>>,
}

impl Addresses {
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.borrow().is_some()
    }

    pub(crate) fn bound(&self) -> Option<Bound> {
        self.bound.borrow().clone()
    }

    /// Returns the bound addresses, or those inherited from another socket.
    pub(crate) fn bound_or_inherited(&self) -> Option<Bound> {
        self.bound().or_else(|| self.inherited.borrow().clone())
    }

    /// Returns the number of bound addresses, or of those inherited; 1 if they stand for all.
    pub(super) fn count(&self) -> usize {
        self.bound_or_inherited().filter(|bound| !bound.has_wildcard()).map_or(1, |bound| bound.ips.len())
    }

    /// Returns the address of this end: that toward the peer, otherwise the first bound one.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.local.get().or_else(|| self.bound.borrow().as_ref().map(Bound::first))
    }

    /// Returns the bound addresses, otherwise that toward the peer.
    pub(crate) fn all_local(&self) -> Vec<SocketAddr> {
        match &*self.bound.borrow() {
            Some(bound) => bound.addresses().collect(),
            None => self.local.get().into_iter().collect(),
        }
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer.get()
    }

    pub(super) fn on_bound(&self, bound: Bound) {
        *self.bound.borrow_mut() = Some(bound);
    }

    /// Forgets the bound addresses; returns them.
    pub(super) fn on_released(&self) -> Option<Bound> {
        self.bound.borrow_mut().take()
    }

    pub(super) fn on_connecting(&self, local: Option<SocketAddr>, peer: SocketAddr) {
        self.local.set(local);
        self.peer.set(Some(peer));
    }

    pub(super) fn on_connect_failed(&self) {
        self.peer.set(None);
    }

    /// Forgets that this socket holds the port of another one; returns the number of that one, and the port.
    pub(super) fn on_inheritance_released(&self) -> Option<(u64, u16)> {
        let from = self.heir_of.take()?;
        Some((from, self.inherited.borrow().as_ref()?.port()))
    }

    /// Records the ends of an association that another socket had, with the number of that socket and its bound addresses.
    pub(super) fn on_adopted(
        &self,
        inherited: Option<(u64, Bound)>,
        local: Option<SocketAddr>,
        peer: SocketAddr,
    ) {
        let (from, bound) = inherited.unzip();
        self.heir_of.set(from);
        *self.inherited.borrow_mut() = bound;
        self.local.set(local);
        self.peer.set(Some(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_stand_for_all_count_as_one() {
        let addresses = Addresses::default();
        assert_eq!(addresses.count(), 1);
        addresses.on_bound(Bound::new(vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into()], 7));
        assert_eq!(addresses.count(), 2);
        addresses.on_bound(Bound::from(SocketAddr::from(([0, 0, 0, 0], 7))));
        assert_eq!(addresses.count(), 1);
    }

    #[test]
    fn the_only_bound_address_stays() {
        let [first, second]: [IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
        assert_eq!(Bound::from(SocketAddr::new(first, 7)).remove(first), None);
        let mut bound = Bound::new(vec![first, second], 7);
        assert_eq!((bound.remove(first), bound.remove(first), bound.remove(second)), (Some(()), None, None));
        assert_eq!(bound.first(), SocketAddr::new(second, 7));
    }
}
