//! The messages that wait for memory, by user.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use tokio::sync::oneshot;

use super::{Account, Budget, Charge};
use crate::users::fair_queue::FairQueue;

/// Maximum number of other users whose waiting messages are examined when one user releases memory.
pub(super) const USERS_EXAMINED_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) waiters: FairQueue<Waiter>,
    next: u64,
}

impl Default for Queue {
    /// Returns an empty queue, without a maximum: the tasks of a user's sockets wait for one message each.
    fn default() -> Queue {
        Queue { waiters: FairQueue::new(usize::MAX), next: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Waiter {
    number: u64,
    account: Arc<Account>,
    bytes: usize,
    granted: oneshot::Sender<Charge>,
}

impl Budget {
    /// Grants released memory to waiting messages, first to those of this user.
    pub(super) fn grant(&self, user: u32) {
        let mut granted = Vec::new();
        let mut queue = self.queue();
        self.grant_to(&mut queue, user, &mut granted);
        let mut in_vain = 0;
        while in_vain < USERS_EXAMINED_MAX.min(queue.waiters.users())
            && let Some(user) = queue.waiters.next_user()
        {
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
        let before = granted.len();
        while let Some(first) = queue.waiters.first_of(user)
            && let Some(charge) = first.account.charge(first.bytes)
            && let Some(Waiter { account, granted: waiter, .. }) = queue.waiters.take(user, 0)
        {
            account.leave_queue();
            granted.push((waiter, charge));
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
        let without_room = queue.waiters.push(self.user, waiter);
        debug_assert!(without_room.is_none(), "the queue has no maximum");
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
        let user = self.account.user;
        let Some(at) = queue.waiters.position(user, |waiter| waiter.number == self.number) else { return };
        let given_up = queue.waiters.take(user, at);
        self.account.leave_queue();
        drop(queue);
        drop(given_up);
        // Messages behind this one may need less memory.
        self.account.budget.grant(user);
    }
}
