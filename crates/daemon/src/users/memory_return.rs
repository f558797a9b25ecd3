//! Returns freed memory to the system.
//!
//! The C library keeps freed memory that lies below memory in use. So the daemon returns it after large charges were
//! released, and after many associations have ended: these take memory beside what is charged, and remain for some time after
//! the charges of their programs.

use std::sync::Arc;
use std::time::Duration;

use crate::users::budget::{Budget, MUCH_BYTES, RETURNED_BYTES};

/// Freed memory that each heap of the C library keeps for later. Pages are the largest part of the cost of a long message, so
/// the next one gets those of the last.
pub(crate) const KEPT_BYTES: u32 = 4 << 20;

/// Interval for rechecking, while the charges are large, whether much was released.
const LOOKS: Duration = Duration::from_secs(1);

/// Interval for counting the associations.
const COUNTS: Duration = Duration::from_secs(3);
/// Number of associations whose end leaves much memory.
const ENDED_MANY: usize = 128;

/// Returns the memory of associations that have ended to the system, for as long as the runtime lives. `count`
/// returns how many there are.
pub(crate) async fn return_memory_of_associations(count: impl Fn() -> usize) {
    let mut ended = Ended::default();
    loop {
        tokio::time::sleep(COUNTS).await;
        if ended.record(count()) == Freed::Much {
            // The task fails only when the runtime ends.
            let _ = tokio::task::spawn_blocking(shared_memory::return_freed).await;
        }
    }
}

/// The memory that ended associations have freed since memory was last returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Freed {
    /// Little, or more is about to follow.
    Little,
    Much,
}

/// Finds out from their number at intervals whether many associations have ended.
#[derive(Debug, Default)]
struct Ended {
    /// The largest number since memory was last returned.
    most: usize,
    before: usize,
}

impl Ended {
    /// Records that there are `count` now. Much is freed if many have ended, and no more do.
    fn record(&mut self, count: usize) -> Freed {
        let has_ceased = count >= std::mem::replace(&mut self.before, count);
        if has_ceased && self.most.saturating_sub(count) >= ENDED_MANY {
            self.most = count;
            return Freed::Much;
        }
        self.most = self.most.max(count);
        Freed::Little
    }
}

/// Returns freed memory of a budget to the system, for as long as the runtime lives.
pub(crate) async fn return_memory_of(budget: Arc<Budget>) {
    loop {
        budget.much_charged().await;
        let mut most_bytes = MUCH_BYTES;
        while most_bytes > RETURNED_BYTES {
            tokio::time::sleep(LOOKS).await;
            let charged_bytes = budget.charged_bytes();
            most_bytes = most_bytes.max(charged_bytes);
            if most_bytes - charged_bytes >= RETURNED_BYTES {
                // The task fails only when the runtime ends.
                let _ = tokio::task::spawn_blocking(shared_memory::return_freed).await;
                most_bytes = charged_bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_once_when_the_last_of_many_has_ended() {
        let mut ended = Ended::default();
        let many = |counts: &[usize], ended: &mut Ended| -> Vec<bool> {
            counts.iter().map(|count| ended.record(*count) == Freed::Much).collect()
        };
        assert_eq!(many(&[0, 1000, 1000, 600, 200, 10], &mut ended), [false; 6], "they still end");
        assert_eq!(many(&[10, 10, 12], &mut ended), [true, false, false]);
        assert_eq!(many(&[100, 60, 60, 50, 50], &mut ended), [false; 5], "too few");
        assert_eq!(many(&[50 + ENDED_MANY, 50, 50], &mut ended), [false, false, true]);
        // Slowly ended ones add up.
        assert_eq!(many(&[300, 250, 250, 172, 172], &mut ended), [false, false, false, false, true]);
    }
}
