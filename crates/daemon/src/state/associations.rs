//! The associations of one socket.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::rc::Rc;

use channel_protocol::assoc_id::AssocId;
use swiftwater::tokio::Association;

use super::association::SocketAssociation;
use super::association_index::AssociationIndex;
use super::unread_ends::UnreadEnds;

/// Maximum number of associations that are looked at because their peers have the same address.
const LISTING_LOOKED_AT_MAX: usize = 64;

/// The associations of a socket, by number. A query returns counted references, so the caller may change the socket.
#[derive(Default)]
pub(crate) struct Associations {
    by_id: RefCell<BTreeMap<AssocId, Rc<SocketAssociation>>>,
    /// Finds those of `by_id` by the addresses of their peers.
    by_peer: RefCell<PeerIndex>,
    /// Associations that have ended, while the channel may contain messages that the program has sent to them. Only
    /// [`Associations::addressee`] finds them.
    ended: RefCell<BTreeMap<AssocId, Rc<SocketAssociation>>>,
    /// For a one-to-many socket: the number of associations from which something may still be received.
    heard: Cell<usize>,
    /// For a one-to-many socket: the latest association with each peer that still delivers messages or notifications to the
    /// program, by the address with which it was set up. It may have ended.
    delivered: RefCell<HashMap<SocketAddr, Rc<SocketAssociation>>>,
    /// For a one-to-many socket: counts those that have ended, while they still deliver to the program.
    unread_ends: Rc<UnreadEnds>,
    /// Finds this socket by those of `by_id`.
    index: Rc<AssociationIndex>,
    /// The number of this socket.
    socket: u64,
}

impl Associations {
    /// Returns no associations of the socket with this number. The index is that of all sockets.
    pub(super) fn new(socket: u64, index: Rc<AssociationIndex>) -> Associations {
        Associations { index, socket, ..Associations::default() }
    }

    pub(crate) fn get(&self, id: AssocId) -> Option<Rc<SocketAssociation>> {
        self.by_id.borrow().get(&id).cloned()
    }

    /// Returns the association that messages with this number are for.
    pub(crate) fn addressee(&self, id: AssocId) -> Option<Rc<SocketAssociation>> {
        self.get(id).or_else(|| self.ended.borrow().get(&id).cloned())
    }

    /// Returns the association with the lowest number: the only one, if the socket can have only one.
    pub(crate) fn first(&self) -> Option<Rc<SocketAssociation>> {
        self.by_id.borrow().values().next().cloned()
    }

    /// Returns the association with the lowest number that is greater than `id`.
    pub(crate) fn next_after(&self, id: AssocId) -> Option<Rc<SocketAssociation>> {
        self.by_id.borrow().range(above(id)).next().map(|(_, assoc)| Rc::clone(assoc))
    }

    /// Returns the association with the peer that has this address: one that was set up with it, otherwise one whose peer has
    /// confirmed it. Of those whose confirmation is not known here yet, a few are looked at: hostile peers may list an address in
    /// thousands of associations.
    pub(crate) fn with_peer(&self, address: SocketAddr) -> Option<Rc<SocketAssociation>> {
        let index = self.by_peer.borrow();
        let set_up = at(&index.set_up, address).find_map(|id| self.get(id));
        let looked_at = [&index.confirmed, &index.listed]
            .into_iter()
            .flat_map(|known| at(known, address).take(LISTING_LOOKED_AT_MAX));
        let mut listed = looked_at.filter_map(|id| self.get(id));
        set_up.or_else(|| listed.find(|assoc| assoc.has_confirmed(address)))
    }

