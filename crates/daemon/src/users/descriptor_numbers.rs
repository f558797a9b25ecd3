//! Numbers for descriptors: as many as the process may have, less those that must stay free.
//!
//! The kernel closes descriptors of a message for which the receiver has no number, on the thread that receives. So the daemon
//! receives only while it has numbers for all that one message can hold.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::{Resource, getrlimit};

/// Most descriptors of one message (`SCM_MAX_FD` of the kernel).
pub(crate) const MESSAGE_DESCRIPTORS_MAX: usize = 253;
/// Descriptors that are nobody's: standard ones, the runtime's, those that carry SCTP, and what is opened for a moment.
const OWN: usize = 96;
/// The daemon does not start with fewer (`RLIMIT_NOFILE`): none would be left for sockets beside those that must stay free.
const LIMIT_MIN: usize = 512;
/// The limit that is assumed where there is none.
const NUMBERS_MAX: usize = 1 << 24;

/// The numbers that this process has for descriptors of programs.
#[derive(Debug)]
pub(crate) struct Numbers {
    used: AtomicUsize,
    max: usize,
}

/// Some numbers, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Taken {
    numbers: Arc<Numbers>,
    count: usize,
}

/// This process may have fewer descriptors than a daemon needs.
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

impl Numbers {
    /// Returns the numbers that the limit of this process leaves.
    pub(crate) fn of_this_process() -> Result<Arc<Numbers>, FewDescriptors> {
        let limit = getrlimit(Resource::Nofile).current;
        Numbers::of_limit(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(NUMBERS_MAX))
    }

    fn of_limit(limit: usize) -> Result<Arc<Numbers>, FewDescriptors> {
        match limit {
            LIMIT_MIN.. => Ok(Numbers::with_max(limit.min(NUMBERS_MAX) - OWN)),
            _ => Err(FewDescriptors { limit }),
        }
    }

    pub(crate) fn with_max(max: usize) -> Arc<Numbers> {
        Arc::new(Numbers { used: AtomicUsize::new(0), max })
    }

    /// Returns how many there are, used or not.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns whether so many are free beside those for one message.
    pub(crate) fn has(&self, count: usize) -> bool {
        self.used.load(Relaxed) + count + MESSAGE_DESCRIPTORS_MAX <= self.max
    }

    /// Counts numbers that are in use already.
    pub(crate) fn count(self: &Arc<Self>, count: usize) -> Taken {
        self.used.fetch_add(count, Relaxed);
        Taken { numbers: Arc::clone(self), count }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.numbers.used.fetch_sub(self.count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_leaves_room_for_requests_and_sockets() {
        assert!(Numbers::of_limit(LIMIT_MIN - 1).is_err());
        let numbers = Numbers::of_limit(LIMIT_MIN).expect("enough");
        assert!(numbers.has(LIMIT_MIN / 4));
        assert_eq!(numbers.max(), LIMIT_MIN - OWN);
    }

    #[test]
    fn room_for_one_message_stays() {
        let numbers = Numbers::with_max(MESSAGE_DESCRIPTORS_MAX + 3);
        let taken = numbers.count(2);
        assert!(numbers.has(1) && !numbers.has(2));
        drop(taken);
        assert!(numbers.has(3));
    }
}
