//! Receive-pool charges of messages that are unread when their association has ended.

use std::collections::{HashMap, VecDeque};

use ::sctp::ReceiveCharge;
use streams::{StreamId, Which};

/// Charges of ended associations by their name, in the order in which they ended: a one-to-one stream may have had several.
type Ended = HashMap<Which, VecDeque<ReceiveCharge>>;

/// Keeps charges until the messages are read or their stream is closed.
#[derive(Debug, Default)]
pub(super) struct Charges {
    of_streams: HashMap<StreamId, Ended>,
}

impl Charges {
    /// Keeps the charge of an association whose unread messages are in this stream.
    pub(super) fn keep(&mut self, s: StreamId, association: Which, charge: ReceiveCharge) {
        self.of_streams.entry(s).or_default().entry(association).or_default().push_back(charge);
    }

    /// Releases the charge of `bytes` that the reader has taken, and of their overhead. Returns whether they belonged
    /// to an ended association. Its messages precede those of a later association with the same name.
    #[inline]
    pub(super) fn consumed(&mut self, s: StreamId, association: Which, bytes: usize, charges: usize) -> bool {
        !self.of_streams.is_empty() && self.consume_charge(s, association, bytes, charges)
    }

    #[cold]
    fn consume_charge(&mut self, s: StreamId, association: Which, bytes: usize, charges: usize) -> bool {
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

    /// Releases all charges of a closed stream, whose messages are gone.
    pub(super) fn close(&mut self, s: StreamId) {
        self.of_streams.remove(&s);
    }
}
