//! The packets on the way, in the order of their arrival.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::verdict::Behind;

/// When something arrives, and its place among all that arrives then: as they were put on the way.
type Key = (u64, u64);

/// What is on the way.
///
/// Packets leave a pipe in order, unless a fault or a change of its delay lets one overtake. So each pipe has a lane, first
/// in, first out, and only the heads of the lanes are sorted: a long line costs no more than a short one. The few that
/// are out of order are sorted apart.
#[derive(Debug)]
pub(crate) struct Transit<T> {
    lanes: Vec<Lane<T>>,
    /// The first of each lane that is not empty, and no other.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    strays: BTreeMap<Key, T>,
    sequence: u64,
    len: usize,
}

#[derive(Debug)]
struct Lane<T> {
    in_order: VecDeque<(Key, T)>,
    waiting: Vec<Waiting>,
}

/// A stray that waits for others to pass it.
#[derive(Debug)]
struct Waiting {
    key: Key,
    at_ns: u64,
    packets: u32,
}

impl<T> Transit<T> {
    /// Nothing on the way and no lanes.
    pub(crate) fn new() -> Self {
        Transit { lanes: Vec::new(), heads: BinaryHeap::new(), strays: BTreeMap::new(), sequence: 0, len: 0 }
    }

    /// Lanes are numbered from 0 on.
    pub(crate) fn add_lane(&mut self) {
        self.lanes.push(Lane { in_order: VecDeque::new(), waiting: Vec::new() });
    }

    /// What arrives at `at_ns`.
    pub(crate) fn push(&mut self, lane: usize, at_ns: u64, item: T) {
        self.len += 1;
        self.insert(lane, at_ns, item);
        if !self.lanes[lane].waiting.is_empty() {
            self.release(lane, at_ns);
        }
    }

    /// What could arrive at `at_ns`, but waits for others of its lane.
    pub(crate) fn push_behind(&mut self, lane: usize, at_ns: u64, behind: Behind, item: T) {
        self.len += 1;
        let key = (behind.at_latest_ns, self.next_sequence());
        self.strays.insert(key, item);
        self.lanes[lane].waiting.push(Waiting { key, at_ns, packets: behind.packets });
    }

    /// When the next one arrives.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let head = self.heads.peek().map(|Reverse((key, _))| key.0);
        if self.strays.is_empty() {
            return head;
        }
        let stray = self.strays.first_key_value().map(|(key, _)| key.0);
        head.into_iter().chain(stray).min()
    }

    /// The next one that has arrived by `now_ns`, and when it did.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(u64, T)> {
        if !self.strays.is_empty()
            && let Some(entry) = self.strays.first_entry()
            && self.heads.peek().is_none_or(|Reverse((key, _))| entry.key() < key)
        {
            if entry.key().0 > now_ns {
                return None;
            }
            self.len -= 1;
            let ((at_ns, _), item) = entry.remove_entry();
            return Some((at_ns, item));
        }
        let mut head = self.heads.peek_mut()?;
        let Reverse(((at_ns, _), lane)) = *head;
        if at_ns > now_ns {
            return None;
        }
        let in_order = &mut self.lanes[lane].in_order;
        let (_, item) = in_order.pop_front()?;
        match in_order.front() {
            Some((key, _)) => *head = Reverse((*key, lane)),
            None => drop(PeekMut::pop(head)),
        }
        self.len -= 1;
        Some((at_ns, item))
    }

    /// How many are on the way.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn insert(&mut self, lane: usize, at_ns: u64, item: T) {
        let key = (at_ns, self.next_sequence());
        let in_order = &mut self.lanes[lane].in_order;
        match in_order.back() {
            Some((last, _)) if last.0 > at_ns => drop(self.strays.insert(key, item)),
            Some(_) => in_order.push_back((key, item)),
            None => {
                in_order.push_back((key, item));
                self.heads.push(Reverse((key, lane)));
            }
        }
    }

    /// One has passed those that wait: who has waited for enough comes right behind it.
    fn release(&mut self, lane: usize, passed_ns: u64) {
        let mut waiting = std::mem::take(&mut self.lanes[lane].waiting);
        waiting.retain_mut(|waiting| {
            waiting.packets -= 1;
            if waiting.packets > 0 {
                return true;
            }
            // One that has waited as long as it may is gone already.
            if let Some(item) = self.strays.remove(&waiting.key) {
                self.insert(lane, waiting.at_ns.max(passed_ns).min(waiting.key.0), item);
            }
            false
        });
        self.lanes[lane].waiting = waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LANES: usize = 3;

    proptest! {
        /// Any mixture of lanes and of times comes out as sorting all of it would give.
        #[test]
        fn all_arrives_in_order(steps in prop::collection::vec((0..LANES, 0u64..20, 0u64..8), 0..300)) {
            let mut transit = Transit::new();
            (0..LANES).for_each(|_| transit.add_lane());
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut now_ns = 0;
            for (number, (lane, delay_ns, gap_ns)) in steps.into_iter().enumerate() {
                transit.push(lane, now_ns + delay_ns, number);
                model.push((now_ns + delay_ns, number));
                now_ns += gap_ns;
                model.sort_unstable();
                prop_assert_eq!(transit.next_ns(), model.first().map(|(at_ns, _)| *at_ns));
                while let Some(next) = transit.pop_due(now_ns) {
                    prop_assert_eq!(next, model.remove(0));
                }
                prop_assert!(model.first().is_none_or(|(at_ns, _)| *at_ns > now_ns));
                prop_assert_eq!(transit.len(), model.len());
            }
        }
    }
}
