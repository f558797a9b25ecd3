//! Ownership of sockets, and the limits of sockets and rings of one user.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{fcntl_get_seals, fstat};
use rustix::io::Errno;
use shared_memory::{PeerMapping, Pins};

use crate::system::lock::lock;
use crate::users::descriptor_budget::{DescriptorBudget, DescriptorPermit};
use crate::users::division::{DESCRIPTORS_PER_SOCKET, Division, Use, most, part_of_user};

/// The end of the pair is counted by its owner, until it is closed.
const DESCRIPTORS_COUNTED_HERE: usize = 2;
/// More rings than a pipe holds.
const PIPE_RINGS_MAX: usize = 32;
/// Maximum number of bytes of the rings of one user: the kernel counts what the daemon maps when it chooses the process that it
/// kills because the host has no memory.
const RING_BYTES_OF_USER_MAX: usize = 2 << 30;

/// The user and process that opened a socket. Its descriptor may have been passed on since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) process: i32,
}

/// The number of sockets of each user.
#[derive(Debug)]
pub(crate) struct Shares {
    descriptors: Arc<DescriptorBudget>,
}

/// One socket of a user, counted until dropped.
#[derive(Debug)]
pub(crate) struct Share {
    owner: Owner,
    _descriptors: DescriptorPermit,
}

impl Share {
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }
}

/// The rings of all users.
#[derive(Debug)]
pub(crate) struct Rings {
    pins: Arc<Pins>,
    limits: RingLimits,
    of_users: Mutex<HashMap<u32, UserRings>>,
}

/// Limits of the rings of one user.
#[derive(Debug)]
struct RingLimits {
    rings: usize,
    bytes: usize,
}

/// The rings of one user. Each has memory of its own: the same memory mapped again and again would count as often, and its user
/// needs it only once.
#[derive(Debug, Default)]
struct UserRings {
    files: HashSet<FileId>,
    bytes: usize,
}

/// The device and the inode of a file.
type FileId = (u64, u64);

/// Returns the number of bytes of a ring of so many words.
const fn bytes_of(words: usize) -> usize {
    words * size_of::<u64>()
}

// One pin suffices for memory that is no longer than a huge page.
const _: () = assert!(bytes_of(ring::LONG_WORDS) <= 2 << 20);

/// The memory of a ring, counted for its user until dropped.
pub(crate) struct RingMemory {
    words: PeerMapping,
    _permit: RingPermit,
}

/// One ring of a user, counted until dropped.
struct RingPermit {
    rings: Arc<Rings>,
    user: u32,
    file: FileId,
    bytes: usize,
}

impl Rings {
    /// Returns rings with this many pipes that pin them.
    fn new(pipes: usize) -> Arc<Rings> {
        // The pages of as many rings find room, in whatever order earlier ones were released.
        let rings = most(pipes * PIPE_RINGS_MAX, |rings| Pins::pipes_for(rings) <= pipes);
        Rings::with_limits(pipes, RingLimits { rings: part_of_user(rings), bytes: RING_BYTES_OF_USER_MAX })
    }

    fn with_limits(pipes: usize, limits: RingLimits) -> Arc<Rings> {
        Arc::new(Rings { pins: Arc::new(Pins::new(pipes)), limits, of_users: Mutex::default() })
    }

    /// Returns rings for a test, one for each user.
    #[cfg(test)]
    pub(crate) fn one() -> Arc<Rings> {
        Rings::new(Pins::pipes_for(1))
    }

    /// Checks and maps the memory of a ring that a program of this user has made: a long one, if it has as many words.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it has no seals. `EEXIST`: the user has a ring in this memory. `ENFILE`: the user has as many rings, or bytes of
    /// rings, as it may. Or the error of [`PeerMapping::new`].
    pub(crate) fn map(self: &Arc<Self>, user: u32, memfd: impl AsFd) -> Result<RingMemory, Errno> {
        // First, because this asks no file system: a file without seals may be of one whose server is a program, and which
        // answers `fstat` as late as it likes.
        fcntl_get_seals(&memfd).map_err(|_| Errno::INVAL)?;
        let file = fstat(&memfd)?;
        let is_long = file.st_size as u64 >= bytes_of(ring::LONG_WORDS) as u64;
        let words = if is_long { ring::LONG_WORDS } else { ring::WORDS };
        let permit = self.permit(user, (file.st_dev, file.st_ino), bytes_of(words))?;
        Ok(RingMemory { words: PeerMapping::new(&memfd, words, &self.pins)?, _permit: permit })
    }

    /// Counts one more ring of a user.
    fn permit(self: &Arc<Self>, user: u32, file: FileId, bytes: usize) -> Result<RingPermit, Errno> {
        let mut of_users = self.of_users();
        if let Some(own) = of_users.get(&user) {
            if own.files.contains(&file) {
                return Err(Errno::EXIST);
            }
            if own.files.len() >= self.limits.rings || own.bytes + bytes > self.limits.bytes {
                return Err(Errno::NFILE);
            }
        }
        let own = of_users.entry(user).or_default();
        own.files.insert(file);
        own.bytes += bytes;
        Ok(RingPermit { rings: Arc::clone(self), user, file, bytes })
    }

    fn of_users(&self) -> MutexGuard<'_, HashMap<u32, UserRings>> {
        lock(&self.of_users)
    }
}

