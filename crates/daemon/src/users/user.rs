//! Users: what all sockets of one user share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use swiftwater::internals::{
    MadeData, Notify, OWNER_BYTES, PATH_BYTES, ReceiveBudget, SendBudget, TimeoutPacer,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::budget::{Account, Budget, Charge};
use super::limits::Limits;
use super::round_share::RoundShare;
use crate::system::lock::lock;

/// Memory of an association with one path that neither sends nor receives.
pub(crate) const ASSOCIATION_BYTES: usize = 10 << 10;
/// Memory of an association that has ended, besides what it has for the program.
pub(crate) const ENDED_ASSOCIATION_BYTES: usize = 8 << 10;

/// Time in which the associations of one user have one retransmission timer, heartbeat or probe of a window.
const TIMEOUT_INTERVAL: Duration = Duration::from_micros(125);
/// Maximum number of such timers at once.
const TIMEOUTS_AT_ONCE: u32 = 64;

/// A user of the daemon. Exists as long as a socket or an association of the user.
#[derive(Debug)]
pub(crate) struct User {
    id: u32,
    /// Accounts in separate budgets, so that data from peers does not keep a program from sending.
    sent: Arc<Account>,
    unread: Arc<Account>,
    received: Arc<Account>,
    left: Arc<Account>,
    pages: Arc<Account>,
    /// The part of the user in each round of the daemon's thread.
    round_share: Arc<RoundShare>,
    /// Paces the timers of the user's associations.
    timeout_pacer: TimeoutPacer,
    /// Taken by the answer about all sockets of the user that is being built: further ones wait in line.
    report: Arc<Semaphore>,
    /// Number of associations of one-to-many sockets, and of closed ones.
    associations: AtomicUsize,
    /// Number of such associations that were refused.
    associations_refused: AtomicU64,
}

/// All users of a daemon, and the budgets that they share.
pub(crate) struct Users {
    sent: Arc<Budget>,
    unread: Arc<Budget>,
    received: Arc<Budget>,
    left: Arc<Budget>,
    pages: Arc<Budget>,
    by_id: Mutex<HashMap<u32, Weak<User>>>,
}

/// The memory of an association, charged to its user until this is dropped. An association of a one-to-many socket, or of a
/// closed one, also counts for its user.
#[derive(Debug)]
pub(crate) struct AssociationPermit {
    user: Arc<User>,
    memory: Charge,
    /// Whether the association counts. That of a one-to-one socket does not, and its first path is charged with the socket.
    counts: bool,
}

impl AssociationPermit {
    /// Returns the memory of an association with this many paths and local addresses that neither sends nor receives.
    pub(crate) fn bytes_of(paths: usize, local_addresses: usize) -> usize {
        let owners = paths.max(1) * local_addresses.saturating_sub(1);
        ASSOCIATION_BYTES + paths.saturating_sub(1) * PATH_BYTES + owners * OWNER_BYTES
    }

    /// Returns the memory that is charged for the association.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    /// Charges the memory of an association that takes this much by now ([`AssociationPermit::bytes_of`]). The error is the
    /// memory that the user does not have left.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), usize> {
        let with_socket = if self.counts { 0 } else { ASSOCIATION_BYTES };
        let more = bytes.saturating_sub(with_socket + self.bytes());
        if more == 0 || self.memory.grow(more) { Ok(()) } else { Err(more) }
    }

    /// Charges the memory of an association that has ended as unread data, in place of the permit. Returns the permit if half of
    /// the user's memory for such data is used.
    pub(crate) fn into_unread(self) -> Result<Charge, AssociationPermit> {
        self.user.received.take_spare(ENDED_ASSOCIATION_BYTES).ok_or(self)
    }
}

/// Permission to build an answer about all sockets of a user.
pub(crate) struct ReportPermit {
    /// The next answer finds this user, and waits.
    _user: Arc<User>,
    _permit: OwnedSemaphorePermit,
}

impl Users {
    pub(crate) fn new(limits: &Limits) -> Users {
        Users {
            sent: Budget::new(limits.sent()),
            unread: Budget::new(limits.unread()),
            received: Budget::new(limits.received()),
            left: Budget::new(limits.left()),
            pages: Budget::new(limits.pages()),
            by_id: Mutex::default(),
        }
    }

