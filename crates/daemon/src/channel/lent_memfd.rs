//! Memfds of the daemon that programs read from: a long message to a program is in a memfd, whose descriptor accompanies a record
//! in the pair, and so is a long answer to a request.
//!
//! The kernel charges a memfd to the daemon for as long as any program has a descriptor of it, and a program may keep one. So the
//! daemon charges the memfd to a user, keeps a descriptor of its own, and empties the memfd once its content was read or no
//! program can read it any more. No program makes the daemon hold more memory than is charged.
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
use crate::users::descriptor_budget::DescriptorPermit;
use crate::users::worker::Worker;

/// A memfd of the daemon whose descriptor programs get, such as a long message in a pair.
#[derive(Debug)]
pub(crate) struct LentMemfd {
    memfd: OwnedFd,
    /// The same file, open for reading.
    lent: OwnedFd,
    bytes: usize,
    _number: DescriptorPermit,
    charge: Charge,
}

impl LentMemfd {
    /// Number of descriptors of the daemon that it takes.
    pub(crate) const DESCRIPTORS: usize = 2;

    /// Creates a memfd with these bytes. `number` counts [`LentMemfd::DESCRIPTORS`].
    pub(crate) fn new(
        blocks: &[Bytes],
        number: DescriptorPermit,
        charge: Charge,
    ) -> Result<LentMemfd, (Errno, Charge)> {
        let made = write_memfd(blocks).and_then(|(memfd, bytes)| Ok((for_reading(&memfd)?, memfd, bytes)));
        match made {
            Ok((lent, memfd, bytes)) => Ok(LentMemfd { memfd, lent, bytes, _number: number, charge }),
            Err(error) => Err((error, charge)),
        }
    }

    /// Creates the memfd of a long message for a program of `account`'s user. `memory` is a charge that was obtained before; the
    /// error returns the charge, if there is one by then.
    pub(crate) fn of_message(
        blocks: &[Bytes],
        account: &Arc<Account>,
        closer: &Closer,
        memory: Option<Charge>,
    ) -> Result<LentMemfd, (Blocked, Option<Charge>)> {
        let length: usize = blocks.iter().map(Bytes::len).sum();
        // A message longer than the user's limit is charged the whole limit.
        let bytes = cost_of(length.min(account.message_bytes_max()));
        let charge = memory.or_else(|| account.take(bytes)).ok_or((Blocked::Memory(bytes), None))?;
        let Some(number) = closer.count_long_message(LentMemfd::DESCRIPTORS) else {
            return Err((Blocked::Descriptors, Some(charge)));
        };
        LentMemfd::new(blocks, number, charge).map_err(|(_, charge)| (Blocked::Host, Some(charge)))
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

/// Returns the memory of memfds that no program reads any more to the system, on a thread of the user: releasing much memory
/// takes long.
pub(crate) fn empty_on(worker: &Worker, memfds: VecDeque<LentMemfd>) {
    if !memfds.is_empty() {
        worker.run(move || memfds.into_iter().for_each(LentMemfd::empty));
    }
}

impl AsFd for LentMemfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lent.as_fd()
    }
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

/// Returns a descriptor of a memfd that is open for reading, through which no process gets one that is open for writing: only
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

#[cfg(test)]
pub(super) mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use rustix::fs::{SealFlags, fcntl_add_seals, fstat};

    use super::*;
    use crate::testing::soon;
    use crate::users::budget::{Budget, ByteLimits};
    use crate::users::closer::{Closers, Source};
    use crate::users::descriptor_budget::DescriptorBudget;
    use crate::users::division::Use;

    pub(in crate::channel) fn account() -> Arc<Account> {
        Budget::new(ByteLimits { user_bytes: 1 << 20, all_bytes: 1 << 20 }).account(1)
    }

    pub(in crate::channel) fn message(account: &Arc<Account>, text: &'static [u8]) -> LentMemfd {
        let charge = account.take(cost_of(text.len())).expect("room");
        let number = DescriptorBudget::with_max(1 << 16).count(Use::LongMessages, 1, LentMemfd::DESCRIPTORS);
        LentMemfd::new(&[Bytes::from_static(text)], number, charge).expect("a memfd")
    }

    #[test]
    fn a_program_that_keeps_a_memfd_keeps_no_memory() {
        let account = account();
        let message = message(&account, b"content");
        assert_eq!(account.charged_bytes(), cost_of(7));
        let kept = message.as_fd().try_clone_to_owned().expect("a copy");
        assert_eq!(pwrite(&kept, b"more", 0), Err(Errno::BADF), "it is open for reading");
        let mode = fstat(&kept).expect("it is open").st_mode & 0o777;
        assert_eq!(mode, 0o444, "everybody opens it for reading, and nobody for writing");
        for seal in [SealFlags::SHRINK, SealFlags::WRITE] {
            assert_eq!(fcntl_add_seals(&kept, seal), Err(Errno::PERM), "nobody seals it");
        }
        message.empty();
        assert_eq!(fstat(&kept).expect("it is open").st_size, 0);
        assert_eq!(account.charged_bytes(), 0);
    }

    #[tokio::test(flavor = "local")]
    async fn a_message_waits_for_descriptors_of_its_user_alone() {
        let closers = Closers::new(DescriptorBudget::with_max(1000));
        let [one, other] = [1, 2].map(|user| closers.of(user, Source::Pairs));
        let account = account();
        let of_message = |closer: &Closer| LentMemfd::of_message(&[Bytes::new()], &account, closer, None);
        let mut messages: Vec<LentMemfd> = std::iter::from_fn(|| of_message(&one).ok()).collect();
        assert!(matches!(of_message(&one), Err((Blocked::Descriptors, Some(_)))));
        assert!(one.has_room(), "what comes by pairs has a part of its own");
        assert!(of_message(&other).is_ok());
        let mut room = pin!(one.room_for_long_message(LentMemfd::DESCRIPTORS));
        assert!(room.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        messages.pop();
        soon(room).await;
        assert!(of_message(&one).is_ok());
    }

    #[test]
    fn appended_bytes_are_charged() {
        let account = Budget::new(ByteLimits { user_bytes: 100, all_bytes: 1 << 20 }).account(1);
        let charge = account.take(10).expect("room");
        let mut memory = LentMemfd::new(
            &[],
            DescriptorBudget::with_max(1 << 16).count(Use::LongMessages, 1, LentMemfd::DESCRIPTORS),
            charge,
        )
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
    fn the_blocks_of_a_message_follow_one_another_and_what_is_appended_follows_them() {
        let account = account();
        let blocks = ["one", "", "three", "4"].map(|block| Bytes::from_static(block.as_bytes()));
        let number = DescriptorBudget::with_max(1 << 16).count(Use::LongMessages, 1, LentMemfd::DESCRIPTORS);
        let charge = account.take(100).expect("room");
        let mut message = LentMemfd::new(&blocks, number, charge).expect("a memfd");
        message.append(b"mo", 1).expect("room");
        message.append(b"re", 1).expect("room");
        let mut content = [0; 32];
        let bytes = rustix::io::pread(&message, &mut content, 0).expect("it is open for reading");
        assert_eq!(&content[..bytes], b"onethree4more");
    }
}
