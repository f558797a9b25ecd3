//! Counts descriptor numbers: the process limit, less those that must stay free.
//!
//! If the receiver lacks numbers for the descriptors of a message, the kernel closes them on the receiving thread. So
//! the daemon receives only while it has numbers for the maximum that one message can contain.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Maximum number of descriptors in one message (`SCM_MAX_FD` of the kernel).
pub(crate) const MESSAGE_DESCRIPTORS_MAX: usize = 253;
/// Descriptors of the daemon itself: standard ones, the runtime's, the sockets that carry SCTP, and short-lived ones.
const OWN: usize = 96;
/// The minimum limit with which the daemon starts (`RLIMIT_NOFILE`): with fewer, none would be left for sockets.
const LIMIT_MIN: usize = 512;
/// The assumed limit if the process has none.
const NUMBERS_MAX: usize = 1 << 24;

/// The descriptor numbers of this process for descriptors of programs.
#[derive(Debug)]
pub(crate) struct DescriptorBudget {
    used: AtomicUsize,
    max: usize,
    /// Notifies tasks of numbers that were freed.
    freed: Notify,
}

/// Descriptor numbers that are taken until this is dropped.
#[derive(Debug)]
pub(crate) struct DescriptorPermit {
    budget: Arc<DescriptorBudget>,
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
        Arc::new(DescriptorBudget { used: AtomicUsize::new(0), max, freed: Notify::new() })
    }

    /// Returns the number of descriptor numbers, used or not.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns whether `count` numbers are free in addition to those for one message.
    pub(crate) fn has(&self, count: usize) -> bool {
        self.used.load(Relaxed) + count + MESSAGE_DESCRIPTORS_MAX <= self.max
    }

    /// Waits until numbers are freed after this call.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Counts numbers that are already in use.
    pub(crate) fn count(self: &Arc<Self>, count: usize) -> DescriptorPermit {
        self.used.fetch_add(count, Relaxed);
        DescriptorPermit { budget: Arc::clone(self), count }
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.count, Relaxed);
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_leaves_room_for_requests_and_sockets() {
        assert!(DescriptorBudget::of_limit(LIMIT_MIN - 1).is_err());
        let budget = DescriptorBudget::of_limit(LIMIT_MIN).expect("enough");
        assert!(budget.has(LIMIT_MIN / 4));
        assert_eq!(budget.max(), LIMIT_MIN - OWN);
    }

    #[test]
    fn room_for_one_message_stays() {
        let budget = DescriptorBudget::with_max(MESSAGE_DESCRIPTORS_MAX + 3);
        let taken = budget.count(2);
        assert!(budget.has(1) && !budget.has(2));
        drop(taken);
        assert!(budget.has(3));
    }
}