    /// Returns the user with this identifier, if it has a socket or an association.
    pub(crate) fn known(&self, id: u32) -> Option<Arc<User>> {
        lock(&self.by_id).get(&id).and_then(Weak::upgrade)
    }

    /// Returns the user with this identifier.
    pub(crate) fn user(&self, id: u32) -> Arc<User> {
        let mut by_id = lock(&self.by_id);
        if let Some(user) = by_id.get(&id).and_then(Weak::upgrade) {
            return user;
        }
        by_id.retain(|_, user| user.strong_count() > 0);
        let user = Arc::new(User {
            id,
            sent: self.sent.account(id),
            unread: self.unread.account(id),
            received: self.received.account(id),
            left: self.left.account(id),
            pages: self.pages.account(id),
            round_share: RoundShare::new(),
            timeout_pacer: TimeoutPacer::new(TIMEOUT_INTERVAL, TIMEOUTS_AT_ONCE),
            report: Arc::new(Semaphore::new(1)),
            associations: AtomicUsize::new(0),
            associations_refused: AtomicU64::new(0),
        });
        by_id.insert(id, Arc::downgrade(&user));
        user
    }

    /// Returns whether more than one user has sockets or associations.
    pub(crate) fn are_several(&self) -> bool {
        lock(&self.by_id).values().filter(|user| user.strong_count() > 0).nth(1).is_some()
    }

    /// Returns the users that have sockets or associations, by identifier.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        let mut all: Vec<_> = lock(&self.by_id).values().filter_map(Weak::upgrade).collect();
        all.sort_by_key(|user| user.id);
        all
    }

    /// Returns the budget for messages that programs have sent and no peer has acknowledged.
    pub(crate) fn sent(&self) -> &Arc<Budget> {
        &self.sent
    }

    /// Returns the budget for long messages that programs have not read.
    pub(crate) fn unread(&self) -> &Arc<Budget> {
        &self.unread
    }

    /// Returns the budget for received data that programs have not read.
    pub(crate) fn received(&self) -> &Arc<Budget> {
        &self.received
    }
}

impl User {
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the account for messages that the user's programs have sent and no peer has acknowledged.
    pub(crate) fn sent(&self) -> &Arc<Account> {
        &self.sent
    }

    /// Returns the account for long messages that the user's programs have not read.
    pub(crate) fn unread(&self) -> &Arc<Account> {
        &self.unread
    }

    /// Returns the account for data that the user's associations have received.
    pub(crate) fn received(&self) -> &Arc<Account> {
        &self.received
    }

    /// Returns the account for long messages that the user's programs have left in pairs when they ended.
    pub(crate) fn left(&self) -> &Arc<Account> {
        &self.left
    }

    /// Returns the account for the pages of the user's sockets, and for their associations.
    pub(crate) fn pages(&self) -> &Arc<Account> {
        &self.pages
    }

    /// Returns the part of the user in each round of the daemon's thread.
    pub(crate) fn round_share(&self) -> &Arc<RoundShare> {
        &self.round_share
    }

    /// Returns the pacer of the timers of the user's associations.
    pub(crate) fn timeout_pacer(&self) -> &TimeoutPacer {
        &self.timeout_pacer
    }

