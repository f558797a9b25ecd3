//! A set of integers kept as sorted, disjoint, non-adjacent ranges.

use std::collections::VecDeque;
use std::ops::Range;

use crate::partition_near::partition_near;

/// Maximum number of ranges for which an empty set keeps memory.
const KEPT_RANGES_MAX: usize = 16;

/// Number of changes up to which each is made alone, which moves the ranges behind or before it by one place.
const SINGLE_CHANGES_MAX: usize = 16;

/// Sorted half-open ranges. The cost of a change is proportional to the changed ranges, plus a binary search; an empty
/// set owns almost no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: VecDeque<(u64, u64)>,
    count: u64,
}

impl RangeSet {
    /// Returns an empty set.
    pub const fn new() -> Self {
        RangeSet { ranges: VecDeque::new(), count: 0 }
    }

    /// Returns whether the set has no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of members.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of separate ranges.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the lowest member.
    pub fn first(&self) -> Option<u64> {
        self.ranges.front().map(|r| r.0)
    }

    /// Returns the highest member.
    pub fn last(&self) -> Option<u64> {
        self.ranges.back().map(|r| r.1 - 1)
    }

    /// Returns the ranges in rising order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|&(start, end)| start..end)
    }

    /// Returns whether `value` is a member.
    pub fn contains(&self, value: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.1 <= value);
        self.ranges.get(at).is_some_and(|r| r.0 <= value)
    }

    /// Returns whether `value` is a member, as [`RangeSet::contains`] does. The search begins at `near`, where the last
    /// one ended, so that values in rising order cost little.
    pub fn contains_near(&self, value: u64, near: &mut usize) -> bool {
        *near = partition_near(self.ranges.len(), *near, |at| self.ranges[at].1 <= value);
        self.ranges.get(*near).is_some_and(|r| r.0 <= value)
    }

    /// Adds one member; returns `false` if it was a member already.
    pub fn insert(&mut self, value: u64) -> bool {
        if self.contains(value) {
            return false;
        }
        self.insert_range(value..value + 1, |_| {});
        true
    }

    /// Adds a range and reports each sub-range that was not a member yet.
    pub fn insert_range(&mut self, range: Range<u64>, mut added: impl FnMut(Range<u64>)) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // The first range that touches or follows the new one.
        let from = self.ranges.partition_point(|r| r.1 < start);
        let mut to = from;
        let mut uncovered = start;
        while let Some(&(s, e)) = self.ranges.get(to) {
            if s > end {
                break;
            }
            if uncovered < s.min(range.end) {
                added(uncovered..s.min(range.end));
                self.count += s.min(range.end) - uncovered;
            }
            uncovered = uncovered.max(e);
            start = start.min(s);
            end = end.max(e);
            to += 1;
        }
        if uncovered < range.end {
            added(uncovered..range.end);
            self.count += range.end - uncovered;
        }
        if to == from {
            self.ranges.insert(from, (start, end));
        } else {
            self.ranges[from] = (start, end);
            self.ranges.drain(from + 1..to);
        }
    }

    /// Adds ranges in rising order that contain no member. Many take one pass over the set.
    pub fn insert_each(&mut self, ranges: &[Range<u64>]) {
        if ranges.len() <= SINGLE_CHANGES_MAX {
            return ranges.iter().for_each(|range| self.insert_range(range.clone(), |_| {}));
        }
        let mut joined = VecDeque::with_capacity(self.ranges.len() + ranges.len());
        let mut added = ranges.iter().map(|range| (range.start, range.end)).peekable();
        let mut kept = self.ranges.drain(..).peekable();
        loop {
            let next = match (kept.peek(), added.peek()) {
                (Some(old), Some(new)) if new.0 < old.0 => added.next(),
                (Some(_), _) => kept.next(),
                (None, _) => added.next(),
            };
            let Some((start, end)) = next else { break };
            match joined.back_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => joined.push_back((start, end)),
            }
        }
        drop(kept);
        self.ranges = joined;
        self.count += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    }

    /// Removes ranges in rising order. Many take one pass over the set.
    pub fn remove_each(&mut self, ranges: &[Range<u64>]) {
        if ranges.len() <= SINGLE_CHANGES_MAX {
            return ranges.iter().for_each(|range| self.remove_range(range.clone()));
        }
        let rest = self.without(ranges.iter().cloned());
        self.ranges.clear();
        self.count = 0;
        for range in rest {
            self.count += range.end - range.start;
            self.ranges.push_back((range.start, range.end));
        }
        self.trim();
    }

    /// Returns the members that ranges in rising order do not contain.
    pub fn without(&self, ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let mut rest = Vec::new();
        let mut ranges = ranges.peekable();
        for &(mut start, end) in &self.ranges {
            while start < end {
                let Some(range) = ranges.peek().filter(|range| range.start < end) else { break };
                if range.start > start {
                    rest.push(start..range.start);
                }
                start = start.max(range.end);
                if range.end <= end {
                    ranges.next();
                }
            }
            if start < end {
                rest.push(start..end);
            }
        }
        rest
    }

    /// Calls `found` with each part of ranges in rising order that is no member.
    pub fn missing_in(&self, ranges: impl Iterator<Item = Range<u64>>, mut found: impl FnMut(Range<u64>)) {
        let mut at = 0;
        for range in ranges {
            let mut start = range.start;
            at = partition_near(self.ranges.len(), at, |at| self.ranges[at].1 <= start);
            while start < range.end {
                let (s, e) = self.ranges.get(at).copied().unwrap_or((range.end, range.end));
                if s > start {
                    found(start..s.min(range.end));
                }
                start = start.max(e);
                at += usize::from(e < range.end);
            }
        }
    }

    /// Returns the number of bytes that the set takes beyond itself.
    pub fn heap_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<(u64, u64)>()
    }

    /// Releases the memory of many ranges when none is left.
    #[inline]
    fn trim(&mut self) {
        if self.ranges.is_empty() && self.ranges.capacity() > KEPT_RANGES_MAX {
            self.ranges = VecDeque::new();
        }
    }

    /// Removes every member below `bound`.
    pub fn remove_below(&mut self, bound: u64) {
        while let Some(front) = self.ranges.front_mut() {
            if front.1 <= bound {
                self.count -= front.1 - front.0;
                self.ranges.pop_front();
            } else {
                if front.0 < bound {
                    self.count -= bound - front.0;
                    front.0 = bound;
                }
                break;
            }
        }
        self.trim();
    }

    /// Removes a range of values.
    pub fn remove_range(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut at = self.ranges.partition_point(|r| r.1 <= range.start);
        while let Some(&(s, e)) = self.ranges.get(at) {
            if s >= range.end {
                break;
            }
            self.count -= e.min(range.end) - s.max(range.start);
            match (s < range.start, e > range.end) {
                (true, true) => {
                    self.ranges[at].1 = range.start;
                    self.ranges.insert(at + 1, (range.end, e));
                    return;
                }
                (true, false) => {
                    self.ranges[at].1 = range.start;
                    at += 1;
                }
                (false, true) => {
                    self.ranges[at].0 = range.end;
                    return;
                }
                (false, false) => {
                    self.ranges.remove(at);
                }
            }
        }
    }

    /// Removes and returns the lowest member.
    pub fn pop_first(&mut self) -> Option<u64> {
        let front = self.ranges.front_mut()?;
        let value = front.0;
        front.0 += 1;
        self.count -= 1;
        if front.0 == front.1 {
            self.ranges.pop_front();
        }
        Some(value)
    }

    /// Removes the range that begins at `start`, if there is one; returns its end.
    pub fn take_range_at(&mut self, start: u64) -> Option<u64> {
        let &(s, e) = self.ranges.front()?;
        if s != start {
            return None;
        }
        self.count -= e - s;
        self.ranges.pop_front();
        self.trim();
        Some(e)
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.count = 0;
        self.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(ops in proptest::collection::vec((0u8..4, 0u64..60, 0u64..12), 1..80)) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (op, start, len) in ops {
                let range = start..start + len;
                match op {
                    0 | 1 => {
                        let mut added = BTreeSet::new();
                        set.insert_range(range.clone(), |r| added.extend(r));
                        let expected: BTreeSet<u64> = range.filter(|v| model.insert(*v)).collect();
                        prop_assert_eq!(added, expected);
                    }
                    2 => {
                        set.remove_range(range.clone());
                        for v in range { model.remove(&v); }
                    }
                    _ => {
                        set.remove_below(start);
                        model.retain(|v| *v >= start);
                    }
                }
                prop_assert_eq!(set.iter().flatten().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.count(), model.len() as u64);
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "ranges touch: {:?}", ranges);
                prop_assert_eq!(set.first(), model.first().copied());
                prop_assert_eq!(set.last(), model.last().copied());
                prop_assert!(!set.is_empty() || set.heap_bytes() <= KEPT_RANGES_MAX * size_of::<(u64, u64)>());
            }
        }

        #[test]
        fn many_changes_at_once_equal_single_ones(
            members in proptest::collection::vec((0u64..600, 1u64..12), 0..60),
            others in proptest::collection::vec((0u64..6, 1u64..12), 0..60),
        ) {
            let mut set = RangeSet::new();
            members.into_iter().for_each(|(start, len)| set.insert_range(start..start + len, |_| {}));
            let mut end = 0;
            let others: Vec<_> = others
                .into_iter()
                .map(|(distance, len)| {
                    let start = end + distance;
                    end = start + len;
                    start..end
                })
                .collect();
            let is_other = |value: &u64| others.iter().any(|range| range.contains(value));
            let rest: Vec<u64> = set.iter().flatten().filter(|value| !is_other(value)).collect();
            prop_assert_eq!(set.without(others.iter().cloned()).into_iter().flatten().collect::<Vec<_>>(), rest.clone());
            let mut missing = Vec::new();
            set.missing_in(others.iter().cloned(), |range| missing.push(range));
            let expected: Vec<u64> = others.iter().cloned().flatten().filter(|v| !set.contains(*v)).collect();
            prop_assert_eq!(missing.iter().cloned().flatten().collect::<Vec<_>>(), expected);

            let (mut one_by_one, mut at_once) = (set.clone(), set.clone());
            missing.iter().for_each(|range| one_by_one.insert_range(range.clone(), |_| {}));
            at_once.insert_each(&missing);
            prop_assert_eq!(&at_once, &one_by_one);
            let (mut one_by_one, mut at_once) = (set.clone(), set);
            others.iter().for_each(|range| one_by_one.remove_range(range.clone()));
            at_once.remove_each(&others);
            prop_assert_eq!(&at_once, &one_by_one);
            prop_assert_eq!(at_once.iter().flatten().collect::<Vec<_>>(), rest);
        }
    }
}
