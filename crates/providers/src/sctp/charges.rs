//! What messages are charged whose association is gone, and which the reader of their stream has not taken.

use std::collections::{HashMap, VecDeque};

use ::sctp::{AssociationId, ReceiveCharge};
use streams::StreamId;

/// Charges of associations that have ended, in the order of their ends: an identifier may be used again.
type Ended = HashMap<u32, VecDeque<ReceiveCharge>>;

/// Keeps charges until the messages were read, or their stream is closed.
#[derive(Debug, Default)]
pub(super) struct Charges {
    of_streams: HashMap<StreamId, Ended>,
}

impl Charges {
    /// Keeps the charge of an association whose messages lie in this stream.
    pub(super) fn keep(&mut self, s: StreamId, id: AssociationId, charge: ReceiveCharge) {
        self.of_streams.entry(s).or_default().entry(id.0).or_default().push_back(charge);
    }

    /// Counts that the reader has taken `bytes`, and what is charged beside them. Returns whether they were of an
    /// association that has ended. Its messages come before those of a later one with the same identifier.
    #[inline]
    pub(super) fn consumed(&mut self, s: StreamId, association: u32, bytes: usize, charges: usize) -> bool {
        !self.of_streams.is_empty() && self.consume_charge(s, association, bytes, charges)
    }

    #[cold]
    fn consume_charge(&mut self, s: StreamId, association: u32, bytes: usize, charges: usize) -> bool {
        let Some(ended) = self.of_streams.get_mut(&s) else { return false };
        let Some(left) = ended.get_mut(&association) else { return false };
        if left.front_mut().is_some_and(|charge| charge.consumed(bytes, charges)) {
            left.pop_front();
        }
        if left.is_empty() {
            ended.remove(&association);
        }
        if ended.is_empty() {
            self.of_streams.remove(&s);
        }
        true
    }

    /// Gives everything back: the stream is closed, and its messages are gone.
    pub(super) fn close(&mut self, s: StreamId) {
        self.of_streams.remove(&s);
    }
}
