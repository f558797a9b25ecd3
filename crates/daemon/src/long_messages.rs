//! Long messages on their way to a program: each lies in a memfd, which a record in the carrier brings.
//!
//! The memory of a memfd is the daemon's for as long as any program has a descriptor of it, and a program may keep one. So it is
//! charged to the user of the socket, the daemon keeps a descriptor of its own, and it empties the memfd once the message was read or
//! nobody can read it any more: no program makes the daemon hold more than what is charged.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};

use crate::budget::{Charge, RECORD_COST_BYTES};
use crate::numbers::Taken;

/// Returns what is charged for a message of so many bytes.
pub(crate) fn charged_bytes(bytes: usize) -> usize {
    bytes + RECORD_COST_BYTES
}

/// A long message in a carrier.
#[derive(Debug)]
pub(crate) struct LongMessage {
    memfd: OwnedFd,
    _number: Taken,
    _charge: Charge,
}

impl LongMessage {
    /// Makes a memfd with these bytes.
    pub(crate) fn new(
        blocks: &[Bytes],
        number: Taken,
        charge: Charge,
    ) -> Result<LongMessage, (Errno, Charge)> {
        match write_memfd(blocks) {
            Ok(memfd) => Ok(LongMessage { memfd, _number: number, _charge: charge }),
            Err(error) => Err((error, charge)),
        }
    }

    /// Gives the memory back to the system. Programs that still have the memfd find it empty.
    pub(crate) fn empty(self) {
        // It is ours, and no seal keeps it as it is.
        let _ = ftruncate(&self.memfd, 0);
    }
}

impl AsFd for LongMessage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

fn write_memfd(blocks: &[Bytes]) -> Result<OwnedFd, Errno> {
    // Nobody can seal it: a program could otherwise keep it from being emptied.
    let memfd = memfd_create("swiftwater-message", MemfdFlags::CLOEXEC)?;
    let mut at = 0;
    for block in blocks {
        let mut rest = &block[..];
        while !rest.is_empty() {
            let count = pwrite(&memfd, rest, at)?;
            rest = &rest[count..];
            at += count as u64;
        }
    }
    Ok(memfd)
}

/// The long messages that lie in a carrier, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct LyingLong {
    messages: VecDeque<LongMessage>,
    /// Messages that were ever put, modulo 2^32.
    put: u32,
}

impl LyingLong {
    pub(crate) fn push(&mut self, message: LongMessage) {
        self.messages.push_back(message);
        self.put = self.put.wrapping_add(1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes those that were read: `taken` is how many the sharers say that they have read in all, modulo 2^32.
    pub(crate) fn take_read(&mut self, taken: u32) -> VecDeque<LongMessage> {
        self.take_all_but(self.put.wrapping_sub(taken) as usize)
    }

    /// Takes all but the last so many.
    pub(crate) fn take_all_but(&mut self, unread: usize) -> VecDeque<LongMessage> {
        let read = self.messages.len().saturating_sub(unread);
        let kept = self.messages.split_off(read);
        std::mem::replace(&mut self.messages, kept)
    }

    /// Some of the messages that lie in this carrier, the oldest first, lie in another one now. Returns those that were read before.
    pub(crate) fn move_to(&mut self, other: &mut LyingLong, moved: &[bool]) -> VecDeque<LongMessage> {
        let read = self.take_all_but(moved.len());
        let listed = &moved[moved.len() - self.messages.len()..];
        let count = moved.iter().filter(|moved| **moved).count() as u32;
        self.put = self.put.wrapping_sub(count);
        other.put = other.put.wrapping_add(count);
        for (message, moved) in std::mem::take(&mut self.messages).into_iter().zip(listed) {
            let place = if *moved { &mut other.messages } else { &mut self.messages };
            place.push_back(message);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{SealFlags, fcntl_add_seals, fstat};

    use super::*;
    use crate::budget::{Account, Budget, Limits};
    use crate::numbers::Numbers;
    use std::sync::Arc;

    fn account() -> Arc<Account> {
        Budget::new(Limits { user_bytes: 1 << 20, all_bytes: 1 << 20 }).account(1)
    }

    fn message(account: &Arc<Account>, text: &'static [u8]) -> LongMessage {
        let charge = account.take(charged_bytes(text.len())).expect("room");
        let number = Numbers::with_max(1 << 16).count(1);
        LongMessage::new(&[Bytes::from_static(text)], number, charge).expect("a memfd")
    }

    #[test]
    fn a_program_that_keeps_a_memfd_keeps_no_memory() {
        let account = account();
        let message = message(&account, b"content");
        assert_eq!(account.charged_bytes(), charged_bytes(7));
        let kept = message.as_fd().try_clone_to_owned().expect("a copy");
        for seal in [SealFlags::SHRINK, SealFlags::WRITE] {
            assert_eq!(fcntl_add_seals(&kept, seal), Err(Errno::PERM), "nobody seals it");
        }
        message.empty();
        assert_eq!(fstat(&kept).expect("it is open").st_size, 0);
        assert_eq!(account.charged_bytes(), 0);
    }

    #[test]
    fn messages_are_taken_as_they_are_read() {
        let account = account();
        let mut lying = LyingLong::default();
        (0..3).for_each(|_| lying.push(message(&account, b"long")));
        let mut taken = |count| lying.take_read(count).len();
        assert_eq!([taken(0), taken(2), taken(2), taken(3)], [0, 2, 0, 1]);
        // What the sharers say need not make sense.
        lying.push(message(&account, b"long"));
        assert_eq!((lying.take_read(77).len(), lying.take_read(4).len()), (0, 1));
    }

    #[test]
    fn messages_move_with_their_records() {
        let account = account();
        let (mut old, mut new) = (LyingLong::default(), LyingLong::default());
        (0..4).for_each(|_| old.push(message(&account, b"long")));
        let read = old.move_to(&mut new, &[true, false, true]);
        assert_eq!((read.len(), old.messages.len(), new.messages.len()), (1, 1, 2));
        assert_eq!((old.take_read(2).len(), new.take_read(1).len()), (1, 1));
    }
}
