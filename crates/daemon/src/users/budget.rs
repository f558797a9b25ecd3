//! Limits the memory for the messages of each user, and of all users together.
//!
//! A message is charged to the user of the sending program before it is copied into the daemon, and remains charged as
//! long as its bytes exist: their owner contains the [`Charge`]. The daemon does not read the socket of a user without
//! room left, so the kernel makes this user's programs wait, and no others.
//!
//! The limit of a user decreases as the daemon fills (dynamic thresholds, Choudhury and Hahne 1998): it is at most the
//! memory that is free for all users. So a few greedy users leave room for others, and all users together stay below
//! the daemon's limit. Because many users together could leave nothing, a part of the limit is reserved for users with
//! small charges.

mod associations;
mod wait_queue;

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use swiftwater::internals::{POOL_RESERVED_PART, ReceiveBudget};
use tokio::sync::Notify;

pub(crate) use self::associations::AssociationSeat;
use self::wait_queue::Queue;
use super::round_share::RoundShare;

/// Freed memory is returned to the system only after the charges have reached this amount.
pub(crate) const MUCH_BYTES: usize = 2 * RETURNED_BYTES;
/// Freed memory is returned to the system in steps of this size.
pub(crate) const RETURNED_BYTES: usize = 16 << 20;

/// Cost of a message in addition to its bytes, wherever it waits.
pub(crate) const RECORD_COST_BYTES: usize = 512;
/// The reserved part is the limit of all users divided by this number.
const RESERVED_PART: usize = 4;
/// A user has a small charge if it is at most the limit of all users divided by this number.
const LITTLE_PART: usize = 256;

/// The limits of one user and of all users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) user_bytes: usize,
    pub(crate) all_bytes: usize,
}

impl Limits {
    /// Returns the limit of all users together whose charges are not small.
    fn unreserved_bytes(&self) -> usize {
        self.all_bytes - self.all_bytes / RESERVED_PART
    }

    /// Returns the limit of a user while `charged_to_all_bytes` are charged to all users.
    fn of_user(&self, charged_to_all_bytes: usize) -> usize {
        let little_bytes = self.all_bytes / LITTLE_PART;
        let of_reserve_bytes = little_bytes.min(self.all_bytes.saturating_sub(charged_to_all_bytes));
        let unreserved_bytes = self.unreserved_bytes().saturating_sub(charged_to_all_bytes);
        self.user_bytes.min(unreserved_bytes.max(of_reserve_bytes))
    }
}

/// The budget of all users for messages of one kind.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    charged_bytes: AtomicUsize,
    /// Held while room is checked and counted as taken. Any thread that releases memory may do so.
    counting: Mutex<()>,
    accounts: Mutex<HashMap<u32, Weak<Account>>>,
    queue: Mutex<Queue>,
    /// Number of messages in `queue`.
    waiting: AtomicUsize,
    /// Notified when the charges reach [`MUCH_BYTES`].
    much_charged: Notify,
}

/// The charges of one user.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    user: u32,
    charged_bytes: AtomicUsize,
    /// Number of the user's messages that wait for memory. Later messages do not overtake them.
    waiting: AtomicUsize,
    /// Number of times that a message had to wait.
    pub(crate) waits: AtomicU64,
    /// Number of associations that peers have set up.
    associations: AtomicUsize,
    pub(crate) refused: AtomicU64,
    /// The part of the user in each round of the daemon's thread.
    pub(crate) round_share: Arc<RoundShare>,
}

/// Memory that is charged to a user until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

/// The content of a message, with its charge.
struct Charged<T> {
    content: T,
    _charge: Charge,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Charged<T> {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref()
    }
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Arc<Budget> {
        Arc::new(Budget {
            limits,
            charged_bytes: AtomicUsize::new(0),
            counting: Mutex::default(),
            accounts: Mutex::default(),
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            much_charged: Notify::new(),
        })
    }

