//! The messages that wait for memory, by user.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use tokio::sync::oneshot;

use super::{Account, Budget, Charge};

/// Maximum number of other users whose waiting messages are examined when one user releases memory.
pub(super) const USERS_EXAMINED_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) of_users: HashMap<u32, VecDeque<Waiter>>,
    /// The users of `of_users`, in the order in which they are examined.
    pub(super) turns: VecDeque<u32>,
    next: u64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    number: u64,
    account: Arc<Account>,
    bytes: usize,
    granted: oneshot::Sender<Charge>,
}

impl Queue {
    fn forget(&mut self, user: u32) {
        self.of_users.remove(&user);
        self.turns.retain(|listed| *listed != user);
    }
}

impl Budget {
    /// Grants released memory to waiting messages, first to those of this user.
    pub(super) fn grant(&self, user: u32) {
        let mut granted = Vec::new();
        let mut queue = self.queue();
        self.grant_to(&mut queue, user, &mut granted);
        let mut in_vain = 0;
        while in_vain < USERS_EXAMINED_MAX.min(queue.turns.len())
            && let Some(user) = queue.turns.pop_front()
        {
            queue.turns.push_back(user);
            in_vain += usize::from(!self.grant_to(&mut queue, user, &mut granted));
        }
        drop(queue);
        for (waiter, charge) in granted {
            // If the receiver waits no more, dropping the charge releases the memory.
            let _ = waiter.send(charge);
        }
    }

    /// Grants memory to the waiting messages of one user, in order. Returns whether any was granted.
    fn grant_to(
        &self,
        queue: &mut Queue,
        user: u32,
        granted: &mut Vec<(oneshot::Sender<Charge>, Charge)>,
    ) -> bool {
        let Some(waiters) = queue.of_users.get_mut(&user) else { return false };
        let before = granted.len();
        while let Some(first) = waiters.front()
            && let Some(charge) = first.account.charge(first.bytes)
            && let Some(Waiter { account, granted: waiter, .. }) = waiters.pop_front()
        {
            account.leave_queue();
            granted.push((waiter, charge));
        }
        if waiters.is_empty() {
            queue.forget(user);
        }
        granted.len() > before
    }
}

impl Account {
    /// Charges `bytes` as soon as there is room. Dropping the future gives up the place in the queue.
    pub(crate) async fn room(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        if let Some(charge) = self.take(bytes) {
            return Some(charge);
        }
        self.waits.fetch_add(1, Relaxed);
        let (number, granted) = self.join_queue(bytes);
        let _place = PlaceInQueue { account: self, number };
        // Memory may have been released before the message joined the queue.
        self.budget.grant(self.user);
        granted.await.ok()
    }

    fn join_queue(self: &Arc<Self>, bytes: usize) -> (u64, oneshot::Receiver<Charge>) {
        let (granted, receiver) = oneshot::channel();
        let mut queue = self.budget.queue();
        let number = queue.next;
        queue.next += 1;
        let waiter = Waiter { number, account: Arc::clone(self), bytes, granted };
        if !queue.of_users.contains_key(&self.user) {
            queue.turns.push_back(self.user);
        }
        queue.of_users.entry(self.user).or_default().push_back(waiter);
        self.waiting.fetch_add(1, Relaxed);
        self.budget.waiting.fetch_add(1, SeqCst);
        (number, receiver)
    }

    fn leave_queue(&self) {
        self.waiting.fetch_sub(1, Relaxed);
        self.budget.waiting.fetch_sub(1, Relaxed);
    }
}

/// A place in the queue, until it is served or dropped.
struct PlaceInQueue<'a> {
    account: &'a Arc<Account>,
    number: u64,
}

impl Drop for PlaceInQueue<'_> {
    fn drop(&mut self) {
        let mut queue = self.account.budget.queue();
        let Some(waiters) = queue.of_users.get_mut(&self.account.user) else { return };
        let Some(at) = waiters.iter().position(|waiter| waiter.number == self.number) else { return };
        let given_up = waiters.remove(at);
        if waiters.is_empty() {
            queue.forget(self.account.user);
        }
        self.account.leave_queue();
        drop(queue);
        drop(given_up);
        // Messages behind this one may need less memory.
        self.account.budget.grant(self.account.user);
    }
}
