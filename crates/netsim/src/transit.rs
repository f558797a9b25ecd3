//! The packets on the way, in the order of their arrival.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use slab::Slab;

use crate::verdict::Behind;

/// When something arrives, and its place among all that arrives then: as they were put on the way.
type Key = (u64, u64);

/// Packets on their way through a line.
///
/// Packets leave a pipe in order, unless a fault or a change of its delay lets one overtake. So each pipe has a lane, first
/// in, first out, and only the heads of the lanes are sorted: a long line costs no more than a short one. The few that
/// are out of order are sorted apart.
///
/// # Examples
///
/// ```
/// let mut transit = netsim::Transit::new();
/// transit.add_lane();
/// transit.push(0, 20, "first");
/// transit.push(0, 30, "second");
/// assert_eq!((transit.next_ns(), transit.pop_due(25)), (Some(20), Some((20, "first"))));
/// assert_eq!(transit.pop_due(25), None);
/// ```
#[derive(Debug)]
pub struct Transit<T> {
    lanes: Vec<Lane<T>>,
    /// The first of each lane that is not empty, and no other.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    strays: Strays<T>,
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
    ticket: Ticket,
    at_ns: u64,
    packets: u32,
}

impl<T> Default for Transit<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Transit<T> {
    /// Makes an empty one without lanes.
    pub fn new() -> Self {
        Transit { lanes: Vec::new(), heads: BinaryHeap::new(), strays: Strays::new(), sequence: 0, len: 0 }
    }

    /// Adds a lane; they are numbered from 0 on.
    pub fn add_lane(&mut self) {
        self.lanes.push(Lane { in_order: VecDeque::new(), waiting: Vec::new() });
    }

    /// Puts an item on its way that arrives at `at_ns`.
    pub fn push(&mut self, lane: usize, at_ns: u64, item: T) {
        self.len += 1;
        self.insert(lane, at_ns, item);
        if !self.lanes[lane].waiting.is_empty() {
            self.release(lane, at_ns);
        }
    }

    /// Puts an item on its way that arrives at `at_ns`, and that later items overtake: in the lane they would be out of
    /// order.
    pub fn push_late(&mut self, lane: usize, at_ns: u64, item: T) {
        self.len += 1;
        let key = (at_ns, self.next_sequence());
        self.strays.insert(key, item);
        self.release(lane, at_ns);
    }

    /// Puts an item on its way that could arrive at `at_ns`, but waits for others of its lane.
    pub fn push_behind(&mut self, lane: usize, at_ns: u64, behind: Behind, item: T) {
        self.len += 1;
        let key = (behind.at_latest_ns, self.next_sequence());
        let ticket = self.strays.insert(key, item);
        self.lanes[lane].waiting.push(Waiting { ticket, at_ns, packets: behind.packets });
    }

    /// Returns when the next one arrives.
    pub fn next_ns(&self) -> Option<u64> {
        let head = self.heads.peek().map(|Reverse((key, _))| key.0);
        head.into_iter().chain(self.strays.first().map(|key| key.0)).min()
    }

    /// Returns the next one that has arrived by `now_ns`, and when it did.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(u64, T)> {
        if let Some(key) = self.strays.first()
            && self.heads.peek().is_none_or(|Reverse((head, _))| key < *head)
        {
            if key.0 > now_ns {
                return None;
            }
            self.len -= 1;
            return self.strays.pop().map(|item| (key.0, item));
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

    /// Returns how many are on the way.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing is on the way.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn insert(&mut self, lane: usize, at_ns: u64, item: T) {
        let key = (at_ns, self.next_sequence());
        let in_order = &mut self.lanes[lane].in_order;
        match in_order.back() {
            Some((last, _)) if last.0 > at_ns => {
                self.strays.insert(key, item);
            }
            Some(_) => in_order.push_back((key, item)),
            None => {
                in_order.push_back((key, item));
                self.heads.push(Reverse((key, lane)));
            }
        }
    }

    /// Releases waiting packets after another one has passed them: those that have waited long enough follow it directly.
    fn release(&mut self, lane: usize, passed_ns: u64) {
        let mut waiting = std::mem::take(&mut self.lanes[lane].waiting);
        waiting.retain_mut(|waiting| {
            waiting.packets -= 1;
            if waiting.packets > 0 {
                return true;
            }
            // A packet that has waited for the maximum time was released already.
            if let Some(item) = self.strays.remove(waiting.ticket) {
                let at_latest_ns = waiting.ticket.0.0;
                self.insert(lane, waiting.at_ns.max(passed_ns).min(at_latest_ns), item);
            }
            false
        });
        self.lanes[lane].waiting = waiting;
    }
}

/// Names a stray: when it arrives, and where it is kept.
type Ticket = (Key, usize);

