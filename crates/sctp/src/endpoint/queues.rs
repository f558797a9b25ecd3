//! Updates queue, timers and traces after each change of an association, or removes the association.

use super::Endpoint;
use crate::identifiers::AssociationId;
use crate::transmit::Scope;

impl Endpoint {
    pub(super) fn update_queues(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get(id) else { return };
        if association.is_closed() {
            return self.leave(id);
        }
        self.associations.note_attached(id);
        self.associations.enqueue(id, Scope::Due, self.limits);
        self.associations.arm(id);
        self.list_trace(id);
    }

    /// Puts an association that has something to send into its queue.
    #[inline]
    pub(super) fn enqueue(&mut self, id: AssociationId) {
        if self.associations.enqueue(id, Scope::Due, self.limits) {
            self.associations.arm(id);
        }
    }
}