    /// Waits until no other answer about all sockets of the user is being built.
    pub(crate) async fn begin_report(self: &Arc<Self>) -> Option<ReportPermit> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.report).acquire_owned().await.ok()?;
        Some(ReportPermit { _user: Arc::clone(self), _permit: permit })
    }

    /// Counts another association of a one-to-many socket or of a closed one, and charges its memory
    /// ([`AssociationPermit::bytes_of`]). Returns `None` if the user has as many as it may, or no memory left for one.
    pub(crate) fn admit_association(
        self: &Arc<Self>,
        associations_max: usize,
        bytes: usize,
    ) -> Option<AssociationPermit> {
        let memory = self.pages.take(bytes)?;
        let more = |count: usize| (count < associations_max).then_some(count + 1);
        // The memory is released again if this fails.
        self.associations.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(AssociationPermit { user: Arc::clone(self), memory, counts: true })
    }

    /// Returns the permit of the association of a one-to-one socket, with one path.
    pub(crate) fn permit_with_socket(self: &Arc<Self>) -> AssociationPermit {
        AssociationPermit { user: Arc::clone(self), memory: self.pages.charge_anyway(0), counts: false }
    }

    /// Counts an association that exists already and cannot be refused; later ones find less room.
    pub(crate) fn admit_association_anyway(self: &Arc<Self>, bytes: usize) -> AssociationPermit {
        let memory = self.pages.charge_anyway(bytes);
        self.associations.fetch_add(1, Relaxed);
        AssociationPermit { user: Arc::clone(self), memory, counts: true }
    }

    /// Counts an association that was refused, or aborted to make room for another one.
    pub(crate) fn count_refused_association(&self) {
        self.associations_refused.fetch_add(1, Relaxed);
    }

    /// Returns the number of associations of one-to-many sockets and of closed ones.
    pub(crate) fn associations(&self) -> usize {
        self.associations.load(Relaxed)
    }

    /// Returns the number of such associations that were refused.
    pub(crate) fn associations_refused(&self) -> u64 {
        self.associations_refused.load(Relaxed)
    }
}

impl Drop for AssociationPermit {
    fn drop(&mut self) {
        if self.counts {
            self.user.associations.fetch_sub(1, Relaxed);
        }
    }
}

/// Received data of the user's associations. The pool of each association keeps the user.
impl ReceiveBudget for User {
    fn take(&self, bytes: usize, is_reserve: bool) -> bool {
        ReceiveBudget::take(&*self.received, bytes, is_reserve)
    }

    fn release(&self, bytes: usize) {
        ReceiveBudget::release(&*self.received, bytes);
    }

    fn free_bytes(&self, is_reserve: bool) -> usize {
        ReceiveBudget::free_bytes(&*self.received, is_reserve)
    }

    fn charge(&self, bytes: usize) {
        ReceiveBudget::charge(&*self.received, bytes);
    }

    fn made(&self) -> &MadeData {
        self.received.made()
    }

    fn when_released(&self, notify: Weak<Notify>) {
        self.received.when_released(notify);
    }

    fn count_work(&self, work: usize) {
        self.round_share.count_work(work);
    }
}

/// Blocks of short messages that the user's associations send. The pool of each association keeps the user.
impl SendBudget for User {
    fn charge(&self, bytes: usize) {
        SendBudget::charge(&*self.sent, bytes);
    }

    fn release(&self, bytes: usize) {
        SendBudget::release(&*self.sent, bytes);
    }

    fn free_bytes(&self) -> usize {
        SendBudget::free_bytes(&*self.sent)
    }