/// Packets that are out of order.
#[derive(Debug)]
struct Strays<T> {
    /// Tickets of all that is kept, and of some that were taken out; the first is always of one that is kept.
    order: BinaryHeap<Reverse<Ticket>>,
    kept: Slab<(Key, T)>,
}

impl<T> Strays<T> {
    fn new() -> Self {
        Strays { order: BinaryHeap::new(), kept: Slab::new() }
    }

    fn insert(&mut self, key: Key, item: T) -> Ticket {
        let ticket = (key, self.kept.insert((key, item)));
        self.order.push(Reverse(ticket));
        ticket
    }

    fn first(&self) -> Option<Key> {
        self.order.peek().map(|Reverse((key, _))| *key)
    }

    fn pop(&mut self) -> Option<T> {
        let Reverse(ticket) = *self.order.peek()?;
        self.remove(ticket)
    }

    /// Takes one out, if it is still there.
    fn remove(&mut self, ticket: Ticket) -> Option<T> {
        if !self.is_kept(ticket) {
            return None;
        }
        let (_, item) = self.kept.remove(ticket.1);
        while self.order.peek().is_some_and(|Reverse(first)| !self.is_kept(*first)) {
            self.order.pop();
        }
        Some(item)
    }

    /// Returns whether the item of a ticket is still kept. Another one may be in its place.
    fn is_kept(&self, (key, place): Ticket) -> bool {
        self.kept.get(place).is_some_and(|(kept, _)| *kept == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LANES: usize = 3;

    /// All that is on the way in one list that is sorted for every question.
    #[derive(Default)]
    struct Model {
        on_the_way: Vec<(Key, usize)>,
        /// Lane, item, time of its own, latest time and packets still to pass.
        waiting: Vec<(usize, usize, u64, u64, u32)>,
        sequence: u64,
    }

    impl Model {
        fn insert(&mut self, at_ns: u64, item: usize) {
            self.sequence += 1;
            self.on_the_way.push(((at_ns, self.sequence), item));
            self.on_the_way.sort_unstable();
        }

        fn push(&mut self, lane: usize, at_ns: u64, item: usize) {
            self.insert(at_ns, item);
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.iter_mut().filter(|waiting| waiting.0 == lane).for_each(|waiting| waiting.4 -= 1);
            for (_, item, own_ns, at_latest_ns, _) in waiting.extract_if(.., |waiting| waiting.4 == 0) {
                if let Some(place) = self.on_the_way.iter().position(|(_, other)| *other == item) {
                    self.on_the_way.remove(place);
                    self.insert(at_latest_ns.min(own_ns.max(at_ns)), item);
                }
            }
            self.waiting = waiting;
        }

        fn push_behind(&mut self, lane: usize, at_ns: u64, behind: Behind, item: usize) {
            self.insert(behind.at_latest_ns, item);
            self.waiting.push((lane, item, at_ns, behind.at_latest_ns, behind.packets));
        }
    }

    /// Lane, delay, time to the next, whether it is late, and what it waits for.
    type Step = (usize, u64, u64, bool, Option<(u32, u64)>);

    fn any_step() -> impl Strategy<Value = Step> {
        (0..LANES, 0u64..20, 0u64..8, any::<bool>(), prop::option::of((1u32..4, 0u64..30)))
    }

    proptest! {
        /// Any mixture of lanes, times and waiting comes out as sorting all of it would give.
        #[test]
        fn all_arrives_in_order(
            steps in prop::collection::vec(any_step(), 0..300)
        ) {
            let mut transit = Transit::new();
            (0..LANES).for_each(|_| transit.add_lane());
            let mut model = Model::default();
            let mut now_ns = 0;
            for (item, (lane, delay_ns, gap_ns, late, behind)) in steps.into_iter().enumerate() {
                let at_ns = now_ns + delay_ns;
                match behind.map(|(packets, wait_ns)| Behind { packets, at_latest_ns: at_ns + wait_ns }) {
                    Some(behind) => {
                        transit.push_behind(lane, at_ns, behind, item);
                        model.push_behind(lane, at_ns, behind, item);
                    }
                    None => {
                        if late {
                            transit.push_late(lane, at_ns, item);
                        } else {
                            transit.push(lane, at_ns, item);
                        }
                        model.push(lane, at_ns, item);
                    }
                }
                now_ns += gap_ns;
                prop_assert_eq!(transit.next_ns(), model.on_the_way.first().map(|(key, _)| key.0));
                while let Some((at_ns, item)) = transit.pop_due(now_ns) {
                    let (key, expected) = model.on_the_way.remove(0);
                    prop_assert_eq!((at_ns, item), (key.0, expected));
                }
                prop_assert!(model.on_the_way.first().is_none_or(|(key, _)| key.0 > now_ns));
                prop_assert_eq!(transit.len(), model.on_the_way.len());
            }
        }
    }
}
