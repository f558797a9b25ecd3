//! Messages that the peer may not have received when their association ends or restarts.
//!
//! There may be a hundred thousand. They return to the user, or are released, in steps of a bounded length.

use std::collections::VecDeque;

use super::pending::Waiting;
use super::run::{Run, RunState};
use crate::event::SendFailure;
use crate::send_pool::OwnedCharge;

/// Maximum number of entries that a step releases without a report.
const RELEASED_MAX: usize = 512;

/// Messages that were queued or sent, in the order of sending.
#[derive(Debug)]
pub(crate) struct Undelivered {
    sent: VecDeque<Run>,
    unsent: VecDeque<Waiting>,
    /// Parts of an entry that has left the queues. The first may be longer than a piece.
    parts: VecDeque<SendFailure>,
    /// The charge for messages that are references to their owners' memory.
    owned: OwnedCharge,
}

impl Undelivered {
    pub(super) fn new(sent: VecDeque<Run>, unsent: VecDeque<Waiting>, owned: OwnedCharge) -> Self {
        Undelivered { sent, unsent, parts: VecDeque::new(), owned }
    }

    /// Takes the next message, or the fragment of it that one DATA chunk carried or would have carried.
    pub(crate) fn next_piece(&mut self, piece_bytes_max: usize) -> Option<SendFailure> {
        while self.parts.is_empty() {
            if let Some(run) = self.sent.pop_front() {
                self.owned.release(run.owned_bytes as usize);
                if run.state() != RunState::NrGapAcked {
                    self.parts.extend(run.failures());
                }
                continue;
            }
            match self.unsent.pop_front()? {
                Waiting::Short(short) => self.parts.extend(short.failures()),
                Waiting::Message(message) => {
                    self.owned.release(message.owned_bytes as usize);
                    self.parts.push_back(message.failure());
                }
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
        let owned_bytes: usize = self.sent.drain(..sent).map(|run| run.owned_bytes as usize).sum();
        self.owned.release(owned_bytes);
        let unsent = self.unsent.len().min(RELEASED_MAX - sent);
        let owned_bytes = self.unsent.drain(..unsent).map(|waiting| match waiting {
            Waiting::Short(_) => 0,
            Waiting::Message(message) => message.owned_bytes as usize,
        });
        self.owned.release(owned_bytes.sum());
        self.parts.clear();
        !self.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.unsent.is_empty() && self.parts.is_empty()
    }
}