    /// Returns up to `count` associations, those with the lowest numbers.
    pub(crate) fn up_to(&self, count: usize) -> Vec<Rc<SocketAssociation>> {
        self.by_id.borrow().values().take(count).cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Rc<SocketAssociation>> {
        self.up_to(usize::MAX)
    }

    /// Returns up to `count` numbers of associations that are greater than `id`.
    pub(crate) fn ids_after(&self, id: AssocId, count: usize) -> Vec<AssocId> {
        self.by_id.borrow().range(above(id)).take(count).map(|(id, _)| *id).collect()
    }

    pub(crate) fn ids(&self) -> Vec<AssocId> {
        self.by_id.borrow().keys().copied().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.by_id.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.borrow().is_empty()
    }

    pub(super) fn insert(&self, assoc: &Rc<SocketAssociation>) {
        self.index.insert(assoc.id(), self.socket);
        self.by_peer.borrow_mut().insert(assoc);
        self.by_id.borrow_mut().insert(assoc.id(), Rc::clone(assoc));
    }

    /// Keeps an association that has ended only as an addressee of messages.
    pub(super) fn on_ended(&self, assoc: &SocketAssociation) {
        self.index.remove(assoc.id(), self.socket);
        let ended = self.by_id.borrow_mut().remove_entry(&assoc.id());
        self.by_peer.borrow_mut().remove(assoc.id());
        self.ended.borrow_mut().extend(ended);
    }

    pub(super) fn remove(&self, assoc: &SocketAssociation) {
        self.index.remove(assoc.id(), self.socket);
        self.by_peer.borrow_mut().remove(assoc.id());
        let removed = [&self.by_id, &self.ended].map(|of| of.borrow_mut().remove(&assoc.id()));
        // The last reference ends the association, which needs no borrow of the others.
        drop(removed);
    }

    /// Records the addresses of the peer of an association that has come up.
    pub(crate) fn on_up(&self, assoc: &SocketAssociation) {
        if self.by_id.borrow().contains_key(&assoc.id()) {
            self.by_peer.borrow_mut().list(assoc);
        }
    }

    /// Records that the peer of an association has confirmed an address.
    pub(crate) fn on_confirmed(&self, assoc: &SocketAssociation, host: IpAddr) {
        if self.by_id.borrow().contains_key(&assoc.id()) {
            self.by_peer.borrow_mut().confirm(assoc, host);
        }
    }

    /// Enters an association that begins to deliver to the program. Returns the previous association with the same peer if it has
    /// ended and still delivers: the program is notified of that end first.
    pub(crate) fn on_delivery_begun(&self, assoc: &Rc<SocketAssociation>) -> Option<Rc<SocketAssociation>> {
        let before = self.delivered.borrow_mut().insert(peer_key(assoc), Rc::clone(assoc));
        before.filter(|before| before.has_ended())
    }

    /// Removes an association that has delivered everything to the program.
    pub(crate) fn on_delivered(&self, assoc: &SocketAssociation) {
        let mut delivered = self.delivered.borrow_mut();
        let is_latest = |latest: &Rc<SocketAssociation>| latest.id() == assoc.id();
        if delivered.get(&peer_key(assoc)).is_some_and(is_latest) {
            delivered.remove(&peer_key(assoc));
        }
    }

    /// Returns the count of those that have ended, while they still deliver to the program.
    pub(crate) fn unread_ends(&self) -> &Rc<UnreadEnds> {
        &self.unread_ends
    }

    /// Sets whether the send queues take one message at a time.
    pub(super) fn set_take_one(&self, take_one: bool) {
        for queue in self.by_id.borrow().values().filter_map(|assoc| assoc.send_queue()) {
            queue.set_takes_one(take_one);
        }
    }

    /// Takes all associations, also those that have ended. This takes the same time for any number.
    pub(super) fn take_all(&self) -> TakenAssociations {
        TakenAssociations {
            by_id: self.by_id.take(),
            by_peer: self.by_peer.take(),
            ended: self.ended.take(),
            index: Rc::clone(&self.index),
            socket: self.socket,
        }
    }

    /// Counts an association from which something may be received; returns their number.
    pub(super) fn on_heard(&self) -> usize {
        self.heard.set(self.heard.get() + 1);
        self.heard.get()
    }

    /// Counts an association from which nothing more will be received; returns the number of the others.
    pub(super) fn on_silent(&self) -> usize {
        self.heard.set(self.heard.get().saturating_sub(1));
        self.heard.get()
    }
}

/// The associations that a socket had, in the order of their numbers, then those that have ended. Requests do not find them. Each
/// is removed from the indexes when the iterator returns it: a socket may have thousands, so the caller takes them in turns.
pub(crate) struct TakenAssociations {
    by_id: BTreeMap<AssocId, Rc<SocketAssociation>>,
    by_peer: PeerIndex,
    ended: BTreeMap<AssocId, Rc<SocketAssociation>>,
    index: Rc<AssociationIndex>,
    socket: u64,
}

impl TakenAssociations {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.ended.is_empty()
    }
}

