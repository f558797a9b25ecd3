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

mod wait_queue;

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use channel_protocol::record::MESSAGE_BYTES_MAX;
use swiftwater::internals::{
    MadeData, Notify as Notified, POOL_RESERVED_PART, ReceiveBudget, ReleaseWaiters, SEND_RESERVED_PART,
    SendBudget, charged,
};
use tokio::sync::Notify;

use self::wait_queue::Queue;
use crate::system::lock::lock;

/// Freed memory is returned to the system only after the charges have reached this amount.
pub(crate) const MUCH_BYTES: usize = 2 * RETURNED_BYTES;
/// Freed memory is returned to the system in steps of this size.
pub(crate) const RETURNED_BYTES: usize = 16 << 20;

/// Cost of a message in addition to its bytes, wherever it waits.
const RECORD_COST_BYTES: usize = 512;
/// Returns the charge for a message of this length.
pub(crate) const fn cost_of(bytes: usize) -> usize {
    bytes + RECORD_COST_BYTES
}

/// Maximum excess over a limit while messages are moved: the longest message, and what a pair holds.
pub(crate) const MOVED_BYTES_MAX: usize = MESSAGE_BYTES_MAX + (4 << 20);
/// The reserved part is the limit of all users divided by this number.
const RESERVED_PART: usize = 4;
/// A user has a small charge if it is at most the limit of all users divided by this number.
const LITTLE_PART: usize = 256;
/// This part of a user's limit, besides the reserve, is free before the associations of one-to-many sockets take several messages
/// again: their rooms do not change with each message.
const FREE_AGAIN_PART: usize = 16;

/// The limits of one user and of all users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteLimits {
    pub(crate) user_bytes: usize,
    pub(crate) all_bytes: usize,
}

impl ByteLimits {
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
    limits: ByteLimits,
    charged_bytes: AtomicUsize,
    /// Held while room is checked and counted as taken. Any thread that releases memory may do so.
    counting: Mutex<()>,
    accounts: Mutex<HashMap<u32, Weak<Account>>>,
    queue: Mutex<Queue>,
    /// Number of messages in `queue`.
    waiting: AtomicUsize,
    /// Notified when the charges reach [`MUCH_BYTES`].
    much_charged: Notify,
    /// The modules of all users that wait for memory: while little is free for all, each release gives some to each user.
    waiting_modules: ReleaseWaiters,
}

/// The memory that is charged to one user.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    user: u32,
    charged_bytes: AtomicUsize,
    /// Number of the user's messages that wait for memory. Later messages do not overtake them.
    waiting: AtomicUsize,
    /// Number of times that a message had to wait.
    waits: AtomicU64,
    /// What modules have made of received data.
    made: MadeData,
}

