//! Memfds that programs read from: a long message to a program is in a memfd, whose descriptor accompanies a record in the
//! carrier.
//!
//! The kernel charges a memfd to the daemon for as long as any program has a descriptor of it, and a program may keep one. So the
//! daemon charges the memfd to the user of the socket, keeps a descriptor of its own, and empties the memfd once the message was
//! read or no program can read it any more. No program makes the daemon hold more memory than is charged.
//!
//! Programs get the memfd open for reading, and cannot open it otherwise: a writer of a file holds the lock of its inode, and
//! emptying the file waits for this lock.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{MemfdFlags, Mode, OFlags, fchmod, ftruncate, memfd_create, open};
use rustix::io::{Errno, pwrite};

use crate::channel::blocked::Blocked;
use crate::users::budget::{Account, Charge, cost_of};
use crate::users::closer::Closer;
use crate::users::descriptor_numbers::Taken;
use crate::users::worker::Worker;

/// A memfd of the daemon whose descriptor programs get, such as a long message in a carrier.
#[derive(Debug)]
pub(crate) struct LentMemfd {
    memfd: OwnedFd,
    /// The same file, open for reading.
    lent: OwnedFd,
    bytes: usize,
    _number: Taken,
    charge: Charge,
}

impl LentMemfd {
    /// Number of descriptors of the daemon that it takes.
    pub(crate) const DESCRIPTORS: usize = 2;

    /// Creates a memfd with these bytes. `number` counts [`LentMemfd::DESCRIPTORS`].
    pub(crate) fn new(blocks: &[Bytes], number: Taken, charge: Charge) -> Result<LentMemfd, (Errno, Charge)> {
        let made = write_memfd(blocks).and_then(|(memfd, bytes)| Ok((for_reading(&memfd)?, memfd, bytes)));
        match made {
            Ok((lent, memfd, bytes)) => Ok(LentMemfd { memfd, lent, bytes, _number: number, charge }),
            Err(error) => Err((error, charge)),
        }
    }

    /// Creates the memfd of a long message for a program of `account`'s user. `memory` is a charge that was obtained
    /// before; it stays there on failure.
    pub(crate) fn of_message(
        blocks: &[Bytes],
        account: &Arc<Account>,
        closer: &Closer,
        memory: &mut Option<Charge>,
    ) -> Result<LentMemfd, Blocked> {
        let length: usize = blocks.iter().map(Bytes::len).sum();
        // A message longer than the user's limit is charged the whole limit.
        let bytes = cost_of(length.min(account.message_bytes_max()));
        let charge = memory.take().or_else(|| account.take(bytes)).ok_or(Blocked::Memory(bytes))?;
        if !closer.has_room() {
            *memory = Some(charge);
            return Err(Blocked::Descriptors);
        }
        LentMemfd::new(blocks, closer.numbers(LentMemfd::DESCRIPTORS), charge).map_err(|(_, charge)| {
            *memory = Some(charge);
            Blocked::Host
        })
    }

    /// Appends bytes. If the charge does not cover them, it grows by `step_bytes` at least.
    pub(crate) fn append(&mut self, more: &[u8], step_bytes: usize) -> Result<(), Errno> {
        let bytes = self.bytes + more.len();
        let missing = bytes.saturating_sub(self.charge.bytes());
        if missing > 0 && !self.charge.grow(missing.max(step_bytes)) {
            return Err(Errno::NOBUFS);
        }
        write_at(&self.memfd, more, self.bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Returns the memory to the system. Programs that still have the memfd find it empty.
    pub(crate) fn empty(self) {
        // The memfd has no seals, so this cannot fail.
        let _ = ftruncate(&self.memfd, 0);
    }
}

/// Returns the memory of messages that are no longer in a channel to the system, on a thread of the user:
/// releasing much memory takes long.
pub(crate) fn empty_on(worker: &Worker, messages: VecDeque<LentMemfd>) {
    if !messages.is_empty() {
        worker.run(move || messages.into_iter().for_each(LentMemfd::empty));
    }
}

impl AsFd for LentMemfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lent.as_fd()
    }
}

