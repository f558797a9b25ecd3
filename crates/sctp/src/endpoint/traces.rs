//! Queues of trace records.

use std::collections::VecDeque;

use super::{AssociationId, Endpoint};
use crate::trace::{Record, Tracer};

/// Maximum number of ended associations whose last records wait. Beyond that, the oldest are dropped.
const ENDED_MAX: usize = 64;

/// Associations that have records, so that no other association is visited.
#[derive(Debug, Default)]
pub(super) struct Traces {
    due: VecDeque<AssociationId>,
    ended: VecDeque<Box<Tracer>>,
}

impl Endpoint {
    /// Takes the oldest record of an association that is traced ([`AssociationConfig::trace`](crate::AssociationConfig)).
    /// Records of one association come in their order.
    pub fn poll_trace(&mut self) -> Option<Record> {
        while let Some(tracer) = self.traces.ended.front_mut() {
            if let Some(record) = tracer.pop() {
                return Some(record);
            }
            self.traces.ended.pop_front();
        }
        while let Some(&id) = self.traces.due.front() {
            if let Some(record) = self.associations.get_mut(id).and_then(|a| a.pop_trace()) {
                return Some(record);
            }
            self.traces.due.pop_front();
        }
        None
    }

    /// Queues an association that has just recorded something.
    #[inline]
    pub(super) fn list_trace(&mut self, id: AssociationId) {
        if self.associations.get_mut(id).is_some_and(|a| a.take_trace_news()) {
            self.traces.due.push_back(id);
        }
    }

    /// Keeps the records of an association that has ended.
    pub(super) fn keep_trace(&mut self, id: AssociationId, tracer: Option<Box<Tracer>>) {
        let Some(tracer) = tracer else { return };
        self.traces.due.retain(|other| *other != id);
        if self.traces.ended.len() >= ENDED_MAX {
            self.traces.ended.pop_front();
        }
        self.traces.ended.push_back(tracer);
    }
}