/// Memory that is charged to a user until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(limits: ByteLimits) -> Arc<Budget> {
        Arc::new(Budget {
            limits,
            charged_bytes: AtomicUsize::new(0),
            counting: Mutex::default(),
            accounts: Mutex::default(),
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            much_charged: Notify::new(),
            waiting_modules: ReleaseWaiters::default(),
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
            made: MadeData::default(),
        });
        accounts.insert(user, Arc::downgrade(&account));
        account
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

    /// Returns the number of times that a message had to wait for memory.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
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

    /// Charges `bytes` if half of the user's limit stays free, for memory that others than the user's messages can do without.
    pub(crate) fn take_spare(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let is_taken = self.count(bytes, self.budget.limits.user_bytes / 2);
        is_taken.then(|| Charge { account: Arc::clone(self), bytes })
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

    /// Returns whether only the reserve for associations that hold little ([`SEND_RESERVED_PART`]) is left of the memory, or was
    /// left, as `before` says, and hardly more is free by now.
    pub(crate) fn has_only_reserve(&self, before: bool) -> bool {
        let limit = self.budget.limits.user_bytes;
        let free_again_bytes = if before { limit / FREE_AGAIN_PART } else { 0 };
        self.free_bytes(limit / SEND_RESERVED_PART + free_again_bytes) == 0
    }

    /// Returns how many bytes may be charged to the user while `kept_bytes` of the user's limit stay free.
    fn free_bytes(&self, kept_bytes: usize) -> usize {
        let limits = &self.budget.limits;
        // Either a message that has joined the queue sees a concurrent release here, or the releasing thread sees the
        // queued message.
        let most_bytes = limits.of_user(self.budget.charged_bytes.load(SeqCst));
        most_bytes.min(limits.user_bytes - kept_bytes).saturating_sub(self.charged_bytes.load(SeqCst))
    }

    /// Charges `bytes` of a message on its way to another place. The earlier place stays charged until the message has left it,
    /// so the charge may exceed the limits by [`MOVED_BYTES_MAX`], and does not wait behind other messages.
    pub(crate) fn take_moved(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let limits = &self.budget.limits;
        let _one_at_a_time = lock(&self.budget.counting);
        let exceeds = |charged: &AtomicUsize, limit: usize| {
            charged.load(SeqCst).saturating_add(bytes) > limit.saturating_add(MOVED_BYTES_MAX)
        };
        if exceeds(&self.charged_bytes, limits.user_bytes)
            || exceeds(&self.budget.charged_bytes, limits.all_bytes)
        {
            return None;
        }
        Some(self.charge_anyway(bytes))
    }

    /// Returns whether there would be room for `bytes` after the user has released `released_bytes`.
    pub(crate) fn would_have_room(&self, bytes: usize, released_bytes: usize) -> bool {
        let of_all = self.budget.charged_bytes.load(SeqCst).saturating_sub(released_bytes);
        let of_user = self.charged_bytes.load(SeqCst).saturating_sub(released_bytes);
        of_user.saturating_add(bytes) <= self.budget.limits.of_user(of_all)
    }

    /// Returns whether the charges exceed the limit that the user has while others use nothing by more than `excess_bytes`.
    pub(crate) fn exceeds_own_limit(&self, excess_bytes: usize) -> bool {
        self.charged_bytes.load(SeqCst) > self.budget.limits.user_bytes.saturating_add(excess_bytes)
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

    /// Adds another charge of the same account.
    pub(crate) fn join(&mut self, mut other: Charge) {
        debug_assert!(Arc::ptr_eq(&self.account, &other.account), "of the same account");
        self.bytes += std::mem::take(&mut other.bytes);
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
        charged(content, self)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Account {
    /// Releases a charge of `bytes`, and grants memory to waiting users.
    fn release_charge(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, SeqCst);
        let of_all_before = self.budget.charged_bytes.fetch_sub(bytes, SeqCst);
        if self.budget.waiting.load(SeqCst) > 0 {
            self.budget.grant(self.user);
        }
        self.made.waiting.notify();
        let ByteLimits { user_bytes, .. } = self.budget.limits;
        if self.budget.limits.of_user(of_all_before) < user_bytes {
            self.budget.waiting_modules.notify();
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

    fn charge(&self, bytes: usize) {
        self.count_anyway(bytes);
    }

    fn made(&self) -> &MadeData {
        &self.made
    }

    fn when_released(&self, notify: Weak<Notified>) {
        self.budget.waiting_modules.add(Weak::clone(&notify));
        self.made.waiting.add(notify);
    }
}

/// Blocks of short messages are charged to the user's account in place of the messages, which are copied there. Other messages
/// bring the charges of their contents.
impl SendBudget for Account {
    fn charge(&self, bytes: usize) {
        self.count_anyway(bytes);
    }

    fn release(&self, bytes: usize) {
        self.release_charge(bytes);
    }

    fn free_bytes(&self) -> usize {
        Account::free_bytes(self, self.budget.limits.user_bytes / SEND_RESERVED_PART)
    }

    fn owners_charge(&self) -> bool {
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.release_charge(self.bytes);
    }
}

#[cfg(test)]
mod tests;
