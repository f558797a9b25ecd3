//! Associations of sockets that their programs have closed: what was sent is still delivered, and they are shut down in the
//! background.
//!
//! Each counts for its user until it has ended, as one of a one-to-many socket does. If a user has no room for a socket or an
//! association, the oldest of those of closed sockets is aborted, so peers that do not answer keep no program from its work.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use channel_protocol::assoc_id::AssocId;
use swiftwater::AssociationId;
use swiftwater::internals;
use swiftwater::tokio::Stack;

use super::association::SocketAssociation;
use super::socket::Socket;
use crate::channel::style::Style;
use crate::system::lock::lock;
use crate::users::owner::Owner;
use crate::users::user::AssociationPermit;

/// What RTO.Max counts as at most once the program has gone: the default of RFC 9260 §16. T5, five times that, bounds how long a
/// peer that acknowledges nothing keeps the association.
const RTO_MAX: Duration = Duration::from_secs(60);

/// Maximum number of associations that are aborted to make room for one socket or association.
const ABORTED_MAX: usize = 16;

/// A socket that its program has closed.
#[derive(Debug)]
pub(crate) struct ClosedSocket {
    /// Its place among all closed sockets.
    place: u64,
    pub(crate) number: u64,
    pub(crate) style: Style,
    pub(crate) owner: Owner,
    pub(crate) local: Vec<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// An association of a closed socket, which may have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftAssociation {
    pub(crate) id: AssocId,
    pub(crate) peer: SocketAddr,
    pub(crate) stack_id: AssociationId,
}

/// The place of an association among those of a user: the place of its socket, and its number.
pub(crate) type Place = (u64, AssocId);

/// The associations of closed sockets of all users.
pub(crate) struct ClosedSockets {
    stack: Stack,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    users: HashMap<u32, BTreeMap<Place, Entry>>,
    next_place: u64,
}

struct Entry {
    socket: Arc<ClosedSocket>,
    association: LeftAssociation,
    _permit: AssociationPermit,
}

impl Table {
    fn take(&mut self, user: u32, place: Place) -> Option<Entry> {
        self.take_by(user, |associations| associations.remove(&place))
    }

    fn take_oldest(&mut self, user: u32) -> Option<Entry> {
        self.take_by(user, |associations| associations.pop_first().map(|(_, entry)| entry))
    }

    fn take_by(
        &mut self,
        user: u32,
        take: impl FnOnce(&mut BTreeMap<Place, Entry>) -> Option<Entry>,
    ) -> Option<Entry> {
        let associations = self.users.get_mut(&user)?;
        let entry = take(associations);
        if associations.is_empty() {
            self.users.remove(&user);
        }
        entry
    }
}

/// Removes an entry from the table when the stack drops it, because the association has ended.
struct UntilEnd {
    table: Arc<Mutex<Table>>,
    user: u32,
    place: Place,
}

impl Drop for UntilEnd {
    fn drop(&mut self) {
        // It is dropped after the lock is released.
        let _entry = lock(&self.table).take(self.user, self.place);
    }
}

impl ClosedSockets {
    pub(super) fn new(stack: Stack) -> ClosedSockets {
        ClosedSockets { stack, table: Arc::default() }
    }

    /// Adds an association of a socket that its program has closed, with its permit, until the association has ended.
    pub(super) fn add(&self, socket: &Socket, assoc: &SocketAssociation, permit: AssociationPermit) {
        let Some(association) = assoc.stack_association() else { return };
        let Some(stack_id) = internals::identifier(association) else { return };
        let closed = socket.closed_as(|| ClosedSocket {
            place: self.next_place(),
            number: socket.number(),
            style: socket.style(),
            owner: socket.owner(),
            local: socket.addresses().all_local(),
            peer: socket.addresses().peer(),
        });
        let user = closed.owner.user;
        let place = (closed.place, assoc.id());
        let left = LeftAssociation { id: assoc.id(), peer: assoc.peer(), stack_id };
        let entry = Entry { socket: Arc::clone(closed), association: left, _permit: permit };
        self.table().users.entry(user).or_default().insert(place, entry);
        let until_end = UntilEnd { table: Arc::clone(&self.table), user, place };
        internals::orphan(association, RTO_MAX, Box::new(until_end));
    }

    /// Attempts something for which a user may lack room, and aborts the oldest associations of closed sockets of this user until
    /// it succeeds.
    pub(super) fn make_room<T>(&self, user: u32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let mut attempts =
            (0..=ABORTED_MAX).map(|aborted| (aborted == 0 || self.abort_oldest(user)).then(&mut attempt));
        attempts.find_map(|outcome| outcome.flatten())
    }