impl Iterator for TakenAssociations {
    type Item = Rc<SocketAssociation>;

    fn next(&mut self) -> Option<Rc<SocketAssociation>> {
        let Some((id, assoc)) = self.by_id.pop_first() else {
            return self.ended.pop_first().map(|(_, assoc)| assoc);
        };
        self.index.remove(id, self.socket);
        self.by_peer.remove(id);
        Some(assoc)
    }
}

impl Drop for TakenAssociations {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// The numbers of associations by the addresses of their peers.
#[derive(Default)]
struct PeerIndex {
    /// By the address with which they were set up.
    set_up: ByAddress,
    /// By each address of the peer, once it is known.
    listed: ByAddress,
    /// By each address that the peer has confirmed.
    confirmed: ByAddress,
    /// The addresses at which each association is entered: the first in `set_up`, the others in `listed`.
    entered: HashMap<AssocId, Vec<SocketAddr>>,
}

impl PeerIndex {
    fn insert(&mut self, assoc: &SocketAssociation) {
        let key = peer_key(assoc);
        self.set_up.entry(key).or_default().insert(assoc.id());
        self.entered.insert(assoc.id(), vec![key]);
        self.list(assoc);
    }

    fn list(&mut self, assoc: &SocketAssociation) {
        let peer = assoc.stack_association().and_then(Association::peer);
        for host in peer.into_iter().flat_map(|peer| peer.hosts) {
            self.enter(assoc, key_of(SocketAddr::new(host, assoc.peer().port())));
        }
        let confirmed = assoc.confirmed_hosts();
        confirmed.into_iter().for_each(|host| self.confirm(assoc, host));
    }

    fn confirm(&mut self, assoc: &SocketAssociation, host: IpAddr) {
        let key = key_of(SocketAddr::new(host, assoc.peer().port()));
        if self.enter(assoc, key) {
            self.confirmed.entry(key).or_default().insert(assoc.id());
        }
    }

    /// Enters an association at an address of its peer. Returns false if the association is not in the index.
    fn enter(&mut self, assoc: &SocketAssociation, key: SocketAddr) -> bool {
        let Some(entered) = self.entered.get_mut(&assoc.id()) else { return false };
        if self.listed.entry(key).or_default().insert(assoc.id()) {
            entered.push(key);
        }
        true
    }