    /// Returns the account of a user. The budget forgets an account without references and charges.
    pub(crate) fn account(self: &Arc<Self>, user: u32) -> Arc<Account> {
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get(&user).and_then(Weak::upgrade) {
            return account;
        }
        accounts.retain(|_, account| account.strong_count() > 0);
        let account = Arc::new(Account {
            budget: Arc::clone(self),
            user,
            charged_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            associations: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            round_share: RoundShare::new(),
        });
        accounts.insert(user, Arc::downgrade(&account));
        account
    }

    /// Returns the accounts in use, by user.
    pub(crate) fn accounts(&self) -> Vec<Arc<Account>> {
        let mut accounts: Vec<_> = lock(&self.accounts).values().filter_map(Weak::upgrade).collect();
        accounts.sort_by_key(|account| account.user);
        accounts
    }

    /// Returns the bytes that are charged to all users.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.charged_bytes.load(Relaxed)
    }

    /// Waits until the charges are large enough that returning the memory later pays.
    pub(crate) async fn much_charged(&self) {
        self.much_charged.notified().await;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

impl Account {
    /// Returns the bytes that are charged to the user.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.charged_bytes.load(Relaxed)
    }

    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    /// Returns the maximum size of a message, which must fit an empty budget.
    pub(crate) fn message_bytes_max(&self) -> usize {
        let limits = self.budget.limits;
        limits.user_bytes.min(limits.unreserved_bytes()).saturating_sub(RECORD_COST_BYTES)
    }

    /// Charges `bytes`, if there is room and no message of the user waits for room.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        if self.waiting.load(Relaxed) > 0 {
            return None;
        }
        self.charge(bytes)
    }

    fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.count(bytes, 0).then(|| Charge { account: Arc::clone(self), bytes })
    }

    /// Counts `bytes` if there is room while `kept_bytes` of the user's limit stay free.
    fn count(&self, bytes: usize, kept_bytes: usize) -> bool {
        let _one_at_a_time = lock(&self.budget.counting);
        let has_room = bytes <= self.free_bytes(kept_bytes);
        if has_room {
            self.count_anyway(bytes);
        }
        has_room
    }

    /// Counts `bytes` that exist already, regardless of the limits.
    fn count_anyway(&self, bytes: usize) {
        self.charged_bytes.fetch_add(bytes, Relaxed);
        let before = self.budget.charged_bytes.fetch_add(bytes, Relaxed);
        if before < MUCH_BYTES && before + bytes >= MUCH_BYTES {
            self.budget.much_charged.notify_one();
        }
    }

    /// Returns how many bytes may be charged to the user while `kept_bytes` of the user's limit stay free.
    fn free_bytes(&self, kept_bytes: usize) -> usize {
        let limits = &self.budget.limits;
        // Either a message that has joined the queue sees a concurrent release here, or the releasing thread sees the
        // queued message.
        let most_bytes = limits.of_user(self.budget.charged_bytes.load(SeqCst));
        most_bytes.min(limits.user_bytes - kept_bytes).saturating_sub(self.charged_bytes.load(SeqCst))
    }

    /// Charges `bytes` that exist already and cannot be refused; later charges find less room.
    pub(crate) fn charge_anyway(self: &Arc<Self>, bytes: usize) -> Charge {
        self.count_anyway(bytes);
        Charge { account: Arc::clone(self), bytes }
    }
}

impl Charge {
    /// Adds `bytes` to the charge, if there is room for them.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let has_room = self.account.count(bytes, 0);
        self.bytes += if has_room { bytes } else { 0 };
        has_room
    }

    /// Reduces the charge to `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.bytes = bytes;
            self.account.release_charge(less);
        }
    }

    /// Returns `content`, which stays charged as long as any part of it exists.
    pub(crate) fn on(self, content: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Charged { content, _charge: self })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Account {
    /// Releases a charge of `bytes`, and grants memory to waiting users.
    fn release_charge(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, SeqCst);
        self.budget.charged_bytes.fetch_sub(bytes, SeqCst);
        if self.budget.waiting.load(SeqCst) > 0 {
            self.budget.grant(self.user);
        }
    }

    /// Returns the part of a user's limit that received data may use only from the reserve.
    fn kept_bytes(&self, is_reserve: bool) -> usize {
        if is_reserve { 0 } else { self.budget.limits.user_bytes / POOL_RESERVED_PART }
    }
}

