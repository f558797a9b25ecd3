//! Whose a socket is, and how many one user may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::UCred;
use rustix::process::{Resource, getrlimit};

/// What each socket costs the daemon: its end of the carrier, and the page.
const DESCRIPTORS_PER_SOCKET: u64 = 2;
/// The descriptors that sockets of one user may take, in quarters of all: others always get some.
const QUARTERS_OF_A_USER: u64 = 3;
/// Most sockets of a user where descriptors have no limit.
const SOCKETS_OF_A_USER_MAX: u64 = 1 << 20;

/// Who has opened a socket. Its descriptor may be others' since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) process: i32,
}

impl From<UCred> for Owner {
    fn from(who: UCred) -> Self {
        Owner { user: who.uid.as_raw(), process: who.pid.as_raw_nonzero().get() }
    }
}

/// How many sockets each user has.
#[derive(Debug)]
pub(crate) struct Shares {
    of_users: Arc<Mutex<HashMap<u32, u64>>>,
    limit: u64,
}

/// One socket of a user, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) owner: Owner,
    of_users: Arc<Mutex<HashMap<u32, u64>>>,
}

impl Default for Shares {
    /// With the limit that the descriptors of this process set.
    fn default() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = descriptors / DESCRIPTORS_PER_SOCKET / 4 * QUARTERS_OF_A_USER;
        Shares::with_limit(limit.clamp(1, SOCKETS_OF_A_USER_MAX))
    }
}

impl Shares {
    fn with_limit(limit: u64) -> Self {
        Shares { of_users: Arc::default(), limit }
    }

    /// One more socket. An error is what the kernel says of a full table of files.
    pub(crate) fn take(&self, owner: Owner) -> Result<Share, Errno> {
        let mut of_users = lock(&self.of_users);
        let count = of_users.entry(owner.user).or_default();
        if *count >= self.limit {
            return Err(Errno::NFILE);
        }
        *count += 1;
        Ok(Share { owner, of_users: Arc::clone(&self.of_users) })
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

fn lock(of_users: &Mutex<HashMap<u32, u64>>) -> MutexGuard<'_, HashMap<u32, u64>> {
    of_users.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_room_for_others() {
        let shares = Shares::with_limit(2);
        let of = |user| shares.take(Owner { user, process: 7 });
        let (first, _second) = (of(1).expect("room"), of(1).expect("room"));
        assert_eq!(of(1).map(drop), Err(Errno::NFILE));
        assert!(of(2).is_ok(), "another user has a share of its own");
        drop(first);
        let _third = of(1).expect("room again");
        assert_eq!(lock(&shares.of_users).len(), 1, "who has no socket takes no memory");
    }
}
