//! The common timer heap of all associations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::AssociationId;
use crate::time::Time;

/// A heap with at most a few entries per association. An association whose deadline moves later keeps its entry; when the entry
/// is due, the real deadline is entered. So restarting T3 at every SACK costs nothing.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Time, AssociationId)>>,
}

impl Timers {
    pub(super) fn push(&mut self, at: Time, id: AssociationId) {
        self.heap.push(Reverse((at, id)));
    }

    #[cfg(feature = "testing")]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes an entry that is due.
    pub(super) fn pop(&mut self, now: Time) -> Option<AssociationId> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, id))| id)
    }
}