    fn remove(&mut self, id: AssocId) {
        let mut addresses = self.entered.remove(&id).into_iter().flatten();
        if let Some(address) = addresses.next() {
            remove_from(&mut self.set_up, address, id);
        }
        for address in addresses {
            remove_from(&mut self.listed, address, id);
            remove_from(&mut self.confirmed, address, id);
        }
    }
}

/// The numbers of associations by addresses.
type ByAddress = HashMap<SocketAddr, BTreeSet<AssocId>>;

/// Returns the associations at an address.
fn at(index: &ByAddress, address: SocketAddr) -> impl Iterator<Item = AssocId> {
    index.get(&key_of(address)).into_iter().flatten().copied()
}

fn remove_from(index: &mut ByAddress, address: SocketAddr, id: AssocId) {
    if let Entry::Occupied(mut ids) = index.entry(address) {
        ids.get_mut().remove(&id);
        if ids.get().is_empty() {
            ids.remove();
        }
    }
}

/// Returns an address in one form, without the scope of a link-local one.
fn key_of(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the address with which an association was set up, in one form.
fn peer_key(assoc: &SocketAssociation) -> SocketAddr {
    key_of(assoc.peer())
}

/// Returns the range of the numbers that are greater than `id`.
fn above(id: AssocId) -> (Bound<AssocId>, Bound<AssocId>) {
    (Bound::Excluded(id), Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::association_options::AssocOptions;
    use super::*;
    use crate::testing::{registry, server_address};

    fn set_up_with(associations: &Associations, id: u32, peer: SocketAddr) -> Rc<SocketAssociation> {
        let assoc = Rc::new(SocketAssociation::new(AssocId::new(id), peer, AssocOptions::default()));
        associations.insert(&assoc);
        assoc
    }

    #[test]
    fn the_socket_of_an_association_is_found_until_the_association_has_ended() {
        let index = Rc::<AssociationIndex>::default();
        let [one, other] = [1, 2].map(|socket| Associations::new(socket, Rc::clone(&index)));
        let assocs = [3, 4, 5, 6].map(|id| set_up_with(&one, id, ([192, 0, 2, 1], 7).into()));
        let sockets = || [3, 4, 5, 6].map(|id| index.socket_of(AssocId::new(id)));
        assert_eq!(sockets(), [Some(1); 4]);
        one.on_ended(&assocs[0]);
        other.insert(&assocs[1]);
        one.remove(&assocs[1]);
        one.remove(&assocs[2]);
        assert_eq!(sockets(), [None, Some(2), None, Some(1)]);
        drop(one.take_all());
        assert_eq!(sockets(), [None, Some(2), None, None]);
    }

    #[test]
    fn associations_that_were_taken_leave_the_indexes_one_by_one_and_are_not_found() {
        let index = Rc::<AssociationIndex>::default();
        let associations = Associations::new(1, Rc::clone(&index));
        let peer = ([192, 0, 2, 1], 7).into();
        let first = set_up_with(&associations, 3, peer);
        (4..8).for_each(|id| drop(set_up_with(&associations, id, peer)));
        associations.on_ended(&first);
        let mut taken = associations.take_all();
        assert!(associations.is_empty() && associations.with_peer(peer).is_none());
        assert!([3, 4].iter().all(|id| associations.addressee(AssocId::new(*id)).is_none()));
        for (id, left) in [(4, 3), (5, 2), (6, 1), (7, 0), (3, 0)] {
            assert!(!taken.is_empty());
            assert_eq!(taken.next().map(|assoc| assoc.id().get()), Some(id));
            assert_eq!((index.count(), taken.by_peer.entered.len()), (left, left));
        }
        assert!(taken.is_empty() && taken.next().is_none());
    }

    #[test]
    fn of_many_associations_with_one_peer_the_first_is_found_until_it_is_gone() {
        let associations = Associations::default();
        let (peer, mapped) = (([192, 0, 2, 1], 7).into(), "[::ffff:192.0.2.1]:7".parse().unwrap());
        let others: Vec<_> = (10..1000).map(|id| set_up_with(&associations, id, peer)).collect();
        let (first, mut second) = (set_up_with(&associations, 3, mapped), others.into_iter());
        let found = |address| associations.with_peer(address).map(|assoc| assoc.id().get());
        assert_eq!((found(peer), found(mapped)), (Some(3), Some(3)));
        associations.on_ended(&first);
        assert_eq!(found(peer), Some(10));
        associations.remove(&second.next().unwrap());
        assert_eq!(found(mapped), Some(11));
        let mut taken = associations.take_all();
        assert_eq!(found(peer), None);
        assert!(taken.by_ref().count() > 900);
        let index = &taken.by_peer;
        assert!(index.set_up.is_empty() && index.listed.is_empty() && index.entered.is_empty());
    }

    #[tokio::test(flavor = "local")]
    async fn the_peer_that_has_an_address_is_found_behind_any_number_that_only_list_it() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let server = server_address(&registry);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7));
        for is_told in [false, true] {
            let associations = Associations::default();
            for id in 10..10 + 2 * LISTING_LOOKED_AT_MAX as u32 {
                let other = set_up_with(&associations, id, ([192, 0, 2, 1], 7).into());
                associations.by_peer.borrow_mut().enter(&other, address);
            }
            assert!(associations.with_peer(address).is_none());
            // It was set up with another address.
            let assoc = set_up_with(&associations, 1000, ([192, 0, 2, 2], 7).into());
            let (connected, _accepted) = tokio::join!(registry.stack().connect(&server), listener.accept());
            assoc.set_up(connected.expect("it listens"));
            match is_told {
                true => associations.on_confirmed(&assoc, address.ip()),
                false => associations.on_up(&assoc),
            }
            assert_eq!(associations.with_peer(address).map(|assoc| assoc.id().get()), Some(1000));
            associations.on_ended(&assoc);
            assert!(associations.with_peer(address).is_none());
            let mut taken = associations.take_all();
            assert_eq!(taken.by_ref().count(), 2 * LISTING_LOOKED_AT_MAX + 1, "and the one that has ended");
            assert!(taken.by_peer.confirmed.is_empty());
        }
    }

