//! The queues of associations that have something to send, and the timer of each association.

use super::Endpoint;
use crate::association::Queued;
use crate::identifiers::AssociationId;
use crate::transmit::Scope;

impl Endpoint {
    pub(super) fn update_queues(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(id.index()) else { return };
        if association.is_closed() {
            return self.leave(id);
        }
        if !association.attached && association.is_attached() {
            association.attached = true;
            self.attached.push(id);
        }
        self.arm(id);
        self.enqueue(id);
        self.list_trace(id);
    }

    /// Adds an entry to the timer heap if none is as early as the association's deadline.
    #[inline]
    pub(super) fn arm(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(id.index()) else { return };
        let Some(deadline) = association.deadline() else { return };
        if association.armed.is_none_or(|at| deadline < at) {
            association.armed_later = association.armed.replace(deadline);
            self.timers.push(deadline, id);
        }
    }

    /// Puts an association that has something to send into its queue.
    pub(super) fn enqueue(&mut self, id: AssociationId) {
        self.enqueue_by(id, Scope::Due);
    }

    pub(super) fn enqueue_by(&mut self, id: AssociationId, scope: Scope) {
        let Some(association) = self.associations.get_mut(id.index()) else { return };
        if association.is_closed() {
            return;
        }
        let due = association.due(self.limits) || (scope == Scope::All && association.sendable());
        match association.queued {
            Queued::Due => {}
            Queued::Held if !due => {}
            Queued::Held => {
                self.held.retain(|other| *other != id);
                association.queued = Queued::Due;
                self.due.push_back(id);
            }
            Queued::No if due => {
                association.queued = Queued::Due;
                self.due.push_back(id);
            }
            Queued::No => {
                self.hold(id);
                // The pacer may hold it back, which runs no timer while no data waits.
                self.arm(id);
            }
        }
    }

    /// Makes all associations due that can send anything now, however little.
    pub(super) fn promote_held(&mut self) {
        for _ in 0..self.held.len() {
            let Some(id) = self.held.pop_front() else { return };
            let Some(association) = self.associations.get_mut(id.index()) else { continue };
            if association.sendable() {
                association.queued = Queued::Due;
                self.due.push_back(id);
            } else {
                self.held.push_back(id);
            }
        }
    }

    /// Puts an association whose data waits for a window, or for more data to bundle, into the queue of held ones.
    pub(super) fn hold(&mut self, id: AssociationId) {
        if let Some(association) = self.associations.get_mut(id.index())
            && association.queued == Queued::No
            && association.has_waiting()
        {
            association.due(self.limits);
            association.queued = Queued::Held;
            self.held.push_back(id);
        }
    }
}
