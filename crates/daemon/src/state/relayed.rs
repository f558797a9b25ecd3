//! The associations of sockets, by their ends: so that one end of an association between two programs finds the other.

use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use channel_protocol::assoc_id::AssocId;
use swiftwater::PathState;
use swiftwater::internals::{AssociationView, PathView};

use super::association::SocketAssociation;
use super::latest::{Entries, Latest};

/// Maximum number of pairs of addresses by which the other end of an association is looked for.
const LOOKED_AT_MAX: usize = 64;

/// An address with SCTP port of this end of an association, and one of the peer.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// The associations of all sockets that are, or have been, up. `S` is the type of the sockets.
pub(crate) struct Relayed<S> {
    /// UDP port of the stack: a peer with another one is no socket of this daemon.
    udp_port: u16,
    /// The latest association with each pair of addresses. The peer has confirmed its own, so earlier ones have ended: the stack
    /// has only one at a time.
    by_ends: Rc<Latest<Ends, Relay<S>>>,
}

/// An association of a socket.
pub(crate) struct Relay<S> {
    socket: Weak<S>,
    id: AssocId,
}

impl<S> Clone for Relay<S> {
    fn clone(&self) -> Self {
        Relay { socket: Weak::clone(&self.socket), id: self.id }
    }
}

/// The entries of one association.
pub(crate) type RelayedEntries<S> = Entries<Ends, Relay<S>>;

impl<S> Relayed<S> {
    /// Returns an empty table for a stack with this UDP port; 0 if it sends over IP.
    pub(crate) fn new(udp_port: u16) -> Relayed<S> {
        Relayed { udp_port, by_ends: Rc::default() }
    }

    /// Enters an association of a socket with each confirmed address of its peer, and the local address of the path there.
    pub(crate) fn enter(&self, socket: &Rc<S>, assoc: &SocketAssociation) -> RelayedEntries<S> {
        let keys = assoc.view(|view| self.ends_in_use(view)).unwrap_or_default();
        self.by_ends.enter(keys, &Relay { socket: Rc::downgrade(socket), id: assoc.id() })
    }

    /// Returns the socket and the number of the other end of an association, if that is a socket of this daemon. Each end has an
    /// address of its own that the other knows as its peer's.
    pub(crate) fn other_end(&self, assoc: &SocketAssociation) -> Option<(Rc<S>, AssocId)> {
        let ends = assoc.view(|view| self.ends(view))?;
        let mut candidates = ends.iter().filter_map(|(local, peer)| self.by_ends.get(&(*peer, *local)));
        let found = candidates.find(|relay| relay.id != assoc.id())?;
        Some((found.socket.upgrade()?, found.id))
    }

    /// Returns the pairs of addresses that the paths to confirmed addresses of a peer on this stack use.
    fn ends_in_use(&self, view: AssociationView<'_>) -> Vec<Ends> {
        let paths = view.paths().filter(|path| self.may_reach(path));
        paths.filter_map(|path| Some(ends(view, path.local()?, path.remote()))).collect()
    }

    /// Returns the pairs in use, and then those of the other local addresses: the peer's socket may send to another address than
    /// when the association was set up.
    fn ends(&self, view: AssociationView<'_>) -> Vec<Ends> {
        let mut all = self.ends_in_use(view);
        let locals = view.local_addresses();
        let paths = view.paths().filter(|path| self.may_reach(path));
        let others = paths.flat_map(|path| locals.iter().map(move |local| ends(view, *local, path.remote())));
        let rest = LOOKED_AT_MAX.saturating_sub(all.len());
        all.extend(others.take(rest));
        all
    }

    /// Returns whether a path may lead to a socket of this daemon. A peer may list the addresses of others, until it has to
    /// confirm them.
    fn may_reach(&self, path: &PathView<'_>) -> bool {
        path.state() != PathState::Unconfirmed && path.remote().port() == self.udp_port
    }
}

/// Returns the ends of an association with a peer at this address, whose port is that of UDP.
fn ends(view: AssociationView<'_>, local: IpAddr, remote: SocketAddr) -> Ends {
    let (port, peer_port) = view.ports();
    let at = |ip: IpAddr, port| SocketAddr::new(ip.to_canonical(), port);
    (at(local, port), at(remote.ip(), peer_port))
}

#[cfg(test)]
mod tests {
    use swiftwater::StackOptions;
    use swiftwater::tokio::{Association, Stack};

    use super::*;
    use crate::state::association_options::AssocOptions;
    use crate::testing::{registry, server_address, soon};

    fn assoc(id: u32, association: Association) -> SocketAssociation {
        let peer = association.peer_addr();
        SocketAssociation::with(AssocId::new(id), peer, association, AssocOptions::default())
    }

    fn local(host: u8) -> IpAddr {
        [127, 0, 0, host].into()
    }

    #[tokio::test(flavor = "local")]
    async fn peers_of_other_stacks_with_equal_addresses_and_ports_are_not_looked_at() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let server = server_address(&registry);
        let table: Rc<Relayed<()>> = Rc::new(Relayed::new(registry.stack().udp_port()));
        let (socket, mut entered) = (Rc::new(()), Vec::new());
        for id in 0..5 {
            let options = StackOptions::default().with_udp_port(0);
            let other =
                Stack::bind(&options).expect("a free port").with_local_addresses(&[local(1), local(2)]);
            let (connected, accepted) = tokio::join!(other.connect_from(40_000, &server), listener.accept());
            let accepted = assoc(id, accepted.expect("an association comes").0);
            entered.push((table.enter(&socket, &accepted), accepted, connected));
        }
        assert!(table.by_ends.count() == 0, "none of five associations with one address of the peer");
        let own = registry.stack().with_local_addresses(&[local(1), local(3)]);
        let (connected, accepted) = tokio::join!(own.connect_from(40_000, &server), listener.accept());
        let (connected, accepted) =
            (assoc(10, connected.expect("it listens")), assoc(11, accepted.expect("an association comes").0));
        let entries = table.enter(&socket, &accepted);
        assert_eq!(table.other_end(&connected).map(|(_, id)| id.get()), Some(11));
        drop(entries);
        assert!(table.by_ends.count() == 0);
    }

    #[tokio::test(flavor = "local")]
    async fn the_latest_association_with_equal_ends_is_found() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let server = server_address(&registry);
        let table: Rc<Relayed<()>> = Rc::new(Relayed::new(registry.stack().udp_port()));
        let (socket, mut earlier) = (Rc::new(()), Vec::new());
        for id in 1..20 {
            let (connected, accepted) =
                tokio::join!(registry.stack().connect_from(40_000, &server), listener.accept());
            let connected = assoc(100 + id, connected.expect("it listens"));
            let accepted = assoc(id, accepted.expect("an association comes").0);
            let entries = table.enter(&socket, &accepted);
            let found = table.other_end(&connected).map(|(_, id)| id.get());
            assert_eq!((found, table.by_ends.count()), (Some(id), 1));
            let association = connected.stack_association().expect("it is up");
            association.abort("");
            soon(accepted.stack_association().expect("it is up").closed()).await;
            // Its program reads slowly, so it is still relayed.
            earlier.push(entries);
        }
        let latest = earlier.pop();
        drop(earlier);
        assert_eq!(table.by_ends.count(), 1);
        drop(latest);
        assert!(table.by_ends.count() == 0);
    }
}