    /// Aborts the oldest association of the closed sockets of a user. Returns false if there is none.
    fn abort_oldest(&self, user: u32) -> bool {
        let oldest = self.table().take_oldest(user);
        let Some(Entry { association, .. }) = &oldest else { return false };
        internals::abort(&self.stack, association.stack_id, "its user needs the memory");
        true
    }

    /// Returns the users that have associations of closed sockets, in order.
    pub(crate) fn users(&self) -> Vec<u32> {
        let mut users: Vec<u32> = self.table().users.keys().copied().collect();
        users.sort_unstable();
        users
    }

    /// Returns up to `count` associations of the closed sockets of a user behind `after`. Those of a socket follow one another.
    pub(crate) fn following(
        &self,
        user: u32,
        after: Option<Place>,
        count: usize,
    ) -> Vec<(Place, Arc<ClosedSocket>, LeftAssociation)> {
        let table = self.table();
        let Some(associations) = table.users.get(&user) else { return Vec::new() };
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let following = associations.range(from).take(count);
        following.map(|(place, entry)| (*place, Arc::clone(&entry.socket), entry.association)).collect()
    }

    fn next_place(&self) -> u64 {
        let mut table = self.table();
        table.next_place += 1;
        table.next_place
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use swiftwater::tokio::Association;
    use swiftwater::{CloseReason, RecvError};

    use super::*;
    use crate::testing::{closed_socket, opened, registry_with, soon};
    use crate::users::limits::Limits;

    /// Returns whether an association was aborted by its peer; otherwise the peer may have closed it or not.
    async fn is_aborted(peer: &Association) -> bool {
        loop {
            match soon(peer.recv()).await {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(RecvError::Lost(_)) => return true,
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[tokio::test(flavor = "local")]
    async fn the_oldest_gives_way_to_a_new_one() {
        let registry = registry_with(&Limits { user_associations: 2, ..Limits::default() });
        let listener = registry.stack().listen(7).expect("a free port");
        let user = registry.resources().users().user(1);
        let mut peers = Vec::new();
        for _ in 0..3 {
            peers.push(closed_socket(&registry, &listener, true).await);
        }
        assert_eq!(user.associations(), 2);
        assert!(is_aborted(&peers[0]).await, "the oldest one");
        // One of a socket that is open, too.
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        let permit = registry.admit_association(&socket, 1).expect("the second gives way");
        assert_eq!((user.associations(), user.associations_refused()), (2, 0));
        assert!(is_aborted(&peers[1]).await);
        assert!(!is_aborted(&peers[2]).await, "it was delivered whole");
        // Open ones do not give way.
        let other = registry.admit_association(&socket, 1);
        let refused = registry.admit_association(&socket, 1);
        assert_eq!((other.is_some(), refused.is_some(), user.associations_refused()), (true, false, 1));
        drop(permit);
    }

    #[tokio::test(flavor = "local")]
    async fn the_oldest_gives_way_to_a_socket() {
        let limits = Limits { page_bytes: 4 << 30, ..Limits::default() };
        let registry = registry_with(&limits);
        let listener = registry.stack().listen(7).expect("a free port");
        let user = registry.resources().users().user(1);
        let peers = [
            closed_socket(&registry, &listener, true).await,
            closed_socket(&registry, &listener, true).await,
        ];
        let _rest = user.pages().charge_anyway(limits.user_page_bytes - user.pages().charged_bytes());
        let (_socket, _program_end) = opened(&registry, Style::OneToOne);
        assert!(is_aborted(&peers[0]).await);
        assert!(!is_aborted(&peers[1]).await);
    }

    #[tokio::test(flavor = "local")]
    async fn associations_of_other_users_stay() {
        let registry = registry_with(&Limits { user_associations: 1, ..Limits::default() });
        let listener = registry.stack().listen(7).expect("a free port");
        let peer = closed_socket(&registry, &listener, true).await;
        let other = registry.resources().users().user(2);
        let attempts = std::cell::Cell::new(0);
        let refused = registry.closed().make_room(other.id(), || {
            attempts.set(attempts.get() + 1);
            None::<Rc<()>>
        });
        assert_eq!((refused, attempts.get()), (None, 1));
        assert_eq!(registry.closed().users(), [1]);
        assert!(!is_aborted(&peer).await);
    }

    #[tokio::test(flavor = "local")]
    async fn one_that_has_no_room_is_aborted() {
        let registry = registry_with(&Limits { user_associations: 0, ..Limits::default() });
        let listener = registry.stack().listen(7).expect("a free port");
        let peer = closed_socket(&registry, &listener, false).await;
        let CloseReason::Lost(_) = soon(peer.closed()).await else { panic!("it ended in order") };
        assert_eq!(registry.closed().users(), [0; 0]);
    }
}
