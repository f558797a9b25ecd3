//! Memory that programs read: a long message on its way to a program lies in a memfd, which a record in the carrier brings.
//!
//! The memory of a memfd is the daemon's for as long as any program has a descriptor of it, and a program may keep one. So it is
//! charged to the user of the socket, the daemon keeps a descriptor of its own, and it empties the memfd once the message was read or
//! nobody can read it any more: no program makes the daemon hold more than what is charged.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};

use crate::users::budget::{Charge, RECORD_COST_BYTES};
use crate::users::closer::Closer;
use crate::users::descriptor_numbers::Taken;

/// Returns what is charged for a message of so many bytes.
pub(crate) fn charged_bytes(bytes: usize) -> usize {
    bytes + RECORD_COST_BYTES
}

/// A memfd of ours that programs get a descriptor of, such as a long message in a carrier.
#[derive(Debug)]
pub(crate) struct Lent {
    memfd: OwnedFd,
    bytes: usize,
    _number: Taken,
    charge: Charge,
}

impl Lent {
    /// Makes a memfd with these bytes.
    pub(crate) fn new(blocks: &[Bytes], number: Taken, charge: Charge) -> Result<Lent, (Errno, Charge)> {
        match write_memfd(blocks) {
            Ok((memfd, bytes)) => Ok(Lent { memfd, bytes, _number: number, charge }),
            Err(error) => Err((error, charge)),
        }
    }

    /// Appends some bytes. What is charged grows by `step_bytes` at least where it must.
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

    /// Gives the memory back to the system. Programs that still have the memfd find it empty.
    pub(crate) fn empty(self) {
        // It is ours, and no seal keeps it as it is.
        let _ = ftruncate(&self.memfd, 0);
    }
}

/// Gives the memory of messages that lie in no channel any more back to the system, on the thread of a closer: much takes its time.
pub(crate) fn empty_on(closer: &Arc<Closer>, messages: VecDeque<Lent>) {
    if !messages.is_empty() {
        closer.run(move || messages.into_iter().for_each(Lent::empty));
    }
}

impl AsFd for Lent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

/// Makes a memfd for a program that fills and seals it. Its memory is the program's own.
pub(crate) fn memfd_to_fill() -> Result<OwnedFd, Errno> {
    memfd_create("swiftwater-message", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
}

fn write_memfd(blocks: &[Bytes]) -> Result<(OwnedFd, usize), Errno> {
    // Nobody can seal it: a program could otherwise keep it from being emptied.
    let memfd = memfd_create("swiftwater-message", MemfdFlags::CLOEXEC)?;
    let mut bytes = 0;
    for block in blocks {
        write_at(&memfd, block, bytes)?;
        bytes += block.len();
    }
    Ok((memfd, bytes))
}

fn write_at(memfd: &OwnedFd, mut rest: &[u8], mut at: usize) -> Result<(), Errno> {
    while !rest.is_empty() {
        let count = pwrite(memfd, rest, at as u64)?;
        rest = &rest[count..];
        at += count;
    }
    Ok(())
}

/// The long messages that lie in a carrier, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct LyingLong {
    messages: VecDeque<Lent>,
    /// Messages that were ever put, modulo 2^32.
    put: u32,
}

impl LyingLong {
    pub(crate) fn push(&mut self, message: Lent) {
        self.messages.push_back(message);
        self.put = self.put.wrapping_add(1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes those that were read: `taken` is how many the sharers say that they have read in all, modulo 2^32.
    pub(crate) fn take_read(&mut self, taken: u32) -> VecDeque<Lent> {
        self.take_all_but(self.put.wrapping_sub(taken) as usize)
    }

    /// Takes all but the last so many.
    pub(crate) fn take_all_but(&mut self, unread: usize) -> VecDeque<Lent> {
        let read = self.messages.len().saturating_sub(unread);
        let kept = self.messages.split_off(read);
        std::mem::replace(&mut self.messages, kept)
    }

    /// Some of the messages that lie in this carrier, the oldest first, lie in another one now. Returns those that were read before.
    pub(crate) fn move_to(&mut self, other: &mut LyingLong, moved: &[bool]) -> VecDeque<Lent> {
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
    use crate::users::budget::{Account, Budget, Limits};
    use crate::users::descriptor_numbers::Numbers;

    fn account() -> Arc<Account> {
        Budget::new(Limits { user_bytes: 1 << 20, all_bytes: 1 << 20 }).account(1)
    }

    fn message(account: &Arc<Account>, text: &'static [u8]) -> Lent {
        let charge = account.take(charged_bytes(text.len())).expect("room");
        let number = Numbers::with_max(1 << 16).count(1);
        Lent::new(&[Bytes::from_static(text)], number, charge).expect("a memfd")
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
    fn what_is_appended_is_charged() {
        let account = Budget::new(Limits { user_bytes: 100, all_bytes: 1 << 20 }).account(1);
        let charge = account.take(10).expect("room");
        let mut memory = Lent::new(&[], Numbers::with_max(1 << 16).count(1), charge).expect("a memfd");
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