/// Received data of a user's associations is charged to the user's account. It never waits for memory: the receive
/// windows close instead.
impl ReceiveBudget for Account {
    fn take(&self, bytes: usize, is_reserve: bool) -> bool {
        self.count(bytes, self.kept_bytes(is_reserve))
    }

    fn release(&self, bytes: usize) {
        self.release_charge(bytes);
    }

    fn free_bytes(&self, is_reserve: bool) -> usize {
        Account::free_bytes(self, self.kept_bytes(is_reserve))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.release_charge(self.bytes);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::wait_queue::USERS_EXAMINED_MAX;
    use super::*;

    fn budget(user_bytes: usize, all_bytes: usize) -> Arc<Budget> {
        Budget::new(Limits { user_bytes, all_bytes })
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_message_is_charged_as_long_as_a_part_of_it_lives() {
        let account = budget(100, 1000).account(1);
        let mut charge = account.take(90).expect("room");
        charge.shrink_to(60);
        let content = charge.on(vec![7; 60]);
        let part = content.slice(3..4);
        drop(content);
        assert_eq!(account.charged_bytes(), 60);
        assert!(account.take(41).is_none());
        drop(part);
        assert_eq!((account.charged_bytes(), account.budget.charged_bytes()), (0, 0));
    }

    #[test]
    fn messages_wait_in_their_order() {
        let account = budget(100, 1000).account(1);
        let first = account.take(50).expect("room");
        let _second = account.take(50).expect("room");
        let mut large = pin!(account.room(50));
        assert!(poll(large.as_mut()).is_pending());
        let mut small = pin!(account.room(1));
        assert!(poll(small.as_mut()).is_pending());
        assert!(account.take(0).is_none(), "nothing overtakes");
        drop(first);
        let Poll::Ready(Some(large)) = poll(large) else { panic!("there is room for the first") };
        assert!(poll(small.as_mut()).is_pending());
        drop(large);
        assert!(poll(small).is_ready());
    }

    #[test]
    fn one_that_gives_up_holds_nobody_up() {
        let account = budget(100, 1000).account(1);
        let _half = account.take(50).expect("room");
        let mut small = pin!(account.room(10));
        {
            let mut large = pin!(account.room(100));
            assert!(poll(large.as_mut()).is_pending());
            assert!(poll(small.as_mut()).is_pending());
        }
        assert!(poll(small).is_ready());
        assert!(account.budget.queue().of_users.is_empty() && account.budget.queue().turns.is_empty());
        assert_eq!(account.budget.waiting.load(Relaxed), 0);
    }

    #[test]
    fn threads_that_charge_at_once_stay_within_the_limit() {
        let account = budget(100, 1000).account(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let charge = account.take(100);
                        assert!(charge.is_none() || account.charged_bytes() == 100);
                    }
                });
            }
        });
        assert_eq!((account.charged_bytes(), account.budget.charged_bytes()), (0, 0));
    }

    #[test]
    fn users_who_take_what_they_can_leave_room_for_others() {
        let budget = budget(1000, 1000);
        let take_all = |user| {
            let account = budget.account(user);
            std::iter::from_fn(|| account.take(1)).collect::<Vec<_>>()
        };
        let greedy: Vec<_> = (0..3).map(take_all).collect();
        assert!(budget.charged_bytes() <= 1000);
        let modest = budget.account(9);
        assert!(modest.take(50).is_some(), "{} are charged", budget.charged_bytes());
        drop(greedy);
        assert_eq!(budget.charged_bytes(), 0);
    }

    #[test]
    fn users_in_concert_leave_a_reserve_to_those_who_have_little() {
        const ALL_BYTES: usize = 1 << 20;
        let budget = budget(ALL_BYTES, ALL_BYTES);
        let little = ALL_BYTES / LITTLE_PART;
        let take_all = |user| {
            let account = budget.account(user);
            std::iter::from_fn(|| account.take(little + 1)).collect::<Vec<_>>()
        };
        let _greedy: Vec<_> = (0..100).map(take_all).collect();
        let unreserved = ALL_BYTES - ALL_BYTES / RESERVED_PART;
        assert!(budget.charged_bytes() <= unreserved, "{} are charged", budget.charged_bytes());
        assert!(budget.charged_bytes() > unreserved - 2 * little, "the unreserved part is used");
        let modest = budget.account(1000);
        let _some = modest.take(little).expect("the reserve");
        assert!(modest.take(1).is_none(), "the reserve is for small charges");
    }

    #[test]
    fn memory_that_one_user_gives_back_goes_to_others_who_wait() {
        let budget = budget(1000, 1000);
        let (first, second) = (budget.account(1), budget.account(2));
        let held = first.take(500).expect("room");
        let mut waits = pin!(second.room(600));
        assert!(poll(waits.as_mut()).is_pending());
        drop(held);
        assert!(poll(waits).is_ready());
    }

    #[test]
    fn a_message_is_granted_exactly_the_room_that_it_needs() {
        let account = budget(100, 1000).account(1);
        let mut held = account.take(60).expect("room");
        let Poll::Ready(_rest) = poll(pin!(account.room(40))) else { panic!("it fits") };
        let mut waits = pin!(account.room(1));
        assert!(poll(waits.as_mut()).is_pending());
        held.shrink_to(60);
        assert!(poll(waits.as_mut()).is_pending(), "nothing was released");
        held.shrink_to(59);
        assert!(poll(waits).is_ready());
    }

    #[test]
    fn released_memory_goes_first_to_its_user_and_then_to_others_in_turn() {
        let budget = budget(1000, 1000);
        let [first, second, third] = [1, 2, 3].map(|user| budget.account(user));
        let held = first.take(700).expect("room");
        // There is room for one of them at a time.
        let [mut of_second, mut of_third, mut of_first] =
            [&second, &third, &first].map(|account| Box::pin(account.room(400)));
        assert!(
            [&mut of_second, &mut of_third, &mut of_first].map(|room| poll(room.as_mut()).is_pending())
                == [true; 3]
        );
        drop(held);
        let Poll::Ready(own) = poll(of_first.as_mut()) else { panic!("the memory was this user's") };
        assert!(poll(of_second.as_mut()).is_pending() && poll(of_third.as_mut()).is_pending());
        drop(own);
        let Poll::Ready(next) = poll(of_second.as_mut()) else { panic!("it has waited longest") };
        assert!(poll(of_third.as_mut()).is_pending());
        drop(next);
        assert!(poll(of_third.as_mut()).is_ready());
    }

    #[test]
    fn the_messages_of_one_user_are_granted_up_to_the_first_that_does_not_fit() {
        let budget = budget(1000, 1000);
        let (first, second) = (budget.account(1), budget.account(2));
        let (held, crumb) = (first.charge_anyway(727), first.charge_anyway(20));
        let mut waiting = [5, 5, 600, 1].map(|bytes| Box::pin(second.room(bytes)));
        assert!(waiting.iter_mut().all(|room| poll(room.as_mut()).is_pending()));
        drop(crumb);
        // Polled again, a future that was ready would panic.
        let [one, other, large, behind] = &mut waiting;
        let granted = [one, other].map(|room| poll(room.as_mut()));
        assert!(granted.iter().all(Poll::is_ready));
        assert!(poll(large.as_mut()).is_pending() && poll(behind.as_mut()).is_pending());
        assert_eq!(budget.queue().turns, [2], "the user keeps one turn");
        drop(held);
        assert!(poll(large.as_mut()).is_ready() && poll(behind.as_mut()).is_ready());
        assert!(budget.queue().of_users.is_empty() && budget.queue().turns.is_empty());
        assert_eq!((budget.waiting.load(Relaxed), second.waiting.load(Relaxed)), (0, 0));
    }

    #[test]
    fn a_release_looks_at_so_many_users_and_the_next_one_at_those_behind_them() {
        for in_vain in [USERS_EXAMINED_MAX - 1, USERS_EXAMINED_MAX] {
            let budget = budget(1000, 1000);
            let first = budget.account(1);
            let _held = first.charge_anyway(727);
            let mut crumbs = [10, 10].map(|bytes| first.charge_anyway(bytes)).into_iter();
            let wait = |(user, bytes)| {
                let account = budget.account(user);
                let mut room = Box::pin(async move { account.room(bytes).await });
                assert!(poll(room.as_mut()).is_pending());
                room
            };
            let _large: Vec<_> = (0..in_vain as u32).map(|n| wait((10 + n, 600))).collect();
            let mut small = wait((2, 10));
            // Those that joined have looked round, too.
            while budget.queue().turns.back() != Some(&2) {
                budget.queue().turns.rotate_left(1);
            }
            drop(crumbs.next());
            assert_eq!(poll(small.as_mut()).is_ready(), in_vain < USERS_EXAMINED_MAX);
            if in_vain == USERS_EXAMINED_MAX {
                drop(crumbs.next());
                assert!(poll(small.as_mut()).is_ready());
            }
        }
    }

    #[test]
    fn one_user_at_its_limit_costs_another_nothing() {
        let budget = budget(100, 1000);
        let (first, second) = (budget.account(1), budget.account(2));
        let _all = first.take(100).expect("room");
        let mut waits = pin!(first.room(1));
        assert!(poll(waits.as_mut()).is_pending());
        assert!(second.take(100).is_some());
    }

    #[test]
    fn the_longest_message_fits_when_nothing_else_is_there() {
        // A part of the limit is reserved for users with small charges.
        for (user_bytes, all_bytes) in [(3000, 10_000), (10_000, 4000)] {
            let account = budget(user_bytes, all_bytes).account(1);
            assert_eq!(account.message_bytes_max(), 3000 - RECORD_COST_BYTES);
            assert!(account.take(3000).is_some() && account.take(3001).is_none());
        }
        assert_eq!(budget(100, 100).account(1).message_bytes_max(), 0);
    }

    #[test]
    fn the_associations_of_a_user_share_its_memory() {
        let account = budget(1000, 10_000).account(1);
        let pool: &dyn ReceiveBudget = &*account;
        assert_eq!((pool.free_bytes(false), pool.free_bytes(true)), (750, 1000));
        assert!(pool.take(750, false) && !pool.take(1, false));
        assert!(pool.take(200, true), "the reserve");
        let waits = account.charge_anyway(100);
        assert_eq!((account.charged_bytes(), pool.free_bytes(true)), (1050, 0));
        pool.release(950);
        drop(waits);
        assert_eq!((account.charged_bytes(), account.budget.charged_bytes()), (0, 0));
    }

    #[test]
    fn the_receive_memory_of_all_users_bounds_that_of_each() {
        let budget = budget(1000, 1000);
        let (first, second) = (budget.account(1), budget.account(2));
        let all_of = |account: &Account| -> usize {
            std::iter::repeat_with(|| ReceiveBudget::take(account, 1, false))
                .take_while(|taken| *taken)
                .count()
        };
        let (most, rest) = (all_of(&first), all_of(&second));
        assert!(rest > 0 && most + rest <= 750, "{most} and {rest}");
    }

    #[test]
    fn an_association_counts_until_it_is_gone() {
        let account = budget(100, 1000).account(1);
        let (first, _second) = (account.seat(2).expect("a seat"), account.seat(2).expect("a seat"));
        assert!(account.seat(2).is_none());
        drop(first);
        assert!(account.seat(2).is_some());
    }

    #[test]
    fn an_account_is_forgotten_with_the_last_that_is_charged_to_it() {
        let budget = budget(100, 1000);
        let charge = budget.account(1).take(10).expect("room");
        assert_eq!(budget.account(1).charged_bytes(), 10);
        drop(charge);
        let _other = budget.account(2);
        assert_eq!(lock(&budget.accounts).len(), 1);
    }
}
