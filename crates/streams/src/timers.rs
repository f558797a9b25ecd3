//! The timers of the executive: for answers to ioctls, closes that drain, and modules and drivers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::identifiers::{Place, Side, StreamId};

/// Identifies one timer of a module or driver. The identifier of an expired timer may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// Action of a timer when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Ends the ioctl with this number (`ETIME`).
    Ioctl { id: u32 },
    /// Ends the wait of a close for queues to drain.
    Close,
    /// Calls a module's or driver's procedure. `serial` is that of the module.
    Procedure { place: Place, serial: u32, side: Side },
}

#[derive(Debug)]
struct Timer {
    stream: StreamId,
    alarm: Alarm,
    generation: u32,
}

/// All timers of one executive.
///
/// A timer is started with a duration while the time may be unknown; it runs from the next time that the executive is given. So
/// no timer ever expires early.
#[derive(Debug)]
pub(crate) struct Timers {
    live: Slab<Timer>,
    /// An entry of the heap may outlive its timer.
    heap: BinaryHeap<Reverse<(Instant, TimerKey)>>,
    fresh: Vec<(Duration, TimerKey)>,
    now: Instant,
    next_generation: u32,
}

/// A [`TimerId`] that sorts by the order of starts: its generation and index. Timers that expire at the same time do so in this
/// order.
pub(crate) type TimerKey = (u32, u32);

/// Dead entries are removed from the heap when there are more than this many, and more than live ones.
const DEAD_ENTRIES_MAX: usize = 64;

impl Timers {
    pub(crate) fn new(now: Instant) -> Self {
        Self { live: Slab::new(), heap: BinaryHeap::new(), fresh: Vec::new(), now, next_generation: 0 }
    }

    /// Starts a timer.
    pub(crate) fn start(&mut self, stream: StreamId, alarm: Alarm, after: Duration) -> TimerId {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let index = self.live.insert(Timer { stream, alarm, generation });
        let index = u32::try_from(index).expect("an executive has less than 2^32 timers");
        self.fresh.push((after, (generation, index)));
        TimerId { index, generation }
    }

    /// Stops a timer of this stream. Returns false if it has expired before.
    pub(crate) fn stop(&mut self, stream: StreamId, id: TimerId) -> bool {
        let is_live = self.timer((id.generation, id.index)).is_some_and(|timer| timer.stream == stream);
        if is_live {
            self.live.remove(id.index as usize);
            self.sweep();
        }
        is_live
    }

    /// Advances the time, from which timers run that were started since the last call.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        for (after, key) in self.fresh.drain(..) {
            // A time beyond the end of the clock never comes.
            if let Some(at) = self.now.checked_add(after) {
                self.heap.push(Reverse((at, key)));
            }
        }
    }

    /// Returns the latest time of a call.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Returns when the executive needs the time: at once while a timer does not run yet.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.fresh.is_empty() {
            return Some(self.now);
        }
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next timer that has expired from the line of those that run. It ends by [`Timers::end`], unless it is stopped
    /// before.
    pub(crate) fn next_due(&mut self) -> Option<(StreamId, TimerKey, Alarm)> {
        while let Some(Reverse((at, key))) = self.heap.peek().copied() {
            if at > self.now {
                return None;
            }
            self.heap.pop();
            if let Some(timer) = self.timer(key) {
                return Some((timer.stream, key, timer.alarm));
            }
        }
        None
    }

    /// Ends a timer that has expired; `None` if it was stopped.
    pub(crate) fn end(&mut self, key: TimerKey) -> Option<(StreamId, TimerId, Alarm)> {
        self.timer(key)?;
        let (generation, index) = key;
        let timer = self.live.remove(index as usize);
        Some((timer.stream, TimerId { index, generation }, timer.alarm))
    }

    fn timer(&self, (generation, index): TimerKey) -> Option<&Timer> {
        self.live.get(index as usize).filter(|timer| timer.generation == generation)
    }

    /// Removes entries of stopped timers, so that starting and stopping for ever takes no memory.
    fn sweep(&mut self) {
        let dead = (self.heap.len() + self.fresh.len()).saturating_sub(self.live.len());
        if dead <= DEAD_ENTRIES_MAX.max(self.live.len()) {
            return;
        }
        let live = &self.live;
        let lives = |(generation, index): TimerKey| {
            live.get(index as usize).is_some_and(|timer| timer.generation == generation)
        };
        self.fresh.retain(|(_, key)| lives(*key));
        self.heap.retain(|Reverse((_, key))| lives(*key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const STREAM: StreamId = StreamId { index: 0, generation: 0 };

    #[test]
    fn a_timer_runs_from_the_next_time_that_is_told() {
        let (start, s) = (Instant::now(), STREAM);
        let mut timers = Timers::new(start);
        let id = timers.start(s, Alarm::Close, SECOND);
        assert_eq!(timers.deadline(), Some(start), "the caller must pass the time");
        timers.advance(start + 10 * SECOND);
        assert_eq!(timers.deadline(), Some(start + 11 * SECOND));
        assert_eq!(timers.next_due(), None);
        timers.advance(start + 11 * SECOND);
        let (_, key, _) = timers.next_due().expect("it is due");
        assert_eq!(timers.end(key), Some((s, id, Alarm::Close)));
        assert_eq!((timers.next_due(), timers.end(key)), (None, None));
        assert!(!timers.stop(s, id), "it has ended");
    }

    #[test]
    fn timers_of_one_time_expire_in_the_order_of_their_starts() {
        let (start, s) = (Instant::now(), STREAM);
        let mut timers = Timers::new(start);
        let stopped: Vec<TimerId> = (0..3).map(|_| timers.start(s, Alarm::Close, SECOND)).collect();
        // The places of these are used again, the last one first.
        stopped.iter().for_each(|id| assert!(timers.stop(s, *id)));
        let started: Vec<TimerId> = (0..6).map(|_| timers.start(s, Alarm::Close, SECOND)).collect();
        timers.advance(start);
        timers.advance(start + SECOND);
        let due: Vec<TimerKey> = std::iter::from_fn(|| timers.next_due()).map(|(_, key, _)| key).collect();
        assert!(timers.stop(s, started[5]), "it has not ended");
        let expired: Vec<TimerId> =
            due.into_iter().filter_map(|key| timers.end(key)).map(|(_, id, _)| id).collect();
        assert_eq!(expired, started[..5]);
    }

    #[test]
    fn a_stopped_timer_never_ends_and_leaves_nothing() {
        let (start, s) = (Instant::now(), STREAM);
        let mut timers = Timers::new(start);
        for _ in 0..10_000 {
            let id = timers.start(s, Alarm::Close, SECOND);
            timers.advance(start);
            assert!(timers.stop(s, id));
        }
        assert!(timers.heap.len() <= DEAD_ENTRIES_MAX + 1, "{} entries", timers.heap.len());
        timers.advance(start + 2 * SECOND);
        assert_eq!(timers.next_due(), None);
    }
}
