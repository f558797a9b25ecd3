//! The associations of a socket whose program has subscribed to the sender dry event (RFC 6458 §6.1.9) while all their data was
//! acknowledged, so that a notification is due at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use channel_protocol::assoc_id::AssocId;

use super::association::SocketAssociation;

/// The associations whose notification is due and not in the channel yet. One is due for each association of the socket, however
/// often the program subscribes, so their number needs no limit of its own.
#[derive(Default)]
pub(crate) struct DueDry {
    associations: RefCell<BTreeMap<AssocId, Rc<SocketAssociation>>>,
    is_notifying: Cell<bool>,
}

/// The right to notify the program, which one task has until it drops this.
pub(crate) struct DryNotifier<'a>(&'a DueDry);

impl DueDry {
    /// Makes a notification of an association due.
    pub(crate) fn add(&self, assoc: Rc<SocketAssociation>) {
        self.associations.borrow_mut().insert(assoc.id(), assoc);
    }

    /// Returns an association whose notification is due.
    pub(crate) fn first(&self) -> Option<Rc<SocketAssociation>> {
        self.associations.borrow().first_key_value().map(|(_, assoc)| Rc::clone(assoc))
    }

    /// Returns whether a notification of this association is due.
    pub(crate) fn contains(&self, id: AssocId) -> bool {
        self.associations.borrow().contains_key(&id)
    }

    /// Removes an association: its notification is in the channel, due at another socket, or untrue.
    pub(crate) fn remove(&self, id: AssocId) -> Option<Rc<SocketAssociation>> {
        self.associations.borrow_mut().remove(&id)
    }

    /// Returns the right to notify; `None` if nothing is due or a task has it.
    pub(crate) fn begin(&self) -> Option<DryNotifier<'_>> {
        let begins = !self.associations.borrow().is_empty() && !self.is_notifying.replace(true);
        begins.then(|| DryNotifier(self))
    }
}

impl Drop for DryNotifier<'_> {
    fn drop(&mut self) {
        self.0.is_notifying.set(false);
    }
}
