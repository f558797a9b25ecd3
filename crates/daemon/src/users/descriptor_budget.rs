//! Counts descriptor numbers: the process limit, less those that must stay free.
//!
//! If the receiver lacks numbers for the descriptors of a message, the kernel closes them on the receiving thread. So
//! the daemon receives only while it has numbers for the maximum that one message can contain.
//!
//! Each use of descriptors has a part of its own, and one user has at most three quarters of each. So requests take no numbers
//! from sockets, and one user leaves some to others. A descriptor that has come is counted even beyond the share of its user:
//! a message may bring several, and the close of a connection may be stuck.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::system::lock::lock;
use crate::users::division::{Division, MESSAGE_DESCRIPTORS_MAX, Use};

/// Descriptors of the daemon itself: standard ones, the runtime's, the sockets that carry SCTP, and short-lived ones.
const OWN: usize = 96;
/// The minimum limit with which the daemon starts (`RLIMIT_NOFILE`): with fewer, none would be left for sockets.
const LIMIT_MIN: usize = 512;
/// Maximum number of descriptors that a task waits for.
const WAITED_FOR_MAX: usize = 2;
/// The assumed limit if the process has none.
const NUMBERS_MAX: usize = 1 << 24;

/// The descriptor numbers of this process for descriptors of programs, divided among their uses.
#[derive(Debug)]
pub(crate) struct DescriptorBudget {
    division: Division,
    /// Number of descriptors in all but those of pipes.
    max: usize,
    used: Mutex<Used>,
    /// Whether any user may have one more number for each use, whatever it has: the usual case, which needs no lock.
    has_plenty: [AtomicBool; Use::ALL.len()],
    /// Notifies tasks of numbers that were freed.
    freed: Notify,
}

/// The numbers in use.
#[derive(Debug, Default)]
struct Used {
    all: usize,
    parts: [UsedPart; Use::ALL.len()],
}

/// The numbers of one use.
#[derive(Debug, Default)]
struct UsedPart {
    of_users: HashMap<u32, usize>,
    /// The numbers of all users.
    all: usize,
    /// The numbers of all users, without what some have beyond their share: it leaves the others their part.
    within_shares: usize,
}

/// Descriptor numbers that are taken until this is dropped.
#[derive(Debug)]
pub(crate) struct DescriptorPermit {
    budget: Arc<DescriptorBudget>,
    of: Use,
    user: u32,
    count: usize,
}

/// The descriptor limit of this process is too low for a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewDescriptors {
    limit: usize,
}

impl fmt::Display for FewDescriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors are too few: a daemon needs at least {LIMIT_MIN}; raise the limit (`ulimit -n`, \
             `LimitNOFILE=` of the unit)",
            self.limit
        )
    }
}

impl std::error::Error for FewDescriptors {}

impl DescriptorBudget {
    /// Returns the numbers that the limit of this process permits.
    pub(crate) fn of_this_process() -> Result<Arc<DescriptorBudget>, FewDescriptors> {
        let limit = getrlimit(Resource::Nofile).current;
        DescriptorBudget::of_limit(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(NUMBERS_MAX))
    }

    fn of_limit(limit: usize) -> Result<Arc<DescriptorBudget>, FewDescriptors> {
        match limit {
            LIMIT_MIN.. => Ok(DescriptorBudget::with_max(DescriptorBudget::left_to_programs(limit))),
            _ => Err(FewDescriptors { limit }),
        }
    }

    /// Returns how many of the descriptors of a daemon are for programs.
    pub(crate) fn left_to_programs(limit: usize) -> usize {
        limit.min(NUMBERS_MAX).saturating_sub(OWN)
    }

    pub(crate) fn with_max(max: usize) -> Arc<DescriptorBudget> {
        let division = Division::new(max);
        let max = max.saturating_sub(division.of_pipes());
        let (used, has_plenty, freed) = (Mutex::default(), Default::default(), Notify::new());
        let budget = Arc::new(DescriptorBudget { division, max, used, has_plenty, freed });
        budget.note_plenty(&budget.used());
        budget
    }

    /// Returns the division of the descriptors.
    pub(crate) fn division(&self) -> &Division {
        &self.division
    }

    /// Returns whether a number is free in addition to those for one message, whoever uses it for what.
    pub(crate) fn has_any(&self) -> bool {
        self.is_free(&self.used(), 1)
    }

    /// Returns whether this user may have `count` more numbers for this use, and they are free in addition to those for one
    /// message.
    pub(crate) fn has(&self, of: Use, user: u32, count: usize) -> bool {
        count == 1 && self.has_plenty[of as usize].load(Relaxed)
            || self.may_use(&self.used(), of, user, count)
    }

    /// Notes after each change which uses have plenty of numbers.
    fn note_plenty(&self, used: &Used) {
        for of in Use::ALL {
            let (part_max, of_user_max) = self.division.part(of);
            let all = used.parts[of as usize].all;
            let has_plenty = all < part_max.min(of_user_max) && self.is_free(used, 1);
            self.has_plenty[of as usize].store(has_plenty, Relaxed);
        }
    }

    fn is_free(&self, used: &Used, count: usize) -> bool {
        used.all + count + MESSAGE_DESCRIPTORS_MAX <= self.max
    }

    fn may_use(&self, used: &Used, of: Use, user: u32, count: usize) -> bool {
        let (part_max, of_user_max) = self.division.part(of);
        let part = &used.parts[of as usize];
        part.of_user(user) + count <= of_user_max
            && part.within_shares + count <= part_max
            && self.is_free(used, count)
    }