    fn owners_charge(&self) -> bool {
        SendBudget::owners_charge(&*self.sent)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn an_association_counts_until_it_is_gone() {
        let users = Users::new(&Limits::default());
        let user = users.user(1);
        let admit = || user.admit_association(2, ASSOCIATION_BYTES);
        let (first, _second) = (admit().expect("room"), admit().expect("room"));
        assert!(admit().is_none());
        let counted = || (user.associations(), user.pages().charged_bytes());
        assert_eq!(counted(), (2, 2 * ASSOCIATION_BYTES));
        drop(first);
        assert_eq!(counted(), (1, ASSOCIATION_BYTES));
        let _third = admit().expect("room again");
        let memory = user.pages().charge_anyway(Limits::default().user_page_bytes);
        assert!(user.admit_association(3, ASSOCIATION_BYTES).is_none(), "no memory is left");
        assert_eq!(user.associations(), 2);
        drop(memory);
    }

    #[test]
    fn the_paths_of_an_association_are_charged() {
        let limits = Limits { user_page_bytes: 2 * ASSOCIATION_BYTES + 15 * PATH_BYTES, ..Limits::default() };
        let user = Users::new(&limits).user(1);
        let charged = || user.pages().charged_bytes();
        let of_paths = |paths| AssociationPermit::bytes_of(paths, 1);
        assert!(user.admit_association(9, of_paths(40)).is_none(), "no memory is left for so many");
        assert_eq!((charged(), user.associations()), (0, 0));
        let first = user.admit_association(9, of_paths(16)).expect("room");
        assert_eq!(charged(), ASSOCIATION_BYTES + 15 * PATH_BYTES);
        let mut second = user.admit_association(9, of_paths(1)).expect("room");
        assert_eq!(second.grow_to(of_paths(3)), Err(2 * PATH_BYTES));
        drop(first);
        assert_eq!([2, 3, 1].map(|paths| second.grow_to(of_paths(paths))), [Ok(()); 3]);
        assert_eq!(charged(), ASSOCIATION_BYTES + 2 * PATH_BYTES);
        drop(second);
        let mut with_socket = user.permit_with_socket();
        assert_eq!([1, 3, 2].map(|paths| with_socket.grow_to(of_paths(paths))), [Ok(()); 3]);
        assert_eq!((charged(), user.associations()), (2 * PATH_BYTES, 0));
        assert_eq!(with_socket.grow_to(AssociationPermit::bytes_of(3, 32)), Ok(()));
        assert_eq!(charged(), 2 * PATH_BYTES + 3 * 31 * OWNER_BYTES);
        drop(with_socket);
        assert_eq!((charged(), user.associations()), (0, 0));
    }

    #[test]
    fn received_data_and_blocks_of_short_messages_count_in_separate_accounts() {
        let limits = Limits { user_receive_bytes: 1000, user_memory_bytes: 800, ..Limits::default() };
        let user = Users::new(&limits).user(1);
        let charged = || (user.received().charged_bytes(), user.sent().charged_bytes());
        assert!(ReceiveBudget::take(&*user, 1000, true) && !ReceiveBudget::take(&*user, 1, true));
        assert_eq!((charged(), ReceiveBudget::free_bytes(&*user, true)), ((1000, 0), 0));
        ReceiveBudget::release(&*user, 400);
        assert_eq!((charged(), ReceiveBudget::free_bytes(&*user, true)), ((600, 0), 400));
        let free_before = SendBudget::free_bytes(&*user);
        SendBudget::charge(&*user, 500);
        assert_eq!((charged(), SendBudget::free_bytes(&*user)), ((600, 500), free_before - 500));
        SendBudget::release(&*user, 500);
        assert_eq!((charged(), SendBudget::free_bytes(&*user)), ((600, 0), free_before));
        assert!(SendBudget::owners_charge(&*user), "contents of other messages bring their charges");
    }

    #[test]
    fn what_programs_leave_has_a_limit_for_each_user_and_none_for_all() {
        let limits = Limits { user_memory_bytes: 1000, memory_bytes: 1000, ..Limits::default() };
        let users = Users::new(&limits);
        let left: Vec<_> =
            (1..=3).map(|id| users.user(id).left().take(1000).expect("its own limit")).collect();
        assert!(users.user(1).left().take(1).is_none());
        assert_eq!(users.user(2).sent().charged_bytes(), 0);
        drop(left);
    }

    #[test]
    fn all_users_are_listed_by_identifier() {
        let users = Users::new(&Limits::default());
        let ids = [70, 10, 60, 20, 50, 30, 40];
        let _kept = ids.map(|id| users.user(id));
        let listed: Vec<u32> = users.all().iter().map(|user| user.id()).collect();
        assert_eq!(listed, [10, 20, 30, 40, 50, 60, 70]);
    }

    #[tokio::test(flavor = "local")]
    async fn a_user_has_one_report_at_a_time() {
        let users = Users::new(&Limits::default());
        let (one, other) = (users.user(1), users.user(2));
        let first = one.begin_report().await.expect("no other report");
        let _of_other = other.begin_report().await.expect("another user waits for nobody");
        let mut second = std::pin::pin!(one.begin_report());
        let is_ready = second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_ready, "it waits in line");
        drop(first);
        assert!(second.await.is_some());
    }

    #[test]
    fn a_user_is_forgotten_with_the_last_socket_and_association() {
        let users = Users::new(&Limits::default());
        let first = users.user(1);
        assert!(Arc::ptr_eq(&first, &users.user(1)), "all sockets of a user have one");
        let of_association: Arc<dyn ReceiveBudget> = Arc::<User>::clone(&first);
        drop(first);
        assert_eq!(users.all().len(), 1, "its association keeps it");
        drop(of_association);
        assert!(users.all().is_empty());
        let _other = users.user(2);
        assert_eq!(lock(&users.by_id).len(), 1);
    }
}
