//! Ownership of sockets, and the limit of sockets of one user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::net::UCred;
use shared_memory::Pins;

use crate::system::lock::lock;
use crate::users::descriptor_numbers::{MESSAGE_DESCRIPTORS_MAX, Numbers, Taken};

/// Number of descriptors of each socket: its end of the carrier, and the two pages.
const DESCRIPTORS_PER_SOCKET: usize = 3;
/// The end of the carrier is counted by its owner, until it is closed.
const DESCRIPTORS_COUNTED_HERE: usize = 2;
/// Sockets leave this part of all descriptors to requests: the number divided by this.
const PART_OF_REQUESTS: usize = 8;
/// And this part to the pins of rings.
const PART_OF_RINGS: usize = 16;
/// Number of descriptors of a pipe.
const DESCRIPTORS_PER_PIPE: usize = 2;
/// Maximum number of quarters of all sockets for one user, so that other users always get some.
const QUARTERS_OF_A_USER: usize = 3;

/// The user and process that opened a socket. Its descriptor may have been passed on since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) process: i32,
}

impl From<UCred> for Owner {
    fn from(credentials: UCred) -> Self {
        Owner { user: credentials.uid.as_raw(), process: credentials.pid.as_raw_nonzero().get() }
    }
}

/// The division of descriptors.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// Maximum number of sockets.
    sockets: usize,
    /// Maximum number of pipes that pin pages of sockets.
    pipes_of_pages: usize,
    /// Maximum number of pipes that pin rings. A program without a ring sends records.
    pipes_of_rings: usize,
}

impl Division {
    /// Divides so many descriptors.
    fn new(descriptors: usize) -> Division {
        let pipes_of_rings = descriptors / PART_OF_RINGS / DESCRIPTORS_PER_PIPE;
        let left = descriptors / PART_OF_REQUESTS + pipes_of_rings * DESCRIPTORS_PER_PIPE;
        let room = descriptors.saturating_sub(left + MESSAGE_DESCRIPTORS_MAX);
        let fit = |sockets: usize| {
            sockets * DESCRIPTORS_PER_SOCKET + Pins::pipes_for(sockets) * DESCRIPTORS_PER_PIPE <= room
        };
        // The number of sockets is at least `few` and less than `many`.
        let (mut few, mut many) = (0, room / DESCRIPTORS_PER_SOCKET + 1);
        while few + 1 < many {
            let middle = few.midpoint(many);
            if fit(middle) {
                few = middle;
            } else {
                many = middle;
            }
        }
        Division { sockets: few, pipes_of_pages: Pins::pipes_for(few), pipes_of_rings }
    }
}

/// Returns how many sockets a daemon can have that may have so many descriptors.
pub fn sockets_max(descriptors: usize) -> usize {
    Division::new(Numbers::left_to_programs(descriptors)).sockets
}

/// The number of sockets of each user.
#[derive(Debug)]
pub(crate) struct Shares {
    of_users: Arc<Mutex<HashMap<u32, usize>>>,
    limit: usize,
    division: Division,
    numbers: Arc<Numbers>,
}

/// One socket of a user, counted until dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) owner: Owner,
    of_users: Arc<Mutex<HashMap<u32, usize>>>,
    _numbers: Taken,
}

impl Shares {
    /// Sets the limit according to the descriptor numbers of this process.
    pub(crate) fn new(numbers: Arc<Numbers>) -> Self {
        let division = Division::new(numbers.max());
        let limit = division.sockets * QUARTERS_OF_A_USER / 4;
        Shares { of_users: Arc::default(), limit: limit.max(1), division, numbers }
    }

    /// Returns the pins of the sockets' pages, and those of their rings.
    pub(crate) fn pins(&self) -> (Arc<Pins>, Arc<Pins>) {
        let Division { pipes_of_pages, pipes_of_rings, .. } = self.division;
        (Arc::new(Pins::new(pipes_of_pages)), Arc::new(Pins::new(pipes_of_rings)))
    }

    /// Counts one more socket. The error is the kernel's for a full file table.
    pub(crate) fn take(&self, owner: Owner) -> Result<Share, Errno> {
        let others = self.numbers.max() - self.division.sockets * DESCRIPTORS_PER_SOCKET;
        if !self.numbers.has(DESCRIPTORS_PER_SOCKET + others.saturating_sub(MESSAGE_DESCRIPTORS_MAX)) {
            return Err(Errno::NFILE);
        }
        let mut of_users = lock(&self.of_users);
        let count = of_users.entry(owner.user).or_default();
        if *count >= self.limit {
            return Err(Errno::NFILE);
        }
        *count += 1;
        let numbers = self.numbers.count(DESCRIPTORS_COUNTED_HERE);
        Ok(Share { owner, of_users: Arc::clone(&self.of_users), _numbers: numbers })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut of_users = lock(&self.of_users);
        if let Some(count) = of_users.get_mut(&self.owner.user) {
            *count -= 1;
            if *count == 0 {
                of_users.remove(&self.owner.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_room_for_others() {
        let numbers = Numbers::with_max(1000);
        let shares = Shares::new(Arc::clone(&numbers));
        let end_of_carrier = || numbers.count(DESCRIPTORS_PER_SOCKET - DESCRIPTORS_COUNTED_HERE);
        let of = |user| shares.take(Owner { user, process: 7 }).map(|share| (share, end_of_carrier()));
        let all_of = |user| -> Vec<(Share, Taken)> { std::iter::from_fn(|| of(user).ok()).collect() };
        // 1,000 less 125, 62 and 253 are 560: enough for 172 sockets, and for 22 pipes with their pages.
        let greedy = all_of(1);
        assert_eq!((greedy.len(), of(1).map(drop)), (129, Err(Errno::NFILE)));
        let others = all_of(2);
        assert_eq!(
            (others.len(), of(3).map(drop)),
            (43, Err(Errno::NFILE)),
            "all together leave some to requests"
        );
        drop(greedy);
        let _again = of(1).expect("room again");
        assert!(of(3).is_ok(), "a third user has a share of its own");
        drop(others);
        assert_eq!(lock(&shares.of_users).len(), 1, "a user without sockets takes no memory");
    }
}
