//! The memory of a socket's user: the accounts that its messages are charged to, and what was reserved for the next record.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;

use crate::users::budget::{Account, Charge, cost_of};
use crate::users::user::User;

/// Accounts of a socket's user, each in a separate budget, so that data from peers does not keep a program from sending.
pub(crate) struct Accounts {
    /// For messages that the program sends.
    sent: Arc<Account>,
    /// For long messages that the program has not read.
    unread: Arc<Account>,
    /// For data that the associations have received, and for messages that wait for room in the pair.
    received: Arc<Account>,
    /// For long messages that the program has left in the pair when it closed its end.
    left: Arc<Account>,
    /// Memory reserved for the next record by [`Accounts::reserve`].
    reserved: RefCell<Option<Charge>>,
}

impl Accounts {
    /// Returns the accounts of a user.
    pub(crate) fn of(user: &User) -> Accounts {
        let [sent, unread, received, left] =
            [user.sent(), user.unread(), user.received(), user.left()].map(Arc::clone);
        Accounts { sent, unread, received, left, reserved: RefCell::default() }
    }

    /// Returns accounts that are all one.
    #[cfg(test)]
    pub(super) fn all_of(account: &Arc<Account>) -> Accounts {
        let [sent, unread, received, left] = [(); 4].map(|()| Arc::clone(account));
        Accounts { sent, unread, received, left, reserved: RefCell::default() }
    }

    /// Returns the account for messages that the user's programs send.
    pub(crate) fn sent(&self) -> &Arc<Account> {
        &self.sent
    }

    /// Returns the account for long messages that the user's programs have not read.
    pub(crate) fn unread(&self) -> &Arc<Account> {
        &self.unread
    }

    /// Returns the account for data that the user's associations have received.
    pub(super) fn received(&self) -> &Arc<Account> {
        &self.received
    }

    /// Returns the account for long messages that the user's programs have left in pairs when they ended.
    pub(super) fn left(&self) -> &Arc<Account> {
        &self.left
    }

    /// Charges the user for a record from the program, with what was reserved for it if that suffices. `None`: the user has no
    /// memory left.
    pub(super) fn take_for_record(&self, bytes: usize) -> Option<Charge> {
        let reserved = self.reserved.take().filter(|charge| charge.bytes() >= bytes);
        reserved.or_else(|| self.sent.take(bytes))
    }

    /// Waits until the user has memory for the next record, and reserves it.
    pub(super) async fn reserve(&self, bytes: usize) {
        let charge = self.sent.room(bytes).await;
        self.reserved.replace(charge);
    }

    /// Copies bytes of an unread message, which a program has taken out of the pair, into memory of the user. Waits for memory
    /// only if the messages on their way already exceed the limits: the reader that the memory waits for may be the caller.
    pub(super) async fn charge_and_copy(&self, content: &[u8]) -> Result<Bytes, Errno> {
        let bytes = cost_of(content.len());
        let charge = match self.unread.take_moved(bytes) {
            Some(charge) => charge,
            None => self.unread.room(bytes).await.ok_or(Errno::NOMEM)?,
        };
        Ok(charge.on(content.to_vec()))
    }

    /// Charges the user for a notification that waits for the end of a message, if half of the memory stays free.
    pub(super) fn charge_notification(&self, bytes: usize) -> Option<Charge> {
        self.received.take_spare(cost_of(bytes))
    }

    /// Charges the user for a message that waits for room in the pair.
    pub(super) fn charge_waiting(&self, bytes: usize) -> Charge {
        self.received.charge_anyway(cost_of(bytes))
    }
}
