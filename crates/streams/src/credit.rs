//! The receive window that the messages on their way up a stream occupy.

use std::collections::BTreeMap;

use crate::Which;
use crate::identifiers::StreamId;
use crate::message::Credit;
use crate::queue::Queue;
use crate::scheduler::{DriverCall, Scheduler};

/// Account of the bytes of user data that a driver has sent up a stream with modules, and that no reader has taken yet. It
/// detects modules that discard messages and do not return their receive window ([`Q::freemsg`](crate::Q::freemsg)): that
/// window would stay closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CreditAccount {
    /// Below zero, modules have returned window that was not occupied.
    unreturned_bytes: i64,
}

impl CreditAccount {
    /// Returns the account of a stream whose queues hold messages of this many bytes.
    pub(crate) fn of_queued(bytes: usize) -> Self {
        Self { unreturned_bytes: bytes as i64 }
    }

    /// Notes that the driver has sent bytes up.
    #[inline]
    pub(crate) fn on_sent_up(&mut self, bytes: usize) {
        self.unreturned_bytes += bytes as i64;
    }

    /// Notes that the window of bytes has been returned to the driver.
    #[inline]
    pub(crate) fn on_returned(&mut self, bytes: usize) {
        self.unreturned_bytes -= bytes as i64;
    }

    /// Returns whether the window of some bytes has not been returned.
    #[inline]
    pub(crate) fn is_owed(self) -> bool {
        self.unreturned_bytes > 0
    }
}

/// The receive window of discarded messages, summed up for each association: there may be a hundred thousand messages.
#[derive(Debug, Default)]
pub(crate) struct DiscardedCredit(BTreeMap<Which, Credit>);

impl DiscardedCredit {
    /// Discards all messages of a read queue.
    pub(crate) fn discard(&mut self, queue: &mut Queue) {
        while let Some(m) = queue.getq() {
            if let Some(credit) = m.receive_credit() {
                let none = Credit { bytes: 0, charges: 0, ..credit };
                self.0.entry(credit.association).or_insert(none).add(credit);
            }
        }
    }

    /// Returns the window to the driver of the stream.
    pub(crate) fn return_to(self, s: StreamId, scheduler: &mut Scheduler) {
        for credit in self.0.into_values().filter(|credit| credit.bytes > 0) {
            scheduler.defer(DriverCall::Consumed { stream: s, credit });
        }
    }
}