/// Creates a memfd for a program to fill and seal. Its memory belongs to the program.
pub(crate) fn memfd_to_fill() -> Result<OwnedFd, Errno> {
    memfd_create("swiftwater-message", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
}

fn write_memfd(blocks: &[Bytes]) -> Result<(OwnedFd, usize), Errno> {
    // No program can seal the memfd; otherwise a program could keep the daemon from emptying it.
    let memfd = memfd_create("swiftwater-message", MemfdFlags::CLOEXEC)?;
    let mut bytes = 0;
    for block in blocks {
        write_at(&memfd, block, bytes)?;
        bytes += block.len();
    }
    Ok((memfd, bytes))
}

/// Returns a descriptor of a memfd that is open for reading, through which nobody gets one that is open for writing: only
/// the owner of the file changes its mode.
fn for_reading(memfd: &OwnedFd) -> Result<OwnedFd, Errno> {
    fchmod(memfd, Mode::RUSR | Mode::RGRP | Mode::ROTH)?;
    let place = format!("/proc/self/fd/{}", memfd.as_raw_fd());
    open(place, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn write_at(memfd: &OwnedFd, mut rest: &[u8], mut at: usize) -> Result<(), Errno> {
    while !rest.is_empty() {
        let count = pwrite(memfd, rest, at as u64)?;
        rest = &rest[count..];
        at += count;
    }
    Ok(())
}

/// The unread long messages in a carrier, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct UnreadLongMessages {
    messages: VecDeque<LentMemfd>,
    /// Number of messages put so far, modulo 2^32.
    put: u32,
}

impl UnreadLongMessages {
    pub(crate) fn push(&mut self, message: LentMemfd) {
        self.messages.push_back(message);
        self.put = self.put.wrapping_add(1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes the messages that were read. `taken` is the total number read according to the sharers, modulo 2^32.
    pub(crate) fn take_read(&mut self, taken: u32) -> VecDeque<LentMemfd> {
        self.take_all_but(self.put.wrapping_sub(taken) as usize)
    }

    /// Takes all messages but the last `unread`.
    pub(crate) fn take_all_but(&mut self, unread: usize) -> VecDeque<LentMemfd> {
        let read = self.messages.len().saturating_sub(unread);
        let kept = self.messages.split_off(read);
        std::mem::replace(&mut self.messages, kept)
    }

    /// Moves the messages marked in `moved`, the oldest first, to the list of another carrier. Returns the messages that were
    /// read before.
    pub(crate) fn move_to(&mut self, other: &mut UnreadLongMessages, moved: &[bool]) -> VecDeque<LentMemfd> {
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
    use crate::users::budget::{Budget, Limits};
    use crate::users::descriptor_numbers::Numbers;

    fn account() -> Arc<Account> {
        Budget::new(Limits { user_bytes: 1 << 20, all_bytes: 1 << 20 }).account(1)
    }

    fn message(account: &Arc<Account>, text: &'static [u8]) -> LentMemfd {
        let charge = account.take(cost_of(text.len())).expect("room");
        let number = Numbers::with_max(1 << 16).count(LentMemfd::DESCRIPTORS);
        LentMemfd::new(&[Bytes::from_static(text)], number, charge).expect("a memfd")
    }

    #[test]
    fn a_program_that_keeps_a_memfd_keeps_no_memory() {
        let account = account();
        let message = message(&account, b"content");
        assert_eq!(account.charged_bytes(), cost_of(7));
        let kept = message.as_fd().try_clone_to_owned().expect("a copy");
        assert_eq!(pwrite(&kept, b"more", 0), Err(Errno::BADF), "it is open for reading");
        assert_eq!(fstat(&kept).expect("it is open").st_mode & 0o222, 0, "nobody opens it for writing");
        for seal in [SealFlags::SHRINK, SealFlags::WRITE] {
            assert_eq!(fcntl_add_seals(&kept, seal), Err(Errno::PERM), "nobody seals it");
        }
        message.empty();
        assert_eq!(fstat(&kept).expect("it is open").st_size, 0);
        assert_eq!(account.charged_bytes(), 0);
    }

    #[test]
    fn appended_bytes_are_charged() {
        let account = Budget::new(Limits { user_bytes: 100, all_bytes: 1 << 20 }).account(1);
        let charge = account.take(10).expect("room");
        let mut memory =
            LentMemfd::new(&[], Numbers::with_max(1 << 16).count(LentMemfd::DESCRIPTORS), charge)
                .expect("a memfd");
        let charged = [(8, 10), (8, 60), (40, 60)].map(|(more, charged)| {
            memory.append(&vec![7; more], 50).expect("room");
            assert_eq!(account.charged_bytes(), charged);
        });
        assert_eq!(charged.len(), 3);
        assert_eq!(memory.append(&[7; 5], 50), Err(Errno::NOBUFS));
        assert_eq!(fstat(&memory).expect("it is open").st_size, 56);
    }

    #[test]
    fn messages_are_taken_as_they_are_read() {
        let account = account();
        let mut unread = UnreadLongMessages::default();
        (0..3).for_each(|_| unread.push(message(&account, b"long")));
        let mut taken = |count| unread.take_read(count).len();
        assert_eq!([taken(0), taken(2), taken(2), taken(3)], [0, 2, 0, 1]);
        // The sharers may write any number.
        unread.push(message(&account, b"long"));
        assert_eq!((unread.take_read(77).len(), unread.take_read(4).len()), (0, 1));
    }

    #[test]
    fn messages_move_with_their_records() {
        let account = account();
        let (mut old, mut new) = (UnreadLongMessages::default(), UnreadLongMessages::default());
        (0..4).for_each(|_| old.push(message(&account, b"long")));
        let read = old.move_to(&mut new, &[true, false, true]);
        assert_eq!((read.len(), old.messages.len(), new.messages.len()), (1, 1, 2));
        assert_eq!((old.take_read(2).len(), new.take_read(1).len()), (1, 1));
    }
}
