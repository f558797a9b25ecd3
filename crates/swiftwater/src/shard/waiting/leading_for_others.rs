//! When a leader lets another thread lead.
//!
//! A leader that gets nothing itself, such as a thread that waits for further peers, receives for another thread and wakes it. On
//! two processors the leader receives while the other one reads. On one processor they take turns: each batch of packets costs
//! a wake-up, and the reader finds less of the data in the caches. A thread that receives for itself reads at once. Then the
//! leader steps down: it sleeps until its own stream is ready, and whoever waits next leads.

use std::time::{Duration, Instant};

use nix::sched::sched_getcpu;
use streams::StreamId;

/// Number of threads woken in a row on the leader's processor after which it steps down.
const WOKEN_MAX: u32 = 8;
/// Minimum time without anything for itself after which a leader steps down: a thread that is in a dialogue stays.
const IDLE_MIN: Duration = Duration::from_millis(5);

/// The leader, and for whom it has received.
#[derive(Debug, Default)]
pub(super) struct LeadingForOthers {
    /// The number of the last leader's stream, and when it last got something itself, or began to lead.
    leader: Option<(usize, Instant)>,
    /// The processor on which it ran last.
    processor: Option<usize>,
    /// Number of threads in a row that were woken on this processor, while nothing came for the leader.
    woken: u32,
}

impl LeadingForOthers {
    /// Records that the leader for this stream has taken arrivals, and whether its stream is ready. Returns whether the leader
    /// steps down.
    pub(super) fn on_led(&mut self, stream: StreamId, is_ready: bool) -> bool {
        self.processor = sched_getcpu().ok();
        self.steps_down(stream.index(), is_ready, Instant::now())
    }

    fn steps_down(&mut self, stream: usize, is_ready: bool, now: Instant) -> bool {
        match self.leader {
            Some((leader, since)) if leader == stream && !is_ready => {
                let steps_down = self.woken >= WOKEN_MAX && now.saturating_duration_since(since) >= IDLE_MIN;
                if steps_down {
                    (self.leader, self.woken) = (None, 0);
                }
                steps_down
            }
            _ => {
                (self.leader, self.woken) = (Some((stream, now)), 0);
                false
            }
        }
    }

    /// Records that the calling thread, which has followed a poller, was woken because its stream is ready.
    pub(super) fn on_follower_woken(&mut self) {
        self.on_woken_on(sched_getcpu().ok());
    }

    fn on_woken_on(&mut self, processor: Option<usize>) {
        let is_same = processor.is_some() && processor == self.processor;
        self.woken = if is_same { self.woken.saturating_add(1) } else { 0 };
    }

    /// Makes the leader for this stream step down when it has taken the next arrivals, unless they are its own.
    #[cfg(test)]
    pub(super) fn set_due(&mut self, stream: StreamId) {
        self.leader = Instant::now().checked_sub(IDLE_MIN).map(|since| (stream.index(), since));
        self.woken = WOKEN_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: usize = 1;
    const OTHER: usize = 2;

    /// A leader that got something when it began, and has woken as many threads since.
    fn leading(began: Instant, woken: u32) -> LeadingForOthers {
        let mut leading = LeadingForOthers { processor: Some(3), ..LeadingForOthers::default() };
        assert!(!leading.steps_down(LEADER, true, began));
        (0..woken).for_each(|_| leading.on_woken_on(Some(3)));
        leading
    }

    #[test]
    fn a_leader_steps_down_after_so_many_threads_on_its_processor_and_so_much_time() {
        let began = Instant::now();
        let end = began + IDLE_MIN;
        assert!(!leading(began, WOKEN_MAX - 1).steps_down(LEADER, false, end));
        let mut leading = leading(began, WOKEN_MAX);
        assert!(!leading.steps_down(LEADER, false, end - Duration::from_nanos(1)));
        assert!(leading.steps_down(LEADER, false, end));
        assert!(!leading.steps_down(LEADER, false, end + IDLE_MIN), "it begins anew");
    }

    #[test]
    fn a_leader_that_gets_something_or_wakes_a_thread_elsewhere_stays() {
        let began = Instant::now();
        let end = began + IDLE_MIN;
        let mut ready = leading(began, WOKEN_MAX);
        assert!(!ready.steps_down(LEADER, true, end) && !ready.steps_down(LEADER, false, end));
        let mut replaced = leading(began, WOKEN_MAX);
        assert!(!replaced.steps_down(OTHER, false, end), "another leader has just begun");
        for elsewhere in [Some(4), None] {
            let mut leading = leading(began, WOKEN_MAX);
            leading.on_woken_on(elsewhere);
            assert!(!leading.steps_down(LEADER, false, end));
        }
    }
}