    /// Waits until numbers are freed after this call.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Counts numbers that are already in use.
    pub(crate) fn count(self: &Arc<Self>, of: Use, user: u32, count: usize) -> DescriptorPermit {
        let (_, share) = self.division.part(of);
        let mut used = self.used();
        used.all += count;
        used.parts[of as usize].set(user, share, |own| own + count);
        self.note_plenty(&used);
        DescriptorPermit { budget: Arc::clone(self), of, user, count }
    }

    /// Returns how many numbers are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.used().all
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        lock(&self.used)
    }
}

impl UsedPart {
    fn of_user(&self, user: u32) -> usize {
        self.of_users.get(&user).copied().unwrap_or(0)
    }

    /// Sets how many numbers a user has.
    fn set(&mut self, user: u32, share: usize, change: impl FnOnce(usize) -> usize) {
        let before = self.of_user(user);
        let after = change(before);
        self.all = self.all + after - before;
        self.within_shares = self.within_shares + after.min(share) - before.min(share);
        match after {
            0 => self.of_users.remove(&user),
            _ => self.of_users.insert(user, after),
        };
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        let &mut DescriptorPermit { ref budget, of, user, count } = self;
        let (_, share) = budget.division.part(of);
        let mut used = budget.used();
        let were_scarce = !budget.may_use(&used, of, user, WAITED_FOR_MAX);
        used.all -= count;
        used.parts[of as usize].set(user, share, |own| own - count);
        budget.note_plenty(&used);
        drop(used);
        if were_scarce {
            budget.freed.notify_waiters();
        }
    }
}

/// Returns how many sockets a daemon can have that may have this many descriptors.
pub fn sockets_max(descriptors: usize) -> usize {
    Division::new(DescriptorBudget::left_to_programs(descriptors)).sockets
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn the_least_limit_leaves_room_for_requests_and_sockets() {
        assert!(DescriptorBudget::of_limit(LIMIT_MIN - 1).is_err());
        let budget = DescriptorBudget::of_limit(LIMIT_MIN).expect("enough");
        assert!(budget.has(Use::Requests, 1, 50) && budget.has(Use::Sockets, 1, 18));
        assert_eq!(sockets_max(LIMIT_MIN), 9);
        assert!(budget.has(Use::FromPairs, 1, 8) && budget.has(Use::LongMessages, 1, 8));
    }

    #[test]
    fn room_for_one_message_stays() {
        let budget = DescriptorBudget::with_max(1000);
        let free = budget.max - MESSAGE_DESCRIPTORS_MAX;
        let taken = budget.count(Use::FromPairs, 1, free - 1);
        assert!(budget.has(Use::Requests, 2, 1) && !budget.has(Use::Requests, 2, 2) && budget.has_any());
        let one = budget.count(Use::Sockets, 2, 1);
        assert!(!budget.has(Use::Requests, 2, 1) && !budget.has_any());
        drop((taken, one));
        assert!(budget.has(Use::Requests, 2, 100));
        assert!(budget.used().parts.iter().all(|part| part.of_users.is_empty()), "no user takes memory");
    }

    #[test]
    fn a_user_leaves_others_their_part_of_each_use() {
        let budget = DescriptorBudget::with_max(4000);
        for of in [Use::Sockets, Use::Requests, Use::FromPairs, Use::LongMessages] {
            let (part, share) = budget.division().part(of);
            let own = budget.count(of, 1, share);
            assert!(!budget.has(of, 1, 1) && budget.has(of, 2, part - share), "{of:?}");
            assert!(!budget.has(of, 2, part - share + 1), "{of:?}");
            // What one user has beyond its share does not count for the part.
            let beyond = budget.count(of, 1, 100);
            assert!(budget.has(of, 2, part - share), "{of:?}");
            drop(own);
            assert!(budget.has(of, 1, 1) == (share > 100), "{of:?}");
            drop(beyond);
            assert!(budget.has(of, 1, share) && !budget.has(of, 1, share + 1), "{of:?}");
        }
    }

    #[test]
    fn one_user_with_all_that_it_may_have_leaves_all_uses_to_another() {
        for max in [416, 928, 2000, 10_000] {
            let budget = DescriptorBudget::with_max(max);
            let uses = [Use::Sockets, Use::Requests, Use::FromPairs, Use::LongMessages];
            let _all = uses.map(|of| budget.count(of, 1, budget.division().part(of).1));
            for of in uses {
                let (part, share) = budget.division().part(of);
                assert!(budget.has(of, 2, part - share), "{of:?} of {max}");
            }
        }
    }

    #[tokio::test(flavor = "local")]
    async fn tasks_that_wait_are_notified_of_numbers_that_were_scarce_alone() {
        let budget = DescriptorBudget::with_max(4000);
        let (_, share) = budget.division().part(Use::LongMessages);
        let _all = budget.count(Use::LongMessages, 1, share - 2);
        let last = budget.count(Use::LongMessages, 1, 2);
        let other = budget.count(Use::LongMessages, 2, 2);
        let mut freed = pin!(budget.freed());
        let is_notified = |freed: &mut Pin<&mut Notified<'_>>| {
            freed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(!is_notified(&mut freed));
        drop(other);
        assert!(!is_notified(&mut freed), "there were enough for this user");
        drop(last);
        assert!(is_notified(&mut freed));
    }
}
