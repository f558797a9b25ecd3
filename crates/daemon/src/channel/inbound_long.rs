//! Long messages from the program. The content of each is in a memfd, which a thread reads, because its sender may keep
//! pages of the memfd locked. One is read at a time, before all else that the program has sent later.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use channel_protocol::record::Header;
use rustix::io::Errno;

use crate::channel::accounts::Accounts;
use crate::channel::incoming::Incoming;
use crate::channel::received_memfd::{self, MemfdError};
use crate::users::budget::cost_of;
use crate::users::closer::ReceivedDescriptor;
use crate::users::worker::{Job, Worker};

/// Maximum number of long messages whose turn the ring has not announced. There is one at a time, and one for each writer
/// that died just then. More would take from the descriptors of the user.
const IN_TURN_MAX: usize = 8;

/// The long messages that have come and were not taken.
#[derive(Default)]
pub(super) struct InboundLong {
    /// The message that comes before all else.
    first: RefCell<Option<Message>>,
    /// Messages whose turn the ring announces.
    in_turn: RefCell<VecDeque<(Header, ReceivedDescriptor)>>,
    /// Whether the last message found no memory because the host is short of it, independent of the user's limit.
    is_host_short: Cell<bool>,
}

/// A message whose content is in a memfd.
struct Message {
    header: Header,
    stage: Stage,
}

enum Stage {
    /// The message waits for memory.
    Stalled(ReceivedDescriptor),
    /// A thread reads the message.
    Read(Arc<Job<Result<Bytes, (MemfdError, ReceivedDescriptor)>>>),
}

/// The one that has no memory for a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shortage {
    OfUser,
    OfHost,
}

impl InboundLong {
    /// Begins with a message. Keeps it for later if there is no memory for its content (`NOBUFS`).
    pub(super) fn begin(
        &self,
        header: Header,
        memfd: ReceivedDescriptor,
        accounts: &Accounts,
        worker: &Worker,
    ) -> Result<Incoming, Errno> {
        let bytes = header.bytes as usize;
        if !received_memfd::is_final(memfd.as_fd(), bytes) || bytes > accounts.sent().message_bytes_max() {
            return Ok(Incoming::Malformed);
        }
        let Some(charge) = accounts.take_for_record(cost_of(bytes)) else {
            return self.stall(header, memfd, Shortage::OfUser);
        };
        let Some(memory) = received_memfd::reserve(bytes) else {
            return self.stall(header, memfd, Shortage::OfHost);
        };
        let read = move || match received_memfd::read(memfd.as_fd(), memory, bytes) {
            Ok(content) => Ok(charge.on(content)),
            Err(error) => Err((error, memfd)),
        };
        *self.first() = Some(Message { header, stage: Stage::Read(Job::begin(worker, read)) });
        Ok(Incoming::Filler)
    }

    /// Keeps a message for which the user or the host has no memory.
    fn stall(
        &self,
        header: Header,
        memfd: ReceivedDescriptor,
        shortage: Shortage,
    ) -> Result<Incoming, Errno> {
        self.is_host_short.set(shortage == Shortage::OfHost);
        *self.first() = Some(Message { header, stage: Stage::Stalled(memfd) });
        Err(Errno::NOBUFS)
    }

    /// Continues with the message that was begun; `None` if there is none. `AGAIN`: a thread reads it.
    pub(super) fn take(&self, accounts: &Accounts, worker: &Worker) -> Option<Result<Incoming, Errno>> {
        let Message { header, stage } = self.first().take()?;
        let job = match stage {
            Stage::Stalled(memfd) => return Some(self.begin(header, memfd, accounts, worker)),
            Stage::Read(job) => job,
        };
        Some(match job.take() {
            Some(Ok(content)) => Ok(Incoming::Message(header, content)),
            Some(Err((MemfdError::Broken, _))) => Ok(Incoming::Malformed),
            Some(Err((MemfdError::Short, memfd))) => self.stall(header, memfd, Shortage::OfHost),
            None => {
                *self.first() = Some(Message { header, stage: Stage::Read(job) });
                Err(Errno::AGAIN)
            }
        })
    }

    /// Waits until [`InboundLong::take`] may find something other than `AGAIN`. Returns false at once if no message was begun.
    pub(super) async fn readable(&self) -> bool {
        let job = match self.first().as_ref().map(|message| &message.stage) {
            None => return false,
            Some(Stage::Stalled(_)) => return true,
            Some(Stage::Read(job)) => Arc::clone(job),
        };
        job.done().await;
        true
    }

    /// Returns whether a message was begun.
    pub(super) fn is_begun(&self) -> bool {
        self.first().is_some()
    }

    /// Returns whether a thread reads the message that was begun.
    pub(super) fn is_being_read(&self) -> bool {
        self.first().as_ref().is_some_and(|message| matches!(message.stage, Stage::Read(_)))
    }