    #[test]
    fn associations_are_found_in_the_order_of_their_numbers() {
        let associations = Associations::default();
        for id in [7_u8, 3, 5] {
            let peer = ([192, 0, 2, id], 7).into();
            associations.insert(&Rc::new(SocketAssociation::new(
                AssocId::new(id.into()),
                peer,
                AssocOptions::default(),
            )));
        }
        let ids = |found: Vec<Rc<SocketAssociation>>| {
            found.iter().map(|assoc| assoc.id().get()).collect::<Vec<_>>()
        };
        assert_eq!((ids(associations.up_to(2)), ids(associations.all())), (vec![3, 5], vec![3, 5, 7]));
        let ids_after = |id, count| associations.ids_after(AssocId::new(id), count);
        assert_eq!((ids_after(3, 1), ids_after(u32::MAX, 9)), (vec![AssocId::new(5)], vec![]));
        let next_after = |id| associations.next_after(AssocId::new(id)).map(|assoc| assoc.id().get());
        assert_eq!(next_after(4), Some(5));
        assert_eq!((next_after(3), next_after(7)), (Some(5), None));
        assert_eq!(associations.with_peer(([192, 0, 2, 7], 7).into()).map(|assoc| assoc.id().get()), Some(7));
        assert!(associations.with_peer(([192, 0, 2, 7], 8).into()).is_none());
    }

    #[test]
    fn an_association_that_has_ended_is_only_an_addressee() {
        let associations = Associations::default();
        let [first, second] = [1_u8, 2].map(|id| {
            let (id, peer) = (AssocId::new(id.into()), ([192, 0, 2, id], 7).into());
            let assoc = Rc::new(SocketAssociation::new(id, peer, AssocOptions::default()));
            associations.insert(&assoc);
            assoc
        });
        associations.on_ended(&first);
        assert!(associations.get(first.id()).is_none() && associations.with_peer(first.peer()).is_none());
        assert_eq!(associations.ids(), [second.id()]);
        assert!(associations.addressee(first.id()).is_some());
        associations.remove(&first);
        assert!(associations.addressee(first.id()).is_none());
        associations.on_ended(&second);
        assert_eq!(associations.take_all().count(), 1, "the program has closed the socket");
    }
}
