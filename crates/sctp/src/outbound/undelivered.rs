//! Messages that the peer may not have received when their association ends or restarts.
//!
//! There may be a hundred thousand. They return to the user, or are released, in steps of a bounded length.

use std::collections::VecDeque;

use super::pending::Waiting;
use super::run::{Run, RunState};
use crate::event::SendFailure;

/// Maximum number of entries that a step releases without a report.
const RELEASED_MAX: usize = 512;

/// Messages that were queued or sent, in the order of sending.
#[derive(Debug)]
pub(crate) struct Undelivered {
    sent: VecDeque<Run>,
    unsent: VecDeque<Waiting>,
    /// Parts of an entry that has left the queues. The first may be longer than a piece.
    parts: VecDeque<SendFailure>,
}

impl Undelivered {
    pub(super) fn new(sent: VecDeque<Run>, unsent: VecDeque<Waiting>) -> Self {
        Undelivered { sent, unsent, parts: VecDeque::new() }
    }

    /// Takes the next message, or the fragment of it that one DATA chunk carried or would have carried.
    pub(crate) fn next_piece(&mut self, piece_bytes_max: usize) -> Option<SendFailure> {
        while self.parts.is_empty() {
            if let Some(run) = self.sent.pop_front() {
                if run.state() != RunState::NrGapAcked {
                    self.parts.extend(run.failures());
                }
                continue;
            }
            match self.unsent.pop_front()? {
                Waiting::Short(short) => self.parts.extend(short.failures()),
                Waiting::Message(message) => self.parts.push_back(message.failure()),
            }
        }
        let (piece, rest) = self.parts.pop_front()?.cut(piece_bytes_max);
        if let Some(rest) = rest {
            self.parts.push_front(rest);
        }
        Some(piece)
    }

    /// Frees the next messages. Returns whether some are left.
    pub(crate) fn release(&mut self) -> bool {
        let sent = self.sent.len().min(RELEASED_MAX);
        self.sent.drain(..sent);
        let unsent = self.unsent.len().min(RELEASED_MAX - sent);
        self.unsent.drain(..unsent);
        self.parts.clear();
        !self.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.unsent.is_empty() && self.parts.is_empty()
    }
}