    /// Returns the memory that the message that was begun needs; `None` if there is none.
    pub(super) fn needed_bytes(&self) -> Option<usize> {
        self.first().as_ref().map(|message| cost_of(message.header.bytes as usize))
    }

    /// Returns the memory of the memfds that are not being read. It is not charged as that of messages that were sent.
    pub(super) fn memory_bytes(&self) -> usize {
        let memory_of = |memfd: &ReceivedDescriptor| received_memfd::memory_max(memfd.as_fd()).unwrap_or(0);
        let of_first = self.first().as_ref().map_or(0, |message| match &message.stage {
            Stage::Stalled(memfd) => memory_of(memfd),
            // Its content is charged.
            Stage::Read(_) => 0,
        });
        of_first + self.in_turn().iter().map(|(_, memfd)| memory_of(memfd)).sum::<usize>()
    }

    /// Notes that the host is short of memory for a message in the ring.
    pub(super) fn on_host_short(&self) {
        self.is_host_short.set(true);
    }

    /// Returns whether the host was short of memory at the last attempt; returns true once for each such attempt.
    pub(super) fn take_host_short(&self) -> bool {
        self.is_host_short.replace(false)
    }

    /// Keeps a message until the ring announces its turn. Returns false if it is malformed, or there is no room for it.
    pub(super) fn await_turn(&self, header: Header, memfd: ReceivedDescriptor) -> bool {
        let mut in_turn = self.in_turn();
        let is_kept =
            in_turn.len() < IN_TURN_MAX && received_memfd::is_final(memfd.as_fd(), header.bytes as usize);
        if is_kept {
            in_turn.push_back((header, memfd));
        }
        is_kept
    }

    /// Takes the oldest message that awaits its turn.
    pub(super) fn next_in_turn(&self) -> Option<(Header, ReceivedDescriptor)> {
        self.in_turn().pop_front()
    }

    /// Discards all messages. Returns whether one was begun.
    pub(super) fn discard(&self) -> bool {
        self.in_turn().clear();
        self.first().take().is_some()
    }

    fn first(&self) -> RefMut<'_, Option<Message>> {
        self.first.borrow_mut()
    }

    fn in_turn(&self) -> RefMut<'_, VecDeque<(Header, ReceivedDescriptor)>> {
        self.in_turn.borrow_mut()
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{SealFlags, fcntl_add_seals, ftruncate};

    use super::*;
    use crate::testing::{ID, header};
    use crate::users::closer::{Closer, Closers, Source};
    use crate::users::descriptor_budget::DescriptorBudget;
    use crate::users::limits::Limits;
    use crate::users::user::Users;

    fn closer() -> Arc<Closer> {
        Closers::new(DescriptorBudget::with_max(1 << 16)).of(1, Source::Requests)
    }

    /// Returns a message of zeros, as it comes from a program.
    fn message(closer: &Arc<Closer>, bytes: usize) -> (Header, ReceivedDescriptor) {
        let memfd = received_memfd::memfd_to_fill().expect("a memfd");
        ftruncate(&memfd, bytes as u64).expect("its length");
        fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).expect("its seals");
        (header(ID, bytes), closer.take_over(memfd))
    }

    #[tokio::test(flavor = "local")]
    async fn a_message_that_would_never_find_memory_is_malformed() {
        let limits = Limits { user_memory_bytes: 1 << 20, ..Limits::default() };
        let accounts = Accounts::of(&Users::new(&limits).user(1));
        let (closer, longest) = (closer(), accounts.sent().message_bytes_max());
        let begin = |bytes| {
            let long = InboundLong::default();
            let (header, memfd) = message(&closer, bytes);
            let begun = long.begin(header, memfd, &accounts, closer.worker());
            (begun, long.is_begun())
        };
        assert!(matches!(begin(longest + 1), (Ok(Incoming::Malformed), false)));
        assert!(matches!(begin(longest), (Ok(Incoming::Filler), true)));
    }

    #[tokio::test(flavor = "local")]
    async fn only_a_shortage_of_the_host_is_told_and_once() {
        let (long, closer) = (InboundLong::default(), closer());
        assert_eq!(long.needed_bytes(), None);
        let stall = |shortage| {
            let (header, memfd) = message(&closer, 100);
            assert_eq!(long.stall(header, memfd, shortage).map(drop), Err(Errno::NOBUFS));
            assert_eq!(long.needed_bytes(), Some(cost_of(100)));
            assert!(long.is_begun() && !long.is_being_read(), "it can be tried again");
        };
        stall(Shortage::OfUser);
        assert!(!long.take_host_short());
        stall(Shortage::OfHost);
        assert!(long.take_host_short() && !long.take_host_short());
        stall(Shortage::OfHost);
        stall(Shortage::OfUser);
        assert!(!long.take_host_short(), "the last attempt counts");
    }
}
