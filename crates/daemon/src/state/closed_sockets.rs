//! Associations of sockets that their programs have closed: what was sent is still delivered, and they are shut down in the
//! background.
//!
//! Each counts for its user until it has ended, as one of a one-to-many socket does. If a user has no room for a socket or an
//! association, or closes sockets while it is above its limits, the oldest of those of closed sockets are aborted, so peers that
//! do not answer keep no program from its work.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use channel_protocol::assoc_id::AssocId;
use swiftwater::AssociationId;
use swiftwater::internals;
use swiftwater::tokio::Stack;

use super::association::SocketAssociation;
use super::closed_socket::ClosedSocket;
use super::socket::Socket;
use crate::system::lock::lock;
use crate::users::user::{AssociationPermit, User};

/// Maximum number of associations that are aborted to make room for one socket or association.
const ABORTED_MAX: usize = 16;

/// Memory by which a user may exceed its limit when sockets are closed: that of their pages is released soon.
const EXCESS_BYTES_MAX: usize = 1 << 20;

/// An association of a closed socket, which may have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftAssociation {
    pub(crate) id: AssocId,
    pub(crate) peer: SocketAddr,
    pub(crate) stack_id: AssociationId,
}

/// The place of an association among those of a user: the place of its socket among all that have left one, and its number.
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
    permit: AssociationPermit,
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
        let closed = self.describe(socket);
        let user = closed.owner.user;
        let place = (socket.left_at(|| self.next_place()), assoc.id());
        let left = LeftAssociation { id: assoc.id(), peer: assoc.peer(), stack_id };
        let entry = Entry { socket: Arc::clone(closed), association: left, permit };
        self.table().users.entry(user).or_default().insert(place, entry);
        let until_end = UntilEnd { table: Arc::clone(&self.table), user, place };
        assoc.guard_end_with(Box::new(until_end));
    }

    /// Makes room for `bytes` of a user, and for another association below a maximum, by aborting the oldest associations of
    /// closed sockets. Returns false, and aborts none, if the oldest [`ABORTED_MAX`] are not enough.
    pub(super) fn make_room(&self, user: &User, bytes: usize, associations_max: Option<usize>) -> bool {
        let is_enough = |count: usize, released_bytes: usize| {
            user.pages().would_have_room(bytes, released_bytes)
                && associations_max.is_none_or(|most| user.associations() < most + count)
        };
        let Some(count) = self.enough_for(user, is_enough) else { return false };
        (0..count).for_each(|_| self.abort_oldest(user));
        true
    }

    /// Aborts the oldest associations of a user that has too many or too much memory, but not the only one. A user that is above
    /// its own limit loses one for each association that it leaves. Otherwise other users have taken the memory: then the user
    /// loses as many as help, and none if the oldest [`ABORTED_MAX`] are not enough.
    pub(super) fn keep_to(&self, user: &User, associations_max: usize) {
        let pages = user.pages();
        let is_above_own =
            user.associations() > associations_max || pages.exceeds_own_limit(EXCESS_BYTES_MAX);
        let is_enough = |_, released_bytes| pages.would_have_room(0, EXCESS_BYTES_MAX + released_bytes);
        let count = match is_above_own {
            true => Some(1),
            false if is_enough(0, 0) => None,
            false => self.enough_for(user, is_enough),
        };
        let has_more = |count| self.table().users.get(&user.id()).is_some_and(|left| left.len() > count);
        if let Some(count) = count.filter(|count| has_more(*count)) {
            (0..count).for_each(|_| self.abort_oldest(user));
        }
    }

    fn abort_oldest(&self, user: &User) {
        let oldest = self.table().take_oldest(user.id());
        if let Some(Entry { association, .. }) = oldest {
            internals::abort(&self.stack, association.stack_id, "its user needs the room");
            user.count_refused_association();
        }
    }

    /// Returns how many of the oldest associations are enough to be aborted: `is_enough` is asked with their number and the
    /// memory that they release.
    fn enough_for(&self, user: &User, is_enough: impl Fn(usize, usize) -> bool) -> Option<usize> {
        let table = self.table();
        let oldest = table.users.get(&user.id())?.values().take(ABORTED_MAX);
        let mut released_bytes = 0;
        let numbered = (1..).zip(oldest);
        let enough = |(count, entry): (usize, &Entry)| {
            released_bytes += entry.permit.bytes();
            is_enough(count, released_bytes).then_some(count)
        };
        numbered.into_iter().find_map(enough)
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

    /// Describes a socket for reports, as it is when its program closes it.
    pub(super) fn describe<'a>(&self, socket: &'a Socket) -> &'a Arc<ClosedSocket> {
        socket.closed_as(|| ClosedSocket {
            number: socket.number(),
            style: socket.style(),
            owner: socket.owner(),
            local: socket.addresses().all_local(),
            peer: socket.addresses().peer(),
        })
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
    use std::net::SocketAddr;
    use std::rc::Rc;

    use swiftwater::RecvError;
    use swiftwater::tokio::Association;

    use super::*;
    use crate::channel::style::Style;
    use crate::testing::{
        ID, closed_socket, connected_socket, opened, registry_with, send_beyond_window, soon, until,
    };
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
        assert_eq!((user.associations(), user.associations_refused()), (2, 1));
        assert!(is_aborted(&peers[0]).await, "the oldest one");
        // One of a socket that is open, too.
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        let permit = registry.admit_association(&socket, 1).expect("the second gives way");
        assert_eq!((user.associations(), user.associations_refused()), (2, 2));
        assert!(is_aborted(&peers[1]).await);
        assert!(!is_aborted(&peers[2]).await, "it was delivered whole");
        drop(peers);
        until("the last one ends", || registry.closed().users().is_empty()).await;
        // Open ones do not give way.
        let other = registry.admit_association(&socket, 1);
        let refused = registry.admit_association(&socket, 1);
        assert_eq!((other.is_some(), refused.is_some(), user.associations_refused()), (true, false, 3));
        drop((permit, other));
    }

    #[tokio::test(flavor = "local")]
    async fn as_many_give_way_as_a_user_has_above_its_maximum() {
        let registry = registry_with(&Limits { user_associations: 2, ..Limits::default() });
        let listener = registry.stack().listen(7).expect("a free port");
        let user = registry.resources().users().user(1);
        let peers = [
            closed_socket(&registry, &listener, true).await,
            closed_socket(&registry, &listener, true).await,
        ];
        let third = user.admit_association_anyway(AssociationPermit::bytes_of(1, 1));
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        let fourth = registry.admit_association(&socket, 1);
        assert_eq!((fourth.is_some(), user.associations(), user.associations_refused()), (true, 2, 2));
        for peer in &peers {
            assert!(is_aborted(peer).await);
        }
        drop((third, fourth));
    }

    #[tokio::test(flavor = "local")]
    async fn the_oldest_is_the_one_that_was_left_first() {
        let registry = registry_with(&Limits { user_associations: 2, ..Limits::default() });
        let listener = registry.stack().listen(7).expect("a free port");
        // This one was closed first, and is left second, as if its messages had waited for memory.
        let (socket, second) = connected_socket(&registry, &listener).await;
        send_beyond_window(&socket).await;
        registry.release_port(&socket);
        let first = closed_socket(&registry, &listener, true).await;
        registry.forget(&socket);
        drop(socket);
        let third = closed_socket(&registry, &listener, true).await;
        assert!(is_aborted(&first).await);
        assert!(!is_aborted(&second).await && !is_aborted(&third).await);
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
        // A worker releases the memory of their pages.
        let of_associations = 2 * AssociationPermit::bytes_of(1, 1);
        until("the pages are released", || user.pages().charged_bytes() == of_associations).await;
        let rest = user.pages().charge_anyway(limits.user_page_bytes - user.pages().charged_bytes());
        let (_socket, _program_end) = opened(&registry, Style::OneToOne);
        assert!(is_aborted(&peers[0]).await);
        assert!(!is_aborted(&peers[1]).await);
        drop(rest);
    }

    #[tokio::test(flavor = "local")]
    async fn the_oldest_give_way_to_the_further_paths_of_an_association_and_not_to_its_first_again() {
        const LEFT: usize = 3;
        for style in [Style::OneToMany, Style::OneToOne] {
            let limits = Limits { page_bytes: 4 << 30, ..Limits::default() };
            let registry = registry_with(&limits);
            let listener = registry.stack().listen(7).expect("a free port");
            let user = registry.resources().users().user(1);
            let mut peers = Vec::new();
            for _ in 0..LEFT {
                peers.push(closed_socket(&registry, &listener, true).await);
            }
            let of_associations = LEFT * AssociationPermit::bytes_of(1, 1);
            until("the pages are released", || user.pages().charged_bytes() == of_associations).await;
            let (socket, _program_end) = opened(&registry, style);
            let assoc = SocketAssociation::new(ID, ([192, 0, 2, 1], 7).into(), socket.future_options());
            let (assoc, counted) = match style {
                Style::OneToMany => {
                    (socket.enter(assoc, 1, registry.admit_association(&socket, 1).expect("room")), 1)
                }
                _ => (Rc::new(assoc), 0),
            };
            let free = limits.user_page_bytes - user.pages().charged_bytes();
            let rest = user.pages().charge_anyway(free);
            // More than two of those that are left have, and less than three.
            assert!(registry.charge_paths(&socket, &assoc, 16));
            assert_eq!(user.associations(), counted, "{style:?}");
            let charged = |paths| AssociationPermit::bytes_of(paths, 1) - AssociationPermit::bytes_of(1, 1);
            let before = user.pages().charged_bytes();
            drop(assoc.take_permit());
            let released = before - user.pages().charged_bytes();
            assert_eq!(released, charged(16) + counted * AssociationPermit::bytes_of(1, 1), "{style:?}");
            drop(rest);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn none_is_aborted_in_vain() {
        let registry =
            registry_with(&Limits { user_page_bytes: 1 << 20, page_bytes: 2 << 20, ..Limits::default() });
        let listener = registry.stack().listen(7).expect("a free port");
        let (user, other) = (registry.resources().users().user(1), registry.resources().users().user(2));
        let peer = closed_socket(&registry, &listener, true).await;
        let (socket, second) = connected_socket(&registry, &listener).await;
        // The memory of all is used up, and the user far above its part.
        let _much = (user.pages().charge_anyway(1 << 20), other.pages().charge_anyway(1 << 20));
        assert!(!registry.closed().make_room(&user, 1, None));
        assert_eq!(registry.closed().users(), [1]);
        // An association that exists is no new memory.
        registry.forget(&socket);
        assert_eq!((user.associations(), user.associations_refused()), (2, 0));
        assert!(!is_aborted(&peer).await && !is_aborted(&second).await);
    }

    #[tokio::test(flavor = "local")]
    async fn none_is_aborted_by_a_close_if_other_users_have_taken_the_memory() {
        let limits = Limits { user_page_bytes: 8 << 20, page_bytes: 8 << 20, ..Limits::default() };
        let registry = registry_with(&limits);
        let listener = registry.stack().listen(7).expect("a free port");
        let (user, other) = (registry.resources().users().user(1), registry.resources().users().user(2));
        let first = closed_socket(&registry, &listener, true).await;
        let (socket, second) = connected_socket(&registry, &listener).await;
        let _much = (user.pages().charge_anyway(4 << 20), other.pages().charge_anyway(8 << 20));
        assert!(!user.pages().would_have_room(0, EXCESS_BYTES_MAX));
        registry.forget(&socket);
        assert_eq!((user.associations(), user.associations_refused()), (2, 0));
        assert!(!is_aborted(&first).await && !is_aborted(&second).await);
    }

    #[tokio::test(flavor = "local")]
    async fn as_many_are_aborted_as_help_if_other_users_have_taken_some_memory() {
        const LEFT: usize = 4;
        let limits = Limits { user_page_bytes: 256 << 20, page_bytes: 256 << 20, ..Limits::default() };
        let registry = registry_with(&limits);
        let listener = registry.stack().listen(7).expect("a free port");
        let (user, other) = (registry.resources().users().user(1), registry.resources().users().user(2));
        let mut peers = Vec::new();
        for _ in 0..LEFT {
            peers.push(closed_socket(&registry, &listener, true).await);
        }
        let of_one = AssociationPermit::bytes_of(1, 1);
        until("the pages are released", || user.pages().charged_bytes() == LEFT * of_one).await;
        // A quarter is reserved. Memory that is released counts twice: the user has less, and all have more.
        let missing = 2 * EXCESS_BYTES_MAX + 3 * of_one;
        let own = user.pages().charge_anyway(4 << 20);
        let of_others = (192 << 20) + missing - 2 * (LEFT * of_one + own.bytes());
        let _much = other.pages().charge_anyway(of_others);
        registry.closed().keep_to(&user, LEFT);
        assert_eq!((user.associations(), user.associations_refused()), (2, 2));
        registry.closed().keep_to(&user, LEFT);
        assert_eq!(user.associations(), 2, "that was enough");
        assert!(is_aborted(&peers[1]).await && !is_aborted(&peers[2]).await);
    }

    #[tokio::test(flavor = "local")]
    async fn a_user_above_its_own_limit_loses_one_for_each_that_it_closes() {
        let limits = Limits { user_page_bytes: 1 << 20, ..Limits::default() };
        let registry = registry_with(&limits);
        let listener = registry.stack().listen(7).expect("a free port");
        let user = registry.resources().users().user(1);
        let first = closed_socket(&registry, &listener, true).await;
        let (socket, second) = connected_socket(&registry, &listener).await;
        let _much = user.pages().charge_anyway(3 << 20);
        registry.forget(&socket);
        assert_eq!((user.associations(), user.associations_refused()), (1, 1));
        registry.closed().keep_to(&user, limits.user_associations);
        assert_eq!(user.associations(), 1, "the only one stays");
        assert!(is_aborted(&first).await && !is_aborted(&second).await);
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_has_ended_needs_no_room() {
        let limits = Limits { user_page_bytes: 1 << 20, ..Limits::default() };
        let registry = registry_with(&limits);
        let listener = registry.stack().listen(7).expect("a free port");
        let user = registry.resources().users().user(1);
        let peers = [
            closed_socket(&registry, &listener, true).await,
            closed_socket(&registry, &listener, true).await,
        ];
        let (socket, ended) = connected_socket(&registry, &listener).await;
        drop(ended);
        let association = socket.associations().first().expect("its only one");
        until("it has ended", || association.has_ended()).await;
        // The user is above its limit, and loses one for each association that it leaves.
        let _much = user.pages().charge_anyway(3 << 20);
        registry.forget(&socket);
        assert_eq!((user.associations(), user.associations_refused()), (2, 0));
        for peer in &peers {
            assert!(!is_aborted(peer).await);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn associations_of_other_users_stay() {
        let registry = registry_with(&Limits { user_associations: 1, ..Limits::default() });
        let listener = registry.stack().listen(7).expect("a free port");
        let peer = closed_socket(&registry, &listener, true).await;
        let other = registry.resources().users().user(2);
        assert!(!registry.closed().make_room(&other, 1, Some(0)));
        assert_eq!(registry.closed().users(), [1]);
        assert!(!is_aborted(&peer).await);
    }

    #[tokio::test(flavor = "local")]
    async fn one_whose_socket_is_closed_is_never_refused() {
        let registry = registry_with(&Limits { user_associations: 0, ..Limits::default() });
        let listener = registry.stack().listen(7).expect("a free port");
        let peer = closed_socket(&registry, &listener, true).await;
        assert_eq!(registry.resources().users().user(1).associations(), 1);
        assert!(!is_aborted(&peer).await);
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_is_left_after_its_socket_has_released_the_port_is_shown_at_its_addresses() {
        for is_released_first in [true, false] {
            let registry = registry_with(&Limits::default());
            let listener = registry.stack().listen(7).expect("a free port");
            let (socket, _peer) = connected_socket(&registry, &listener).await;
            send_beyond_window(&socket).await;
            registry.bind(&socket, SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
            let local = socket.addresses().all_local();
            if is_released_first {
                registry.release_port(&socket);
                registry.forget(&socket);
            } else {
                let taken = registry.take_associations(&socket);
                registry.release_port(&socket);
                taken.for_each(|assoc| registry.leave(&socket, &assoc));
            }
            assert!(!socket.addresses().is_bound());
            let left = registry.closed().following(1, None, 2);
            assert_eq!(left.iter().map(|(_, closed, _)| &closed.local).collect::<Vec<_>>(), [&local]);
        }
    }
}
