//! The sockets of all associations, by the numbers of these.

use std::cell::RefCell;
use std::collections::HashMap;

use channel_protocol::assoc_id::AssocId;

/// The number of the socket of each association that has not ended.
#[derive(Debug, Default)]
pub(crate) struct AssociationIndex {
    sockets: RefCell<HashMap<AssocId, u64>>,
}

impl AssociationIndex {
    /// Returns the number of the socket that has this association.
    pub(super) fn socket_of(&self, id: AssocId) -> Option<u64> {
        self.sockets.borrow().get(&id).copied()
    }

    /// Enters an association of a socket. It may come from another one.
    pub(super) fn insert(&self, id: AssocId, socket: u64) {
        self.sockets.borrow_mut().insert(id, socket);
    }

    /// Removes an association, unless another socket has it by now.
    pub(super) fn remove(&self, id: AssocId, socket: u64) {
        let mut sockets = self.sockets.borrow_mut();
        if sockets.get(&id) == Some(&socket) {
            sockets.remove(&id);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.sockets.borrow().len()
    }
}
