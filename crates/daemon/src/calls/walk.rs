//! Walks over the sockets of all users, in turns: however many there are, other tasks run in between.

use std::rc::Rc;

use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::users::quantum::{Quantum, RECORDS_PER_TURN};

/// Number of sockets or associations that count as one record of a turn, because they are only looked at.
const PASSED_OVER_PER_RECORD: usize = 16;

/// A walk over all sockets, in the order of their numbers.
pub(super) struct Walk<'a> {
    registry: &'a Registry,
    /// The number from which the walk continues; `None` at its end.
    next: Option<u64>,
    quantum: Quantum,
}

impl Walk<'_> {
    pub(super) fn over(registry: &Registry) -> Walk<'_> {
        Walk { registry, next: Some(0), quantum: Quantum::new() }
    }

    /// Returns the next sockets, of any user; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Vec<Rc<Socket>>> {
        let sockets = self.registry.numbered_from(self.next?, PASSED_OVER_PER_RECORD * RECORDS_PER_TURN);
        self.next = sockets.last().map(|last| last.number() + 1);
        self.pass_over(sockets.len()).await;
        Some(sockets).filter(|sockets| !sockets.is_empty())
    }

    /// Counts sockets or associations that are only looked at.
    async fn pass_over(&mut self, count: usize) {
        self.quantum.spend_or_yield(count.div_ceil(PASSED_OVER_PER_RECORD)).await;
    }

    /// Counts a socket or association that is reported.
    pub(super) async fn report_one(&mut self) {
        self.quantum.spend_or_yield(1).await;
    }
}