impl Drop for RingPermit {
    fn drop(&mut self) {
        let mut of_users = self.rings.of_users();
        let Some(own) = of_users.get_mut(&self.user) else { return };
        own.files.remove(&self.file);
        own.bytes -= self.bytes;
        if own.files.is_empty() {
            of_users.remove(&self.user);
        }
    }
}

impl RingMemory {
    pub(crate) fn words(&self) -> &PeerMapping {
        &self.words
    }
}

impl Shares {
    pub(crate) fn new(descriptors: Arc<DescriptorBudget>) -> Self {
        Shares { descriptors }
    }

    /// Returns the pins of the sockets' pages, and the rings of the programs.
    pub(crate) fn pins(&self) -> (Arc<Pins>, Arc<Rings>) {
        let Division { pipes_of_pages, pipes_of_rings, .. } = *self.descriptors.division();
        (Arc::new(Pins::new(pipes_of_pages)), Rings::new(pipes_of_rings))
    }

    /// Counts one more socket. The error is the kernel's for a full file table.
    pub(crate) fn take(&self, owner: Owner) -> Result<Share, Errno> {
        if !self.descriptors.has(Use::Sockets, owner.user, DESCRIPTORS_PER_SOCKET) {
            return Err(Errno::NFILE);
        }
        let descriptors = self.descriptors.count(Use::Sockets, owner.user, DESCRIPTORS_COUNTED_HERE);
        Ok(Share { owner, _descriptors: descriptors })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use shared_memory::OfferedMapping;

    use super::*;

    #[test]
    fn one_user_leaves_room_for_others() {
        let descriptors = DescriptorBudget::with_max(1000);
        let shares = Shares::new(Arc::clone(&descriptors));
        let end_of_pair =
            |user| descriptors.count(Use::Sockets, user, DESCRIPTORS_PER_SOCKET - DESCRIPTORS_COUNTED_HERE);
        let of = |user| shares.take(Owner { user, process: 7 }).map(|share| (share, end_of_pair(user)));
        let all_of =
            |user| -> Vec<(Share, DescriptorPermit)> { std::iter::from_fn(|| of(user).ok()).collect() };
        // There are 134 sockets in all.
        let greedy = all_of(1);
        assert_eq!((greedy.len(), of(1).map(drop)), (100, Err(Errno::NFILE)));
        // Its requests take nothing from the sockets of others, even if they have more than their part.
        let requests = descriptors.count(Use::Requests, 1, descriptors.division().part(Use::Requests).0);
        let others = all_of(2);
        assert_eq!((others.len(), of(3).map(drop)), (34, Err(Errno::NFILE)));
        drop(greedy);
        let _again = of(1).expect("room again");
        assert!(of(3).is_ok(), "a third user has a share of its own");
        drop((others, requests));
    }

    #[test]
    fn one_user_leaves_rings_to_others() {
        let rings = Rings::new(2);
        let ring = |user| rings.map(user, OfferedMapping::new("ring", ring::WORDS).expect("memory"));
        let all_of = |user| -> Vec<RingMemory> { std::iter::from_fn(|| ring(user).ok()).collect() };
        // Nine pages stay in a pipe, whichever of 16 they are, and one pipe may hold a single page.
        let greedy = all_of(1);
        assert_eq!((greedy.len(), ring(1).err()), (6, Some(Errno::NFILE)));
        let without_seals = rings.map(1, File::open("/dev/null").expect("a file"));
        assert_eq!(without_seals.err(), Some(Errno::INVAL), "its file system is not asked which file it is");
        let first = ring(2).expect("the pins that are left are for others");
        assert!(greedy.iter().all(|ring| !ring.words().words_u64().is_empty()));
        drop(greedy);
        assert_eq!(all_of(1).len(), 6);
        drop(first);
        assert!(rings.of_users().is_empty(), "a user without rings takes no memory");
        let refused = rings.map(1, File::open("/dev/null").expect("a file"));
        assert!(refused.is_err() && rings.of_users().is_empty(), "one that is refused does not count");
    }

    #[test]
    fn the_memory_of_one_ring_is_mapped_once_for_each_user() {
        let rings = Rings::new(2);
        let memory = OfferedMapping::new("ring", ring::WORDS).expect("memory");
        let first = rings.map(1, &memory).expect("the first");
        assert_eq!(rings.map(1, &memory).err(), Some(Errno::EXIST));
        let copy = memory.as_fd().try_clone_to_owned().expect("a descriptor");
        assert_eq!(rings.map(1, copy).err(), Some(Errno::EXIST), "another descriptor of it");
        assert!(rings.map(2, &memory).is_ok(), "the other user does not lose it by that");
        drop(first);
        assert!(rings.map(1, &memory).is_ok());
    }

    #[test]
    fn the_rings_of_one_user_take_so_many_bytes() {
        let (short, long) = (bytes_of(ring::WORDS), bytes_of(ring::LONG_WORDS));
        let rings = Rings::with_limits(9, RingLimits { rings: 9, bytes: long + short });
        let ring = |user, words| rings.map(user, OfferedMapping::new("ring", words).expect("memory"));
        let first = ring(1, ring::LONG_WORDS).expect("the first");
        assert_eq!(ring(1, ring::LONG_WORDS).err(), Some(Errno::NFILE));
        let _short = ring(1, ring::WORDS).expect("it is short");
        assert_eq!(ring(1, ring::WORDS).err(), Some(Errno::NFILE));
        assert!(ring(2, ring::LONG_WORDS).is_ok(), "it is another user");
        drop(first);
        assert!(ring(1, ring::LONG_WORDS).is_ok(), "its bytes are free again");
    }
}
